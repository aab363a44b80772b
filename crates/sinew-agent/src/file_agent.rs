//! Agents of files on a mesh: the file defines the agent, and functions of this program are
//! additional tools of its model.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sinew_agents::{
    ArtifactError, ArtifactMeta, ArtifactRef, Artifacts, Call, EffectClass, HostTool, HostTools,
    KeptArtifact, PeerAnswer, PeerCall, PeerDescription, Peers, People, PersonPrompt, PersonReply,
    SessionTurn, Sessions, StepAppend, StepBody, StepRecord, Steps, WaitClock,
};
use sinew_mesh::{Mesh, crash};
use sinew_protocol::usage::TaskUsage;
use sinew_protocol::{Fault, code};
use tokio_util::sync::CancellationToken;

use crate::agent::{Agent, input_schema_of};
use crate::context::Context;
use crate::error::AgentError;
use crate::failure::Failure;
use crate::handler::{self, Handler, HandlerOutput};
use crate::person_question::QuestionToPerson;
use crate::session_log::SessionLog;
use crate::step_log::AppendOutcome;

/// Time for forwarding the last messages of a call.
const MESSAGES_TIMEOUT: Duration = Duration::from_secs(1);

/// An agent of a file, ready to be served.
///
/// ```no_run
/// use sinew_agent::{Agent, AgentError, Context, EffectClass, JsonSchema};
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Lookup {
///     order: String,
/// }
///
/// # async fn clerk() -> Result<(), AgentError> {
/// Agent::from_file("clerk.agent.yaml")?
///     .tool("lookup", "Finds an order.", EffectClass::Read, |wanted: Lookup, _: Context| async move {
///         Ok(format!("{} is on its way", wanted.order))
///     })
///     .run()
///     .await
/// # }
/// ```
#[derive(Clone)]
pub struct FileAgent {
    agent: Arc<sinew_agents::Agent>,
    tools: Vec<FunctionTool>,
}

/// A function of this program as a tool.
#[derive(Clone)]
struct FunctionTool {
    tool: HostTool,
    handler: Handler,
}

impl Agent {
    /// Loads an agent from a file (`NAME.agent.yaml`). Fails with all defects of the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<FileAgent, AgentError> {
        let loaded = sinew_agents::Agent::load(path.as_ref());
        let agent = loaded.map_err(|found| AgentError::File(sinew_source::render_text(&found, false)))?;
        Ok(FileAgent::of(Arc::new(agent)))
    }
}

impl FileAgent {
    /// Creates an agent that was already loaded.
    pub fn of(agent: Arc<sinew_agents::Agent>) -> Self {
        Self { agent, tools: Vec::new() }
    }

    /// Adds a function that the agent's model may call, in addition to the tools of the file. Its
    /// arguments are a Rust type, whose schema is sent to the model and validates calls. `effect`
    /// states what a repeated call does: a function with side effects is called at most once for
    /// each call of the model, and is subject to the file's taint rule. Failures are returned to
    /// the model. Only agents that call a language model can have functions.
    #[must_use]
    pub fn tool<I, O, F, Fut>(
        mut self,
        name: impl Into<String>,
        description: impl Into<String>,
        effect: EffectClass,
        function: F,
    ) -> Self
    where
        I: DeserializeOwned + JsonSchema,
        O: Serialize,
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let (name, description, parameters) = (name.into(), description.into(), input_schema_of::<I>());
        let tool = HostTool { name, description, parameters, effect };
        self.tools.push(FunctionTool { tool, handler: handler::typed(function) });
        self
    }

    /// Connects as configured in the environment, and serves until the process is signalled
    /// (SIGTERM, Ctrl-C).
    pub async fn run(self) -> Result<(), AgentError> {
        self.discovered().await?.run().await
    }

    /// Serves on this mesh until `shutdown` fires.
    pub async fn serve(self, mesh: Mesh, shutdown: CancellationToken) -> Result<(), AgentError> {
        self.discovered().await?.serve(mesh, shutdown).await
    }

    /// Completes the agent with the tools that it announces.
    async fn discovered(self) -> Result<Agent, AgentError> {
        if !self.tools.is_empty() && !self.agent.is_model() {
            return Err(AgentError::NoModel(self.agent.name().to_owned()));
        }
        if let Err(fault) = self.agent.discover().await {
            tracing::warn!(
                agent = self.agent.name(), code = %fault.code,
                "the agent does not announce its tools: {}", fault.message
            );
        }
        Ok(self.into_agent())
    }

    /// Converts it to a regular agent, whose builder has further settings.
    pub fn into_agent(self) -> Agent {
        let Self { agent, tools } = self;
        let (inner, tools): (_, Arc<[FunctionTool]>) = (Arc::clone(&agent), tools.into());
        let (input, output) = (agent.input_schema().cloned(), agent.output_schema().cloned());
        let mut served = Agent::dynamic(agent.name(), input, output, move |input, context| {
            let (agent, tools) = (Arc::clone(&inner), Arc::clone(&tools));
            async move { Ok(Box::pin(answer(&agent, &tools, input, &context)).await?) }
        })
        .description(agent.description())
        .version(agent.version())
        .concurrency(agent.concurrency() as usize)
        .delivery(agent.delivery())
        .offer(agent.offer().clone())
        .catalogue(agent.announcement().catalogue)
        .timeout(agent.timeout_with_waiting());
        for skill in agent.announcement().skills {
            served = served.a2a_skill(skill);
        }
        served
    }
}

