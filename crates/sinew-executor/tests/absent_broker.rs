//! A broker that is away for minutes. A module of its own, because tests begin in the order of their names, and nothing else would
//! be left to do while this one waits.

use std::time::{Duration, Instant};

use serde_json::json;
use sinew_agent::Delivery;
use sinew_engine::TerminalStatus;
use sinew_mesh::server::ServerOptions;

use crate::faults::audit::{CHAIN, given, single, succeeded};
use crate::faults::crash::{all_succeeded, chain_agents, started, started_from};
use crate::support::mesh::{PATIENCE, TestMesh};

/// Longer than any request, lease or heartbeat lasts. Agents finish meanwhile, deadlines pass, and somebody waits.
#[tokio::test]
async fn the_broker_is_away_for_two_minutes() {
    let mut mesh = TestMesh::with(ServerOptions { sync_always: true, ..ServerOptions::default() }, 4).await;
    mesh.deploy("chain", CHAIN).await;
    mesh.deploy("direct", &CHAIN.replace("agent_name: ", "agent_name: direct-")).await;
    let late = single(", timeout: 20s").replace("agent_name: one", "agent_name: silent");
    mesh.deploy("late", &late).await;
    let mut queued = chain_agents(&mesh, Delivery::Queue, 4).await;
    let held = json!({ "pass": true, "hold": 4 });
    let words = [("direct-one", held), ("direct-two", json!({ "pass": true }))];
    let mut direct = mesh.agents_process(Delivery::Direct, &words).await;
    let mut silent = mesh.agents_process(Delivery::Queue, &[("silent", json!({ "silent": true }))]).await;
    let _executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let through_queue = started(&client, "chain", 4).await;
    queued.asked(4).await;
    let at_the_door = started(&client, "direct", 4).await;
    direct.asked(4).await;
    let overdue = started(&client, "late", 1).await.remove(0);

    mesh.server.stop().await.unwrap();
    for _ in 0..4 {
        queued.release().await;
        direct.release().await;
    }
    let away = async {
        tokio::time::sleep(Duration::from_mins(2)).await;
        mesh.server.restart().await.unwrap();
        Instant::now()
    };
    let waiting = client.outcome(&overdue, Some(10 * PATIENCE));
    let (back, outcome) = tokio::join!(away, waiting);
    assert_eq!(outcome.unwrap().unwrap().status, TerminalStatus::Failure, "its deadline passed meanwhile");
    all_succeeded(&client, &through_queue).await;
    all_succeeded(&client, &at_the_door).await;
    println!("all ended {} ms after the broker came back", back.elapsed().as_millis());
    let after = started_from(&client, "chain", 4, 1).await.remove(0);
    assert_eq!(succeeded(&client, &after).await, json!({ "value": 4 }), "new work is done");
    for (agents, tasks) in [(&mut queued, 10), (&mut direct, 8), (&mut silent, 1)] {
        agents.end().await;
        assert_eq!(given(&[&*agents]).len(), tasks, "a task was made up or lost");
    }
}
