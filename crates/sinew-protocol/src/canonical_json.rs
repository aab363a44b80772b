//! Canonical JSON by RFC 8785 (JCS), the input of card signatures.

use serde_json::Value;

/// `ECMAScript` writes exponents for numbers below this one and from the next constant upwards.
const EXPONENT_BELOW: f64 = 1e-6;
const EXPONENT_FROM: f64 = 1e21;

/// Returns the canonical JSON of a value. Numbers are IEEE 754 doubles, as the RFC requires.
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (nth, (name, member)) in members.into_iter().enumerate() {
                if nth > 0 {
                    out.push(',');
                }
                write_text(name, out);
                out.push(':');
                write_value(member, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::String(text) => write_text(text, out),
        Value::Number(number) => out.push_str(&number.as_f64().map(number_text).unwrap_or_default()),
        other => out.push_str(&other.to_string()),
    }
}

/// The escapes of `serde_json` are those of the RFC: short forms where they exist, otherwise
/// `\u00xx` for control characters only.
fn write_text(text: &str, out: &mut String) {
    out.push_str(&Value::String(text.to_owned()).to_string());
}

/// Formats a number as `ECMAScript` does.
fn number_text(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if (EXPONENT_BELOW..EXPONENT_FROM).contains(&size) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    if size >= EXPONENT_FROM { text.replace('e', "e+") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_text() {
        let check = |json: &str, expected: &str| {
            assert_eq!(canonical_json(&serde_json::from_str(json).unwrap()), expected, "{json}");
        };
        // Section 3.2 of the RFC.
        check(
            r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
                "literals": [null, true, false]}"#,
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
        );
        // Names are sorted by UTF-16 code units: the surrogate pair of U+1F600 sorts before U+FB33.
        check(
            r#"{"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\ud83d\ude00": 5, "\u0080": 6, "\u00f6": 7}"#,
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}",
        );
        check(
            "[-0.0, 0, 0.5, 1e21, 1e-7, 1e-6, 100000000000000000000, 18446744073709551615, -1.5]",
            "[0,0,0.5,1e+21,1e-7,0.000001,100000000000000000000,18446744073709552000,-1.5]",
        );
    }
}
