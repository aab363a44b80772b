//! Peers on the mesh, as available to a handler: discovery, calls through their A2A endpoint,
//! artifacts by address.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::Value;
use sinew_mesh::artifact::ArtifactOwner;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::card::Cards;
use sinew_mesh::live::Control;
use sinew_mesh::steps::StepStore;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::a2a::{
    A2A_VERSION, AgentCard, CoreMethod, Message, Part, PartContent, SendMessageRequest, Task,
};
use sinew_protocol::artifact::sha256;
use sinew_protocol::card::{self, AgentKind, PERSON_QUESTION};
use sinew_protocol::jsonrpc::{Method, Request, Response};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::permission::GrantedRights;
use sinew_protocol::stream::{INLINE_LIMIT, bucket};
use sinew_protocol::subject::below;
use sinew_protocol::task::{NodeOutput, read_result};
use sinew_protocol::tool::WorkflowTool;
use sinew_protocol::unique_keys::read_unique;
use sinew_protocol::{ArtifactMeta, ArtifactRef, Fault, Subject, Token, header};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::failure::{ARTIFACTS, Failure, no_peer};
use crate::peer_request::{PeerKind, PeerRequest};
use crate::task_calls::TaskCalls;
use crate::task_properties::TaskProperties;
use crate::task_properties::own_ids;

/// Wait for the card of a name that is not online.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for the settings of the mesh before the first call.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(1);
/// Message if no agent or workflow has this name.
const NO_ANSWER: &str = "no agent or workflow of this name responded";
/// Timeout of a call if its task has no deadline.
const MAX_CALL_TIME: Duration = Duration::from_hours(24);
/// Time for which an executor counts as running after a reply; the next call of an agent after that
/// checks again.
const EXECUTOR_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Pause between two checks for an executor.
const NO_EXECUTOR_PAUSE: Duration = Duration::from_secs(2);
/// Timeout for the reply to a cancellation.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Answer of a called agent.
#[derive(Debug)]
pub struct CallAnswer {
    /// The output, or the failure.
    pub result: Result<Value, Failure>,
    /// Tokens, cost and turns, as reported by the callee; null if it reports none.
    pub usage: Value,
}

/// Returns the message id of a call with a key.
fn keyed_id(context: TaskCalls<'_>, agent: &str, key: &str) -> String {
    format!("{}-{}", context.about.activation, &sha256(format!("{agent}\n{key}").as_bytes())[..24])
}

/// Peers on the mesh. Clones share one view of the cards, created on first use.
#[derive(Clone)]
pub(crate) struct Peers(Arc<PeersState>);

struct PeersState {
    mesh: Mesh,
    cards: OnceLock<Cards>,
    /// Whether the mesh stores the steps of this agent.
    keeps_steps: AtomicBool,
    /// Rights of the connection; `None` if it may do everything.
    rights: OnceCell<Option<GrantedRights>>,
    retention: OnceCell<Duration>,
    vocabulary: OnceCell<Vocabulary>,
    /// When an executor last replied before a call.
    executor_seen_at: Mutex<Option<Instant>>,
}

impl Peers {
    pub(crate) fn new(mesh: &Mesh) -> Self {
        Self(Arc::new(PeersState {
            mesh: mesh.clone(),
            cards: OnceLock::new(),
            keeps_steps: AtomicBool::new(true),
            rights: OnceCell::new(),
            retention: OnceCell::new(),
            vocabulary: OnceCell::new(),
            executor_seen_at: Mutex::default(),
        }))
    }

    /// Keeps steps in memory from now on: the mesh does not store them, or this agent lacks the
    /// right.
    pub(crate) fn forget_steps(&self) {
        self.0.keeps_steps.store(false, Ordering::Relaxed);
    }

    /// Returns the namespace of the mesh.
    pub(crate) fn namespace(&self) -> &str {
        self.0.mesh.namespace()
    }

    /// Returns how long the mesh stores steps.
    pub(crate) async fn retention(&self) -> Result<Duration, MeshError> {
        let layout = async || self.0.mesh.admin().layout().await.map(|layout| layout.retention);
        self.0.retention.get_or_try_init(layout).await.copied()
    }

