//! Compares the expectations of a case with the result.

use serde_json::Value;
use sinew_documents::words;
use sinew_source::{Diagnostics, Node, Span};

use crate::difference::{differences, lines, short};
use crate::observation::CaseObservation;
use crate::stub;

/// Message for a case without expectations.
pub(crate) const NOTHING_EXPECTED: &str = "nothing is expected";

/// A failed expectation.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    /// Span of the expectation.
    pub(crate) span: Span,
    /// Name of the expectation.
    pub(crate) what: String,
    /// Differences.
    pub(crate) lines: Vec<String>,
    /// Key in `expect` and actual value, for `--update`.
    pub(crate) update: Option<(String, Value)>,
}

impl Mismatch {
    pub(crate) fn new(span: Span, what: impl Into<String>, lines: Vec<String>) -> Self {
        Self { span, what: what.into(), lines, update: None }
    }
}

/// Returns all failed expectations.
pub(crate) fn check(expect: &Node, seen: &CaseObservation) -> Vec<Mismatch> {
    let mut found = Vec::new();
    for member in expect.as_object().unwrap_or_default() {
        let key = member.key.as_str();
        let before = found.len();
        one(key, &member.value, seen, &mut found);
        if found.len() > before {
            let update = update(key, &member.value, seen);
            let mut left = Vec::new();
            one(key, &Node::from_json(&update), seen, &mut left);
            // No value meets some expectations: a missing error, a node that does not exist.
            if !left.is_empty() {
                continue;
            }
            for mismatch in &mut found[before..] {
                mismatch.update = Some((key.to_owned(), update.clone()));
            }
        }
    }
    found
}

fn one(key: &str, want: &Node, seen: &CaseObservation, found: &mut Vec<Mismatch>) {
    match key {
        "status" => text(key, want, seen.status, seen.error.as_deref(), found),
        "output" | "output_contains" => {
            let Some(output) = &seen.output else {
                return found.push(Mismatch::new(want.span, key, vec![no_output(seen)]));
            };
            json(key, want, output, key == "output_contains", found);
        }
        "error" => {
            let part = want.as_str().unwrap_or_default();
            match &seen.error {
                Some(error) if error.contains(part) => {}
                Some(error) => {
                    let line = format!("expected a text with {part:?}, got {error:?}");
                    found.push(Mismatch::new(want.span, key, vec![line]));
                }
                None => found.push(Mismatch::new(
                    want.span,
                    key,
                    vec![format!("expected a text with {part:?}, but its status is {}", seen.status)],
                )),
            }
        }
        "nodes" => {
            for member in want.as_object().unwrap_or_default() {
                node(&member.key, member.key_span, &member.value, seen, found);
            }
        }
        "calls" => {
            for member in want.as_object().unwrap_or_default() {
                let want = member.value.as_u64().unwrap_or_default();
                let had = calls(&member.key, seen);
                if had == 0 && !seen.names.contains(&member.key) && !seen.nodes.contains_key(&member.key) {
                    let what = format!("calls of {}", member.key);
                    let lines = vec![unknown_name(&member.key, seen)];
                    found.push(Mismatch::new(member.key_span, what, lines));
                } else if want != had {
                    let line = format!("expected {want}, got {had}");
                    found.push(Mismatch::new(
                        member.value.span,
                        format!("calls of {}", member.key),
                        vec![line],
                    ));
                }
            }
        }
        "inputs" => {
            for member in want.as_object().unwrap_or_default() {
                let what = format!("input of {}", member.key);
                match input(&member.key, seen) {
                    Some(had) => json(&what, &member.value, had, true, found),
                    None => found.push(Mismatch::new(
                        member.value.span,
                        what,
                        vec!["expected an input, but it was never called".to_owned()],
                    )),
                }
            }
        }
        "order" => order(want, seen, found),
        "elapsed" => {
            let ms = stub::duration(want).unwrap_or_default();
            if ms != seen.elapsed {
                let line = format!("expected {}, got {}", words::duration(ms), words::duration(seen.elapsed));
                let exact = format!("expected {ms}ms, got {}ms", seen.elapsed);
                let same = words::duration(ms) == words::duration(seen.elapsed);
                found.push(Mismatch::new(want.span, key, vec![if same { exact } else { line }]));
            }
        }
        "events" => events(want, seen, found),
        "result" => json(key, want, &seen.result, true, found),
        _ => {}
    }
}

/// Describes a name that no node and no agent of the workflows has.
pub(crate) fn unknown_name(name: &str, seen: &CaseObservation) -> String {
    // Names of nodes come first: agents are often named like their nodes.
    let names = seen.nodes.keys().chain(&seen.names).map(String::as_str);
    match sinew_source::did_you_mean(name, names) {
        Some(near) => format!("no node or agent has the name '{name}'; did you mean '{near}'?"),
        None => format!("no node or agent has the name '{name}'"),
    }
}

