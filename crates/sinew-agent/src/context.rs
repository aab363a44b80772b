//! A handler's view of its task, and the operations that it may use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::{Map, Value};
use sinew_mesh::Mesh;
use sinew_protocol::a2a::{AgentCard, Message, Part};
use sinew_protocol::task::{LogLine, MAX_EVENTS, TaskLog, is_message, progress_text};
use sinew_protocol::tool::ToolDeclaration;
use sinew_protocol::{ArtifactMeta, ArtifactName, ArtifactRef, ExecutionId, Fault, TaskId};
use sinew_source::{HostReferences, VariableError};
use tokio_util::sync::CancellationToken;

use crate::artifacts::{Artifacts, KeptVersion};
use crate::failure::{ARTIFACTS, CANCELLED, Failure, NO_PEER, mesh_failed};
use crate::feed::{EventFeed, OutgoingEvents};
use crate::parking::TaskSlot;
use crate::peers::{CallAnswer, Peers};
use crate::person_question::{PersonAnswer, QuestionToPerson};
use crate::session_log::SessionLog;
use crate::step_log::StepLog;
use crate::steps::{StepBook, StepTask, Steps};
use crate::table::Entry;
use crate::task_calls::{CallCounts, TaskCalls};
use crate::task_properties::{CallerContext, TaskProperties};

/// Maximum bytes of the events of a result.
const MAX_EVENTS_BYTES: usize = 128 << 10;

/// The task of a handler. Clones are the same task.
#[derive(Clone)]
pub struct Context {
    inner: Arc<ContextState>,
    feedback: Arc<[String]>,
    retry: u32,
    /// Steps of each name that the handler has started in this call.
    step_counts: Arc<Mutex<HashMap<String, u32>>>,
    /// Key of a model's function call; `None` for handlers of tasks.
    call_key: Option<Arc<str>>,
}

/// The progress stream of a task, opened at the handler's first message.
enum ProgressSource {
    None,
    Open(EventFeed),
    Closed { mesh: Mesh, outgoing: OutgoingEvents, opened: OnceLock<EventFeed> },
}

struct ContextState {
    about: TaskProperties,
    cancel: CancellationToken,
    artifacts: Artifacts,
    feed: ProgressSource,
    /// The context of the input, encoded on the handler's first request.
    worded: OnceLock<Value>,
    peers: Option<Peers>,
    usage: Mutex<Option<Value>>,
    /// Events for the result, and their size in bytes.
    events: Mutex<(Vec<Value>, usize)>,
    calls: CallCounts,
    steps: StepLog,
    step_book: OnceLock<Arc<StepBook>>,
    slot: TaskSlot,
    /// Messages of the handler, for the result.
    log: Mutex<TaskLog>,
    /// The task as its caller sees it; `None` for a task without a caller.
    entry: Option<Arc<Entry>>,
}

impl Context {
    pub(crate) fn new(
        about: TaskProperties,
        cancel: CancellationToken,
        feed: Option<EventFeed>,
        peers: Option<Peers>,
    ) -> Self {
        let feed = feed.map_or(ProgressSource::None, ProgressSource::Open);
        Self::with_feed(about, cancel, feed, peers, None)
    }

    /// Creates the context of a task in the table of this process.
    pub(crate) fn of_entry(about: TaskProperties, entry: &Arc<Entry>, peers: Peers) -> Self {
        let feed = ProgressSource::Open(entry.feed.clone());
        let caller = entry.has_caller().then(|| Arc::clone(entry));
        Self::with_feed(about, entry.cancel.clone(), feed, Some(peers), caller)
    }

    /// Creates the context of a node request's task; its progress stream is opened at the handler's
    /// first message.
    pub(crate) fn of_node(
        about: TaskProperties,
        cancel: CancellationToken,
        mesh: &Mesh,
        outgoing: &OutgoingEvents,
        peers: &Peers,
    ) -> Self {
        let (mesh, outgoing, opened) = (mesh.clone(), outgoing.clone(), OnceLock::new());
        let feed = ProgressSource::Closed { mesh, outgoing, opened };
        Self::with_feed(about, cancel, feed, Some(peers.clone()), None)
    }

