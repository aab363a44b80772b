//! A mesh with a gateway in front of it, and a client over HTTP.

use std::collections::BTreeSet;
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken};
use sinew_dialects::LowerOptions;
use sinew_engine::Adapter;
use sinew_execution::Program;
use sinew_executor::service::{Service, ServiceOptions, store_plan};
use sinew_gateway::{Gateway, GatewayError, GatewayOptions};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, Provision};
use sinew_operations::gateway_keys::{MadeKey, NewKey, create_key};
use sinew_protocol::access::{AccessRole, KeyLimits};
use sinew_protocol::deployment::Deployment;
use sinew_source::{Limits, LoadOptions};
use tokio::sync::Notify;

/// Longer than anything here takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Time between two looks at what a test waits for: without a pause the looks would take the time of what is looked at.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One agent named `one`, whose output is the workflow's.
pub(crate) const SINGLE: &str = r#"
workflow:
  description: One agent
  input_schema: {type: object, properties: {value: {type: string}}, required: [value]}
  nodes:
    - {id: a, type: agent, agent_name: one, input: {value: "{{workflow.input.value}}"}}
  output_mapping: {value: "{{a.output.value}}"}
"#;

fn adapters(name: &str) -> Option<&'static dyn Adapter> {
    sinew_dialects::by_name(name).map(sinew_dialects::Dialect::adapter)
}

