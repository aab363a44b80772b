//! Recorded and custom executions.

use serde_json::{Value, json};
use sinew_engine::TerminalStatus;

use super::mesh::Mesh;
use super::{all_hold, lower, recorded, wanted};

#[test]
fn runs_end_as_recorded() {
    let mut failures = Vec::new();
    for case in recorded("run") {
        let Some(wanted) = wanted(&case) else { continue };
        failures.extend(run(&case, &wanted).into_iter().map(|what| format!("{}: {what}", case["id"])));
    }
    all_hold(&failures);
}

/// An input or output check that takes too long ends the execution with its own code.
#[test]
fn checks_that_take_too_long_are_faults() {
    let schema =
        json!({"properties": {"list": {"items": {"allOf": vec![json!({"type": "integer"}); 2_000]}}}});
    let list: Value = (0..5_000).collect();
    for key in ["input_schema", "output_schema"] {
        let definition = json!({"name": "WF", "workflow": {
            "description": "A", key: schema,
            "nodes": [{"id": "a", "type": "agent", "agent_name": "A", "input": {"list": "{{workflow.input.list}}"}}],
            "output_mapping": {"list": "{{workflow.input.list}}"},
        }});
        let plans = lower(&definition).unwrap().into_iter().map(|one| one.plan).collect();
        let mut mesh = Mesh::new(plans, json!({"A": [{"output": {}}]}), &[]);
        mesh.run("WF", json!({ "list": list }), 0, None);
        let fault = mesh.outcome().and_then(|outcome| outcome.fault.as_ref());
        assert_eq!(fault.map(|fault| fault.code.as_ref()), Some("SINEW-4009"), "{key}: {:?}", mesh.outcome());
    }
}

/// Keys about envelopes, which the mesh is responsible for.
const ENVELOPE: [&str; 14] = [
    "call_props",
    "data_types",
    "data_status",
    "text_contains",
    "last_text_contains",
    "metadata_keys",
    "req",
    "acks",
    "nacks",
    "event_counts",
    "event_types",
    "finals_at_least",
    "load_error_contains",
    "output_contains",
];

