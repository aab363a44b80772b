//! Parts of all processes of a bench: the payload, the lines they answer with, and the reason of a failure.

use std::io::Write as _;

use serde::Serialize;

use super::order::Took;
use crate::exit::Failure;

/// Payload of a task: a text in 200 bytes of JSON.
pub(super) const TEXT: &str = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
/// The same payload for the bare loops, as JSON.
pub(super) const BODY: &[u8] = br#"{"text":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}"#;

/// Reason why a process of a bench could not go on.
#[derive(Debug)]
pub(super) struct Broken(pub(super) String);

impl From<&str> for Broken {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self(failure.message)
    }
}

/// Makes any error such a reason.
pub(super) fn broken(error: impl std::fmt::Display) -> Broken {
    Broken(error.to_string())
}

/// Tells the process that started this one that it is up.
pub(super) fn ready() {
    say(&Took::default());
}

/// Writes one line of JSON to the process that started this one.
pub(super) fn say(value: &impl Serialize) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", serde_json::to_string(value).unwrap_or_default());
    let _ = out.flush();
}