/// A workflow that asks a person.
pub(crate) fn review() -> String {
    json!({
        "id": "review",
        "name": "review",
        "nodes": [
            { "id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {} },
            { "id": "h", "name": "h", "type": "HUMAN_IN_THE_LOOP", "subtype": "MANUAL_REVIEW",
              "configurations": { "reviewers": ["gateway"], "question": "Is this right?" } }
        ],
        "connections": [{ "id": "c", "from_node": "t", "to_node": "h", "output_key": "result" }],
        "triggers": ["t"]
    })
    .to_string()
}

/// A workflow that calls `review`, with less time for its node than a person takes.
pub(crate) fn above_review() -> String {
    "workflow:\n  description: Calls review\n  nodes:\n    - {id: k, type: workflow, workflow_name: review, \
     input: {}, timeout: 30s}\n  output_mapping: {decided: \"{{k.output}}\"}\n"
        .to_owned()
}

/// A server, an executor, agents, a gateway, and a client.
pub(crate) struct GatewayWorld {
    server: Server,
    pub(crate) mesh: Mesh,
    pub(crate) base: String,
    pub(crate) http: reqwest::Client,
    service: Option<Service>,
    gateway: Option<Gateway>,
    stop: CancellationToken,
}

impl GatewayWorld {
    pub(crate) async fn new(workflows: &[(&str, &str)]) -> Self {
        Self::with(workflows, |_| {}).await
    }

    pub(crate) async fn with(workflows: &[(&str, &str)], change: impl FnOnce(&mut GatewayOptions)) -> Self {
        // A second provider in one process is not an error here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/get-nats.sh");
        let program = Some(Server::find_or_install(&script).unwrap());
        let server = Server::start(ServerOptions { program, ..ServerOptions::default() }).await.unwrap();
        let mesh = connect(&server.url(), "provision").await;
        mesh.admin()
            .provision(&Provision { shards: NonZeroU32::new(2), ..Provision::default() })
            .await
            .unwrap();
        for (name, text) in workflows {
            deploy(&mesh, name, text).await;
        }
        let mut options = ServiceOptions::new(adapters);
        options.calls = Some(sinew_operations::mesh_operator::built_in_workflow);
        let service = Service::start(connect(&server.url(), "executor").await, options).await.unwrap();
        let mut world = Self {
            server,
            mesh,
            base: String::new(),
            http: reqwest::Client::builder().build().unwrap(),
            service: Some(service),
            gateway: None,
            stop: CancellationToken::new(),
        };
        let cards = world.mesh.cards().follow();
        for (name, _) in workflows {
            tokio::time::timeout(PATIENCE, cards.wait_for(name)).await.unwrap();
        }
        let gateway = world.gateway(change).await;
        world.base = format!("http://{}", gateway.address());
        world.gateway = Some(gateway);
        world
    }

    /// Another gateway on the same mesh, under the same name.
    pub(crate) async fn gateway(&self, change: impl FnOnce(&mut GatewayOptions)) -> Gateway {
        let mut options = GatewayOptions::new(adapters);
        options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        change(&mut options);
        Gateway::start(connect(&self.server.url(), "gateway").await, options).await.unwrap()
    }

    /// Starts a gateway with other settings.
    pub(crate) async fn start_with(
        &self,
        change: impl FnOnce(&mut GatewayOptions),
    ) -> Result<Gateway, GatewayError> {
        let mut options = GatewayOptions::new(adapters);
        options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        change(&mut options);
        Gateway::start(connect(&self.server.url(), "gateway").await, options).await
    }

    /// Makes a key, which the gateway may not know yet.
    pub(crate) async fn make_key(&self, change: impl FnOnce(&mut NewKey)) -> MadeKey {
        let mut new = NewKey {
            groups: Vec::new(),
            name: "tester".to_owned(),
            role: AccessRole::Admin,
            scope: Some(sinew_protocol::access::KeyScope::All),
            patterns: vec!["*".to_owned()],
            expires_at: None,
            certificate_name: None,
            limits: KeyLimits::default(),
        };
        change(&mut new);
        // A key that has ended was made before its end.
        let made_at = new.expires_at.map_or_else(now, |end| now().min(end.saturating_sub(1)));
        create_key(&self.mesh, new, made_at).await.unwrap()
    }

    /// Makes a key; gives its id and what its owner sends. The gateway knows it when this returns.
    pub(crate) async fn key(&self, change: impl FnOnce(&mut NewKey)) -> (String, String) {
        let made = self.make_key(change).await;
        let key = made.key.unwrap_or_default();
        // Its view of the keys follows the mesh: an unknown key becomes a known one, valid or not.
        let url = format!("{}/.well-known/agent-card.json", self.base);
        let is_unknown = async |key: &str| {
            let answer = self.http.get(&url).bearer_auth(key).send().await.unwrap();
            answer.text().await.unwrap().contains("unknown key")
        };
        let known = async { while !key.is_empty() && is_unknown(&key).await {} };
        assert!(tokio::time::timeout(PATIENCE, known).await.is_ok(), "the gateway does not hear of the key");
        (made.row.id, key)
    }

    /// A connection to the server of the mesh, to another namespace.
    pub(crate) async fn other_mesh(&self, namespace: &str) -> Mesh {
        let mesh = connect_to(&self.server.url(), "provision", namespace).await;
        mesh.admin()
            .provision(&Provision { shards: NonZeroU32::new(1), ..Provision::default() })
            .await
            .unwrap();
        mesh
    }

    /// A connection of this caller to the mesh.
    pub(crate) async fn connect(&self, caller: &str) -> Mesh {
        connect(&self.server.url(), caller).await
    }

    /// Serves an agent until the world ends; its card is there when this returns.
    pub(crate) async fn serve(&self, agent: Agent) {
        let name = agent.name().to_owned();
        let own = connect(&self.server.url(), &name).await;
        let cards = own.cards().follow();
        tokio::spawn(agent.grace(Duration::from_millis(100)).serve(own, self.stop.clone()));
        tokio::time::timeout(PATIENCE, cards.wait_for(&name)).await.unwrap();
        self.wait_for_card(&name).await;
    }

    /// Waits until the gateway knows an agent: it has a view of its own.
    pub(crate) async fn wait_for_card(&self, name: &str) {
        let url = format!("{}/agents/{name}/.well-known/agent-card.json", self.base);
        while self.http.get(&url).send().await.unwrap().status() != 200 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Serves `one` where requests need keys, so that its card cannot be waited for at the gateway.
    pub(crate) async fn serve_echo_behind_keys(&self) {
        let own = connect(&self.server.url(), "one").await;
        let cards = own.cards().follow();
        let agent = Agent::dynamic("one", None, None, |input, _| async { Ok(input) });
        tokio::spawn(agent.grace(Duration::from_millis(100)).serve(own, self.stop.clone()));
        tokio::time::timeout(PATIENCE, cards.wait_for("one")).await.unwrap();
    }

    /// Serves `one`, which gives back its input.
    pub(crate) async fn serve_echo(&self) {
        self.serve(Agent::dynamic("one", None, None, |input, _| async { Ok(input) })).await;
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base)).header("A2A-Version", "1.0")
    }

    /// A call by JSON-RPC; gives the whole answer.
    pub(crate) async fn document(&self, path: &str) -> Value {
        self.request(Method::GET, path).send().await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn rpc(&self, endpoint: &str, method: &str, params: &Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let answer = self.request(Method::POST, endpoint).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer}");
        answer
    }

    /// A call of the binding to NATS, under the gateway's name; gives the result.
    pub(crate) async fn nats(&self, agent: &str, method: &str, params: &Value) -> Value {
        self.nats_answer(agent, method, params).await["result"].take()
    }

    /// Like [`Self::nats`], with the whole answer.
    pub(crate) async fn nats_answer(&self, agent: &str, method: &str, params: &Value) -> Value {
        let mesh = connect(&self.server.url(), "gateway").await;
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut headers = sinew_mesh::HeaderMap::new();
        headers.insert("A2A-Version", "1.0");
        let reply = mesh.services().call_rpc(agent, method, headers, body.into(), PATIENCE).await.unwrap();
        serde_json::from_slice(&reply.body).unwrap()
    }

    /// Serves MCP over pipes, as a process that a host starts.
    pub(crate) async fn serve_pipe<R, W>(&self, pipes: (R, W), stop: CancellationToken)
    where
        R: tokio::io::AsyncRead + Send + Unpin + 'static,
        W: tokio::io::AsyncWrite + Send + Unpin + 'static,
    {
        let mesh = connect(&self.server.url(), "gateway").await;
        tokio::spawn(sinew_gateway::serve_mcp(mesh, GatewayOptions::new(adapters), pipes, stop));
    }

    /// Waits until the task that changed last is in a state.
    pub(crate) async fn newest_task_is(&self, wanted: &str) {
        // A list lacks the tasks of an agent that does not answer in time, as on a machine with much to do.
        let reached = async {
            while self.newest_task().await["status"]["state"] != wanted {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        assert!(reached.is_ok(), "the newest task is not {wanted}: {}", self.newest_task().await);
    }

    /// Tasks of the gateway's caller.
    pub(crate) async fn task_count(&self) -> u64 {
        let page = self.rpc("/a2a", "ListTasks", &json!({"pageSize": 1})).await;
        page["result"]["totalSize"].as_u64().unwrap()
    }

    /// The task that changed last, as the gateway lists it.
    pub(crate) async fn newest_task(&self) -> Value {
        let page = self.rpc("/a2a", "ListTasks", &json!({"pageSize": 1})).await;
        page["result"]["tasks"][0].clone()
    }

    /// Executions that the mesh knows, open or closed.
    pub(crate) async fn executions(&self) -> usize {
        let client = sinew_executor::client::Client::new(self.mesh.clone(), adapters).await.unwrap();
        let open = client.open().await.unwrap();
        let filter = sinew_mesh::history::HistoryFilter::default();
        let closed = self.mesh.history().list(&filter, 1_000).await.unwrap();
        // One that has just ended is in both.
        let ids = open.iter().map(|one| one.execution.to_string());
        ids.chain(closed.iter().map(|one| one.execution.to_string())).collect::<BTreeSet<_>>().len()
    }

    /// Halts the broker, as a machine that hangs would.
    pub(crate) async fn pause_broker(&self) {
        self.server.pause().await.unwrap();
    }

    /// Lets the halted broker continue.
    pub(crate) fn resume_broker(&self) {
        self.server.resume().unwrap();
    }

    /// Ends the gateway as a supervisor would, and the executor.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        if let Some(gateway) = self.gateway.take() {
            gateway.drain().await;
        }
        if let Some(service) = self.service.take() {
            service.drain().await;
        }
    }

    /// Replaces the executor by another one.
    pub(crate) async fn replace_executor(&mut self) {
        self.end_executor().await;
        self.begin_executor().await;
    }

    /// Ends the executor; nobody owns a shard then.
    pub(crate) async fn end_executor(&mut self) {
        self.service.take().unwrap().drain().await;
    }

    /// Starts an executor in the place of one that was ended.
    pub(crate) async fn begin_executor(&mut self) {
        self.begin_executor_with(|_| {}).await;
    }

    pub(crate) async fn begin_executor_with(&mut self, change: impl FnOnce(&mut ServiceOptions)) {
        let mesh = connect(&self.server.url(), "successor").await;
        let mut options = ServiceOptions::new(adapters);
        change(&mut options);
        self.service = Some(Service::start(mesh, options).await.unwrap());
    }

    pub(crate) fn put_gateway(&mut self, gateway: Gateway) {
        self.gateway = Some(gateway);
    }

    pub(crate) fn take_gateway(&mut self) -> Gateway {
        self.gateway.take().unwrap()
    }
}