    /// Returns the steps of agents, if the mesh stores them.
    pub(crate) fn steps(&self) -> Option<StepStore> {
        self.0.keeps_steps.load(Ordering::Relaxed).then(|| self.0.mesh.tasks().steps())
    }

    /// Returns the agents and workflows that are online; if the rights allow calls to some only,
    /// those.
    ///
    /// # Errors
    ///
    /// The cards cannot be read now: an empty list would mean that no agent is online.
    pub(crate) async fn list(&self) -> Result<Vec<AgentCard>, MeshError> {
        if let Some(callees) = self.callees().await? {
            return self.cards_of(callees).await;
        }
        let cards = self.cards();
        cards.current().await?;
        Ok(cards.list().iter().map(|announced| announced.card.clone()).collect())
    }

    /// Returns the card of an agent or workflow; `None` if it is not online.
    async fn card(&self, agent: &str) -> Result<Option<AgentCard>, MeshError> {
        if self.callees().await?.is_some() {
            return self.0.mesh.cards().get(&Token::of(agent)).await;
        }
        let cards = self.cards();
        if cards.get(agent).is_none() {
            cards.current().await?;
            // The card of a workflow follows a moment after its deployment.
            let _ = timeout(ANNOUNCEMENT_TIMEOUT, cards.wait_for(agent)).await;
        }
        Ok(cards.get(agent).map(|announced| announced.card.clone()))
    }

    fn cards(&self) -> &Cards {
        self.0.cards.get_or_init(|| self.0.mesh.cards().follow())
    }

    async fn rights(&self) -> Result<Option<&GrantedRights>, MeshError> {
        let rights = self.0.rights.get_or_try_init(|| self.0.mesh.admin().rights()).await?;
        Ok(rights.as_ref())
    }

    /// Returns the agents that may be called, if the rights name them individually. `None` for a
    /// connection that may follow all cards.
    async fn callees(&self) -> Result<Option<Vec<Token>>, MeshError> {
        let mesh = &self.0.mesh;
        let Some(rights) = self.rights().await? else { return Ok(None) };
        let stream = bucket(mesh.namespace(), "CARDS");
        if rights.may_publish(&format!("$JS.API.CONSUMER.CREATE.{stream}.>")) {
            return Ok(None);
        }
        let callee = |subject: &String| {
            let start = below(mesh.namespace(), &["rpc"]);
            let rest = subject.strip_prefix(start.trim_end_matches('>'))?;
            let token = Token::parse(rest.split('.').next()?).ok()?;
            let is_agent = token
                .name()
                .is_none_or(|name| !name.starts_with(card::AGENT_CALL_PREFIX) && name != PERSON_QUESTION);
            is_agent.then_some(token)
        };
        Ok(Some(rights.publish.iter().flatten().filter_map(callee).collect()))
    }

    async fn cards_of(&self, agents: Vec<Token>) -> Result<Vec<AgentCard>, MeshError> {
        let mesh = &self.0.mesh;
        let cards = agents.iter().map(|agent| async move {
            match mesh.cards().get(agent).await {
                // Permissions of older versions allow the call but not reading the card.
                Err(MeshError::Forbidden { .. }) => Ok(None),
                card => card,
            }
        });
        let cards = futures_util::future::try_join_all(cards).await?;
        Ok(cards.into_iter().flatten().collect())
    }

    /// Fetches the bytes at an address.
    pub(crate) async fn fetch(&self, address: &str) -> Result<Bytes, Failure> {
        self.0.mesh.artifacts().fetch(address).await.map_err(|error| {
            let retryable = matches!(error, MeshError::Unreachable { .. });
            Fault::error(ARTIFACTS, error.to_string()).with_retryable(retryable).into()
        })
    }

    /// Calls an agent or a workflow with this input.
    pub(crate) async fn call(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        input: Value,
    ) -> Result<Value, Failure> {
        let id = call_id(context, agent);
        let request = self.request(context, agent, &id, input).await?;
        self.ask(context, agent, &id, request).await?.result
    }

