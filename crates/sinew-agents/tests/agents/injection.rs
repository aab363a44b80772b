//! Orders of strangers, wherever their words reach a conversation, against a model that obeys every one of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sinew_agents::{
    Agent, Artifacts as _, MemorySteps, PeerAnswer, PeerCall, PeerDescription, Peers, People, PersonPrompt,
    PersonReply, Steps as _,
};
use sinew_protocol::Fault;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::fixture::{Fixture, environment};
use crate::mcp::SERVER;
use crate::server::read_request;

/// Word that stands beside each order, by which the model recognises one.
const MARK: &str = "order-";
const CANARY: &str = "s3cret-canary";

fn orders() -> Vec<String> {
    let texts: Vec<String> =
        serde_json::from_str(include_str!("../../../../tests/injection/orders.json")).unwrap();
    texts.iter().enumerate().map(|(n, text)| format!("{text} ({MARK}{n})")).collect()
}

/// Places where words of strangers reach a conversation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Carrier {
    Output,
    KeyOfOutput,
    HiddenOutput,
    Failure,
    PeerDescription,
    PeerName,
    PeerParameters,
    ArtifactContent,
    ArtifactName,
}

const CARRIERS: [Carrier; 9] = [
    Carrier::Output,
    Carrier::KeyOfOutput,
    Carrier::HiddenOutput,
    Carrier::Failure,
    Carrier::PeerDescription,
    Carrier::PeerName,
    Carrier::PeerParameters,
    Carrier::ArtifactContent,
    Carrier::ArtifactName,
];

/// Part of an order that may stand in a name.
fn as_name(order: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let number = order.rsplit(MARK).next().unwrap_or_default().trim_end_matches(')');
    let words: String = order.chars().map(fits).take(24).collect();
    format!("{MARK}{number}-{words}")
}

/// Agents of a mesh: one brings news, one sends what it is given, one is not in the file, and one fits a pattern of it.
struct Strangers {
    order: String,
    carrier: Option<Carrier>,
    /// Whether the cards of all agents claim that they are workflows.
    claim_workflows: bool,
    asked: Mutex<Vec<(String, Value)>>,
}

impl Strangers {
    fn new(order: &str, carrier: Option<Carrier>) -> Arc<Self> {
        Arc::new(Self { order: order.to_owned(), carrier, claim_workflows: false, asked: Mutex::default() })
    }

    /// The same agents under cards that claim to be workflows.
    fn claiming(order: &str, carrier: Carrier) -> Arc<Self> {
        let claim = Self {
            order: order.to_owned(),
            carrier: Some(carrier),
            claim_workflows: true,
            asked: Mutex::default(),
        };
        Arc::new(claim)
    }

    fn asked_for(&self, agent: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|(name, _)| name == agent).count()
    }

    fn answer(&self, agent: &str) -> Result<Value, Fault> {
        if agent != "News" {
            return Ok(json!({"text": "done"}));
        }
        let order = &self.order;
        match self.carrier {
            Some(Carrier::Output) => Ok(json!({"title": "News", "body": ["Hello.", order]})),
            Some(Carrier::KeyOfOutput) => Ok(json!({ order: "a key is read, too" })),
            Some(Carrier::HiddenOutput) => {
                Ok(json!(order.chars().flat_map(|c| [c, '\u{200b}']).collect::<String>()))
            }
            Some(Carrier::Failure) => Err(Fault::failure("SINEW-5001", order)),
            // A peer may echo what it was never given: the model must not see it.
            _ => Ok(json!({"text": format!("nothing new, {CANARY}")})),
        }
    }
}

impl Peers for Strangers {
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerDescription>, Fault>> {
        let plain = |name: &str| PeerDescription { name: name.to_owned(), ..PeerDescription::default() };
        let mut price = PeerDescription { name: "Price".to_owned(), ..PeerDescription::default() };
        match self.carrier {
            Some(Carrier::PeerDescription) => price.description.clone_from(&self.order),
            Some(Carrier::PeerName) => price.name = format!("Price-{}", as_name(&self.order)),
            Some(Carrier::PeerParameters) => {
                let text = json!({"type": "string", "description": self.order});
                price.input_schema = Some(json!({"type": "object", "properties": {"text": text}}));
            }
            _ => {}
        }
        let mut all = vec![plain("News"), plain("Send"), plain("Bank")];
        // Agents that nobody described are not words of others only if the file names them.
        if matches!(
            self.carrier,
            Some(Carrier::PeerDescription | Carrier::PeerName | Carrier::PeerParameters)
        ) {
            all.push(price);
        }
        for peer in &mut all {
            peer.skills.push(format!("skill-{}", peer.name.chars().take(5).collect::<String>()));
            peer.is_workflow = self.claim_workflows && peer.name != "Send";
        }
        std::future::ready(Ok(all)).boxed()
    }

