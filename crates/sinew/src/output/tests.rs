//! Tests of `output`.

use super::*;

#[test]
fn documents_with_hidden_characters_stay_the_same_documents() {
    for text in
        ["plain", "a\u{9b}31m", "a\u{202e}b", "a\u{e0041}b", "\u{7f}: - #\u{feff}", "a\r\nb\tc\u{2028}"]
    {
        let value = json!({ "key": text, "list": [text] });
        let yaml = to_yaml(&value);
        let shown = escaped(&yaml, false);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        let read: Value = serde_saphyr::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"));
        assert_eq!(read, value, "{shown}");
        let json = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&escaped(&json, false)).unwrap(), value, "{json}");
    }
}
