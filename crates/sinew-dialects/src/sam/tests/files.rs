//! Custom files with every feature, read like a user's file.

use std::path::Path;

use serde_json::{Value, json};
use sinew_engine::TerminalStatus;
use sinew_source::{Diagnostics, Document, LoadOptions, Schema, Severity, load};

use super::super::{NAME, Sam};
use super::mesh::Mesh;
use super::{lower, recorded};
use crate::{Dialect, LowerOptions, Lowered};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sam");

fn document(name: &str) -> Document {
    let bytes = std::fs::read(Path::new(FOLDER).join(name)).unwrap();
    let read = |path: &Path| Err(format!("{} is not to be read", path.display()));
    let options = LoadOptions {
        name,
        variables: sinew_source::Variables::Kept,
        read: &read,
        limits: sinew_source::Limits::default(),
    };
    load(&bytes, &options).unwrap_or_else(|found| panic!("{found}"))
}

fn lowered(name: &str) -> Result<Vec<Lowered>, Diagnostics> {
    let read = |path: &str| Err(format!("{path} is not to be read"));
    let options = LowerOptions {
        default_name: "file",
        read: &read,
        list: &crate::no_list,
        agents: &std::collections::BTreeMap::new(),
    };
    Sam.lower(document(name), &options)
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "broken.yaml")
        .collect();
    names.sort();
    assert!(names.len() >= 12, "{names:?}");
    names
}

#[test]
fn files_are_told_apart_and_hold_without_warnings() {
    let schema = Schema::compile(&Sam.schema()).unwrap();
    for name in names() {
        let document = document(&name);
        assert_eq!(crate::detect(&document).map(Dialect::name), Some(NAME), "{name}");
        let wrong = sinew_source::check_node(&schema, &document.root);
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        for one in lowered(&name).unwrap_or_else(|found| panic!("{name}: {found}")) {
            assert!(one.warnings.is_empty(), "{name}: {}", one.warnings);
            sinew_plan::check(&one.plan).unwrap();
            assert_eq!(one.places.len(), one.plan.nodes.len());
            assert!(one.places.iter().all(Option::is_some), "{name}: every node has a place");
            let text = serde_json::to_string(&one.plan).unwrap();
            assert_eq!(serde_json::from_str::<sinew_plan::Plan>(&text).unwrap(), one.plan, "{name}");
        }
    }
}

#[test]
fn the_editors_schema_agrees_with_the_recorded_definitions() {
    let schema = Schema::compile(&Sam.schema()).unwrap();
    for case in recorded("definition") {
        let Some(wanted) = super::wanted(&case) else { continue };
        let accepted = schema.check(&json!({ "workflow": case["workflow"] })).is_ok();
        if wanted.get("valid").is_some() {
            assert!(
                accepted,
                "{}: {:?}",
                case["id"],
                schema.errors(&json!({ "workflow": case["workflow"] }))
            );
        } else if case["id"] == "val-unknown-field-accepted" || case["id"] == "val-switch-no-cases" {
            assert!(!accepted, "{}", case["id"]);
        }
    }
}

/// Runs the last workflow of a file.
fn run(name: &str, input: Value, stubs: Value) -> Mesh {
    let lowered = lowered(name).unwrap();
    let workflow = lowered.last().unwrap().plan.name.clone();
    let mut mesh = Mesh::new(lowered.into_iter().map(|one| one.plan).collect(), stubs, &[]);
    mesh.run(&workflow, input, 0, None);
    mesh
}

