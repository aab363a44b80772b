//! Differences of two JSON values, as lines for people.

use serde_json::Value;

/// Maximum differences to show; further ones are only counted.
const MOST: usize = 10;
/// Maximum characters of a value.
const LONGEST: usize = 200;

/// A difference: its JSON pointer, and both values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// JSON pointer in both values.
    pub(crate) pointer: String,
    /// Expected value; `None` if the case expects none.
    pub(crate) expected: Option<Value>,
    /// Actual value; `None` if it does not exist.
    pub(crate) seen: Option<Value>,
}

/// Returns all differences. With `part`, objects can have additional members.
pub(crate) fn differences(expected: &Value, seen: &Value, part: bool) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(expected, seen, part, String::new(), &mut found);
    found
}

fn walk(expected: &Value, seen: &Value, part: bool, at: String, found: &mut Vec<Difference>) {
    let below = |key: &str| format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
    match (expected, seen) {
        (Value::Object(wanted), Value::Object(had)) => {
            for (key, expected) in wanted {
                match had.get(key) {
                    Some(seen) => walk(expected, seen, part, below(key), found),
                    None => found.push(Difference {
                        pointer: below(key),
                        expected: Some(expected.clone()),
                        seen: None,
                    }),
                }
            }
            let more = had.iter().filter(|(key, _)| !part && !wanted.contains_key(*key));
            found.extend(more.map(|(key, seen)| Difference {
                pointer: below(key),
                expected: None,
                seen: Some(seen.clone()),
            }));
        }
        (Value::Array(wanted), Value::Array(had)) => {
            for n in 0..wanted.len().max(had.len()) {
                match (wanted.get(n), had.get(n)) {
                    (Some(expected), Some(seen)) => walk(expected, seen, part, below(&n.to_string()), found),
                    (expected, seen) => found.push(Difference {
                        pointer: below(&n.to_string()),
                        expected: expected.cloned(),
                        seen: seen.cloned(),
                    }),
                }
            }
        }
        _ if equal(expected, seen) => {}
        _ => {
            found.push(Difference {
                pointer: at,
                expected: Some(expected.clone()),
                seen: Some(seen.clone()),
            });
        }
    }
}

/// Compares scalars. JSON has one kind of number: 1 equals 1.0.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64())
        }
        _ => a == b,
    }
}

/// Formats the differences as lines.
pub(crate) fn lines(differences: &[Difference]) -> Vec<String> {
    let mut lines: Vec<String> = differences.iter().take(MOST).map(line).collect();
    if differences.len() > MOST {
        lines.push(format!("and {} more", differences.len() - MOST));
    }
    lines
}

fn line(difference: &Difference) -> String {
    let Difference { pointer, expected, seen } = difference;
    let at = if pointer.is_empty() { String::new() } else { format!("{pointer}: ") };
    match (expected, seen) {
        (Some(expected), Some(seen)) => format!("{at}expected {}, got {}", short(expected), short(seen)),
        (Some(expected), None) => format!("{at}expected {}, got nothing", short(expected)),
        (None, Some(seen)) => format!("{at}not expected, got {}", short(seen)),
        (None, None) => at,
    }
}

/// Formats a value on one line.
pub(crate) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_said_where_they_are() {
        let check = |expected: Value, seen: Value, part: bool, want: &[&str]| {
            assert_eq!(lines(&differences(&expected, &seen, part)), want);
        };
        check(json!({"a": 1, "b": 2}), json!({"b": 2.0, "a": 1}), false, &[]);
        check(json!({"a": 1}), json!({"a": 1, "b": 2}), true, &[]);
        check(json!({"a": 1}), json!({"a": 1, "b": 2}), false, &["/b: not expected, got 2"]);
        check(
            json!({"a": [1, {"x/y": 1}]}),
            json!({"a": [1, {"x/y": "1"}, 3]}),
            true,
            &["/a/1/x~1y: expected 1, got \"1\"", "/a/2: not expected, got 3"],
        );
        check(json!(1), json!(null), false, &["expected 1, got null"]);
        check(json!({"a": 1}), json!({}), false, &["/a: expected 1, got nothing"]);
        // Large integers that are equal as floats must differ.
        check(
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64),
            false,
            &["expected 9007199254740993, got 9007199254740992"],
        );
    }
}