fn run(case: &Value, wanted: &Value) -> Vec<String> {
    let mut definition = json!({ "name": "WF", "workflow": case["workflow"] });
    for (key, value) in case["config"].as_object().into_iter().flatten() {
        definition[key] = value.clone();
    }
    let mut plans = Vec::new();
    match lower(&definition) {
        Ok(lowered) => plans.extend(lowered.into_iter().map(|one| one.plan)),
        Err(found) => {
            let part = wanted["load_error_contains"].as_str();
            let hit = part.is_some_and(|part| found.items.iter().any(|item| item.message.contains(part)));
            return if hit { Vec::new() } else { vec![format!("it does not load: {found}")] };
        }
    }
    if wanted.get("load_error_contains").is_some() {
        return vec!["it loads".to_owned()];
    }
    for (name, sub) in case["subs"].as_object().into_iter().flatten() {
        plans.push(lower(&json!({ "name": name, "workflow": sub })).unwrap().remove(0).plan);
    }
    let ghosts: Vec<&str> =
        case["unregistered"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut mesh = Mesh::new(plans, case["agents"].clone(), &ghosts);
    let input = match case["parts"].as_array().and_then(|parts| parts[0]["text"].as_str()) {
        Some(text) => json!({ "text": text }),
        None => case["input"].clone(),
    };
    let depth = case["props"]["callDepth"].as_u64().unwrap_or_default() as u32;
    mesh.run("WF", input, depth, case["cancel_after_ms"].as_u64());
    let mut failures = Vec::new();
    for (key, expected) in
        wanted.as_object().unwrap().iter().filter(|(key, _)| !ENVELOPE.contains(&key.as_str()))
    {
        let got = observed(&mesh, key, expected, case);
        let same = match (key.as_str(), expected) {
            ("error_contains", _) => got.as_str().unwrap().contains(expected.as_str().unwrap()),
            ("elapsed_ms", _) => got.as_f64() >= expected[0].as_f64() && got.as_f64() <= expected[1].as_f64(),
            _ => super::equal(&got, expected),
        };
        if !same {
            failures.push(format!("{key}: wanted {expected}, got {got} ({:?})", mesh.outcome()));
        }
    }
    failures
}

fn observed(mesh: &Mesh, key: &str, expected: &Value, case: &Value) -> Value {
    let outcome = mesh.outcome();
    let of_each = |value: &dyn Fn(&str) -> Value| {
        expected.as_object().unwrap().keys().map(|key| (key.clone(), value(key))).collect::<Value>()
    };
    match key {
        "state" => match outcome.map(|outcome| outcome.status) {
            Some(TerminalStatus::Success) => "completed",
            Some(TerminalStatus::Failure) => "failed",
            Some(TerminalStatus::Cancelled) => "canceled",
            None => "none",
        }
        .into(),
        "output" => outcome
            .and_then(|outcome| outcome.output.as_ref())
            .map_or(Value::Null, |output| (**output).clone()),
        "error_contains" => outcome
            .and_then(|outcome| outcome.fault.as_ref())
            .map_or(String::new(), |fault| fault.message.clone())
            .into(),
        "nodes" => {
            let nodes = mesh.nodes();
            of_each(&|id| nodes.get(id).map_or(Value::Null, |status| (*status).into()))
        }
        // The mesh is responsible for passing a single string to an agent without an input object.
        "calls" | "first_text" if !case["cards"].is_null() => expected.clone(),
        "calls" => mesh.calls.iter().map(|call| json!([call.agent, *call.ask.input])).collect(),
        "call_counts" => of_each(&|agent| mesh.inputs_of(agent).len().into()),
        "calls_of" => of_each(&|agent| mesh.inputs_of(agent).into()),
        "max_inflight" => of_each(&|agent| mesh.most_at_once(agent).into()),
        "finals" => mesh.finals.into(),
        "cancels" => mesh.cancels.clone().into(),
        "elapsed_ms" => mesh.ended_at.into(),
        "first_text" => mesh.calls[0].ask.instruction.clone().into(),
        other => format!("nothing observes {other}").into(),
    }
}

/// Runs a custom definition.
fn own(nodes: &Value, more: &Value, input: Value, stubs: Value) -> Mesh {
    let mut workflow = json!({ "description": "d", "nodes": nodes, "output_mapping": { "r": 1 } });
    for (key, value) in more.as_object().unwrap() {
        workflow[key] = value.clone();
    }
    let lowered = lower(&json!({ "workflow": workflow })).unwrap_or_else(|found| panic!("{found}"));
    let mut mesh = Mesh::new(lowered.into_iter().map(|one| one.plan).collect(), stubs, &[]);
    mesh.run("WF", input, 0, None);
    mesh
}

#[test]
fn no_answer_of_an_agent_flips_a_branch() {
    let hostile =
        ["x' == 'x' or 'a", "it's fine", "\" or \"1", "') or ('1", "{{workflow.input}}", "a\nb", "\\"];
    for condition in ["'{{a.output.s}}' == 'go'", "{{a.output.s}} == 'go'", "'go' in '{{a.output.s}}'"] {
        for (said, branch) in hostile.iter().map(|said| (*said, "no")).chain([("go", "yes")]) {
            let nodes = json!([
                {"id": "a", "type": "agent", "agent_name": "A"},
                {"id": "s", "type": "switch", "depends_on": ["a"], "cases": [{"when": condition, "then": "yes"}], "default": "no"},
                {"id": "yes", "type": "agent", "agent_name": "Y", "depends_on": ["s"]},
                {"id": "no", "type": "agent", "agent_name": "N", "depends_on": ["s"]},
            ]);
            let more = json!({ "output_mapping": { "r": "{{s.output.selected_branch}}" } });
            let mesh = own(&nodes, &more, json!({}), json!({ "A": { "output": { "s": said } } }));
            let outcome = mesh.outcome().unwrap();
            assert_eq!(
                **outcome.output.as_ref().unwrap(),
                json!({ "r": branch }),
                "{condition} with {said:?}"
            );
        }
    }
}

#[test]
fn every_execution_ends() {
    let agent = |id: &str, deps: &[&str]| json!({ "id": id, "type": "agent", "agent_name": "A", "depends_on": deps, "input": {} });
    let cases = [
        (
            "an empty map",
            json!([{"id": "m", "type": "map", "items": [], "node": "t"}, agent("t", &[]), agent("z", &["m"])]),
            "completed",
        ),
        (
            "a null map",
            json!([{"id": "m", "type": "map", "items": "{{workflow.input.l}}", "node": "t"}, agent("t", &[])]),
            "completed",
        ),
        (
            "a loop at its cap",
            json!([{"id": "l", "type": "loop", "node": "t", "condition": "true", "max_iterations": 3}, agent("t", &[]), agent("z", &["l"])]),
            "completed",
        ),
        (
            "a join of skipped branches",
            json!([
                {"id": "s", "type": "switch", "cases": [], "default": null},
                {"id": "c", "type": "conditional", "condition": "false", "true_branch": "x"},
                agent("x", &["c"]),
                {"id": "j", "type": "join", "wait_for": ["x"], "strategy": "any"},
                agent("z", &["j"]),
            ]),
            "completed",
        ),
        (
            "a join that fewer reach than it waits for",
            json!([
                {"id": "c", "type": "conditional", "condition": "false", "true_branch": "x"},
                agent("x", &["c"]), agent("y", &[]),
                {"id": "j", "type": "join", "wait_for": ["x", "y"], "strategy": "n_of_m", "n": 2},
                agent("z", &["j"]),
            ]),
            "completed",
        ),
        (
            "a skipped switch",
            json!([
                {"id": "s", "type": "switch", "when": "false", "cases": [{"when": "true", "then": "x"}]},
                agent("x", &["s"]), agent("y", &["s"]),
            ]),
            "completed",
        ),
        (
            "a skipped last node",
            json!([agent("a", &[]), {"id": "b", "type": "agent", "agent_name": "A", "depends_on": ["a"], "when": "1 == 2"}]),
            "completed",
        ),
        (
            "a conditional that cannot decide",
            json!([{"id": "c", "type": "conditional", "condition": "{{gone.output.x}} > 1", "true_branch": "x"}, agent("x", &["c"])]),
            "failed",
        ),
        (
            "a workflow that calls itself",
            json!([{"id": "w", "type": "workflow", "workflow_name": "WF"}]),
            "failed",
        ),
    ];
    for (what, nodes, state) in cases {
        let mesh = own(&nodes, &json!({}), json!({}), json!({}));
        assert_eq!(observed(&mesh, "state", &json!(null), &json!({})), state, "{what}: {:?}", mesh.outcome());
        assert_eq!(mesh.finals, 1, "{what}");
    }
}

#[test]
fn failures_say_which_child_failed() {
    let nodes = json!([
        {"id": "m", "type": "map", "items": [[1], [2, 3]], "node": "n"},
        {"id": "n", "type": "map", "items": "{{item}}", "node": "t"},
        {"id": "t", "type": "agent", "agent_name": "A", "input": {"i": "{{item}}"}},
        {"id": "x", "type": "agent", "agent_name": "X", "input": {"e": "{{workflow.error}}"}},
    ]);
    let stubs = json!({ "A": { "fail_on": 3, "delay_ms": 5 } });
    let mesh = own(&nodes, &json!({ "onExit": { "onFailure": "x" } }), json!({}), stubs);
    let error = json!({ "message": "Node 'm_1_1' failed: failed on purpose", "node_id": "m_1_1" });
    assert_eq!(mesh.inputs_of("X"), [json!({ "e": error })]);
}

/// A path without a value is null in operators, in items of maps and in exit handlers, whatever its
/// root.
#[test]
fn missing_paths_are_null_where_they_are_dealt_with() {
    let nodes = json!([
        {"id": "a", "type": "agent", "agent_name": "A", "input": {
            "item": "{{_map_item.x}}", "count": "{{_loop_iteration}}", "status": "{{workflow.status}}"}},
        {"id": "m", "type": "map", "items": "{{a.output.no.such}}", "node": "t", "depends_on": ["a"]},
        {"id": "t", "type": "agent", "agent_name": "T"},
        {"id": "b", "type": "agent", "agent_name": "B", "depends_on": ["m"], "input": {
            "first": {"coalesce": ["{{a.output.nope}}", "{{a.nope}}", "{{a.output.ok}}"]},
            "none": {"coalesce": ["{{a.output.ok.deeper}}"]},
            "text": {"concat": ["<", "{{a.output.nope}}", {"coalesce": ["{{m.output.nope}}", "-"]}, ">"]},
        }},
        {"id": "x", "type": "agent", "agent_name": "X", "input": {
            "m": "{{workflow.error.message}}", "s": "{{workflow.status}}", "a": "{{a.output.nope.deep}}",
            "t": "<{{workflow.error.node_id}}>"}},
    ]);
    let more = json!({ "onExit": "x", "output_mapping": { "r": "{{m.output.results}}" } });
    let mesh = own(&nodes, &more, json!({}), json!({}));
    assert_eq!(**mesh.outcome().unwrap().output.as_ref().unwrap(), json!({ "r": [] }));
    assert_eq!(mesh.inputs_of("A"), [json!({ "item": null, "count": null, "status": null })]);
    assert_eq!(mesh.inputs_of("B"), [json!({ "first": true, "none": null, "text": "<->" })]);
    assert_eq!(mesh.inputs_of("X"), [json!({ "m": null, "s": "success", "a": null, "t": "<>" })]);
}

/// The specification, section "Resolution": null if the path does not exist.
#[test]
fn missing_fields_are_null_in_inputs_and_mappings() {
    let nodes = json!([
        {"id": "a", "type": "agent", "agent_name": "A"},
        {"id": "b", "type": "agent", "agent_name": "B", "depends_on": ["a"], "input": {"v": "{{a.output.nope}}"}},
    ]);
    let mesh = own(&nodes, &json!({"output_mapping": {"r": "{{a.output.x.y}}"}}), json!({}), json!({}));
    assert_eq!(mesh.inputs_of("B"), [json!({ "v": null })]);
    assert_eq!(mesh.outcome().unwrap().output.as_deref(), Some(&json!({ "r": null })));
}

/// Variables of maps and loops are available with and without `.output`, wherever templates are
/// allowed.
#[test]
fn variables_of_maps_and_loops_stand_everywhere() {
    let all = json!({
        "i": "{{_map_item.output.v}}", "w": "{{_map_item.output}}", "n": "{{_map_index}}", "o": "{{_map_index.output}}",
        "t": "{{item.v}}/{{_map_index.output}}", "own": "{{_map_item.inner.output}}",
        "c": {"coalesce": ["{{_map_item.output.none}}", "{{_map_item.output.v}}"]},
    });
    let nodes = json!([
        {"id": "m", "type": "map", "items": [{"v": 7, "l": [1], "inner": {"output": 3}}], "node": "f"},
        {"id": "f", "type": "fork", "branches": [
            {"id": "one", "agent_name": "A", "output_key": "one", "input": all}]},
        {"id": "outer", "type": "map", "items": [{"l": [5, 6]}], "node": "inner"},
        {"id": "inner", "type": "map", "items": "{{_map_item.output.l}}", "node": "leaf"},
        {"id": "leaf", "type": "agent", "agent_name": "L", "input": {"i": "{{_map_item.output}}"},
         "instruction": "number {{_map_index.output}} is {{_map_item.output}}",
         "when": "{{_map_item.output}} > 5 and {{_map_index.output}} == 1"},
        {"id": "again", "type": "loop", "node": "turn", "condition": "{{_loop_iteration.output}} < 1"},
        {"id": "turn", "type": "agent", "agent_name": "T", "input": {
            "n": "{{_loop_iteration}}", "o": "{{_loop_iteration.output}}", "before": "{{turn.output.ok}}"}},
    ]);
    let mesh = own(&nodes, &json!({}), json!({}), json!({}));
    assert_eq!(observed(&mesh, "state", &json!(null), &json!({})), "completed", "{:?}", mesh.outcome());
    let item = json!({ "v": 7, "l": [1], "inner": { "output": 3 } });
    assert_eq!(
        mesh.inputs_of("A"),
        [json!({ "i": 7, "w": item, "n": 0, "o": 0, "t": "7/0", "own": 3, "c": 7 })]
    );
    assert_eq!(mesh.inputs_of("L"), [json!({ "i": 6 })]);
    let told = mesh.calls.iter().find(|call| call.agent == "L").unwrap();
    assert_eq!(told.ask.instruction.as_deref(), Some("number 1 is 6"));
    let turns = mesh.inputs_of("T");
    assert_eq!(turns[0], json!({ "n": 0, "o": 0, "before": null }));
    assert_eq!(turns[1], json!({ "n": 1, "o": 1, "before": true }));
}

/// The table of docs/dialects/sam.md: retried faults by policy.
#[test]
fn retry_policies_say_which_fault_is_tried_again() {
    use sinew_protocol::{Fault, FaultKind};
    let page = include_str!("../../../../../docs/dialects/sam.md");
    for kind in
        [FaultKind::Failure, FaultKind::Timeout, FaultKind::Error, FaultKind::Invalid, FaultKind::Cancelled]
    {
        let retried = |wanted: bool| if wanted && Fault::new(kind, "X", "").retryable { "yes" } else { "no" };
        let row =
            format!("| {} | {} | {} |", retried(kind.is_failure()), retried(kind.is_error()), retried(true));
        let line = page.lines().find(|line| line.starts_with(&format!("| `{}` |", kind.as_str())));
        assert!(line.is_some_and(|line| line.ends_with(&row)), "{kind}: {row} is not {line:?}");
    }
    let nodes = |strategy: Value| json!([{"id": "a", "type": "agent", "agent_name": "A", "timeout": "1s", "retryStrategy": strategy}]);
    let tries = |strategy: Value| {
        let mesh = own(&nodes(strategy), &json!({}), json!({}), json!({ "A": { "silent": true } }));
        mesh.inputs_of("A").len()
    };
    assert_eq!(tries(json!({ "limit": 2 })), 3, "a timeout is tried again by the default policy");
    assert_eq!(tries(json!({ "limit": 2, "retryPolicy": "OnError" })), 3);
    assert_eq!(tries(json!({ "limit": 0 })), 1);
}

#[test]
fn the_state_of_an_execution_is_the_native_result() {
    let nodes = json!([
        {"id": "c", "type": "conditional", "condition": "true", "true_branch": "y", "false_branch": "n"},
        {"id": "y", "type": "agent", "agent_name": "Y", "depends_on": ["c"], "input": {}},
        {"id": "n", "type": "agent", "agent_name": "N", "depends_on": ["c"], "input": {}},
        {"id": "m", "type": "map", "items": [1], "node": "t", "depends_on": ["y"]},
        {"id": "t", "type": "agent", "agent_name": "T"},
    ]);
    let mesh = own(&nodes, &json!({}), json!({ "a": 1 }), json!({ "T": { "error": "no" } }));
    let state = mesh.native();
    assert_eq!(state["status"], "failed");
    assert_eq!(state["workflow_input"], json!({ "a": 1 }));
    assert_eq!(state["skipped_nodes"], json!(["n"]));
    assert_eq!(state["completed_nodes"]["y"], json!({ "status": "success" }));
    assert_eq!(state["completed_nodes"]["m_0"], json!({ "status": "error", "error_message": "no" }));
    assert_eq!(state["node_outputs"]["y"], json!({ "ok": true }));
    assert_eq!(state["pending_nodes"], json!([]));
}

#[test]
fn a_node_can_be_called_item_and_counts_can_be_texts() {
    let retry = json!({"limit": "1", "retryPolicy": "Always", "backoff": {"duration": "1", "factor": "2"}});
    let nodes = json!([
        {"id": "item", "type": "agent", "agent_name": "A", "retryStrategy": retry},
        {"id": "m", "type": "map", "depends_on": ["item"], "items": "{{item.output.l}}", "node": "b", "max_items": "5"},
        {"id": "b", "type": "agent", "agent_name": "B", "input": {"v": "{{item}}"}},
    ]);
    let mapping = json!({"output_mapping": {"r": "{{item.output.l.0}}"}});
    let mesh = own(&nodes, &mapping, json!({}), json!({"A": {"output": {"l": [7]}}}));
    assert_eq!(mesh.inputs_of("B"), [json!({ "v": 7 })]);
    assert_eq!(mesh.outcome().unwrap().output.as_deref(), Some(&json!({ "r": 7 })));
}
