//! Starts by request: what was answered is stored, whoever is killed.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use serde_json::json;
use sinew_agent::Delivery;
use sinew_mesh::{HeaderMap, Mesh};
use sinew_protocol::command::Command;
use sinew_protocol::query::Query;
use sinew_protocol::start::StartAnswer;
use sinew_protocol::{ExecutionId, Token};

use crate::faults::audit::{CHAIN, succeeded};
use crate::support::mesh::{PATIENCE, TestMesh, start};

/// Starts in all, unless `SINEW_STARTS` has another number.
const COUNT: usize = 400;
/// Starts on their way at once.
const AT_ONCE: usize = 16;

/// Waits until every shard has an owner that answers.
async fn owned(mesh: &Mesh, shards: u32) {
    let wait = async {
        for shard in 0..shards {
            while mesh.services().ask_shard(shard, &Query::Status {}).await.is_err() {}
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test]
async fn every_start_that_was_answered_ends_although_executors_are_killed() {
    let count = std::env::var("SINEW_STARTS").map_or(COUNT, |count| count.parse().unwrap());
    let mesh = TestMesh::new().await;
    mesh.deploy("chain", CHAIN).await;
    let words = [("one", json!({ "pass": true })), ("two", json!({ "pass": true }))];
    let mut agents = mesh.agents_process(Delivery::Direct, &words).await;
    let mut executor = mesh.executor_process("first").await;
    let client = mesh.client().await;
    let connection = mesh.connect("tester").await;
    let shards = connection.admin().layout().await.unwrap().shards;
    owned(&connection, shards.get()).await;
    let request = |nth: usize| {
        let command = start(&client, &format!("k{nth}"), "chain", json!({ "value": nth }));
        let (execution, connection) = (command.execution.clone(), &connection);
        async move {
            let id = Token::parse(execution.as_str()).unwrap();
            let body = Command::Start(Box::new(command)).to_json().into();
            let shard = execution.shard(shards);
            let answer =
                connection.services().request_start(shard, &id, HeaderMap::new(), body).await.unwrap();
            (nth, execution, answer)
        }
    };
    let mut requests = futures_util::stream::iter((0..count).map(request)).buffer_unordered(AT_ONCE);
    let mut answered: BTreeSet<(usize, ExecutionId)> = BTreeSet::new();
    let mut kills = 0;
    let mut killed_at = 0;
    while let Some((nth, execution, answer)) = requests.next().await {
        match answer {
            Some(StartAnswer::Stored { new, .. }) => {
                assert!(new, "each of these starts is sent once");
                answered.insert((nth, execution));
            }
            Some(StartAnswer::Refused { reason }) => panic!("a start was refused: {reason}"),
            Some(StartAnswer::NotTaken {}) | None => {}
        }
        if kills < 3 && answered.len() >= killed_at + count / 20 {
            kills += 1;
            executor.kill9().await;
            executor = mesh.executor_process(&format!("next-{kills}")).await;
            owned(&connection, shards.get()).await;
            killed_at = answered.len();
        }
    }
    drop(requests);
    assert_eq!(kills, 3, "the fault had no effect: {} answered", answered.len());
    for (nth, execution) in &answered {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": nth }));
    }
    println!("{} of {count} starts were answered, and all of them ended", answered.len());
    // A start that was not answered is sent again by any way, and begins once.
    let missing: Vec<usize> =
        (0..count).filter(|nth| answered.iter().all(|(known, _)| known != nth)).collect();
    for nth in missing {
        let command = start(&client, &format!("k{nth}"), "chain", json!({ "value": nth }));
        let execution = command.execution.clone();
        client.start(command).await.unwrap();
        assert_eq!(succeeded(&client, &execution).await, json!({ "value": nth }));
    }
    agents.end().await;
    drop(executor);
}
