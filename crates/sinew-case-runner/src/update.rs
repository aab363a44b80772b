//! `--update`: writes actual results to the test file. Replaces only values of failed expectations,
//! and preserves comments and all other text.

use std::ops::Range;

use serde_json::Value;
use sinew_source::{Kind, Member, Node, Span};

use crate::case_file::Case;
use crate::expectation::{self, Mismatch};
use crate::observation::CaseObservation;

/// Maximum columns of a line; longer values become blocks.
const WIDTH: usize = 100;
const STEP: usize = 2;

/// A replacement in the text of the file.
#[derive(Clone, Debug)]
pub(crate) struct TextEdit {
    range: Range<usize>,
    text: String,
}

/// Returns the edits that make the case pass.
pub(crate) fn edits(text: &str, case: &Case, seen: &CaseObservation, found: &[Mismatch]) -> Vec<TextEdit> {
    let Some(expect) = &case.expect else {
        return new_block(text, case, seen).into_iter().collect();
    };
    let mut edits = Vec::new();
    let mut done: Vec<&str> = Vec::new();
    for (key, value) in found.iter().filter_map(|mismatch| mismatch.update.as_ref()) {
        // Do not edit members from an alias or a merge, which other values share.
        let own = |member: &&Member| member.key_span.start >= case.node.span.start;
        let Some(member) = expect.member(key).filter(own).filter(|_| !done.contains(&key.as_str())) else {
            continue;
        };
        done.push(key);
        replace(text, expect, member, value, &mut edits);
    }
    edits
}

/// Replaces a value; in a block, only the members that differ.
fn replace(text: &str, owner: &Node, member: &Member, value: &Value, edits: &mut Vec<TextEdit>) {
    if let (Kind::Object(old), Value::Object(new)) = (&member.value.kind, value)
        && !is_flow(text, &member.value)
        && member.value.span.start > member.key_span.start
        && old.len() == new.len()
        && old.iter().all(|member| new.contains_key(&member.key))
    {
        for inner in old.iter().filter(|inner| inner.value.to_json() != new[&inner.key]) {
            replace(text, &member.value, inner, &new[&inner.key], edits);
        }
        return;
    }
    let flow = is_flow(text, owner) || is_json(text);
    let indent = (member.key_span.column as usize).saturating_sub(1);
    let after = member.key_span.end..end_of_member(text, member);
    // Start after `key:`, so that a block can replace a value on the same line.
    let colon = text[after.clone()].find(':').map_or(after.start, |at| after.start + at + 1);
    let new =
        if flow { format!(" {}", flow_text(value, is_json(text))) } else { self::member(value, indent) };
    edits.push(TextEdit { range: colon..after.end, text: new });
}

/// Applies all edits to the text.
pub(crate) fn apply(text: &str, mut edits: Vec<TextEdit>) -> String {
    edits.sort_by_key(|edit| edit.range.start);
    let mut out = text.to_owned();
    for edit in edits.into_iter().rev() {
        out.replace_range(edit.range, &edit.text);
    }
    out
}

/// Adds `expect` to a case without it, after its last member.
fn new_block(text: &str, case: &Case, seen: &CaseObservation) -> Option<TextEdit> {
    let last = case.node.as_object()?.last()?;
    let at = end_of_member(text, last);
    let value = expectations(seen);
    if is_flow(text, &case.node) || is_json(text) {
        return Some(TextEdit {
            range: at..at,
            text: format!(", \"expect\": {}", flow_text(&value, is_json(text))),
        });
    }
    let indent = (last.key_span.column as usize).saturating_sub(1);
    let text = format!("\n{}expect:{}", " ".repeat(indent), block(&value, indent + STEP));
    Some(TextEdit { range: at..at, text })
}