#[test]
fn files_run_to_their_output() {
    let echo = json!({ "echo": true });
    let cases = [
        (
            "sequence.yaml",
            json!({"value": 2}),
            json!({"Doubler": {"double": "value"}, "Writer": {"output": {"text": "four"}}}),
            json!({"text": "four"}),
        ),
        (
            "parallel.yaml",
            json!({"order": 7}),
            json!({"Stock": {"output": 1}, "Price": {"output": 2}, "Credit": {"output": 3}, "SumUp": echo}),
            json!({"answer": {"echo": {"parts": [1, 2, 3], "note": "order 7"}}}),
        ),
        (
            "switch.yaml",
            json!({}),
            json!({"Classifier": {"output": {"kind": "bug", "level": 2}}, "Urgent": {"output": {"answer": "fixed"}}, "Close": echo}),
            json!({"desk": "urgent", "summary": "closed: fixed"}),
        ),
        (
            "conditional.yaml",
            json!({"amount": 99.5, "mail": null}),
            json!({"Auto": {"output": {"by": "auto"}}}),
            json!({"small": true, "told": false, "by": "auto"}),
        ),
        (
            "map.yaml",
            json!({"lines": [{"sku": "a", "skip": false}, {"sku": "b", "skip": true}]}),
            json!({"Line": echo, "Rule": {"output": "ok"}}),
            json!({"lines": [{"echo": {"no": 0, "sku": "a"}}, null], "rules": ["ok", "ok", "ok", "ok"]}),
        ),
        (
            "nested_map.yaml",
            json!({"grid": [[1, 2], [], [3]]}),
            json!({"Cell": echo, "Ask": {}}),
            json!({
                "cells": [
                    {"results": [{"echo": {"cell": 1}}, {"echo": {"cell": 2}}]},
                    {"results": []},
                    {"results": [{"echo": {"cell": 3}}]},
                ],
                "polls": [
                    {"iterations_completed": 2, "stopped_reason": "condition_false"},
                    {"iterations_completed": 2, "stopped_reason": "condition_false"},
                    {"iterations_completed": 2, "stopped_reason": "condition_false"},
                ],
            }),
        ),
        (
            "loop.yaml",
            json!({"job": 1}),
            json!({"Check": {"outputs": [{"state": "running"}, {"state": "running"}, {"state": "done"}]}, "Report": echo}),
            json!({"state": "done", "rounds": 3, "why": "condition_false"}),
        ),
        (
            "fork_join.yaml",
            json!({"q": 1}),
            json!({"Legal": {"output": "l"}, "Tax": {"output": "t", "delay_ms": 5}, "Slow": {"delay_ms": 50}, "Third": {"delay_ms": 9}}),
            json!({"asked": {"law": "l", "tax": "t"}, "first": ["fast"], "two": ["fast", "third"], "every": ["first", "two"]}),
        ),
        ("exits.yaml", json!({}), json!({}), json!({"ok": true})),
        (
            "composition.yaml",
            json!({"words": ["a", "b"]}),
            json!({"Upper": {"outputs": [{"text": "A"}, {"text": "B"}]}}),
            json!({"texts": [{"text": "A"}, {"text": "B"}]}),
        ),
        ("bare.yaml", json!({}), json!({}), json!({"ok": true})),
        ("bare.json", json!(null), json!({}), json!({"ok": true, "literal": [1, {"a": null}]})),
    ];
    for (name, input, stubs, output) in cases {
        let mesh = run(name, input, stubs);
        let outcome = mesh.outcome().unwrap();
        assert_eq!(outcome.status, TerminalStatus::Success, "{name}: {outcome:?}");
        assert_eq!(**outcome.output.as_ref().unwrap(), output, "{name}");
        assert_eq!(mesh.finals, 1, "{name}");
    }
}

