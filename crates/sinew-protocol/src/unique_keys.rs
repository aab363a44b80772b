//! JSON without duplicate keys: readers differ in which of two values they use.

use crate::code;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Maximum length of a key in an error message, in characters.
const MAX_SHOWN_KEY: usize = 60;
/// Number of keys up to which linear comparison is faster than hashing.
const MAX_COMPARED_KEYS: usize = 24;
/// Maximum length of a location in an error message, in characters.
const MAX_SHOWN_PLACE: usize = 200;

/// Error for bytes that are not JSON, not of the expected form, or that have a duplicate key.
#[derive(Debug, thiserror::Error)]
pub enum BadJson {
    /// An object has a duplicate key.
    #[error("{0}")]
    DuplicateKey(DuplicateKey),
    /// More values than the limit; each of them needs more memory than its text.
    #[error("it holds more than {0} values")]
    TooManyValues(usize),
    /// Any other error.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
}

impl BadJson {
    /// Operator code of a duplicate key in data from an agent.
    pub const DUPLICATE_KEY: &str = code::OUTPUT_KEY_TWICE.as_str();

    /// Returns the code of a duplicate key, and `otherwise` for any other error.
    pub fn code(&self, otherwise: &'static str) -> &'static str {
        match self {
            Self::DuplicateKey(_) => Self::DUPLICATE_KEY,
            Self::TooManyValues(_) => code::VALUE_TOO_LARGE.as_str(),
            Self::Form(_) => otherwise,
        }
    }
}

/// Duplicate key in an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("key '{key}' is duplicated in the object at '{place}'")]
pub struct DuplicateKey {
    /// Key, escaped and truncated.
    pub key: String,
    /// JSON pointer of the object, escaped and truncated.
    pub place: String,
}

/// Parses JSON and rejects duplicate keys.
pub fn read_unique<T: DeserializeOwned>(json: &[u8]) -> Result<T, BadJson> {
    check_unique_keys(json)?;
    Ok(serde_json::from_slice(json)?)
}

/// Parses JSON and rejects duplicate keys and more than `max_values` values, including arrays and
/// objects themselves.
pub fn read_unique_within<T: DeserializeOwned>(json: &[u8], max_values: usize) -> Result<T, BadJson> {
    check_unique_keys_within(json, max_values)?;
    Ok(serde_json::from_slice(json)?)
}

/// Returns an error for JSON with duplicate keys and for invalid JSON.
pub fn check_unique_keys(json: &[u8]) -> Result<(), BadJson> {
    check_unique_keys_within(json, usize::MAX)
}

/// Returns an error for JSON with duplicate keys or more than `max_values` values. Keeps no values.
pub fn check_unique_keys_within(json: &[u8], max_values: usize) -> Result<(), BadJson> {
    let mut found = KeyFindings { twice: None, left: Some(max_values) };
    let mut reader = serde_json::Deserializer::from_slice(json);
    let checked = UniqueValue { place: &KeyPath::Root, found: &mut found }.deserialize(&mut reader);
    match (found, checked) {
        (KeyFindings { twice: Some(twice), .. }, _) => Err(BadJson::DuplicateKey(twice)),
        (KeyFindings { left: None, .. }, _) => Err(BadJson::TooManyValues(max_values)),
        (_, Err(error)) => Err(error.into()),
        (_, Ok(())) => Ok(reader.end()?),
    }
}

/// State of a traversal of JSON.
struct KeyFindings {
    twice: Option<DuplicateKey>,
    /// Remaining number of values; `None` once it is exceeded.
    left: Option<usize>,
}

/// Path from the root to an object.
enum KeyPath<'p> {
    Root,
    Member(&'p KeyPath<'p>, &'p str),
    Item(&'p KeyPath<'p>, usize),
}

impl fmt::Display for KeyPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(parent, key) => write!(f, "{parent}/{}", key.replace('~', "~0").replace('/', "~1")),
            Self::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// Traverses a value without keeping it.
struct UniqueValue<'p, 'f> {
    place: &'p KeyPath<'p>,
    found: &'f mut KeyFindings,
}

impl<'de> DeserializeSeed<'de> for UniqueValue<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.found.left = self.found.left.and_then(|left| left.checked_sub(1));
        if self.found.left.is_none() {
            return Err(de::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueValue<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for index in 0.. {
            let place = KeyPath::Item(self.place, index);
            if items.next_element_seed(UniqueValue { place: &place, found: self.found })?.is_none() {
                break;
            }
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = SeenKeys::default();
        while let Some(key) = members.next_key_seed(BorrowedKey)? {
            let place = KeyPath::Member(self.place, &key);
            members.next_value_seed(UniqueValue { place: &place, found: self.found })?;
            if seen.contains(&key) {
                let place = escaped(&self.place.to_string(), MAX_SHOWN_PLACE);
                self.found.twice = Some(DuplicateKey { key: escaped(&key, MAX_SHOWN_KEY), place });
                return Err(de::Error::custom("a key is duplicated"));
            }
            seen.insert(key);
        }
        Ok(())
    }
}

/// Keys of one object.
#[derive(Default)]
struct SeenKeys<'de> {
    /// First keys, compared one by one: most objects have few.
    few: Vec<Cow<'de, str>>,
    /// All other keys.
    many: HashSet<Cow<'de, str>>,
}

impl<'de> SeenKeys<'de> {
    fn contains(&self, key: &str) -> bool {
        self.few.iter().any(|seen| seen == key) || (!self.many.is_empty() && self.many.contains(key))
    }

