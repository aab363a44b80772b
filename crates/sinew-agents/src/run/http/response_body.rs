//! Converts the body of a successful response to the output of an agent: JSON, text, or an artifact.

use std::string::FromUtf8Error;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Value, json};
use sinew_protocol::unique_keys::read_unique;

use crate::artifacts::{Artifacts, extension};
use crate::error::AgentError;
use crate::run::Output;

/// Prefixes of media types that are not text, except those that are XML.
const BINARY_KINDS: [&str; 4] = ["audio/", "font/", "image/", "video/"];
/// Default media type of a response.
const UNKNOWN_TYPE: &str = "application/octet-stream";
/// Maximum bytes of a type or subtype.
const MAX_TYPE_BYTES: usize = 127;

/// Content type of a response, in lower case.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ContentType {
    essence: String,
    charset: String,
}

impl ContentType {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let named = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        Self::read(named.as_deref().unwrap_or_default())
    }

    fn read(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let mut parts = lower.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_owned();
        let charset = parts.find_map(|part| part.strip_prefix("charset=")).unwrap_or_default();
        Self { essence, charset: charset.trim_matches('"').to_owned() }
    }

    pub(super) fn is_json(&self) -> bool {
        self.essence == "application/json" || self.essence.ends_with("+json")
    }

    fn is_binary(&self) -> bool {
        let is_kind = BINARY_KINDS.iter().any(|kind| self.essence.starts_with(kind));
        is_kind && !self.is_json() && !self.essence.ends_with("+xml")
    }

    /// Returns the media type if its syntax is valid, else the default.
    fn media_type(&self) -> &str {
        let is_word = |word: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
            !word.is_empty() && word.len() <= MAX_TYPE_BYTES && word.chars().all(fits)
        };
        let is_type = self.essence.split_once('/').is_some_and(|(kind, rest)| is_word(kind) && is_word(rest));
        if is_type { &self.essence } else { UNKNOWN_TYPE }
    }

    /// Decodes the body as text, or returns its bytes if it is not text.
    fn text_of(&self, body: Vec<u8>) -> Result<String, Vec<u8>> {
        if self.is_binary() {
            return Err(body);
        }
        String::from_utf8(body).map_err(FromUtf8Error::into_bytes).or_else(|bytes| {
            // Each byte of Latin-1 equals its code point.
            let is_latin_1 = matches!(self.charset.as_str(), "iso-8859-1" | "latin1");
            if is_latin_1 { Ok(bytes.into_iter().map(char::from).collect()) } else { Err(bytes) }
        })
    }
}

/// Returns the output for a response. Stores a binary body as an artifact that the output names.
pub(super) fn output_of(
    host: &str,
    (status, content_type): (u16, &ContentType),
    body: Vec<u8>,
    artifacts: &dyn Artifacts,
) -> Result<Output, AgentError> {
    let unreadable = |reason: String| AgentError::Response { host: host.to_owned(), reason };
    let is_named_text = content_type.is_json() || content_type.essence.starts_with("text/");
    match content_type.text_of(body) {
        Ok(text) if content_type.is_json() => {
            let value = read_unique::<Value>(text.as_bytes());
            value.map(Output::from).map_err(|error| unreadable(format!("it is not JSON: {error}")))
        }
        Ok(text) => Ok(Output::from(Value::String(text))),
        Err(_) if is_named_text => Err(unreadable("it is not UTF-8 text".to_owned())),
        Err(bytes) => {
            let media_type = content_type.media_type();
            let name = format!("response.{}", extension(media_type));
            let stored = artifacts.put(&name, &bytes, Some(media_type))?;
            let value = json!({"status": status, "media_type": media_type, "artifact": stored.to_string()});
            Ok(Output { artifacts: vec![stored], ..Output::from(value) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_content_types() {
        for (text, essence, charset) in [
            ("", "", ""),
            ("Text/HTML", "text/html", ""),
            ("application/json; Charset=ISO-8859-1", "application/json", "iso-8859-1"),
            ("text/plain;format=flowed ; charset=\"latin1\"", "text/plain", "latin1"),
            (";;=", "", ""),
        ] {
            let expected = ContentType { essence: essence.to_owned(), charset: charset.to_owned() };
            assert_eq!(ContentType::read(text), expected, "{text}");
        }
        for (text, media_type) in [
            ("Image/PNG; q=1", "image/png"),
            ("application/vnd.a+b", "application/vnd.a+b"),
            ("image/<script>", UNKNOWN_TYPE),
            ("image", UNKNOWN_TYPE),
            ("/", UNKNOWN_TYPE),
        ] {
            assert_eq!(ContentType::read(text).media_type(), media_type, "{text}");
        }
    }
}
