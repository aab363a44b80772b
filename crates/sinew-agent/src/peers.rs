//! The others on the mesh, as a handler meets them: who is there, calls through their A2A door, artifacts by address.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Map, Value};
use sinew_mesh::artifact::Place;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::card::Cards;
use sinew_mesh::live::Control;
use sinew_mesh::trace::TraceParent;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::a2a::{
    A2A_VERSION, AgentCard, CoreMethod, Message, Part, SendMessageRequest, SendMessageResponse, Task,
};
use sinew_protocol::artifact::sha256;
use sinew_protocol::jsonrpc::{Method, Request, Response, fault_of};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::task::{NodeOutput, read_result};
use sinew_protocol::tool::{ToolDeclaration, ToolInput, WorkflowTool};
use sinew_protocol::{Fault, Token, header};
use sinew_source::Schema;
use tokio::time::timeout;

use crate::context::Context;
use crate::door::own_ids;
use crate::failure::{ARTIFACTS, Failure, NO_PEER, short};

/// How long a first look at the cards may take.
const LOOK: Duration = Duration::from_secs(5);
/// How long a call waits when its task has no deadline.
const LONGEST: Duration = Duration::from_hours(1);

/// The others on the mesh. Clones share one view of the cards, made when it is first asked for.
#[derive(Clone)]
pub(crate) struct Peers(Arc<Inner>);

struct Inner {
    mesh: Mesh,
    cards: OnceLock<Cards>,
}

impl Peers {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        Self(Arc::new(Inner { mesh: mesh.clone(), cards: OnceLock::new() }))
    }

    pub(crate) async fn list(&self) -> Vec<AgentCard> {
        let cards = self.0.cards.get_or_init(|| self.0.mesh.cards());
        if timeout(LOOK, cards.ready()).await.is_err() {
            tracing::warn!("the cards of the mesh cannot be read");
        }
        cards.list().iter().map(|announced| announced.card.clone()).collect()
    }

    pub(crate) async fn tools(&self) -> Vec<ToolDeclaration> {
        self.list().await.iter().filter_map(WorkflowTool::from_card).map(|tool| tool.declaration()).collect()
    }

    /// The bytes at an address.
    pub(crate) async fn fetch(&self, address: &str) -> Result<Bytes, Failure> {
        self.0.mesh.artifacts().fetch(address).await.map_err(|error| {
            let retryable = matches!(error, MeshError::Unreachable { .. });
            Fault::error(ARTIFACTS, error.to_string()).with_retryable(retryable).into()
        })
    }

    pub(crate) async fn call_tool(
        &self,
        context: &Context,
        name: &str,
        arguments: &Value,
    ) -> Result<Value, Failure> {
        let missing =
            || Fault::failure(NO_PEER, format!("no workflow is there for tool {:?}", short(name, 100)));
        let tools = self.list().await;
        let tool = tools.iter().filter_map(WorkflowTool::from_card).find(|tool| tool.name() == name);
        let tool = tool.ok_or_else(missing)?;
        let none = Map::new();
        // The name it makes goes nowhere: the input travels in the message or under its own address.
        let prepared = tool.prepare(arguments.as_object().unwrap_or(&none), 0, violations)?;
        let input = match prepared {
            ToolInput::Parameters { content, .. } => content,
            ToolInput::Artifact(reference) => {
                let bytes = context.artifacts().get(reference.name.as_str(), reference.version)?;
                serde_json::from_slice(&bytes)?
            }
        };
        self.call(context, &tool.workflow, input).await
    }

    pub(crate) async fn call(&self, context: &Context, agent: &str, input: Value) -> Result<Value, Failure> {
        let mesh = &self.0.mesh;
        let digest = sha256(format!("{agent}\n{input}").as_bytes());
        // The same call of the same task has the same id, so that a peer that was asked before answers at once.
        let id = format!("{}-{}-{}", context.task(), context.next_call(), &digest[..16]);
        let limit = context
            .deadline()
            .map_or(LONGEST, |at| at.duration_since(SystemTime::now()).unwrap_or_default().min(LONGEST));
        let request = self.request(context, agent, &id, input).await?;
        let params = serde_json::to_value(request)?;
        let method = Method::Core(CoreMethod::SendMessage);
        let body = Request { id: id.clone().into(), method, params }.to_bytes();
        let headers = headers(context, limit);
        let call = mesh.call_rpc(agent, method.as_str(), headers, body, limit);
        let reply = tokio::select! {
            biased;
            reply = call => reply.map_err(|error| no_peer(agent, &error.to_string(), !matches!(error, MeshError::NoAnswer { .. })))?,
            () = context.cancel().cancelled() => {
                let (execution, task) = own_ids(mesh.namespace(), &Token::of(agent), mesh.caller(), &id);
                if let Err(error) = mesh.control(agent, &task, &Control::Cancel { execution }).await {
                    tracing::debug!(%error, "the peer does not hear that the call was given up");
                }
                return Err(Fault::cancelled(crate::failure::CANCELLED, "the call was given up with its task").into());
            }
        };
        let task = opened(agent, &reply.body)?;
        let result = read_result(&task).map_err(|error| no_peer(agent, &error.to_string(), false))?;
        if let Some(fault) = result.fault {
            return Err(fault.into());
        }
        match result.output {
            NodeOutput::None => Ok(Value::Null),
            NodeOutput::Value(value) => Ok(value),
            NodeOutput::Address(address) => Ok(serde_json::from_slice(&self.fetch(&address).await?)?),
        }
    }

    async fn request(
        &self,
        context: &Context,
        agent: &str,
        id: &str,
        input: Value,
    ) -> Result<SendMessageRequest, Failure> {
        let node = MeshMessage::from(WorkflowNodeRequestData {
            workflow_name: context.agent().to_owned(),
            node_id: context.task().as_str().to_owned(),
            ..WorkflowNodeRequestData::default()
        });
        let json = input.to_string();
        let part = if json.len() <= INLINE_LIMIT {
            Part::data(input)
        } else {
            let name = format!("call_{}.json", &sha256(json.as_bytes())[..16]);
            let name = sinew_protocol::ArtifactName::parse(&name).map_err(Fault::from)?;
            let place = Place {
                app: context.agent(),
                user: "",
                execution: context.execution(),
                task: context.task(),
            };
            let store = self.0.mesh.artifacts();
            let stored = store.put_object(&place, name, 0, "application/json", json.into()).await;
            stored.map_err(|error| no_peer(agent, &error.to_string(), true))?.part
        };
        let mut message = Message::user(id, vec![node.to_part(Vocabulary::Current), part]);
        if !context.session().is_empty() {
            message = message.with_context_id(context.session());
        }
        Ok(SendMessageRequest { tenant: None, message, configuration: None, metadata: None })
    }
}

