//! Figures by workflow and by agent, of executions that are open, and of agents: on the pages of real processes.

use serde_json::{Value, json};

use super::alerts::{SERVE, ScrapedExecutor, count, flow, scraped_until};
use crate::common::World;

const WRITER: &str = "name: Writer\nrun: {script: {source: \"lambda input: {'text': 'a draft'}\"}}\n";
const RAISING: &str = "name: Raising\nrun: {script: {source: \"lambda input: 1 // 0\"}}\n";

/// Asks a person at once.
fn question() -> String {
    json!({
        "nodes": [
            { "id": "s", "type": "start", "data": { "initialInput": "a plan" } },
            { "id": "ok", "type": "approval", "data": { "prompt": "Is it good?" } },
        ],
        "connections": [{ "source": "s", "target": "ok", "sourceHandle": "output", "targetHandle": "input" }],
    })
    .to_string()
}

#[test]
fn workflows_agents_and_open_executions_have_figures() {
    let (world, first) = World::new();
    first.stop();
    let executor = ScrapedExecutor::start_as(world.command(&SERVE));
    world.write("cards/writer.agent.yaml", WRITER);
    world.write("cards/raising.agent.yaml", RAISING);
    let agents = ScrapedExecutor::start_as(world.command(&["serve", "agent", "cards", "--health-port", "0"]));
    world.online(&["Writer", "Raising"]);
    world.write("flows/asks.json", &question());
    for (name, agent) in [("writes", "Writer"), ("raises", "Raising"), ("lonely", "Nobody")] {
        let node = format!("    - {{id: a, type: agent, agent_name: {agent}, input: {{}}}}\n");
        world.write(&format!("flows/{name}.yaml"), &flow(name, &node));
    }
    world.ok(&["workflow", "deploy", "flows"]);
    for (name, code) in [("writes", 0), ("writes", 0), ("raises", 1), ("asks", 8)] {
        world.ends(&["run", name, "--mesh", "--wait", "-q"], code);
    }
    world.ok(&["run", "lonely", "--mesh", "--detach", "-q"]);

    let page = scraped_until(&[&executor], |page| {
        (count(page, "sinew_executions_open", None) - 2.0).abs() < 0.5
            && (count(page, "sinew_executions_waiting", None) - 1.0).abs() < 0.5
    });
    let labelled = |name: &str, labels: &[(&str, &str)]| {
        let fits = page.iter().find(|one| {
            let has =
                |(label, value): &(&str, &str)| one.labels.get(*label).is_some_and(|found| found == value);
            has(&("__name__", name)) && labels.iter().all(has)
        });
        fits.unwrap_or_else(|| panic!("no {name} {labels:?}: {page:#?}")).value
    };
    for (workflow, status, wanted) in
        [("writes", "succeeded", 2.0), ("writes", "failed", 0.0), ("raises", "failed", 1.0)]
    {
        let labels = [("workflow", workflow), ("status", status)];
        assert_eq!(
            labelled("sinew_workflow_executions_total", &labels).to_bits(),
            f64::to_bits(wanted),
            "{labels:?}"
        );
    }
    for (agent, outcome, wanted) in
        [("Writer", "succeeded", 2.0), ("Writer", "timeout", 0.0), ("Raising", "succeeded", 0.0)]
    {
        let labels = [("agent", agent), ("outcome", outcome)];
        assert_eq!(
            labelled("sinew_agent_attempts_total", &labels).to_bits(),
            f64::to_bits(wanted),
            "{labels:?}"
        );
    }

    let own = scraped_until(&[&agents], |page| count(page, "sinew_agent_tasks_total", None) >= 3.0);
    assert!(count(&own, "sinew_agent_tasks_total", Some(("agent", "Writer"))) > 1.5, "{own:#?}");
    assert!(count(&own, "sinew_agent_tasks_total", Some(("outcome", "succeeded"))) > 1.5, "{own:#?}");
    assert!(count(&own, "sinew_agent_task_seconds_count", Some(("agent", "Raising"))) > 0.5, "{own:#?}");
    assert!(count(&own, "sinew_agent_working", None).abs() < 0.5, "{own:#?}");

    // The figures of the micro service count tasks however they came.
    let told = world.asked("$SRV.STATS.Writer", 1).remove(0);
    let data: &Value = &told["endpoints"][0]["data"];
    assert_eq!((&data["num_requests"], &data["num_errors"]), (&json!(2), &json!(0)), "{told:#}");
    let told = world.asked("$SRV.STATS.Raising", 1).remove(0);
    assert_eq!(told["endpoints"][0]["data"]["num_errors"], 1, "{told:#}");
}
