//! How an agent comes, stays and goes: its card, its process, brokers that die under it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::similar_names,
    clippy::cast_possible_truncation,
    reason = "a test says what is wrong by panicking"
)]

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Context};
use sinew_mesh::async_nats::jetstream::stream::Config;
use sinew_mesh::card::Cards;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Connect, Mesh, Provision};
use sinew_protocol::Token;
use sinew_protocol::task::NodeOutput;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use common::{PATIENCE, asked, call, message, results, serve, settled};

use crate::common;

/// An agent that says on `entered` that it has begun, and ends when `gate` lets it.
fn gated(entered: &Arc<Semaphore>, gate: &Arc<Semaphore>) -> Agent {
    let (entered, gate) = (Arc::clone(entered), Arc::clone(gate));
    Agent::dynamic("gated", None, None, move |input, _: Context| {
        let (entered, gate) = (Arc::clone(&entered), Arc::clone(&gate));
        async move {
            entered.add_permits(1);
            gate.acquire().await?.forget();
            Ok(input)
        }
    })
}

fn gates() -> (Arc<Semaphore>, Arc<Semaphore>) {
    (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)))
}

async fn begun(entered: &Semaphore, tasks: u32) {
    timeout(PATIENCE, entered.acquire_many(tasks)).await.expect("the work begins").unwrap().forget();
}

/// Waits until the view knows, or does not know, an agent.
async fn known(cards: &mut Cards, agent: &str, there: bool) {
    let changed = async {
        while cards.get(agent).is_some() != there {
            cards.changed().await;
        }
    };
    timeout(PATIENCE, changed).await.expect("the card changes");
}

#[tokio::test]
async fn a_leaving_agent_finishes_what_it_has_begun() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let (entered, gate) = gates();
    let served = serve(&server, &mesh, gated(&entered, &gate).concurrency(2)).await;
    asked(&mesh, "gated", 1).send(&mesh, json!(1)).await;
    let caller = tokio::spawn({
        let mesh = mesh.clone();
        async move { call(&mesh, "gated", "SendMessage", message("m", "hi")).await.0 }
    });
    begun(&entered, 2).await;
    let mut cards = mesh.cards().follow();
    known(&mut cards, "gated", true).await;
    served.stop.cancel();
    known(&mut cards, "gated", false).await;
    // It takes nothing new while it waits.
    asked(&mesh, "gated", 2).send(&mesh, json!(2)).await;
    gate.add_permits(2);
    served.stop().await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!(1)));
    assert_eq!(caller.await.unwrap()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(entered.available_permits(), 0, "the second task is left to others");
    assert_eq!(results.left(&mesh).await, 0);
}

#[tokio::test]
async fn what_is_not_done_in_the_grace_time_goes_to_others() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let (entered, gate) = gates();
    let served = serve(&server, &mesh, gated(&entered, &gate).grace(Duration::from_millis(10))).await;
    let one = asked(&mesh, "gated", 1);
    one.send(&mesh, json!("kept")).await;
    let caller = tokio::spawn({
        let mesh = mesh.clone();
        async move { call(&mesh, "gated", "SendMessage", message("m", "hi")).await.0 }
    });
    begun(&entered, 2).await;
    served.stop().await;
    let error = caller.await.unwrap();
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(error["data"][0]["metadata"]["code"], "SINEW-5111", "{error}");
    assert!(one.stored(&mesh).await.is_none());
    gate.add_permits(1);
    let other = serve(&server, &mesh, gated(&entered, &gate)).await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!("kept")));
    settled(&mesh, "gated").await;
    assert_eq!(results.left(&mesh).await, 0);
    other.stop().await;
}

#[tokio::test]
async fn a_card_stays_as_long_as_one_process_does() {
    let (server, mesh) = common::mesh().await;
    let (entered, gate) = gates();
    let first = serve(&server, &mesh, gated(&entered, &gate).description("Waits.")).await;
    let second = serve(&server, &mesh, gated(&entered, &gate).description("Waits.")).await;
    let mut cards = mesh.cards().follow();
    known(&mut cards, "gated", true).await;
    assert_eq!(cards.get("gated").unwrap().card.description, "Waits.");
    let mut said = mesh.client().subscribe("test.v1.card.gated").await.unwrap();
    common::sync(&mesh).await;
    first.stop().await;
    let heard = async {
        while !said.next().await.unwrap().payload.is_empty() {}
        said.next().await.unwrap()
    };
    let again = timeout(PATIENCE / 2, heard).await;
    let again =
        again.expect("the first takes the card with it, the second puts it back before it would repeat it");
    assert!(!again.payload.is_empty());
    known(&mut cards, "gated", true).await;
    second.stop().await;
    known(&mut cards, "gated", false).await;
}

