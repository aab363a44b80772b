//! JSON in the one form that signatures are made over (RFC 8785).

use std::fmt::Write as _;

use serde_json::Value;

/// Largest whole number that every reader of JSON holds exactly.
const MAX_EXACT: u64 = 9_007_199_254_740_991;

/// Returns a value as canonical text. `None` if it holds a number that is written in different ways: a fraction, or a whole
/// number beyond 2^53. Cards have no use for those.
pub(crate) fn canonical_json(value: &Value) -> Option<String> {
    let mut text = String::new();
    write_value(value, &mut text)?;
    Some(text)
}

fn write_value(value: &Value, text: &mut String) -> Option<()> {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => {
            let exact = number.as_u64().is_some_and(|number| number <= MAX_EXACT)
                || number.as_i64().is_some_and(|number| number.unsigned_abs() <= MAX_EXACT);
            if !exact {
                return None;
            }
            let _infallible = write!(text, "{number}");
        }
        Value::String(value) => write_text(value, text),
        Value::Array(items) => {
            text.push('[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    text.push(',');
                }
                write_value(item, text)?;
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            // By UTF-16 units, which differs from the order of bytes beyond the basic plane.
            sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            text.push('{');
            for (nth, (name, value)) in sorted.into_iter().enumerate() {
                if nth > 0 {
                    text.push(',');
                }
                write_text(name, text);
                text.push(':');
                write_value(value, text)?;
            }
            text.push('}');
        }
    }
    Some(())
}

fn write_text(value: &str, text: &mut String) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\u{c}' => text.push_str("\\f"),
            '\r' => text.push_str("\\r"),
            c if u32::from(c) < 0x20 => {
                let _infallible = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_those_of_the_rfc() {
        for (value, expected) in [
            (json!({"b": 1, "a": [true, null, "x"]}), Some(r#"{"a":[true,null,"x"],"b":1}"#)),
            // Section 3.2.3 of the RFC: names in the order of UTF-16 units.
            (
                json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7}),
                Some(
                    "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}",
                ),
            ),
            (json!("\u{20ac}$\u{f}\nA'B\"\\\\\"/"), Some("\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"")),
            (json!(-9_007_199_254_740_991_i64), Some("-9007199254740991")),
            (json!(9_007_199_254_740_992_u64), None),
            (json!({"a": 0.5}), None),
        ] {
            assert_eq!(canonical_json(&value).as_deref(), expected, "{value}");
        }
    }
}
