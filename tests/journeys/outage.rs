//! Executors and the broker are away for longer than every timeout.

use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Role, World, text};
use crate::views::Gateway;

/// Two agents; the first one works for two seconds.
const SLOW: &str = r#"
workflow:
  description: Slow work with a short timeout.
  nodes:
    - {id: work, type: agent, agent_name: Worker, timeout: 8s, input: {n: "{{workflow.input.n}}"}}
    - {id: report, type: agent, agent_name: Reporter, depends_on: [work], input: {n: "{{work.output.n}}"}}
  output_mapping: {n: "{{report.output.n}}"}
"#;

const WORKER: &str = r#"
name: Worker
run:
  command:
    argv: [python3, -c, "import json,sys,time; n=json.load(sys.stdin)['n']; time.sleep(2); print(json.dumps({'n': n + 1}))"]
"#;

const REPORTER: &str = "name: Reporter\nrun: {script: {source: \"lambda input: {'n': input['n'] * 10}\"}}\n";

/// Longer than the timeout of the slow node.
const OUTAGE: Duration = Duration::from_secs(9);

fn world() -> (World, Role, [Role; 2]) {
    let (world, executor) = World::new();
    world.write("slow.yaml", SLOW);
    world.write("worker.agent.yaml", WORKER);
    world.write("reporter.agent.yaml", REPORTER);
    let agents = ["worker", "reporter"];
    let agents = agents.map(|name| world.serve(&["serve", "agent", &format!("{name}.agent.yaml")]));
    world.ok(&["workflow", "deploy", "slow.yaml"]);
    world.online(&["slow", "Worker", "Reporter"]);
    (world, executor, agents)
}

/// Waits until the worker has the task of an execution.
fn until_working(gateway: &Gateway, execution: &str) {
    loop {
        let tree = gateway.document(&format!("/api/v1/executions/{execution}"));
        if tree["nodes"]["running"] == 1 {
            return;
        }
        assert_eq!(tree["status"], "running", "{tree}");
    }
}

#[test]
fn results_survive_an_outage_longer_than_every_timeout() {
    let (mut world, executor, _agents) = world();
    let gateway = Gateway::start(&world);

    // The only executor is killed while the agent works.
    let execution = gateway.begin("slow", &json!({ "n": 1 }));
    until_working(&gateway, &execution);
    drop(executor);
    std::thread::sleep(OUTAGE);
    let _executor = world.serve(&["serve", "executor"]);
    let description = gateway.agree(&world, "slow", &execution, "succeeded");
    assert_eq!(description["output"], json!({ "n": 20 }));

    // The broker is away.
    let execution = gateway.begin("slow", &json!({ "n": 2 }));
    until_working(&gateway, &execution);
    world.stop_server();
    std::thread::sleep(OUTAGE);
    world.start_server_again();
    let description = gateway.agree(&world, "slow", &execution, "succeeded");
    assert_eq!(description["output"], json!({ "n": 30 }));
}

#[test]
fn an_observer_of_every_subject_changes_nothing() {
    let (world, _executor, _agents) = world();
    let observer = world.runtime.block_on(async {
        let client = world.connect("observer").await.client().clone();
        let seen = client.subscribe(">").await.unwrap();
        client.flush().await.unwrap();
        seen
    });
    let gateway = Gateway::start(&world);
    let second = Gateway::start(&world);
    let execution = gateway.begin("slow", &json!({ "n": 3 }));
    for gateway in [&gateway, &second] {
        let description = gateway.agree(&world, "slow", &execution, "succeeded");
        assert_eq!(description["output"], json!({ "n": 40 }));
    }
    drop(observer);
}

#[test]
fn an_agent_that_was_killed_stays_listed_until_it_is_retired() {
    let (world, _executor) = World::new();
    world.write("slow.yaml", SLOW);
    world.write("worker.agent.yaml", WORKER);
    // Nobody serves the agents yet.
    let deployed = world.run(&["workflow", "deploy", "slow.yaml"]);
    let findings = text(&deployed.stderr);
    for finding in
        ["SINEW-2293", "no agent 'Worker' is online; node 'work' calls it", "slow.yaml:5:", "'Reporter'"]
    {
        assert!(deployed.status.success() && findings.contains(finding), "{finding}: {findings}");
    }
    let worker = world.serve(&["serve", "agent", "worker.agent.yaml"]);
    world.online(&["slow", "Worker"]);
    let listed = world.json(&["workflow", "list", "--mesh"]);
    assert_eq!(listed[0]["warnings"], json!(["no agent 'Reporter' is online; node 'report' calls it"]));
    world.ends(&["agent", "retire", "Worker"], 6);
    drop(worker);
    // As the server does a minute after the last heartbeat.
    world.runtime.block_on(async {
        let jetstream = world.connect("cards").await.admin().jetstream();
        let cards = jetstream.get_stream("sinew_CARDS").await.unwrap();
        cards.purge().filter("sinew.v1.card.Worker").await.unwrap();
    });
    let row = |list: &Value| list.as_array().unwrap().iter().find(|row| row["name"] == "Worker").cloned();
    assert_eq!(row(&world.json(&["agent", "list", "--mesh"])).unwrap()["state"], "offline");
    let described = world.ok(&["agent", "describe", "Worker", "--mesh"]);
    assert!(described.contains("state     offline"), "{described}");
    let started = world.run(&["run", "--mesh", "slow", "-p", "n=1", "--detach"]);
    let warnings = text(&started.stderr);
    assert!(warnings.contains("agent 'Worker' is offline, last seen"), "{warnings}");
    assert!(world.ok(&["agent", "retire", "Worker"]).contains("retired Worker"));
    assert_eq!(row(&world.json(&["agent", "list", "--mesh"])), None);
}
