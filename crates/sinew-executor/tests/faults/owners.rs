//! Several executors believe that a shard is theirs; journals that are compacted under way.

use std::time::Duration;

use serde_json::json;
use sinew_agent::Delivery;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_protocol::journal::{Commit, EntryKind};

use crate::audit::{CHAIN, succeeded};
use crate::mesh::{Site, TestMesh, adapters, start};
use crate::process::Part;

/// Commits of all shards.
async fn commits(site: &Site, shards: u32) -> Vec<Commit> {
    let mut commits = Vec::new();
    for shard in 0..shards {
        site.mesh
            .journal(shard)
            .replay::<sinew_mesh::MeshError>(|stored| {
                commits.push(Commit::decode(&stored.body).unwrap());
                Ok(())
            })
            .await
            .unwrap();
    }
    commits
}

/// Executors that take each other for dead all the time claim each other's shards while work goes on.
#[tokio::test]
async fn owners_that_fight_do_no_harm() {
    let mesh = TestMesh::with(Default::default(), 2).await;
    mesh.deploy("chain", CHAIN).await;
    let agents = [("one", json!({ "pass": true, "delay_ms": 300 })), ("two", json!({ "pass": true, "delay_ms": 300 }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &agents).await;
    let mut fighters = Vec::new();
    for id in ["one", "two"] {
        // The lease is shorter than a beat: everybody else is dead.
        let lease = Duration::from_millis(1);
        let options = ServiceOptions { id: id.to_owned(), lease, ..ServiceOptions::new(adapters) };
        fighters.push(Service::start(mesh.connect(id).await, options).await.unwrap());
    }
    let client = mesh.client().await;
    let mut executions = Vec::new();
    let claims = |commits: &[Commit]| commits.iter().filter(|commit| commit.entries.is_empty()).count();
    let mut nth = 0;
    // Work comes in until the shards have changed hands often enough.
    while claims(&commits(&mesh, 2).await) < 12 {
        let command = start(&client, &format!("k{nth}"), "chain", json!({ "value": nth }));
        executions.push(command.execution.clone());
        client.start(command).await.unwrap();
        nth += 1;
        assert!(nth < 5_000, "nobody fights");
    }
    for (nth, execution) in executions.iter().enumerate() {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": nth }));
    }
    println!("{} executions while the shards changed hands {} times", executions.len(), claims(&commits(&mesh, 2).await));
    for fighter in fighters {
        fighter.drain().await;
    }
    agents.end().await;
    assert_eq!(crate::audit::given(&[&agents]).len(), 2 * executions.len(), "a task was sent that no fact names");
}

#[tokio::test]
async fn a_compacted_journal_is_taken_over() {
    let mesh = TestMesh::with(Default::default(), 1).await;
    mesh.deploy("chain", CHAIN).await;
    // The first executions stay open while so many others pass that the journal is worn.
    let agents = [("one", json!({ "pass": true, "hold": 3 })), ("two", json!({ "pass": true }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &agents).await;
    let part = |id: &str| Part::Executor { id: id.to_owned(), lease_ms: 2_000, worn: Some(16 * 1024) };
    let mut first = mesh.process(part("first")).await;
    let client = mesh.client().await;
    let begin = |key: String| {
        let client = client.clone();
        async move {
            let command = start(&client, &key, "chain", json!({ "value": key }));
            let execution = command.execution.clone();
            client.start(command).await.unwrap();
            execution
        }
    };
    let mut open = Vec::new();
    for nth in 0..3 {
        open.push(begin(format!("old{nth}")).await);
    }
    agents.asked(3).await;
    let mut nth = 0;
    loop {
        let execution = begin(format!("new{nth}")).await;
        succeeded(&client, &execution).await;
        let all = commits(&mesh, 1).await;
        let again = |entry: &sinew_protocol::journal::Entry| entry.kind == EntryKind::Checkpoint;
        let kept = all.iter().flat_map(|commit| &commit.entries).filter(|entry| again(entry));
        let kept: Vec<_> = kept.map(|entry| &entry.execution).collect();
        let purged = !all.iter().flat_map(|commit| &commit.entries).any(|entry| entry.execution == open[0] && !again(entry));
        if open.iter().all(|open| kept.contains(&open)) && purged {
            break;
        }
        nth += 1;
        assert!(nth < 300, "the journal is not compacted");
    }
    first.kill9().await;
    let mut second = mesh.process(part("second")).await;
    for _ in 0..3 {
        agents.release().await;
    }
    for (nth, execution) in open.iter().enumerate() {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": format!("old{nth}") }));
    }
    second.end().await;
    agents.end().await;
    assert!(crate::audit::given(&[&agents]).values().all(|times| *times == 1));
}