#[tokio::test]
async fn operators_see_a_micro_service() {
    let (server, mesh) = common::mesh().await;
    let (entered, gate) = gates();
    gate.add_permits(3);
    let served = serve(&server, &mesh, gated(&entered, &gate).version("2.1.0")).await;
    for n in 0..3 {
        call(&mesh, "gated", "SendMessage", message(&n.to_string(), "hi")).await;
    }
    let ask = async |what: &str| -> Value {
        let reply = mesh.client().request(format!("$SRV.{what}.gated"), "".into()).await.unwrap();
        serde_json::from_slice(&reply.payload).unwrap()
    };
    assert_eq!(ask("PING").await["version"], "2.1.0");
    let info = ask("INFO").await;
    assert_eq!(info["endpoints"][0]["subject"], "test.v1.rpc.gated.*.*");
    assert_eq!(info["metadata"]["sinew_agent"], "gated");
    assert_eq!(ask("STATS").await["endpoints"][0]["num_requests"], 3);
    served.stop().await;
    assert!(mesh.client().request("$SRV.PING.gated", "".into()).await.is_err(), "it is gone");
}

#[tokio::test]
async fn a_broker_that_dies_costs_no_result() {
    let (mut server, mesh) = common::mesh().await;
    let (entered, gate) = gates();
    let served = serve(&server, &mesh, gated(&entered, &gate)).await;
    let tasks: Vec<_> = (0..4).map(|n| asked(&mesh, "gated", n)).collect();
    for task in &tasks {
        task.send(&mesh, json!("done")).await;
    }
    begun(&entered, 4).await;
    server.kill9().await.unwrap();
    gate.add_permits(8);
    server.restart().await.unwrap();
    let mut last = None;
    for task in &tasks {
        let stored = async {
            loop {
                if let Some(found) = task.stored(&mesh).await {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        last = Some(timeout(PATIENCE, stored).await.expect("the result arrives"));
    }
    assert_eq!(last.unwrap().artifacts.unwrap().len(), 1);
    settled(&mesh, "gated").await;
    assert_eq!(entered.available_permits(), 0, "each was done once");
    served.stop().await;
}

#[tokio::test]
async fn a_long_task_is_not_given_to_others() {
    let (server, mesh) = common::mesh().await;
    let (entered, gate) = gates();
    let served = serve(&server, &mesh, gated(&entered, &gate)).await;
    let mut acks = mesh.client().subscribe("$JS.ACK.>").await.unwrap();
    common::sync(&mesh).await;
    asked(&mesh, "gated", 1).send(&mesh, json!(1)).await;
    begun(&entered, 1).await;
    let ack = timeout(PATIENCE, acks.next()).await.expect("the queue hears that the work goes on").unwrap();
    assert_eq!(ack.payload, "+WPI");
    gate.add_permits(1);
    let ack = timeout(PATIENCE, acks.next()).await.expect("and that it is done").unwrap();
    assert_eq!(ack.payload, "+ACK");
    assert!(ack.reply.is_some(), "the agent waits for the server to confirm");
    served.stop().await;
}

#[tokio::test]
async fn handlers_call_agents_and_workflows_by_name() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let front = Agent::dynamic("front", None, None, async |_, context: Context| {
        let names: Vec<String> = context.peers().await?.into_iter().map(|card| card.name).collect();
        let echoed = context.call("echo", json!({"n": 1})).await?;
        let large = context.call("echo", json!("x".repeat(200_000))).await?;
        let refused = context.call("echo", json!(7)).await.unwrap_err().into_fault();
        let nobody = context.call("nobody", json!(7)).await.unwrap_err().into_fault();
        let tools = context.tools().await?;
        let asked = context.call_tool("workflow_flow", &json!({"n": 2, "input_artifact": null})).await?;
        let bad = context.call_tool("workflow_flow", &json!({"n": "two"})).await.unwrap_err().into_fault();
        // The result of a call is an artifact of the caller: the next call names it.
        let chained = json!({"input_artifact": "flow_result.json:0", "n": null});
        let chained = context.call_tool("workflow_flow", &chained).await?;
        let versions: Vec<u32> = context
            .artifacts()
            .list()
            .iter()
            .filter(|meta| meta.name.as_str() == "flow_result.json")
            .map(|meta| meta.version)
            .collect();
        assert_eq!(versions, [0, 1]);
        context.artifacts().put_json("in.json", &json!({"n": 3}))?;
        let named = context.call_tool("workflow_flow", &json!({"input_artifact": "in.json"})).await?;
        let peer = context.call_tool("peer_echo", &json!({"n": 4})).await?;
        let wrong = context.call_tool("peer_echo", &json!({"n": "four"})).await.unwrap_err().into_fault();
        let stored: Vec<String> =
            context.artifacts().list().iter().map(|meta| meta.name.to_string()).collect();
        assert!(stored.contains(&"wi_flow.json".to_owned()), "{stored:?}");
        Ok(json!({
            "names": names,
            "echoed": echoed,
            "large": large.as_str().map(str::len),
            "codes": [refused.code, nobody.code, bad.code, wrong.code],
            "tools": tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>(),
            "asked": asked,
            "chained": chained,
            "named": named,
            "peer": peer,
        }))
    });
    let schema = json!({"type": ["object", "string"], "properties": {"n": {"type": "integer"}}});
    let echo = |name: &str| Agent::dynamic(name, Some(schema.clone()), None, async |input, _| Ok(input));
    let served = [
        serve(&server, &mesh, echo("echo")).await,
        serve(&server, &mesh, echo("flow")).await,
        serve(&server, &mesh, front).await,
    ];
    // An executor announces workflows like this.
    let mut card = echo("flow").announcement();
    card.kind = sinew_protocol::card::AgentKind::Workflow;
    mesh.cards().announce(&card.card("test")).await.unwrap();
    asked(&mesh, "front", 1).send(&mesh, json!(1)).await;
    let want = json!({
        "names": ["echo", "flow", "front"],
        "echoed": {"n": 1},
        "large": 200_000,
        "codes": ["SINEW-5102", "SINEW-5110", "SINEW-4101", "SINEW-4101"],
        "tools": ["peer_echo", "workflow_flow"],
        "asked": {"n": 2},
        "chained": {"n": 2},
        "named": {"n": 3},
        "peer": {"n": 4},
    });
    assert_eq!(results.next().await.output, NodeOutput::Value(want));
    for served in served {
        served.stop().await;
    }
}

#[tokio::test]
async fn calls_of_one_key_are_one_call() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let worked = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = Arc::clone(&worked);
    let pay = Agent::dynamic("pay", None, None, move |input: Value, _: Context| {
        let worked = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move { Ok(json!({"paid": input["amount"], "nth": worked})) }
    });
    let front = Agent::dynamic("front", None, None, async |_, context: Context| {
        let first = context.call_keyed("pay", "turn 1", json!({"amount": 5})).await?;
        // A model words the same call in another way after a crash.
        let again = context.call_keyed("pay", "turn 1", json!({"amount": 5.0, "note": "please"})).await?;
        let other = context.call_keyed("pay", "turn 2", json!({"amount": 5})).await?;
        Ok(json!([first, again, other]))
    });
    let served = [serve(&server, &mesh, pay).await, serve(&server, &mesh, front).await];
    asked(&mesh, "front", 1).send(&mesh, json!(1)).await;
    let (first, other) = (json!({"paid": 5, "nth": 0}), json!({"paid": 5, "nth": 1}));
    assert_eq!(results.next().await.output, NodeOutput::Value(json!([first, first, other])));
    assert_eq!(worked.load(std::sync::atomic::Ordering::SeqCst), 2);
    for served in served {
        served.stop().await;
    }
}

/// Not a test of its own: the process that [`a_process_ends_when_it_is_told_to`] starts.
#[tokio::test]
#[ignore = "started by another test as a process"]
async fn a_process() {
    let agent = Agent::dynamic("process", None, None, async |input, _| Ok(input));
    agent.run().await.unwrap();
}

/// This program, running nothing but [`a_process`].
fn process(mesh: &Mesh, url: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "life::a_process", "--ignored"])
        .env("NATS_URL", url)
        .env("SINEW_NAMESPACE", mesh.namespace())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn a_process_ends_when_it_is_told_to() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let mut cards = mesh.cards().follow();
    let mut child = process(&mesh, &server.url()).spawn().unwrap();
    known(&mut cards, "process", true).await;
    asked(&mesh, "process", 1).send(&mesh, json!("hi")).await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!("hi")));
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    let ended = timeout(PATIENCE, child.wait()).await.expect("it ends").unwrap();
    assert!(ended.success());
    known(&mut cards, "process", false).await;
}

