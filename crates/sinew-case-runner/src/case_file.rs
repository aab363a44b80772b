//! Parses test files, with the span of each case and expectation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sinew_engine::{PersonAnswer, RetryRequest, Time};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file;
use sinew_protocol::code;
use sinew_runtime::sim::Signal;
use sinew_source::{Diagnostic, Diagnostics, Document, Node, Schema, Sources, Span};

use crate::stub::{Stubs, duration};

/// A test file.
#[derive(Debug)]
pub(crate) struct TestFile {
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Text of the file, for spans and updates.
    pub(crate) sources: Sources,
    /// Cases of the file.
    pub(crate) cases: Vec<Case>,
}

/// A case.
#[derive(Debug)]
pub(crate) struct Case {
    /// Name of the case.
    pub(crate) name: String,
    /// Span of the name.
    pub(crate) span: Span,
    /// Workflow under test.
    pub(crate) subject: TestedWorkflow,
    /// Span of its path or definition.
    pub(crate) subject_span: Span,
    /// Dialect, if it cannot be detected.
    pub(crate) dialect: Option<String>,
    /// Input of the execution.
    pub(crate) input: Value,
    /// Answers of agents.
    pub(crate) stubs: Stubs,
    /// Commands, with the time of each.
    pub(crate) signals: Vec<(Time, Signal, Span)>,
    /// Numbers of facts after which the process crashes.
    pub(crate) crashes: Vec<(usize, Span)>,
    /// Expected result.
    pub(crate) expect: Option<Node>,
    /// Expected defect of an invalid workflow.
    pub(crate) invalid: Option<Node>,
    /// The whole case in the file.
    pub(crate) node: Node,
}

/// The workflow of a case.
#[derive(Clone, Debug)]
pub(crate) enum TestedWorkflow {
    /// A file, and the name of one of its workflows.
    File(PathBuf, Option<String>),
    /// Inline in the test file.
    Inline(Node),
}

/// Returns the JSON Schema of test files.
pub fn schema() -> Value {
    serde_json::from_str(include_str!("schema.json")).unwrap_or_default()
}

/// Reads a test file. Fails with diagnostics of all its defects.
pub(crate) fn read(path: &Path) -> Result<TestFile, Failure> {
    let document =
        workflow_file::document(path, &workflow_file::read(path)?).map_err(Failure::diagnostics)?;
    from_document(path, document)
}

/// Parses the cases of a document. Fails with diagnostics of all its defects.
pub(crate) fn from_document(path: &Path, document: Document) -> Result<TestFile, Failure> {
    let schema = Schema::compile(&schema())
        .map_err(|error| Failure::new(FailureKind::Failed, error.code(), error.to_string()))?;
    let mut found = Diagnostics::new(document.sources.clone());
    found.extend(sinew_source::check_node(&schema, &document.root));
    if found.has_errors() {
        found.sort();
        return Err(Failure::diagnostics(found));
    }
    let Document { root, sources } = document;
    let cases = root.get("cases").and_then(Node::as_array).unwrap_or_default();
    unique_names(cases, &mut found);
    let cases = cases.iter().filter_map(|node| case(path, &root, node, &mut found)).collect();
    if found.has_errors() {
        found.sort();
        return Err(Failure::diagnostics(found));
    }
    Ok(TestFile { path: path.to_owned(), sources, cases })
}

/// Reports cases with the name of another case: reports and filters could not distinguish them.
fn unique_names(cases: &[Node], found: &mut Diagnostics) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for name in cases.iter().filter_map(|case| case.get("name")) {
        let Some(text) = name.as_str() else { continue };
        if let Some(first) = seen.insert(text, name.span) {
            let message = format!("two cases have the name '{text}'");
            let twice = Diagnostic::error(code::TEST_FILE_CONTRADICTS_ITSELF.as_str(), message);
            found.push(twice.at(name.span).related(first, "the first one"));
        }
    }
}

