//! The vocabulary of messages that executors write: of current releases, or of the published specification.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{BOOKING, FLOW, PRICING, World};

/// How long a task may take to its stream.
const PATIENCE: Duration = Duration::from_mins(1);
/// Workflow of an agent that has no card.
const SLOW: &str = "name: slow\nworkflow:\n  description: d\n  \
                    nodes: [{id: wait, type: agent, agent_name: Slow, input: {}}]\n  output_mapping: {}\n";

/// Requests to agents that do not offer the short form are written in the vocabulary of `--vocabulary`, and cards of
/// workflows say which. Agents of either vocabulary are understood.
#[test]
fn requests_are_written_in_the_vocabulary_that_was_asked_for() {
    let option = |vocabulary| ["serve", "executor", "--vocabulary", vocabulary];
    for (arguments, vocabulary, written, other) in [
        // The vocabulary of a new mesh.
        (&["serve", "executor"][..], "spec", "workflow_node_request", "structured_invocation_request"),
        (&option("spec"), "spec", "workflow_node_request", "structured_invocation_request"),
        (&option("sam"), "sam", "structured_invocation_request", "workflow_node_request"),
    ] {
        let (world, first) = World::new();
        first.stop();
        let _executor = world.serve(arguments);
        world.write("flow/orders.yaml", FLOW);
        world.write("flow/slow.yaml", SLOW);
        world.write("cards/pricing.agent.yaml", PRICING);
        world.write("cards/booking.agent.yaml", BOOKING);
        let _agents = world.serve(&["serve", "agent", "cards"]);
        world.ok(&["workflow", "deploy", "flow"]);
        world.online(&["Pricing", "Booking", "orders"]);
        let done = world.json(&["run", "orders", "--mesh", "-p", "amount=5", "--wait", "-q"]);
        assert_eq!(
            (&done["status"], &done["output"]),
            (&json!("succeeded"), &json!({"booked": 10})),
            "{done}"
        );
        let card = world.json(&["agent", "card", "orders", "--mesh"]).to_string();
        assert!(card.contains(&format!("\"vocabulary\":\"{vocabulary}\"")), "{card}");
        // The agent of this workflow has no card, so its task waits in the words of the executor.
        world.ok(&["run", "slow", "--mesh", "--detach", "-q"]);
        let task = world.runtime.block_on(async {
            let mesh = world.connect("watching").await;
            let tasks = mesh.admin().jetstream().get_stream("sinew_TASKS").await.unwrap();
            let since = Instant::now();
            loop {
                match tasks.get_last_raw_message_by_subject("sinew.v1.task.Slow.>").await {
                    Ok(task) => break String::from_utf8(task.payload.to_vec()).unwrap(),
                    Err(error) => assert!(since.elapsed() < PATIENCE, "no task: {error}"),
                }
            }
        });
        assert!(task.contains(written) && !task.contains(other), "{vocabulary}: {task}");
    }
}
