//! Limits on the size of stored values.

use serde_json::Value;
use sinew_protocol::Fault;
use sinew_protocol::code;

use crate::ask::TaskRequest;

pub(super) const TOO_LARGE: &str = code::VALUE_TOO_LARGE.as_str();

/// Maximum nesting depth of arrays and objects in a value. JSON readers abort at 128, and wrappers
/// around a value need a few levels.
const MAX_DEPTH: u32 = 100;

/// Returns a fault if a value exceeds about `limit` bytes as JSON, or is nested too deeply.
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

/// Returns a fault if a task exceeds about `limit` bytes: its input, instruction and context
/// together, which are all stored with the dispatch.
pub(super) fn task_too_large(ask: &TaskRequest, limit: u64) -> Option<Fault> {
    let mut left = limit;
    if measure(&ask.input, MAX_DEPTH, &mut left) != SizeFit::Fits {
        return too_large("the input of the task", &ask.input, limit);
    }
    let instruction = ask.instruction.as_deref().unwrap_or_default().len() as u64;
    let fits = take(&mut left, instruction) && measure(&ask.context, MAX_DEPTH, &mut left) == SizeFit::Fits;
    let text =
        || format!("input, instruction and context of the task are larger than {limit} bytes together");
    (!fits).then(|| Fault::invalid(TOO_LARGE, text()))
}

#[derive(PartialEq)]
enum SizeFit {
    Fits,
    TooLong,
    TooDeep,
}

/// Measures a value, and stops when it exceeds the limit.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_is_measured_with_all_that_is_stored_of_it() {
        let text = |bytes: usize| "x".repeat(bytes);
        let ask = |input: usize, instruction: usize, context: usize| TaskRequest {
            instruction: Some(text(instruction)),
            context: json!(text(context)),
            ..TaskRequest::agent("a", json!(text(input)))
        };
        let told = |ask: TaskRequest| task_too_large(&ask, 100).map(|fault| fault.message);
        assert_eq!(told(ask(30, 30, 30)), None);
        for (ask, part) in [
            (ask(99, 0, 0), "the input of the task is larger"),
            (ask(30, 80, 0), "together"),
            (ask(30, 0, 80), "together"),
            (ask(40, 40, 40), "together"),
        ] {
            assert!(told(ask.clone()).is_some_and(|told| told.contains(part)), "{ask:?}");
        }
    }
}
