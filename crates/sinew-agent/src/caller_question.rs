//! Questions of a task to its caller: the task waits for input, and the next message to it is the answer.

use std::sync::{Mutex, PoisonError};

use sinew_protocol::a2a::Message;
use tokio::sync::oneshot;

/// The question that a task asks its caller now, if any.
#[derive(Debug, Default)]
pub(crate) struct CallerDesk(Mutex<DeskState>);

#[derive(Debug, Default)]
struct DeskState {
    waiting: Option<oneshot::Sender<Message>>,
    /// Id of the message that was taken last.
    last_answer: Option<String>,
}

/// Fate of a message to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerFate {
    /// The task has it.
    Taken,
    /// The task had it already: the caller sent it again.
    Repeated,
    /// The task asks nothing.
    NotAsked,
}

impl CallerDesk {
    /// Opens the desk for an answer. A question that was open is asked no more.
    pub(crate) fn open(&self) -> oneshot::Receiver<Message> {
        let (sender, receiver) = oneshot::channel();
        self.state().waiting = Some(sender);
        receiver
    }

    /// Takes a message for the question that is open.
    pub(crate) fn take(&self, message: Message) -> AnswerFate {
        let mut state = self.state();
        let id = message.id.0.clone();
        if state.last_answer.as_ref() == Some(&id) {
            return AnswerFate::Repeated;
        }
        let Some(waiting) = state.waiting.take() else { return AnswerFate::NotAsked };
        match waiting.send(message) {
            Ok(()) => {
                state.last_answer = Some(id);
                AnswerFate::Taken
            }
            // The handler waits no more.
            Err(_) => AnswerFate::NotAsked,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, DeskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use sinew_protocol::a2a::Part;

    use super::*;

    #[test]
    fn an_answer_is_taken_once_and_only_when_asked_for() {
        let desk = CallerDesk::default();
        let message = |id: &str| Message::user(id, vec![Part::text(id)]);
        assert_eq!(desk.take(message("m1")), AnswerFate::NotAsked);
        let mut asked = desk.open();
        assert_eq!(desk.take(message("m1")), AnswerFate::Taken);
        assert_eq!(asked.try_recv().unwrap().id.0, "m1");
        assert_eq!(desk.take(message("m1")), AnswerFate::Repeated);
        assert_eq!(desk.take(message("m2")), AnswerFate::NotAsked);
        drop(desk.open());
        assert_eq!(desk.take(message("m3")), AnswerFate::NotAsked);
    }
}