fn headers(context: &Context, limit: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    headers.insert(header::CALL_DEPTH, (context.about().depth + 1).to_string());
    let deadline = (SystemTime::now() + limit).duration_since(UNIX_EPOCH).unwrap_or_default();
    headers.insert(header::DEADLINE, deadline.as_millis().to_string());
    if let Some(trace) = context.trace_parent().and_then(|text| text.parse::<TraceParent>().ok()) {
        trace.child().put(&mut headers);
    }
    headers
}

/// The task out of a JSON-RPC answer.
fn opened(agent: &str, body: &[u8]) -> Result<Task, Failure> {
    let bad = |reason: &str| no_peer(agent, reason, false);
    let reply = Response::read(body).map_err(|error| bad(&error.to_string()))?;
    let result = reply.into_result().map_err(|error| Failure::from(fault_of(&error)))?;
    match serde_json::from_value(result) {
        Ok(SendMessageResponse::Task(task)) => Ok(task),
        Ok(_) => Err(bad("its answer is no task")),
        Err(error) => Err(bad(&error.to_string())),
    }
}

fn no_peer(agent: &str, reason: &str, retryable: bool) -> Failure {
    let message = format!("agent {:?} cannot be called: {}", short(agent, 100), short(reason, 500));
    Fault::error(NO_PEER, message).with_retryable(retryable).into()
}

/// Where a tool's arguments break its schema.
fn violations(schema: &Value, arguments: &Value) -> Vec<String> {
    match Schema::compile(schema) {
        Err(error) => vec![error.to_string()],
        Ok(schema) => {
            let line = |v: sinew_source::Violation| format!("{}: {}", v.pointer, v.message);
            schema.errors(arguments).into_iter().map(line).collect()
        }
    }
}
