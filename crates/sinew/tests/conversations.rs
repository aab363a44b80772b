//! Calls of agents by agents, whose processes are killed. Conversations whose processes are killed: `sinew-chaos`.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken};
use sinew_mesh::async_nats::HeaderMap;
use sinew_protocol::a2a::{CoreMethod, Message, Part, SendMessageRequest};
use sinew_protocol::header;
use sinew_protocol::jsonrpc::{Method, Request, Response};
use sinew_protocol::task::{NodeOutput, read_result};

use crate::common::{POLL_INTERVAL, World};

/// Longer than any call takes.
const PATIENCE: Duration = Duration::from_mins(8);

/// Hangs the first time, until the test is over, and answers the second time.
const COURIER: &str = r#"
name: Courier
run:
  command:
    argv: [/bin/sh, -c, "echo asked >> LEDGER; if [ -e MARK ]; then cat; else touch MARK; while [ -e MARK ]; do sleep 1; done; fi"]
"#;

#[test]
fn a_call_outlives_the_agent_that_is_called() {
    let (world, _executor) = World::new();
    let (mark, ledger) = (world.path().join("mark"), world.path().join("ledger"));
    let courier = COURIER.replace("MARK", &mark.display().to_string());
    world.write("courier.agent.yaml", &courier.replace("LEDGER", &ledger.display().to_string()));
    let mut courier = world.serve(&["serve", "agent", "courier.agent.yaml"]);
    let asker = Agent::dynamic("Asker", None, None, async |input: Value, context: sinew_agent::Context| {
        context.call("Courier", input).await
    });
    world.runtime.block_on(async {
        tokio::spawn(asker.serve(world.connect("agent").await, CancellationToken::new()));
    });
    world.online(&["Courier", "Asker"]);
    let mesh = world.runtime.block_on(world.connect("client"));
    // Until the executor answers for the agent, callers go to its own door.
    world.answered_for("Courier");
    let message = Message::user("m", vec![Part::data(json!({"order": "A-17"}))]);
    let request = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
    let method = Method::Core(CoreMethod::SendMessage);
    let body = Request::new("1", method, &request).to_bytes();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, "1.0");
    let asked = {
        let mesh = mesh.clone();
        world.runtime.spawn(async move {
            mesh.services().call_rpc("Asker", method.as_str(), headers, body, PATIENCE).await
        })
    };
    while !mark.exists() {
        std::thread::sleep(POLL_INTERVAL);
    }
    courier.0.kill().unwrap();
    courier.0.wait().unwrap();
    let died = std::time::Instant::now();
    let _again = world.serve(&["serve", "agent", "courier.agent.yaml"]);
    let reply = world.runtime.block_on(asked).unwrap().unwrap();
    let waited = died.elapsed();
    let result = Response::read(&reply.body).unwrap().into_result().unwrap();
    let task = serde_json::from_value(result["task"].clone()).unwrap();
    assert_eq!(read_result(&task).unwrap().output, NodeOutput::Value(json!({"order": "A-17"})));
    assert_eq!(
        std::fs::read_to_string(ledger).unwrap().lines().count(),
        2,
        "asked once more, not once too often"
    );
    let calls = world.json(&["execution", "list", "--workflow", "call:Courier"]);
    assert_eq!(calls.as_array().unwrap().len(), 1, "the agent was asked by an execution: {calls}");
    // The queue's 7 s, the caller's look every 5 s, and a slow machine.
    assert!(waited < Duration::from_mins(1), "{waited:?}");
}
