//! The events of the mesh protocol, of every kind and every type of node, written down with all their fields.
//! `UPDATE=1 cargo test -p sinew-executor --test integration events` writes the files anew.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_dialects::LowerOptions;
use sinew_engine::{ExecutionMode, TaskReply, Time};
use sinew_execution::Call;
use sinew_execution::events::{project, value_artifacts};
use sinew_execution::{Execution, Library, Program};
use sinew_protocol::{Fault, Vocabulary};
use sinew_runtime::sim::{Sim, Stub, Stubbed};
use sinew_source::{Document, Node, Sources};

/// Longer than any run here takes.
const FOREVER: Time = 24 * 3_600_000;
/// Type of the event that a node begins.
const NODE_START: &str = "workflow_node_execution_start";

/// Fields of each kind of event, as the specification has them, and the additions of later releases.
const FIELDS: [(&str, &[&str]); 5] = [
    ("workflow_execution_start", &["workflow_name", "execution_id", "input_artifact_ref", "workflow_input"]),
    (
        "workflow_node_execution_start",
        &[
            "node_id",
            "node_type",
            "agent_name",
            "input_artifact_ref",
            "iteration_index",
            "sub_task_id",
            "parent_node_id",
            "condition",
            "true_branch",
            "false_branch",
            "cases",
            "default_branch",
            "wait_for",
            "join_strategy",
            "join_n",
            "max_iterations",
            "loop_delay",
            "parallel_group_id",
        ],
    ),
    (
        "workflow_node_execution_result",
        &["node_id", "status", "output_artifact_ref", "error_message", "condition_result", "selected_branch"],
    ),
    ("workflow_map_progress", &["node_id", "total_items", "completed_items", "status"]),
    (
        "workflow_execution_result",
        &[
            "workflow_name",
            "execution_id",
            "status",
            "output_artifact_ref",
            "error_message",
            "workflow_output",
        ],
    ),
];

/// Agents that give back what they are given, but one.
struct Echo;

impl Stub for Echo {
    fn call(&mut self, _now: Time, call: &Call) -> Stubbed {
        Stubbed::now(match call.ask.target.name() {
            "Broken" => Err(Fault::failure("SINEW-5100", "no luck")),
            _ => Ok(TaskReply::new(json!({ "echo": Value::clone(&call.ask.input) }))),
        })
    }
}

/// Every type of node once; the last one fails if the input says so.
fn workflow() -> Value {
    json!({ "name": "tour", "workflow": {
        "description": "Every type of node",
        "failFast": false,
        "nodes": [
            {"id": "decide", "type": "conditional", "condition": "{{workflow.input.n}} > 1", "true_branch": "high", "false_branch": "low"},
            {"id": "high", "type": "agent", "agent_name": "High", "depends_on": ["decide"], "input": {"n": "{{workflow.input.n}}"}},
            {"id": "low", "type": "agent", "agent_name": "Low", "depends_on": ["decide"]},
            {"id": "route", "type": "switch", "depends_on": ["high"], "default": "other",
             "cases": [{"when": "{{workflow.input.n}} == 2", "then": "two"}]},
            {"id": "two", "type": "agent", "agent_name": "Two", "depends_on": ["route"], "input": {}},
            {"id": "other", "type": "agent", "agent_name": "Other", "depends_on": ["route"], "input": {}},
            {"id": "all", "type": "map", "items": [1, 2], "node": "each", "depends_on": ["two"]},
            {"id": "each", "type": "agent", "agent_name": "Each", "input": {"i": "{{_map_item}}"}},
            {"id": "both", "type": "fork", "depends_on": ["two"], "branches": [
                {"id": "left", "agent_name": "Left", "output_key": "l", "input": {}},
                {"id": "right", "agent_name": "Right", "output_key": "r", "input": {}}]},
            {"id": "meet", "type": "join", "wait_for": ["all", "both"], "strategy": "n_of_m", "n": 2},
            {"id": "again", "type": "loop", "node": "turn", "condition": "{{_loop_iteration}} < 1",
             "max_iterations": 5, "delay": "2s", "depends_on": ["meet"]},
            {"id": "turn", "type": "agent", "agent_name": "Turn", "input": {"n": "{{_loop_iteration}}"}},
            {"id": "last", "type": "agent", "agent_name": "Broken", "depends_on": ["again"], "input": {},
             "when": "{{workflow.input.fail}}"},
        ],
        "output_mapping": {"n": "{{workflow.input.n}}"},
    }})
}

fn run(input: Value) -> Execution {
    run_workflow(&workflow(), input)
}