#[tokio::test]
async fn a_process_that_is_killed_leaves_its_task_to_the_next() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let mut cards = mesh.cards().follow();
    let mut child = process(&mesh, &server.url()).spawn().unwrap();
    known(&mut cards, "process", true).await;
    child.kill().await.unwrap();
    asked(&mesh, "process", 1).send(&mesh, json!("hi")).await;
    let _next = process(&mesh, &server.url()).spawn().unwrap();
    assert_eq!(results.next().await.output, NodeOutput::Value(json!("hi")));
    settled(&mesh, "process").await;
    assert_eq!(results.left(&mesh).await, 0);
}

#[tokio::test]
async fn an_agent_outlives_a_server_that_is_full() {
    let options = ServerOptions { store_limit: Some(1024 * 1024), ..ServerOptions::default() };
    let server = Server::start(options).await.unwrap();
    let mesh = common::connect(&server.url(), "exec").await;
    mesh.admin().provision(&Provision::default()).await.unwrap();
    let filler = Config { name: "filler".into(), subjects: vec!["filler".into()], ..Config::default() };
    mesh.admin().jetstream().create_stream(filler).await.unwrap();
    let mut size = 256 * 1024;
    while size > 0 {
        let stored = mesh.admin().jetstream().publish("filler", vec![b'x'; size].into()).await.unwrap().await;
        size = if stored.is_ok() { size } else { size / 2 };
    }
    let (entered, gate) = gates();
    let mut cards = mesh.cards().follow();
    // Its first card is refused: error 503/10023, as at any heartbeat.
    let served = serve(&server, &mesh, gated(&entered, &gate)).await;
    let mut said = mesh.client().subscribe("test.v1.card.gated").await.unwrap();
    timeout(PATIENCE, said.next()).await.expect("it says so again").unwrap();
    assert!(cards.get("gated").is_none());
    mesh.admin().jetstream().delete_stream("filler").await.unwrap();
    known(&mut cards, "gated", true).await;
    served.stop().await;
}

