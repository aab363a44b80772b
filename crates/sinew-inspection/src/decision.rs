//! Decisions of people: person, decision, time and comment.

use serde_json::Value;
use sinew_documents::execution::{DecisionOutcome, PersonDecision};
use sinew_engine::{Fact, PersonAnswer};
use sinew_execution::events;

use crate::record::Record;

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
                    at: round.at.into(),
                    comment: answer.comment.clone(),
                    data,
                });
            }
        }
    }
    found
}

/// Returns the decision of an answer, and additional data.
fn word(answer: &PersonAnswer) -> (DecisionOutcome, Option<Value>) {
    if answer.timed_out {
        return (DecisionOutcome::TimedOut, None);
    }
    match &answer.data {
        Value::String(text) if text == "approve" => (DecisionOutcome::Approved, None),
        Value::String(text) if text == "reject" => (DecisionOutcome::Rejected, None),
        Value::Bool(true) => (DecisionOutcome::Approved, None),
        Value::Bool(false) => (DecisionOutcome::Rejected, None),
        data if answer.approved == Some(false) => (DecisionOutcome::Rejected, Some(data.clone())),
        data => (DecisionOutcome::Answered, Some(data.clone())),
    }
}
