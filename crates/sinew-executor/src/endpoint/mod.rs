//! A2A endpoints of deployed workflows: a caller cannot distinguish a workflow from an agent.
//!
//! Every executor serves every workflow; replicas share the calls. The endpoint is stateless: a
//! task is an execution whose state is the fold of its record, so any executor answers for all
//! tasks, even if the one that started the execution has stopped.

mod announce;
mod history;
mod list;
mod serving;
mod start;
mod task;
mod task_events;

pub(crate) use serving::serve;
pub use task_events::{TaskEvent, count_task_events, task_events};

use sinew_protocol::code;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sinew_mesh::a2a_endpoint::{
    A2aAnswer, A2aCall, A2aEndpoint, A2aOutcome, A2aService, AnswerMoment, CallPermits,
};
use sinew_mesh::artifact::ArtifactStore;
use sinew_mesh::card::Cards;
use sinew_mesh::micro::Listed;
use sinew_mesh::rpc::RpcServer;
use sinew_mesh::trace::TraceParent;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::a2a::{
    A2aError, AgentCard, CancelTaskParams, ListTasksParams, SendMessageRequest, TaskIdParams,
    TaskQueryParams, is_terminal,
};
use sinew_protocol::command::{CancelCommand, Command};
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::jsonrpc::{error_of, temporary_error};
use sinew_protocol::{ExecutionId, Fault, ResultKey, Token, Vocabulary};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::client::{Client, ClientError};
use crate::programs::Programs;
use sinew_execution::Execution;

/// The executor stopped before it could reply.
const STOPPING: &str = code::EXECUTOR_STOPPING.as_str();
/// Pause between attempts to open an endpoint.
const REOPEN: Duration = Duration::from_secs(1);
/// Timeout for the end of a cancelled execution.
const CANCEL_PATIENCE: Duration = Duration::from_mins(10);

/// Parts of an executor that its endpoints need.
pub(crate) struct EndpointContext {
    pub(crate) mesh: Mesh,
    pub(crate) shards: NonZeroU32,
    pub(crate) key: ResultKey,
    pub(crate) programs: Programs,
    pub(crate) cards: Cards,
    pub(crate) artifacts: ArtifactStore,
    pub(crate) vocabulary: Vocabulary,
    /// Whether tasks carry the result object of their dialect.
    pub(crate) native_results: bool,
}

/// The endpoints of all workflows in one executor.
struct WorkflowEndpoints {
    shared: Arc<EndpointContext>,
    client: Client,
    /// Executions whose events are republished, and until when subscribers are assumed.
    told: Mutex<HashMap<ExecutionId, Instant>>,
    places: CallPermits,
    stop: CancellationToken,
}

/// Kind of workflow behind an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndpointKind {
    /// A deployed workflow, listed as a service.
    Workflow,
    /// The workflow that calls one agent, or asks a person.
    BuiltIn,
}

/// An execution that the caller may see.
struct KnownExecution {
    record: ExecutionRecord,
    folded: Execution,
}

/// Operations on the tasks of one workflow.
struct WorkflowTasks {
    endpoints: Arc<WorkflowEndpoints>,
    workflow: Arc<str>,
}

impl A2aService for WorkflowTasks {
    async fn card(&self) -> Result<AgentCard, A2aError> {
        let card = announce::card(&self.endpoints.shared, &self.workflow);
        self.until_stopped(async { card.await.map_err(|fault| error_of(&fault)) }).await
    }

    async fn send_message(
        &self,
        call: &A2aCall,
        params: SendMessageRequest,
        moment: AnswerMoment,
    ) -> A2aOutcome {
        self.until_stopped(self.endpoints.send(&self.workflow, call, params, moment)).await
    }

    async fn get_task(&self, call: &A2aCall, params: TaskQueryParams) -> A2aOutcome {
        self.until_stopped(async {
            let known = self.endpoints.theirs(&self.workflow, &call.caller, &params.id).await?;
            let task = self.endpoints.task(&known, params.history_length).await?;
            Ok(A2aAnswer::of(&task).with_seq(task_events::length(&known.folded)))
        })
        .await
    }

    async fn list_tasks(&self, call: &A2aCall, params: ListTasksParams) -> A2aOutcome {
        let page = self.endpoints.list(&self.workflow, &call.caller, params);
        self.until_stopped(async { page.await.map(|page| A2aAnswer::of(&page)) }).await
    }

