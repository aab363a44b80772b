//! Several processes of one agent: each answers for the tasks of all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::similar_names,
    clippy::cast_possible_truncation,
    reason = "a test says what is wrong by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Context, ask_until_answered};
use sinew_mesh::async_nats::{self, HeaderMap, Subscriber};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, MeshError, Provision};
use sinew_protocol::a2a::{Part, TaskState};
use sinew_protocol::permission::Role;
use sinew_protocol::task::{NodeAnswer, read_node_answer};
use sinew_protocol::{Token, header};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use common::{PATIENCE, asked, call, connect, message, node_request, sync};

use crate::common;

const NAME: &str = "trio";
/// Calls that together reach each of three processes.
const CALLS: usize = 24;

/// Processes of one agent. What an input says is done: `wait` for a permit, `ask` the caller, or end at once.
struct Trio {
    server: Server,
    mesh: Mesh,
    processes: Vec<Process>,
    /// Places of the processes in which tasks begin.
    begun: mpsc::UnboundedReceiver<usize>,
    begins: mpsc::UnboundedSender<usize>,
    gate: Arc<Semaphore>,
    runs: Arc<AtomicUsize>,
    /// Messages among the processes.
    words: Subscriber,
}

/// A process of the agent: here a task with a connection of its own.
struct Process {
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Process {
    async fn leave(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.served).await.unwrap().unwrap();
    }
}

impl Trio {
    /// Three processes that know each other.
    async fn begin() -> Self {
        let mut trio = Self::none(Server::start(ServerOptions::default()).await.unwrap(), None).await;
        for _ in 0..3 {
            trio.add(None).await;
        }
        trio
    }

    async fn none(server: Server, login: Option<&str>) -> Self {
        let mesh = connected(&server, "exec", login).await;
        mesh.admin().provision(&Provision::default()).await.unwrap();
        let words = mesh.client().subscribe(format!("test.v1.replica.{NAME}.*")).await.unwrap();
        let (begins, begun) = mpsc::unbounded_channel();
        let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::default());
        Self { server, mesh, processes: Vec::new(), begun, begins, gate, runs, words }
    }

    /// Begins another process, and waits until it is announced and all know it.
    async fn add(&mut self, login: Option<&str>) {
        let known = self.processes.len();
        self.meet(known, |trio| {
            let process = trio.start(login);
            trio.processes.push(process);
        })
        .await;
    }

    /// Begins a process beside some others, and waits until it is announced and all know it.
    async fn meet(&mut self, others: usize, begin: impl FnOnce(&mut Self)) {
        let mut cards = self.mesh.client().subscribe(format!("test.v1.card.{NAME}")).await.unwrap();
        sync(&self.mesh).await;
        self.drop_words();
        begin(self);
        timeout(PATIENCE, cards.next()).await.unwrap().unwrap();
        for _ in 0..others {
            // Each of the others answers the greeting of the new process under its own subject.
            self.word(|process, body| process != "all" && body.get("here").is_some()).await;
        }
    }

    /// Begins another process.
    fn start(&self, login: Option<&str>) -> Process {
        let (agent, stop) = (self.agent(self.processes.len()), CancellationToken::new());
        let (url, login, stopped) = (self.server.url(), login.map(str::to_owned), stop.clone());
        let served = tokio::spawn(async move {
            let own = connected_to(&url, NAME, login.as_deref()).await;
            agent.serve(own, stopped).await.unwrap();
        });
        Process { stop, served }
    }

    fn agent(&self, place: usize) -> Agent {
        let (begins, gate, runs) = (self.begins.clone(), Arc::clone(&self.gate), Arc::clone(&self.runs));
        Agent::dynamic(NAME, None, None, move |input: Value, context: Context| {
            runs.fetch_add(1, Ordering::SeqCst);
            begins.send(place).unwrap();
            let gate = Arc::clone(&gate);
            async move {
                match input["text"].as_str() {
                    Some("wait") => tokio::select! {
                        permit = gate.acquire() => permit?.forget(),
                        () = context.cancel().cancelled() => {}
                    },
                    Some("ask") => {
                        let answer = context.ask_caller(vec![Part::text("which?")], Vec::new()).await?;
                        return Ok(json!(answer.parts[0].text_content()));
                    }
                    _ => {}
                }
                Ok(input)
            }
        })
        .concurrency(64)
    }

    /// Waits for something that is sent among the processes.
    async fn word(&mut self, meant: impl Fn(&str, &Value) -> bool) {
        let found = async {
            loop {
                let message = self.words.next().await.unwrap();
                let body = serde_json::from_slice(&message.payload).unwrap_or_default();
                if meant(message.subject.rsplit('.').next().unwrap(), &body) {
                    return;
                }
            }
        };
        timeout(PATIENCE, found).await.expect("the word comes");
    }

    /// Waits until a call was passed on.
    async fn passed_on(&mut self) {
        let found = async {
            loop {
                let message = self.words.next().await.unwrap();
                if message.headers.is_some_and(|headers| headers.get(header::CALLER).is_some()) {
                    return;
                }
            }
        };
        timeout(PATIENCE, found).await.expect("a call is passed on");
    }

    fn drop_words(&mut self) {
        while self.words.next().now_or_never().flatten().is_some() {}
    }

    async fn place_of_next(&mut self) -> usize {
        timeout(PATIENCE, self.begun.recv()).await.expect("a task begins").unwrap()
    }

    async fn caller(&self, name: &str) -> Mesh {
        connect(&self.server.url(), name).await
    }
}

