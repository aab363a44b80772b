//! Model agents on a mesh whose processes are killed: recorded turns are not asked again, tools that act are called at most
//! once, and every conversation ends.
//!
//! `SINEW_CONVERSATIONS=200` and `SINEW_KILLS=60` run a longer form.
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken};
use sinew_mesh::Mesh;
use sinew_mesh::async_nats::HeaderMap;
use sinew_protocol::a2a::{CoreMethod, Message, Part, SendMessageRequest};
use sinew_protocol::jsonrpc::{Method, Request, Response};
use sinew_protocol::task::{NodeOutput, read_result};
use sinew_protocol::{Subject, header};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use crate::common::{Role, World};

/// Longer than any conversation takes.
const PATIENCE: Duration = Duration::from_mins(8);
/// Conversations that are under way at the same time.
const AT_ONCE: usize = 16;
/// Processes of the model agent.
const REPLICAS: usize = 2;

/// The agent. `URL` is that of the provider.
const CLERK: &str = r#"
name: Clerk
concurrency: 8
run:
  model:
    use: [main]
    models:
      main:
        provider: openai
        model: fake
        url: URL
        allow_private: true
        headers: {X-Replica: "${env:REPLICA}"}
        caps: {stream: false}
    tools:
      - {peer: Look, effect: repeat, trust: own}
      - {peer: Act, effect: once, trust: own}
"#;

/// Everything outside the agent: what it was asked to do, and who is to be killed.
struct Ledger {
    /// Model calls by conversation and turn.
    asked: Mutex<BTreeMap<(String, usize), u32>>,
    /// Work of tools, by tool and what they were told.
    done: Mutex<BTreeMap<String, u32>>,
    /// Kills that are left.
    kills: Mutex<u32>,
    killer: mpsc::UnboundedSender<usize>,
    /// The replica that last asked in a conversation.
    holders: Mutex<HashMap<String, usize>>,
}

/// Places at which a replica is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The provider has been asked, and nobody has heard the answer.
    Asked,
    /// The provider has answered.
    Answered,
    /// A tool works.
    Working,
    /// A tool has answered.
    Worked,
}

impl Ledger {
    /// Kills the replica that holds a conversation, if this is the moment for it: every fifth kind of place of the script.
    fn perhaps_kill(&self, conversation: &str, at: usize, moment: Moment) -> bool {
        let number: usize = conversation.trim_start_matches('c').parse().unwrap_or_default();
        let moments = [Moment::Asked, Moment::Answered, Moment::Working, Moment::Worked];
        if moments[(number + at) % moments.len()] != moment || !(number / 4 + at).is_multiple_of(3) {
            return false;
        }
        let Some(replica) = self.holders.lock().unwrap().get(conversation).copied() else { return false };
        let mut kills = self.kills.lock().unwrap();
        if *kills == 0 {
            return false;
        }
        *kills -= 1;
        let _ = self.killer.send(replica);
        true
    }
}

/// Answers of the model: two calls, one more call, the end.
fn answer(conversation: &str, turn: usize) -> Value {
    let call = |index: usize, tool: &str| {
        let arguments = json!({"id": format!("{conversation}-{turn}-{index}")}).to_string();
        let function = json!({"name": format!("peer_{tool}"), "arguments": arguments});
        json!({"id": format!("call-{turn}-{index}"), "type": "function", "function": function})
    };
    let message = match turn {
        0 => json!({"role": "assistant", "content": null, "tool_calls": [call(0, "Look"), call(1, "Act")]}),
        1 => json!({"role": "assistant", "content": null, "tool_calls": [call(0, "Act")]}),
        _ => json!({"role": "assistant", "content": format!("{conversation} done")}),
    };
    let finish = if turn < 2 { "tool_calls" } else { "stop" };
    json!({
        "model": "fake-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2},
    })
}

async fn provide(listener: TcpListener, ledger: Arc<Ledger>) {
    while let Ok((stream, _)) = listener.accept().await {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move { provide_one(stream, &ledger).await });
    }
}