/// A world whose agent `one` waits for a word.
pub(crate) async fn held(workflows: &[(&str, &str)]) -> (GatewayWorld, Arc<Notify>, Arc<Notify>) {
    let world = GatewayWorld::new(workflows).await;
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waits) = (Arc::clone(&begun), Arc::clone(&go_on));
    let agent = Agent::dynamic("one", None, None, move |input, context| {
        let (told, waits) = (Arc::clone(&told), Arc::clone(&waits));
        async move {
            context.progress(json!("half"));
            told.notify_one();
            waits.notified().await;
            Ok(input)
        }
    });
    world.serve(agent).await;
    (world, begun, go_on)
}

/// Milliseconds since 1970 UTC.
pub(crate) fn now() -> u64 {
    u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

pub(crate) async fn connect(url: &str, caller: &str) -> Mesh {
    connect_to(url, caller, "test").await
}

async fn connect_to(url: &str, caller: &str, namespace: &str) -> Mesh {
    let connect = sinew_mesh::connect::Connect {
        url: Some(url.to_owned()),
        namespace: Some(namespace.to_owned()),
        caller: Some(caller.to_owned()),
        ..sinew_mesh::connect::Connect::default()
    };
    connect.open().await.unwrap()
}

async fn deploy(mesh: &Mesh, name: &str, text: &str) {
    let options = LoadOptions {
        name: "test.yaml",
        variables: sinew_source::Variables::Kept,
        read: &|_| Err("no includes".to_owned()),
        limits: Limits::default(),
    };
    let document = sinew_source::load(text.as_bytes(), &options).unwrap_or_else(|found| panic!("{found:?}"));
    let dialect = sinew_dialects::detect(&document).unwrap();
    let options = LowerOptions {
        default_name: name,
        read: &|_| Err("no other files".to_owned()),
        list: &sinew_dialects::no_list,
        agents: &BTreeMap::new(),
    };
    for lowered in dialect.lower(document, &options).unwrap_or_else(|found| panic!("{found:?}")) {
        let program = Program::new(lowered.plan, dialect.adapter()).unwrap();
        let deployment = Deployment {
            name: program.name().to_owned(),
            digest: store_plan(mesh, &program, None).await.unwrap(),
            dialect: program.adapter.name().to_owned(),
            description: String::new(),
            card: Value::Null,
            mermaid: "flowchart LR\n a".to_owned(),
            at: 0,
            by: "tester".to_owned(),
            author_version: None,
            pause: None,
        };
        mesh.workflows().deploy(&deployment).await.unwrap();
    }
}

/// A message with these parts.
#[expect(clippy::needless_pass_by_value, reason = "parts are written where they are given")]
pub(crate) fn message(id: &str, parts: Value) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": parts}})
}

