//! An agent of several processes behind a gateway: callers cannot tell it from an agent of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_agent::Agent;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::support::{GatewayWorld, PATIENCE, message, state};

/// Calls that together reach each of three processes.
const CALLS: u64 = 12;

/// Serves three processes of agent `one`, which know each other when this returns.
async fn serve_three(world: &GatewayWorld, agent: impl Fn() -> Agent) {
    let client = world.mesh.client();
    let mut words = client.subscribe("test.v1.replica.one.*").await.unwrap();
    client.flush().await.unwrap();
    for others in 0..3 {
        world.serve(agent()).await;
        let known = async {
            let mut heard = 0;
            while heard < others {
                // Each of the others answers the greeting of the new process under its own subject.
                let word = words.next().await.unwrap();
                let body: Value = serde_json::from_slice(&word.payload).unwrap_or_default();
                if !word.subject.as_str().ends_with("one.all") && body.get("here").is_some() {
                    heard += 1;
                }
            }
        };
        timeout(PATIENCE, known).await.unwrap();
    }
}

#[tokio::test]
async fn any_process_answers_for_a_task_of_another_one() {
    let short = Duration::from_millis(200);
    let world = GatewayWorld::with(&[], |options| options.limits.agent_silence = short).await;
    let (begun, mut begins) = mpsc::unbounded_channel();
    let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let agent = || {
        let (begun, gate, runs) = (begun.clone(), Arc::clone(&gate), Arc::clone(&runs));
        Agent::dynamic("one", None, None, move |input: Value, context| {
            runs.fetch_add(1, Ordering::SeqCst);
            begun.send(()).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                tokio::select! {
                    permit = gate.acquire() => permit?.forget(),
                    () = context.cancel().cancelled() => {}
                }
                Ok(input)
            }
        })
    };
    serve_three(&world, agent).await;

    // A blocking call that the gateway does not wait for at the agent: it looks for the task.
    let params = message("m", json!([{"data": {"value": "v"}}]));
    let mut at_once = params.clone();
    at_once["configuration"] = json!({"returnImmediately": true});
    let looked_at = async {
        begins.recv().await.unwrap();
        for _ in 0..CALLS {
            let again = world.rpc("/agents/one", "SendMessage", &at_once).await;
            let id = again["result"]["task"]["id"].clone();
            let got = world.rpc("/agents/one", "GetTask", &json!({"id": id})).await;
            assert_eq!(state(&got["result"]), "TASK_STATE_WORKING", "{again} {got}");
        }
        gate.add_permits(1);
    };
    let both = async { tokio::join!(world.rpc("/agents/one", "SendMessage", &params), looked_at) };
    let (answer, ()) = timeout(PATIENCE, both).await.unwrap();
    assert_eq!(state(&answer["result"]["task"]), "TASK_STATE_COMPLETED", "{answer}");
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the same message is the same task");

    for nth in 0..CALLS {
        let mut params = message(&format!("c{nth}"), json!([{"data": {"value": "v"}}]));
        params["configuration"] = json!({"returnImmediately": true});
        let sent = world.rpc("/agents/one", "SendMessage", &params).await;
        begins.recv().await.unwrap();
        let id = sent["result"]["task"]["id"].clone();
        let cancelled = world.rpc("/agents/one", "CancelTask", &json!({"id": id})).await;
        assert_eq!(state(&cancelled["result"]), "TASK_STATE_CANCELED", "{cancelled}");
    }
    assert_eq!(world.task_count().await, 1 + CALLS, "a list has the tasks of all processes");
    world.end().await;
}
