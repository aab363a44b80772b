//! Hostile bytes that are kept under `fuzz/corpus/`, through the functions the fuzzer calls. None may panic or hang.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use sinew_source::{Document, Node, Sources};

#[path = "../../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "also a crate of its own")]
mod targets;

/// Seconds one input may take in a debug build; a hang takes for ever.
const LONGEST: u64 = 20;

/// Expected findings for these files. Other files must only do no harm.
const REFUSED: &[(&str, &str)] = &[
    ("alias_bomb.yaml", "SINEW-1007"),
    ("alias_of_itself.yaml", "SINEW-1011"),
    ("anchor_loop_by_merge.yaml", "SINEW-1011"),
    ("braces_deep.json", "SINEW-1008"),
    ("cut_off.json", "SINEW-1002"),
    ("empty.yaml", "SINEW-1003"),
    ("include_loop.yaml", "SINEW-1014"),
    ("integer_huge.yaml", "SINEW-1009"),
    ("integer_of_10000_digits.json", "SINEW-1009"),
    ("float_overflow.json", "SINEW-1009"),
    ("key_twice.yaml", "SINEW-1005"),
    ("lists_deep.yaml", "SINEW-1008"),
    ("lone_surrogate.json", "SINEW-1002"),
    ("nan.yaml", "SINEW-1009"),
    ("not_utf8.yaml", "SINEW-1001"),
    ("template_without_quotes.yaml", "SINEW-1010"),
    ("two_documents.yaml", "SINEW-1004"),
    ("unknown_tag.yaml", "SINEW-1012"),
    ("variable_not_set.yaml", "SINEW-1016"),
];

/// Feeds a target everything that is kept for it.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 3, "{} holds next to nothing", folder.display());
    let mut wrong = Vec::new();
    for path in paths {
        let bytes = fs::read(&path).unwrap();
        let began = Instant::now();
        if std::panic::catch_unwind(|| check(&bytes)).is_err() {
            wrong.push(format!("{} broke it", path.display()));
        }
        let took = began.elapsed().as_secs();
        if took > LONGEST {
            wrong.push(format!("{} took {took} s", path.display()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn workflow_files_are_refused_or_run() {
    replay("workflow_file", targets::workflow_file);
}

#[test]
fn conditions_are_refused_or_run() {
    replay("condition", targets::condition);
}

#[test]
fn conversions_give_a_value_or_say_why_not() {
    replay("conversion", targets::conversion);
}

#[test]
fn templates_are_refused_or_run() {
    replay("template", targets::template);
}

#[test]
fn values_arrive_and_decide_nothing() {
    replay("value", targets::value);
}

#[test]
fn journals_are_refused_or_read_back() {
    replay("journal", targets::journal);
}

#[test]
fn artifact_names_are_harmless() {
    replay("artifact_name", targets::artifact_name);
}

#[test]
fn broken_files_are_refused_with_their_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/workflow_file");
    let mut wrong = Vec::new();
    for (name, code) in REFUSED {
        let bytes = fs::read(folder.join(name)).unwrap();
        match targets::load(&bytes) {
            Ok(_) => wrong.push(format!("{name} was taken")),
            Err(found) if found.items.iter().any(|item| item.code == *code) => {}
            Err(found) => wrong.push(format!("{name}: {code} was expected: {found}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn swapped_values_of_recorded_cases_are_refused_or_run() {
    swapped_values(&["sam.json", "dialects.json"], 1);
}

/// There are many, and they take a while: every third value will do.
#[test]
fn swapped_values_of_our_own_cases_are_refused_or_run() {
    swapped_values(&["own-agentflow.json", "own-agentteam.json", "own-covalt.json", "own-sweny.json"], 3);
}

/// Workflows of cases, each with every `step`th of its values swapped once for one that nobody expects there.
fn swapped_values(files: &[&str], step: usize) {
    let hostile = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("{{a.output.b}} }}{{ \u{202e}'\"\\"),
        json!([]),
        json!([[], {}, null]),
        json!({}),
        json!({ "": { "nodes": [] } }),
        json!(true),
    ];
    let mut wrong = Vec::new();
    let mut swapped = 0;
    for workflow in workflows(files) {
        let mut paths = Vec::new();
        pointers(&workflow, String::new(), &mut paths);
        for path in paths.into_iter().step_by(step) {
            let mut document = workflow.clone();
            *document.pointer_mut(&path).unwrap() = hostile[swapped % hostile.len()].clone();
            swapped += 1;
            let root = Node::from_json(&document);
            let document = Document { root, sources: Sources::default() };
            if std::panic::catch_unwind(|| targets::lower_everywhere(&document)).is_err() {
                wrong.push(format!(
                    "{path} of {workflow} swapped for {}",
                    hostile[(swapped - 1) % hostile.len()]
                ));
            }
        }
    }
    assert!(swapped > 1_000, "only {swapped} values were swapped");
    assert!(wrong.is_empty(), "{} of {swapped}\n{}", wrong.len(), wrong.join("\n"));
}

/// Every distinct workflow of these files.
fn workflows(files: &[&str]) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let mut found: Vec<Value> = Vec::new();
    for name in files {
        let all: Value = serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap();
        for case in all["cases"].as_array().unwrap() {
            let workflow = &case["workflow"];
            if case["kind"] == "run" && workflow.is_object() && !found.contains(workflow) {
                found.push(workflow.clone());
            }
        }
    }
    found
}

/// JSON pointers of everything in a value but itself.
fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Array(items) => items.iter().enumerate().map(|(n, item)| (n.to_string(), item)).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, item)| (key.replace('~', "~0").replace('/', "~1"), item)).collect()
        }
        _ => Vec::new(),
    };
    for (key, item) in inner {
        pointers(item, format!("{at}/{key}"), found);
    }
    if !at.is_empty() {
        found.push(at);
    }
}
