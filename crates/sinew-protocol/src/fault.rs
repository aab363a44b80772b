//! The reason why an attempt, an activation or an execution failed: one type for the journal, the
//! wire and the CLI.

use std::borrow::Cow;
use std::fmt;

use crate::code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Origin of a fault, which determines whether a retry may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Infrastructure error: the agent crashed or is unavailable, or the transport failed.
    Error,
    /// The agent completed the work and reported a failure.
    Failure,
    /// An input or output violates its schema.
    Invalid,
    /// A user or a parent cancelled the work.
    Cancelled,
    /// No result arrived before the deadline.
    Timeout,
}

impl FaultKind {
    /// Returns the name used in JSON, logs and the CLI.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Failure => "failure",
            Self::Invalid => "invalid",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }

    /// Returns whether `retryPolicy: OnError` covers this kind: a fault of the infrastructure. A
    /// timeout counts as both, because either the work or the infrastructure may have been too
    /// slow.
    pub const fn is_error(self) -> bool {
        matches!(self, Self::Error | Self::Timeout)
    }

    /// Returns whether `retryPolicy: OnFailure`, the default, covers this kind: the work failed or
    /// timed out.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Failure | Self::Invalid | Self::Timeout)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Codes of faults whose details are violations of a schema.
const SCHEMA_CODES: [code::Code; 5] = [
    code::INPUT_BREAKS_AGENT_SCHEMA,
    code::ANSWER_BREAKS_OUTPUT_SCHEMA,
    code::TASK_INPUT_BREAKS_AGENT_INPUT_SCHEMA,
    code::AGENT_OUTPUT_BREAKS_ITS_OUTPUT_SCHEMA,
    code::MODEL_OUTPUT_BREAKS_SCHEMA,
];

/// Reason for a failure, with the operator code whose page explains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// Operator code, `SINEW-NNNN`. `sinew explain CODE` prints its page.
    pub code: Cow<'static, str>,
    /// Message for people, in one sentence and without secrets.
    pub message: String,
    /// Whether a retry of the same work may succeed.
    pub retryable: bool,
    /// Origin of the fault.
    pub kind: FaultKind,
    /// Details, such as one line per schema violation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// Minimum delay before a retry, in milliseconds. Absent if the other side requested none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Fault {
    /// Creates a fault of this kind. Errors, failures and timeouts are retryable by default;
    /// invalid data and cancellation are not.
    pub fn new(kind: FaultKind, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let retryable = matches!(kind, FaultKind::Error | FaultKind::Failure | FaultKind::Timeout);
        Self {
            code: code.into(),
            message: message.into(),
            retryable,
            kind,
            details: Vec::new(),
            retry_after_ms: None,
        }
    }

    /// Creates an infrastructure fault. Retryable.
    pub fn error(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Error, code, message)
    }

    /// Creates a failure that the agent itself reported. Retryable.
    pub fn failure(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Failure, code, message)
    }

    /// Creates a fault for data that violates its schema. Not retryable.
    pub fn invalid(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, code, message)
    }

    /// Creates a fault for a requested cancellation. Not retryable.
    pub fn cancelled(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Cancelled, code, message)
    }

    /// Creates a fault for an exceeded deadline. Retryable.
    pub fn timeout(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(FaultKind::Timeout, code, message)
    }

    /// Replaces the retryability.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Replaces the further lines.
    #[must_use]
    pub fn with_details(mut self, details: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.details.extend(details.into_iter().map(Into::into));
        self
    }

    /// Returns the violations of a schema that are the reason; empty for other reasons.
    pub fn violations(&self) -> &[String] {
        let is_of_schema =
            self.kind == FaultKind::Invalid || SCHEMA_CODES.iter().any(|code| code.as_str() == self.code);
        if is_of_schema { &self.details } else { &[] }
    }

    /// Returns the message with the violations of a schema that it does not name yet.
    pub fn reason(&self) -> String {
        match self.violations() {
            [first, ..] if !self.message.contains(first.as_str()) => {
                format!("{}: {}", self.message, self.violations().join("; "))
            }
            _ => self.message.clone(),
        }
    }

    /// Sets the minimum delay before a retry, in milliseconds.
    #[must_use]
    pub fn with_retry_after_ms(mut self, milliseconds: u64) -> Self {
        self.retry_after_ms = Some(milliseconds);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message, self.code)?;
        self.details.iter().try_for_each(|detail| write!(f, "\n  {detail}"))
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_policies_tell_failures_from_errors() {
        let policies =
            |kind: FaultKind| (kind.is_error(), kind.is_failure(), Fault::new(kind, "X", "").retryable);
        assert_eq!(policies(FaultKind::Error), (true, false, true));
        assert_eq!(policies(FaultKind::Timeout), (true, true, true));
        assert_eq!(policies(FaultKind::Failure), (false, true, true));
        assert_eq!(policies(FaultKind::Invalid), (false, true, false));
        assert_eq!(policies(FaultKind::Cancelled), (false, false, false));
    }

    #[test]
    fn json_is_small_and_round_trips() {
        let short = Fault::timeout("SINEW-6001", "no answer within 5s");
        assert_eq!(
            serde_json::to_string(&short).unwrap(),
            r#"{"code":"SINEW-6001","message":"no answer within 5s","retryable":true,"kind":"timeout"}"#
        );
        let long = Fault::invalid("SINEW-4001", "output breaks its schema")
            .with_details(["/a: not a string", "/b: missing"])
            .with_retryable(true)
            .with_retry_after_ms(250);
        let back: Fault = serde_json::from_str(&serde_json::to_string(&long).unwrap()).unwrap();
        assert_eq!(back, long);
        assert_eq!(
            long.to_string(),
            "output breaks its schema [SINEW-4001]\n  /a: not a string\n  /b: missing"
        );
    }
}
