//! Calls at a door, as any client of the binding makes them.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken};
use sinew_mesh::{HeaderMap, Mesh, MeshError};
use sinew_protocol::header;

use crate::support::mesh::{PATIENCE, Site};

/// Returns the result or error of a call, and the number of the last event before it.
pub(crate) async fn call(mesh: &Mesh, agent: &str, method: &str, params: Value) -> (Value, Option<u64>) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut headers = HeaderMap::new();
    headers.insert(header::A2A_VERSION, "1.0");
    let reply = loop {
        match mesh.services().call_rpc(agent, method, headers.clone(), body.clone().into(), PATIENCE).await {
            // Executors open the door of a workflow soon after it was deployed.
            Err(MeshError::NobodyAnswers { .. }) => tokio::task::yield_now().await,
            reply => break reply.unwrap(),
        }
    };
    assert_eq!(reply.headers.get(header::A2A_VERSION).unwrap().as_str(), "1.0");
    let seq = reply.headers.get(header::A2A_SEQ).map(|seq| seq.as_str().parse().unwrap());
    let mut body: Value = serde_json::from_slice(&reply.body).unwrap();
    let said = if body.get("error").is_some() { &mut body["error"] } else { &mut body["result"] };
    (said.take(), seq)
}

/// A message with these parts.
#[expect(clippy::needless_pass_by_value, reason = "parts are written where they are given")]
pub(crate) fn message(id: &str, parts: Value) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": parts}})
}

/// A message that wants no more than that the work begins.
pub(crate) fn at_once(id: &str, parts: Value) -> Value {
    let mut message = message(id, parts);
    message["configuration"] = json!({"returnImmediately": true});
    message
}

pub(crate) fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_else(|| panic!("no task: {task}"))
}

/// The code of ours in an error.
pub(crate) fn code(error: &Value) -> &str {
    let ours = error["data"].as_array().into_iter().flatten();
    let mut codes = ours.filter_map(|detail| detail["metadata"]["code"].as_str());
    codes.next().unwrap_or_else(|| panic!("no code of ours: {error}"))
}

/// Serves an agent of this process until the guard is dropped; its card is there when this returns.
pub(crate) async fn serve(site: &Site, agent: Agent) -> Served {
    let name = agent.name().to_owned();
    let own = site.connect(&name).await;
    let cards = own.cards().follow();
    let stop = CancellationToken::new();
    tokio::spawn(agent.grace(Duration::from_millis(100)).serve(own, stop.clone()));
    tokio::time::timeout(PATIENCE, cards.wait_for(&name)).await.unwrap();
    Served { _stop: stop.drop_guard() }
}

/// An agent that is being served.
pub(crate) struct Served {
    _stop: tokio_util::sync::DropGuard,
}