fn text(what: &str, want: &Node, had: &str, why: Option<&str>, found: &mut Vec<Mismatch>) {
    let want_text = canonical(want.as_str().unwrap_or_default());
    // Older versions recorded `paused` for an execution that waits for a person.
    if want_text != had && (want_text, had) != ("paused", "waiting") {
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let mut lines = vec![format!("expected {want_text}, got {had}{why}")];
        if had == "running" {
            lines.push("the execution cannot progress: an agent hangs without a timeout".to_owned());
        }
        found.push(Mismatch::new(want.span, what, lines));
    }
}

/// Compares JSON. The span of a mismatch is that of the first difference.
fn json(what: &str, want: &Node, had: &Value, part: bool, found: &mut Vec<Mismatch>) {
    let differences = differences(&want.to_json(), had, part);
    if let Some(first) = differences.first() {
        let span = want.at_pointer(&first.pointer).unwrap_or(want).span;
        found.push(Mismatch::new(span, what, lines(&differences)));
    }
}

fn no_output(seen: &CaseObservation) -> String {
    match &seen.error {
        Some(error) => format!("there is none: the execution has the status {}: {error}", seen.status),
        None => format!("there is none: the execution has the status {}", seen.status),
    }
}

fn node(id: &str, place: Span, want: &Node, seen: &CaseObservation, found: &mut Vec<Mismatch>) {
    let what = format!("node {id}");
    let Some(had) = seen.nodes.get(id) else {
        let mut lines = vec!["there is no such node, or no such child".to_owned()];
        let known = seen.nodes.keys().map(String::as_str);
        lines.extend(sinew_source::did_you_mean(id, known).map(|known| format!("did you mean '{known}'?")));
        return found.push(Mismatch::new(place, what, lines));
    };
    let status = want.as_str().map(|word| (word, want.span));
    let status = status.or_else(|| want.get("status").and_then(|node| Some((node.as_str()?, node.span))));
    if let Some((word, span)) = status
        && canonical(word) != had.status
    {
        let line = format!("expected {}, got {}", canonical(word), had.status);
        found.push(Mismatch::new(span, what.clone(), vec![line]));
    }
    if let Some(attempts) = want.get("attempts")
        && attempts.as_u64() != Some(u64::from(had.attempts))
    {
        let line = format!("expected {} attempts, got {}", attempts.as_u64().unwrap_or(0), had.attempts);
        found.push(Mismatch::new(attempts.span, what.clone(), vec![line]));
    }
    if let Some(output) = want.get("output") {
        json(&format!("output of {id}"), output, had.output.as_ref().unwrap_or(&Value::Null), false, found);
    }
}

/// Maps a status in a case to that of views; recorded cases have other names.
fn canonical(word: &str) -> &str {
    match word {
        "success" => "succeeded",
        "failure" | "error" => "failed",
        other => other,
    }
}

/// Returns the number of calls of an agent, or of the agent of a node or child.
fn calls(name: &str, seen: &CaseObservation) -> u64 {
    let count =
        |fits: &dyn Fn(&crate::stub::AskedAgent) -> bool| seen.asked.iter().filter(|one| fits(one)).count();
    let counts =
        [count(&|one| one.agent == name), count(&|one| one.node == name), count(&|one| one.label == name)];
    counts.into_iter().find(|count| *count > 0).unwrap_or(0) as u64
}

/// Returns the last input of a node's agent.
fn input<'s>(name: &str, seen: &'s CaseObservation) -> Option<&'s Value> {
    let work = || seen.asked.iter().rev().filter(|one| one.work);
    let one = work().find(|one| one.label == name).or_else(|| work().find(|one| one.node == name))?;
    Some(&one.input)
}

fn order(want: &Node, seen: &CaseObservation, found: &mut Vec<Mismatch>) {
    let mut began = seen.order.iter();
    for node in want.as_array().unwrap_or_default() {
        let id = node.as_str().unwrap_or_default();
        if !began.by_ref().any(|began| began == id) {
            let why = if seen.order.iter().any(|began| began == id) { "earlier" } else { "never" };
            let line = format!("'{id}' starts {why}; got {}", seen.order.join(", "));
            return found.push(Mismatch::new(node.span, "order", vec![line]));
        }
    }
}

/// Compares lines in order; `…` matches any number of lines.
fn events(want: &Node, seen: &CaseObservation, found: &mut Vec<Mismatch>) {
    let lines: Vec<(&str, Span)> = want
        .as_array()
        .unwrap_or_default()
        .iter()
        .map(|node| (node.as_str().unwrap_or_default(), node.span))
        .collect();
    let mut rest = seen.events.as_slice();
    let mut skip = false;
    for (n, (line, span)) in lines.iter().enumerate() {
        if matches!(*line, "…" | "...") {
            skip = true;
            continue;
        }
        // After `…`, the last line must match the last event, not the first equal one.
        let last = n + 1 == lines.len();
        let hit = match (skip, last) {
            (true, true) => rest.last().filter(|had| had == line).map(|_| rest.len() - 1),
            (true, false) => rest.iter().position(|had| had == line),
            (false, _) => rest.first().filter(|had| had == line).map(|_| 0),
        };
        let Some(at) = hit else {
            let had = rest.first().map_or_else(|| "no more events".to_owned(), |had| format!("{had:?}"));
            let mut text = vec![format!("expected {line:?}, got {had}")];
            text.push(format!("all: {}", short(&Value::from(seen.events.clone()))));
            return found.push(Mismatch::new(*span, "events", text));
        };
        rest = &rest[at + 1..];
        skip = false;
    }
    if let (false, Some(more)) = (skip, rest.first()) {
        let text = vec![format!("expected no more events, got {more:?}")];
        found.push(Mismatch::new(want.span, "events", text));
    }
}

