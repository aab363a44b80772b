//! Quarantined messages as documents for programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sinew_documents::mesh::QuarantineRow;
use sinew_mesh::quarantine::QuarantinedMessage;

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
        time: one.time.into(),
        set_aside: one.aside.into(),
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
