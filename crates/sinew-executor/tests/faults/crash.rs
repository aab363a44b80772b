//! Executors, agents and the broker die, hang and come back.

use std::time::{Duration, Instant};

use serde_json::json;
use sinew_agent::Delivery;
use sinew_engine::{Fact, TerminalStatus};
use sinew_executor::client::Client;
use sinew_mesh::server::ServerOptions;
use sinew_protocol::ExecutionId;

use crate::faults::audit::{CHAIN, ended, facts, given, single, succeeded};
use crate::support::mesh::{LEASE, PATIENCE, Site, TestMesh, start};
use crate::support::process::Process;

/// Longest time from a death to the end of what only waited for an owner: silence is seen at a beat, claimed at the next.
const TAKEOVER: Duration = Duration::from_secs(8);

pub(crate) async fn started(client: &Client, workflow: &str, count: usize) -> Vec<ExecutionId> {
    started_from(client, workflow, 0, count).await
}

pub(crate) async fn started_from(
    client: &Client,
    workflow: &str,
    first: usize,
    count: usize,
) -> Vec<ExecutionId> {
    let mut executions = Vec::new();
    for nth in first..first + count {
        let command = start(client, &format!("{workflow}{nth}"), workflow, json!({ "value": nth }));
        executions.push(command.execution.clone());
        assert!(client.start(command).await.unwrap());
    }
    executions
}

pub(crate) async fn all_succeeded(client: &Client, executions: &[ExecutionId]) {
    for (nth, execution) in executions.iter().enumerate() {
        assert_eq!(succeeded(client, execution).await, json!({ "value": nth }));
    }
}

/// Agents of which the first holds so many tasks back.
pub(crate) async fn chain_agents(site: &Site, delivery: Delivery, hold: usize) -> Process {
    let agents = [("one", json!({ "pass": true, "hold": hold })), ("two", json!({ "pass": true }))];
    site.agents_process(delivery, &agents).await
}

#[tokio::test]
async fn an_executor_is_killed_and_another_goes_on() {
    for delivery in [Delivery::Queue, Delivery::Direct] {
        let mesh = TestMesh::new().await;
        mesh.deploy("chain", CHAIN).await;
        let mut agents = chain_agents(&mesh, delivery, 8).await;
        let (mut one, _two) = (mesh.executor_process("one").await, mesh.executor_process("two").await);
        let client = mesh.client().await;
        let executions = started(&client, "chain", 8).await;
        agents.asked(8).await;
        one.kill9().await;
        let died = Instant::now();
        for _ in 0..8 {
            agents.release().await;
        }
        all_succeeded(&client, &executions).await;
        let took = died.elapsed();
        assert!(took < LEASE + TAKEOVER, "{delivery:?}: the end came {took:?} after the death");
        println!("{delivery:?}: all ended {} ms after the death", took.as_millis());
        agents.end().await;
        let given = given(&[&agents]);
        assert_eq!(given.len(), 16, "a task was made up or lost: {given:?}");
        assert!(given.values().all(|times| *times == 1), "an agent worked twice: {given:?}");
    }
}

