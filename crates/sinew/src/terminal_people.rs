//! The person at the terminal, for agents of this process that ask a person.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use sinew_agents::{People, PersonPrompt, PersonReply};
use sinew_documents::words;
use sinew_protocol::Fault;
use sinew_protocol::command::lacks_reason;

use crate::input;
use crate::output::{self, Output};

/// Answers that the command line gives in advance, each for the questions of one node or agent.
pub(crate) type GivenAnswers = Arc<Mutex<Vec<(String, Value)>>>;

/// Clears the terminal for a question, and restores it afterwards.
pub(crate) trait QuestionTerminal: Send + Sync {
    /// Prepares the terminal for a question.
    fn open(&self) -> BoxFuture<'_, ()>;
    /// Resumes the previous output.
    fn close(&self);
}

/// A terminal on which nothing else is shown.
pub(crate) struct PlainTerminal;

impl QuestionTerminal for PlainTerminal {
    fn open(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }

    fn close(&self) {}
}

/// The person at the terminal. Questions are asked one after the other.
pub(crate) struct TerminalPeople {
    answers: GivenAnswers,
    room: Box<dyn QuestionTerminal>,
    /// Whether a person sees questions and can answer.
    is_seen: bool,
    /// Held while a question is asked.
    turn: tokio::sync::Mutex<()>,
}

impl TerminalPeople {
    /// Asks only if a person sees the question and can answer; otherwise only given answers count.
    pub(crate) fn new(answers: GivenAnswers, room: Box<dyn QuestionTerminal>, output: &Output) -> Arc<Self> {
        let is_seen = output.live && !output.is_machine() && std::io::stdin().is_terminal();
        Arc::new(Self { answers, room, is_seen, turn: tokio::sync::Mutex::new(()) })
    }

    /// Returns the people for questions of this place: the node of a workflow, or the agent itself.
    pub(crate) fn asked_by(self: &Arc<Self>, place: &str) -> Arc<dyn People> {
        Arc::new(TerminalPerson { people: Arc::clone(self), place: place.to_owned() })
    }

    fn given(&self, place: &str) -> Option<Value> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let at = answers.iter().position(|(node, _)| node == place)?;
        Some(answers.remove(at).1)
    }

    async fn ask(&self, place: &str, prompt: PersonPrompt) -> PersonReply {
        let is_decision = !prompt.call.is_null();
        if let Some(answer) = self.given(place) {
            return reply_of(&answer, is_decision, "--answer");
        }
        if !self.is_seen {
            let text = "no person is available here; answer in advance with --answer";
            return PersonReply { comment: Some(text.to_owned()), ..PersonReply::default() };
        }
        let _turn = self.turn.lock().await;
        self.room.open().await;
        let place = place.to_owned();
        // Reading a terminal blocks.
        let read = tokio::task::spawn_blocking(move || read_answer(&place, &prompt)).await;
        self.room.close();
        let by = std::env::var("USER").unwrap_or_else(|_| "terminal".to_owned());
        let unanswered = || PersonReply {
            comment: Some("the person gave no answer".to_owned()),
            ..PersonReply::default()
        };
        read.ok().flatten().map_or_else(unanswered, |answer| reply_of(&answer, is_decision, &by))
    }
}

/// The node or agent that asks the person at the terminal.
struct TerminalPerson {
    people: Arc<TerminalPeople>,
    place: String,
}

impl People for TerminalPerson {
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        async move { Ok(self.people.ask(&self.place, prompt).await) }.boxed()
    }
}

/// Converts an answer to the reply for an agent. A decision is yes or no; words after it are a comment.
fn reply_of(answer: &Value, is_decision: bool, by: &str) -> PersonReply {
    let by_person = by.to_owned();
    let text = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
    let text = text.trim();
    if !is_decision {
        return PersonReply { approved: !text.is_empty(), by_person, comment: Some(text.to_owned()) };
    }
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let approved = matches!(word.to_lowercase().as_str(), "y" | "yes" | "approve" | "true");
    PersonReply { approved, by_person, comment: Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty()) }
}

/// Asks a question on the terminal, and for the reason of a rejection; returns `None` without an
/// answer.
fn read_answer(place: &str, prompt: &PersonPrompt) -> Option<Value> {
    let write_line = |text: &str| {
        let _gone = writeln!(std::io::stderr().lock(), "{}", output::escaped(text, false));
    };
    write_line(&format!("'{}' asks: {}", words::name(place), sinew_source::indented(&prompt.text)));
    let hint = if prompt.call.is_null() {
        "? "
    } else {
        let arguments = serde_json::to_string_pretty(&prompt.call).unwrap_or_default();
        write_line(&format!("  {}", sinew_source::indented(&arguments)));
        "allow? [y/N] "
    };
    let line = read_line(hint)?;
    let answer = input::json_or_text(&line);
    let reply = reply_of(&answer, !prompt.call.is_null(), "");
    if prompt.call.is_null() || !lacks_reason(!reply.approved, reply.comment.as_deref()) {
        return Some(answer);
    }
    let reason = read_line("reason? ")?;
    Some(Value::String(format!("no {reason}")))
}

/// Reads one line from the terminal; returns `None` for an empty one.
fn read_line(hint: &str) -> Option<String> {
    let mut err = std::io::stderr().lock();
    let _gone = write!(err, "{hint}").and_then(|()| err.flush());
    drop(err);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).ok()?;
    Some(line.trim().to_owned()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_words_or_decisions() {
        for (answer, is_decision, approved, comment) in [
            (json!("blue"), false, true, Some("blue")),
            (json!(""), false, false, Some("")),
            (json!(7), false, true, Some("7")),
            (json!("yes, of course"), true, false, Some("of course")),
            (json!("yes if small"), true, true, Some("if small")),
            (json!("approve"), true, true, None),
            (json!(true), true, true, None),
            (json!("no"), true, false, None),
        ] {
            let reply = reply_of(&answer, is_decision, "ada");
            assert_eq!((reply.approved, reply.comment.as_deref()), (approved, comment), "{answer}");
        }
    }
}