async fn provide_one(mut stream: TcpStream, ledger: &Ledger) -> Option<()> {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length? {
                break (head.to_owned(), body.to_owned());
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let replica =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("x-replica: ")?.parse().ok());
    let body: Value = serde_json::from_str(&body).ok()?;
    let messages = body["messages"].as_array()?;
    let said = |role: &'static str| messages.iter().filter(move |message| message["role"] == role);
    let conversation = said("user").next()?["content"].as_str()?.to_owned();
    let turn = said("assistant").count();
    ledger.holders.lock().unwrap().insert(conversation.clone(), replica?);
    *ledger.asked.lock().unwrap().entry((conversation.clone(), turn)).or_default() += 1;
    if ledger.perhaps_kill(&conversation, turn, Moment::Asked) {
        // The process is gone before it could hear an answer.
        let _gone = stream.read(&mut [0; 1]).await;
        return None;
    }
    let body = answer(&conversation, turn).to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    ledger.perhaps_kill(&conversation, turn, Moment::Answered);
    Some(())
}

/// A tool that notes its work.
fn tool(name: &'static str, ledger: &Arc<Ledger>) -> Agent {
    let ledger = Arc::clone(ledger);
    let input = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}});
    Agent::dynamic(name, Some(input), None, move |input: Value, _| {
        let ledger = Arc::clone(&ledger);
        async move {
            let id = input["id"].as_str().unwrap_or_default().to_owned();
            let mut parts = id.split('-');
            let conversation = parts.next().unwrap_or_default().to_owned();
            let turn: usize = parts.next().and_then(|turn| turn.parse().ok()).unwrap_or_default();
            *ledger.done.lock().unwrap().entry(format!("{name} {id}")).or_default() += 1;
            ledger.perhaps_kill(&conversation, turn, Moment::Working);
            tokio::task::yield_now().await;
            ledger.perhaps_kill(&conversation, turn, Moment::Worked);
            Ok(json!({"id": id}))
        }
    })
}

/// Starts a replica, and starts it again whenever it is killed.
fn replica(world: &World, number: usize) -> Role {
    let log = std::fs::File::options().create(true).append(true).open(world.path().join("roles.log"));
    let mut command = world.command(&["serve", "agent", "clerk.agent.yaml"]);
    command.env("REPLICA", number.to_string()).stdout(std::process::Stdio::null()).stderr(log.unwrap());
    Role(command.spawn().unwrap())
}

/// Holds a conversation through an executor, as a caller does that survives nothing itself.
async fn converse(mesh: Mesh, conversation: String) -> Result<Value, String> {
    let message = Message::user(format!("m-{conversation}"), vec![Part::data(json!({"text": conversation}))]);
    let request = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
    let method = Method::Core(CoreMethod::SendMessage);
    let body = Request::new("1", method, &request).to_bytes();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, "1.0");
    let reply = mesh.services().call_rpc("call:Clerk", method.as_str(), headers, body, PATIENCE).await;
    let reply = reply.map_err(|error| format!("{conversation}: {error}"))?;
    let result = Response::read(&reply.body).map_err(|error| error.to_string())?.into_result();
    let result = result.map_err(|error| format!("{conversation}: {error:?}"))?;
    let task = serde_json::from_value(result["task"].clone()).map_err(|error| error.to_string())?;
    let result = read_result(&task).map_err(|error| error.to_string())?;
    match (result.output, result.fault) {
        (NodeOutput::Value(value), None) => Ok(value["output"]["text"].clone()),
        (_, fault) => Err(format!("{conversation}: {fault:?}")),
    }
}

/// The logs of the agent: by activation, the kinds of the records in order, with their turn.
async fn logs(mesh: &Mesh) -> BTreeMap<String, Vec<(String, Value)>> {
    let mut stream = mesh.admin().jetstream().get_stream("sinew_STEPS").await.unwrap();
    let last = stream.info().await.unwrap().state.last_sequence;
    let mut logs: BTreeMap<String, BTreeMap<u64, (String, Value)>> = BTreeMap::new();
    for seq in 1..=last {
        let Ok(message) = stream.get_raw_message(seq).await else { continue };
        let Some(Subject::Step { activation, place, .. }) = Subject::parse("sinew", &message.subject) else {
            panic!("{} is the subject of a step", message.subject)
        };
        let record: Value = serde_json::from_slice(&message.payload).unwrap();
        let kind = record["kind"].as_str().unwrap().to_owned();
        logs.entry(activation.to_string()).or_default().insert(place, (kind, record));
    }
    logs.into_iter().map(|(activation, records)| (activation, records.into_values().collect())).collect()
}

fn number(variable: &str, short: u32) -> u32 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