impl std::fmt::Debug for FileAgent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileAgent").field("name", &self.agent.name()).finish_non_exhaustive()
    }
}

async fn answer(
    agent: &sinew_agents::Agent,
    tools: &Arc<[FunctionTool]>,
    input: Value,
    context: &Context,
) -> Result<Value, Fault> {
    let kept = Arc::new(TaskArtifacts(context.clone()));
    let mut call = Call::new(agent.name(), input, kept);
    call.instruction = context.instruction().map(str::to_owned);
    call.input_schema = context.input_schema().cloned();
    call.output_schema = context.output_schema().cloned();
    if !agent.is_model() {
        // A conversation's clock stops while a person is awaited; the SDK applies the deadline.
        call.timeout = context.deadline().map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
    }
    call.context = match context.context() {
        // An execution encodes the context like the in-process driver, so that an agent cannot
        // distinguish them.
        worded if worded.get("request").is_some() => worded.clone(),
        other => json!({
            "workflow": context.workflow(),
            "execution": context.execution().as_str(),
            "node": context.node(),
            "task": context.task().as_str(),
            "activation": context.activation(),
            "attempt": context.attempt(),
            "request": other,
        }),
    };
    call.cancel = context.cancel().clone();
    call.delivery = context.delivery();
    // The SDK has as many slots, and releases those of waiting tasks.
    call.limited_by_caller = true;
    let (sender, mut said) = tokio::sync::mpsc::unbounded_channel();
    call.progress = sender;
    let told = context.clone();
    // Ends with the call, which drops the sender.
    let forwarded = tokio::spawn(async move {
        while let Some(value) = said.recv().await {
            told.progress(value);
        }
    });
    if agent.is_model() {
        call.peers = Arc::new(MeshPeers(context.clone()));
        call.people = Arc::new(MeshPeople(context.clone()));
        if !tools.is_empty() {
            call.tools = Some(Arc::new(TaskTools { tools: Arc::clone(tools), context: context.clone() }));
        }
        call.conversation = Some(context.activation().to_owned());
        if let (Some(keep), Some(log)) = (agent.session_keep(), context.session_log()) {
            call.session = Some(Arc::new(TaskSession { log, keep }));
        }
        call.steps = Some(Arc::new(TaskSteps { context: context.clone(), keep: agent.log_keep() }));
    }
    let told = UsageOnDrop { usage: Arc::clone(&call.usage), context: context.clone() };
    let reply = agent.call(call).await;
    // The messages are part of the result.
    let _ = tokio::time::timeout(MESSAGES_TIMEOUT, forwarded).await;
    drop(told);
    let reply = reply?;
    for event in reply.events {
        context.event(event);
    }
    Ok(reply.output)
}

/// The functions of this program in one task.
struct TaskTools {
    tools: Arc<[FunctionTool]>,
    context: Context,
}

impl HostTools for TaskTools {
    fn list(&self) -> Vec<HostTool> {
        self.tools.iter().map(|one| one.tool.clone()).collect()
    }

