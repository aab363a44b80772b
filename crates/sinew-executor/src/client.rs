//! The client of the executor service: starts, controls and reads executions.
//!
//! A client requests a start from the owner of the shard, and stores the start as a command if it
//! receives no response; all other commands go through the command stream. It reads results from
//! events, the owner of the shard, or the history, and never depends on a message that may be lost.

use sinew_protocol::code;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::Value;
use sinew_engine::{ExecutionOutcome, Round, decode_round};
use sinew_mesh::card::Cards;
use sinew_mesh::event::{Event, EventFilter, EventStart as ReadFrom};
use sinew_mesh::query::Answer;
use sinew_mesh::trace::TraceParent;
use sinew_mesh::{HeaderMap, Mesh, MeshError, PutOutcome};
use sinew_protocol::command::{BadCommand, Command, MAX_BODY, StartCommand};
use sinew_protocol::journal::{Commit, ExecutionHold, ExecutionRecord, Verdict};
use sinew_protocol::message::BadMessage;
use sinew_protocol::origin::ChangeOrigin;
use sinew_protocol::query::{NO_OWNER, Query, Summary};
use sinew_protocol::start::{StartAnswer, new_key};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Fault, Token};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use sinew_execution::Execution;
use sinew_shard::JournalReader;

use crate::large_input::store_input;
use crate::programs::{Adapters, Programs};
use crate::stored_start::stored_summary;
use crate::text_input::input_of_text;

/// Wait for an event before the owner or the history is queried.
const ASK_AFTER: Duration = Duration::from_secs(2);
/// Pause between two attempts to reach the broker.
const AGAIN: Duration = Duration::from_millis(500);

/// Reason for the failure of a client's request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The mesh failed.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The request cannot be sent.
    #[error(transparent)]
    Command(#[from] BadCommand),
    /// The execution is unknown.
    #[error("execution {0} not found")]
    NotFound(ExecutionId),
    /// The same id was used for another start.
    #[error("execution {0} was already started by another caller or with another input or workflow")]
    OtherStart(ExecutionId),
    /// No owner processes the execution until an operator resumes it. Folding it here could crash this process too.
    #[error("execution {execution} is held: {reason}")]
    Held {
        /// The execution.
        execution: ExecutionId,
        /// The operator code.
        code: String,
        /// The reason.
        reason: String,
    },
    /// The command was rejected.
    #[error("{0}")]
    Refused(String),
    /// No executor decided in time; the command is stored and will be decided.
    #[error("no response within {} s; the request is stored; check that an executor is running", .0.as_secs())]
    Undecided(Duration),
    /// A stored record cannot be read.
    #[error("the record of execution {execution} cannot be read: {reason}")]
    Unreadable {
        /// The execution.
        execution: ExecutionId,
        /// The reason.
        reason: String,
    },
    /// The plan of an execution cannot be loaded.
    #[error("{}", .0.message)]
    Plan(Fault),
}

impl ClientError {
    /// The operator code.
    pub fn code(&self) -> &str {
        match self {
            Self::Mesh(error) => error.code(),
            Self::Command(_) => BadCommand::CODE,
            Self::NotFound(_) => code::NO_SUCH_EXECUTION.as_str(),
            Self::OtherStart(_) => code::EXECUTION_ID_OF_OTHER_START.as_str(),
            Self::Held { code, .. } => code,
            Self::Refused(_) => code::COMMAND_REFUSED.as_str(),
            Self::Undecided(_) => code::COMMAND_UNDECIDED.as_str(),
            Self::Unreadable { .. } => code::EXECUTION_RECORD_CANNOT_BE_READ.as_str(),
            Self::Plan(fault) => &fault.code,
        }
    }
}

/// A client of one mesh.
#[derive(Clone)]
pub struct Client {
    mesh: Mesh,
    programs: Programs,
    cards: Arc<OnceLock<Cards>>,
    starts: Arc<StartWay>,
}

/// Delivery of starts to their owners.
#[derive(Default)]
struct StartWay {
    /// Whether starts may be requested.
    is_open: OnceCell<bool>,
    /// The mesh's time as reported by an owner, in milliseconds since 1970 UTC, and when it was reported.
    time: Mutex<Option<(u64, Instant)>>,
}