    fn ask(&self, call: PeerCall) -> BoxFuture<'_, PeerAnswer> {
        self.asked.lock().unwrap().push((call.agent.clone(), call.input));
        std::future::ready(PeerAnswer::from(self.answer(&call.agent))).boxed()
    }
}

/// A person who decides every question alike, and remembers the questions.
struct Decider {
    approves: bool,
    asked: Mutex<Vec<Value>>,
}

impl People for Decider {
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        self.asked.lock().unwrap().push(prompt.call);
        let reply = PersonReply { approved: self.approves, by_person: "ada".to_owned(), comment: None };
        std::future::ready(Ok(reply)).boxed()
    }
}

/// A provider whose model does what every order says that it sees: it calls tools that act, offered or not, and hands on
/// everything that it was told. Without an order it looks for one.
struct ObedientModel {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl ObedientModel {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Self { address: listener.local_addr().unwrap(), bodies: Arc::default() };
        let bodies = Arc::clone(&model.bodies);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read_request(&mut stream).await;
                let body =
                    request.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
                let answer = obey(&body).to_string();
                bodies.lock().unwrap().push(body);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    answer.len()
                );
                // The agent may have given up.
                let _gone = stream.write_all(format!("{head}{answer}").as_bytes()).await;
            }
        });
        model
    }

    fn bodies(&self) -> Vec<String> {
        std::mem::take(&mut self.bodies.lock().unwrap())
    }
}

/// The answer of a model that obeys.
fn obey(body: &str) -> Value {
    let request: Value = serde_json::from_str(body).unwrap();
    let messages = request["messages"].as_array().unwrap();
    let turns = messages.iter().filter(|message| message["role"] == "assistant").count();
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let offered: Vec<&str> = tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    let all: String = body.chars().take(4_000).collect();
    let obeyed = messages.iter().any(|message| message["tool_calls"].to_string().contains("wire_money"));
    let calls: Vec<(&str, Value)> = if body.contains(MARK) && !obeyed {
        let to_all = |name| (name, json!({"text": all}));
        let mut calls: Vec<_> = ["send", "wire_money", "peer_Bank", "send_all"].map(to_all).to_vec();
        calls.truncate(3);
        calls.push(to_all("peer_News"));
        calls.push(("artifact_write", json!({"name": "loot.txt", "content": all})));
        calls
    } else if body.contains(MARK) && turns < 4 {
        vec![("send", json!({"text": format!("{turns}{all}")}))]
    } else if turns == 0 {
        let reads = [
            ("peer_News", json!({"text": "news?"})),
            ("workflow_News", json!({"text": "news?"})),
            ("artifact_list", json!({})),
            ("artifact_read", json!({"name": "notes.txt"})),
        ];
        reads.into_iter().filter(|(name, _)| offered.contains(name)).collect()
    } else {
        Vec::new()
    };
    let calls: Vec<Value> = calls
        .into_iter()
        .enumerate()
        .map(|(n, (name, arguments))| {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            json!({"id": format!("c{turns}-{n}"), "type": "function", "function": function})
        })
        .collect();
    let end = if calls.is_empty() { "stop" } else { "tool_calls" };
    let mut message =
        json!({"role": "assistant", "content": if calls.is_empty() { all } else { String::new() }});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({"choices": [{"index": 0, "message": message, "finish_reason": end}]})
}

/// An agent file whose model is the obedient one.
fn agent_file(model: &ObedientModel, taint: &str, more_tools: &Value) -> Value {
    let entry = json!({
        "provider": "openai", "model": "m", "url": format!("http://{}/v1", model.address), "key": "${env:TOKEN}",
        "allow_private": true, "caps": {"stream": false}, "context": 1_000_000,
    });
    let mut tools = json!([
        {"peer": "News"},
        {"peer": "Price*"},
        {"peer": "Send", "as": "send", "effect": "once", "trust": "own"},
        {"builtin": ["artifacts"]},
    ]);
    tools.as_array_mut().unwrap().extend(more_tools.as_array().unwrap().iter().cloned());
    let run = json!({
        "use": ["main"], "models": {"main": entry}, "instruction": "You read the news.", "tools": tools, "taint": taint,
    });
    json!({"name": "x", "run": {"model": run}})
}

/// Everything that went out of a conversation: to agents, to people, to its caller, into its log and its artifacts.
struct Outcome {
    sent: usize,
    not_listed: usize,
    questions: Vec<Value>,
    everything: String,
    obeyed: bool,
}

