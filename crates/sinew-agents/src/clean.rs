//! Sanitises text of external processes for terminals and logs: removes control characters and
//! secrets, and limits the length.

use std::fmt;

use serde_json::{Map, Value};
use sinew_protocol::unique_keys::read_unique;

use crate::template::Environment;

/// Values to redact: those of `${env:NAME}` in a call, and credentials of a bridge.
#[derive(Default, Clone)]
pub struct ResolvedSecrets(Vec<String>);

impl fmt::Debug for ResolvedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResolvedSecrets").field(&self.0.len()).finish()
    }
}

impl ResolvedSecrets {
    /// Minimum bytes of a redacted value. Redacting shorter values would hide ordinary words.
    const SHORTEST: usize = 4;

    /// Adds a value. Values of less than four bytes are not redacted.
    pub fn add(&mut self, value: &str) {
        if value.len() < Self::SHORTEST {
            return;
        }
        // JSON texts contain the escaped value.
        let escaped = Value::from(value).to_string();
        for form in [value, escaped.trim_matches('"')] {
            if form.len() >= Self::SHORTEST && !self.0.iter().any(|secret| secret == form) {
                self.0.push(form.to_owned());
            }
        }
        // Longest first: otherwise a secret within another leaves the rest of the longer one.
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// Reads a variable and adds its value.
    pub(crate) fn read(&mut self, environment: &Environment, name: &str) -> Option<String> {
        environment(name).inspect(|value| self.add(value))
    }

    /// Redacts the secrets in a text.
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }

    /// Redacts secrets in the texts and keys of a value.
    pub fn hide_in_value(&self, value: &Value) -> Value {
        if self.0.is_empty() { value.clone() } else { value_with_texts(value, &|text| self.hide(text)) }
    }

    /// Redacts secrets in a text. In a JSON object or array, searches the unescaped texts and keys,
    /// and skips numbers, so that the result is valid JSON.
    pub(crate) fn hide_in_json_text(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        match read_unique::<Value>(text.as_bytes()) {
            Ok(value) if value.is_object() || value.is_array() => {
                let hidden = self.hide_in_value(&value);
                if hidden == value { text.to_owned() } else { hidden.to_string() }
            }
            _ => self.hide(text),
        }
    }

    /// Redacts the secrets in the concatenation of pieces. A secret that spans pieces is replaced
    /// in the first one and removed from the others.
    pub fn hide_in_pieces(&self, pieces: &mut [String]) {
        for piece in pieces.iter_mut() {
            *piece = self.hide(piece);
        }
        let mut nth = 0;
        while nth + 1 < pieces.len() {
            let Some((start, mut rest)) = self.shared_secret(&pieces[nth..]) else {
                nth += 1;
                continue;
            };
            pieces[nth].truncate(start);
            pieces[nth].push_str("***");
            for piece in &mut pieces[nth + 1..] {
                let taken = rest.min(piece.len());
                piece.drain(..taken);
                rest -= taken;
            }
            nth += 1;
        }
    }

    /// Finds a secret that starts in the first piece and ends in a later one. Returns its start
    /// and its bytes after the first piece.
    fn shared_secret(&self, pieces: &[String]) -> Option<(usize, usize)> {
        let (first, later) = pieces.split_first()?;
        let longest = self.0.iter().map(String::len).max()?;
        let from = first.len().saturating_sub(longest);
        let starts = first.char_indices().map(|(at, _)| at).filter(|at| *at >= from);
        starts.flat_map(|at| self.0.iter().map(move |secret| (at, secret))).find_map(|(at, secret)| {
            let mut rest = secret.strip_prefix(&first[at..]).filter(|rest| !rest.is_empty())?;
            let length = rest.len();
            for piece in later {
                if piece.starts_with(rest) {
                    return Some((at, length));
                }
                rest = rest.strip_prefix(piece.as_str())?;
            }
            None
        })
    }

    /// Returns the start of a suffix that a secret may begin with; else the length of the text.
    pub(crate) fn open_end(&self, text: &str) -> usize {
        let mut at = 0;
        while let Some(next) = text[at..].chars().next() {
            let rest = &text[at..];
            if self.0.iter().any(|secret| secret.len() > rest.len() && secret.starts_with(rest)) {
                return at;
            }
            let whole = self.0.iter().find(|secret| rest.starts_with(secret.as_str()));
            at += whole.map_or(next.len_utf8(), String::len);
        }
        at
    }
}