fn run_workflow(workflow: &Value, input: Value) -> Execution {
    let document = Document { root: Node::from_json(workflow), sources: Sources::default() };
    let dialect = sinew_dialects::by_name("sam").unwrap();
    let options = LowerOptions {
        default_name: "tour",
        read: &|path| Err(format!("{path} cannot be read here")),
        list: &sinew_dialects::no_list,
        agents: &BTreeMap::new(),
    };
    let plan = dialect.lower(document, &options).unwrap_or_else(|found| panic!("{found}")).remove(0).plan;
    let program = Program::new(plan, dialect.adapter()).unwrap();
    let mut library = Library::default();
    library.insert(program.clone());
    let mut sim = Sim::new(Arc::new(library), Echo);
    sim.run(program, input, ExecutionMode::default(), FOREVER);
    sim.execution().clone()
}

fn events(execution: &Execution) -> Vec<Value> {
    let mut events = Vec::new();
    execution.replay(|ctx, fact| {
        let told = project(ctx, execution.id(), fact);
        events.extend(told.iter().map(|event| event.to_json(Vocabulary::Spec)));
    });
    events
}

/// Both runs: one that succeeds, one whose last node fails.
fn runs() -> [Execution; 2] {
    [run(json!({ "n": 2, "fail": false })), run(json!({ "n": 2, "fail": true }))]
}

#[test]
fn events_are_those_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/events");
    let mut golden: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in runs().iter().flat_map(events) {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let (kind, node_type, status) = (text("type"), text("node_type"), text("status"));
        let all = golden.entry(kind).or_default();
        // One of each type of node, of each end, and of each set of fields.
        let shape = |event: &Value| event.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let same = |other: &&Value| other["node_type"] == json!(node_type.clone()) || node_type.is_empty();
        let known = all.iter().filter(same).any(|other| {
            other["status"].as_str().unwrap_or_default() == status && shape(other) == shape(&event)
        });
        if !known {
            all.push(event);
        }
    }
    for (kind, events) in &golden {
        let file = folder.join(format!("{kind}.json"));
        let text = serde_json::to_string_pretty(events).unwrap() + "\n";
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), text, "{}", file.display());
    }
    let kinds: Vec<&str> = golden.keys().map(String::as_str).collect();
    let mut wanted: Vec<&str> = FIELDS.iter().map(|(kind, _)| *kind).collect();
    wanted.sort_unstable();
    assert_eq!(kinds, wanted);
    for (kind, fields) in FIELDS {
        for field in fields {
            let is_told = golden[kind].iter().any(|event| !event[*field].is_null());
            assert!(is_told, "no {kind} has '{field}'");
        }
    }
}

#[test]
fn branches_are_told_with_their_fields() {
    let [done, _] = runs();
    let events = events(&done);
    let of = |kind: &str, node: &str| {
        let found = events.iter().find(|event| event["type"] == kind && event["node_id"] == node);
        found.unwrap_or_else(|| panic!("no {kind} of {node}")).clone()
    };
    let (start, end) = (NODE_START, "workflow_node_execution_result");
    let decided = of(end, "decide");
    assert_eq!((&decided["condition_result"], &decided["selected_branch"]), (&json!(true), &json!("high")));
    assert_eq!(of(end, "route")["selected_branch"], "two");
    assert_eq!(
        of(start, "route")["cases"],
        json!([{"condition": "{{workflow.input.n}} == 2", "node": "two"}])
    );
    assert_eq!(of(start, "meet")["join_n"], 2);
    let turn = of(start, "again_iter_1");
    assert_eq!((&turn["parent_node_id"], &turn["iteration_index"]), (&json!("again"), &json!(1)));
    for (node, input, output) in [
        ("all", "map_all_items.json", "map_all_results.json"),
        ("both", "fork_both_input.json", "fork_both_merged.json"),
        ("meet", "join_meet_input.json", "join_meet_results.json"),
        ("again", "loop_again_input.json", "loop_again_result.json"),
    ] {
        assert_eq!(of(start, node)["input_artifact_ref"]["name"], input);
        assert_eq!(of(end, node)["output_artifact_ref"]["name"], output);
    }
}

