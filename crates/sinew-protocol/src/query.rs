//! Queries to the owner of a shard, and its answers.
//!
//! A query is JSON. The answer to [`Query::Get`] is an
//! [`ExecutionRecord`](crate::journal::ExecutionRecord) as protobuf; all other answers, and every
//! refusal, are JSON ([`Answer`]). Both may be sent in parts ([`crate::part`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::journal::Verdict;
use crate::message::BadMessage;
use crate::person_wait::CallingRef;
use crate::usage::ModelTotals;
use crate::{ExecutionId, Token};

/// The beginning of [`Summary::waiting`] when no owner works on an execution until an operator has looked at it.
pub const AN_OPERATOR: &str = "an operator";

/// [`Summary::waiting`] of a start that is stored and that no executor has taken.
pub const AN_EXECUTOR: &str = "an executor: none has taken it";

/// [`Summary::waiting`] of an execution whose shard has no owner.
pub const NO_OWNER: &str = "an executor: none serves it";

/// The longest question, in bytes.
pub const MAX_QUERY: usize = 4 * 1024;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Query {
    /// The open executions of the shard.
    List {},
    /// All that is known of one open execution.
    Get(ExecutionId),
    /// Verdicts on commands for an execution, open or not, as far as they are remembered.
    Verdicts(ExecutionId),
    /// How the owner itself is.
    Status {},
    /// Whether the activation that a task belongs to failed or was cancelled.
    HasTaskFailed(CallingRef),
}

/// An answer in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Query::List`].
    Executions(Vec<Summary>),
    /// To [`Query::Verdicts`].
    Verdicts(Vec<Verdict>),
    /// To [`Query::Status`], in the owner's words.
    Status(Value),
    /// To [`Query::HasTaskFailed`].
    HasTaskFailed(bool),
    /// There is none.
    Error(QueryError),
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryError {
    /// The shard has no open execution of this id; the history may have it.
    NotFound,
    /// The question could not be read.
    BadQuery,
    /// The executor that was asked does not own the shard, or does not own it yet.
    NotOwner,
}

/// How an execution stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionStatus {
    /// An activation is at work.
    Running,
    /// All activations wait for a person, a time or a child.
    Waiting,
    /// An operator holds it.
    Paused,
    /// It ended well.
    Success,
    /// It ended badly.
    Failure,
    /// A user or a parent cancelled it.
    Cancelled,
}

impl ExecutionStatus {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Waiting, Self::Paused, Self::Success, Self::Failure, Self::Cancelled];

    /// The word for it, in headers and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether nothing will happen any more, an operator's retry aside.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Success | Self::Failure | Self::Cancelled)
    }
}

/// An execution in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The execution.
    pub execution: ExecutionId,
    /// The workflow's name.
    pub workflow: String,
    /// How it stands.
    pub status: ExecutionStatus,
    /// Caller who started it.
    pub caller: Token,
    /// When it began, milliseconds since 1970 UTC.
    pub started: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Description of what it waits for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Agents whose answers are waited for; the first few of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Labels that lists can be filtered by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Model calls behind it, as far as its agents have told with results.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub usage: ModelTotals,
}

impl Query {
    /// Reads a question.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        if body.len() > MAX_QUERY {
            return Err(BadMessage::Bytes(format!("a query has at most {MAX_QUERY} bytes")));
        }
        serde_json::from_slice(body).map_err(|e| BadMessage::Bytes(e.to_string()))
    }

    /// The question as JSON.
    pub fn to_json(&self) -> String {
        // Serialising plain data with text keys cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Answer {
    /// Reads an answer in JSON.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        serde_json::from_slice(body).map_err(|e| BadMessage::Bytes(e.to_string()))
    }

    /// The answer as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TaskId;

    #[test]
    fn questions_and_answers_are_worded_once() {
        for (query, json) in [
            (Query::List {}, r#"{"list":{}}"#),
            (Query::Get(ExecutionId::parse("e1").unwrap()), r#"{"get":"e1"}"#),
            (Query::Verdicts(ExecutionId::parse("e1").unwrap()), r#"{"verdicts":"e1"}"#),
            (Query::Status {}, r#"{"status":{}}"#),
            (
                Query::HasTaskFailed(CallingRef {
                    execution: ExecutionId::parse("e1").unwrap(),
                    task: TaskId::parse("t1").unwrap(),
                }),
                r#"{"has_task_failed":{"execution":"e1","task":"t1"}}"#,
            ),
        ] {
            assert_eq!(query.to_json(), json);
            assert_eq!(Query::read(json.as_bytes()), Ok(query));
        }
        for bad in [
            r#"{"get":"a.b"}"#,
            r#"{"drop":{}}"#,
            "{}",
            "",
            r#"{"list":{"x":1}}"#,
            r#"{"list":{},"get":"a"}"#,
        ] {
            assert!(Query::read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Query::read(&vec![b' '; MAX_QUERY + 1]).is_err());
        assert_eq!(Answer::Error(QueryError::NotFound).to_json(), r#"{"error":"not_found"}"#);
        assert_eq!(Answer::Executions(Vec::new()).to_json(), r#"{"executions":[]}"#);
    }

    #[test]
    fn statuses_have_one_word() {
        for status in ExecutionStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
            assert_eq!(ExecutionStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(ExecutionStatus::ALL.iter().filter(|status| status.is_terminal()).count(), 3);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), text in ".{0,60}") {
            for body in [bytes.as_slice(), text.as_bytes()] {
                drop(Query::read(body));
                drop(Answer::read(body));
            }
        }
    }
}