    /// Like [`Peers::call`], with a key of the caller: a repeated call with the key is the same
    /// message, whatever its input. A workflow receives a reference to `artifact`, an artifact of
    /// this task, instead of the input.
    pub(crate) async fn call_keyed(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        key: &str,
        input: Value,
        artifact: Option<&ArtifactRef>,
    ) -> Result<CallAnswer, Failure> {
        let id = keyed_id(context, agent, key);
        let request = match artifact {
            None => self.request(context, agent, &id, input).await?,
            Some(artifact) => {
                self.workflow_request(context, &WorkflowTool::new(agent, None), &id, artifact).await?
            }
        };
        self.ask(context, agent, &id, request).await
    }

    /// Returns the vocabulary of the mesh; without its settings, which guests cannot read, the one of
    /// the specification, because readers accept both.
    pub(crate) async fn vocabulary(&self) -> Vocabulary {
        let read = async {
            let layout = timeout(SETTINGS_TIMEOUT, self.0.mesh.admin().layout()).await;
            layout.ok().and_then(Result::ok).map_or(Vocabulary::Spec, |layout| layout.vocabulary)
        };
        *self.0.vocabulary.get_or_init(|| read).await
    }

    /// Sends a request and waits for its output; cancels it at the peer when it is no longer
    /// needed.
    ///
    /// The card determines the endpoint. A workflow answers under its own name. An agent is called
    /// by an execution, which survives the processes of both sides; without the right to that, or
    /// without an executor, at its own endpoint.
    pub(crate) async fn ask(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        id: &str,
        mut request: SendMessageRequest,
    ) -> Result<CallAnswer, Failure> {
        if let Some(calling) = context.about.calling() {
            calling.put(&mut request);
        }
        let call = self.peer_request(context, id, &request);
        let execution = card::agent_call(agent);
        let routes = self.routes(agent, &execution).await?;
        let doors: Vec<&str> = routes.iter().map(|(door, _)| *door).collect();
        let mut open = AwaitedCall::new(&self.0.mesh, &doors, id, context.cancel);
        let asked = async {
            for (door, kind) in &routes {
                if *door == execution && !self.finds_executor(&call, door).await? {
                    continue;
                }
                if let Some(task) = call.ask(door, *kind).await? {
                    return Ok((task, *door == execution));
                }
            }
            Err(no_peer(agent, NO_ANSWER, true))
        };
        let (task, by_execution) = tokio::select! {
            biased;
            () = context.cancel.cancelled() => {
                return Err(Fault::cancelled(crate::failure::CANCELLED, "the call was cancelled with its task").into());
            }
            asked = asked => {
                open.is_over = true;
                asked?
            }
        };
        let mut answer = self.answer(agent, &task).await?;
        if by_execution {
            answer.result = answer.result.map(|output| match output {
                Value::Object(mut members) => members.remove("output").unwrap_or_default(),
                output => output,
            });
        }
        Ok(answer)
    }

    /// Returns true if an executor replies at an endpoint, or has replied recently.
    async fn finds_executor(&self, call: &PeerRequest<'_>, door: &str) -> Result<bool, Failure> {
        let seen_at = self.0.executor_seen_at.lock().map(|seen_at| *seen_at).unwrap_or_default();
        if seen_at.is_some_and(|at| at.elapsed() < EXECUTOR_CHECK_INTERVAL) {
            return Ok(true);
        }
        let is_found = Box::pin(call.finds_executor(door)).await?;
        if is_found && let Ok(mut seen_at) = self.0.executor_seen_at.lock() {
            *seen_at = Some(Instant::now());
        }
        Ok(is_found)
    }

