//! Usage of attempts whose answers do not count: of attempts that timed out, and of executions that were cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Context, Delivery, EffectClass, Failure};
use sinew_engine::TerminalStatus;
use sinew_protocol::ExecutionId;
use sinew_protocol::usage::ModelTotals;
use tokio::sync::Notify;

use crate::faults::audit::{ended, single};
use crate::faults::ended_work::cancel;
use crate::support::mesh::{PATIENCE, Site, TestMesh, start};

/// A model that calls a tool which does not return before its task is cancelled.
const CLERK: &str = r"
name: one
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        answers:
          - {call: {hold: {order: A-17}}}
";

/// By queue, at the node endpoint, and at the A2A endpoint.
const DELIVERIES: [(Delivery, bool); 3] =
    [(Delivery::Queue, true), (Delivery::Direct, true), (Delivery::Direct, false)];

/// Waits until the archive of an execution has these numbers of turns.
async fn until_archived(site: &Site, execution: &ExecutionId, turns: u64) -> ModelTotals {
    let archived = async {
        loop {
            match site.mesh.history().get(execution).await.unwrap() {
                Some((closed, _)) if closed.usage.turns >= turns => return closed.usage,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    let usage = tokio::time::timeout(PATIENCE, archived).await;
    usage.unwrap_or_else(|_| panic!("the archive of {execution} has not {turns} turns"))
}

async fn serve(site: &Site, agent: Agent) {
    let mesh = site.connect("agent").await;
    tokio::spawn(agent.serve(mesh, CancellationToken::new()));
}

/// The first attempt works until its time is over, the second one answers.
#[tokio::test]
async fn usage_of_an_attempt_that_timed_out_counts() {
    for (delivery, short_form) in DELIVERIES {
        let site = TestMesh::new().await;
        site.deploy("single", &single(", timeout: 3s, retryStrategy: {limit: 1}")).await;
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let work = move |_: Value, context: Context| {
            let is_first = counted.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                context.usage(json!({ "turns": 1, "input_tokens": 5, "cost_usd": 0.25 }));
                if is_first {
                    context.cancel().cancelled().await;
                }
                Ok::<_, Failure>(json!({ "value": "done" }))
            }
        };
        serve(&site, Agent::dynamic("one", None, None, work).delivery(delivery).node_requests(short_form))
            .await;
        let _executor = site.executor("one").await;
        let client = site.client().await;
        let command = start(&client, "k", "single", json!({ "value": 1 }));
        let execution = command.execution.clone();
        client.start(command).await.unwrap();
        assert_eq!(
            ended(&client, &execution).await.status,
            TerminalStatus::Success,
            "{delivery:?} {short_form}"
        );
        let usage = until_archived(&site, &execution, 2).await;
        assert_eq!(usage.turns, calls.load(Ordering::Relaxed), "{delivery:?} {short_form}");
        assert_eq!((usage.input_tokens, usage.cost_usd), (10, Some(0.5)), "{delivery:?} {short_form}");
    }
}

/// The execution of a model agent is cancelled after the agent's first turn.
#[tokio::test]
async fn usage_of_a_cancelled_model_agent_counts() {
    for (delivery, short_form) in DELIVERIES {
        let site = TestMesh::new().await;
        site.deploy("single", &single("")).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.agent.yaml");
        std::fs::write(&path, CLERK).unwrap();
        let asked = Arc::new(Notify::new());
        let told = Arc::clone(&asked);
        let hold = move |_: Value, context: Context| {
            told.notify_one();
            async move {
                context.cancel().cancelled().await;
                Ok::<_, Failure>(json!("held"))
            }
        };
        let agent = Agent::from_file(&path).unwrap().tool("hold", "Waits.", EffectClass::Read, hold);
        serve(&site, agent.into_agent().delivery(delivery).node_requests(short_form)).await;
        let _executor = site.executor("one").await;
        let client = site.client().await;
        let command = start(&client, "k", "single", json!({ "value": 1 }));
        let execution = command.execution.clone();
        client.start(command).await.unwrap();
        tokio::time::timeout(PATIENCE, asked.notified()).await.unwrap();
        cancel(&client, &execution).await;
        assert_eq!(
            ended(&client, &execution).await.status,
            TerminalStatus::Cancelled,
            "{delivery:?} {short_form}"
        );
        assert_eq!(until_archived(&site, &execution, 1).await.turns, 1, "{delivery:?} {short_form}");
    }
}
