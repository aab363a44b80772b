//! Queries to the owner of a shard, and its responses.
//!
//! A query is JSON. The response to [`Query::Get`] is an
//! [`ExecutionRecord`](crate::journal::ExecutionRecord) as protobuf; all other responses, and every
//! error, are JSON ([`Answer`]). Both may be sent in parts ([`crate::part`]).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attributes::ExecutionAttributes;
use crate::journal::Verdict;
use crate::message::BadMessage;
use crate::person_wait::CallingRef;
use crate::usage::ModelTotals;
use crate::{ExecutionId, Token};

/// Prefix of [`Summary::waiting`] for an execution on hold until an operator resumes it.
pub const AN_OPERATOR: &str = "an operator";

/// [`Summary::waiting`] of a stored start that no executor has processed.
pub const AN_EXECUTOR: &str = "an executor: none has taken it";

/// [`Summary::waiting`] of an execution whose shard has no owner.
pub const NO_OWNER: &str = "an executor: none serves it";

/// Maximum size of a query, in bytes.
pub const MAX_QUERY: usize = 4 * 1024;

/// Query to the owner of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Query {
    /// Open executions of the shard.
    List {},
    /// Complete record of one open execution.
    Get(ExecutionId),
    /// Remembered verdicts on commands for an execution, open or closed.
    Verdicts(ExecutionId),
    /// Status of the owner itself.
    Status {},
    /// Whether the activation of a task failed or was cancelled.
    HasTaskFailed(CallingRef),
}

/// Response in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Response to [`Query::List`].
    Executions(Vec<Summary>),
    /// Response to [`Query::Verdicts`].
    Verdicts(Vec<Verdict>),
    /// Response to [`Query::Status`], in the format of the owner.
    Status(Value),
    /// Response to [`Query::HasTaskFailed`].
    HasTaskFailed(bool),
    /// The query failed.
    Error(QueryError),
}

/// Error of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryError {
    /// The shard has no open execution with this id; the history may have it.
    NotFound,
    /// The query could not be parsed.
    BadQuery,
    /// The queried executor does not own the shard, or does not own it yet.
    NotOwner,
}

/// Status of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionStatus {
    /// An activation is running.
    Running,
    /// All activations wait for a person, a timer or a child.
    Waiting,
    /// An operator paused it.
    Paused,
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// A user or a parent cancelled it.
    Cancelled,
}

impl ExecutionStatus {
    /// All statuses.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Waiting, Self::Paused, Self::Success, Self::Failure, Self::Cancelled];

    /// Returns the name of the status, in headers and in JSON.
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

    /// Parses the name of a status.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Returns whether the status is final, except for an operator's retry.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Success | Self::Failure | Self::Cancelled)
    }
}

/// Summary of an execution in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The execution.
    pub execution: ExecutionId,
    /// Name of the workflow.
    pub workflow: String,
    /// Status of the execution.
    pub status: ExecutionStatus,
    /// Caller who started it.
    pub caller: Token,
    /// Start time, milliseconds since 1970 UTC.
    pub started: u64,
    /// End time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Description for people of what the execution waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Agents whose results it waits for; only the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Number of its nodes that ask a person, without those of called executions. `None` if unknown:
    /// the execution is held, or its owner is an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub questions: Option<u32>,
    /// Kinds of its waits: `agent NAME`, `workflow NAME`, `person`, `timer`, `script`, `retry`,
    /// `operator`, `executor`; only the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// Attributes by which the execution is found.
    #[serde(flatten)]
    pub attributes: ExecutionAttributes,
    /// Digest of its plan. Absent in answers of older executors, and if no executor has processed the
    /// start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Model usage, as far as its agents have reported it with results.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub usage: ModelTotals,
}

impl Query {
    /// Parses a query.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        if body.len() > MAX_QUERY {
            return Err(BadMessage::Bytes(format!("a query has at most {MAX_QUERY} bytes")));
        }
        serde_json::from_slice(body).map_err(|e| BadMessage::Bytes(e.to_string()))
    }

    /// Returns the query as JSON.
    pub fn to_json(&self) -> String {
        // Serialising plain data with string keys cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Answer {
    /// Parses a response in JSON.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        serde_json::from_slice(body).map_err(|e| BadMessage::Bytes(e.to_string()))
    }

    /// Returns the response as JSON.
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
