//! Work of executions that are over is not started, and costs nothing.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::World;
use crate::model_server::{ModelServer, model_agent};
use crate::views::Gateway;

/// A map over a model agent, beside a node whose agent fails.
const REVIEW: &str = r#"
workflow:
  description: Reviews items with a model until one part fails.
  nodes:
    - {id: all, type: map, items: "{{workflow.input.items}}", max_items: 1000, node: review}
    - {id: review, type: agent, agent_name: Reviewer, input: {item: "{{_map_item}}"}}
    - {id: check, type: agent, agent_name: Checker, input: {}}
  output_mapping: {reviews: "{{all.output.results}}"}
"#;

const CHECKER: &str = "name: Checker\nrun: {script: {source: \"lambda input: 1 // 0\"}}\n";

/// One review outside of the map.
const SINGLE: &str = r#"
workflow:
  description: Reviews one item.
  nodes:
    - {id: one, type: agent, agent_name: Reviewer, input: {item: "{{workflow.input.item}}"}}
  output_mapping: {review: "{{one.output}}"}
"#;

#[test]
fn a_failed_map_starts_no_queued_item() {
    const ITEMS: usize = 1_000;
    let (world, _executor) = World::new();
    let model = ModelServer::start();
    world.write("review.yaml", REVIEW);
    world.write("single.yaml", SINGLE);
    world.write("reviewer.agent.yaml", &model_agent("Reviewer", &model.url));
    world.write("checker.agent.yaml", CHECKER);
    world.ok(&["workflow", "deploy", "review.yaml", "single.yaml"]);
    world.online(&["review", "single"]);
    let gateway = Gateway::start(&world);
    let items: Vec<usize> = (0..ITEMS).collect();
    let execution = gateway.begin("review", &json!({ "items": items }));
    gateway.agree(&world, "review", &execution, "running");
    queued(&world, "Reviewer", ITEMS);

    // Its failure ends the execution while all items wait for the model agent.
    let _checker = world.serve(&["serve", "agent", "checker.agent.yaml"]);
    let description = gateway.agree(&world, "review", &execution, "failed");
    assert!(description["failure"].is_object(), "{}", description["failure"]);
    queued(&world, "Reviewer", 0);
    let errors = gateway.document("/api/v1/agents/Checker?errors=true")["last_errors"].clone();
    assert_eq!(errors[0]["execution"], json!(execution), "{errors}");
    assert_eq!(world.json(&["agent", "describe", "Checker", "--mesh"])["last_errors"], errors);
    gateway.shows("/console/agents/Checker", errors[0]["error"]["code"].as_str().unwrap());

    // The model agent comes, and does the work of a live execution only.
    let _reviewer = world.serve(&["serve", "agent", "reviewer.agent.yaml"]);
    let live = gateway.begin("single", &json!({ "item": "live" }));
    let description = gateway.agree(&world, "single", &live, "succeeded");
    assert_eq!(model.calls(), 1, "the model was called for an execution that had ended");
    assert_eq!(description["models"].as_array().map(Vec::len), Some(1), "{description}");
}

/// Waits until so many tasks are in the queue of an agent.
fn queued(world: &World, agent: &str, count: usize) {
    let until = Instant::now() + Duration::from_mins(1);
    world.runtime.block_on(async {
        let mesh = world.connect("journey").await;
        let filter = format!("{}.v1.task.{agent}.>", mesh.namespace());
        let name = format!("{}_TASKS", mesh.namespace());
        loop {
            let stream = mesh.admin().jetstream().get_stream(&name).await.unwrap();
            let subjects = stream.info_with_subjects(&filter).await.unwrap();
            let seen = futures_util::StreamExt::count(subjects).await;
            if seen == count {
                return;
            }
            assert!(Instant::now() < until, "{seen} tasks of {agent} are stored, not {count}");
        }
    });
}