async fn connected(server: &Server, caller: &str, login: Option<&str>) -> Mesh {
    connected_to(&server.url(), caller, login).await
}

/// A connection; with a login if the server asks for one.
async fn connected_to(url: &str, caller: &str, login: Option<&str>) -> Mesh {
    let Some(user) = login else { return connect(url, caller).await };
    let options = async_nats::ConnectOptions::with_user_and_password(user.to_owned(), "secret".to_owned())
        .custom_inbox_prefix(format!("_INBOX_{caller}"));
    Mesh::new(options.connect(url).await.unwrap(), "test", caller)
}

fn at_once(mut message: Value) -> Value {
    message["configuration"] = json!({"returnImmediately": true});
    message
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

/// The id of a task that was begun and goes on.
async fn begun(ada: &Mesh, id: &str, text: &str) -> String {
    let (said, _) = call(ada, NAME, "SendMessage", at_once(message(id, text))).await;
    said["task"]["id"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[tokio::test]
async fn each_process_answers_for_the_tasks_of_all() {
    let mut trio = Trio::begin().await;
    let ada = trio.caller("ada").await;
    let id = begun(&ada, "m", "wait").await;
    let place = trio.place_of_next().await;
    for _ in 0..CALLS {
        let (task, seq) = call(&ada, NAME, "GetTask", json!({"id": id})).await;
        assert_eq!((task["id"].as_str(), state(&task)), (Some(id.as_str()), "TASK_STATE_WORKING"));
        assert!(seq.is_some(), "the number of the last event is passed on");
        let (said, seq) = call(&ada, NAME, "SubscribeToTask", json!({"id": id})).await;
        assert_eq!((said["task"]["id"].as_str(), seq.is_some()), (Some(id.as_str()), true), "{said}");
    }
    // Another caller does not see it, whichever process is asked.
    let eve = trio.caller("eve").await;
    for method in ["GetTask", "SubscribeToTask", "CancelTask"].repeat(CALLS / 3) {
        assert_eq!(call(&eve, NAME, method, json!({"id": id})).await.0["code"], -32001);
    }
    // The same message again, to all processes at once: the same task, and the work is done once.
    let again = (0..CALLS).map(|_| call(&ada, NAME, "SendMessage", message("m", "wait")));
    let again = again.collect::<FuturesUnordered<_>>().collect::<Vec<_>>();
    let (again, ()) = tokio::join!(again, async {
        trio.passed_on().await;
        trio.gate.add_permits(1);
    });
    for (said, _) in again {
        assert_eq!(said["task"]["id"], id.as_str());
        assert_eq!(state(&said["task"]), "TASK_STATE_COMPLETED", "{said}");
    }
    assert_eq!(trio.runs.load(Ordering::SeqCst), 1);
    // Refusals are those of the process that holds the task.
    for _ in 0..CALLS {
        assert_eq!(call(&ada, NAME, "CancelTask", json!({"id": id})).await.0["code"], -32002);
    }
    // The process leaves, and its tasks with it.
    trio.drop_words();
    trio.processes.remove(place).leave().await;
    trio.word(|process, body| process == "all" && body.get("gone").is_some()).await;
    for _ in 0..CALLS {
        assert_eq!(call(&ada, NAME, "GetTask", json!({"id": id})).await.0["code"], -32001);
    }
    let id = begun(&ada, "later", "wait").await;
    for _ in 0..CALLS {
        assert_eq!(call(&ada, NAME, "GetTask", json!({"id": id})).await.0["id"], id.as_str());
    }
}

#[tokio::test]
async fn tasks_are_cancelled_and_answered_through_each_process() {
    let mut trio = Trio::begin().await;
    let ada = trio.caller("ada").await;
    let mut places = BTreeSet::new();
    for nth in 0..CALLS {
        let id = begun(&ada, &format!("c{nth}"), "wait").await;
        places.insert(trio.place_of_next().await);
        let (task, _) = call(&ada, NAME, "CancelTask", json!({"id": id})).await;
        assert_eq!(state(&task), "TASK_STATE_CANCELED", "{task}");
    }
    assert_eq!(places.len(), 3, "each process has begun some of them");
    for nth in 0..CALLS {
        // A blocking message is answered when its task asks.
        let (said, _) = call(&ada, NAME, "SendMessage", message(&format!("q{nth}"), "ask")).await;
        assert_eq!(state(&said["task"]), "TASK_STATE_INPUT_REQUIRED", "{said}");
        let mut answer = message(&format!("a{nth}"), "the red one");
        answer["message"]["taskId"] = said["task"]["id"].clone();
        let (said, _) = call(&ada, NAME, "SendMessage", answer).await;
        assert_eq!(state(&said["task"]), "TASK_STATE_COMPLETED", "{said}");
        assert_eq!(said["task"]["artifacts"][0]["parts"][0]["data"], "the red one", "{said}");
    }
}

#[tokio::test]
async fn a_message_that_comes_to_all_at_the_same_moment_begins_one_task() {
    let trio = Trio::begin().await;
    let ada = trio.caller("ada").await;
    let rounds = 40;
    for round in 0..rounds {
        let id = format!("m{round}");
        let same = (0..8).map(|_| call(&ada, NAME, "SendMessage", message(&id, "now")));
        let said = same.collect::<FuturesUnordered<_>>().collect::<Vec<_>>().await;
        let ids: BTreeSet<_> = said.iter().map(|(said, _)| said["task"]["id"].as_str()).collect();
        assert_eq!((ids.len(), ids.contains(&None)), (1, false), "{said:?}");
    }
    assert_eq!(trio.runs.load(Ordering::SeqCst), rounds);
}

/// Executors send a task again while no answer comes. The process that works on it answers for whichever is asked.
#[tokio::test]
async fn a_task_that_an_executor_sends_again_is_done_once() {
    let mut trio = Trio::begin().await;
    let client = trio.mesh.client();
    let mut answers = client.subscribe("_INBOX.exec.*").await.unwrap();
    let (task, subject) = (asked(&trio.mesh, NAME, 1), format!("test.v1.node.{NAME}"));
    let request = bytes::Bytes::from(node_request(&task, &json!({"text": "wait"})));
    client.publish_with_reply(subject.clone(), "_INBOX.exec.first", request.clone()).await.unwrap();
    trio.place_of_next().await;
    let mut repeated = HeaderMap::new();
    repeated.insert(header::REPEATED, "1");
    let replies: BTreeSet<String> = (0..CALLS).map(|nth| format!("_INBOX.exec.{nth}")).collect();
    trio.drop_words();
    for reply in &replies {
        let (subject, headers) = (subject.clone(), repeated.clone());
        let sent = client.publish_with_reply_and_headers(subject, reply.clone(), headers, request.clone());
        sent.await.unwrap();
    }
    // Processes that do not know it ask the others.
    trio.word(|_, body| body.get("works_on").is_some()).await;
    trio.gate.add_permits(1);
    let mut heard = BTreeSet::new();
    while heard.len() <= CALLS {
        let answer = timeout(PATIENCE, answers.next()).await.expect("each request is answered").unwrap();
        let NodeAnswer::Ended(ended) = read_node_answer(&answer.payload, &task.task).unwrap() else {
            panic!("refused: {answer:?}")
        };
        assert!(ended.fault.is_none(), "{ended:?}");
        heard.insert(answer.subject.to_string());
    }
    assert!(heard.contains("_INBOX.exec.first") && heard.is_superset(&replies), "{heard:?}");
    assert_eq!(trio.runs.load(Ordering::SeqCst), 1);
    // A message that no process knows is begun, though it was sent before.
    let left = asked(&trio.mesh, NAME, 2);
    let request = bytes::Bytes::from(node_request(&left, &json!({"text": "now"})));
    client.publish_with_reply_and_headers(subject, "_INBOX.exec.left", repeated, request).await.unwrap();
    let answer = timeout(PATIENCE, answers.next()).await.expect("an unknown task is begun").unwrap();
    assert_eq!(answer.subject.as_str(), "_INBOX.exec.left");
    assert_eq!(trio.runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_list_has_the_tasks_of_all_processes_in_order() {
    let mut trio = Trio::begin().await;
    let ada = trio.caller("ada").await;
    let mut ids = BTreeSet::new();
    let mut places = BTreeSet::new();
    for nth in 0..CALLS {
        let (said, _) = call(&ada, NAME, "SendMessage", message(&format!("m{nth}"), "now")).await;
        ids.insert(said["task"]["id"].as_str().unwrap().to_owned());
        places.insert(trio.place_of_next().await);
    }
    assert_eq!(places.len(), 3);
    let (mut token, mut seen) = (String::new(), Vec::new());
    loop {
        let params = json!({"pageSize": 5, "pageToken": token});
        let (page, _) = call(&ada, NAME, "ListTasks", params).await;
        assert_eq!(page["totalSize"], CALLS, "{page}");
        let tasks = page["tasks"].as_array().unwrap();
        seen.extend(tasks.iter().map(|task| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&task["status"]["timestamp"]), text(&task["id"]))
        }));
        token = page["nextPageToken"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
        assert_eq!(tasks.len(), 5);
    }
    let mut sorted = seen.clone();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(seen, sorted, "newest first, over all pages");
    assert_eq!(seen.into_iter().map(|(_, id)| id).collect::<BTreeSet<_>>(), ids);
}

/// Processes of the operating system, which can be killed. A task in one of them begins with a request that has its id, and
/// ends when that is answered.
struct Children {
    trio: Trio,
    by_id: BTreeMap<u32, Child>,
    works: Subscriber,
}

impl Children {
    async fn begin() -> Self {
        let mut trio = Trio::none(Server::start(ServerOptions::default()).await.unwrap(), None).await;
        let works = trio.mesh.client().subscribe("work").await.unwrap();
        let mut children = BTreeMap::new();
        for others in 0..3 {
            trio.meet(others, |trio| {
                let child = process(&trio.server.url());
                children.insert(child.id().unwrap(), child);
            })
            .await;
        }
        Self { trio, by_id: children, works }
    }

    /// The next work that begins: the process, and the subject for the answer that ends it.
    async fn work(&mut self) -> (u32, async_nats::Subject) {
        let work = timeout(PATIENCE, self.works.next()).await.expect("a task begins").unwrap();
        (str::from_utf8(&work.payload).unwrap().parse().unwrap(), work.reply.unwrap())
    }

    async fn kill(&mut self, process: u32) {
        self.by_id.remove(&process).unwrap().kill().await.unwrap();
    }
}

/// This program, running nothing but [`a_process`].
fn process(url: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "replicas::a_process", "--ignored"]).env("NATS_URL", url);
    command.stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test]
#[ignore = "it is a process of other tests"]
async fn a_process() {
    let Ok(url) = std::env::var("NATS_URL") else { return };
    let mesh = connect(&url, NAME).await;
    let client = mesh.client();
    let agent = Agent::dynamic(NAME, None, None, move |input, _: Context| {
        let client = client.clone();
        async move {
            let own = std::process::id().to_string();
            let request = async_nats::Request::new().payload(own.into()).timeout(None);
            client.send_request("work", request).await?;
            Ok(input)
        }
    });
    agent.serve(mesh, CancellationToken::new()).await.unwrap();
}

/// One call whose answer may not come.
async fn try_call(ada: &Mesh, method: &str, params: Value, wait: Duration) -> Result<Value, MeshError> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut headers = HeaderMap::new();
    headers.insert(header::A2A_VERSION, "1.0");
    let reply = ada.services().call_rpc(NAME, method, headers, body.into(), wait).await?;
    Ok(serde_json::from_slice(&reply.body).unwrap())
}