fn case(path: &Path, file: &Node, node: &Node, found: &mut Diagnostics) -> Option<Case> {
    let mut say = |span: Span, text: &str| {
        found.push(Diagnostic::error(code::TEST_FILE_CONTRADICTS_ITSELF.as_str(), text).at(span));
    };
    let name = node.get("name")?;
    let Some(subject) = subject(path, node).or_else(|| subject(path, file)) else {
        say(name.span, "the case has no workflow: name a file with `workflow`, or give a `definition`");
        return None;
    };
    let text = |key: &str| node.get(key).or_else(|| file.get(key)).and_then(Node::as_str);
    let expect = node.get("expect").cloned();
    let invalid = node.get("invalid").cloned();
    if let Some(elapsed) = expect.as_ref().and_then(|expect| expect.get("elapsed"))
        && let Err(why) = duration(elapsed)
    {
        say(elapsed.span, &why);
    }
    if let (Some(expect), Some(_)) = (&expect, &invalid) {
        say(expect.span, "a rejected workflow never runs, so `expect` and `invalid` exclude each other");
    }
    let list = |key: &str| node.get(key).and_then(Node::as_array).unwrap_or_default();
    let mut signals = Vec::new();
    for one in list("signals") {
        match signal(one) {
            Ok((at, signal)) => signals.push((at, signal, one.span)),
            Err(why) => say(one.span, &why),
        }
    }
    let crashes = list("faults").iter().filter_map(|fault| {
        let n = usize::try_from(fault.get("n")?.as_u64()?).ok()?;
        Some((n, fault.span))
    });
    let crashes = crashes.collect();
    let mut stubs = Stubs::default();
    for (span, why) in stubs.read(node) {
        say(span, &why);
    }
    Some(Case {
        name: name.as_str()?.to_owned(),
        span: name.span,
        subject,
        subject_span: subject_span(node).or_else(|| subject_span(file)).unwrap_or(name.span),
        dialect: text("dialect").map(str::to_owned),
        input: node.get("input").map_or_else(|| Value::Object(Map::new()), Node::to_json),
        stubs,
        signals,
        crashes,
        expect,
        invalid,
        node: node.clone(),
    })
}

fn subject_span(node: &Node) -> Option<Span> {
    Some(node.get("definition").or_else(|| node.get("workflow"))?.span)
}

fn subject(path: &Path, node: &Node) -> Option<TestedWorkflow> {
    if let Some(definition) = node.get("definition") {
        return Some(TestedWorkflow::Inline(definition.clone()));
    }
    let wanted = node.get("workflow")?.as_str()?;
    let (file, name) = match wanted.split_once('#') {
        Some((file, name)) => (file, Some(name.to_owned())),
        None => (wanted, None),
    };
    Some(TestedWorkflow::File(path.parent().unwrap_or(Path::new("")).join(file), name))
}

fn signal(node: &Node) -> Result<(Time, Signal), String> {
    let at = duration(node.get("at").ok_or("a signal requires its time in `at`")?)?;
    let kinds = ["approve", "reject", "answer", "cancel", "pause", "resume", "retry"];
    let given: Vec<&str> = kinds.into_iter().filter(|kind| node.get(kind).is_some()).collect();
    let [kind] = given[..] else {
        return Err(format!("a signal requires exactly one of {}", kinds.join(", ")));
    };
    let value = node.get(kind);
    let text = |node: Option<&Node>| node.and_then(Node::as_str).map(str::to_owned);
    let comment = text(node.get("note"));
    let answer = |data: Value| {
        let approved = (kind != "answer").then_some(kind == "approve");
        let answer = PersonAnswer {
            data,
            timed_out: false,
            by: text(node.get("by")),
            comment: comment.clone(),
            approved,
        };
        Signal::Answer(text(value), answer)
    };
    let decision = |word: &str| match &comment {
        Some(comment) => answer(json!({ "decision": word, "note": comment })),
        None => answer(json!({ "decision": word })),
    };
    let reason = || text(value).or_else(|| comment.clone()).unwrap_or_else(|| "the test says so".to_owned());
    let signal = match kind {
        "approve" | "reject" if node.get("data").is_none() => decision(kind),
        "approve" | "reject" | "answer" => answer(node.get("data").map_or(Value::Null, Node::to_json)),
        "cancel" => Signal::Cancel(reason()),
        "pause" => Signal::Pause(reason()),
        "resume" => Signal::Resume,
        _ => Signal::Retry(retry(value, node)),
    };
    Ok((at, signal))
}

/// Parses `retry: [a]` or `retry: true`, with the optional members `only` and `with_input`.
fn retry(nodes: Option<&Node>, signal: &Node) -> RetryRequest {
    let nodes = nodes.and_then(Node::as_array).unwrap_or_default();
    RetryRequest {
        nodes: nodes.iter().filter_map(|node| node.as_str().map(str::to_owned)).collect(),
        only: signal.get("only").and_then(Node::as_bool).unwrap_or_default(),
        input: signal.get("with_input").map(Node::to_json),
    }
}
