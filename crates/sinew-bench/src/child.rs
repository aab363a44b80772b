//! Common parts of the processes of a bench: payload, output lines, and failure.

use std::io::Write as _;

use serde::Serialize;
use sinew_operations::failure::Failure;

use crate::order::MeasuredTime;

/// Payload of a task: a text in 200 bytes of JSON.
pub(crate) const TEXT: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
/// The same payload as JSON, for the bare loops.
pub(crate) const BODY: &[u8] = br#"{"text":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}"#;

/// Reason why a process of a bench failed.
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

/// Converts any error.
pub(crate) fn broken(error: impl std::fmt::Display) -> BenchProcessError {
    BenchProcessError(error.to_string())
}

/// Reports to the parent process that this process is ready.
pub(crate) fn ready() {
    say(&MeasuredTime::default());
}

/// Writes a line of JSON to the parent process.
pub(crate) fn say(value: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", serde_json::to_string(value).unwrap_or_default());
    let _ = out.flush();
}