#[test]
fn killed_in_the_middle_of_a_turn_conversations_go_on_at_the_recorded_one() {
    let conversations = number("SINEW_CONVERSATIONS", 12);
    let kills = number("SINEW_KILLS", 4);
    let (world, _executor) = World::new();
    let (killer, mut killed) = mpsc::unbounded_channel();
    let ledger = Arc::new(Ledger {
        asked: Mutex::default(),
        done: Mutex::default(),
        kills: Mutex::new(kills),
        killer,
        holders: Mutex::default(),
    });
    let url = world.runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(provide(listener, Arc::clone(&ledger)));
        for name in ["Look", "Act"] {
            let mesh = world.connect("agent").await;
            tokio::spawn(tool(name, &ledger).serve(mesh, CancellationToken::new()));
        }
        url
    });
    world.write("clerk.agent.yaml", &CLERK.replace("URL", &url));
    let mut replicas: Vec<Role> = (0..REPLICAS).map(|number| replica(&world, number)).collect();
    world.online(&["Clerk", "Look", "Act"]);

    let mesh = world.runtime.block_on(world.connect("client"));
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let talks: Vec<_> = (0..conversations)
        .map(|n| {
            let (mesh, places) = (mesh.clone(), Arc::clone(&places));
            world.runtime.spawn(async move {
                let _place = places.acquire_owned().await;
                converse(mesh, format!("c{n}")).await
            })
        })
        .collect();
    let mut deaths = 0;
    let all = world.runtime.spawn(futures_util::future::join_all(talks));
    while !all.is_finished() {
        let next = async { tokio::time::timeout(Duration::from_millis(100), killed.recv()).await };
        if let Ok(Some(number)) = world.runtime.block_on(next) {
            deaths += 1;
            replicas[number].0.kill().unwrap();
            replicas[number].0.wait().unwrap();
            replicas[number] = replica(&world, number);
        }
    }
    let outcomes = world.runtime.block_on(all).unwrap();
    for (n, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome.unwrap(), Ok(json!(format!("c{n} done"))));
    }
    assert_eq!(deaths, kills, "all kills took place");
    check(&world, &ledger, conversations as usize, deaths);
}

/// Compares the logs with what provider and tools saw.
fn check(world: &World, ledger: &Ledger, conversations: usize, deaths: u32) {
    let logs = world.runtime.block_on(async { logs(&world.connect("operator").await).await });
    assert_eq!(logs.len(), conversations, "one log for each conversation");
    let (mut asks, mut begins, mut unknown, mut acted) = (0, 0, 0, 0);
    for (activation, records) in &logs {
        let mut next_turn = 0;
        for (kind, record) in records {
            match kind.as_str() {
                "begin" => begins += 1,
                "ask" => {
                    asks += 1;
                    assert_eq!(record["turn"], next_turn, "{activation}: a recorded turn is asked again");
                }
                "turn" => {
                    assert_eq!(record["turn"], next_turn, "{activation}");
                    next_turn += 1;
                }
                "done" => {
                    unknown += u32::from(record["result"]["status"] == "unknown");
                    acted += 1;
                }
                _ => {}
            }
        }
        assert_eq!(next_turn, 3, "{activation} has three turns");
        assert_eq!(records.last().map(|(kind, _)| kind.as_str()), Some("end"), "{activation}");
    }
    assert_eq!(acted, 3 * conversations, "each call has one result");
    let done = ledger.done.lock().unwrap().clone();
    let twice: Vec<_> = done.iter().filter(|(work, times)| work.starts_with("Act") && **times > 1).collect();
    assert!(twice.is_empty(), "calls that act are made once: {twice:?}");
    let seen: u32 = ledger.asked.lock().unwrap().values().sum();
    let turns = u32::try_from(3 * conversations).unwrap();
    assert!(seen <= asks, "every model call was recorded before it was made: {seen} of {asks}");
    println!(
        "{conversations} conversations, {deaths} kills, {turns} turns, {asks} recorded asks, {seen} model calls, {begins} begins, \
         {unknown} calls of unknown fate, {} pieces of work",
        done.values().sum::<u32>()
    );
}

/// Hangs the first time, and answers the second time.
const COURIER: &str = r#"
name: Courier
run:
  command:
    argv: [/bin/sh, -c, "echo asked >> LEDGER; if [ -e MARK ]; then cat; else touch MARK; sleep 600; fi"]
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
    world.runtime.block_on(async {
        let card =
            || mesh.services().call_rpc("call:Courier", "GetTask", HeaderMap::new(), "{}".into(), PATIENCE);
        while card().await.is_err() {
            tokio::task::yield_now().await;
        }
    });
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
        std::thread::yield_now();
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
