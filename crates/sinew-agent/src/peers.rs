//! The others on the mesh, as a handler meets them: who is there, calls through their A2A door, artifacts by address.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::Value;
use sinew_mesh::artifact::Place;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::card::Cards;
use sinew_mesh::live::Control;
use sinew_mesh::trace::TraceParent;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::a2a::{
    A2A_VERSION, AgentCard, CoreMethod, Message, Part, SendMessageRequest, SendMessageResponse, Task,
    is_terminal,
};
use sinew_protocol::artifact::sha256;
use sinew_protocol::jsonrpc::{Method, Request, Response, fault_of};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::task::{NodeOutput, read_result};
use sinew_protocol::unique_keys::{check_unique_keys, read_unique};
use sinew_protocol::{Fault, Token, header};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::artifacts::Artifacts;
use crate::failure::{ARTIFACTS, Failure, NO_PEER, short};
use crate::task_properties::TaskProperties;
use crate::task_properties::own_ids;

/// How long a first look at the cards may take.
const LOOK: Duration = Duration::from_secs(5);
/// How long a call waits when its task has no deadline.
const LONGEST: Duration = Duration::from_hours(1);
/// How long the answer to a cancellation is waited for.
const GIVE_UP: Duration = Duration::from_secs(30);

/// The others on the mesh. Clones share one view of the cards, made when it is first asked for.
#[derive(Clone)]
pub(crate) struct Peers(Arc<PeersState>);

struct PeersState {
    mesh: Mesh,
    cards: OnceLock<Cards>,
}

/// The task that calls others: its properties, its end and the calls it has made.
#[derive(Clone, Copy)]
pub(crate) struct TaskCalls<'a> {
    pub(crate) about: &'a TaskProperties,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) artifacts: &'a Artifacts,
    pub(crate) calls: &'a AtomicU32,
}

impl TaskCalls<'_> {
    /// Returns how many calls the task has made before this one.
    fn next_call(self) -> u32 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

impl Peers {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        Self(Arc::new(PeersState { mesh: mesh.clone(), cards: OnceLock::new() }))
    }

    pub(crate) async fn list(&self) -> Vec<AgentCard> {
        let cards = self.0.cards.get_or_init(|| self.0.mesh.cards().follow());
        if timeout(LOOK, cards.ready()).await.is_err() {
            tracing::warn!("the cards of the mesh cannot be read");
        }
        cards.list().iter().map(|announced| announced.card.clone()).collect()
    }

    /// The bytes at an address.
    pub(crate) async fn fetch(&self, address: &str) -> Result<Bytes, Failure> {
        self.0.mesh.artifacts().fetch(address).await.map_err(|error| {
            let retryable = matches!(error, MeshError::Unreachable { .. });
            Fault::error(ARTIFACTS, error.to_string()).with_retryable(retryable).into()
        })
    }

    /// Asks an agent or a workflow with this input.
    pub(crate) async fn call(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        input: Value,
    ) -> Result<Value, Failure> {
        let id = call_id(context, agent, &input.to_string());
        let request = self.request(context, agent, &id, input).await?;
        self.ask(context, agent, &id, request).await
    }

    /// The same under a key of the caller's choice: a repeated call of the key is the same message, whatever its input.
    pub(crate) async fn call_keyed(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        key: &str,
        input: Value,
    ) -> Result<Value, Failure> {
        let id =
            format!("{}-{}", context.about.activation, &sha256(format!("{agent}\n{key}").as_bytes())[..24]);
        let request = self.request(context, agent, &id, input).await?;
        self.ask(context, agent, &id, request).await
    }

    /// Sends a request and waits for its output, or tells the other side when nobody wants it any more.
    pub(crate) async fn ask(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        id: &str,
        mut request: SendMessageRequest,
    ) -> Result<Value, Failure> {
        let mesh = &self.0.mesh;
        let limit = context
            .about
            .deadline
            .map_or(LONGEST, |at| at.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST));
        if let Some(calling) = context.about.calling() {
            calling.put(&mut request);
        }
        let method = Method::Core(CoreMethod::SendMessage);
        let body = Request::new(id, method, &request).to_bytes();
        let headers = headers(context, limit);
        let call = mesh.services().call_rpc(agent, method.as_str(), headers, body, limit);
        let reply = tokio::select! {
            biased;
            reply = call => reply.map_err(|error| no_peer(agent, &error.to_string(), !matches!(error, MeshError::NoAnswer { .. })))?,
            () = context.cancel.cancelled() => {
                tokio::spawn(give_up(mesh.clone(), agent.to_owned(), id.to_owned()));
                return Err(Fault::cancelled(crate::failure::CANCELLED, "the call was given up with its task").into());
            }
        };
        let task = opened(agent, &reply.body)?;
        if !is_terminal(task.status.state) {
            let asks =
                task.status.message.as_ref().and_then(|message| message.texts().next().map(str::to_owned));
            return Err(no_peer(
                agent,
                &format!("it waits for a person: {}", asks.unwrap_or_default()),
                false,
            ));
        }
        let result = read_result(&task).map_err(|error| no_peer(agent, &error.to_string(), false))?;
        if let Some(fault) = result.fault {
            return Err(fault.into());
        }
        match result.output {
            NodeOutput::None => Ok(Value::Null),
            NodeOutput::Value(value) => Ok(value),
            NodeOutput::Address(address) => Ok(read_unique(&self.fetch(&address).await?)?),
        }
    }

    /// Stores what is sent by address.
    pub(crate) async fn store(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<Part, Failure> {
        let name = sinew_protocol::ArtifactName::parse(name).map_err(Fault::from)?;
        let place = Place {
            app: &context.about.agent,
            user: "",
            execution: &context.about.execution,
            task: &context.about.task,
        };
        let stored = self.0.mesh.artifacts().put_object(&place, name, 0, media_type, bytes).await;
        Ok(stored.map_err(|error| no_peer(agent, &error.to_string(), true))?.part)
    }

    async fn request(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        id: &str,
        input: Value,
    ) -> Result<SendMessageRequest, Failure> {
        let node = MeshMessage::from(WorkflowNodeRequestData {
            workflow_name: context.about.agent.clone(),
            node_id: context.about.task.as_str().to_owned(),
            ..WorkflowNodeRequestData::default()
        });
        let json = input.to_string();
        let part = if json.len() <= INLINE_LIMIT {
            Part::data(input)
        } else {
            let name = format!("call_{}.json", &sha256(json.as_bytes())[..16]);
            self.store(context, agent, &name, "application/json", json.into()).await?
        };
        let mut message = Message::user(id, vec![node.to_part(Vocabulary::Current), part]);
        if !context.about.session.is_empty() {
            message = message.with_context_id(&*context.about.session);
        }
        Ok(SendMessageRequest { tenant: None, message, configuration: None, metadata: None })
    }
}