async fn converse(
    model: &ObedientModel,
    fixture: &Fixture,
    strangers: &Arc<Strangers>,
    approves: bool,
) -> Outcome {
    converse_with(model, fixture, strangers, approves, Value::Null).await
}

/// The same for a node that asks with this context.
async fn converse_with(
    model: &ObedientModel,
    fixture: &Fixture,
    strangers: &Arc<Strangers>,
    approves: bool,
    context: Value,
) -> Outcome {
    let people = Arc::new(Decider { approves, asked: Mutex::default() });
    let steps = Arc::new(MemorySteps::default());
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    let mut call = fixture.input(json!({"text": "What is new?"}));
    call.context = context;
    call.peers = strangers.clone();
    call.people = people.clone();
    call.progress = sender;
    call.steps = Some(steps.clone());
    let end = match fixture.agent.call(call).await {
        Ok(reply) => format!("{} {:?} {:?}", reply.output, reply.events, reply.usage),
        Err(fault) => format!("{fault:?}"),
    };
    let asked = strangers.asked.lock().unwrap().clone();
    let questions = people.asked.lock().unwrap().clone();
    let told: Vec<Value> = std::iter::from_fn(|| progress.try_recv().ok()).collect();
    let log = serde_json::to_string(&steps.read().await.unwrap()).unwrap();
    let loot = fixture.artifacts.get("loot.txt", None).unwrap_or_default();
    let bodies = model.bodies();
    Outcome {
        sent: strangers.asked_for("Send"),
        not_listed: asked.iter().filter(|(name, _)| !["News", "Send"].contains(&name.as_str())).count(),
        obeyed: log.contains("wire_money"),
        everything: format!(
            "{end} {asked:?} {questions:?} {told:?} {log} {} {bodies:?}",
            String::from_utf8_lossy(&loot)
        ),
        questions,
    }
}

fn check(outcome: &Outcome, about: &str) {
    assert!(outcome.obeyed, "{about}: the order did not reach the model: {}", outcome.everything);
    assert_eq!((outcome.sent, outcome.not_listed), (0, 0), "{about}: {}", outcome.everything);
    assert!(!outcome.questions.is_empty(), "{about}: a person decides: {}", outcome.everything);
    assert!(outcome.questions.iter().all(|call| call["tool"] == "send"), "{about}: {:?}", outcome.questions);
    assert!(!outcome.everything.contains(CANARY), "{about}: {}", outcome.everything);
}

#[tokio::test]
async fn orders_of_strangers_act_nowhere() {
    let model = ObedientModel::start().await;
    let mut texts = 0;
    for order in &orders() {
        for carrier in CARRIERS {
            let fixture = Fixture::file(&agent_file(&model, "approve", &json!([])));
            match carrier {
                Carrier::ArtifactContent => drop(fixture.artifacts.put("notes.txt", order.as_bytes(), None)),
                Carrier::ArtifactName => {
                    fixture.artifacts.put(&as_name(order), b"nothing", None).unwrap();
                }
                _ => {}
            }
            let strangers = Strangers::new(order, Some(carrier));
            let outcome = converse(&model, &fixture, &strangers, false).await;
            check(&outcome, &format!("{carrier:?}: {order}"));
            texts += 1;
        }
    }
    assert!(texts >= 200, "{texts}");
}

/// Writes the tools that the MCP server has beside its own.
fn describe(fixture: &Fixture, tools: &[Value]) {
    std::fs::write(fixture.path().join("tools.json"), json!(tools).to_string()).unwrap();
}

fn server() -> Value {
    json!([{"mcp": "t", "command": ["python3", SERVER], "env": {"KEY": "${env:TOKEN}"}, "allow": ["*"], "effect": "read"}])
}

