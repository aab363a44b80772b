//! Failures of handlers, and the faults that the SDK creates.

use sinew_protocol::code;
use std::any::Any;
use std::error::Error;

use sinew_mesh::MeshError;
use sinew_protocol::unique_keys::BadJson;
use sinew_protocol::{Fault, FaultKind};
use sinew_source::{Violation, violation_code};

/// The handler reported a failure.
pub(crate) const FAILED: &str = code::AGENT_WORK_FAILED.as_str();
/// The handler panicked.
pub(crate) const PANICKED: &str = code::AGENT_HANDLER_PANICKED.as_str();
/// The input violates its schema or type.
pub(crate) const BAD_INPUT: &str = code::TASK_INPUT_BREAKS_AGENT_INPUT_SCHEMA.as_str();
/// The output violates its schema.
pub(crate) const BAD_OUTPUT: &str = code::AGENT_OUTPUT_BREAKS_ITS_OUTPUT_SCHEMA.as_str();
/// The deadline has passed.
pub(crate) const TOO_LATE: &str = code::AGENT_TOO_LATE.as_str();
/// The caller cancelled the task.
pub(crate) const CANCELLED: &str = code::TASK_CANCELLED.as_str();
/// A model's last message names no usable result.
pub(crate) const NO_MARKER: &str = code::MODEL_RESULT_MISSING.as_str();
/// The task was redelivered too often.
pub(crate) const POISON: &str = code::TASK_REDELIVERED_TOO_OFTEN.as_str();
/// The task itself cannot be read.
pub(crate) const UNREADABLE: &str = code::TASK_CANNOT_BE_READ.as_str();
/// A task's artifacts are too large, or its input cannot be fetched.
pub(crate) const ARTIFACTS: &str = code::AGENT_ARTIFACTS_UNAVAILABLE.as_str();
/// An agent is offline or did not answer a call.
pub(crate) const NO_PEER: &str = code::PEER_DID_NOT_ANSWER.as_str();
/// The agent is shutting down.
pub(crate) const STOPPING: &str = code::AGENT_STOPPING.as_str();
/// The agent is invalid.
pub(crate) const BAD_AGENT: &str = code::AGENT_NOT_VALID.as_str();
/// The agent has no capacity for another task.
pub(crate) const BUSY: &str = code::AGENT_BUSY.as_str();

/// Maximum length of a message, in characters.
const LONGEST: usize = 2_000;
/// Maximum number of reported violations.
const MOST_DETAILS: usize = 50;

/// Failure of a handler. Any error converts with `?`; [`Failure::new`] creates one from a text.
///
/// ```
/// # use sinew_agent::Failure;
/// fn parse(text: &str) -> Result<u8, Failure> {
///     Ok(text.parse::<u8>()?)
/// }
/// assert!(parse("x").unwrap_err().fault().retryable);
/// assert!(!Failure::new("there is no such order").for_good().fault().retryable);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Failure(Fault);

impl Failure {
    /// Creates a failure of the work; the workflow's retry policy applies.
    pub fn new(message: impl Into<String>) -> Self {
        Self(bounded(Fault::failure(FAILED, message)))
    }

    /// Creates a retryable failure of the environment, such as an unavailable service.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self(bounded(Fault::error(FAILED, message)))
    }

    /// Makes the failure non-retryable.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self(self.0.with_retryable(false))
    }

    /// Returns the failure as a fault.
    pub const fn fault(&self) -> &Fault {
        &self.0
    }

    /// Converts the failure to a fault.
    pub fn into_fault(self) -> Fault {
        self.0
    }
}

impl<E: Error + 'static> From<E> for Failure {
    /// Joins the chain of causes in one line; a [`Fault`] remains unchanged.
    fn from(error: E) -> Self {
        if let Some(fault) = (&error as &dyn Any).downcast_ref::<Fault>() {
            return Self(bounded(fault.clone()));
        }
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self::new(message)
    }
}

/// Truncates a fault, so that it fits into a result.
pub(crate) fn bounded(mut fault: Fault) -> Fault {
    fault.message = short(&fault.message, LONGEST);
    fault.details.truncate(MOST_DETAILS);
    for detail in &mut fault.details {
        *detail = short(detail, LONGEST / 4);
    }
    fault
}

/// Failure of a call to another agent.
pub(crate) fn no_peer(agent: &str, reason: &str, retryable: bool) -> Failure {
    let message = format!("agent {:?} cannot be called: {}", short(agent, 100), short(reason, 500));
    Fault::error(NO_PEER, message).with_retryable(retryable).into()
}

/// Failure of reading the agents of the mesh.
pub(crate) fn mesh_failed(error: MeshError) -> Failure {
    Fault::from(error).into()
}

/// Truncates text to this number of characters, and marks the truncation.
pub(crate) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Fault of a value that violates a schema; `what` is `input` or `output`.
pub(crate) fn violations(code: &'static str, what: &str, found: &[Violation]) -> Fault {
    let line = |violation: &Violation| {
        let at = if violation.pointer.is_empty() { "(root)" } else { &violation.pointer };
        format!("{at}: {}", violation.message)
    };
    let code = violation_code(found, code);
    bounded(
        Fault::invalid(code, format!("the {what} violates its schema")).with_details(found.iter().map(line)),
    )
}

/// Fault of a value that `serde` cannot deserialize.
pub(crate) fn mistyped(code: &'static str, what: &str, error: &serde_json::Error) -> Fault {
    let fault = Fault::invalid(code, format!("the {what} does not have the expected type"));
    bounded(fault.with_details([short(&error.to_string(), 200)]))
}

/// Fault of bytes that are not JSON, or have a duplicate key.
pub(crate) fn bad_json(code: &'static str, what: &str, error: &BadJson) -> Fault {
    let fault = Fault::invalid(error.code(code), format!("the {what} is not usable JSON"));
    bounded(fault.with_details([short(&error.to_string(), 200)]))
}

/// Returns whether the handler may be called again for a better output.
pub(crate) fn is_bad_output(fault: &Fault) -> bool {
    fault.kind == FaultKind::Invalid
        && matches!(fault.code.as_ref(), BAD_OUTPUT | NO_MARKER | BadJson::DUPLICATE_KEY)
}

/// Fault of an unusable schema in a request.
pub(crate) fn bad_schema(code: &'static str, what: &str, error: &sinew_source::SchemaError) -> Fault {
    bounded(Fault::invalid(code, format!("the schema of the {what} cannot be used: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_become_failures_with_their_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read the order")]
        struct Outer(#[source] std::num::ParseIntError);
        let inner = "x".parse::<u8>().unwrap_err();
        let failure = Failure::from(Outer(inner));
        assert_eq!(failure.fault().message, "cannot read the order: invalid digit found in string");
        assert_eq!((failure.fault().kind, failure.fault().code.as_ref()), (FaultKind::Failure, FAILED));
        let fault = Fault::timeout("SINEW-6001", "too slow");
        assert_eq!(Failure::from(fault.clone()).into_fault(), fault);
    }

    #[test]
    fn what_goes_out_is_bounded() {
        let long = "ä".repeat(100_000);
        let fault = Fault::invalid("X", long.clone()).with_details(vec![long; 1_000]);
        let fault = Failure::from(fault).into_fault();
        assert!(serde_json::to_string(&fault).unwrap().len() < 64 * 1024);
        assert_eq!(fault.details.len(), MOST_DETAILS);
    }
}