    async fn cancel_task(&self, call: &A2aCall, params: CancelTaskParams) -> A2aOutcome {
        self.until_stopped(self.endpoints.cancel(&self.workflow, &call.caller, params)).await
    }

    async fn subscribe(&self, call: &A2aCall, params: TaskIdParams) -> A2aOutcome {
        self.until_stopped(async {
            let known = self.endpoints.theirs(&self.workflow, &call.caller, &params.id).await?;
            if known.folded.state().ended {
                let text = "the task has ended; subscribing is not possible";
                return Err(A2aError::unsupported_operation(text));
            }
            self.endpoints.stream(&self.workflow, known, None).await
        })
        .await
    }
}

impl WorkflowTasks {
    /// Returns the result of a future, or an error as soon as the executor stops.
    fn until_stopped<'a, T: 'a>(
        &'a self,
        work: impl Future<Output = Result<T, A2aError>> + Send + 'a,
    ) -> impl Future<Output = Result<T, A2aError>> + Send + 'a {
        // Boxed, because folding a record needs a large future, and many calls may wait.
        let work = Box::pin(work);
        async move {
            tokio::select! {
                biased;
                outcome = work => outcome,
                () = self.endpoints.stop.cancelled() => Err(stopping()),
            }
        }
    }
}

impl WorkflowEndpoints {
    fn new(shared: Arc<EndpointContext>, stop: CancellationToken) -> Arc<Self> {
        let client = Client::over(shared.mesh.clone(), shared.programs.clone());
        Arc::new(Self { shared, client, told: Mutex::default(), places: CallPermits::default(), stop })
    }

    /// Answers calls of one workflow until `closed` fires.
    async fn serve(self: Arc<Self>, workflow: Arc<str>, kind: EndpointKind, closed: CancellationToken) {
        let Some((calls, listed)) = self.open(&workflow, kind, &closed).await else { return };
        let places = self.places.clone();
        let tasks = Arc::new(WorkflowTasks { endpoints: self, workflow });
        A2aEndpoint::new(tasks, calls, listed).within(places).serve(closed).await;
    }

    async fn open(
        &self,
        workflow: &Arc<str>,
        kind: EndpointKind,
        closed: &CancellationToken,
    ) -> Option<(RpcServer, Option<Listed>)> {
        let mesh = &self.shared.mesh;
        loop {
            let (shared, name) = (Arc::clone(&self.shared), Arc::clone(workflow));
            let opened = async {
                let calls = mesh.services().serve_rpc(workflow).await?;
                if kind == EndpointKind::BuiltIn {
                    return Ok((calls, None));
                }
                let about = move || announce::about(&shared, &name);
                Ok::<_, MeshError>((calls, Some(mesh.services().list_agent(workflow, about).await?)))
            };
            match opened.await {
                Ok(opened) => return Some(opened),
                Err(error) => debug!(workflow = &**workflow, %error, "cannot open the endpoint yet"),
            }
            tokio::select! {
                biased;
                () = closed.cancelled() => return None,
                () = tokio::time::sleep(REOPEN) => {}
            }
        }
    }

    async fn send(
        self: &Arc<Self>,
        workflow: &str,
        call: &A2aCall,
        params: SendMessageRequest,
        moment: AnswerMoment,
    ) -> A2aOutcome {
        let (caller, headers) = (&call.caller, &call.headers);
        let message = &params.message;
        if let Some(task) = &message.task_id {
            self.theirs(workflow, caller, &task.0).await?;
            let text = "a workflow accepts input only with the first message; answer its questions with the \
                        command approve";
            return Err(A2aError::unsupported_operation(text));
        }
        let at_once = moment != AnswerMoment::Settled;
        let history_length = params.configuration.as_ref().and_then(|wanted| wanted.history_length);
        let execution = ExecutionId::of(self.shared.mesh.namespace(), caller.as_str(), &message.id.0);
        let of_others = |known: &KnownExecution| {
            known.record.meta.caller != *caller || known.record.meta.workflow != workflow
        };
        let known = match self.find(&execution).await? {
            Some(known) if settled(&known) || at_once || of_others(&known) => known,
            Some(_) => {
                drop(params);
                self.until(call, &execution, false).await?
            }
            None => {
                let command = self.start(workflow, caller, &execution, &params, headers).await?;
                drop(params);
                let trace = TraceParent::of(headers).map_or_else(TraceParent::fresh, TraceParent::child);
                match self.client.start_within(command, trace).await {
                    // A message id identifies its request: other content under the same id is a
                    // duplicate.
                    Ok(_) | Err(ClientError::OtherStart(_)) => {}
                    Err(error) => return Err(failed(&error)),
                }
                self.until(call, &execution, at_once).await?
            }
        };
        if of_others(&known) {
            // One message id for two workflows is ambiguous.
            return Err(A2aError::invalid_params("messageId: already used for another workflow"));
        }
        if moment == AnswerMoment::Streamed && !known.folded.state().ended {
            return self.stream(workflow, known, history_length).await;
        }
        let seq = task_events::length(&known.folded);
        Ok(A2aAnswer::of_task(&self.task(&known, history_length).await?).with_seq(seq))
    }