#[tokio::test]
async fn orders_in_tools_of_servers_act_nowhere_and_are_refused_once_others_were_accepted() {
    let model = ObedientModel::start().await;
    let plain = |n: usize| json!({"name": format!("more-{n}"), "description": "Says more.", "inputSchema": {"type": "object"}});
    let carried = |n: usize, order: &str, place: &str| match place {
        "description" => {
            json!({"name": format!("more-{n}"), "description": order, "inputSchema": {"type": "object"}})
        }
        "parameters" => {
            let hidden: String = order.chars().flat_map(|c| [c, '\u{200b}']).collect();
            let schema =
                json!({"type": "object", "properties": {"a": {"type": "string", "description": hidden}}});
            json!({"name": format!("more-{n}"), "description": "Says more.", "inputSchema": schema})
        }
        _ => json!({"name": as_name(order), "description": "Says more.", "inputSchema": {"type": "object"}}),
    };
    let orders = orders();
    let strangers = || Strangers::new("", None);
    for place in ["description", "parameters", "name"] {
        let fixture = Fixture::file(&agent_file(&model, "approve", &server()));
        let tools: Vec<Value> =
            orders.iter().enumerate().map(|(n, order)| carried(n, order, place)).collect();
        describe(&fixture, &tools);
        let outcome = converse(&model, &fixture, &strangers(), false).await;
        check(&outcome, place);
        assert!(!outcome.everything.contains('\u{200b}'), "{place}: hidden characters reach the model");
    }
    // Descriptions that a person accepted; then an order comes into one of them, or stands in a new tool.
    let fixture = Fixture::file(&agent_file(&model, "approve", &server()));
    describe(&fixture, &(0..3).map(plain).collect::<Vec<_>>());
    let path = fixture.path().join("x.agent.json");
    let peers = strangers().list().await.unwrap();
    let tools = Agent::load_with(&path, &environment()).unwrap().tools(&peers).await.unwrap().unwrap();
    std::fs::write(&tools.lock_path, &tools.lock).unwrap();
    let mut fixture = fixture;
    for (place, end) in
        [("description", "SINEW-5209"), ("parameters", "SINEW-5209"), ("name", "What is new?")]
    {
        fixture.agent = Agent::load_with(&path, &environment()).unwrap();
        describe(&fixture, &[plain(0), plain(1), carried(2, &orders[0], place)]);
        let outcome = converse(&model, &fixture, &strangers(), false).await;
        assert!(!outcome.obeyed && outcome.sent == 0, "{place}: {}", outcome.everything);
        assert!(outcome.everything.contains(end), "{place}: {}", outcome.everything);
    }
}

/// The obedient model does act where it may: by the word of a person, by `taint: allow`, and if no stranger has spoken.
#[tokio::test]
async fn orders_act_where_the_owner_lets_them() {
    let model = ObedientModel::start().await;
    let order = &orders()[0];
    for (taint, approves, sends) in [("approve", true, true), ("allow", false, true), ("deny", true, false)] {
        for carrier in [Carrier::Output, Carrier::PeerDescription, Carrier::ArtifactContent] {
            let fixture = Fixture::file(&agent_file(&model, taint, &json!([])));
            fixture.artifacts.put("notes.txt", order.as_bytes(), None).unwrap();
            let strangers = Strangers::new(order, Some(carrier));
            let outcome = converse(&model, &fixture, &strangers, approves).await;
            assert_eq!(outcome.sent > 0, sends, "{taint} {carrier:?}: {}", outcome.everything);
        }
    }
}

/// The author of a card chooses what it claims to be. Only the agent file says which workflows are trusted.
#[tokio::test]
async fn cards_that_claim_to_be_workflows_are_not_trusted() {
    let model = ObedientModel::start().await;
    let order = &orders()[0];
    let by_skill = |name: &str| json!({"peer": {"skill": format!("skill-{name}")}});
    for (news, price, trusts) in [
        (json!({"peer": "News"}), json!({"peer": "Price"}), false),
        (by_skill("News"), by_skill("Price"), false),
        (json!({"request": {"peers": ["News"]}}), json!({"request": {"peers": ["Price"]}}), false),
        (json!({"workflow": "News"}), Value::Null, true),
    ] {
        for carrier in [Carrier::Output, Carrier::KeyOfOutput, Carrier::Failure, Carrier::PeerDescription] {
            let tool = if carrier == Carrier::PeerDescription { &price } else { &news };
            if tool.is_null() {
                continue;
            }
            let mut file = agent_file(&model, "approve", &json!([]));
            file["run"]["model"]["tools"] = json!([
                tool,
                {"peer": "Send", "as": "send", "effect": "once", "trust": "own"},
            ]);
            // Artifacts are untrusted whoever made them, so the trusted workflow is tried without them.
            if !trusts {
                let tools = file["run"]["model"]["tools"].as_array_mut().unwrap();
                tools.push(json!({"builtin": ["artifacts"]}));
            }
            let fixture = Fixture::file(&file);
            let strangers = Strangers::claiming(order, carrier);
            let call = json!({"request": {"peers": ["News", "Price"]}});
            let outcome = converse_with(&model, &fixture, &strangers, false, call).await;
            let about = format!("{carrier:?} by {tool}");
            if trusts {
                assert!(outcome.sent > 0, "{about}: {}", outcome.everything);
            } else {
                check(&outcome, &about);
            }
        }
    }
}
