//! Drawings of plans: the shapes of the specification, from its own cases.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sinew_diagram::Direction;
use sinew_dialects::{Dialect, LowerOptions, sam::Sam};
use sinew_plan::Plan;
use sinew_source::{Limits, LoadOptions};

use super::draw;

fn mermaid(workflow: &Value) -> String {
    sinew_diagram::mermaid(&draw(&plan(workflow), Direction::TopDown, None))
}

fn plan(workflow: &Value) -> Plan {
    let bytes = serde_json::to_vec(workflow).unwrap();
    let document = sinew_source::load(
        &bytes,
        &LoadOptions {
            name: "case.json",
            variables: sinew_source::Variables::Kept,
            read: &|_| Err("none".into()),
            limits: Limits::default(),
        },
    )
    .unwrap();
    let options = LowerOptions {
        default_name: "case",
        read: &|_| Err("none".into()),
        list: &sinew_dialects::no_list,
        agents: &BTreeMap::new(),
    };
    let lowered = Sam.lower(document, &options).unwrap_or_else(|found| panic!("{found}"));
    lowered.into_iter().next().expect("one workflow").plan
}

#[test]
fn a_plan_of_thousands_of_nodes_is_drawn_with_little_stack() {
    let node = |n: usize| {
        let before: Vec<String> = n.checked_sub(1).map(|n| format!("n{n}")).into_iter().collect();
        json!({ "id": format!("n{n}"), "type": "agent", "agent_name": "Worker", "depends_on": before,
                "input": { "n": n } })
    };
    let nodes: Vec<Value> = (0..5_000).map(node).collect();
    let workflow = json!({ "workflow": { "description": "long", "version": "1.0", "nodes": nodes,
        "output_mapping": { "end": "{{n4999.output}}" } } });
    let draw = move || {
        let drawing = draw(&plan(&workflow), Direction::TopDown, None);
        let terminal = sinew_diagram::terminal(&drawing, false).expect("text has no limit");
        (terminal.lines().count(), sinew_diagram::mermaid(&drawing).len(), sinew_diagram::dot(&drawing).len())
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(draw).expect("a thread starts");
    let (lines, mermaid, dot) = thread.join().expect("no overflow of the stack");
    assert_eq!(lines, 5_002);
    assert!(mermaid > 100_000 && dot > 100_000);
}

#[test]
fn cards_show_the_diagram_of_the_specification() {
    let text = include_str!("../../../../tests/cases/sam.json");
    let file: Value = serde_json::from_str(text).unwrap();
    let mut checked = 0;
    for case in file["cases"].as_array().unwrap() {
        let Some(wanted) = case["expect"]["mermaid_contains"].as_array() else { continue };
        let drawn = mermaid(&case["workflow"]);
        for line in wanted.iter().map(|line| line.as_str().unwrap()) {
            assert!(drawn.lines().any(|other| other == line), "{}: no line {line:?} in\n{drawn}", case["id"]);
        }
        checked += 1;
    }
    assert!(checked > 0, "no case asks for a diagram");
}
