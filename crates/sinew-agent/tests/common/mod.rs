//! A server of its own for a test, and the executor's part of the talk with agents.

#![allow(dead_code, unreachable_pub, reason = "each test uses what it needs")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what is wrong by panicking")]

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use sinew_agent::{Agent, AgentError, CancellationToken};
use sinew_mesh::async_nats::jetstream::consumer::pull::OrderedConfig;
use sinew_mesh::async_nats::{HeaderMap, Subscriber};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, Provision, async_nats};
use sinew_protocol::a2a::{Message, Part, SendMessageRequest, Task};
use sinew_protocol::task::{NodeRequestIds, NodeResult, TaskExtra, WorkflowNodeRequest, read_result};
use sinew_protocol::{ActivationKey, ExecutionId, ResultKey, ResultToken, Subject, TaskId, Token, header};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server and a mesh on it.
pub async fn mesh() -> (Server, Mesh) {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let mesh = connect(&server.url(), "exec").await;
    mesh.admin().provision(&Provision::default()).await.unwrap();
    (server, mesh)
}

/// A connection that comes back quickly.
pub async fn connect(url: &str, caller: &str) -> Mesh {
    let options = async_nats::ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(5));
    Mesh::new(options.connect(url).await.unwrap(), "test", caller)
}

/// Waits until the server has taken note of all that was said on this connection: flushing only sends it.
pub async fn sync(mesh: &Mesh) {
    let nobody = mesh.client().request("nobody.listens.here", "".into()).await;
    assert!(nobody.is_err());
}

/// An agent that is being served.
pub struct Served {
    pub stop: CancellationToken,
    served: JoinHandle<Result<(), AgentError>>,
}

impl Served {
    /// Lets it leave, and waits until it has.
    pub async fn stop(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.served).await.unwrap().unwrap().unwrap();
    }
}

/// Serves an agent on a connection of its own, and waits until its card is there.
pub async fn serve(server: &Server, mesh: &Mesh, agent: Agent) -> Served {
    let mut cards = mesh.client().subscribe(subject(mesh, &card(agent.name()))).await.unwrap();
    sync(mesh).await;
    let stop = CancellationToken::new();
    let own = connect(&server.url(), agent.name()).await;
    let leaving = tokio::spawn(agent.serve(own, stop.clone()));
    timeout(PATIENCE, cards.next()).await.unwrap().unwrap();
    Served { stop, served: leaving }
}

pub fn card(agent: &str) -> Subject {
    Subject::Card { agent: Token::of(agent) }
}

pub fn subject(mesh: &Mesh, subject: &Subject) -> String {
    mesh.subject(subject)
}

/// One task of an execution.
#[derive(Clone, Debug)]
pub struct Asked {
    pub agent: String,
    pub execution: ExecutionId,
    pub activation: ActivationKey,
    pub task: TaskId,
    pub result: String,
}

/// The `n`th task for an agent.
pub fn asked(mesh: &Mesh, agent: &str, n: u32) -> Asked {
    let execution = ExecutionId::of("test", "tester", &n.to_string());
    let activation = ActivationKey::of::<&str>(&execution, "node", &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    let token = ResultToken::of(&ResultKey::new([1; 32]), &task);
    let result = Subject::Result {
        shard: 3,
        agent: Token::of(agent),
        execution: execution.clone(),
        task: task.clone(),
        token,
    };
    Asked { agent: agent.to_owned(), execution, activation, task, result: mesh.subject(&result) }
}

impl Asked {
    pub fn subject(&self) -> Subject {
        Subject::Task {
            agent: Token::of(&self.agent),
            execution: self.execution.clone(),
            task: self.task.clone(),
        }
    }

    pub fn extra(&self, input: Option<Value>) -> TaskExtra {
        TaskExtra {
            input,
            instruction: Some("be kind".to_owned()),
            context: json!({"k": 1}),
            tag: String::new(),
            activation: self.activation.clone(),
            attempt: 1,
            deadline: None,
            result_subject: self.result.clone(),
        }
    }

    /// The message of an executor.
    pub fn message(&self, extra: &TaskExtra, parts: Vec<Part>) -> SendMessageRequest {
        let mut parts = parts;
        parts.push(Part::text("a reminder that is not input"));
        let message = Message::user(format!("{}-request", self.task), parts).with_context_id("session");
        let mut request = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
        extra.put(&mut request);
        request
    }

    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::RESULT_SUBJECT, self.result.as_str());
        headers
    }

    /// Puts the task on the agent's queue.
    pub async fn send(&self, mesh: &Mesh, input: Value) {
        self.send_as(mesh, &self.message(&self.extra(Some(input)), Vec::new())).await;
    }

    pub async fn send_as(&self, mesh: &Mesh, request: &SendMessageRequest) {
        self.send_bytes(mesh, self.headers(), serde_json::to_vec(request).unwrap()).await;
    }

    pub async fn send_bytes(&self, mesh: &Mesh, headers: HeaderMap, body: Vec<u8>) {
        mesh.tasks().put_once(&self.subject(), headers, body.into()).await.unwrap();
    }

    /// The result that is stored, once it is: subscribers may hear a result before the stream has it.
    pub async fn kept(&self, mesh: &Mesh) -> Task {
        let stream = mesh.admin().jetstream().get_stream("test_RESULTS").await.unwrap();
        let of_this = OrderedConfig { filter_subject: self.result.clone(), ..Default::default() };
        let mut messages = stream.create_consumer(of_this).await.unwrap().messages().await.unwrap();
        let message =
            timeout(PATIENCE, messages.next()).await.expect("the result is stored").unwrap().unwrap();
        serde_json::from_slice(&message.payload).unwrap()
    }

    /// The result that is stored; none when there is none.
    pub async fn stored(&self, mesh: &Mesh) -> Option<Task> {
        let stream = mesh.admin().jetstream().get_stream("test_RESULTS").await.unwrap();
        let message = stream.direct_get_last_for_subject(self.result.as_str()).await.ok()?;
        Some(serde_json::from_slice(&message.payload).unwrap())
    }
}

