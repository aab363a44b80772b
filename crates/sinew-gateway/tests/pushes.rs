//! Push notifications: everything arrives, in order, signed, also when receivers and gateways die.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64URL_NOPAD;
use reqwest::Method;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::{Value, json};
use sinew_gateway::ReachableAddresses;
use sinew_protocol::access::AccessRole;
use sinew_protocol::artifact::sha256;
use sinew_protocol::push::PushSubscription;
use sinew_protocol::{ActivationKey, ExecutionId, Subject, TaskId, Token};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::support::{GatewayWorld, PATIENCE, SINGLE, held, message, now, state};

/// A delivery as it came.
#[derive(Clone)]
struct Delivery {
    headers: HeaderMap,
    body: Bytes,
    accepted: bool,
}

impl Delivery {
    fn seq(&self) -> u64 {
        self.headers["sinew-event"].to_str().unwrap().parse().unwrap()
    }

    fn event(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn is_last(&self) -> bool {
        self.accepted && self.event().to_string().contains("TASK_STATE_COMPLETED")
    }
}

/// Answer of a receiver to its delivery of this number.
type AnswerTo = dyn Fn(usize) -> Response + Send + Sync;

/// Deliveries of all lives of a receiver.
#[derive(Clone)]
struct Inbox {
    deliveries: Arc<Mutex<Vec<Delivery>>>,
    count: watch::Sender<usize>,
    answer: Arc<AnswerTo>,
}

/// A receiver of push notifications.
struct Receiver {
    inbox: Inbox,
    address: SocketAddr,
    life: AbortHandle,
}

impl Receiver {
    async fn start(answer: impl Fn(usize) -> Response + Send + Sync + 'static) -> Self {
        let inbox =
            Inbox { deliveries: Arc::default(), count: watch::Sender::new(0), answer: Arc::new(answer) };
        Self::at("127.0.0.1:0".parse().unwrap(), inbox).await
    }

    async fn at(address: SocketAddr, inbox: Inbox) -> Self {
        let listener = loop {
            // The port of a receiver that was killed is free in a moment.
            match tokio::net::TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(take).with_state(inbox.clone());
        let life = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }).abort_handle();
        Self { inbox, address, life }
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    fn all(&self) -> Vec<Delivery> {
        self.inbox.deliveries.lock().unwrap().clone()
    }

