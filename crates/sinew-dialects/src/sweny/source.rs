//! Inline text, files and URLs in a workflow, read once before execution.

use sinew_protocol::code;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use sinew_source::{Diagnostic, Diagnostics, Span};

use super::model::Source;

/// Kind of a source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inline,
    File,
    Url,
}

impl Source {
    fn named(&self) -> (Kind, &str) {
        match self {
            Self::Text(text) if ["./", "../", "/"].iter().any(|start| text.starts_with(start)) => {
                (Kind::File, text)
            }
            Self::Text(text) if ["http://", "https://"].iter().any(|start| text.starts_with(start)) => {
                (Kind::Url, text)
            }
            Self::Text(text) => (Kind::Inline, text),
            Self::Inline { inline } => (Kind::Inline, inline),
            Self::File { file } => (Kind::File, file),
            Self::Url { url } => (Kind::Url, url),
        }
    }

    fn origin(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Inline { inline } => json!({ "inline": inline }),
            Self::File { file } => json!({ "file": file }),
            Self::Url { url } => json!({ "url": url, "type": "fetch" }),
        }
    }
}

/// Reader of sources, which records each.
pub(super) struct Reader<'a> {
    read: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
    cache: BTreeMap<String, Result<String, String>>,
    /// Records of the sources, by their position in the workflow.
    pub(super) records: Map<String, Value>,
    pub(super) found: Vec<Diagnostic>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(read: &'a dyn Fn(&str) -> Result<Vec<u8>, String>) -> Self {
        Self { read, cache: BTreeMap::new(), records: Map::new(), found: Vec::new() }
    }

    /// Returns the text of the source at a position.
    pub(super) fn text(&mut self, source: &Source, place: &str, span: Span) -> String {
        self.read(source, place, Some(span))
    }

    fn read(&mut self, source: &Source, place: &str, span: Option<Span>) -> String {
        let (kind, name) = source.named();
        let read = match kind {
            Kind::Inline => Ok(name.to_owned()),
            Kind::File | Kind::Url => {
                let read = self.read;
                self.cache.entry(name.to_owned()).or_insert_with(|| read(name).and_then(decode)).clone()
            }
        };
        match read {
            Ok(text) => {
                self.records.insert(place.to_owned(), record(source, &text));
                text
            }
            Err(why) => {
                let message = format!("{place}: cannot read {name}: {why}");
                let code = code(kind, &why);
                let mut finding =
                    Diagnostic::error(code::SWENY_SOURCE_CANNOT_BE_READ.as_str(), message).sub_code(code);
                if let Some(span) = span {
                    finding = finding.at(span);
                }
                if kind == Kind::File {
                    let from = if span.is_some() { "the workflow file" } else { "the current folder" };
                    finding = finding
                        .hint(format!("the path is relative to {from}; {{inline: ...}} is taken as text"));
                }
                self.found.push(finding);
                String::new()
            }
        }
    }

    /// Returns all texts of a list.
    pub(super) fn texts(
        &mut self,
        sources: &[Source],
        place: &str,
        span: impl Fn(usize) -> Span,
    ) -> Vec<String> {
        let texts = sources.iter().enumerate();
        texts.map(|(n, source)| self.text(source, &format!("{place}.{n}"), span(n))).collect()
    }
}

/// Field with the origin of an input source whose text was read.
const ORIGIN: &str = "readFrom";

/// Reads the files and URLs among the sources of an input and replaces them by their text and
/// origin. Everything else is unchanged and is checked when the execution starts.
pub(super) fn read_input(
    mut input: Value,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<Value, Diagnostics> {
    let mut reader = Reader::new(read);
    for key in ["rules", "context"] {
        let Some(given) = input.get_mut(key) else { continue };
        let sources: Vec<&mut Value> = match given {
            Value::Array(sources) => sources.iter_mut().collect(),
            source => vec![source],
        };
        for (n, given) in sources.into_iter().enumerate() {
            let Ok(source) = serde_json::from_value::<Source>(given.clone()) else { continue };
            if source.named().0 != Kind::Inline {
                let text = reader.read(&source, &format!("input.{key}.{n}"), None);
                *given = json!({ "inline": text, ORIGIN: source.origin() });
            }
        }
    }
    if reader.found.is_empty() {
        return Ok(input);
    }
    let mut diagnostics = Diagnostics::default();
    diagnostics.extend(reader.found);
    diagnostics.set_dialect(super::NAME);
    Err(diagnostics)
}

/// Returns a source of the input as it was before it was read.
pub(super) fn origin(source: &Value) -> Option<Source> {
    serde_json::from_value(source.get(ORIGIN).unwrap_or(source).clone()).ok()
}

/// Returns an inline text. Runtime input must not contain sources that have to be read.
pub(super) fn inline(source: &Value) -> Option<String> {
    let source: Source = serde_json::from_value(source.clone()).ok()?;
    let (kind, text) = source.named();
    (kind == Kind::Inline).then(|| text.to_owned())
}

/// Returns the trace's record of a source.
pub(super) fn record(source: &Source, text: &str) -> Value {
    let (kind, name) = source.named();
    let (kind, resolver) = match kind {
        Kind::Inline => ("inline", "inline"),
        Kind::File => ("file", "file"),
        Kind::Url => ("url", "fetch"),
    };
    let hash = hex::encode(Sha256::digest(text));
    let mut record = json!({
        "content": text, "kind": kind, "origin": source.origin(), "resolver": resolver, "hash": hash[..16],
    });
    if kind == "file" {
        record["sourcePath"] = json!(name);
    }
    record
}

fn decode(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| "it is not valid UTF-8".to_owned())?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Returns the dialect's code for a failed read. The reader returns the reason in one sentence; a
/// code at its start is used unchanged.
fn code(kind: Kind, why: &str) -> &str {
    let lower = why.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if let Some(code) = why.split([':', ' ']).next().filter(|word| word.starts_with("SOURCE_")) {
        return code;
    }
    match kind {
        Kind::File if says(&["not found", "no such file", "does not exist"]) => "SOURCE_FILE_NOT_FOUND",
        Kind::File | Kind::Inline => "SOURCE_FILE_READ_FAILED",
        Kind::Url if says(&["offline", "not allowed"]) => "SOURCE_OFFLINE_REQUIRES_FETCH",
        Kind::Url if says(&["401", "403"]) => "SOURCE_URL_AUTH_REQUIRED",
        Kind::Url if says(&["http status", "status code", "404", "500"]) => "SOURCE_URL_HTTP_ERROR",
        Kind::Url => "SOURCE_URL_UNREACHABLE",
    }
}
