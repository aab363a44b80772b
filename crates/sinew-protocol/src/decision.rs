//! Decisions of people, as they write them: at a terminal, in a message, or as JSON.
//!
//! Only explicit answers decide. "maybe", "nope" or "not yet" neither approve nor reject, so the
//! question remains open.

use serde_json::Value;

/// Words that approve: the whole text, or its beginning, followed by one of [`COMMENT_SIGNS`].
const YES: [&str; 7] = ["approve", "approved", "yes", "y", "ok", "accept", "accepted"];
/// Words that reject, at the beginning of a text.
const NO: [&str; 7] = ["reject", "rejected", "no", "n", "deny", "denied", "decline"];
/// Characters that may follow an approving word. A question mark or another word is not one: "ok?
/// why" approves nothing.
const COMMENT_SIGNS: [char; 6] = [',', '.', ':', ';', '!', '\n'];

/// An explicit decision.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenDecision {
    /// Whether the person approves.
    pub approved: bool,
    /// The words after the decision.
    pub comment: Option<String>,
    /// Data of the answer; null if it has none.
    pub data: Value,
}

impl WrittenDecision {
    /// Reads a text that begins with yes, or with no and the reason; `None` for any other text.
    pub fn of_text(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        let (first, rest) = text.split_at(end);
        let word = first.to_lowercase();
        let rejects = NO.contains(&word.as_str());
        let approves = YES.contains(&word.as_str()) && (rest.is_empty() || rest.starts_with(COMMENT_SIGNS));
        if !rejects && !approves {
            return None;
        }
        let comment = rest.trim_start_matches(|c: char| !c.is_alphanumeric()).trim();
        let comment = Some(comment.to_owned()).filter(|comment| !comment.is_empty());
        Some(Self { approved: approves, comment, data: Value::Null })
    }

    /// Reads a text, a boolean, or an object with `approved` (true or false) or `decision` (a text
    /// as above), and optionally `comment` (or `note`) and `data`; `None` for any other value.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(approved) => Some(Self { approved: *approved, comment: None, data: Value::Null }),
            Value::String(text) => Self::of_text(text),
            Value::Object(members) => {
                let decided = match (members.get("approved"), members.get("decision")) {
                    (Some(Value::Bool(approved)), None) => Self::of(&Value::Bool(*approved)),
                    (None, Some(Value::String(text))) => Self::of_text(text),
                    _ => None,
                }?;
                let text = |key: &str| {
                    members.get(key).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
                };
                let comment = text("comment").or(text("note")).map(str::to_owned).or(decided.comment);
                let data = members.get("data").cloned().unwrap_or_default();
                Some(Self { comment, data, ..decided })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_explicit_words_decide() {
        for (written, approved, comment) in [
            (json!("yes"), true, None),
            (json!(" Y "), true, None),
            (json!("Approved, go on"), true, Some("go on")),
            (json!("n"), false, None),
            (json!("no: too dear"), false, Some("too dear")),
            (json!("no way"), false, Some("way")),
            (json!(true), true, None),
            (json!({"approved": false, "comment": "why"}), false, Some("why")),
            (json!({"decision": "Reject", "note": "late"}), false, Some("late")),
        ] {
            let read = WrittenDecision::of(&written).unwrap();
            assert_eq!((read.approved, read.comment.as_deref()), (approved, comment), "{written}");
        }
        let with_data = json!({"decision": "approve", "data": {"limit": 5}});
        assert_eq!(WrittenDecision::of(&with_data).unwrap().data, json!({"limit": 5}));
    }

    #[test]
    fn other_answers_decide_nothing() {
        for written in [
            json!(""),
            json!("maybe"),
            json!("nope"),
            json!("not yet"),
            json!("okay"),
            json!("ok? why"),
            json!("yes if it is cheap"),
            json!("yesterday"),
            json!(1),
            json!(null),
            json!(["yes"]),
            json!({"approved": "yes"}),
            json!({"approved": true, "decision": "reject"}),
            json!({"decision": "later"}),
            json!({"limit": 5}),
        ] {
            assert_eq!(WrittenDecision::of(&written), None, "{written}");
        }
    }
}
