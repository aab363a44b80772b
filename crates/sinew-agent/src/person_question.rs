//! Questions of a handler to people.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// A question to a person.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionToPerson {
    /// The question, as text.
    pub prompt: String,
    /// Data for the decision, such as a tool and its arguments; null for a question that is
    /// answered with text.
    pub data: Value,
    /// People who may answer; everyone if empty.
    pub people: Vec<String>,
    /// Time for the answer; an hour by default, seven days at most.
    pub timeout: Option<Duration>,
}

/// A person's answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct PersonAnswer {
    /// Whether the person approves; for a text question, whether it has an answer.
    pub approved: bool,
    /// Identity of the person; `None` if none answered in time.
    #[serde(default)]
    pub by: Option<String>,
    /// Comment of the person.
    #[serde(default)]
    pub comment: Option<String>,
    /// The answer other than yes and no; null if there is none.
    #[serde(default)]
    pub answer: Value,
    /// Whether no answer arrived in time.
    #[serde(default)]
    pub timed_out: bool,
}

impl QuestionToPerson {
    /// Returns the input of the execution that asks. People see the caller and its work as names
    /// with texts; empty texts are omitted.
    pub(crate) fn into_input(self, asked_by: &[(&str, &str)]) -> Value {
        let told = asked_by.iter().copied().filter(|(_, text)| !text.is_empty());
        let mut input = json!({
            "prompt": self.prompt,
            "data": self.data,
            "people": self.people,
            "asked_by": told.map(|(key, text)| (key.to_owned(), text.into())).collect::<serde_json::Map<_, _>>(),
        });
        if let Some(timeout) = self.timeout {
            input["timeout_ms"] = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).into();
        }
        input
    }
}
