//! A2A 0.3 as JSON (specification 0.3.0, sections 5 to 7): its messages, tasks, events and cards as
//! those of A2A 1.0, and back. Members that this module does not know are kept, so the reader of the
//! other version decides on them.

mod call;
mod card;

pub(crate) use call::old_method;
pub use call::{OldCall, modern_result, old_request};
pub use card::{add_old_members, modern_card, remove_old_members};

use serde_json::{Map, Value, json};

/// Version of this module, as in the header `A2A-Version`.
pub const OLD_VERSION: &str = "0.3";

/// Member that names the kind of an object.
const KIND: &str = "kind";
/// Member of a part's metadata: `data` contains a value that is no object, as the member `value`.
const WRAPPED: &str = "data_part_compat";

/// States of a task in A2A 1.0 and 0.3.
const STATES: [(&str, &str); 9] = [
    ("TASK_STATE_SUBMITTED", "submitted"),
    ("TASK_STATE_WORKING", "working"),
    ("TASK_STATE_INPUT_REQUIRED", "input-required"),
    ("TASK_STATE_COMPLETED", "completed"),
    ("TASK_STATE_CANCELED", "canceled"),
    ("TASK_STATE_FAILED", "failed"),
    ("TASK_STATE_REJECTED", "rejected"),
    ("TASK_STATE_AUTH_REQUIRED", "auth-required"),
    ("TASK_STATE_UNSPECIFIED", "unknown"),
];
/// Roles of a message in A2A 1.0 and 0.3.
const ROLES: [(&str, &str); 2] = [("ROLE_USER", "user"), ("ROLE_AGENT", "agent")];
/// States after which no event follows in a stream.
const FINAL_STATES: [&str; 6] =
    ["completed", "canceled", "failed", "rejected", "input-required", "auth-required"];

/// Direction of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From A2A 1.0 to 0.3.
    Old,
    /// From A2A 0.3 to 1.0.
    Modern,
}

impl Direction {
    /// Replaces a name by that of the other version; an unknown name stays.
    fn rename(self, names: &[(&'static str, &'static str)], value: &mut Value) {
        let found = names.iter().find_map(|(modern, old)| match self {
            Self::Old => (value == modern).then_some(*old),
            Self::Modern => (value == old).then_some(*modern),
        });
        if let Some(name) = found {
            *value = json!(name);
        }
    }

    /// Sets the kind of an object, or removes it.
    fn mark(self, members: &mut Map<String, Value>, kind: &str) {
        match self {
            Self::Old => drop(members.insert(KIND.to_owned(), json!(kind))),
            Self::Modern => drop(members.shift_remove(KIND)),
        }
    }

    fn message(self, message: &mut Value) {
        let Some(members) = message.as_object_mut() else { return };
        if let Some(role) = members.get_mut("role") {
            self.rename(&ROLES, role);
        }
        self.each(members, "parts", Self::part);
        self.mark(members, "message");
    }

    fn task(self, task: &mut Value) {
        let Some(members) = task.as_object_mut() else { return };
        if let Some(status) = members.get_mut("status") {
            self.status(status);
        }
        self.each(members, "history", Self::message);
        self.each(members, "artifacts", Self::artifact);
        self.mark(members, "task");
    }

    fn status(self, status: &mut Value) {
        if let Some(state) = status.get_mut("state") {
            self.rename(&STATES, state);
        }
        if let Some(message) = status.get_mut("message") {
            self.message(message);
        }
    }

    fn artifact(self, artifact: &mut Value) {
        if let Some(members) = artifact.as_object_mut() {
            self.each(members, "parts", Self::part);
        }
    }

    fn part(self, part: &mut Value) {
        if let Some(members) = part.as_object_mut() {
            match self {
                Self::Old => old_part(members),
                Self::Modern => modern_part(members),
            }
        }
    }

    fn each(self, members: &mut Map<String, Value>, name: &str, translate: fn(Self, &mut Value)) {
        let items = members.get_mut(name).and_then(Value::as_array_mut);
        items.into_iter().flatten().for_each(|item| translate(self, item));
    }
}

fn old_part(members: &mut Map<String, Value>) {
    let file = [("raw", "bytes"), ("url", "uri")]
        .into_iter()
        .find_map(|(modern, old)| Some((old, members.shift_remove(modern)?)));
    let about = [("filename", "name"), ("mediaType", "mimeType")]
        .map(|(modern, old)| (old, members.shift_remove(modern)));
    if let Some((content, value)) = file {
        let mut file = Map::from_iter([(content.to_owned(), value)]);
        file.extend(about.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        members.insert("file".to_owned(), Value::Object(file));
        Direction::Old.mark(members, "file");
    } else if let Some(data) = members.get_mut("data") {
        if !data.is_object() {
            *data = json!({ "value": data.take() });
            let metadata = members.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert(WRAPPED.to_owned(), json!(true));
            }
        }
        Direction::Old.mark(members, "data");
    } else {
        Direction::Old.mark(members, "text");
    }
}

fn modern_part(members: &mut Map<String, Value>) {
    if let Some(Value::Object(mut file)) = members.get_mut("file").map(Value::take) {
        members.shift_remove("file");
        for (old, modern) in
            [("bytes", "raw"), ("uri", "url"), ("name", "filename"), ("mimeType", "mediaType")]
        {
            let value = file.shift_remove(old).filter(|value| !value.is_null());
            members.extend(value.map(|value| (modern.to_owned(), value)));
        }
    }
    let is_wrapped = members.get("metadata").and_then(|metadata| metadata.get(WRAPPED)) == Some(&json!(true));
    if let Some(value) = members.get_mut("data").filter(|_| is_wrapped).and_then(|data| data.get_mut("value"))
    {
        let value = value.take();
        members.insert("data".to_owned(), value);
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove(WRAPPED);
        }
    }
    Direction::Modern.mark(members, "");
}

