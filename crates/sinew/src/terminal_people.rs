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
use sinew_protocol::decision::WrittenDecision;

use crate::input;
use crate::output::{self, Output};

/// Answer to a text that is neither yes nor no.
pub(crate) const UNDECIDED: &str = "answer yes, or no and the reason";

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
            let comment = Some(format!("--answer: {UNDECIDED}"));
            let undecided = || PersonReply { comment, ..PersonReply::default() };
            return reply_of(&answer, is_decision, "--answer").unwrap_or_else(undecided);
        }
        if !self.is_seen {
            let text = "no person is available here; answer in advance with --answer";
            return PersonReply { comment: Some(text.to_owned()), ..PersonReply::default() };
        }
        let _turn = self.turn.lock().await;
        self.room.open().await;
        let place = place.to_owned();
        let by = std::env::var("USER").unwrap_or_else(|_| "terminal".to_owned());
        // Reading a terminal blocks.
        let read = tokio::task::spawn_blocking(move || read_answer(&place, &prompt, &by)).await;
        self.room.close();
        let unanswered = || PersonReply {
            comment: Some("the person gave no answer".to_owned()),
            ..PersonReply::default()
        };
        read.ok().flatten().unwrap_or_else(unanswered)
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

/// Converts an answer to the reply for an agent; `None` if it decides nothing, though only yes or no
/// answers the question.
pub(crate) fn reply_of(answer: &Value, is_decision: bool, by: &str) -> Option<PersonReply> {
    let by_person = by.to_owned();
    if is_decision {
        let WrittenDecision { approved, comment, .. } = WrittenDecision::of(answer)?;
        return Some(PersonReply { approved, by_person, comment });
    }
    let text = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
    let text = text.trim();
    Some(PersonReply { approved: !text.is_empty(), by_person, comment: Some(text.to_owned()) })
}

/// Asks a question on the terminal until it is answered, and for the reason of a rejection; returns
/// `None` without an answer.
fn read_answer(place: &str, prompt: &PersonPrompt, by: &str) -> Option<PersonReply> {
    let write_line = |text: &str| {
        let _gone = writeln!(std::io::stderr().lock(), "{}", output::escaped(text, false));
    };
    write_line(&format!("'{}' asks: {}", words::name(place), sinew_source::indented(&prompt.text)));
    let is_decision = !prompt.call.is_null();
    if is_decision {
        let arguments = serde_json::to_string_pretty(&prompt.call).unwrap_or_default();
        write_line(&format!("  {}", sinew_source::indented(&arguments)));
    }
    let mut reply = loop {
        let line = read_line(if is_decision { "allow? [y/N] " } else { "? " })?;
        match reply_of(&input::json_or_text(&line), is_decision, by) {
            Some(reply) => break reply,
            None => write_line(UNDECIDED),
        }
    };
    if is_decision && lacks_reason(!reply.approved, reply.comment.as_deref()) {
        reply.comment = Some(read_line("reason? ")?);
    }
    Some(reply)
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
            (json!("blue"), false, Some(true), Some("blue")),
            (json!(""), false, Some(false), Some("")),
            (json!(7), false, Some(true), Some("7")),
            (json!("yes, of course"), true, Some(true), Some("of course")),
            (json!("yes if small"), true, None, None),
            (json!("approve"), true, Some(true), None),
            (json!(true), true, Some(true), None),
            (json!("no"), true, Some(false), None),
            (json!("nope"), true, None, None),
            (json!("maybe"), true, None, None),
        ] {
            let reply = reply_of(&answer, is_decision, "ada");
            let read = reply.map(|reply| (reply.approved, reply.comment));
            assert_eq!(read, approved.map(|approved| (approved, comment.map(str::to_owned))), "{answer}");
        }
    }
}