/// Returns the actual value for a key of `expect`, restricted to what the key covers.
pub(crate) fn update(key: &str, want: &Node, seen: &CaseObservation) -> Value {
    let each = |value: &dyn Fn(&str, &Node) -> Value| {
        let members = want.as_object().unwrap_or_default().iter();
        members.map(|member| (member.key.clone(), value(&member.key, &member.value))).collect::<Value>()
    };
    match key {
        "status" => seen.status.into(),
        "output" => seen.output.clone().unwrap_or_default(),
        "output_contains" => restrict(&want.to_json(), seen.output.as_ref().unwrap_or(&Value::Null)),
        "error" => seen.error.clone().unwrap_or_default().into(),
        "nodes" => each(&|id, want| {
            let Some(had) = seen.nodes.get(id) else { return want.to_json() };
            if want.as_str().is_some() {
                return had.status.into();
            }
            let members = want.as_object().unwrap_or_default().iter();
            let now = |key: &str| match key {
                "status" => had.status.into(),
                "attempts" => had.attempts.into(),
                _ => had.output.clone().unwrap_or_default(),
            };
            members.map(|member| (member.key.clone(), now(&member.key))).collect()
        }),
        "calls" => each(&|name, _| calls(name, seen).into()),
        "inputs" => each(&|name, want| {
            input(name, seen).map_or_else(|| want.to_json(), |had| restrict(&want.to_json(), had))
        }),
        "order" => {
            let wanted: Vec<&str> =
                want.as_array().unwrap_or_default().iter().filter_map(Node::as_str).collect();
            seen.order.iter().filter(|began| wanted.contains(&began.as_str())).cloned().collect()
        }
        "elapsed" => millis(seen.elapsed).into(),
        "events" => seen.events.clone().into(),
        "result" => restrict(&want.to_json(), &seen.result),
        _ => want.to_json(),
    }
}

/// Formats milliseconds in the largest exact unit.
pub(crate) fn millis(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// Returns the members of `seen` that `shape` has.
fn restrict(shape: &Value, seen: &Value) -> Value {
    match (shape, seen) {
        (Value::Object(shape), Value::Object(seen)) => shape
            .iter()
            .filter_map(|(key, shape)| Some((key.clone(), restrict(shape, seen.get(key)?))))
            .collect(),
        (Value::Array(shape), Value::Array(seen)) => seen
            .iter()
            .enumerate()
            .map(|(n, seen)| shape.get(n).map_or_else(|| seen.clone(), |shape| restrict(shape, seen)))
            .collect(),
        _ => seen.clone(),
    }
}

/// Checks the expected defect of an invalid workflow. `base` is the start of an inline definition.
pub(crate) fn refused(want: &Node, found: &Diagnostics, base: Option<Span>) -> Vec<Mismatch> {
    let text = |key: &str| want.get(key).and_then(Node::as_str);
    let hit = found.items.iter().any(|item| {
        let code =
            text("code").is_none_or(|code| item.code == code || item.sub_code.as_deref() == Some(code));
        let message = text("message").is_none_or(|part| item.message.contains(part));
        let at = text("at")
            .is_none_or(|at| item.span.is_some_and(|span| places(span, base).any(|place| place == at)));
        code && message && at
    });
    if hit {
        return Vec::new();
    }
    let mut lines = vec![format!("no finding matches {}", short(&want.to_json()))];
    lines.extend(found.items.iter().map(|item| {
        let place = item.span.and_then(|span| places(span, base).next()).unwrap_or_else(|| "-".to_owned());
        let own = item.sub_code.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
        format!("found {}{own} at {place}: {}", item.code, item.message)
    }));
    if found.items.is_empty() {
        lines.push("the workflow is accepted".to_owned());
    }
    vec![Mismatch::new(want.span, "invalid", lines)]
}

/// Returns `LINE:COLUMN`, relative to the inline definition and to the file.
fn places(span: Span, base: Option<Span>) -> impl Iterator<Item = String> {
    let inner = base.filter(|base| span.line >= base.line).map(|base| {
        let inside = span.line == base.line || span.column >= base.column;
        let column = if inside { span.column.saturating_sub(base.column) + 1 } else { span.column };
        format!("{}:{column}", span.line - base.line + 1)
    });
    inner.into_iter().chain([format!("{}:{}", span.line, span.column)])
}