#[test]
fn details_of_the_files_reach_the_agents() {
    let mesh = run(
        "sequence.yaml",
        json!({"value": 2}),
        json!({"Doubler": {"double": "value"}, "Writer": {"output": {"text": "four"}}}),
    );
    assert_eq!(mesh.calls[1].ask.instruction.as_deref(), Some("Word 4 for a child"));

    let mesh = run(
        "loop.yaml",
        json!({"job": 1}),
        json!({"Check": {"outputs": [{"state": "running"}, {"state": "done"}]}}),
    );
    assert_eq!(
        mesh.inputs_of("Check"),
        [json!({"job": 1, "last": null, "n": 0}), json!({"job": 1, "last": "running", "n": 1})]
    );
    assert_eq!(mesh.ended_at, Some(10_000), "the delay lies between two iterations");

    let mesh = run("map.yaml", json!({"lines": [{"sku": 1}]}), json!({}));
    assert_eq!(mesh.outcome().unwrap().status, TerminalStatus::Success);
    assert_eq!(mesh.inputs_of("Line").len(), 1, "a member that an item lacks is null");

    let lines: Vec<Value> = (0..5).map(|n| json!({"sku": n, "skip": false})).collect();
    let mesh = run("map.yaml", json!({ "lines": lines }), json!({"Line": {"delay_ms": 10}}));
    assert_eq!(mesh.most_at_once("Line"), 2);

    let mesh = run("exits.yaml", json!({}), json!({"Work": {"error": "no"}}));
    assert_eq!(mesh.inputs_of("Clean"), [json!({"status": "failure"})]);
    assert_eq!(mesh.inputs_of("Alert"), [json!({"why": "Node 'work' failed: no", "where": "work"})]);
    assert!(mesh.inputs_of("Cheer").is_empty() && mesh.inputs_of("Undo").is_empty());

    let lowered = lowered("composition.yaml").unwrap();
    let parent = &lowered[1].plan;
    assert_eq!((parent.name.as_str(), parent.limits.wall_ms), ("Parent", Some(60_000)));
    assert_eq!(parent.node(1).attempt_timeout_ms, Some(12_500));
    assert_eq!(lowered[1].agents.keys().collect::<Vec<_>>(), ["Upper"]);
    let mesh = run("composition.yaml", json!({"words": [1, 2, 3, 4]}), json!({}));
    let message = &mesh.outcome().unwrap().fault.as_ref().unwrap().message;
    assert_eq!(message, "Node 'words' failed: Map 'words' exceeds max items: 4 > 3");
}

#[test]
fn everything_wrong_is_found_at_once_with_its_place() {
    let found = lowered("broken.yaml").unwrap_err();
    let seen: Vec<String> = found
        .items
        .iter()
        .map(|item| {
            let sign = if item.severity == Severity::Error { "E" } else { "W" };
            let place = item.span.unwrap();
            let hint = item.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{}:{} {sign} {} {}{hint}", place.line, place.column, item.code, item.message)
        })
        .collect();
    let wanted = std::fs::read_to_string(Path::new(FOLDER).join("../sam_broken.txt")).unwrap();
    assert_eq!(seen, wanted.lines().collect::<Vec<_>>(), "\n{}", seen.join("\n"));
    assert!(
        found.items.iter().all(|item| item.span.is_some_and(|span| found.sources.get(span.file).is_some()))
    );
    for item in &found.items {
        assert!(sinew_protocol::code::page(item.code).is_some(), "{} has no page", item.code);
    }
}

#[test]
fn a_setting_without_effect_is_told() {
    let found = |settings: &str| -> Vec<String> {
        let text = format!(
            "apps:\n  - name: P\n    app_config:\n      {settings}\n      workflow:\n        description: d\n        nodes: [{{id: a, type: agent, agent_name: A}}]\n        output_mapping: {{r: \"{{{{a.output}}}}\"}}\n"
        );
        let document = sinew_source::load(
            text.as_bytes(),
            &sinew_source::LoadOptions {
                name: "app.yaml",
                variables: sinew_source::Variables::Kept,
                read: &|_| Err("no".into()),
                limits: sinew_source::Limits::default(),
            },
        )
        .unwrap();
        let options = LowerOptions {
            default_name: "file",
            read: &|_| Err("no".into()),
            list: &crate::no_list,
            agents: &std::collections::BTreeMap::new(),
        };
        let lowered = Sam.lower(document, &options).unwrap();
        let told = lowered[0].warnings.items.iter();
        told.map(|item| format!("{}:{} {}", item.span.unwrap().line, item.code, item.message)).collect()
    };
    assert_eq!(
        found("node_cancellation_timeout_seconds: 30"),
        ["4:SINEW-2127 'node_cancellation_timeout_seconds' has no effect"]
    );
    assert!(found("default_node_timeout_seconds: 30").is_empty());
}