#[tokio::test]
async fn a_message_whose_process_dies_is_taken_by_another_one() {
    let mut world = Children::begin().await;
    let ada = world.trio.caller("ada").await;
    let id = begun(&ada, "m", "work").await;
    let (holder, _) = world.work().await;
    world.trio.drop_words();
    // Some of them wait at the process that dies, and hear nothing any more.
    let again = (0..CALLS).map(|_| try_call(&ada, "SendMessage", message("m", "work"), PATIENCE));
    let mut again: FuturesUnordered<_> = again.collect();
    let (said, ()) = tokio::join!(again.next(), async {
        world.trio.passed_on().await;
        // A server does not say that nobody listens while somebody watches.
        world.trio.words.unsubscribe().await.unwrap();
        sync(&world.trio.mesh).await;
        world.kill(holder).await;
        let (next, end) = world.work().await;
        assert_ne!(next, holder);
        world.trio.mesh.client().publish(end, "".into()).await.unwrap();
    });
    let said = said.unwrap().unwrap();
    assert_eq!(said["result"]["task"]["id"], id.as_str(), "{said}");
    assert_eq!(state(&said["result"]["task"]), "TASK_STATE_COMPLETED", "{said}");
    for _ in 0..CALLS {
        let (task, _) = call(&ada, NAME, "GetTask", json!({"id": id})).await;
        assert_eq!(state(&task), "TASK_STATE_COMPLETED", "{task}");
    }
    assert!(world.works.next().now_or_never().is_none(), "of those that waited one began it again");
}

