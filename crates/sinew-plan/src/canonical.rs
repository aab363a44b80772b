//! Canonical JSON and the digest of a plan.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Plan;

/// Returns JSON with keys sorted by their bytes and no white space: equal values result in equal
/// bytes. Numbers keep their form, unlike in RFC 8785 (`sinew_protocol::canonical_json`).
pub fn sorted_json(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// Returns the identity of a plan: the hex sha256 of its canonical JSON.
pub fn digest(plan: &Plan) -> String {
    // A plan is plain data with string keys, so it always serialises.
    let value = serde_json::to_value(plan).unwrap_or(Value::Null);
    hex::encode(Sha256::digest(sorted_json(&value)))
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<&String> = members.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (n, key) in keys.into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write(&members[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
