//! JSON of servers that break characters apart.
//!
//! A server that splits text by UTF-16 units sends one half of a surrogate pair per event, as an escape
//! that is not valid alone. A half is read as a marker, and both are joined once the text is complete.

use serde_json::Value;

/// First of 2,048 private characters that stand for the halves of surrogate pairs.
const FIRST_MARKER: u32 = 0x0010_f800;
/// First high half, and first low half.
const FIRST_HIGH: u32 = 0xd800;
const FIRST_LOW: u32 = 0xdc00;
/// First character after the halves.
const AFTER_LOW: u32 = 0xe000;

/// Parses JSON. Sets `is_marked` if it has halves of surrogate pairs, which are read as markers.
pub(super) fn parse(bytes: &[u8], is_marked: &mut bool) -> Result<Value, serde_json::Error> {
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let text = String::from_utf8_lossy(bytes);
    let marked = with_markers(&text);
    match marked {
        Some(marked) => {
            *is_marked = true;
            serde_json::from_str(&marked)
        }
        // The bytes are not UTF-8.
        None if text.contains(char::REPLACEMENT_CHARACTER) => serde_json::from_str(&text),
        None => Err(error),
    }
}

/// Replaces escapes of single halves in a JSON text by markers; `None` if it has none.
fn with_markers(text: &str) -> Option<String> {
    let (mut marked, mut rest, mut found) = (String::with_capacity(text.len()), text, false);
    while let Some(at) = rest.find('\\') {
        marked.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match escaped_half(rest) {
            Some(high)
                if high < FIRST_LOW && escaped_half(&rest[6..]).is_some_and(|low| low >= FIRST_LOW) =>
            {
                marked.push_str(&rest[..12]);
                12
            }
            Some(half) => {
                found = true;
                marked.extend(char::from_u32(FIRST_MARKER + half - FIRST_HIGH));
                6
            }
            None => {
                // The escaped character belongs to the escape.
                let length = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
                marked.push_str(&rest[..length]);
                length
            }
        };
        rest = &rest[length..];
    }
    marked.push_str(rest);
    found.then_some(marked)
}

/// Returns the half of a surrogate pair that a text starts with, as an escape.
fn escaped_half(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let unit = u32::from_str_radix(digits, 16).ok()?;
    (FIRST_HIGH..AFTER_LOW).contains(&unit).then_some(unit)
}

/// Returns the half that a marker stands for.
fn half_of(character: char) -> Option<u32> {
    u32::from(character).checked_sub(FIRST_MARKER).map(|offset| offset + FIRST_HIGH)
}

/// Joins the markers in a text. A half without the other one becomes U+FFFD.
pub(super) fn joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(half) = half_of(character) else {
            joined.push(character);
            continue;
        };
        let low = characters.peek().copied().and_then(half_of);
        let pair = low.filter(|low| half < FIRST_LOW && *low >= FIRST_LOW);
        let whole =
            pair.and_then(|low| char::from_u32(0x1_0000 + ((half - FIRST_HIGH) << 10) + (low - FIRST_LOW)));
        if whole.is_some() {
            characters.next();
        }
        joined.push(whole.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    joined
}

/// Joins the markers in all texts and keys of a value.
pub(super) fn value_joined(value: Value) -> Value {
    match value {
        Value::String(text) => joined(&text).into(),
        Value::Array(items) => items.into_iter().map(value_joined).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(key, value)| (joined(&key), value_joined(value)));
            members.collect::<serde_json::Map<_, _>>().into()
        }
        other => other,
    }
}

/// Splits off a marker at the end of a text, whose other half may follow.
pub(super) fn split_open_half(text: &mut String) -> Option<char> {
    let last = text.chars().next_back().filter(|last| half_of(*last).is_some_and(|half| half < FIRST_LOW))?;
    text.truncate(text.len() - last.len_utf8());
    Some(last)
}

/// Replaces escapes of single halves in arguments, which are JSON within JSON, so that they parse.
pub(super) fn whole_arguments(arguments: String) -> String {
    match with_markers(&arguments) {
        Some(marked) => joined(&marked),
        None => arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_joined() {
        for (bytes, expected) in [
            (&br#""a\ud83d\ude00b""#[..], Some("a😀b")),
            (br#""a\ud83d b""#, Some("a\u{fffd} b")),
            (br#""\ude00\ud83d""#, Some("\u{fffd}\u{fffd}")),
            (br#""\ud83d\ud83d\ude00""#, Some("\u{fffd}😀")),
            (br#""\\ud83d""#, Some("\\ud83d")),
            (br#""\uD83d\u0041""#, Some("\u{fffd}A")),
            (b"\"a\xffb\"", Some("a\u{fffd}b")),
            (br#""\ud8"#, None),
            (br"\", None),
        ] {
            let read = parse(bytes, &mut false).ok();
            let text = read.map(|value| value_joined(value).as_str().unwrap_or_default().to_owned());
            assert_eq!(text.as_deref(), expected, "{}", bytes.escape_ascii());
        }
        assert_eq!(whole_arguments(r#"{"a": "\ud83d"}"#.to_owned()), "{\"a\": \"\u{fffd}\"}");
    }
}
