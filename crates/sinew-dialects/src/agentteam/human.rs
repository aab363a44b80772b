//! Interpretation of a person's free-text answer.

use serde_json::Value;

/// Meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerIntent {
    Approved,
    Rejected,
    Unrelated,
}

impl AnswerIntent {
    /// Returns the label of the classifier.
    #[cfg(test)]
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Unrelated => "unrelated",
        }
    }

    /// Returns the port that fires.
    pub(super) fn port(self) -> &'static str {
        match self {
            Self::Approved => "confirmed",
            Self::Rejected => "rejected",
            Self::Unrelated => "unrelated",
        }
    }
}

const APPROVE: &[&str] = &[
    "accept",
    "accepted",
    "agree",
    "agreed",
    "approve",
    "approved",
    "approves",
    "confirm",
    "confirmed",
    "fine",
    "go",
    "good",
    "great",
    "lgtm",
    "ok",
    "okay",
    "proceed",
    "sure",
    "y",
    "yeah",
    "yep",
    "yes",
];
const REJECT: &[&str] = &[
    "abort",
    "cancel",
    "cancelled",
    "decline",
    "declined",
    "denied",
    "deny",
    "disagree",
    "disapprove",
    "disapproved",
    "n",
    "nay",
    "no",
    "nope",
    "refuse",
    "refused",
    "reject",
    "rejected",
    "rejects",
    "stop",
];
const NEGATE: &[&str] = &["not", "don't", "dont", "never", "cannot", "can't", "won't", "isn't"];

/// Classifies an answer by whole words; rejection takes precedence over approval.
pub(super) fn classify(text: &str) -> AnswerIntent {
    let lower = text.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '\'';
    let words: Vec<&str> = lower.split(|c| !is_word(c)).filter(|word| !word.is_empty()).collect();
    let any = |list: &[&str]| words.iter().any(|word| list.contains(word));
    let approves = any(APPROVE);
    if any(REJECT) || (approves && any(NEGATE)) {
        AnswerIntent::Rejected
    } else if approves {
        AnswerIntent::Approved
    } else {
        AnswerIntent::Unrelated
    }
}

/// Returns the meaning of an answer of any shape.
pub(super) fn intent(answer: &Value) -> AnswerIntent {
    let by_truth = |truth: bool| if truth { AnswerIntent::Approved } else { AnswerIntent::Rejected };
    match answer {
        Value::Bool(truth) => by_truth(*truth),
        Value::String(text) => classify(text),
        Value::Object(members) => {
            if let Some(truth) = members.get("approved").and_then(Value::as_bool) {
                return by_truth(truth);
            }
            let keys = ["decision", "response", "input", "answer", "text", "message", "content"];
            let text = keys.iter().find_map(|key| members.get(*key).and_then(Value::as_str));
            text.map_or(AnswerIntent::Unrelated, classify)
        }
        _ => AnswerIntent::Unrelated,
    }
}
