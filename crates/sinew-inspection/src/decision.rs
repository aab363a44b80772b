//! Decisions of people: person, decision, time and comment.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_documents::words;
use sinew_engine::{Fact, PersonAnswer, Time};
use sinew_execution::events;

use crate::record::Record;

/// A decision of a person.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PersonDecision {
    /// The node with the question, with its index in maps and loops.
    pub node: String,
    /// `approved`, `rejected`, `answered` or `timed out`.
    #[serde(rename = "decision")]
    pub word: &'static str,
    /// The person; absent if the question timed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Milliseconds since 1970 UTC.
    #[serde(serialize_with = "words::serialize")]
    #[schemars(with = "String")]
    pub at: Time,
    /// Comment of the person, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The answer, if it is more than approve or reject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// Returns the decisions of an execution, in order.
pub fn decisions(record: &Record) -> Vec<PersonDecision> {
    let ctx = record.execution.ctx();
    let mut found = Vec::new();
    for round in record.execution.journal() {
        for fact in &round.facts {
            if let Fact::Answered { act, answer } = fact {
                let (word, data) = word(answer);
                found.push(PersonDecision {
                    node: events::label(&ctx, *act),
                    word,
                    by: answer.by.clone(),
                    at: round.at,
                    comment: answer.comment.clone(),
                    data,
                });
            }
        }
    }
    found
}

/// Returns the decision of an answer, and additional data.
fn word(answer: &PersonAnswer) -> (&'static str, Option<Value>) {
    if answer.timed_out {
        return ("timed out", None);
    }
    match &answer.data {
        Value::String(text) if text == "approve" => ("approved", None),
        Value::String(text) if text == "reject" => ("rejected", None),
        Value::Bool(true) => ("approved", None),
        Value::Bool(false) => ("rejected", None),
        data => ("answered", Some(data.clone())),
    }
}

impl PersonDecision {
    /// Formats the decision for people.
    pub fn line(&self, now: Time) -> String {
        let by = self.by.as_ref().map(|by| format!(" by {}", words::one_line(by, 60))).unwrap_or_default();
        let data =
            self.data.as_ref().map(|data| format!(" with {}", words::one_line(&data.to_string(), 120)));
        let comment = self.comment.as_ref().filter(|comment| !comment.is_empty());
        let comment = comment.map(|comment| format!(": {}", words::one_line(comment, 200)));
        format!(
            "{} {}{by}{}, {}{}",
            words::name(&self.node),
            self.word,
            data.unwrap_or_default(),
            words::ago(self.at, now),
            comment.unwrap_or_default()
        )
    }
}
