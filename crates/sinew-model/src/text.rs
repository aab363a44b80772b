//! Sanitises and truncates text of tools for a model.

use serde_json::Value;

/// Removes control characters (except line feed and tab) and those that hide or reorder text.
pub fn without_hidden(text: &str) -> String {
    text.chars().filter(|&c| matches!(c, '\n' | '\t') || !(c.is_control() || is_hidden(c))).collect()
}

fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Applies [`without_hidden`] to all texts and keys of a value.
pub fn value_without_hidden(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_hidden(text)),
        Value::Array(items) => items.iter().map(value_without_hidden).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (without_hidden(key), value_without_hidden(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// A result, truncated if it is too long for a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum CappedResult {
    /// The unchanged result.
    Whole(Value),
    /// Start and end of the result as text.
    Cut(String),
}

/// Truncates a result whose JSON exceeds `max_bytes`: three quarters for the start, the rest for the
/// end, and between them the number of omitted bytes.
pub fn cap_result(value: &Value, max_bytes: usize) -> CappedResult {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.len() <= max_bytes {
        return CappedResult::Whole(value.clone());
    }
    let head = floor_boundary(&text, max_bytes / 4 * 3);
    let tail = ceil_boundary(&text, text.len() - max_bytes / 4);
    let left_out = tail - head;
    CappedResult::Cut(format!("{}\n[… {left_out} bytes left out …]\n{}", &text[..head], &text[tail..]))
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Returns canonical JSON with sorted keys, identical for equal values.
pub fn canonical(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(sorted).collect(),
            Value::Object(members) => {
                let mut keys: Vec<&String> = members.keys().collect();
                keys.sort();
                keys.into_iter()
                    .map(|key| (key.clone(), sorted(&members[key])))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
            other => other.clone(),
        }
    }
    sorted(value).to_string()
}

/// Returns at most `max_chars` characters of a text, and `…` if it was truncated.
pub fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn hidden_characters_go() {
        for (given, expected) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("a\u{0}b\u{1b}[31mc\r", "ab[31mc"),
            ("pay \u{202e}evil\u{2066} now\u{200b}", "pay evil now"),
            ("tag\u{e0041}s \u{feff}and\u{ad} more", "tags and more"),
            ("Grüße 你好 👍", "Grüße 你好 👍"),
        ] {
            assert_eq!(without_hidden(given), expected, "{given:?}");
        }
        assert_eq!(value_without_hidden(&json!({"k\u{202e}": ["\u{7}x", 1]})), json!({"k": ["x", 1]}));
    }

    #[test]
    fn equal_values_have_one_form() {
        assert_eq!(canonical(&json!({"b": {"d": 1, "c": [2]}, "a": 0})), r#"{"a":0,"b":{"c":[2],"d":1}}"#);
    }

    proptest! {
        #[test]
        fn a_capped_result_is_short_and_keeps_both_ends(text in "\\PC{0,200}", max in 8_usize..64) {
            match cap_result(&json!(text), max) {
                CappedResult::Whole(value) => {
                    prop_assert!(text.len() <= max);
                    prop_assert_eq!(value, json!(text));
                }
                CappedResult::Cut(cut) => {
                    prop_assert!(text.len() > max && cut.len() <= max + 60);
                    prop_assert!(text.starts_with(cut.split('\n').next().unwrap_or_default()));
                }
            }
        }
    }
}