    fn call(&self, name: &str, arguments: Value, key: &str) -> BoxFuture<'_, Result<Value, Fault>> {
        let found = self.tools.iter().find(|one| one.tool.name == name);
        let called = found.map(|one| (one.handler)(arguments, self.context.of_call(key)));
        let missing = Fault::error(
            code::MODEL_TOOL_MISSING_OR_CHANGED.as_str(),
            format!("the program has no function '{name}'"),
        );
        async move {
            match called.ok_or(missing)?.await? {
                HandlerOutput::Value(value) => Ok(value),
                HandlerOutput::Text(text) => Ok(Value::String(text)),
            }
        }
        .boxed()
    }
}

/// Reports the usage of a call, also if it fails or is cancelled.
struct UsageOnDrop {
    usage: Arc<Mutex<Value>>,
    context: Context,
}

impl Drop for UsageOnDrop {
    fn drop(&mut self) {
        let usage = std::mem::take(&mut *self.usage.lock().unwrap_or_else(PoisonError::into_inner));
        if !usage.is_null() {
            self.context.usage(usage);
        }
    }
}

/// Agents and workflows of the mesh as peers of a model agent.
struct MeshPeers(Context);

impl Peers for MeshPeers {
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerDescription>, Fault>> {
        async move {
            let peers = self.0.peers().await.map_err(Failure::into_fault)?;
            Ok(peers.iter().map(PeerDescription::of).collect())
        }
        .boxed()
    }

    fn ask(&self, call: PeerCall) -> BoxFuture<'_, PeerAnswer> {
        async move {
            let PeerCall { agent, input, artifact, key, cancel, clocks } = call;
            let stopped = Mutex::new(None);
            let waits = |is_waiting: bool| {
                let clocks = is_waiting.then(|| clocks.each_ref().map(WaitClock::stop));
                *stopped.lock().unwrap_or_else(PoisonError::into_inner) = clocks;
            };
            let asked = self.0.parked(async {
                crash::point("peer.parked");
                let called =
                    self.0.call_answer_until(&cancel, &waits, &agent, &key, input, artifact.as_ref());
                let answer = called.await;
                crash::point("peer.answered");
                answer
            });
            let answer = Box::pin(asked).await;
            crash::point("peer.resumed");
            match answer {
                Ok(answer) => PeerAnswer {
                    result: answer.result.map_err(Failure::into_fault),
                    usage: TaskUsage::of(&answer.usage).unwrap_or_default().total(),
                },
                Err(failure) => Err(failure.into_fault()).into(),
            }
        }
        .boxed()
    }
}

/// People of the mesh: questions to them are executions that wait for a person.
struct MeshPeople(Context);

impl People for MeshPeople {
    fn ask(&self, prompt: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        async move {
            let is_decision = !prompt.call.is_null();
            let question = QuestionToPerson {
                prompt: prompt.text,
                data: prompt.call,
                people: prompt.people,
                timeout: Some(prompt.timeout),
            };
            crash::point("person.asked");
            let answer = self.0.ask_person(&prompt.key, question).await;
            crash::point("person.answered");
            let answer = answer.map_err(Failure::into_fault)?;
            let words = match answer.answer {
                Value::Null => answer.comment,
                Value::String(words) if !is_decision => Some(words),
                other if !is_decision => Some(other.to_string()),
                _ => answer.comment,
            };
            let comment = if answer.timed_out { Some("no decision in time".to_owned()) } else { words };
            Ok(PersonReply { approved: answer.approved, by_person: answer.by.unwrap_or_default(), comment })
        }
        .boxed()
    }
}

/// The log of a task's activation, as the log of a conversation.
struct TaskSteps {
    context: Context,
    keep: Option<Duration>,
}

impl Steps for TaskSteps {
    fn read(&self) -> BoxFuture<'_, Result<Vec<StepRecord>, Fault>> {
        async move {
            let records = self.context.step_log().read(0).await;
            let records = records.map_err(Failure::into_fault)?;
            let read = |record: &bytes::Bytes| {
                serde_json::from_slice(record).map_err(|error| {
                    let text = format!("the log of the conversation contains an invalid record: {error}");
                    Fault::error(code::STEPS_UNAVAILABLE.as_str(), text).with_retryable(false)
                })
            };
            records.iter().map(read).collect()
        }
        .boxed()
    }

    fn append(&self, place: u64, record: StepRecord) -> BoxFuture<'_, Result<StepAppend, Fault>> {
        async move {
            let bytes = serde_json::to_vec(&record).map_err(|error| {
                Fault::error(code::STEPS_UNAVAILABLE.as_str(), error.to_string()).with_retryable(false)
            })?;
            let written = self.context.step_log().append(place, bytes.into(), self.keep).await;
            Ok(match written.map_err(Failure::into_fault)? {
                AppendOutcome::Written => {
                    crash::point(crash_point(&record.body));
                    StepAppend::Stored
                }
                AppendOutcome::Taken => StepAppend::Taken,
            })
        }
        .boxed()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn give_way(&self) {
        self.context.step_log().give_way();
    }
}

