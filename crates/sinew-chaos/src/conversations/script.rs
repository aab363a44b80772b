//! Script of the fake model: its answers and tool calls in each conversation.

use serde_json::{Value, json};

/// A repeatable tool.
pub(crate) const LOOK: &str = "Look";
/// A tool with a side effect each time it runs.
pub(crate) const ACT: &str = "Act";
/// Tools that the model calls in each turn. A last turn without calls follows.
pub(crate) const TURN_CALLS: [&[&str]; 3] = [&[LOOK, ACT], &[ACT], &[LOOK, LOOK, ACT]];

/// Returns whether the model calls tools in this turn.
pub(crate) fn has_calls(turn: usize) -> bool {
    turn < TURN_CALLS.len()
}

/// Returns the number of calls of a tool in a conversation.
pub(crate) fn calls_of(tool: &str) -> usize {
    TURN_CALLS.iter().flat_map(|calls| calls.iter()).filter(|called| **called == tool).count()
}

/// Returns the first message of a conversation.
pub(crate) fn question(conversation: u32) -> String {
    format!("c{conversation}")
}

/// Returns the expected final text of a conversation.
pub(crate) fn right_answer(conversation: u32) -> String {
    format!("c{conversation} done")
}

/// A call of a tool: its conversation, turn and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkId {
    pub(crate) conversation: u32,
    pub(crate) turn: usize,
    pub(crate) index: usize,
}

impl WorkId {
    /// Returns the tool's input text.
    pub(crate) fn text(self) -> String {
        format!("c{}-{}-{}", self.conversation, self.turn, self.index)
    }

    /// Parses a tool's input text.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix('c')?.split('-');
        let id = Self {
            conversation: parts.next()?.parse().ok()?,
            turn: parts.next()?.parse().ok()?,
            index: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(id)
    }
}

/// Returns the chat completion of a turn.
pub(crate) fn answer(conversation: u32, turn: usize) -> Value {
    let message = match TURN_CALLS.get(turn) {
        Some(calls) => {
            let calls = calls.iter().enumerate().map(|(index, tool)| {
                let id = WorkId { conversation, turn, index }.text();
                let arguments = json!({ "id": id }).to_string();
                let function = json!({"name": format!("peer_{tool}"), "arguments": arguments});
                json!({"id": format!("call-{turn}-{index}"), "type": "function", "function": function})
            });
            json!({"role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>()})
        }
        None => json!({"role": "assistant", "content": right_answer(conversation)}),
    };
    let finish = if has_calls(turn) { "tool_calls" } else { "stop" };
    json!({
        "model": "fake-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2},
    })
}

/// Returns the call ids in a prompt that do not have exactly one result.
pub(crate) fn unanswered_calls(messages: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let rest = &messages[place + 1..];
            let behind = rest.iter().take_while(|message| message["role"] == "tool");
            let results = behind.filter(|message| message["tool_call_id"] == call["id"]).count();
            if results != 1 {
                wrong.push(format!("{} has {results} results", call["id"]));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_a_result_are_found() {
        let asked = answer(7, 0)["choices"][0]["message"].clone();
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "{}"});
        let good = [asked.clone(), result("call-0-0"), result("call-0-1")];
        assert_eq!(unanswered_calls(&good), Vec::<String>::new());
        let bad = [asked, result("call-0-0"), result("call-0-0")];
        assert_eq!(unanswered_calls(&bad).len(), 2);
    }

    #[test]
    fn work_is_named_by_its_place() {
        let id = WorkId { conversation: 12, turn: 2, index: 1 };
        assert_eq!((WorkId::read(&id.text()), WorkId::read("c1-2")), (Some(id), None));
        assert_eq!((calls_of(LOOK), calls_of(ACT)), (3, 3));
    }
}
