//! Artifacts that events name are readable, for an execution of one process and for one of a mesh.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::common::World;

const ECHO: &str = "name: Echo\nrun: {script: {source: \"lambda input: {'echo': input}\"}}\n";
/// A map, a fork, a join and a loop.
const FLOW: &str = r#"
name: tour
workflow:
  description: Every node that brings work together
  nodes:
    - {id: each, type: map, items: "{{workflow.input.items}}", node: row}
    - {id: row, type: agent, agent_name: Echo, input: {i: "{{_map_item}}"}}
    - id: both
      type: fork
      depends_on: [each]
      branches: [{id: left, agent_name: Echo, output_key: l, input: {}}, {id: right, agent_name: Echo, output_key: r, input: {}}]
    - {id: meet, type: join, wait_for: [each, both]}
    - {id: again, type: loop, depends_on: [meet], node: turn, condition: "{{_loop_iteration}} < 1"}
    - {id: turn, type: agent, agent_name: Echo, input: {n: "{{_loop_iteration}}"}}
  output_mapping: {n: "{{again.output.iterations_completed}}"}
"#;

/// Reads each artifact that an event of an execution names; returns those of inputs by name.
fn inputs_of_events(world: &World, execution: &str) -> BTreeMap<String, Value> {
    let lines = world.ok(&["execution", "events", execution, "-o", "jsonl"]);
    let mut inputs = BTreeMap::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let event = &line["event"];
        for field in ["input_artifact_ref", "output_artifact_ref"] {
            let Some(reference) = event.get(field) else { continue };
            let (name, version) = (reference["name"].as_str().unwrap(), &reference["version"]);
            let read = world.ok(&["artifact", "get", execution, &format!("{name}:{version}")]);
            let value: Value = serde_json::from_str(&read).unwrap();
            if field == "input_artifact_ref" {
                inputs.insert(name.to_owned(), value);
            }
        }
        let kind = event["node_type"].as_str().unwrap_or_default();
        let has_input = ["agent", "map", "fork", "join", "loop"].contains(&kind);
        assert_eq!(has_input, !kind.is_empty() && event.get("input_artifact_ref").is_some(), "{event}");
    }
    inputs
}

#[test]
fn inputs_of_maps_forks_joins_and_loops_are_artifacts() {
    let (world, _executor) = World::new();
    world.write("flow/tour.yaml", FLOW);
    world.write("flow/agent-cards/echo.agent.yaml", ECHO);
    let _agents = world.serve(&["serve", "agent", "flow/agent-cards"]);
    world.ok(&["workflow", "deploy", "flow"]);
    world.online(&["Echo", "tour"]);
    let input = ["-q", "-i", r#"{"items": [3, "b"]}"#];
    world.ok(&[&["run", "tour", "--mesh", "--wait", "--id", "tour-1"][..], &input].concat());
    world.ok(&[&["run", "flow/tour.yaml", "--local", "--export", "run.json"][..], &input].concat());
    let echo = |input: Value| json!({ "echo": input });
    let results = json!({ "results": [echo(json!({"i": 3})), echo(json!({"i": "b"}))] });
    let forked = json!({ "l": echo(json!({})), "r": echo(json!({})) });
    let joined = json!({ "each": results, "both": forked });
    for execution in ["tour-1", "run.json"] {
        let inputs = inputs_of_events(&world, execution);
        for (name, value) in [
            ("wi_tour.json", &json!({"items": [3, "b"]})),
            ("map_each_items.json", &json!([3, "b"])),
            ("fork_both_input.json", &results),
            ("join_meet_input.json", &joined),
        ] {
            assert_eq!(inputs.get(name), Some(value), "{name} of {execution}");
        }
        assert_eq!(inputs["loop_again_input.json"]["results"], joined, "{execution}");
        let node = world.json(&["execution", "describe", execution, "--node", "each"]);
        assert_eq!(node["input"], json!([3, "b"]), "{execution}");
    }
}