    /// Returns the endpoints at which to call an agent or workflow, in order of preference. The
    /// card decides: with an observer subscribed to all subjects of the mesh, NATS does not report
    /// that an endpoint has no responders.
    async fn routes<'a>(
        &self,
        agent: &'a str,
        execution: &'a str,
    ) -> Result<Vec<(&'a str, PeerKind)>, Failure> {
        let unknown = |error: MeshError| no_peer(agent, &error.to_string(), error.is_transient());
        let kind = match self.card(agent).await {
            Ok(Some(card)) => card::kind(&card),
            Ok(None) => return Err(no_peer(agent, NO_ANSWER, true)),
            // Permissions of older versions allow the call but not reading the card.
            Err(MeshError::Forbidden { .. }) => AgentKind::Agent,
            Err(error) => return Err(unknown(error)),
        };
        let own = match kind {
            AgentKind::Workflow => return Ok(vec![(agent, PeerKind::Execution)]),
            AgentKind::Agent => (agent, PeerKind::Agent),
        };
        let may_ask = self.may_ask(execution).await.map_err(unknown)?;
        Ok(if may_ask { vec![(execution, PeerKind::Execution), own] } else { vec![own] })
    }

    /// Asks a person through a separate execution, and returns its output. A repeated question with
    /// the key is the same one.
    pub(crate) async fn ask_person(
        &self,
        context: TaskCalls<'_>,
        key: &str,
        input: Value,
    ) -> Result<Value, Failure> {
        let may_ask = Box::pin(self.may_ask(PERSON_QUESTION)).await;
        let unknown = |error: MeshError| no_peer(PERSON_QUESTION, &error.to_string(), error.is_transient());
        if !may_ask.map_err(unknown)? {
            let name = &context.about.agent;
            let text = format!(
                "it lacks the right to ask people; use `sinew mesh permissions --calls {name}:{PERSON_QUESTION}`"
            );
            return Err(no_peer(PERSON_QUESTION, &text, false));
        }
        let id = keyed_id(context, PERSON_QUESTION, key);
        let mut request = Box::pin(self.request(context, PERSON_QUESTION, &id, input)).await?;
        if let Some(calling) = context.about.calling() {
            calling.put(&mut request);
        }
        let call = self.peer_request(context, &id, &request);
        let mut open = AwaitedCall::new(&self.0.mesh, &[PERSON_QUESTION], &id, context.cancel);
        let is_over = || context.about.clock.left(call.until) == Some(Duration::ZERO);
        let asked = async {
            loop {
                // All executors may be down now: the question waits for one.
                match call.ask(PERSON_QUESTION, PeerKind::Execution).await {
                    Ok(Some(task)) => return Ok::<_, Failure>(task),
                    Ok(None) if is_over() => {
                        return Err(no_peer(
                            PERSON_QUESTION,
                            "no executor accepts questions to people",
                            true,
                        ));
                    }
                    Ok(None) => {}
                    Err(failure) => {
                        let fault = failure.into_fault();
                        if !fault.retryable || is_over() {
                            return Err(fault.into());
                        }
                        tracing::debug!(%fault, "no executor accepted the question; retrying");
                    }
                }
                tokio::time::sleep(NO_EXECUTOR_PAUSE).await;
            }
        };
        let task = tokio::select! {
            biased;
            () = context.cancel.cancelled() => {
                return Err(Fault::cancelled(crate::failure::CANCELLED, "the question was cancelled with its task").into());
            }
            asked = asked => {
                open.is_over = true;
                asked?
            }
        };
        self.answer(PERSON_QUESTION, &task).await?.result
    }

    fn peer_request<'a>(
        &'a self,
        context: TaskCalls<'a>,
        id: &'a str,
        request: &'a SendMessageRequest,
    ) -> PeerRequest<'a> {
        let now = Instant::now();
        let until = match context.about.deadline.map(|at| at.duration_since(SystemTime::now())) {
            Some(Ok(left)) => now + left.min(MAX_CALL_TIME),
            // The clock of the task is stopped, or its deadline has passed.
            Some(Err(passed)) => now.checked_sub(passed.duration()).unwrap_or(now),
            None => now + MAX_CALL_TIME,
        };
        PeerRequest { mesh: &self.0.mesh, id, request, context, until }
    }

    /// Returns the answer in an ended task.
    async fn answer(&self, agent: &str, task: &Task) -> Result<CallAnswer, Failure> {
        let result = read_result(task).map_err(|error| no_peer(agent, &error.to_string(), false))?;
        let usage = result.usage;
        if let Some(fault) = result.fault {
            return Ok(CallAnswer { result: Err(fault.into()), usage });
        }
        let output = match result.output {
            NodeOutput::None => Value::Null,
            NodeOutput::Value(value) => value,
            NodeOutput::Address(address) => read_unique(&self.fetch(&address).await?)?,
        };
        Ok(CallAnswer { result: Ok(output), usage })
    }

    /// Returns whether this agent may call an endpoint. Permissions of older versions do not cover
    /// all.
    async fn may_ask(&self, door: &str) -> Result<bool, MeshError> {
        let subject = self.0.mesh.subject(&Subject::Rpc {
            agent: Token::of(door),
            method: Token::of(CoreMethod::SendMessage.wire_name()),
            caller: self.0.mesh.caller().clone(),
        });
        Ok(self.rights().await?.is_none_or(|rights| rights.may_publish(&subject)))
    }

    /// Stores an artifact of a task; returns its address.
    pub(crate) async fn store_artifact(
        &self,
        about: &TaskProperties,
        meta: &ArtifactMeta,
        bytes: Bytes,
    ) -> Result<String, Failure> {
        let place =
            ArtifactOwner { app: &about.agent, user: "", execution: &about.execution, task: &about.task };
        let store = self.0.mesh.artifacts();
        let put = store.put_object(&place, meta.name.clone(), meta.version, &meta.media_type, bytes);
        let failed = |reason: String, retryable| Fault::error(ARTIFACTS, reason).with_retryable(retryable);
        let stored = put.await.map_err(|error| failed(error.to_string(), error.is_transient()))?;
        match stored.part.content {
            PartContent::Url(address) => Ok(address),
            _ => Err(failed("an artifact has no address".to_owned(), false).into()),
        }
    }

    /// Stores data that is sent by address.
    pub(crate) async fn store(
        &self,
        context: TaskCalls<'_>,
        agent: &str,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<Part, Failure> {
        let name = sinew_protocol::ArtifactName::parse(name).map_err(Fault::from)?;
        let place = ArtifactOwner {
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
        let mut message = Message::user(id, vec![node.to_part(self.vocabulary().await), part]);
        let session = context.about.call_context();
        if !session.is_empty() {
            message = message.with_context_id(session.into_owned());
        }
        Ok(SendMessageRequest { tenant: None, message, configuration: None, metadata: None })
    }
}

/// Returns the id of a call: its number among the task's calls of this agent. The content is not
/// part of it, because a handler may phrase a repeated call differently; a peer that was called
/// before answers immediately.
pub(crate) fn call_id(context: TaskCalls<'_>, agent: &str) -> String {
    let nth = context.next_call(agent);
    format!("{}-{}-{nth}", context.about.task, &sha256(agent.as_bytes())[..16])
}

/// A call that awaits its answer. If the wait ends because the task is cancelled, the peer is
/// notified, even if the handler has already ended. If the process ends, the call continues: the
/// next process finds it.
struct AwaitedCall<'a> {
    mesh: &'a Mesh,
    doors: Vec<String>,
    message: &'a str,
    cancel: &'a CancellationToken,
    is_over: bool,
}