#[tokio::test]
async fn a_task_whose_process_died_is_unknown() {
    let mut world = Children::begin().await;
    let ada = world.trio.caller("ada").await;
    let id = begun(&ada, "m", "work").await;
    let (holder, _) = world.work().await;
    world.kill(holder).await;
    // The server may not know yet that the process is gone, and a call that reached it is not answered.
    let unknown = async {
        let mut in_a_row = 0;
        while in_a_row < CALLS {
            let said = try_call(&ada, "GetTask", json!({"id": id}), Duration::from_secs(1)).await;
            in_a_row = if said.is_ok_and(|said| said["error"]["code"] == -32001) { in_a_row + 1 } else { 0 };
        }
    };
    timeout(PATIENCE, unknown).await.expect("no process knows the task any more");
}

#[tokio::test]
async fn an_agent_that_is_asked_late_does_its_work_once() {
    let mut trio = Trio::begin().await;
    let ada = trio.caller("ada").await;
    let id = begun(&ada, "m", "wait").await;
    trio.place_of_next().await;
    // As after the first answer did not come in time: the task is asked for, whichever process is reached.
    let request = serde_json::from_value(message("m", "wait")).unwrap();
    let asked = ask_until_answered(&ada, NAME, &request, Instant::now() + PATIENCE);
    let (ended, ()) = tokio::join!(asked, async {
        trio.passed_on().await;
        trio.gate.add_permits(1);
    });
    let ended = ended.unwrap();
    assert_eq!((ended.id.0.as_str(), ended.status.state), (id.as_str(), TaskState::Completed));
    assert_eq!(trio.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_process_that_is_alone_asks_nobody() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let mut trio = Trio::none(server, None).await;
    trio.add(None).await;
    let ada = trio.caller("ada").await;
    call(&ada, NAME, "SendMessage", message("m", "now")).await;
    assert_eq!(call(&ada, NAME, "GetTask", json!({"id": "no-such-task"})).await.0["code"], -32001);
    call(&ada, NAME, "ListTasks", json!({})).await;
    sync(&trio.mesh).await;
    while let Some(Some(message)) = trio.words.next().now_or_never() {
        let body: Value = serde_json::from_slice(&message.payload).unwrap();
        assert!(body.get("hello").is_some() || body.get("here").is_some(), "{body}");
    }
}

/// A server whose users `trio` and `older` have the rights of agents; those of the second are of a version before processes
/// found each other.
async fn server_with_rights() -> Server {
    let rights = Role::Agent.permissions("test", &Token::of(NAME));
    let list = |subjects: &mut dyn Iterator<Item = &String>| json!(subjects.collect::<Vec<_>>()).to_string();
    let user = |name: &str, may: &dyn Fn(&str) -> bool| {
        let publish = list(&mut rights.publish.iter().filter(|subject| may(subject)));
        let subscribe = list(&mut rights.subscribe.iter().filter(|subject| may(subject)));
        format!(
            "{{user: {name}, password: secret, permissions: {{publish: {{allow: {publish}}}, subscribe: {{allow: {subscribe}}}, \
             allow_responses: {{max: 1, expires: \"60m\"}}}}}}"
        )
    };
    let (agent, older) = (user(NAME, &|_| true), user("older", &|subject| !subject.contains(".replica.")));
    let config = format!(
        "authorization {{users: [{{user: root, password: secret}}, {agent}, {older}]}}\nno_auth_user: root\n"
    );
    let options = ServerOptions { config_extra: Some(config), ..ServerOptions::default() };
    Server::start(options).await.unwrap()
}

#[tokio::test]
async fn the_rights_of_an_agent_are_enough() {
    let mut trio = Trio::none(server_with_rights().await, Some("root")).await;
    for _ in 0..2 {
        trio.add(Some(NAME)).await;
    }
    let ada = trio.caller("ada").await;
    let id = begun(&ada, "m", "wait").await;
    for _ in 0..CALLS {
        assert_eq!(call(&ada, NAME, "GetTask", json!({"id": id})).await.0["id"], id.as_str());
    }
    assert_eq!(state(&call(&ada, NAME, "CancelTask", json!({"id": id})).await.0), "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn processes_without_the_right_work_alone() {
    let mut trio = Trio::none(server_with_rights().await, Some("root")).await;
    trio.add(Some("older")).await;
    let ada = trio.caller("ada").await;
    let (said, _) = call(&ada, NAME, "SendMessage", message("m", "now")).await;
    assert_eq!(state(&said["task"]), "TASK_STATE_COMPLETED", "{said}");
    let id = said["task"]["id"].clone();
    // A process with the right beside it finds nothing of it, and works all the same.
    trio.processes.push(trio.start(Some(NAME)));
    let mut seen = BTreeSet::new();
    let both = async {
        while seen.len() < 2 {
            let (said, _) = call(&ada, NAME, "GetTask", json!({"id": id})).await;
            seen.insert(said["code"].as_i64());
        }
    };
    timeout(PATIENCE, both).await.expect("both processes answer");
    assert_eq!(seen, BTreeSet::from([None, Some(-32001)]));
}
