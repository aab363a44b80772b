//! Finds JSON in the text of an answer.

use serde_json::Value;

/// Maximum positions in a text at which to search JSON.
const MAX_JSON_STARTS: usize = 1_024;
/// Maximum bytes that are parsed, as a multiple of the length of the text.
const MAX_PARSED_TIMES: usize = 16;

/// Returns the values in a text, in its order: the whole text, else its objects and lists, else its
/// fenced blocks. Models think aloud first, so the last fitting value is the answer.
pub(crate) fn json_values(text: &str) -> Vec<Value> {
    let text = text.trim();
    if let Ok(value) = serde_json::from_str(text) {
        return vec![value];
    }
    let containers = containers(text);
    if !containers.is_empty() {
        return containers;
    }
    let blocks = text.split("```").skip(1).step_by(2).take(MAX_JSON_STARTS);
    let bodies = blocks.map(|block| block.strip_prefix("json").unwrap_or(block).trim());
    bodies.filter_map(|body| serde_json::from_str(body).ok()).collect()
}

/// Returns the outermost objects and lists in a text.
fn containers(text: &str) -> Vec<Value> {
    let (mut found, mut from) = (Vec::new(), 0);
    let mut bytes_left = text.len().saturating_mul(MAX_PARSED_TIMES);
    for _ in 0..MAX_JSON_STARTS {
        let Some(start) = text[from..].find(['{', '[']).map(|at| from + at) else { break };
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let parsed = values.next();
        let read = values.byte_offset().max(1);
        from = match parsed {
            Some(Ok(value)) => {
                found.push(value);
                start + read
            }
            // Both characters have one byte.
            _ => start + 1,
        };
        // A failed attempt may have read the rest of the text.
        let cost = if from == start + 1 { text.len() - start } else { read };
        let Some(left) = bytes_left.checked_sub(cost.min(64 << 10)) else { break };
        bytes_left = left;
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_found_in_words() {
        for (text, expected) in [
            ("{\"a\": 1}", json!([{"a": 1}])),
            ("3", json!([3])),
            ("Here it is: {\"a\": {\"b\": [1]}} – done", json!([{"a": {"b": [1]}}])),
            ("draft ```json\n{\"a\": 1}\n``` and\n```json\n{\"a\": 2}\n```", json!([{"a": 1}, {"a": 2}])),
            ("```\n[1, 2]\n```", json!([[1, 2]])),
            ("The number is ```json\n7\n```", json!([7])),
            ("maybe {\"a\": 1}, no: {\"a\": 2}", json!([{"a": 1}, {"a": 2}])),
            ("a {broken and {\"a\": 1}", json!([{"a": 1}])),
            ("fn f() { g({}) } {\"a\": [}", json!([{}])),
            ("{\"a\": ", json!([])),
            ("no JSON here", json!([])),
            ("", json!([])),
        ] {
            assert_eq!(Value::from(json_values(text)), expected, "{text}");
        }
        for hostile in ["[".repeat(100_000), "[1,".repeat(100_000), "{\"a\":".repeat(100_000)] {
            assert_eq!(json_values(&hostile), Vec::<Value>::new());
        }
    }
}