/// Returns initial expectations: the end of the execution and its nodes, and the calls of each agent.
fn expectations(seen: &CaseObservation) -> Value {
    let mut expect = serde_json::Map::new();
    expect.insert("status".into(), seen.status.into());
    match (&seen.output, &seen.error) {
        (_, Some(error)) => expect.insert("error".into(), error.clone().into()),
        (Some(output), None) => expect.insert("output".into(), output.clone()),
        (None, None) => None,
    };
    let nodes =
        seen.listed.iter().filter_map(|id| Some((id.clone(), Value::from(seen.nodes.get(id)?.status))));
    expect.insert("nodes".into(), nodes.collect());
    let mut calls = serde_json::Map::new();
    for one in &seen.asked {
        let count = calls.get(&one.agent).and_then(Value::as_u64).unwrap_or(0) + 1;
        calls.insert(one.agent.clone(), count.into());
    }
    if !calls.is_empty() {
        expect.insert("calls".into(), calls.into());
    }
    if seen.elapsed > 0 {
        expect.insert("elapsed".into(), expectation::millis(seen.elapsed).into());
    }
    expect.into()
}

fn is_flow(text: &str, node: &Node) -> bool {
    text.get(node.span.start..).is_some_and(|rest| rest.starts_with(['{', '[']))
}

fn is_json(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim_start().starts_with('{')
}

/// Returns the end of `key: value`. An alias has the span of its target, so it ends with its line.
fn end_of_member(text: &str, member: &Member) -> usize {
    let key = member.key_span.end;
    let end = end_of(text, &member.value);
    if member.value.span.start >= key && end >= key {
        return end;
    }
    let line = text[key..].find('\n').map_or(text.len(), |at| key + at);
    let value = text[key..line].find(" #").map_or(line, |at| key + at);
    key + text[key..value].trim_end().len()
}

/// Returns the end of a value. A block ends with its last member, before comments that follow.
fn end_of(text: &str, node: &Node) -> usize {
    let below = match &node.kind {
        _ if is_flow(text, node) => None,
        Kind::Object(members) => members.last().map(|member| end_of(text, &member.value)),
        Kind::Array(items) => items.last().map(|item| end_of(text, item)),
        _ => None,
    };
    below.unwrap_or_else(|| {
        let Span { start, end, .. } = node.span;
        start + text.get(start..end).map_or(0, |value| value.trim_end().len())
    })
}

/// Formats a value after its key: on the same line if it fits, else as a block.
fn member(value: &Value, indent: usize) -> String {
    let line = flow_text(value, false);
    let plain = !matches!(value, Value::Object(members) if !members.is_empty())
        && !matches!(value, Value::Array(items) if !items.is_empty());
    if plain || indent + line.chars().count() <= WIDTH {
        return format!(" {line}");
    }
    block(value, indent + STEP)
}

fn block(value: &Value, indent: usize) -> String {
    let pad = " ".repeat(indent);
    let lines: Vec<String> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| format!("\n{pad}{}:{}", word(key, false), member(value, indent)))
            .collect(),
        Value::Array(items) => {
            items.iter().map(|item| format!("\n{pad}- {}", flow_text(item, false))).collect()
        }
        other => vec![format!(" {}", flow_text(other, false))],
    };
    lines.concat()
}

/// Formats a value on one line; `strict` quotes all texts, as in JSON.
fn flow_text(value: &Value, strict: bool) -> String {
    match value {
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, value)| format!("{}: {}", word(key, strict), flow_text(value, strict)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| flow_text(item, strict)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => word(text, strict),
        other => other.to_string(),
    }
}

/// Formats a text, without quotes if YAML parses it as a string.
fn word(text: &str, strict: bool) -> String {
    let keyword = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"]
        .contains(&&*text.to_lowercase());
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    // Durations remain unquoted.
    let duration = text.strip_suffix(['s', 'm']).is_some_and(|number| {
        let number = number.strip_suffix('m').unwrap_or(number);
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    });
    if !strict && (duration || (plain && !keyword)) {
        return text.to_owned();
    }
    Value::from(text).to_string()
}