impl StartWay {
    fn time(&self) -> MutexGuard<'_, Option<(u64, Instant)>> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns milliseconds since 1970, the time unit of spans.
fn millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Client {
    /// Returns a client that can fold executions of these dialects.
    pub async fn new(mesh: Mesh, adapters: Adapters) -> Result<Self, ClientError> {
        mesh.admin().layout().await?;
        let workflows = mesh.workflows().follow();
        workflows.current().await?;
        let programs = Programs::new(mesh.clone(), adapters, workflows);
        Ok(Self { programs, mesh, cards: Arc::default(), starts: Arc::default() })
    }

    /// Returns a client that shares an executor's connection and plans.
    pub(crate) fn over(mesh: Mesh, programs: Programs) -> Self {
        Self { mesh, programs, cards: Arc::default(), starts: Arc::default() }
    }

    /// Returns a client that shares connection and plans, and whose commands name another caller; see
    /// [`Mesh::on_behalf_of`].
    #[must_use]
    pub fn on_behalf_of(&self, caller: Token) -> Self {
        // Another caller has other rights.
        Self { mesh: self.mesh.on_behalf_of(caller), starts: Arc::default(), ..self.clone() }
    }

    /// Returns a client whose commands state this origin; see [`Mesh::with_origin`].
    #[must_use]
    pub fn with_origin(&self, origin: ChangeOrigin) -> Self {
        Self { mesh: self.mesh.with_origin(origin), ..self.clone() }
    }

    /// Returns the mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the agents of the mesh, as a view that all clones of the client share.
    pub fn cards(&self) -> &Cards {
        self.cards.get_or_init(|| self.mesh.cards().follow())
    }

    /// Returns deployed workflows and plans.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Returns the input of a workflow for a text: JSON, or the property that the text fills. The error
    /// describes the input. A workflow that cannot be read is reported by its start.
    pub async fn input_of_text(&self, workflow: &str, text: &str) -> Result<Value, String> {
        let program = self.programs.meant(workflow, None).await.ok();
        input_of_text(text, program.as_ref().and_then(|program| program.graph.plan().input_schema.as_ref()))
    }

    /// Returns the execution that this caller identifies by a key.
    pub fn execution_id(&self, key: &str) -> ExecutionId {
        ExecutionId::of(self.mesh.namespace(), self.mesh.caller().as_str(), key)
    }

    /// Returns the start that this caller identifies by a key. Repeated starts with one key are the same execution.
    pub fn start_command(
        &self,
        key: impl Into<String>,
        workflow: impl Into<String>,
        input: Value,
    ) -> StartCommand {
        let key = key.into();
        let mut command = StartCommand::new(self.execution_id(&key), workflow, input);
        command.idempotency_key = Some(key);
        command
    }

    /// Returns a start with a new idempotency key. An owner accepts it without searching the history.
    pub fn new_start_command(&self, workflow: impl Into<String>, input: Value) -> StartCommand {
        let time = self.starts.time().map_or(0, |(time, told)| time + told.elapsed().as_millis() as u64);
        self.start_command(new_key(time, uuid::Uuid::now_v7().as_u128()), workflow, input)
    }

    /// Starts an execution; returns true if it is new. An input that is too large for a command is stored
    /// first. Once this returns, the execution will end, or be rejected with a verdict.
    pub async fn start(&self, command: StartCommand) -> Result<bool, ClientError> {
        self.start_within(command, TraceParent::fresh()).await
    }

    /// Fails if the command of a start could not be sent, regardless of the mesh. For callers that store something before they
    /// start.
    pub fn check_start(&self, command: &StartCommand) -> Result<(), ClientError> {
        Token::parse(command.execution.as_str())
            .map_err(|_| ClientError::NotFound(command.execution.clone()))?;
        match checked_body(&Command::Start(Box::new(command.clone()))) {
            // A large input is stored first.
            Err(ClientError::Command(BadCommand::Size(_))) if !command.input.is_null() => {
                let small = StartCommand { input: Value::Null, ..command.clone() };
                checked_body(&Command::Start(Box::new(small))).map(drop)
            }
            checked => checked.map(drop),
        }
    }

    /// Like [`Client::start`], within an existing trace.
    pub(crate) async fn start_within(
        &self,
        command: StartCommand,
        trace: TraceParent,
    ) -> Result<bool, ClientError> {
        let execution = command.execution.clone();
        let id = Token::parse(execution.as_str()).map_err(|_| ClientError::NotFound(execution.clone()))?;
        let mut command = Command::Start(Box::new(command));
        let mut put = self.send(Operation::Start, &execution, &id, &command, trace).await;
        if let (Err(ClientError::Command(BadCommand::Size(_))), Command::Start(start)) = (&put, &mut command)
            && !start.input.is_null()
        {
            store_input(&self.mesh.artifacts(), start).await?;
            put = self.send(Operation::Start, &execution, &id, &command, trace).await;
        }
        match put? {
            PutOutcome::New => Ok(true),
            PutOutcome::Same => Ok(false),
            PutOutcome::Taken => Err(ClientError::OtherStart(execution)),
        }
    }

    /// Requests a start from the owner of a shard. `None` if the start must be stored as a command: no response arrived, or the
    /// owner does not accept it now.
    async fn request_start(
        &self,
        shard: u32,
        id: &Token,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Option<PutOutcome>, ClientError> {
        let is_open = self.starts.is_open.get_or_try_init(|| self.mesh.services().may_request_starts()).await;
        if !is_open.is_ok_and(|is_open| *is_open) {
            return Ok(None);
        }
        match self.mesh.services().request_start(shard, id, headers, body).await? {
            Some(StartAnswer::Stored { new, time }) => {
                *self.starts.time() = Some((time, Instant::now()));
                Ok(Some(if new { PutOutcome::New } else { PutOutcome::Same }))
            }
            Some(answer) if answer.is_other_start() => Ok(Some(PutOutcome::Taken)),
            Some(StartAnswer::Refused { reason }) => Err(ClientError::Refused(reason)),
            Some(StartAnswer::NotTaken {}) | None => Ok(None),
        }
    }

    /// Sends a command to an execution and waits for the verdict.
    pub async fn signal(
        &self,
        id: &Token,
        command: Command,
        patience: Duration,
    ) -> Result<Verdict, ClientError> {
        let execution = command.execution().clone();
        let filter = EventFilter {
            execution: Some(execution.clone()),
            kind: Some("command".to_owned()),
            ..EventFilter::default()
        };
        let mut events = self.mesh.events().follow(&filter, ReadFrom::Now).await?;
        self.send(command.operation(), &execution, id, &command, TraceParent::fresh()).await?;
        let until = Instant::now() + patience;
        // Another caller may use the same id for a different command.
        let is_own = |verdict: &Verdict| verdict.id == *id && verdict.caller == *self.mesh.caller();
        loop {
            let wait = until.saturating_duration_since(Instant::now()).min(ASK_AFTER);
            if let Ok(event) = tokio::time::timeout(wait, events.next()).await {
                match serde_json::from_slice::<Verdict>(&event.body) {
                    Ok(verdict) if is_own(&verdict) => return Ok(verdict),
                    _ => continue,
                }
            }
            if let Some(record) = self.record(&execution).await?
                && let Some(verdict) = record.commands.into_iter().find(is_own)
            {
                return Ok(verdict);
            }
            if Instant::now() >= until {
                return Err(ClientError::Undecided(patience));
            }
        }
    }

    async fn send(
        &self,
        operation: Operation,
        execution: &ExecutionId,
        id: &Token,
        command: &Command,
        trace: TraceParent,
    ) -> Result<PutOutcome, ClientError> {
        let body = checked_body(command)?;
        let shards = self.mesh.admin().layout().await?.shards;
        let mut headers = HeaderMap::new();
        trace.put(&mut headers);
        self.mesh.state_origin(&mut headers);
        let (body, shard): (Bytes, u32) = (body.into(), execution.shard(shards));
        let began = SystemTime::now();
        let requested = match operation {
            Operation::Start => self.request_start(shard, id, headers.clone(), body.clone()).await?,
            _ => None,
        };
        let put = match requested {
            Some(put) => put,
            None => self.mesh.commands().send(operation, shard, id, headers, body).await?,
        };
        if let (Command::Start(start), PutOutcome::New) = (command, &put) {
            // The first span of the trace: it names itself as its parent.
            tracing::debug!(
                target: "sinew::span",
                span = "start",
                traceparent = trace.to_string(),
                id = format!("{:016x}", u64::from_be_bytes(trace.span)),
                start = millis(began),
                end = millis(SystemTime::now()),
                workflow = start.workflow,
                execution = execution.as_str(),
            );
        }
        Ok(put)
    }

    /// Returns the record of an execution: from its shard's owner, from the journal of a shard without an owner, or from
    /// the history.
    pub async fn record(&self, execution: &ExecutionId) -> Result<Option<ExecutionRecord>, ClientError> {
        let shard = execution.shard(self.mesh.admin().layout().await?.shards);
        let unreadable = |bad: BadMessage| ClientError::Unreadable {
            execution: execution.clone(),
            reason: bad.to_string(),
        };
        match self.mesh.services().ask_shard(shard, &Query::Get(execution.clone())).await {
            Ok(Answer::Record(bytes)) => {
                return ExecutionRecord::decode(&bytes).map(Some).map_err(unreadable);
            }
            Ok(_) => {}
            Err(error) if is_silent(&error) => {
                if let Some(record) = self.fold(shard).await?.record(execution) {
                    return Ok(Some(record));
                }
            }
            Err(error) => return Err(error.into()),
        }
        match self.mesh.history().get(execution).await? {
            Some((_, bytes)) => ExecutionRecord::decode(&bytes).map(Some).map_err(unreadable),
            None => Ok(None),
        }
    }

    /// Returns whether an executor serves the shard of an execution.
    pub async fn has_owner(&self, execution: &ExecutionId) -> Result<bool, ClientError> {
        self.is_served(execution.shard(self.mesh.admin().layout().await?.shards)).await
    }

    async fn is_served(&self, shard: u32) -> Result<bool, ClientError> {
        match self.mesh.services().ask_shard(shard, &Query::Status {}).await {
            Ok(_) => Ok(true),
            Err(error) if is_silent(&error) => self.is_owned(shard, &error).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether an executor owns a shard whose owner has not responded.
    async fn is_owned(&self, shard: u32, silence: &MeshError) -> Result<bool, ClientError> {
        match silence {
            MeshError::NobodyAnswers { .. } => Ok(false),
            // An observer on all subjects suppresses the no-responders status, so the heartbeats decide.
            _ => match self.mesh.fleet().serves(shard).await {
                // Without the right to read them, a slow owner counts as an owner.
                Err(MeshError::Forbidden { .. }) => Ok(true),
                serves => Ok(serves?),
            },
        }
    }

    /// Returns the refusal of a start of this id, if any: of this client, or with `any` of every caller.
    async fn refused_start(
        &self,
        execution: &ExecutionId,
        any: bool,
    ) -> Result<Option<Verdict>, ClientError> {
        Ok(self.verdicts(execution).await?.into_iter().find(|verdict| {
            let is_refusal = verdict.op == Operation::Start && !verdict.accepted;
            is_refusal && (any || verdict.caller == *self.mesh.caller())
        }))
    }

    /// Returns the stored verdicts on commands for an execution, open or not.
    pub(crate) async fn verdicts(&self, execution: &ExecutionId) -> Result<Vec<Verdict>, ClientError> {
        let shard = execution.shard(self.mesh.admin().layout().await?.shards);
        match self.mesh.services().ask_shard(shard, &Query::Verdicts(execution.clone())).await {
            Ok(Answer::Verdicts(verdicts)) => Ok(verdicts),
            // Owners of older versions do not know this query; their events contain the verdicts.
            Ok(_) => Ok(Vec::new()),
            Err(error) if is_silent(&error) => Ok(self.fold(shard).await?.verdicts(execution)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the open executions of all shards.
    pub async fn open(&self) -> Result<Vec<Summary>, ClientError> {
        let shards = self.mesh.admin().layout().await?.shards.get();
        let asked = (0..shards).map(|shard| async move {
            match self.mesh.services().ask_shard(shard, &Query::List {}).await {
                Ok(Answer::Executions(open)) => Ok(open),
                Ok(_) => Ok(Vec::new()),
                Err(error) if is_silent(&error) => {
                    let reader = self.fold(shard).await?;
                    let starts = self.stored_starts(shard, reader.positions().commands).await?;
                    let mut open = reader.summaries(|digest| self.programs.ready(digest));
                    let has_owner = self.is_owned(shard, &error).await?;
                    for summary in open.iter_mut().filter(|_| !has_owner) {
                        (summary.waiting, summary.agents) = (Some(NO_OWNER.to_owned()), Vec::new());
                        summary.waits_for = vec!["executor".to_owned()];
                    }
                    open.extend(starts);
                    Ok(open)
                }
                Err(error) => Err(ClientError::from(error)),
            }
        });
        let mut all = Vec::new();
        for open in futures_util::future::join_all(asked).await {
            all.extend(open?);
        }
        Ok(all)
    }

    /// Returns the starts of a shard without an owner that are stored after a position. Callers without the right to read the
    /// commands of other callers see none.
    async fn stored_starts(&self, shard: u32, behind: u64) -> Result<Vec<Summary>, ClientError> {
        if !self.mesh.commands().may_read_starts().await? {
            return Ok(Vec::new());
        }
        let stored = self.mesh.commands().stored_starts(shard, behind).await?;
        Ok(stored.into_iter().filter_map(stored_summary).collect())
    }

    /// Returns the start of an execution that this caller stored and that no owner has accepted. It requires only the right
    /// to read the caller's own commands.
    pub async fn own_stored_start(&self, execution: &ExecutionId) -> Result<Option<Summary>, ClientError> {
        let shard = execution.shard(self.mesh.admin().layout().await?.shards);
        let Ok(id) = Token::parse(execution.as_str()) else { return Ok(None) };
        let behind = self.fold(shard).await?.positions().commands;
        let stored = self.mesh.commands().own_stored_start(shard, &id, behind).await?;
        Ok(stored.and_then(stored_summary))
    }

    /// Returns the shards that no executor serves and whose stored starts this caller cannot read: [`Client::open`] omits
    /// those starts.
    pub async fn unlisted_shards(&self) -> Result<Vec<u32>, ClientError> {
        if self.mesh.commands().may_read_starts().await? {
            return Ok(Vec::new());
        }
        let shards = self.mesh.admin().layout().await?.shards.get();
        let asked = (0..shards).map(|shard| self.is_served(shard));
        let served = futures_util::future::try_join_all(asked).await?;
        Ok((0..shards).zip(served).filter(|(_, served)| !served).map(|(shard, _)| shard).collect())
    }

    /// Reads the journal of a shard without an owner.
    async fn fold(&self, shard: u32) -> Result<JournalReader, ClientError> {
        let mut reader = JournalReader::default();
        self.mesh
            .journal(shard)
            .replay::<ClientError>(|stored| {
                if let Ok(commit) = Commit::decode(&stored.body) {
                    reader.read(stored.seq, commit);
                }
                Ok(())
            })
            .await?;
        for plan in reader.plans() {
            let _ = self.programs.by_digest(plan).await;
        }
        Ok(reader)
    }

    /// Returns the current state of an execution, folded here.
    pub async fn execution(
        &self,
        execution: &ExecutionId,
    ) -> Result<Option<(ExecutionRecord, Execution)>, ClientError> {
        let Some(record) = self.record(execution).await? else { return Ok(None) };
        let folded = self.folded(&record).await?;
        Ok(Some((record, folded)))
    }

    /// Folds a record.
    pub async fn folded(&self, record: &ExecutionRecord) -> Result<Execution, ClientError> {
        if let Some(ExecutionHold { code, reason }) = &record.hold {
            let (execution, code, reason) = (record.meta.execution.clone(), code.clone(), reason.clone());
            return Err(ClientError::Held { execution, code, reason });
        }
        let program = self.programs.by_digest(&record.meta.plan).await.map_err(ClientError::Plan)?;
        let unreadable =
            |reason: String| ClientError::Unreadable { execution: record.meta.execution.clone(), reason };
        let rounds = record
            .rounds
            .iter()
            .map(|round| decode_round(round))
            .collect::<Result<Vec<Round>, _>>()
            .map_err(|error| unreadable(error.to_string()))?;
        Execution::read(record.meta.execution.clone(), program, &rounds)
            .map_err(|bad| unreadable(bad.to_string()))
    }

    /// Waits until an executor has started an execution of this client; false if none has. A start that was
    /// refused is an error, and so is an execution that another caller started under the same id.
    pub async fn begun(
        &self,
        execution: &ExecutionId,
        workflow: &str,
        patience: Duration,
    ) -> Result<bool, ClientError> {
        let filter = EventFilter { execution: Some(execution.clone()), ..EventFilter::default() };
        let until = Instant::now() + patience;
        let mut events = self.mesh.events().follow(&filter, ReadFrom::Beginning).await?;
        let mut event = None;
        loop {
            // Read the record first: it contains everything that was published before this client subscribed.
            if let Some(record) = self.record(execution).await? {
                return self.check_own(&record, workflow).map(|()| true);
            }
            let told = event.as_ref().and_then(refusal).filter(|told| told.caller == *self.mesh.caller());
            let refused = match told {
                Some(told) => Some(told),
                None => self.refused_start(execution, false).await?,
            };
            if let Some(verdict) = refused {
                return Err(ClientError::Refused(verdict.reason));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            event = tokio::time::timeout(left.min(ASK_AFTER), events.next()).await.ok();
        }
    }

    /// Waits for the end of an execution. `None` after the timeout; the execution continues.
    pub async fn outcome(
        &self,
        execution: &ExecutionId,
        patience: Option<Duration>,
    ) -> Result<Option<ExecutionOutcome>, ClientError> {
        self.followed(execution, None, patience).await
    }

    /// Like [`Client::outcome`], for an execution of this workflow that this client started. An execution that another
    /// caller started under the same id is an error.
    pub async fn own_outcome(
        &self,
        execution: &ExecutionId,
        workflow: &str,
        patience: Option<Duration>,
    ) -> Result<Option<ExecutionOutcome>, ClientError> {
        self.followed(execution, Some(workflow), patience).await
    }

    /// Waits for the end of an execution; `own` is the workflow if this client started the execution.
    async fn followed(
        &self,
        execution: &ExecutionId,
        own: Option<&str>,
        patience: Option<Duration>,
    ) -> Result<Option<ExecutionOutcome>, ClientError> {
        let filter = EventFilter { execution: Some(execution.clone()), ..EventFilter::default() };
        let until = patience.map(|patience| Instant::now() + patience);
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        // An unreachable broker comes back and the execution continues, so wait for it, too.
        let mut events = loop {
            match self.mesh.events().follow(&filter, ReadFrom::Beginning).await {
                Err(error) if error.is_transient() && !is_over() => tokio::time::sleep(AGAIN).await,
                opened => break opened?,
            }
        };
        // Read the record first: it contains everything that was published before this client subscribed.
        let mut is_first = true;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let wait = left.unwrap_or(ASK_AFTER).min(ASK_AFTER);
            let mut refused = None;
            if !std::mem::take(&mut is_first) {
                match tokio::time::timeout(wait, events.next()).await {
                    Ok(event) if event.kind.as_str() == "workflow_execution_result" => {}
                    Ok(event) => match refusal(&event) {
                        Some(verdict) => refused = Some(verdict),
                        None => continue,
                    },
                    Err(_) => {}
                }
            }
            let over = is_over();
            match self.end_of(execution, own, refused).await {
                Ok(Some(outcome)) => return Ok(Some(outcome)),
                Err(ClientError::Mesh(error)) if error.is_transient() && !over => {}
                Err(error) => return Err(error),
                Ok(None) if over => return Ok(None),
                Ok(None) => {}
            }
        }
    }

    /// Returns the outcome of an execution if it has ended. `refused` is a verdict against a start of its id.
    async fn end_of(
        &self,
        execution: &ExecutionId,
        own: Option<&str>,
        refused: Option<Verdict>,
    ) -> Result<Option<ExecutionOutcome>, ClientError> {
        let Some(record) = self.record(execution).await? else {
            let refused = match refused {
                Some(verdict) => Some(verdict),
                None => self.refused_start(execution, own.is_none()).await?,
            };
            // Another caller's start with the same id may be rejected before the own one is accepted.
            return match refused {
                Some(verdict) if own.is_none() || verdict.caller == *self.mesh.caller() => {
                    Err(ClientError::Refused(verdict.reason))
                }
                _ => Ok(None),
            };
        };
        if let Some(workflow) = own {
            self.check_own(&record, workflow)?;
        }
        let folded = self.folded(&record).await?;
        Ok(folded.state().outcome.clone().filter(|_| folded.state().ended))
    }

    /// Checks that an execution is the one that this client started.
    fn check_own(&self, record: &ExecutionRecord, workflow: &str) -> Result<(), ClientError> {
        if record.meta.caller == *self.mesh.caller() && record.meta.workflow == workflow {
            return Ok(());
        }
        Err(ClientError::OtherStart(record.meta.execution.clone()))
    }
}

/// Returns the verdict against a start if the event contains one.
fn refusal(event: &Event) -> Option<Verdict> {
    let verdict: Verdict =
        (event.kind.as_str() == "command").then(|| serde_json::from_slice(&event.body).ok()).flatten()?;
    (verdict.op == Operation::Start && !verdict.accepted).then_some(verdict)
}

/// Returns whether the shard has no owner or an unresponsive one: the journal has the same answer.
fn is_silent(error: &MeshError) -> bool {
    matches!(error, MeshError::NobodyAnswers { .. } | MeshError::NoAnswer { .. })
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("mesh", &self.mesh).finish_non_exhaustive()
    }
}

/// Encodes a command.
fn checked_body(command: &Command) -> Result<String, ClientError> {
    command.check()?;
    let body = command.to_json();
    // Executors quarantine larger commands, so no verdict would follow.
    if body.len() > MAX_BODY {
        return Err(BadCommand::Size(body.len()).into());
    }
    Ok(body)
}