/// Each artifact that an event names exists, with the value that the node or the execution has.
#[test]
fn artifacts_that_events_name_are_there() {
    for execution in runs() {
        let values = value_artifacts(&execution.ctx(), execution.id());
        let find = |reference: &Value| {
            let same = |one: &&sinew_execution::events::ValueArtifact| json!(one.artifact) == *reference;
            values.iter().find(same).unwrap_or_else(|| panic!("no artifact {reference}")).value.clone()
        };
        let mut named = 0;
        for event in events(&execution) {
            for key in ["input_artifact_ref", "output_artifact_ref"] {
                let Some(reference) = event.get(key) else { continue };
                let value = find(reference);
                named += 1;
                match (event["type"].as_str().unwrap(), key) {
                    ("workflow_execution_start", _) => assert_eq!(value, event["workflow_input"]),
                    ("workflow_execution_result", _) if event["status"] == "success" => {
                        assert_eq!(value, event["workflow_output"]);
                    }
                    _ => {}
                }
            }
        }
        assert!(named > 15, "{named}");
        let (empty, each) = (json!({ "echo": {} }), |i: u8| json!({ "echo": { "i": i } }));
        let forked = json!({ "l": empty, "r": empty });
        let joined = json!({ "all": { "results": [each(1), each(2)] }, "both": forked });
        let results = json!({
            "completed_nodes": ["all", "both"], "results": joined, "strategy": "n_of_m",
        });
        for (name, value) in [
            ("map_all_items.json", json!([1, 2])),
            ("map_all_results.json", joined["all"].clone()),
            ("fork_both_input.json", empty.clone()),
            ("fork_both_merged.json", forked.clone()),
            ("join_meet_input.json", joined.clone()),
            ("join_meet_results.json", results.clone()),
            ("loop_again_input.json", results),
        ] {
            assert_eq!(find(&json!({ "name": name, "version": 0 })), value, "{name}");
        }
    }
}

/// The input of a map, fork, join or loop at the start of a workflow, within a map, after several nodes, or that could not
/// be worked out.
#[test]
fn inputs_of_nodes_that_ask_no_agent_are_what_they_were_handed() {
    let inner = json!([
        {"id": "rows", "type": "map", "items": "{{workflow.input.rows}}", "node": "row"},
        {"id": "row", "type": "loop", "node": "turn", "condition": "False"},
        {"id": "turn", "type": "agent", "agent_name": "Turn", "input": {}},
        {"id": "none", "type": "map", "items": [], "node": "other", "depends_on": ["rows"]},
        {"id": "other", "type": "agent", "agent_name": "Other", "input": {}},
        {"id": "left", "type": "agent", "agent_name": "Left", "input": {}},
        {"id": "split", "type": "fork", "depends_on": ["none", "left"], "branches": [
            {"id": "only", "agent_name": "Only", "output_key": "o", "input": {}}]},
    ]);
    let workflow = json!({ "name": "tour", "workflow": {
        "description": "Inputs", "failFast": false, "nodes": inner, "output_mapping": {},
    }});
    let values = |input: Value| {
        let execution = run_workflow(&workflow, input);
        let found: BTreeMap<String, Value> = value_artifacts(&execution.ctx(), execution.id())
            .into_iter()
            .map(|one| (one.artifact.to_string(), one.value))
            .collect();
        let inputs = events(&execution).into_iter().filter(|event| event["type"] == NODE_START);
        for event in inputs.filter(|event| event["node_type"] != "agent") {
            let name = event["input_artifact_ref"]["name"].as_str().unwrap_or_else(|| panic!("{event}"));
            assert!(found.contains_key(&format!("{name}:v0")), "{name} is not among {found:?}");
        }
        found
    };
    let found = values(json!({ "rows": [{"a": 1}, 2] }));
    let left = json!({ "echo": {} });
    for (name, value) in [
        ("map_rows_items.json:v0", json!([{"a": 1}, 2])),
        ("loop_rows_0_input.json:v0", json!({"a": 1})),
        ("loop_rows_1_input.json:v0", json!(2)),
        ("map_none_items.json:v0", json!([])),
        ("fork_split_input.json:v0", json!({ "none": {"results": []}, "left": left })),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name} of {:?}", found.keys());
    }
    assert_eq!(values(json!({ "rows": "text" }))["map_rows_items.json:v0"], Value::Null);
    let alone = json!({ "name": "tour", "workflow": {
        "description": "A loop alone", "output_mapping": {}, "nodes": [
            {"id": "again", "type": "loop", "node": "turn", "condition": "False"},
            {"id": "turn", "type": "agent", "agent_name": "Turn", "input": {}}],
    }});
    let execution = run_workflow(&alone, json!({ "n": 1 }));
    let values = value_artifacts(&execution.ctx(), execution.id());
    let given = values.iter().find(|one| one.artifact.name.as_str() == "loop_again_input.json").unwrap();
    assert_eq!(given.value, json!({ "n": 1 }));
}