/// Results as they are published, whether the stream takes them or not.
pub struct Results(Subscriber);

pub async fn results(mesh: &Mesh) -> Results {
    let results = mesh.client().subscribe("test.v1.result.>").await.unwrap();
    sync(mesh).await;
    Results(results)
}

impl Results {
    /// The next one.
    pub async fn next(&mut self) -> NodeResult {
        let message = timeout(PATIENCE, self.0.next()).await.expect("a result comes").unwrap();
        read_result(&serde_json::from_slice(&message.payload).unwrap()).unwrap()
    }

    /// Counts the messages that arrived and were not read.
    pub async fn left(&mut self, mesh: &Mesh) -> usize {
        // Messages published before this have arrived afterwards.
        sync(mesh).await;
        let mut count = 0;
        while let Some(Some(_)) = self.0.next().now_or_never() {
            count += 1;
        }
        count
    }
}

/// Tasks of an agent that are delivered and not acknowledged, and those that wait.
pub async fn pending(mesh: &Mesh, agent: &str) -> (usize, u64) {
    let stream = mesh.admin().jetstream().get_stream("test_TASKS").await.unwrap();
    let mut consumer: async_nats::jetstream::consumer::PullConsumer =
        stream.get_consumer(&format!("agent-{agent}")).await.unwrap();
    let info = consumer.info().await.unwrap();
    (info.num_ack_pending, info.num_pending)
}

/// Waits until every task of an agent is acknowledged.
pub async fn settled(mesh: &Mesh, agent: &str) {
    let all = async {
        while pending(mesh, agent).await != (0, 0) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all).await.expect("all tasks are acknowledged");
}

/// A call at an agent's A2A door, and what is said back: result or error, and the number of the last event before it.
pub async fn call(mesh: &Mesh, agent: &str, method: &str, params: Value) -> (Value, Option<u64>) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut headers = HeaderMap::new();
    headers.insert(header::A2A_VERSION, "1.0");
    call_as(mesh, agent, method, headers, body).await
}

pub async fn call_as(
    mesh: &Mesh,
    agent: &str,
    method: &str,
    headers: HeaderMap,
    body: String,
) -> (Value, Option<u64>) {
    let reply = mesh.services().call_rpc(agent, method, headers, body.into(), PATIENCE).await.unwrap();
    assert_eq!(reply.headers.get(header::A2A_VERSION).unwrap().as_str(), "1.0");
    let seq = reply.headers.get(header::A2A_SEQ).map(|seq| seq.as_str().parse().unwrap());
    let mut body: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(body["jsonrpc"], "2.0");
    let said = if body.get("error").is_some() { &mut body["error"] } else { &mut body["result"] };
    (said.take(), seq)
}

/// A user's message with one text.
pub fn message(id: &str, text: &str) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]}})
}

/// The token that the answer to a task carries.
pub fn token(task: &Asked) -> ResultToken {
    ResultToken::parse(task.result.rsplit('.').next().unwrap()).unwrap()
}

/// The request of a task at the node endpoint.
pub fn node_request(task: &Asked, input: &Value) -> Vec<u8> {
    let token = token(task);
    let (execution, id, activation) = (&task.execution, &task.task, &task.activation);
    let ids = NodeRequestIds { execution, task: id, activation, attempt: 1, token: &token };
    let mut request = WorkflowNodeRequest::new(&ids, input);
    request.suggested_output_filename = "out.json".into();
    request.to_bytes()
}
