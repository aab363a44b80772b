//! Work of executions and activations that are over: no attempt of it starts, and it delays no other work.

use std::time::Duration;

use serde_json::json;
use sinew_agent::Delivery;
use sinew_engine::TerminalStatus;
use sinew_executor::client::Client;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_mesh::server::ServerOptions;
use sinew_protocol::command::{CancelCommand, Command};
use sinew_protocol::{ExecutionId, Token};

use crate::faults::audit::{ended, single, succeeded};
use crate::faults::crash::started;
use crate::support::mesh::{PATIENCE, Site, TestMesh, adapters, start};

/// Twenty items for an agent that no process serves, beside a node that fails when its agent is served.
const FAIL_FAST: &str = r#"
workflow:
  description: Items, and a node that ends them
  nodes:
    - {id: all, type: map, items: "{{workflow.input.items}}", node: one}
    - {id: one, type: agent, agent_name: one, input: {value: "{{_map_item}}"}}
    - {id: breaks, type: agent, agent_name: breaks, input: {value: 1}}
  output_mapping: {value: "{{all.output.results}}"}
"#;

/// Number of tasks in the stream for an agent.
async fn stored_tasks(site: &Site, agent: &str) -> usize {
    let stream = site.mesh.admin().jetstream().get_stream("test_TASKS").await.unwrap();
    let filter = format!("test.v1.task.{agent}.>");
    let mut subjects = stream.info_with_subjects(filter).await.unwrap();
    let mut count = 0;
    while let Some(subject) = futures_util::StreamExt::next(&mut subjects).await {
        subject.unwrap();
        count += 1;
    }
    count
}

async fn until_stored(site: &Site, agent: &str, tasks: usize) {
    let looking = async {
        while stored_tasks(site, agent).await != tasks {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("not {tasks} tasks of {agent}"));
}

pub(crate) async fn cancel(client: &Client, execution: &ExecutionId) {
    let cancel = Command::Cancel(CancelCommand { execution: execution.clone(), reason: String::new() });
    let verdict = client.signal(&Token::of(execution.as_str()), cancel, PATIENCE).await.unwrap();
    assert!(verdict.accepted, "{verdict:?}");
}

/// Starts an agent; it does the work of a live execution and nothing else.
async fn only_live_work_is_done(site: &Site, client: &Client) {
    site.deploy("live", &single("")).await;
    let mut agents = site.agents_process(Delivery::Queue, &[("one", json!({ "pass": true }))]).await;
    let live = start(client, "live", "live", json!({ "value": "live" }));
    let execution = live.execution.clone();
    client.start(live).await.unwrap();
    assert_eq!(succeeded(client, &execution).await, json!({ "value": "live" }));
    agents.end().await;
    let began: Vec<_> = agents.began().map(|call| call["execution"].as_str().unwrap()).collect();
    assert_eq!(began, [execution.as_str()], "work of ended executions was done");
}

#[tokio::test]
async fn cancelled_work_leaves_its_queue() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", &single("")).await;
    let _executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let executions = started(&client, "single", 24).await;
    until_stored(&mesh, "one", 24).await;
    for execution in &executions {
        cancel(&client, execution).await;
    }
    for execution in &executions {
        assert_eq!(ended(&client, execution).await.status, TerminalStatus::Cancelled);
    }
    until_stored(&mesh, "one", 0).await;
    only_live_work_is_done(&mesh, &client).await;
}

/// Every other end of an execution or a node, with tasks that nobody has taken.
#[tokio::test]
async fn work_leaves_its_queue_with_what_it_was_for() {
    let mesh = TestMesh::new().await;
    let items = json!({ "items": (0..20).collect::<Vec<_>>(), "value": 1 });
    let cases = [
        ("stopped", FAIL_FAST.to_owned(), 20, TerminalStatus::Failure),
        ("hasty", single(", timeout: 2s"), 1, TerminalStatus::Failure),
    ];
    let _executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    for (name, text, tasks, status) in cases {
        mesh.deploy(name, &text).await;
        let command = start(&client, name, name, items.clone());
        let execution = command.execution.clone();
        client.start(command).await.unwrap();
        until_stored(&mesh, "one", tasks).await;
        let words = json!({ "error": "broken" });
        let mut breaks = mesh.agents_process(Delivery::Queue, &[("breaks", words)]).await;
        assert_eq!(ended(&client, &execution).await.status, status, "{name}");
        breaks.end().await;
        until_stored(&mesh, "one", 0).await;
    }
    only_live_work_is_done(&mesh, &client).await;
}