/// Translates an event of a stream, or the result of `SendMessage`, from 1.0 to 0.3: the object
/// itself with its `kind`, instead of a member with the name of the kind.
pub fn old_event(event: Value) -> Value {
    let Value::Object(members) = event else { return event };
    let Some((kind, mut value)) = members.into_iter().next() else { return Value::Null };
    match kind.as_str() {
        "task" => Direction::Old.task(&mut value),
        "message" => Direction::Old.message(&mut value),
        "statusUpdate" => {
            if let Some(status) = value.get_mut("status") {
                Direction::Old.status(status);
            }
            let state = value.pointer("/status/state").and_then(Value::as_str).unwrap_or_default();
            let is_final = FINAL_STATES.contains(&state);
            if let Some(members) = value.as_object_mut() {
                members.insert("final".to_owned(), json!(is_final));
                Direction::Old.mark(members, "status-update");
            }
        }
        "artifactUpdate" => {
            if let Some(artifact) = value.get_mut("artifact") {
                Direction::Old.artifact(artifact);
            }
            if let Some(members) = value.as_object_mut() {
                Direction::Old.mark(members, "artifact-update");
            }
        }
        _ => {}
    }
    value
}

/// Translates an event of a stream, or the result of `message/send`, from 0.3 to 1.0.
pub fn modern_event(mut event: Value) -> Value {
    let kind = event.get(KIND).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = match kind.as_str() {
        "task" => {
            Direction::Modern.task(&mut event);
            "task"
        }
        "message" => {
            Direction::Modern.message(&mut event);
            "message"
        }
        "status-update" => {
            if let Some(status) = event.get_mut("status") {
                Direction::Modern.status(status);
            }
            "statusUpdate"
        }
        "artifact-update" => {
            if let Some(artifact) = event.get_mut("artifact") {
                Direction::Modern.artifact(artifact);
            }
            "artifactUpdate"
        }
        _ => return event,
    };
    if let Some(members) = event.as_object_mut() {
        members.shift_remove("final");
        Direction::Modern.mark(members, "");
    }
    json!({ name: event })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events in both versions, which are translated in both directions.
    #[test]
    fn events_are_the_same_in_both_versions() {
        for (modern, old) in [
            (
                json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_INPUT_REQUIRED",
                    "message": {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "which?"}]}},
                    "history": [{"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"a": 1}}]}],
                    "artifacts": [{"artifactId": "a", "parts": [
                        {"raw": "YQ==", "filename": "a.txt", "mediaType": "text/plain"},
                        {"url": "https://x.example/b", "metadata": {"k": 1}}]}],
                    "metadata": {"m": 1}}}),
                json!({"kind": "task", "id": "t", "contextId": "c", "status": {"state": "input-required",
                    "message": {"kind": "message", "messageId": "q", "role": "agent",
                                "parts": [{"kind": "text", "text": "which?"}]}},
                    "history": [{"kind": "message", "messageId": "m", "role": "user",
                                 "parts": [{"kind": "data", "data": {"a": 1}}]}],
                    "artifacts": [{"artifactId": "a", "parts": [
                        {"kind": "file", "file": {"bytes": "YQ==", "name": "a.txt", "mimeType": "text/plain"}},
                        {"kind": "file", "file": {"uri": "https://x.example/b"}, "metadata": {"k": 1}}]}],
                    "metadata": {"m": 1}}),
            ),
            (
                json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "taskId": "t",
                    "parts": [{"data": 7, "metadata": {}}]}}),
                json!({"kind": "message", "messageId": "m", "role": "agent", "taskId": "t",
                    "parts": [{"kind": "data", "data": {"value": 7}, "metadata": {"data_part_compat": true}}]}),
            ),
            (
                json!({"statusUpdate": {"taskId": "t", "contextId": "c",
                    "status": {"state": "TASK_STATE_WORKING", "timestamp": "2026-01-01T00:00:00Z"}}}),
                json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": false,
                    "status": {"state": "working", "timestamp": "2026-01-01T00:00:00Z"}}),
            ),
            (
                json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_FAILED"}}}),
                json!({"kind": "status-update", "taskId": "t", "contextId": "c", "final": true,
                    "status": {"state": "failed"}}),
            ),
            (
                json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": true, "lastChunk": false,
                    "artifact": {"artifactId": "a", "parts": [{"text": "x"}]}}}),
                json!({"kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true, "lastChunk": false,
                    "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}}),
            ),
        ] {
            assert_eq!(old_event(modern.clone()), old, "{modern}");
            assert_eq!(modern_event(old.clone()), modern, "{old}");
        }
    }

    #[test]
    fn every_state_has_a_name_in_both_versions() {
        for (modern, old) in STATES {
            let mut state = json!(modern);
            Direction::Old.rename(&STATES, &mut state);
            assert_eq!(state, old);
            Direction::Modern.rename(&STATES, &mut state);
            assert_eq!(state, modern);
        }
    }

    #[test]
    fn other_values_stay_as_they_are() {
        for value in [json!(null), json!([1]), json!("x"), json!({"kind": "else", "x": 1})] {
            assert_eq!(modern_event(value.clone()), value);
        }
        assert_eq!(old_event(json!({"task": 5})), json!(5));
        assert_eq!(old_event(json!({})), json!(null));
    }
}
