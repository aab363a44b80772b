//! The messages of an execution as the history of its A2A task, derived from the facts.

use serde_json::Value;
use sinew_engine::{Fact, PersonAnswer};
use sinew_protocol::a2a::{Message, Part, bound_history};
use sinew_protocol::journal::ExecutionMeta;

use super::KnownExecution;
use super::task::{said, session};
use super::task_events::{TaskUpdate, updates};

/// Returns the messages so far: the request, and the questions to people with their answers. The
/// questions that are still open are in the status of the task. An old message, or one that is too
/// large, is left out.
pub(super) fn history(known: &KnownExecution) -> Vec<Message> {
    let meta = &known.record.meta;
    let (mut messages, mut open) = (Vec::new(), Vec::new());
    let mut seq = 0;
    known.folded.replay(|ctx, fact| {
        match fact {
            Fact::Started(start) => messages.push(request(meta, &start.input)),
            Fact::Answered { answer, .. } if !answer.timed_out => {
                messages.append(&mut open);
                messages.push(from_caller(
                    meta,
                    &format!("{}-answer-{seq}", meta.execution),
                    answered(answer),
                ));
            }
            Fact::CalleeWaits { wait: None, .. } | Fact::Ended => messages.append(&mut open),
            _ => {}
        }
        for update in updates(ctx, &meta.execution, fact) {
            seq += 1;
            if let TaskUpdate::Asked(prompt) = update {
                open.push(said(meta, &format!("{}-event-{seq}", meta.execution), Part::text(prompt)));
            }
        }
    });
    bound_history(&mut messages);
    messages
}

/// Returns the message that started the execution. Its id is the idempotency key of the start.
fn request(meta: &ExecutionMeta, input: &Value) -> Message {
    let generated = || format!("{}-request", meta.execution);
    let id = meta.idempotency_key.clone().unwrap_or_else(generated);
    // A text without a property of its own is the input `{"text": …}`.
    let text = match input {
        Value::Object(members) if members.len() == 1 => members.get("text").and_then(Value::as_str),
        other => other.as_str(),
    };
    let part = text.map_or_else(|| Part::data(input.clone()), Part::text);
    from_caller(meta, &id, part)
}

fn from_caller(meta: &ExecutionMeta, id: &str, part: Part) -> Message {
    let message = Message::user(id, vec![part]).with_task_id(meta.execution.as_str());
    message.with_context_id(session(meta))
}

fn answered(answer: &PersonAnswer) -> Part {
    // A decision without data has this data.
    let is_bare = matches!(answer.data.as_str(), Some("approve" | "reject")) || answer.data.is_null();
    match (answer.comment.as_ref().filter(|_| is_bare), &answer.data) {
        (Some(comment), _) => Part::text(comment),
        (None, Value::String(text)) => Part::text(text),
        (None, data) => Part::data(data.clone()),
    }
}
