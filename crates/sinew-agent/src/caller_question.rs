//! Questions of a task to its caller: the task waits for input, and the next message to it is the answer.

use std::sync::{Mutex, PoisonError};

use sinew_protocol::a2a::Message;
use tokio::sync::oneshot;

/// The open question of a task to its caller, if any.
#[derive(Debug, Default)]
pub(crate) struct CallerQuestion(Mutex<QuestionState>);

#[derive(Debug, Default)]
struct QuestionState {
    waiting: Option<oneshot::Sender<Message>>,
    /// Id of the last accepted message.
    last_answer: Option<String>,
}

/// Result of a message to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerFate {
    /// The task accepted it as the answer.
    Taken,
    /// A repetition of the accepted message.
    Repeated,
    /// The task has no open question.
    NotAsked,
}

impl CallerQuestion {
    /// Opens a question and returns its answer. It replaces an open question.
    pub(crate) fn open(&self) -> oneshot::Receiver<Message> {
        let (sender, receiver) = oneshot::channel();
        self.state().waiting = Some(sender);
        receiver
    }

    /// Passes a message to the open question.
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
            // The handler no longer waits.
            Err(_) => AnswerFate::NotAsked,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, QuestionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use sinew_protocol::a2a::Part;

    use super::*;

    #[test]
    fn an_answer_is_taken_once_and_only_when_asked_for() {
        let question = CallerQuestion::default();
        let message = |id: &str| Message::user(id, vec![Part::text(id)]);
        assert_eq!(question.take(message("m1")), AnswerFate::NotAsked);
        let mut asked = question.open();
        assert_eq!(question.take(message("m1")), AnswerFate::Taken);
        assert_eq!(asked.try_recv().unwrap().id.0, "m1");
        assert_eq!(question.take(message("m1")), AnswerFate::Repeated);
        assert_eq!(question.take(message("m2")), AnswerFate::NotAsked);
        drop(question.open());
        assert_eq!(question.take(message("m3")), AnswerFate::NotAsked);
    }
}
