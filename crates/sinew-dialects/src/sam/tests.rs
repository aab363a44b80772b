//! The recorded behaviour of the source engine, and rules that it does not cover.

mod cases;
mod extensions;
mod files;
mod mesh;
mod runs;

use serde_json::{Value, json};
use sinew_source::{Diagnostics, Document, Node, Sources};

use super::Sam;
use crate::{Dialect, LowerOptions, Lowered};

/// Returns all recorded cases of one kind.
fn recorded(kind: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/sam.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases: Vec<Value> =
        all["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == kind).cloned().collect();
    assert!(!cases.is_empty(), "no cases of kind {kind}");
    cases
}

/// Returns the expectations of a case: those of the source, except where the case differs
/// intentionally. `None` without any.
fn wanted(case: &Value) -> Option<Value> {
    let mut wanted = case["expect"].clone();
    match (case["stance"].as_str().unwrap(), case.get("want")) {
        ("keep", _) => {}
        ("fix", want) => {
            let want = want.unwrap().as_object().unwrap();
            let one_of = ["value", "value_not", "error_contains", "valid"];
            if want.keys().any(|key| one_of.contains(&key.as_str())) {
                wanted.as_object_mut().unwrap().retain(|key, _| !one_of.contains(&key.as_str()));
            }
            // A different end state has a different output and error.
            if want.get("state").is_some_and(|state| *state != wanted["state"]) {
                wanted
                    .as_object_mut()
                    .unwrap()
                    .retain(|key, _| !["output", "error_contains"].contains(&key.as_str()));
            }
            for (key, value) in want {
                wanted[key] = value.clone();
            }
        }
        // `want` replaces the recorded value; without one, the case describes the old release.
        (_, Some(want)) => wanted = want.clone(),
        ("vintage", None) if case["vintages"].as_array().unwrap().contains(&"current".into()) => {}
        ("vintage", None) if case["kind"] == "condition" => {}
        _ => return None,
    }
    Some(wanted)
}

/// Lowers a workflow in JSON.
fn lower(root: &Value) -> Result<Vec<Lowered>, Diagnostics> {
    let document = Document { root: Node::from_json(root), sources: Sources::default() };
    let read = |path: &str| Err(format!("{path} cannot be read here"));
    let options = LowerOptions {
        default_name: "WF",
        read: &read,
        list: &crate::no_list,
        agents: &std::collections::BTreeMap::new(),
    };
    Sam.lower(document, &options)
}

/// Compares as Python: 1 and 1.0 are equal.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, item)| b.get(key).is_some_and(|other| equal(item, other)))
        }
        _ => a == b,
    }
}

/// Reports all failures of a table at once.
fn all_hold(failures: &[String]) {
    assert!(failures.is_empty(), "{} failed\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn only_loops_on_a_circle_run_themselves() {
    let circle = |id: &str, body: &str| json!({ "id": id, "type": "loop", "node": body, "condition": "{{workflow.input.go}}", "max_iterations": 2 });
    let nodes = json!([circle("a", "b"), circle("b", "c"), circle("c", "b"), circle("d", "d"),
        circle("e", "f"), { "id": "f", "type": "agent", "agent_name": "A", "input": {} }]);
    let workflow = json!({ "workflow": { "description": "d", "nodes": nodes, "output_mapping": {} } });
    let found = crate::testing::lower(crate::by_name("sam").unwrap(), &workflow).unwrap_err();
    let circular: Vec<&str> = found
        .items
        .iter()
        .filter_map(|item| item.message.split_once("' runs itself")?.0.split('\'').next_back())
        .collect();
    assert_eq!(circular, ["b", "c", "d"]);
}