/// Applies `change` to all texts and keys of a value.
pub(crate) fn value_with_texts(value: &Value, change: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| value_with_texts(item, change)).collect(),
        Value::Object(members) => {
            let changed = members.iter().map(|(key, value)| (change(key), value_with_texts(value, change)));
            Value::Object(changed.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Decodes UTF-8 lossily, removes escape sequences, control and text-direction characters (except
/// line feed and tab), redacts secrets, and trims.
pub(crate) fn clean(bytes: &[u8], secrets: &ResolvedSecrets) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain: String = anstream::adapter::strip_str(&text)
        .to_string()
        .chars()
        .filter(|&c| matches!(c, '\n' | '\t') || !(c.is_control() || changes_direction(c)))
        .collect();
    secrets.hide(plain.trim())
}

fn changes_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleans() {
        let mut secrets = ResolvedSecrets::default();
        for secret in ["hunter2", "hunter2-long", "abc"] {
            secrets.add(secret);
        }
        for (given, expected) in [
            (&b"plain"[..], "plain"),
            (b"\x1b[31mred\x1b[0m\r\n", "red"),
            (b"a\x00b\x07c\td\ne", "abc\td\ne"),
            (b"bad \xff byte", "bad \u{fffd} byte"),
            ("evil\u{202e}txt".as_bytes(), "eviltxt"),
            (b"token=hunter2!", "token=***!"),
            (b"token=hunter2-long!", "token=***!"),
            (b"hun\x00ter2", "***"),
            (b"abc is too short to hide", "abc is too short to hide"),
        ] {
            assert_eq!(clean(given, &secrets), expected, "{}", given.escape_ascii());
        }
    }

    #[test]
    fn hides_in_json() {
        let mut secrets = ResolvedSecrets::default();
        for secret in ["hunter2", "quo\"ted", "1234"] {
            secrets.add(secret);
        }
        for (given, expected) in [
            (r#"{"a": "x hunter2", "b": [1234.5, true]}"#, r#"{"a":"x ***","b":[1234.5,true]}"#),
            (r#"{"hunter2": null}"#, r#"{"***":null}"#),
            (r#"["hunt\u0065r2", "quo\"ted"]"#, r#"["***","***"]"#),
            (r#"{ "n": 1234 }"#, r#"{ "n": 1234 }"#),
            (r#"{"n": 1234"#, r#"{"n": ***"#),
            (r#"half {"a": "quo\"ted"#, r#"half {"a": "***"#),
        ] {
            assert_eq!(secrets.hide_in_json_text(given), expected, "{given}");
        }
    }

    #[test]
    fn hides_in_pieces() {
        let mut secrets = ResolvedSecrets::default();
        for secret in ["hunter2", "hünter"] {
            secrets.add(secret);
        }
        for (given, expected) in [
            (&["a hunter2", "b"][..], &["a ***", "b"][..]),
            (&["a hun", "ter2 b"], &["a ***", " b"]),
            (&["hun", "te", "", "r2"], &["***", "", "", ""]),
            (&["h", "unter2hun", "ter2!"], &["***", "***", "!"]),
            (&["hun", "ter", "3"], &["hun", "ter", "3"]),
            (&["hü", "nter, hun"], &["***", ", hun"]),
            (&["hhun", "ter2"], &["h***", ""]),
            (&[], &[]),
        ] {
            let mut pieces: Vec<String> = given.iter().map(|piece| (*piece).to_owned()).collect();
            secrets.hide_in_pieces(&mut pieces);
            assert_eq!(pieces, expected, "{given:?}");
        }
        assert!(!format!("{secrets:?}").contains("hunter2"));
    }

    #[test]
    fn finds_where_a_secret_may_begin() {
        let mut secrets = ResolvedSecrets::default();
        for secret in ["abcd", "abcdefg", "dada-x"] {
            secrets.add(secret);
        }
        for (text, held) in [
            ("", ""),
            ("word", "d"),
            ("word ", ""),
            ("xa", "a"),
            ("xabcd", "abcd"),
            ("xabcde", "abcde"),
            ("xabcdx", ""),
            ("abcdefg", ""),
            ("abcdefgdad", "dad"),
            ("ü dada", "dada"),
            ("dadada", "dada"),
        ] {
            assert_eq!(&text[secrets.open_end(text)..], held, "{text}");
        }
    }
}