impl<'a> AwaitedCall<'a> {
    fn new(mesh: &'a Mesh, doors: &[&str], message: &'a str, cancel: &'a CancellationToken) -> Self {
        let doors = doors.iter().map(|&door| door.to_owned()).collect();
        Self { mesh, doors, message, cancel, is_over: false }
    }
}

impl Drop for AwaitedCall<'_> {
    fn drop(&mut self) {
        if self.is_over || !self.cancel.is_cancelled() {
            return;
        }
        // Without a runtime there is no connection either.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        for door in std::mem::take(&mut self.doors) {
            runtime.spawn(give_up(self.mesh.clone(), door, self.message.to_owned()));
        }
    }
}

/// Cancels the call at the peer. A workflow's task has the id of its execution, an agent's its own;
/// the control subject reaches every replica of an agent, if the caller has the right to publish to
/// it.
async fn give_up(mesh: Mesh, agent: String, message: String) {
    let (execution, task) = own_ids(mesh.namespace(), &Token::of(&agent), mesh.caller(), &message);
    let control = Control::Cancel { execution: execution.clone() };
    if let Err(error) = mesh.tasks().control(&agent, &task, &control).await {
        tracing::debug!(agent, %error, "cannot notify the peer that the call was cancelled");
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
            answer => tracing::debug!(agent, id, ?answer, "the peer did not cancel a task with this id"),
        }
    }
}