/// Every point between two stored messages at which nobody may own the shard.
#[tokio::test]
async fn nobody_owns_the_shards_for_a_while() {
    let mesh = TestMesh::new().await;
    mesh.deploy("chain", CHAIN).await;
    let client = mesh.client().await;
    // The start is stored, nobody has read it.
    let executions = started(&client, "chain", 4).await;
    let mut agents = chain_agents(&mesh, Delivery::Queue, 4).await;
    let mut first = mesh.executor_process("first").await;
    agents.asked(4).await;
    first.kill9().await;
    // The results are stored, nobody has read them; then a second owner dies at once, wherever it stands.
    for _ in 0..4 {
        agents.release().await;
    }
    let ends = |told: &[serde_json::Value]| told.iter().filter(|line| line.get("ended").is_some()).count();
    agents.until("the results are there", |told| ends(told) >= 4).await;
    let mut second = mesh.executor_process("first").await;
    second.kill9().await;
    let open = client.open().await.unwrap();
    println!("{} executions are open without an owner", open.len());
    let mut third = mesh.executor_process("third").await;
    all_succeeded(&client, &executions).await;
    third.end().await;
    agents.end().await;
    assert_eq!(given(&[&agents]).len(), 8);
    assert!(client.open().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_executor_hangs_longer_than_its_lease() {
    let mesh = TestMesh::new().await;
    mesh.deploy("chain", CHAIN).await;
    let mut agents = chain_agents(&mesh, Delivery::Queue, 8).await;
    let one = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let executions = started(&client, "chain", 8).await;
    agents.asked(8).await;
    one.pause();
    let two = mesh.executor_process("two").await;
    for _ in 0..8 {
        agents.release().await;
    }
    all_succeeded(&client, &executions).await;
    let fleet = mesh.mesh.fleet();
    for shard in 0..4 {
        assert_eq!(fleet.owner(shard).await.unwrap().as_deref(), Some("two"), "the fault had no effect");
    }
    // It wakes up with old memory, the results in its inbox, and nothing it may write.
    one.resume();
    let more = started_from(&client, "chain", 8, 8).await;
    for (nth, execution) in more.iter().enumerate() {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": nth + 8 }));
    }
    all_succeeded(&client, &executions).await;
    drop((one, two));
    agents.end().await;
    let given = given(&[&agents]);
    assert_eq!(given.len(), 32, "a task was made up or lost");
    assert!(given.values().all(|times| *times == 1), "an agent worked twice: {given:?}");
}

#[tokio::test]
async fn timers_outlive_their_owner() {
    let mesh = TestMesh::new().await;
    mesh.deploy("late", &single(", timeout: 4s")).await;
    let retry = ", retryStrategy: {limit: 3, retryPolicy: OnFailure, backoff: {duration: 4s}}";
    mesh.deploy("again", &single(retry).replace("agent_name: one", "agent_name: two")).await;
    let agents = [
        ("one", json!({ "silent": true })),
        ("two", json!({ "pass": true, "error": "boom", "fail_times": 1 })),
    ];
    let mut agents = mesh.agents_process(Delivery::Queue, &agents).await;
    let mut first = mesh.executor_process("first").await;
    let client = mesh.client().await;
    let late = started(&client, "late", 1).await.remove(0);
    let again = started(&client, "again", 1).await.remove(0);
    agents.asked(2).await;
    // The failure is a fact before the owner dies.
    loop {
        let record = client.record(&again).await.unwrap();
        if record
            .is_some_and(|record| facts(&record).iter().any(|fact| matches!(fact, Fact::BackedOff { .. })))
        {
            break;
        }
    }
    first.kill9().await;
    let _second = mesh.executor_process("second").await;
    let outcome = ended(&client, &late).await;
    assert_eq!(outcome.status, TerminalStatus::Failure, "{outcome:?}");
    let spans = |record: &sinew_protocol::journal::ExecutionRecord| {
        let rounds = crate::faults::audit::rounds(record);
        rounds.last().unwrap().at - rounds[0].at
    };
    let took = spans(&client.record(&late).await.unwrap().unwrap());
    assert!((4_000..4_000 + 8_000).contains(&took), "a timeout of 4 s came after {took} ms");
    assert_eq!(succeeded(&client, &again).await, json!({ "value": 0 }));
    let record = client.record(&again).await.unwrap().unwrap();
    let took = spans(&record);
    assert!((4_000..4_000 + 8_000).contains(&took), "a wait of 4 s took {took} ms");
    let sent = facts(&record).iter().filter(|fact| matches!(fact, Fact::Dispatched { .. })).count();
    assert_eq!(sent, 2, "attempts are counted over owners");
    agents.end().await;
    assert_eq!(given(&[&agents]).len(), 3);
}

#[tokio::test]
async fn the_broker_dies_and_hangs() {
    let mut mesh = TestMesh::with(ServerOptions { sync_always: true, ..ServerOptions::default() }, 4).await;
    mesh.deploy("chain", CHAIN).await;
    let mut agents = chain_agents(&mesh, Delivery::Queue, 8).await;
    let _executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let executions = started(&client, "chain", 8).await;
    agents.asked(8).await;
    // It dies while results are on their way.
    agents.release().await;
    agents.release().await;
    mesh.server.kill9().await.unwrap();
    assert!(!mesh.server.is_running());
    for _ in 0..2 {
        agents.release().await;
    }
    mesh.server.restart().await.unwrap();
    // It hangs.
    agents.release().await;
    mesh.server.pause().await.unwrap();
    agents.release().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    mesh.server.resume().unwrap();
    agents.release().await;
    agents.release().await;
    all_succeeded(&client, &executions).await;
    agents.end().await;
    assert_eq!(given(&[&agents]).len(), 16);
    let more = start(&client, "after", "chain", json!({ "value": "after" }));
    let execution = more.execution.clone();
    client.start(more).await.unwrap();
    let mut agents = chain_agents(&mesh, Delivery::Queue, 0).await;
    assert_eq!(succeeded(&client, &execution).await, json!({ "value": "after" }));
    agents.end().await;
}

/// A dead agent's tasks come to another process of its name under the same ids, when its silence was long enough.
#[tokio::test]
async fn an_agent_is_killed_at_work() {
    let queue = an_agent_dies(Delivery::Queue);
    let direct = an_agent_dies(Delivery::Direct);
    tokio::join!(queue, direct);
}

async fn an_agent_dies(delivery: Delivery) {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", &single("")).await;
    let _executor = mesh.executor_process("one").await;
    let mut first = mesh.agents_process(delivery, &[("one", json!({ "pass": true, "hold": 9 }))]).await;
    let client = mesh.client().await;
    let execution = started(&client, "single", 1).await.remove(0);
    first.asked(1).await;
    first.kill9().await;
    let mut second = mesh.agents_process(delivery, &[("one", json!({ "pass": true }))]).await;
    assert_eq!(succeeded(&client, &execution).await, json!({ "value": 0 }));
    second.end().await;
    let given = given(&[&first, &second]);
    assert_eq!(given.values().collect::<Vec<_>>(), [&2], "{delivery:?}: one task, given twice: {given:?}");
    let attempts = second.began().map(|call| call["attempt"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(attempts, [1], "giving it to another process is not a new attempt");
    assert!(PATIENCE > Duration::from_secs(30));
}
