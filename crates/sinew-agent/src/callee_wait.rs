//! The status of a task while an agent or workflow that it calls waits for a person.
//!
//! The task stays `working`, because its caller cannot answer: the question is answered at the
//! execution that asks it. The status message names the question and that execution.

use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use sinew_protocol::a2a::{Message, Part, PartContent, Task, TaskState};
use sinew_protocol::task::METADATA;

/// Member of a status message's metadata: id of the task that asks the person, and the time until
/// which it waits.
const PERSON_WAIT: &str = "person_wait";
/// Member of a status message's metadata: the time until which a task waits.
const UNTIL: &str = "until";

/// Returns the status message for a called task that waits for a person; `None` if it does not
/// wait.
pub(crate) fn wait_message(callee: &Task) -> Option<Message> {
    let status = &callee.status;
    let message = status.message.as_ref();
    let metadata = message.and_then(|message| message.metadata.as_ref()?.get(METADATA));
    match status.state {
        TaskState::Working => {
            message.filter(|_| metadata.is_some_and(|m| m.get(PERSON_WAIT).is_some())).cloned()
        }
        TaskState::InputRequired => {
            let texts =
                message.iter().flat_map(|message| &message.parts).filter_map(|part| match &part.content {
                    PartContent::Text(text) => Some(text.as_str()),
                    _ => None,
                });
            let prompt = texts.collect::<Vec<_>>().join("\n");
            let text = format!("task {} waits for a person: {prompt}", callee.id.0);
            let until = metadata.and_then(|metadata| metadata.get(UNTIL)).unwrap_or(&Value::Null);
            let mut wait = Message::agent(format!("{}-wait", callee.id.0), vec![Part::text(text)]);
            let metadata = json!({ PERSON_WAIT: { "task": callee.id.0, UNTIL: until } });
            wait.metadata = Some(json!({ METADATA: metadata }));
            Some(wait)
        }
        _ => None,
    }
}

/// Calls of a task whose callees wait for a person, with their status messages.
#[derive(Debug, Default)]
pub(crate) struct CalleeWaits(Mutex<Vec<(String, Message)>>);

impl CalleeWaits {
    /// Sets or removes the message of a call.
    pub(crate) fn set(&self, call: &str, wait: Option<Message>) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|(id, _)| id != call);
        waits.extend(wait.map(|message| (call.to_owned(), message)));
    }

    /// Replaces the message of a call. Returns false if it is the same.
    pub(crate) fn update(&self, call: &str, message: Message) -> bool {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = waits.iter_mut().find(|(id, shown)| id == call && *shown != message);
        shown.map(|(_, shown)| *shown = message).is_some()
    }

    /// Returns the message of the call that has waited longest.
    pub(crate) fn oldest(&self) -> Option<Message> {
        let waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.first().map(|(_, message)| message.clone())
    }
}