    async fn until(&self, is_wanted: impl Fn(&[Delivery]) -> bool) {
        let mut count = self.inbox.count.subscribe();
        let wanted = count.wait_for(|_| is_wanted(&self.all()));
        let wanted = tokio::time::timeout(PATIENCE, wanted).await;
        assert!(wanted.is_ok(), "{:?}", self.all().iter().map(Delivery::event).collect::<Vec<_>>());
    }
}

async fn take(State(inbox): State<Inbox>, headers: HeaderMap, body: Bytes) -> Response {
    let number = inbox.deliveries.lock().unwrap().len();
    let answer = (inbox.answer)(number);
    let accepted = answer.status().is_success();
    inbox.deliveries.lock().unwrap().push(Delivery { headers, body, accepted });
    inbox.count.send_modify(|count| *count += 1);
    answer
}

fn accept(_: usize) -> Response {
    StatusCode::OK.into_response()
}

/// A world whose agent waits, and whose gateway reaches receivers of this machine.
async fn pushing_world() -> (GatewayWorld, Arc<tokio::sync::Notify>) {
    let (mut world, _begun, go_on) = held(&[("single", SINGLE)]).await;
    drop(world.take_gateway());
    let gateway = world.gateway(|options| options.push_addresses = ReachableAddresses::All).await;
    world.base = gateway.base_url();
    world.put_gateway(gateway);
    (world, go_on)
}

fn pushed(id: &str, url: &str) -> Value {
    let mut sent = message(id, json!([{"data": {"value": "v"}}]));
    sent["metadata"] = json!({"skill": "single"});
    sent["configuration"] = json!({"returnImmediately": true, "taskPushNotificationConfig": {
        "id": "mine", "url": url, "token": "a-token", "authentication": {"scheme": "Bearer", "credentials": "a-secret"},
    }});
    sent
}

async fn start(world: &GatewayWorld, endpoint: &str, id: &str, url: &str) -> String {
    let answer = world.rpc(endpoint, "SendMessage", &pushed(id, url)).await;
    let task = &answer["result"]["task"];
    assert_ne!(state(task), "TASK_STATE_COMPLETED");
    task["id"].as_str().unwrap().to_owned()
}

/// Numbers of what a receiver accepted.
fn accepted(receiver: &Receiver) -> Vec<u64> {
    receiver.all().iter().filter(|one| one.accepted).map(Delivery::seq).collect()
}

#[tokio::test]
async fn everything_arrives_though_the_receiver_fails_and_is_killed() {
    let (world, go_on) = pushing_world().await;
    let failing = |number: usize| match number {
        0 | 1 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        _ => accept(number),
    };
    let receiver = Receiver::start(failing).await;
    let url = receiver.url();
    let task = start(&world, "/agents/single", "m", &url).await;
    receiver.until(|all| all.iter().any(|one| one.accepted)).await;
    receiver.life.abort();
    go_on.notify_one();
    let ended = async {
        loop {
            let answer = world.rpc("/agents/single", "GetTask", &json!({"id": task})).await;
            if state(&answer["result"]) == "TASK_STATE_COMPLETED" {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    let receiver = Receiver::at(receiver.address, receiver.inbox.clone()).await;
    receiver.until(|all| all.iter().any(Delivery::is_last)).await;

    let numbers = accepted(&receiver);
    assert!(numbers.is_sorted(), "in order: {numbers:?}");
    let mut once = numbers.clone();
    once.dedup();
    assert!(once.windows(2).all(|pair| pair[1] == pair[0] + 1), "without a gap: {once:?}");
    assert_eq!(receiver.all()[0].seq(), receiver.all()[2].seq(), "what failed comes again");

    let keys = world.request(Method::GET, "/.well-known/jwks.json").send().await.unwrap();
    let keys: Value = keys.json().await.unwrap();
    let key = &keys["keys"][0];
    let public = BASE64URL_NOPAD.decode(key["x"].as_str().unwrap().as_bytes()).unwrap();
    for one in receiver.all() {
        assert_eq!(one.headers["x-a2a-notification-token"], "a-token");
        assert_eq!(one.headers["authorization"], "Bearer a-secret");
        assert_eq!(one.headers["content-type"], "application/a2a+json");
        let signed = one.headers["sinew-signature"].to_str().unwrap();
        let (told, signature) = signed.rsplit_once('.').unwrap();
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
        UnparsedPublicKey::new(&ED25519, &public).verify(told.as_bytes(), &signature).unwrap();
        let part = |nth| -> Value {
            let part = told.split('.').nth(nth).unwrap();
            serde_json::from_slice(&BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap()
        };
        assert_eq!(part(0)["kid"], key["kid"]);
        assert_eq!(part(1)["request_body_sha256"], sha256(&one.body));
        assert_eq!(part(1)["aud"], receiver.url(), "of no use at another receiver");
        let seconds = part(1)["exp"].as_u64().unwrap() - part(1)["iat"].as_u64().unwrap();
        assert!(seconds <= 300, "a signature ends: {seconds}");
        assert_eq!((&part(1)["task"], &part(1)["event"]), (&json!(task), &json!(one.seq())));
    }
    world.end().await;
}

/// Webhooks as they are stored.
async fn stored(world: &GatewayWorld) -> Vec<PushSubscription> {
    let records = world.mesh.records().pushes().list(&["push"]).await.unwrap();
    records.values().filter_map(|stored| PushSubscription::read(&stored.body).ok()).collect()
}

/// The only webhook, once it is as wanted.
async fn stored_until(
    world: &GatewayWorld,
    is_wanted: impl Fn(&PushSubscription) -> bool,
) -> PushSubscription {
    let found = async {
        loop {
            if let [only] = stored(world).await.as_slice()
                && is_wanted(only)
            {
                return only.clone();
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap()
}

async fn store(world: &GatewayWorld, record: &PushSubscription) {
    let id = Token::of(record.config["id"].as_str().unwrap());
    let subject = Subject::Push { agent: Token::of(&record.agent), task: Token::of(&record.task), id };
    let body = serde_json::to_vec(record).unwrap();
    world.mesh.records().pushes().put(&subject, body.into(), None).await.unwrap();
}

/// A webhook for a task that its agent does not know.
fn webhook_of_unknown_task(agent: &str, unread: u32) -> PushSubscription {
    let execution = ExecutionId::of("dev", "gateway", "unknown");
    let activation = ActivationKey::of::<&str>(&execution, agent, &[], 0);
    let task = TaskId::of(&execution, &activation, 1).to_string();
    PushSubscription {
        caller: Token::of("gateway"),
        key: None,
        agent: agent.to_owned(),
        task: task.clone(),
        shown_task: task,
        is_mesh_endpoint: false,
        is_old: false,
        accepted_by: None,
        config: json!({"id": agent, "url": "http://127.0.0.1:9/"}),
        delivered: 0,
        attempts: 0,
        unread,
        not_before: 0,
        ended: false,
        lease: None,
    }
}

/// A client of A2A 0.3 gets the task with each notification, in the form of that version.
#[tokio::test]
async fn webhooks_of_a2a_0_3_receive_tasks_of_that_version() {
    let (world, go_on) = pushing_world().await;
    let receiver = Receiver::start(accept).await;
    let params = json!({
        "message": {"kind": "message", "messageId": "m1", "role": "user",
                    "parts": [{"kind": "data", "data": {"value": "v"}}]},
        "configuration": {"blocking": false, "pushNotificationConfig": {"url": receiver.url(), "token": "a-token"}},
    });
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params});
    let sent = world.http.post(format!("{}/agents/single", world.base)).json(&call).send().await.unwrap();
    let sent: Value = sent.json().await.unwrap();
    let record = stored_until(&world, |record| record.is_old).await;
    assert!(record.accepted_by.is_some(), "{record:?}");
    go_on.notify_one();
    let ended = |one: &Delivery| one.event()["status"]["state"] == "completed";
    receiver.until(|all| all.iter().any(ended)).await;
    stored_until(&world, |record| record.ended).await;
    for delivery in receiver.all() {
        let task = delivery.event();
        assert_eq!((&task["kind"], &task["id"]), (&json!("task"), &sent["result"]["id"]), "{task}");
        assert_eq!(delivery.headers["x-a2a-notification-token"], "a-token");
    }
    let task = receiver.all().last().unwrap().event();
    let data = json!({"kind": "data", "data": {"value": "v"}});
    assert_eq!(task["artifacts"][0]["parts"][0], data, "{task}");
    world.end().await;
}

#[tokio::test]
async fn agents_that_miss_a_task_are_asked_again_and_not_for_ever() {
    let (world, _go_on) = pushing_world().await;
    // Another process of the agent may have the task.
    store(&world, &webhook_of_unknown_task("one", 0)).await;
    let asked = stored_until(&world, |record| record.ended || record.unread > 1).await;
    assert!(!asked.ended, "{asked:?}");
    // So many attempts take hours; the last ones are soon.
    store(&world, &webhook_of_unknown_task("one", 88)).await;
    let ended = stored_until(&world, |record| record.unread == 89).await;
    assert!(!ended.ended && ended.lease.is_none() && ended.not_before > now() + 60_000, "{ended:?}");
    store(&world, &webhook_of_unknown_task("one", 89)).await;
    stored_until(&world, |record| record.ended).await;
    // An agent that is away answers nothing.
    store(&world, &webhook_of_unknown_task("away", 89)).await;
    let ended = async { while !stored(&world).await.iter().all(|record| record.ended) {} };
    assert!(tokio::time::timeout(PATIENCE, ended).await.is_ok(), "{:?}", stored(&world).await);
    world.end().await;
}

#[tokio::test]
async fn a_webhook_that_fails_leaves_its_place_between_attempts() {
    let (world, go_on) = pushing_world().await;
    let fails = Arc::new(AtomicBool::new(true));
    let is_failing = Arc::clone(&fails);
    let receiver = Receiver::start(move |number| {
        if is_failing.load(Ordering::SeqCst) {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        accept(number)
    })
    .await;
    start(&world, "/agents/single", "m", &receiver.url()).await;
    let mut record = stored_until(&world, |record| record.attempts > 0).await;
    // As after half an hour.
    (record.attempts, record.lease) = (20, None);
    store(&world, &record).await;
    let mut left = stored_until(&world, |record| record.attempts > 20 && record.lease.is_none()).await;
    assert!(left.not_before > now() + 60_000, "nobody takes it before the next attempt");
    fails.store(false, Ordering::SeqCst);
    go_on.notify_one();
    left.not_before = 0;
    store(&world, &left).await;
    receiver.until(|all| all.iter().any(Delivery::is_last)).await;
    let numbers = accepted(&receiver);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "every event, once: {numbers:?}");
    world.end().await;
}

#[tokio::test]
async fn a_message_that_is_sent_again_adds_no_webhook() {
    let (world, go_on) = pushing_world().await;
    let receiver = Receiver::start(accept).await;
    let mut sent = pushed("m", &receiver.url());
    sent["configuration"]["taskPushNotificationConfig"].as_object_mut().unwrap().remove("id");
    let send = async || {
        let answer = world.rpc("/agents/single", "SendMessage", &sent).await;
        answer["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let task = send().await;
    for _ in 0..17 {
        assert_eq!(send().await, task);
    }
    assert_eq!(stored(&world).await.len(), 1);
    go_on.notify_one();
    receiver.until(|all| all.iter().any(Delivery::is_last)).await;
    stored_until(&world, |record| record.ended).await;
    assert_eq!(send().await, task);
    assert!(stored_until(&world, |_| true).await.ended, "nothing is told anew");
    let mut numbers = accepted(&receiver);
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "each event comes once: {numbers:?}");
    world.end().await;
}

#[tokio::test]
async fn another_gateway_goes_on_when_one_dies() {
    let (mut world, go_on) = pushing_world().await;
    let receiver = Receiver::start(accept).await;
    start(&world, "/a2a", "m", &receiver.url()).await;
    receiver.until(|all| !all.is_empty()).await;
    let other = world.gateway(|options| options.push_addresses = ReachableAddresses::All).await;
    // The lease is not given back, so it has to run out.
    drop(world.take_gateway());
    go_on.notify_one();
    receiver.until(|all| all.iter().any(Delivery::is_last)).await;
    let mut numbers = accepted(&receiver);
    assert!(numbers.is_sorted());
    numbers.dedup();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    other.drain().await;
    world.end().await;
}

#[tokio::test]
async fn configs_are_kept_by_both_bindings_for_their_caller_alone() {
    let (mut world, go_on) = pushing_world().await;
    drop(world.take_gateway());
    let gateway = world
        .gateway(|options| {
            (options.access.is_required, options.push_addresses) = (true, ReachableAddresses::All);
        })
        .await;
    world.base = gateway.base_url();
    let (_, own) = world.key(|new| new.name = "ann".to_owned()).await;
    let (_, other) = world.key(|new| new.name = "bob".to_owned()).await;
    let (_, reader) = world.key(|new| (new.name, new.role) = ("ann".to_owned(), AccessRole::Operator)).await;
    let receiver = Receiver::start(accept).await;
    let rest = async |key: &str, method: Method, path: &str, body: Option<Value>| {
        let mut request = world.request(method, path).bearer_auth(key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or_default())
    };
    let rpc = async |key: &str, method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        rest(key, Method::POST, "/agents/single", Some(body)).await.1
    };
    let mut sent = message("m", json!([{"data": {"value": "v"}}]));
    sent["configuration"] = json!({"returnImmediately": true});
    let sent = rpc(&own, "SendMessage", sent).await;
    let task = sent["result"]["task"]["id"].as_str().unwrap().to_owned();
    let configs = format!("/agents/single/tasks/{task}/pushNotificationConfigs");

    let wanted = json!({"id": "one", "url": receiver.url(), "token": "t"});
    let (status, made) = rest(&own, Method::POST, &configs, Some(wanted)).await;
    assert_eq!((status, &made["id"], &made["taskId"]), (200, &json!("one"), &json!(task)), "{made}");
    let made =
        rpc(&own, "CreateTaskPushNotificationConfig", json!({"taskId": task, "url": receiver.url()})).await;
    let second = made["result"]["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let (_, listed) = rest(&own, Method::GET, &configs, None).await;
    assert_eq!(listed["configs"].as_array().unwrap().len(), 2, "{listed}");
    let listed = rpc(&own, "ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
    assert_eq!(listed["result"]["configs"].as_array().unwrap().len(), 2, "{listed}");
    let (_, found) = rest(&reader, Method::GET, &format!("{configs}/one"), None).await;
    assert_eq!(found["url"], receiver.url(), "{found}");
    assert_eq!(rest(&reader, Method::DELETE, &format!("{configs}/one"), None).await.0, 403);
    for (method, path) in [
        (Method::GET, configs.clone()),
        (Method::GET, format!("{configs}/one")),
        (Method::DELETE, format!("{configs}/one")),
    ] {
        let (status, body) = rest(&other, method.clone(), &path, None).await;
        assert_eq!(status, 404, "{method} {path}: {body}");
    }
    let foreign = json!({"url": receiver.url()});
    assert_eq!(rest(&other, Method::POST, &configs, Some(foreign)).await.0, 404);
    assert_eq!(rest(&own, Method::DELETE, &format!("{configs}/{second}"), None).await.0, 200);
    let (status, body) = rest(&own, Method::GET, &format!("{configs}/{second}"), None).await;
    assert_eq!(status, 404);
    let named = format!("Push notification config not found: {second}");
    assert!(body.to_string().contains(&named), "{body}");
    let got = rpc(&own, "GetTaskPushNotificationConfig", json!({"taskId": task, "id": "one"})).await;
    assert_eq!(got["result"]["token"], "t", "{got}");
    go_on.notify_one();
    receiver.until(|all| all.iter().any(Delivery::is_last)).await;
    gateway.drain().await;
    world.end().await;
}

#[tokio::test]
async fn private_addresses_are_never_reached() {
    let (mut world, go_on) = pushing_world().await;
    let behind = Receiver::start(accept).await;
    let target = behind.url();
    let redirecting = Receiver::start(move |_| {
        (StatusCode::TEMPORARY_REDIRECT, [("location", target.clone())]).into_response()
    })
    .await;
    // A receiver that may be reached sends elsewhere: nothing follows.
    start(&world, "/agents/single", "redirected", &redirecting.url()).await;
    redirecting.until(|all| all.len() > 1).await;
    assert!(behind.all().is_empty());

    // Only public addresses from here on.
    drop(world.take_gateway());
    let gateway = world.gateway(|_| {}).await;
    world.base = gateway.base_url();
    let port = behind.address.port();
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.1:{port}/"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://10.0.0.1/".to_owned(),
        "ftp://example.com/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "not an address".to_owned(),
        format!("http://user:pw@127.0.0.1:{port}/"),
        format!("https://example.com/{}", "x".repeat(3_000)),
    ] {
        let answer = world.rpc("/agents/single", "SendMessage", &pushed("refused", &url)).await;
        assert!(answer["error"].to_string().contains("SINEW-9021"), "{url}: {answer}");
    }
    let mut forged = pushed("refused", "https://example.com/");
    forged["configuration"]["taskPushNotificationConfig"]["token"] = json!("a\r\nX-Injected: 1");
    let answer = world.rpc("/agents/single", "SendMessage", &forged).await;
    assert!(answer["error"].to_string().contains("SINEW-9021"), "{answer}");

    // A name that leads to this machine is found out when it is resolved. The gateway leaves this
    // webhook, and one that a gateway with other settings accepted, to a gateway that may deliver.
    start(&world, "/agents/single", "named", &format!("http://localhost:{port}/")).await;
    let is_named = |record: &PushSubscription| record.config["url"].to_string().contains("localhost");
    let named = stored(&world).await.into_iter().find(is_named).unwrap();
    let mut literal = PushSubscription { lease: None, delivered: 0, ..named };
    (literal.config["id"], literal.config["token"]) = (json!("literal"), json!("literal"));
    literal.config["url"] = json!(behind.url());
    store(&world, &literal).await;
    assert!(behind.all().is_empty(), "nothing has come");
    let allowed = world.gateway(|options| options.push_addresses = ReachableAddresses::All).await;
    go_on.notify_one();
    go_on.notify_one();
    let has_last = |all: &[Delivery], token: &str| {
        all.iter().any(|one| one.is_last() && one.headers["x-a2a-notification-token"] == token)
    };
    behind.until(|all| has_last(all, "a-token") && has_last(all, "literal")).await;
    allowed.drain().await;
    gateway.drain().await;
    world.end().await;
}

/// An approval that reminds soon, for a group.
const PAY: &str = r#"
workflow:
  description: Asks a group
  nodes:
    - {id: ok, type: approval, prompt: "Pay?", allowed: ["group:finance"], due: 60s, reminder: 59.5s}
  output_mapping: {by: "{{ok.output.by}}"}
"#;

#[tokio::test]
async fn a_group_is_reminded_and_its_members_decide() {
    let world = GatewayWorld::with(&[("pay", PAY)], |options| {
        options.access.is_required = true;
        options.push_addresses = ReachableAddresses::All;
    })
    .await;
    let receiver = Receiver::start(accept).await;
    let member = |name: &'static str, group: &'static str| {
        world.key(move |new| (new.name, new.groups) = (name.to_owned(), vec![group.to_owned()]))
    };
    let ((_, ann), (_, eve)) = (member("ann", "finance").await, member("eve", "sales").await);
    let mut sent = message("m", json!([{"text": "go"}]));
    sent["configuration"] = json!({"returnImmediately": true, "taskPushNotificationConfig": {"id": "mine", "url": receiver.url()}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sent});
    let started = world.request(Method::POST, "/agents/pay").bearer_auth(&ann).json(&call);
    let started: Value = started.send().await.unwrap().json().await.unwrap();
    let task = started["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();
    // The question, then the reminder, each once.
    let asked = |all: &[Delivery], text: &str| {
        all.iter().filter(|one| one.event().to_string().contains(&format!("\"{text}\""))).count()
    };
    receiver.until(|all| asked(all, "Reminder: Pay?") == 1).await;
    assert_eq!(asked(&receiver.all(), "Pay?"), 1);
    // Only a member decides.
    let decide = async |key: &str| {
        let path = format!("/api/v1/executions/{task}/decisions");
        let decision = json!({"decision": "approve"});
        let answer =
            world.request(Method::POST, &path).bearer_auth(key).json(&decision).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, refused) = decide(&eve).await;
    let text = refused.to_string();
    assert!(
        text.contains("eve is not permitted") && text.contains("proves who is in a group"),
        "{status} {text}"
    );
    let (status, decided) = decide(&ann).await;
    assert_eq!((status, &decided["by"]), (200, &json!("ann")), "{decided}");
    receiver.until(|all| all.iter().any(Delivery::is_last)).await;
    let last = receiver.all().iter().map(|one| one.event().to_string()).collect::<String>();
    assert!(last.contains(r#"{"by":"ann"}"#), "{last}");
    world.end().await;
}