/// The owner dies before the queue is free of the tasks: the next owner removes them.
#[tokio::test]
async fn an_owner_that_dies_leaves_no_work_of_ended_executions() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", &single("")).await;
    let mut first = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let executions = started(&client, "single", 8).await;
    until_stored(&mesh, "one", 8).await;
    for execution in &executions {
        let cancel = Command::Cancel(CancelCommand { execution: execution.clone(), reason: String::new() });
        // The owner dies before the verdict.
        let _ = client.signal(&Token::of(execution.as_str()), cancel, Duration::ZERO).await;
    }
    first.kill9().await;
    let _second = mesh.executor_process("two").await;
    for execution in &executions {
        assert_eq!(ended(&client, execution).await.status, TerminalStatus::Cancelled);
    }
    until_stored(&mesh, "one", 0).await;
    only_live_work_is_done(&mesh, &client).await;
}

/// No process of the agent runs for longer than the mesh keeps tasks.
#[tokio::test]
async fn a_task_outlives_the_retention_of_its_stream() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", &single("")).await;
    let max_task_age = Some(Duration::from_secs(1));
    let options = ServiceOptions { max_task_age, ..ServiceOptions::new(adapters) };
    let service = Service::start(mesh.connect("exec").await, options).await.unwrap();
    let client = mesh.client().await;
    let execution = started(&client, "single", 1).await.remove(0);
    until_stored(&mesh, "one", 1).await;
    // As the server does at the end of the retention.
    let stream = mesh.mesh.admin().jetstream().get_stream("test_TASKS").await.unwrap();
    stream.purge().await.unwrap();
    until_stored(&mesh, "one", 1).await;
    let mut agents = mesh.agents_process(Delivery::Queue, &[("one", json!({ "pass": true }))]).await;
    succeeded(&client, &execution).await;
    agents.end().await;
    assert_eq!(agents.began().count(), 1, "the task is done once");
    service.drain().await;
}

/// Results that agents stored in time count, although their owner reads them after the deadline.
#[tokio::test]
async fn results_in_time_beat_timers_after_an_outage() {
    let mut mesh = TestMesh::with(ServerOptions { sync_always: true, ..ServerOptions::default() }, 4).await;
    mesh.deploy("hasty", &single(", timeout: 12s")).await;
    let words = [("one", json!({ "pass": true, "hold": 6 }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let client = mesh.client().await;
    let late = Duration::from_secs(13);

    // The executor is killed; the agents end meanwhile.
    let mut executor = mesh.executor_process("one").await;
    let executions = started(&client, "hasty", 2).await;
    agents.asked(2).await;
    executor.kill9().await;
    agents.release().await;
    agents.release().await;
    tokio::time::sleep(late).await;
    let executor = mesh.executor_process("one").await;
    for execution in &executions {
        succeeded(&client, execution).await;
    }

    // The executor is halted.
    let executions = crate::faults::crash::started_from(&client, "hasty", 2, 2).await;
    agents.asked(4).await;
    executor.pause();
    agents.release().await;
    agents.release().await;
    tokio::time::sleep(late).await;
    executor.resume();
    for execution in &executions {
        succeeded(&client, execution).await;
    }

    // The broker is away.
    let executions = crate::faults::crash::started_from(&client, "hasty", 4, 2).await;
    agents.asked(6).await;
    mesh.server.kill9().await.unwrap();
    agents.release().await;
    agents.release().await;
    tokio::time::sleep(late).await;
    mesh.server.restart().await.unwrap();
    for execution in &executions {
        succeeded(&client, execution).await;
    }
}
