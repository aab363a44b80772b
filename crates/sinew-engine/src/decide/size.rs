//! Values that are too large to be kept.

use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::code;

pub(super) const TOO_LARGE: &str = code::VALUE_TOO_LARGE.as_str();

/// Levels of arrays and objects a value may have. JSON readers give up at 128; what wraps a value needs a few of them.
const MAX_DEPTH: u32 = 100;

/// The fault of a value that takes more than about `limit` bytes as JSON or is nested too deeply.
pub(super) fn too_large(what: &str, value: &Value, limit: u64) -> Option<Fault> {
    let mut left = limit;
    match measure(value, MAX_DEPTH, &mut left) {
        SizeFit::Fits => None,
        SizeFit::TooLong => Some(Fault::invalid(TOO_LARGE, format!("{what} is larger than {limit} bytes"))),
        SizeFit::TooDeep => {
            Some(Fault::invalid(TOO_LARGE, format!("{what} is nested more than {MAX_DEPTH} levels deep")))
        }
    }
}

#[derive(PartialEq)]
enum SizeFit {
    Fits,
    TooLong,
    TooDeep,
}

/// Counts as far as it must: stops where the value no longer fits.
fn measure(value: &Value, depth: u32, left: &mut u64) -> SizeFit {
    let mut all = |own: u64, items: &mut dyn Iterator<Item = (usize, &Value)>| {
        let Some(depth) = depth.checked_sub(1) else { return SizeFit::TooDeep };
        if !take(left, own) {
            return SizeFit::TooLong;
        }
        for (key, item) in items {
            let fit = if take(left, key as u64) { measure(item, depth, left) } else { SizeFit::TooLong };
            if fit != SizeFit::Fits {
                return fit;
            }
        }
        SizeFit::Fits
    };
    match value {
        Value::Array(items) => all(2, &mut items.iter().map(|item| (1, item))),
        Value::Object(members) => all(2, &mut members.iter().map(|(key, item)| (key.len() + 4, item))),
        Value::Null | Value::Bool(_) => fit(take(left, 4)),
        Value::Number(_) => fit(take(left, 8)),
        Value::String(text) => fit(take(left, text.len() as u64 + 2)),
    }
}

fn fit(enough: bool) -> SizeFit {
    if enough { SizeFit::Fits } else { SizeFit::TooLong }
}

fn take(left: &mut u64, bytes: u64) -> bool {
    let enough = *left >= bytes;
    *left = left.saturating_sub(bytes);
    enough
}