#[test]
fn templates_and_paths_that_cannot_be_meant_are_told() {
    let schema = json!({"type": "object", "properties": {"amount": {"type": "integer"}, "who": {"type": "object", "properties": {"name": {}}}}});
    let workflow = |input: &str, node: Value| {
        let mut node = node;
        node["input"] = json!({ "text": input });
        json!({"workflow": {
            "description": "d", "version": "1", "input_schema": schema,
            "nodes": [
                {"id": "a", "type": "agent", "agent_name": "A", "output_schema_override": {"type": "object", "properties": {"price": {}}}},
                node,
            ],
            "output_mapping": {"r": "{{b.output}}"},
        }})
    };
    let node = || json!({"id": "b", "type": "agent", "agent_name": "B", "depends_on": ["a"]});
    // A string in the node's input, the code, and a part of the finding and its hint; none if
    // nothing is reported.
    let cases = [
        ("{{workflow.input.amount}} of {{a.output.price}}", None),
        ("{{workflow.input.amout}}", Some(("SINEW-2291", "no 'amout'", "'amount'"))),
        ("{{workflow.input.who.nme}}", Some(("SINEW-2291", "no 'nme'", "'name'"))),
        ("{{a.output.prise}}", Some(("SINEW-2291", "the output of the node has no 'prise'", "'price'"))),
        (
            "a {{workflow.input.amount",
            Some(("SINEW-2290", "does not close it: {{workflow.input.amount", "}}")),
        ),
        ("{{workflow.input.amount}} {{a.output.price}", Some(("SINEW-2290", "{{a.output.price}", "}}"))),
    ];
    for (text, want) in cases {
        let found = match lower(&workflow(text, node())) {
            Ok(lowered) => lowered[0].warnings.clone(),
            Err(found) => found,
        };
        let told: Vec<_> = found.items.iter().map(|item| (item.code, &item.message, &item.hint)).collect();
        match want {
            None => assert!(told.is_empty(), "{text}: {told:?}"),
            Some((code, message, hint)) => assert!(
                told.iter().any(|(found, text, near)| *found == code
                    && text.contains(message)
                    && near.as_ref().is_some_and(|near| near.contains(hint))),
                "{text}: {told:?}"
            ),
        }
    }
    // Other properties are allowed, so a path to one of them is valid.
    let mut open = workflow("{{workflow.input.more}}", node());
    open["workflow"]["input_schema"]["additionalProperties"] = json!(true);
    assert!(lower(&open).unwrap()[0].warnings.is_empty());
    // `node:` for `nodes:`, and `nodes:` without a list, are reported as such.
    for key in ["node", "nodes"] {
        let list = if key == "node" { json!([node()]) } else { Value::Null };
        let wrong = json!({"workflow": {"description": "d", "output_mapping": {}, key: list}});
        let document = Document {
            root: sinew_source::Node::from_json(&wrong),
            sources: sinew_source::Sources::default(),
        };
        assert_eq!(crate::detect(&document).map(Dialect::name), Some(NAME), "{key}");
        let found = lower(&wrong).unwrap_err();
        let (code, hint) =
            if key == "node" { ("SINEW-2101", Some("did you mean 'nodes'?")) } else { ("SINEW-2102", None) };
        let told: Vec<_> = found.items.iter().map(|item| (item.code, item.hint.as_deref())).collect();
        assert_eq!(told, [(code, hint)], "{key}: {found}");
    }
}

#[test]
fn a_converted_workflow_is_the_same_plan() {
    let mut count = 0;
    for name in names() {
        for one in lowered(&name).unwrap() {
            let converted = crate::to_sam(&one.plan, &Sam).unwrap();
            assert!(converted.losses.is_empty(), "{name}");
            let again = lower(&converted.document).unwrap_or_else(|found| panic!("{name}: {found}"));
            assert_eq!(json!(again[0].plan), json!(one.plan), "{name}");
            count += 1;
        }
    }
    // The same for every valid recorded definition.
    for case in recorded("definition") {
        let Ok(first) = lower(&case["workflow"]) else { continue };
        let converted = crate::to_sam(&first[0].plan, &Sam).unwrap();
        let again = lower(&converted.document).unwrap_or_else(|found| panic!("{}: {found}", case["id"]));
        assert_eq!(json!(again[0].plan), json!(first[0].plan), "{}", case["id"]);
        count += 1;
    }
    assert!(count > 20, "{count}");
}

