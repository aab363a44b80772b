//! Drawings of plans: the shapes of the specification, from its own cases.

use std::collections::BTreeMap;

use serde_json::Value;
use sinew_diagram::Direction;
use sinew_dialects::{Dialect, LowerOptions, sam::Sam};
use sinew_source::{Limits, LoadOptions};

use super::draw;

fn mermaid(workflow: &Value) -> String {
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
    sinew_diagram::mermaid(&draw(&lowered[0].plan, Direction::TopDown, None))
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