/// Crash point after a record, for tests.
fn crash_point(record: &StepBody) -> &'static str {
    match record {
        StepBody::Begin(_) => "conversation.begin",
        StepBody::Ask(_) => "conversation.ask",
        StepBody::Turn { .. } => "conversation.turn",
        StepBody::Call(_) => "conversation.call",
        StepBody::Done { .. } => "conversation.done",
        StepBody::Question(_) => "conversation.question",
        StepBody::Decision { .. } => "conversation.decision",
        StepBody::End(_) => "conversation.end",
        _ => "conversation.other",
    }
}

/// The session of a task, as the session of a conversation.
struct TaskSession {
    log: SessionLog,
    keep: Duration,
}

impl Sessions for TaskSession {
    fn last(&self, turns: u32) -> BoxFuture<'_, Result<Vec<SessionTurn>, Fault>> {
        async move {
            let records = self.log.last(turns as usize, self.keep).await;
            let records = records.map_err(Failure::into_fault)?;
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let oldest = u64::try_from(since.saturating_sub(self.keep).as_millis()).unwrap_or_default();
            // An unreadable record belongs to another version: the conversation continues without
            // it.
            let turns =
                records.iter().filter_map(|record| serde_json::from_slice::<SessionTurn>(record).ok());
            Ok(turns.filter(|turn| turn.at >= oldest).collect())
        }
        .boxed()
    }

    fn append(&self, turn: SessionTurn) -> BoxFuture<'_, Result<(), Fault>> {
        async move {
            let bytes = serde_json::to_vec(&turn).map_err(|error| {
                Fault::error(code::STEPS_UNAVAILABLE.as_str(), error.to_string()).with_retryable(false)
            })?;
            self.log.append(bytes.into(), self.keep).await.map_err(Failure::into_fault)
        }
        .boxed()
    }
}

/// Artifacts of a ready-made agent are published with its result; those referenced by steps are
/// stored immediately.
struct TaskArtifacts(Context);

impl Artifacts for TaskArtifacts {
    fn put(&self, name: &str, bytes: &[u8], media_type: Option<&str>) -> Result<ArtifactRef, ArtifactError> {
        let media_type = media_type.unwrap_or_else(|| sinew_agents::media_type(name));
        let put = self.0.artifacts().put(name, media_type, bytes.to_vec());
        put.map_err(|failure| not_kept("store an artifact in memory", failure))
    }

    fn get(&self, name: &str, version: Option<u32>) -> Result<Vec<u8>, ArtifactError> {
        let missing = |_| ArtifactError::Missing { name: name.to_owned(), version };
        self.0.artifacts().get(name, version).map(Vec::from).map_err(missing)
    }

    fn list(&self) -> Result<Vec<ArtifactMeta>, ArtifactError> {
        let mut all = self.0.artifacts().list();
        all.sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        Ok(all)
    }

    fn store(&self) -> BoxFuture<'_, Result<Vec<KeptArtifact>, ArtifactError>> {
        async move {
            let stored = self.0.store_artifacts().await;
            let stored = stored.map_err(|failure| not_kept("store an artifact", failure))?;
            let kept = stored.into_iter().map(|(meta, address)| KeptArtifact {
                name: meta.name.to_string(),
                version: meta.version,
                media_type: meta.media_type,
                address,
            });
            Ok(kept.collect())
        }
        .boxed()
    }

    fn restore<'a>(&'a self, kept: &'a [KeptArtifact]) -> BoxFuture<'a, Result<(), ArtifactError>> {
        async move {
            for one in kept {
                let restored =
                    self.0.restore_artifact(&one.name, one.version, &one.media_type, &one.address).await;
                restored.map_err(|failure| not_kept("fetch an artifact of a previous process", failure))?;
            }
            Ok(())
        }
        .boxed()
    }
}

fn not_kept(action: &'static str, failure: Failure) -> ArtifactError {
    ArtifactError::Io { action, reason: failure.into_fault().message }
}
