//! Machine-readable forms: Sinew's JSON, SARIF 2.1.0, and workflow commands of GitHub Actions.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{MAX_FINDINGS, file_name, message};
use crate::{Diagnostic, Diagnostics, Severity, Span};

/// Renders one JSON document:
/// `{"version":1, "errors":n, "warnings":n, "diagnostics":[{severity, code, message, file, line, …}]}`.
/// Fields without a value are omitted. `diagnostics` contains the first 1,000.
pub fn render_json(diagnostics: &Diagnostics) -> String {
    let shown = diagnostics.items.iter().take(MAX_FINDINGS);
    let items: Vec<Value> = shown.map(|item| json_item(diagnostics, item)).collect();
    pretty(&json!({
        "version": 1,
        "errors": diagnostics.errors(),
        "warnings": diagnostics.warnings(),
        "diagnostics": items,
    }))
}

fn json_item(diagnostics: &Diagnostics, item: &Diagnostic) -> Value {
    let mut out = Map::new();
    out.insert("severity".into(), item.severity.name().into());
    out.insert("code".into(), item.code.into());
    let texts = [("dialect", &item.dialect), ("sub_code", &item.sub_code)];
    for (name, text) in texts {
        if let Some(text) = text {
            out.insert(name.into(), text.as_str().into());
        }
    }
    out.insert("message".into(), item.message.as_str().into());
    if let Some(name) = file_name(diagnostics, item) {
        out.insert("file".into(), name.into());
    }
    if let Some(span) = item.span {
        let (end_line, end_column) = diagnostics.sources.end_of(span);
        let numbers = [
            ("line", span.line),
            ("column", span.column),
            ("end_line", end_line),
            ("end_column", end_column),
        ];
        out.extend(numbers.map(|(name, number)| (name.to_owned(), number.into())));
    }
    if let Some(hint) = &item.hint {
        out.insert("hint".into(), hint.as_str().into());
    }
    if !item.related.is_empty() {
        let place = |(span, text): &(Span, String)| {
            let name = diagnostics.sources.get(span.file).map(|file| file.name.as_str());
            json!({"file": name, "line": span.line, "column": span.column, "message": text})
        };
        out.insert("related".into(), item.related.iter().map(place).collect());
    }
    Value::Object(out)
}

/// Renders SARIF 2.1.0 with one run; its rules are the codes that occur.
pub fn render_sarif(diagnostics: &Diagnostics) -> String {
    let items = || diagnostics.items.iter().take(MAX_FINDINGS);
    let codes: BTreeSet<&str> = items().map(|item| item.code).collect();
    let rules: Vec<Value> = codes.iter().map(|code| json!({"id": code})).collect();
    let location = |span: Span, text: Option<&str>| {
        let (end_line, end_column) = diagnostics.sources.end_of(span);
        let name = diagnostics.sources.get(span.file).map_or("", |file| &file.name);
        let mut out = json!({
            "physicalLocation": {
                "artifactLocation": {"uri": uri(name)},
                "region": {
                    "startLine": span.line,
                    "startColumn": span.column,
                    "endLine": end_line,
                    "endColumn": end_column,
                },
            },
        });
        if let Some(text) = text {
            out["message"] = json!({"text": text});
        }
        out
    };
    let result = |item: &Diagnostic| {
        let mut text = message(item);
        if let Some(hint) = &item.hint {
            let _ = write!(text, "\nhint: {hint}");
        }
        let locations = match (item.span, file_name(diagnostics, item)) {
            (Some(span), _) => vec![location(span, None)],
            (None, Some(name)) => vec![json!({"physicalLocation": {"artifactLocation": {"uri": uri(name)}}})],
            (None, None) => Vec::new(),
        };
        let related: Vec<Value> =
            item.related.iter().map(|(span, text)| location(*span, Some(text))).collect();
        let mut out = json!({
            "ruleId": item.code,
            "level": item.severity.name(),
            "message": {"text": text},
            "locations": locations,
        });
        if !related.is_empty() {
            out["relatedLocations"] = related.into();
        }
        out
    };
    pretty(&json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "sinew", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "columnKind": "unicodeCodePoints",
            "results": items().map(result).collect::<Vec<_>>(),
        }],
    }))
}

/// Renders one `::error …::` or `::warning …::` line for each finding.
pub fn render_github(diagnostics: &Diagnostics) -> String {
    let mut out = String::new();
    for item in diagnostics.items.iter().take(MAX_FINDINGS) {
        let mut properties = Vec::new();
        if let Some(name) = file_name(diagnostics, item) {
            properties.push(format!("file={}", property(name)));
        }
        if let Some(span) = item.span {
            properties.push(format!("line={},col={}", span.line, span.column));
            let (end_line, end_column) = diagnostics.sources.end_of(span);
            if end_line == span.line && end_column > span.column {
                properties.push(format!("endColumn={end_column}"));
            }
        }
        properties.push(format!("title={}", item.code));
        let mut text = message(item);
        if let Some(hint) = &item.hint {
            let _ = write!(text, "\nhint: {hint}");
        }
        let command = match item.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "::{command} {}::{}", properties.join(","), data(&text));
    }
    out
}

/// Escapes the message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Converts a path to a relative URI with percent-encoding.
fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'\\' => out.push('/'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
