//! Quarantined messages as documents for programs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sinew_documents::words;
use sinew_mesh::quarantine::QuarantinedMessage;

/// A message of the quarantine without its body and headers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QuarantineRow {
    /// Its name, `STREAM.SEQUENCE`.
    pub message: String,
    /// Its subject.
    pub subject: String,
    /// Why it was set aside.
    pub reason: String,
    /// When it was published (RFC 3339).
    pub time: String,
    /// When it was set aside (RFC 3339).
    pub set_aside: String,
}

/// Returns the name of a message, `STREAM.SEQUENCE`.
pub fn message_name(one: &QuarantinedMessage) -> String {
    format!("{}.{}", one.stream, one.seq)
}

/// Returns a message without its body and headers.
pub fn message_row(one: &QuarantinedMessage) -> QuarantineRow {
    QuarantineRow {
        message: message_name(one),
        subject: one.subject.clone(),
        reason: one.reason.clone(),
        time: words::instant(one.time),
        set_aside: words::instant(one.aside),
    }
}

/// Returns the headers of a message, without those between its publisher and the server.
pub fn message_headers(one: &QuarantinedMessage) -> Value {
    let pairs = one.headers.iter().map(|(name, values)| {
        let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
        (name.to_string(), values.join(", "))
    });
    let own: BTreeMap<String, String> = pairs.filter(|(name, _)| !name.starts_with("Nats-")).collect();
    json!(own)
}