/// Skills of a definition are skills of the card, with all fields that a card requires.
#[test]
fn skills_reach_the_card() {
    let of = |skills: Value| {
        let workflow = json!({ "description": "d", "output_mapping": {}, "skills": skills,
            "nodes": [{"id": "a", "type": "agent", "agent_name": "A"}] });
        super::lower(&json!({ "workflow": workflow })).map(|lowered| Sam.card_skills(&lowered[0].plan))
    };
    let whole =
        json!({ "id": "ship", "name": "Ship", "description": "Ships", "tags": ["goods"], "examples": ["x"] });
    assert_eq!(of(json!([whole])).unwrap(), [whole]);
    let filled = json!({ "id": "ship", "name": "ship", "description": "ship", "tags": ["workflow"] });
    assert_eq!(of(json!([{ "id": "ship" }])).unwrap(), [filled]);
    assert_eq!(of(json!([])).unwrap(), [] as [Value; 0]);
    for wrong in [json!(["ship"]), json!([{ "name": "n" }]), json!([{ "id": "a", "tags": [1] }])] {
        assert!(of(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn reserved_words_are_no_ids() {
    for id in ["workflow", "_map_item", "_map_index", "_loop_iteration"] {
        let workflow = json!({ "description": "d", "output_mapping": {},
            "nodes": [{"id": id, "type": "agent", "agent_name": "A"}] });
        let found = super::lower(&json!({ "workflow": workflow })).unwrap_err();
        assert!(found.items.iter().any(|item| item.code == "SINEW-2126"), "{found}");
    }
}

#[test]
fn files_of_the_second_release_are_recognised() {
    for kind in ["workflow", "manifest"] {
        let file =
            json!({ "kind": kind, "name": "w", "nodes": [{"id": "a", "type": "tool", "tool_name": "t"}] });
        let found = super::lower(&file).unwrap_err();
        assert_eq!(found.items.len(), 1, "{found}");
        assert!(found.items[0].message.contains("Solace Agent Mesh 2"), "{found}");
    }
    let argo = json!({ "apiVersion": "argoproj.io/v1alpha1", "kind": "workflow", "nodes": [] });
    assert!(!super::lower(&argo).unwrap_err().to_string().contains("Solace Agent Mesh 2"));
}

/// Files of Solace Agent Mesh 1 load as they are: nothing that Sinew does not read needs a variable.
#[test]
fn files_of_solace_agent_mesh_load_without_its_variables() {
    let folder = Path::new(FOLDER).join("../solace");
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert!(names.len() >= 6, "{names:?}");
    let nothing = |path: &Path| Err(format!("{} is not to be read", path.display()));
    let rules = sinew_source::VariableRules::default();
    let variables = crate::FileVariables { rules: &rules, environment: &|_| None };
    for name in names {
        let bytes = std::fs::read(folder.join(&name)).unwrap();
        let name = name.into_string().unwrap();
        let options = LoadOptions {
            name: &name,
            variables: sinew_source::Variables::Kept,
            read: &nothing,
            limits: sinew_source::Limits::default(),
        };
        let document = crate::load_workflow_file(&bytes, &options, None, variables)
            .unwrap_or_else(|found| panic!("{name}: {found}"));
        assert_eq!(crate::detect(&document).map(Dialect::name), Some(NAME), "{name}");
        let schema = Schema::compile(&Sam.schema()).unwrap();
        let wrong = sinew_source::check_node(&schema, &document.root);
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
        let read = |path: &str| Err(format!("{path} is not to be read"));
        let agents = std::collections::BTreeMap::new();
        let options =
            LowerOptions { default_name: "file", read: &read, list: &crate::no_list, agents: &agents };
        let lowered = Sam.lower(document, &options).unwrap_or_else(|found| panic!("{name}: {found}"));
        assert!(!lowered.is_empty(), "{name}");
        for one in lowered {
            assert!(one.warnings.is_empty(), "{name}: {}", one.warnings);
            sinew_plan::check(&one.plan).unwrap();
        }
    }
}
