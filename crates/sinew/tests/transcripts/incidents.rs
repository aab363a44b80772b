//! Five incidents on a mesh, as an operator meets them: an agent that died, a storm of retries, a question to a person, a
//! mesh without an executor, and an item of a map that fails. Each is caused for real; the transcript stands beside.

use std::time::Instant;

use super::common::{Role, World};
use super::{PATIENCE, holds};

const PRICING: &str =
    "name: Pricing\nrun: {script: {source: \"lambda input: {'price': 60 // input['amount']}\"}}\n";
/// Works until it is killed.
const STUCK: &str = "name: Stuck\nrun: {command: {argv: [sleep, '600']}}\n";
const STUCK_FLOW: &str = "name: stuck\nworkflow:\n  description: d\n  nodes:\n    \
    - {id: work, type: agent, agent_name: Stuck, input: {}}\n  output_mapping: {}\n";
/// The bank is away: every attempt fails, and the next one is an hour off.
const BANK: &str = "name: Bank\nrun: {command: {argv: [sh, -c, 'echo connecting >&2; exit 7']}}\n";
const PAY_FLOW: &str = "name: pay\nworkflow:\n  description: d\n  nodes:\n    \
    - {id: pay, type: agent, agent_name: Bank, input: {}, \
       retryStrategy: {limit: 5, retryPolicy: Always, backoff: {duration: 1h}}}\n  output_mapping: {}\n";
const LINES_FLOW: &str = "name: lines\nworkflow:\n  description: d\n  nodes:\n    \
    - {id: each, type: map, node: one, items: \"{{workflow.input.lines}}\", concurrency_limit: 1}\n    \
    - {id: one, type: agent, agent_name: Pricing, input: {amount: \"{{_map_item}}\"}}\n  \
    output_mapping: {prices: \"{{each.output.results}}\"}\n";

/// A mesh with an executor, these workflows, and these agents.
fn mesh(flows: &[(&str, &str)], agents: &[(&str, &str)]) -> (World, Role, Role) {
    let (world, executor) = World::new();
    for (name, flow) in flows {
        world.write(&format!("flows/{name}"), flow);
    }
    let mut names = Vec::new();
    for (name, agent) in agents {
        world.write(&format!("cards/{}.agent.yaml", name.to_lowercase()), agent);
        names.push(*name);
    }
    let served = world.serve(&["serve", "agent", "cards"]);
    world.ok(&["workflow", "deploy", "flows"]);
    world.online(&names);
    (world, executor, served)
}

/// Waits until a list of executions says this of each.
#[track_caller]
fn until_all_wait_for(world: &World, words: &str, count: usize) {
    let since = Instant::now();
    loop {
        let rows = world.json(&["execution", "list"]);
        let waiting = rows.as_array().unwrap().iter();
        let waiting = waiting.filter(|row| row["waiting"].as_str().is_some_and(|text| text.contains(words)));
        if waiting.count() == count {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "not {count} wait for {words:?}: {rows:#}");
    }
}

#[test]
fn a_dead_agent_is_found_and_replaced() {
    let (world, _executor, agent) = mesh(&[("stuck.yaml", STUCK_FLOW)], &[("Stuck", STUCK)]);
    world.ok(&["run", "stuck", "--mesh", "--id", "stuck", "--detach", "-q"]);
    // Its process is killed, without a word of farewell.
    drop(agent);
    until_all_wait_for(&world, "no heartbeat for", 1);
    holds(&world, "incident-agent-dead");
    world.write("cards/stuck.agent.yaml", &STUCK.replace("[sleep, '600']", "[echo, '{}']"));
    let _agent = world.serve(&["serve", "agent", "cards"]);
    world.ok(&["execution", "watch", "stuck", "-q"]);
}

#[test]
fn a_storm_of_retries_says_why_and_is_ended() {
    let (world, _executor, _agent) = mesh(&[("pay.yaml", PAY_FLOW)], &[("Bank", BANK)]);
    for id in ["pay-1", "pay-2", "pay-3"] {
        world.ok(&["run", "pay", "--mesh", "--id", id, "--detach", "-q"]);
    }
    until_all_wait_for(&world, "the next attempt", 3);
    holds(&world, "incident-retries");
}

#[test]
fn a_question_to_a_person_is_found_and_answered() {
    let approval: serde_json::Value =
        serde_json::from_str(include_str!("../fixtures/test/approval.test.json")).unwrap();
    let flow = approval["definition"].to_string();
    let (world, _executor, _agents) =
        mesh(&[("approve.json", &flow)], &[("Writer", super::WRITER), ("Editor", super::EDITOR)]);
    world.ends(&["run", "approve", "--mesh", "--id", "asks", "--wait", "-q"], 8);
    holds(&world, "incident-person");
}

#[test]
fn a_mesh_without_an_executor_says_so() {
    let (world, executor, _agent) = mesh(&[("lines.yaml", LINES_FLOW)], &[("Pricing", PRICING)]);
    assert_eq!(executor.stop(), Some(0));
    holds(&world, "incident-no-executor");
    let _executor = world.serve(&["serve", "executor"]);
    let since = Instant::now();
    while !world.run(&["execution", "describe", "stored"]).status.success() {
        assert!(since.elapsed() < PATIENCE, "no executor has taken the start");
    }
    world.ok(&["execution", "watch", "stored", "-q"]);
}

#[test]
fn a_failed_item_of_a_map_is_named_and_the_map_is_retried() {
    let (world, _executor, agent) = mesh(&[("lines.yaml", LINES_FLOW)], &[("Pricing", PRICING)]);
    world.ends(
        &["run", "lines", "--mesh", "--id", "lines", "-i", "{\"lines\": [5, 0, 6]}", "--wait", "-q"],
        1,
    );
    drop(agent);
    world.write("cards/pricing.agent.yaml", &PRICING.replace("input['amount']}", "max(1, input['amount'])}"));
    let _agent = world.serve(&["serve", "agent", "cards"]);
    world.online(&["Pricing"]);
    holds(&world, "incident-map-item");
}
