//! Warnings about words that look mistyped, over files that are right: recorded cases and examples have none, but for
//! the cases that are about such words.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sinew_dialects::{Dialect, LowerOptions, by_name, detect, no_list};
use sinew_source::{Document, Limits, LoadOptions, Node, Sources, Variables, load};

/// Codes of these warnings, with the name of the dialect's own code where others share the code.
const WORD_WARNINGS: [(&str, &[&str]); 4] = [
    ("SINEW-2205", &[]),
    ("SINEW-2272", &["UNKNOWN_REFERENCE"]),
    ("SINEW-2305", &["UNKNOWN_FUNCTION", "EXPRESSION"]),
    ("SINEW-2407", &[]),
];

/// Warnings of recorded cases whose very subject is a word that is not known.
const RECORDED_WARNINGS: [&str; 5] = [
    "agentflow-10: the operator 'regex' of node 'i' is unknown and treated as 'equal'",
    "own-agentflow-06: the prompt of node 'a' keeps '{{previous_output}}' unchanged",
    "own-agentteam-105: 'condition_expression' of node 'i' reads '$node[\"k\"].result.v', but the spec of that node has no 'v'",
    "own-covalt-79: expression in node 'e' calls 'y', which does not exist",
    "own-covalt-79: expression in node 'e' calls 'nope', which does not exist",
];

/// Messages of the warnings about words in a file; none if it is refused.
fn word_warnings(dialect: &dyn Dialect, document: Document, folder: &Path) -> Vec<String> {
    let read = |name: &str| fs::read(folder.join(name)).map_err(|error| error.to_string());
    let options = LowerOptions { default_name: "w", read: &read, list: &no_list, agents: &BTreeMap::new() };
    let lowered = dialect.lower(document, &options).unwrap_or_default();
    let found = lowered.iter().flat_map(|one| &one.warnings.items);
    let is_about_words = |item: &&sinew_source::Diagnostic| {
        let sub_code = item.sub_code.as_deref().unwrap_or_default();
        WORD_WARNINGS
            .iter()
            .any(|(code, own)| *code == item.code && (own.is_empty() || own.contains(&sub_code)))
    };
    found.filter(is_about_words).map(|item| item.message.clone()).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn recorded_cases_have_no_other_warnings_about_words() {
    let (mut seen, mut lowered) = (Vec::new(), 0);
    for name in ["dialects.json", "own-agentflow.json", "own-agentteam.json", "own-covalt.json"] {
        let all: Value =
            serde_json::from_slice(&fs::read(root().join("tests/cases").join(name)).unwrap()).unwrap();
        for case in
            all["cases"].as_array().unwrap().iter().filter(|case| case["workflow"]["nodes"].is_array())
        {
            let dialect = by_name(case["dialect"].as_str().unwrap()).unwrap();
            let document = Document { root: Node::from_json(&case["workflow"]), sources: Sources::default() };
            let found = word_warnings(dialect, document, &root());
            let id = case["id"].as_str().unwrap();
            lowered += 1;
            seen.extend(found.into_iter().map(|found| format!("{id}: {found}")));
        }
    }
    assert!(lowered > 300, "only {lowered} files");
    assert_eq!(seen, RECORDED_WARNINGS);
}

#[test]
fn examples_have_no_warnings_about_words() {
    let mut seen = Vec::new();
    for file in [
        "doc-triage/triage.json",
        "lint-report/lint.json",
        "metrics-digest/digest.json",
        "support-desk/cluster.json",
        "support-desk/flow.json",
        "support-desk/team.json",
    ] {
        let path = root().join("examples").join(file);
        let read = |_: &Path| Err("no other files".to_owned());
        let options =
            LoadOptions { name: file, variables: Variables::Kept, read: &read, limits: Limits::default() };
        let document = load(&fs::read(&path).unwrap(), &options).unwrap();
        let found = word_warnings(detect(&document).unwrap(), document, path.parent().unwrap());
        seen.extend(found.into_iter().map(|found| format!("{file}: {found}")));
    }
    assert!(seen.is_empty(), "\n{}", seen.join("\n"));
}
