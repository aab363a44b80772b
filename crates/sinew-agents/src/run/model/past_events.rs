//! Events of calls that earlier processes made in a conversation: the reply of the process that ends
//! the conversation contains them too.

use serde_json::{Value, json};
use sinew_model::{CallStatus, StepBody, StepRecord};

use super::builtin_tools::BuiltinTool;
use super::conversation::shown_value;

/// Returns the events of decided and completed calls since the last reset of a conversation: the
/// nested one of the call with this key, or that of the task.
///
/// A call without a result has no event: the next process makes and reports it.
pub(super) fn past_events(records: &[StepRecord], within: Option<&str>) -> Vec<Value> {
    let mut events = Vec::new();
    let mut requested = [].as_slice();
    for record in records.iter().filter(|record| record.within.as_deref() == within) {
        match &record.body {
            StepBody::Begin(begin) if begin.reset => events.clear(),
            StepBody::Turn { answer, .. } => requested = answer.calls.as_slice(),
            StepBody::Decision { call, approved, by_person, .. } => {
                if let Some(asked) = requested.get(call.index as usize) {
                    events.push(decision_event(&asked.tool, *approved, by_person));
                }
            }
            StepBody::Done { call, result } => {
                let made = requested.get(call.index as usize).filter(|_| was_made(result.status));
                if let Some(made) = made.filter(|made| made.tool != BuiltinTool::AskPerson.name()) {
                    let arguments = serde_json::from_str(&made.arguments).unwrap_or(Value::Null);
                    events.push(call_event(&made.tool, &arguments));
                    events.push(result_event(&made.tool, result.status, &result.content));
                }
            }
            _ => {}
        }
    }
    events
}

/// Returns whether a call with this outcome ran its tool.
const fn was_made(status: CallStatus) -> bool {
    matches!(status, CallStatus::Succeeded | CallStatus::Failed | CallStatus::Unknown)
}

/// Returns the event of a call.
pub(super) fn call_event(tool: &str, arguments: &Value) -> Value {
    json!({"type": "tool:call", "tool": tool, "input": shown_value(arguments)})
}

/// Returns the event of a call's result or error.
pub(super) fn result_event(tool: &str, status: CallStatus, content: &Value) -> Value {
    let kind = if status == CallStatus::Succeeded { "tool:result" } else { "tool:error" };
    json!({"type": kind, "tool": tool, "output": shown_value(content)})
}

/// Returns the event of a person's decision about a call.
pub(super) fn decision_event(tool: &str, approved: bool, by_person: &str) -> Value {
    json!({"type": "person", "tool": tool, "approved": approved, "by": by_person})
}