    fn insert(&mut self, key: Cow<'de, str>) {
        if self.few.len() < MAX_COMPARED_KEYS {
            self.few.push(key);
        } else {
            self.many.insert(key);
        }
    }
}

/// Key, borrowed if it is written without escapes.
struct BorrowedKey;

impl<'de> DeserializeSeed<'de> for BorrowedKey {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for BorrowedKey {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }
    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

/// Truncates a string to `most` characters and escapes those that could control a terminal.
fn escaped(text: &str, most: usize) -> String {
    let cut = text.char_indices().nth(most).map(|(end, _)| &text[..end]);
    match cut {
        Some(cut) => format!("{}…", cut.escape_debug()),
        None => text.escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn values_are_counted_before_any_is_kept() {
        for (json, count) in [("1", 1), ("[1,[],{}]", 4), (r#"{"a":[1,2],"b":{"c":null}}"#, 6)] {
            assert!(read_unique_within::<Value>(json.as_bytes(), count).is_ok(), "{json}");
            let error = read_unique_within::<Value>(json.as_bytes(), count - 1).unwrap_err();
            assert!(matches!(error, BadJson::TooManyValues(_)), "{json}: {error}");
            assert_eq!(error.code("other"), "SINEW-6008");
        }
    }

    #[test]
    fn keys_that_stand_twice() {
        let long = format!(r#"{{"{0}": 1, "{0}": 2}}"#, "k".repeat(500));
        let many: Vec<String> = (0..3 * MAX_COMPARED_KEYS).map(|nth| format!(r#""k{nth}": 1"#)).collect();
        let many_once = format!("{{{}}}", many.join(","));
        let [first_twice, last_twice] =
            [0, many.len() - 1].map(|nth| format!("{{{},{}}}", many.join(","), many[nth]));
        let cases: &[(&str, Result<(), &str>)] = &[
            (r#"{"a": 1, "b": {"a": 1}, "c": [{"a": 1}, {"a": 1}]}"#, Ok(())),
            (r#""a""#, Ok(())),
            ("[1, -1, 1.5, true, null, \"\\u0061\"]", Ok(())),
            (r#"{"a": 1, "a": 1}"#, Err("key 'a' is duplicated in the object at ''")),
            (r#"{"a": 1, "\u0061": 1}"#, Err("key 'a' is duplicated in the object at ''")),
            (
                r#"{"x": [0, {"y/z": {"a": 1, "b": 2, "a": 3}}]}"#,
                Err("key 'a' is duplicated in the object at '/x/1/y~1z'"),
            ),
            (
                r#"{"\u001b[2J": 1, "\u001b[2J": 1}"#,
                Err("key '\\u{1b}[2J' is duplicated in the object at ''"),
            ),
            (
                &long,
                Err(
                    "key 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk…' is duplicated in the object at ''",
                ),
            ),
            (&many_once, Ok(())),
            (&first_twice, Err("key 'k0' is duplicated in the object at ''")),
            (&last_twice, Err("key 'k71' is duplicated in the object at ''")),
            ("{\"a\": 1", Err("EOF while parsing an object at line 1 column 7")),
            ("{} {}", Err("trailing characters at line 1 column 4")),
        ];
        for (json, expected) in cases {
            let checked = check_unique_keys(json.as_bytes()).map_err(|error| error.to_string());
            assert_eq!(checked, expected.map_err(str::to_owned), "{json}");
            assert_eq!(read_unique::<Value>(json.as_bytes()).is_ok(), expected.is_ok(), "{json}");
        }
    }

    #[test]
    fn deep_json_is_an_error() {
        assert!(check_unique_keys("[".repeat(100_000).as_bytes()).is_err());
    }
}