    fn with_feed(
        about: TaskProperties,
        cancel: CancellationToken,
        feed: ProgressSource,
        peers: Option<Peers>,
        entry: Option<Arc<Entry>>,
    ) -> Self {
        let log = about.step_log().zip(peers.as_ref().and_then(Peers::steps));
        let steps = log.map_or_else(StepLog::in_memory, |(id, store)| StepLog::on_mesh(store, id));
        let inner = ContextState {
            about,
            cancel,
            artifacts: Artifacts::default(),
            feed,
            worded: OnceLock::new(),
            peers,
            usage: Mutex::new(None),
            events: Mutex::default(),
            calls: CallCounts::default(),
            steps,
            step_book: OnceLock::new(),
            slot: TaskSlot::default(),
            log: Mutex::default(),
            entry,
        };
        Self {
            inner: Arc::new(inner),
            feedback: Arc::default(),
            retry: 0,
            step_counts: Arc::default(),
            call_key: None,
        }
    }

    /// Returns the same task for another attempt by the same agent.
    pub(crate) fn again(&self, retry: u32, feedback: Vec<String>) -> Self {
        Self { feedback: feedback.into(), retry, step_counts: Arc::default(), ..self.clone() }
    }

    /// Returns the same task for a function that a model calls.
    #[cfg(feature = "files")]
    pub(crate) fn of_call(&self, key: &str) -> Self {
        Self { call_key: Some(key.into()), ..self.clone() }
    }

    pub(crate) fn about(&self) -> &TaskProperties {
        &self.inner.about
    }

    /// Returns the key of the model's call that a tool function answers: the same for all attempts
    /// of the call, also by other processes, so that a receiver recognizes repetitions. `None` for
    /// handlers of tasks.
    pub fn call_key(&self) -> Option<&str> {
        self.call_key.as_deref()
    }

    /// Returns the agent's own name.
    pub fn agent(&self) -> &str {
        &self.inner.about.agent
    }

    /// Returns the execution of the task.
    pub fn execution(&self) -> &ExecutionId {
        &self.inner.about.execution
    }

    /// Returns the id of the task: one per attempt, the same in all deliveries.
    pub fn task(&self) -> &TaskId {
        &self.inner.about.task
    }

    /// Returns the key for deduplicating effects: the same for all attempts of one activation.
    pub fn activation(&self) -> &str {
        &self.inner.about.activation
    }

