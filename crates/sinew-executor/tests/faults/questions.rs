//! Questions to a shard's owner come faster than it can answer them.

use futures_util::StreamExt as _;
use serde_json::json;
use sinew_agent::Delivery;
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_mesh::server::ServerOptions;
use sinew_protocol::Subject;
use sinew_protocol::query::Query;
use tokio::task::JoinSet;

use crate::faults::agents::begun;
use crate::faults::audit::{CHAIN, succeeded};
use crate::support::mesh::{PATIENCE, TestMesh};

/// Connections that ask without a pause.
const FLOOD_CONNECTIONS: usize = 2;
/// Questions of each that wait for an answer at any time. More of them would only fill the connection.
const WAITING_QUESTIONS: usize = 25_000;

/// Executions begin, go on and end while the owner of their shard is asked without a pause.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_questions_does_not_hold_up_work() {
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("chain", CHAIN).await;
    let words = [("one", json!({ "pass": true })), ("two", json!({ "pass": true }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let mut executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let first = begun(&client, "first", "chain", json!({ "value": "first" })).await;
    succeeded(&client, &first).await;
    let mut flood = JoinSet::new();
    for _ in 0..FLOOD_CONNECTIONS {
        let mesh = mesh.connect("flood").await;
        let (subject, execution) = (mesh.subject(&Subject::Query { shard: 0 }), first.clone());
        flood.spawn(async move {
            let client = mesh.client();
            let questions = [Query::Status {}, Query::List {}, Query::Get(execution)];
            let bodies = questions.map(|query| query.to_json()).into_iter().chain(["no question".to_owned()]);
            let bodies: Vec<String> = bodies.collect();
            let reply = client.new_inbox();
            let mut answers = client.subscribe(reply.clone()).await.unwrap();
            for (nth, body) in bodies.iter().cycle().enumerate() {
                // An answer is followed by the next question, so that as many wait all the time.
                if nth >= WAITING_QUESTIONS {
                    answers.next().await.unwrap();
                }
                let (subject, reply, body) = (subject.clone(), reply.clone(), body.clone().into());
                client.publish_with_reply(subject, reply, body).await.unwrap();
            }
        });
    }
    let mut executions = Vec::new();
    let mut ends = client.mesh().events().follow(&EventFilter::default(), EventStart::Now).await.unwrap();
    for nth in 0..6 {
        executions.push(begun(&client, &format!("k{nth}"), "chain", json!({ "value": nth })).await);
    }
    // Ends are heard as events: a question of this test would wait behind the flood.
    let ended = async {
        while !executions.is_empty() {
            let event = ends.next().await;
            if event.kind.as_str() == "workflow_execution_result" {
                executions.retain(|execution| *execution != event.execution);
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| panic!("not all have ended"));
    assert!(flood.try_join_next().is_none(), "the flood ended before the work did");
    flood.shutdown().await;
    executor.end().await;
    agents.end().await;
}