    async fn cancel(&self, workflow: &str, caller: &Token, params: CancelTaskParams) -> A2aOutcome {
        let known = self.theirs(workflow, caller, &params.id).await?;
        let not_cancelable = || A2aError::task_not_cancelable(short(&params.id, 64));
        if known.folded.state().ended {
            return Err(not_cancelable());
        }
        let execution = known.record.meta.execution.clone();
        let name = caller.name().unwrap_or_else(|| caller.to_string());
        let reason = format!("requested by {name}");
        let command = Command::Cancel(CancelCommand { execution: execution.clone(), reason });
        let id = Token::of(&uuid::Uuid::now_v7().simple().to_string());
        let verdict =
            self.client.signal(&id, command, CANCEL_PATIENCE).await.map_err(|error| failed(&error))?;
        if !verdict.accepted {
            return Err(not_cancelable());
        }
        let ended = tokio::time::timeout(CANCEL_PATIENCE, self.until_ended(&execution, caller)).await;
        let known = ended.map_err(|_| failed(&ClientError::Undecided(CANCEL_PATIENCE)))??;
        let task = self.task(&known, None).await?;
        debug_assert!(is_terminal(task.status.state));
        Ok(A2aAnswer::of(&task).with_seq(task_events::length(&known.folded)))
    }

    /// Finds an execution by id, whoever started it.
    async fn find(&self, execution: &ExecutionId) -> Result<Option<KnownExecution>, A2aError> {
        let found = self.client.execution(execution).await.map_err(|error| failed(&error))?;
        Ok(found.map(|(record, folded)| KnownExecution { record, folded }))
    }

    /// Returns the caller's own task. It does not exist for other callers.
    async fn theirs(&self, workflow: &str, caller: &Token, id: &str) -> Result<KnownExecution, A2aError> {
        let absent = || A2aError::task_not_found(short(id, 64));
        let execution = ExecutionId::parse(id).map_err(|_| absent())?;
        let known = self.find(&execution).await?.ok_or_else(absent)?;
        let meta = &known.record.meta;
        if meta.caller != *caller || meta.workflow != workflow { Err(absent()) } else { Ok(known) }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, HashMap<ExecutionId, Instant>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether to answer a blocking call: the execution has ended, waits only for a person, or is
/// kept by the pause of its workflow.
fn settled(known: &KnownExecution) -> bool {
    known.folded.state().ended || task::asks(&known.folded) || known.folded.kept_reason().is_some()
}

/// Converts an error to A2A's format.
fn failed(error: &ClientError) -> A2aError {
    let fault = match error {
        ClientError::Mesh(error) => return broker(error),
        ClientError::Command(bad) => Fault::invalid(error.code().to_owned(), bad.to_string()),
        ClientError::Plan(fault) => fault.clone(),
        error => Fault::error(error.code().to_owned(), error.to_string()).with_retryable(false),
    };
    error_of(&fault)
}

fn broker(error: &MeshError) -> A2aError {
    if error.is_transient() {
        return temporary_error(error.code(), error.to_string());
    }
    error_of(&Fault::error(error.code(), error.to_string()).with_retryable(false))
}

fn stopping() -> A2aError {
    let text = "the executor is shutting down; send the same message again to get the same task";
    temporary_error(STOPPING, text)
}

/// Truncates external text and removes control characters.
fn short(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}
