//! The dialect's value rules: conversion of values to text, prompts, matches and decisions.

use memchr::memmem;
use serde_json::Value;
use sinew_engine::PersonAnswer;
use sinew_protocol::{Fault, code};

use super::model::BranchCondition;
use crate::fill::{FillBudget, FillError};
use crate::js::json_text;

/// Maximum bytes of text that the conditions of one node may search together.
const MAX_SEARCHED_BYTES: usize = 8 << 20;
/// Placeholder of the previous output in a prompt.
pub(super) const PREVIOUS: &str = "{{PREVIOUS_OUTPUT}}";

/// Formats a value as text: strings unchanged, null as the empty string, everything else as compact
/// JSON.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => json_text(other),
    }
}

/// Returns the instruction of an agent: its prompt with the previous output filled in, or the
/// previous output itself. Fails if the filled prompt is too large.
pub(super) fn prompt(template: &str, previous: &str) -> Result<String, FillError> {
    if template.trim().is_empty() {
        return Ok(previous.to_owned());
    }
    FillBudget::default().pay(template.matches(PREVIOUS).count().saturating_mul(previous.len()))?;
    Ok(template.replace(PREVIOUS, previous))
}

/// Returns whether the value is the decision of an approval instead of an output.
pub(super) fn is_decision(value: &Value) -> bool {
    value.is_object() && (value.get("decision").is_some() || value.get("note").is_some())
}

/// Lower-case text that the conditions of one node compare.
pub(super) struct ComparedText {
    lower: String,
    /// Remaining bytes to search.
    left: usize,
}

impl ComparedText {
    pub(super) fn new(text: &str) -> Self {
        Self { lower: text.to_lowercase(), left: MAX_SEARCHED_BYTES }
    }

    /// Returns whether a condition holds; an empty expected value matches nothing. Fails if all
    /// searches together are too long.
    pub(super) fn matches(&mut self, condition: &BranchCondition) -> Result<bool, Fault> {
        let expected = condition.value.trim().to_lowercase();
        if expected.is_empty() || expected.len() > self.lower.len() {
            return Ok(false);
        }
        if !condition.contains {
            return Ok(self.lower == expected);
        }
        self.left = self.left.checked_sub(self.lower.len()).ok_or_else(|| {
            let limit = MAX_SEARCHED_BYTES >> 20;
            let text = format!("conditions of one node search more than {limit} MiB of text");
            Fault::invalid(code::RULE_TOO_COSTLY.as_str(), text)
        })?;
        Ok(memmem::find(self.lower.as_bytes(), expected.as_bytes()).is_some())
    }
}

/// A person's answer in the dialect's terms.
pub(super) struct ApprovalDecision {
    pub(super) approved: bool,
    pub(super) note: String,
}

impl ApprovalDecision {
    /// Reads an answer: an explicit rejection, a string that contains `reject` and an object that
    /// decides `reject` reject; everything else approves.
    pub(super) fn of(answer: &PersonAnswer) -> Self {
        let rejected = answer.approved == Some(false) || data_rejects(&answer.data);
        let note = answer.data.get("note").and_then(Value::as_str).filter(|note| !note.is_empty());
        let note = note.or(answer.comment.as_deref()).unwrap_or_default();
        Self { approved: !rejected, note: note.to_owned() }
    }

    /// Returns the selected branch.
    pub(super) fn word(&self) -> &'static str {
        if self.approved { "approve" } else { "reject" }
    }

    /// Returns the text of the log entry.
    pub(super) fn log(&self) -> String {
        let done = if self.approved { "approved" } else { "rejected" };
        match self.note.trim() {
            "" => format!("User {done} this step."),
            note => format!("User {done} this step. Feedback: {note}"),
        }
    }
}

/// Returns whether the data of an answer rejects.
fn data_rejects(data: &Value) -> bool {
    match data {
        Value::String(text) => text.to_lowercase().contains("reject"),
        data => {
            let decision = data.get("decision").and_then(Value::as_str);
            decision.is_some_and(|decision| decision.eq_ignore_ascii_case("reject"))
        }
    }
}
