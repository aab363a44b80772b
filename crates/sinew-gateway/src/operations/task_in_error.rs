//! Agents' errors with the task id that the client knows.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_protocol::a2a::A2aError;

use super::{Endpoint, OperationCall};

/// The task id in the parameters of an operation; other members are not parsed here.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamedTask {
    id: Option<String>,
    task_id: Option<String>,
    message: Option<MessageTask>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MessageTask {
    task_id: Option<String>,
}

/// Replaces the task id in an error by the one that the client sent: agents omit `AGENT.`, without
/// which clients of the mesh cannot find the task.
pub(super) fn show_task_in_error(call: &OperationCall, params: &RawValue, mut error: A2aError) -> A2aError {
    if call.endpoint != Endpoint::Mesh {
        return error;
    }
    let named: NamedTask = serde_json::from_str(params.get()).unwrap_or_default();
    let in_message = named.message.and_then(|message| message.task_id);
    let Some(shown) = in_message.or(named.task_id).or(named.id) else { return error };
    let Some((_, own)) = shown.split_once('.').filter(|(_, own)| !own.is_empty()) else { return error };
    error.message = shown_text(&error.message, own, &shown);
    if let Some(data) = &mut error.data {
        show_in_value(data, own, &shown);
    }
    error
}

/// Replaces the agent's own task id in a text by the one that the client knows. Ids within a longer
/// word are unchanged.
fn shown_text(text: &str, own: &str, shown: &str) -> String {
    let is_word = |one: Option<char>| one.is_some_and(|one| one.is_alphanumeric() || "._-".contains(one));
    let (mut told, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(own) {
        let (before, behind) = (&rest[..at], &rest[at + own.len()..]);
        let before_id = before.chars().next_back().or_else(|| told.chars().next_back());
        // A dot after an id ends a sentence.
        let is_whole = !is_word(before_id) && !is_word(behind.chars().next().filter(|next| *next != '.'));
        told.push_str(before);
        told.push_str(if is_whole { shown } else { own });
        rest = behind;
    }
    told + rest
}

fn show_in_value(value: &mut Value, own: &str, shown: &str) {
    match value {
        Value::String(text) => *text = shown_text(text, own, shown),
        Value::Array(items) => items.iter_mut().for_each(|item| show_in_value(item, own, shown)),
        Value::Object(members) => members.values_mut().for_each(|member| show_in_value(member, own, shown)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_the_task_as_the_client_does() {
        let check = |text: &str, expected: &str| assert_eq!(shown_text(text, "7a", "one.7a"), expected);
        check("Task cannot be canceled: 7a", "Task cannot be canceled: one.7a");
        check("7a is not one.7a, \"7a\".", "one.7a is not one.7a, \"one.7a\".");
        check("17a 7ab 7a-b", "17a 7ab 7a-b");
        check("nothing", "nothing");
    }
}