    /// Returns the attempt, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.about.attempt
    }

    /// Returns the calling workflow; empty for other callers.
    pub fn workflow(&self) -> &str {
        &self.inner.about.workflow
    }

    /// Returns the calling node; empty for other callers.
    pub fn node(&self) -> &str {
        &self.inner.about.node
    }

    /// Returns the session (A2A context). For a task of an execution, this is the context that the
    /// execution's caller named, else the execution.
    pub fn session(&self) -> &str {
        self.inner.about.context_id()
    }

    /// Returns the log of the task's session: one for each caller and A2A context. `None` outside a
    /// mesh, and if the mesh does not store steps.
    pub fn session_log(&self) -> Option<SessionLog> {
        let peers = self.inner.peers.as_ref()?;
        let about = &self.inner.about;
        let owner = match (about.caller.as_str(), &about.caller_context) {
            ("", Some(CallerContext { caller, .. })) => {
                format!("start:{}:{caller}:{}", caller.len(), self.user())
            }
            ("", None) => format!("user:{}", self.user()),
            (caller, _) => format!("caller:{caller}"),
        };
        Some(SessionLog::new(peers.steps()?, peers, &about.agent, &owner, about.context_id()))
    }

    /// Returns the deadline of the task.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.inner.about.deadline
    }

    /// Returns the node's instruction to the agent, if any.
    pub fn instruction(&self) -> Option<&str> {
        self.inner.about.instruction.as_deref()
    }

    /// Returns the data that the workflow sends next to the input; null if it sends none.
    pub fn context(&self) -> &Value {
        match &self.inner.about.surroundings {
            Some(surroundings) => self.inner.worded.get_or_init(|| surroundings.value(&self.inner.about)),
            None => &self.inner.about.context,
        }
    }

    /// Returns the MCP servers that the workflow file names for this task, by skill, with `${NAME}`
    /// replaced by values of this process's environment. Each name is sent only to the hosts that
    /// `references` binds it to; other names fail unless they have a default. No other text of a
    /// task is a reference. The result contains secrets: keep it out of outputs, logs and errors.
    pub fn mcp_servers(&self, references: &HostReferences) -> Result<Map<String, Value>, VariableError> {
        let request = self.context().get("request").unwrap_or(&Value::Null);
        references.servers_of(request, &|name| std::env::var(name).ok(), &mut |_| {})
    }

    /// Returns the user on whose behalf the execution runs; empty if none is named.
    pub fn user(&self) -> &str {
        self.context().get("user").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns that user's settings for the request (`a2aUserConfig`); null if there are none.
    pub fn user_config(&self) -> &Value {
        static NONE: Value = Value::Null;
        self.context().get("user_config").unwrap_or(&NONE)
    }

    /// Returns the schema that replaces the agent's own for this input.
    pub fn input_schema(&self) -> Option<&Value> {
        self.inner.about.input_schema.as_ref()
    }

    /// Returns the schema that replaces the agent's own for this output.
    pub fn output_schema(&self) -> Option<&Value> {
        self.inner.about.output_schema.as_ref()
    }

    /// Returns how often this handler was called before for this task because its output violated
    /// the schema.
    pub fn retry(&self) -> u32 {
        self.retry
    }

    /// Returns the defects of the previous output; empty on the first attempt.
    pub fn feedback(&self) -> &[String] {
        &self.feedback
    }

    /// Fires when the task is cancelled or past its deadline, or the process ends. Later results
    /// are discarded.
    pub fn cancel(&self) -> &CancellationToken {
        &self.inner.cancel
    }

    /// Publishes progress to subscribers. Delivery is not guaranteed: messages are dropped if they
    /// are published faster than the mesh accepts them. The newest messages, up to
    /// [`MAX_LOG_LINES`](sinew_protocol::task::MAX_LOG_LINES), are also stored with the result: a
    /// text, the member `message` of an object, or the JSON of another value.
    pub fn progress(&self, value: impl Into<Value>) {
        let value = value.into();
        if is_message(&value) {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let at = u64::try_from(now.as_millis()).unwrap_or_default();
            self.log().push(at, &progress_text(&value));
        }
        match &self.inner.feed {
            ProgressSource::None => {}
            ProgressSource::Open(feed) => feed.working(value),
            ProgressSource::Closed { mesh, outgoing, opened } => {
                let feed = opened.get_or_init(|| EventFeed::new(mesh, outgoing, &self.inner.about, true));
                feed.working(value);
            }
        }
    }

    /// Takes the messages for the result.
    pub(crate) fn take_log(&self) -> Vec<LogLine> {
        self.log().take()
    }

    fn log(&self) -> std::sync::MutexGuard<'_, TaskLog> {
        self.inner.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns the progress stream, if the handler has opened it.
    pub(crate) fn feed(&self) -> Option<&EventFeed> {
        match &self.inner.feed {
            ProgressSource::None => None,
            ProgressSource::Open(feed) => Some(feed),
            ProgressSource::Closed { opened, .. } => opened.get(),
        }
    }

    /// Returns whether the handler has published progress.
    pub(crate) fn has_feed(&self) -> bool {
        self.feed().is_some()
    }

    /// Sets the cost of the work (tokens, money) for the result; the last call wins.
    pub fn usage(&self, usage: Value) {
        *self.inner.usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(usage);
    }

    /// Adds an event to the result, such as a tool call: rules of workflows can use it. The events
    /// of a result are limited to 128 KiB in total and
    /// [`MAX_EVENTS`](sinew_protocol::task::MAX_EVENTS) in number; others are dropped.
    pub fn event(&self, event: Value) {
        let mut told = self.inner.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (events, bytes) = &mut *told;
        let size = event.to_string().len();
        if events.len() < MAX_EVENTS && *bytes + size <= MAX_EVENTS_BYTES {
            *bytes += size;
            events.push(event);
        }
    }

    pub(crate) fn take_events(&self) -> Vec<Value> {
        std::mem::take(&mut *self.inner.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner)).0
    }

    pub(crate) fn has_usage(&self) -> bool {
        self.inner.usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_some()
    }

    pub(crate) fn take_usage(&self) -> Option<Value> {
        self.inner.usage.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }

    /// Returns the artifacts of this task.
    pub fn artifacts(&self) -> &Artifacts {
        &self.inner.artifacts
    }

    /// Stores the artifacts of this task that other processes cannot read yet, and returns each
    /// with its address. Handlers that record steps call this before a step references an artifact:
    /// the memory of a process is lost with it.
    pub async fn store_artifacts(&self) -> Result<Vec<(ArtifactMeta, String)>, Failure> {
        let Some(peers) = &self.inner.peers else { return Ok(Vec::new()) };
        let mut stored = Vec::new();
        for KeptVersion { meta, bytes } in self.inner.artifacts.not_stored() {
            let address = peers.store_artifact(&self.inner.about, &meta, bytes).await?;
            self.inner.artifacts.mark_stored(&meta);
            stored.push((meta, address));
        }
        Ok(stored)
    }

    /// Adds an artifact that another process of this agent stored, with its version. Fails if the
    /// address does not have these bytes.
    pub async fn restore_artifact(
        &self,
        name: &str,
        version: u32,
        media_type: &str,
        address: &str,
    ) -> Result<(), Failure> {
        let name = ArtifactName::parse(name).map_err(Fault::from)?;
        let bytes = self.fetch(address).await?;
        self.inner.artifacts.restore(ArtifactMeta::of(name, version, media_type, &bytes), bytes);
        Ok(())
    }

    /// Fetches the bytes at an address (`artifact://…`) from the input, verified against its
    /// sha256.
    pub async fn fetch(&self, address: &str) -> Result<Bytes, Failure> {
        match &self.inner.peers {
            Some(peers) => peers.fetch(address).await,
            None => Err(offline(ARTIFACTS)),
        }
    }

    /// Returns the agents and workflows that are online, by name. Fails while their cards cannot be
    /// read.
    pub async fn peers(&self) -> Result<Vec<AgentCard>, Failure> {
        match &self.inner.peers {
            Some(peers) => peers.list().await.map_err(mesh_failed),
            None => Ok(Vec::new()),
        }
    }

    fn task_calls(&self) -> TaskCalls<'_> {
        let ContextState { about, cancel, artifacts, calls, entry, .. } = &*self.inner;
        TaskCalls { about, cancel, artifacts, calls, waits: None, entry: entry.as_deref() }
    }

    /// Calls another agent at its A2A endpoint and waits for its output, at most until this task's
    /// deadline.
    pub async fn call(&self, agent: &str, input: Value) -> Result<Value, Failure> {
        match &self.inner.peers {
            Some(peers) => peers.call(self.task_calls(), agent, input).await,
            None => Err(offline(NO_PEER)),
        }
    }

    /// Like [`call`](Self::call), with a key that is unique within this activation. All calls with
    /// the key, in all attempts of the activation, are one call: the called agent returns its
    /// earlier answer without working again, even if the input is phrased differently.
    pub async fn call_keyed(&self, agent: &str, key: &str, input: Value) -> Result<Value, Failure> {
        match &self.inner.peers {
            Some(peers) => peers.call_keyed(self.task_calls(), agent, key, input, None).await?.result,
            None => Err(offline(NO_PEER)),
        }
    }

    /// Like [`call_keyed`](Self::call_keyed), with the tokens and cost that the callee reports,
    /// also for failures.
    pub async fn call_answer(&self, agent: &str, key: &str, input: Value) -> Result<CallAnswer, Failure> {
        match &self.inner.peers {
            Some(peers) => peers.call_keyed(self.task_calls(), agent, key, input, None).await,
            None => Err(offline(NO_PEER)),
        }
    }

    /// Like [`call_answer`](Self::call_answer), cancelled when the token fires. `waits` is called
    /// when the callee starts or stops waiting for a person.
    #[cfg(feature = "files")]
    pub(crate) async fn call_answer_until(
        &self,
        cancel: &CancellationToken,
        waits: &(dyn Fn(bool) + Send + Sync),
        agent: &str,
        key: &str,
        input: Value,
        artifact: Option<&ArtifactRef>,
    ) -> Result<CallAnswer, Failure> {
        let Some(peers) = &self.inner.peers else { return Err(offline(NO_PEER)) };
        let calls = TaskCalls { cancel, waits: Some(waits), ..self.task_calls() };
        peers.call_keyed(calls, agent, key, input, artifact).await
    }

    /// Asks a person, and waits for the answer without occupying one of the agent's slots. The
    /// question is an execution of the workflow `ask:person`: it is listed, answered and rejected
    /// like others that wait for people, and survives this process. All questions with the key, in
    /// all attempts of the activation, are one question. Fails with SINEW-5103 without a mesh, or
    /// without the right to ask people.
    pub async fn ask_person(&self, key: &str, question: QuestionToPerson) -> Result<PersonAnswer, Failure> {
        let Some(peers) = &self.inner.peers else { return Err(offline(NO_PEER)) };
        let input = question.into_input(&[
            ("agent", self.agent()),
            ("workflow", self.workflow()),
            ("node", self.node()),
            ("execution", self.execution().as_str()),
            ("session", self.session()),
        ]);
        let asked = Box::pin(peers.ask_person(self.task_calls(), key, input));
        let output = Box::pin(self.parked(asked)).await?;
        Ok(serde_json::from_value(output).map_err(|error| {
            Fault::error(NO_PEER, format!("cannot read the answer to a question: {error}"))
        })?)
    }

    /// Returns whether this task has a caller that can be asked: it is an A2A message, not a task
    /// of an execution.
    pub fn has_caller(&self) -> bool {
        self.inner.entry.is_some()
    }

    /// Asks the caller of this task: the task becomes `input-required` with these parts, and the
    /// caller's next message to it is the answer. The task occupies no slot meanwhile. Fails if the
    /// task belongs to an execution ([`has_caller`](Self::has_caller)), or is cancelled. The
    /// question ends with this process.
    pub async fn ask_caller(&self, parts: Vec<Part>, extensions: Vec<String>) -> Result<Message, Failure> {
        let Some(entry) = &self.inner.entry else {
            let text = "the task belongs to an execution, so it has no caller to ask";
            return Err(Fault::error(NO_PEER, text).with_retryable(false).into());
        };
        let id = format!("{}-question-{}", self.task(), entry.feed.seq() + 1);
        let mut question = Message::agent(id, parts).with_task_id(self.task().as_str());
        question.extensions = Some(extensions).filter(|extensions| !extensions.is_empty());
        let answer = entry.ask_caller(question);
        let cancelled =
            || Fault::cancelled(CANCELLED, "the task was cancelled while it waited for its caller");
        let waiting = async {
            tokio::select! {
                biased;
                answer = answer => answer.map_err(|_| cancelled().into()),
                () = self.cancel().cancelled() => Err(cancelled().into()),
            }
        };
        Box::pin(self.parked(waiting)).await
    }

    /// Returns the workflows and the other agents that are online, as tools for a language model.
    /// Fails while their cards cannot be read.
    pub async fn tools(&self) -> Result<Vec<ToolDeclaration>, Failure> {
        match &self.inner.peers {
            Some(peers) => peers.tools(self.task_calls()).await,
            None => Ok(Vec::new()),
        }
    }

    /// Performs a language model's call of one of the [`tools`](Self::tools).
    pub async fn call_tool(&self, name: &str, arguments: &Value) -> Result<Value, Failure> {
        match &self.inner.peers {
            Some(peers) => peers.call_tool(self.task_calls(), name, arguments).await,
            None => Err(offline(NO_PEER)),
        }
    }

    /// Returns the steps of this task: work whose results are kept when the task is redelivered.
    pub fn steps(&self) -> Steps {
        let book = self.inner.step_book.get_or_init(|| {
            let about = &self.inner.about;
            let task = StepTask {
                activation: about.activation.clone(),
                task: about.task.as_str().to_owned(),
                attempt: about.attempt,
                delivery: about.delivery,
            };
            Arc::new(StepBook::new(self.inner.steps.clone(), task))
        });
        Steps::new(Arc::clone(book), Arc::clone(&self.step_counts))
    }

    /// Returns the step log of this task, for agents with their own records.
    pub fn step_log(&self) -> &StepLog {
        &self.inner.steps
    }

    /// Returns how often the queue has delivered this task, including this time; 0 if it arrived
    /// otherwise.
    pub fn delivery(&self) -> u64 {
        self.inner.about.delivery
    }

    /// Waits for something that takes long and needs no resources of this process, such as a person
    /// or another agent, without occupying a slot. Afterwards the task waits for a free slot.
    pub async fn parked<F: Future>(&self, waiting: F) -> F::Output {
        self.inner.slot.parked(waiting).await
    }

    pub(crate) fn slot(&self) -> &TaskSlot {
        &self.inner.slot
    }

    /// Returns the W3C trace context of the task.
    pub fn trace_parent(&self) -> Option<&str> {
        self.inner.about.trace_parent.as_deref()
    }

    /// Creates a task outside any mesh, for tests of a handler: without peers and progress.
    pub fn detached(agent: &str) -> Self {
        let execution = ExecutionId::of("detached", agent, "");
        let activation = sinew_protocol::ActivationKey::of::<&str>(&execution, agent, &[], 0);
        let task = TaskId::of(&execution, &activation, 1);
        let mut about = TaskProperties::new(agent, execution, task);
        activation.as_str().clone_into(&mut about.activation);
        Self::new(about, CancellationToken::new(), None, None)
    }
}

fn offline(code: &'static str) -> Failure {
    Fault::error(code, "this task was not received from a mesh").with_retryable(false).into()
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Payloads are not logged.
        f.debug_struct("Context")
            .field("agent", &self.inner.about.agent)
            .field("execution", &self.inner.about.execution)
            .field("task", &self.inner.about.task)
            .finish_non_exhaustive()
    }
}