pub(crate) fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_else(|| panic!("no task: {task}"))
}

/// Events of a stream as they arrive.
pub(crate) struct EventSource {
    bytes: futures_util::stream::BoxStream<'static, Vec<u8>>,
    rest: String,
    /// Comments that came, each without its colon.
    pub(crate) comments: Vec<String>,
}

/// One event: its number, and its data.
pub(crate) type SseEvent = (Option<u64>, Value);

impl EventSource {
    pub(crate) fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let bytes = response.bytes_stream().take_while(|chunk| std::future::ready(chunk.is_ok()));
        let bytes = bytes.map(|chunk| chunk.unwrap().to_vec()).boxed();
        Self { bytes, rest: String::new(), comments: Vec::new() }
    }

    /// The next event; none when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            while let Some((block, rest)) = self.rest.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.rest = rest;
                let mut fields: HashMap<&str, &str> = HashMap::new();
                for line in block.lines() {
                    match line.split_once(':') {
                        Some(("", comment)) => self.comments.push(comment.trim().to_owned()),
                        Some((name, value)) => drop(fields.insert(name, value.trim())),
                        None => panic!("not a line of an event: {line:?}"),
                    }
                }
                if let Some(data) = fields.get("data") {
                    let id = fields.get("id").map(|id| id.parse().unwrap());
                    return Some((id, serde_json::from_str(data).unwrap()));
                }
            }
            let next = tokio::time::timeout(PATIENCE, self.bytes.next());
            let chunk = next.await.unwrap_or_else(|_| panic!("no event came: {:?}", self.rest))?;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// All events until the end of the stream.
    pub(crate) async fn all(mut self) -> Vec<SseEvent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}