#[tokio::test]
async fn an_agent_leaves_in_time_while_the_broker_hangs() {
    const GRACE: Duration = Duration::from_millis(500);
    let (server, mesh) = common::mesh().await;
    let (entered, gate) = gates();
    let served = serve(&server, &mesh, gated(&entered, &gate).concurrency(2).grace(GRACE)).await;
    for n in 0..2 {
        asked(&mesh, "gated", n).send(&mesh, json!(n)).await;
    }
    begun(&entered, 2).await;
    server.pause().await.unwrap();
    // One task has a result that cannot be stored, the other is not done.
    gate.add_permits(1);
    // The grace time, five seconds for last words, and some for a busy machine.
    let left = timeout(GRACE + Duration::from_secs(7), served.stop()).await;
    server.resume().unwrap();
    left.expect("the agent still waits for the broker");
}

/// Malformed messages to the questions of micro services cost an agent two connections, not one each.
#[tokio::test]
async fn a_broken_connection_is_left_with_everything_that_listens_on_it() {
    let (server, mesh) = common::mesh().await;
    let connect = Connect { url: Some(server.url()), namespace: Some("test".into()), ..Connect::default() };
    let own = connect.open().await.unwrap();
    let first = own.client().statistics();
    let (entered, gate) = gates();
    let mut cards = mesh.cards().follow();
    let stop = CancellationToken::new();
    let served = tokio::spawn(gated(&entered, &gate).serve(own.clone(), stop.clone()));
    known(&mut cards, "gated", true).await;
    let mut wire = TcpStream::connect(server.url().trim_start_matches("nats://")).await.unwrap();
    wire.write_all(b"CONNECT {\"verbose\":false,\"headers\":true}\r\n").await.unwrap();
    let malformed = async {
        while !own.admin().is_screened() || Arc::strong_count(&first) > 1 {
            wire.write_all(b"HPUB $SRV.PING 22 22\r\nNATS/1.0\r\nno colon\r\n\r\n\r\n").await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, malformed).await.expect("the first connection is still in use");
    let answer = mesh.client().request("$SRV.PING.gated", "".into()).await.unwrap();
    assert!(answer.payload.starts_with(b"{"), "{answer:?}");
    stop.cancel();
    timeout(PATIENCE, served).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_agent_that_may_not_hear_its_calls_announces_no_card() {
    let config = r#"
        authorization { users: [
            { user: admin, password: a }
            { user: gated, password: b, permissions: { publish: { allow: [">"] }, subscribe: { allow: ["_INBOX.>"] } } }
        ] }"#;
    let options = ServerOptions { config_extra: Some(config.to_owned()), ..ServerOptions::default() };
    let server = Server::start(options).await.unwrap();
    let connect = async |user: &str, password: &str| {
        let options =
            sinew_mesh::async_nats::ConnectOptions::with_user_and_password(user.into(), password.into());
        Mesh::new(options.connect(server.url()).await.unwrap(), "test", user)
    };
    let admin = connect("admin", "a").await;
    admin.admin().provision(&Provision::default()).await.unwrap();
    let (entered, gate) = gates();
    let served = gated(&entered, &gate).serve(connect("gated", "b").await, CancellationToken::new());
    let error = timeout(PATIENCE, served).await.expect("it does not wait for calls").unwrap_err();
    assert_eq!(
        error.to_string(),
        "gated is not permitted to subscribe to test.v1.rpc.gated.>: requires the role agent or executor"
    );
    assert!(admin.cards().get(&Token::of("gated")).await.unwrap().is_none());
}
