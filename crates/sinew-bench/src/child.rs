//! Parts of all processes of a bench: the payload, the lines they answer with, and the reason of a failure.

use std::io::Write as _;

use serde::Serialize;
use sinew_operations::failure::Failure;

use crate::order::MeasuredTime;

/// Payload of a task: a text in 200 bytes of JSON.
pub(crate) const TEXT: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
/// The same payload for the bare loops, as JSON.
pub(crate) const BODY: &[u8] = br#"{"text":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}"#;

/// Reason why a process of a bench could not go on.
#[derive(Debug)]
pub(crate) struct BenchProcessError(pub(crate) String);

impl From<&str> for BenchProcessError {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<Failure> for BenchProcessError {
    fn from(failure: Failure) -> Self {
        Self(failure.message)
    }
}

/// Makes any error such a reason.
pub(crate) fn broken(error: impl std::fmt::Display) -> BenchProcessError {
    BenchProcessError(error.to_string())
}

/// Tells the process that started this one that it is up.
pub(crate) fn ready() {
    say(&MeasuredTime::default());
}

/// Writes one line of JSON to the process that started this one.
pub(crate) fn say(value: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", serde_json::to_string(value).unwrap_or_default());
    let _ = out.flush();
}