/// The id of a call: the same call of the same task has the same id, so that a peer that was asked before answers at once.
pub(crate) fn call_id(context: TaskCalls<'_>, agent: &str, content: &str) -> String {
    let digest = sha256(format!("{agent}\n{content}").as_bytes());
    format!("{}-{}-{}", context.about.task, context.next_call(), &digest[..16])
}

/// Tells the other side that nobody waits any more. A workflow's task has the id of its execution, an agent's its own; the
/// control subject reaches every replica of an agent, where the caller has the right to it.
async fn give_up(mesh: Mesh, agent: String, message: String) {
    let (execution, task) = own_ids(mesh.namespace(), &Token::of(&agent), mesh.caller(), &message);
    let control = Control::Cancel { execution: execution.clone() };
    if let Err(error) = mesh.tasks().control(&agent, &task, &control).await {
        tracing::debug!(agent, %error, "the peer does not hear that the call was given up");
    }
    let method = Method::Core(CoreMethod::CancelTask);
    for id in [execution.as_str(), task.as_str()] {
        let params = serde_json::json!({ "id": id });
        let body = Request::new(message.as_str(), method, &params).to_bytes();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, header::JSON);
        headers.insert(header::A2A_VERSION, A2A_VERSION);
        let told = mesh.services().call_rpc(&agent, method.as_str(), headers, body, GIVE_UP).await;
        match told.map(|reply| Response::read(&reply.body).map(Response::into_result)) {
            Ok(Ok(Ok(_))) => return,
            answer => tracing::debug!(agent, id, ?answer, "the peer cancelled no task of this id"),
        }
    }
}

fn headers(context: TaskCalls<'_>, limit: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    headers.insert(header::CALL_DEPTH, (context.about.depth + 1).to_string());
    let deadline = (SystemTime::now() + limit).duration_since(UNIX_EPOCH).unwrap_or_default();
    headers.insert(header::DEADLINE, deadline.as_millis().to_string());
    if let Some(trace) =
        context.about.trace_parent.as_deref().and_then(|text| text.parse::<TraceParent>().ok())
    {
        trace.child().put(&mut headers);
    }
    headers
}

/// The task out of a JSON-RPC answer.
fn opened(agent: &str, body: &[u8]) -> Result<Task, Failure> {
    let bad = |reason: &str| no_peer(agent, reason, false);
    check_unique_keys(body).map_err(|error| bad(&error.to_string()))?;
    let reply = Response::read(body).map_err(|error| bad(&error.to_string()))?;
    let result = reply.into_result().map_err(|error| Failure::from(fault_of(&error)))?;
    match serde_json::from_value(result) {
        Ok(SendMessageResponse::Task(task)) => Ok(task),
        Ok(_) => Err(bad("its answer is no task")),
        Err(error) => Err(bad(&error.to_string())),
    }
}

pub(crate) fn no_peer(agent: &str, reason: &str, retryable: bool) -> Failure {
    let message = format!("agent {:?} cannot be called: {}", short(agent, 100), short(reason, 500));
    Fault::error(NO_PEER, message).with_retryable(retryable).into()
}
