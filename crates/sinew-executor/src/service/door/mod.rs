//! The A2A door of deployed workflows: whoever can call an agent can call a workflow, and cannot tell the two apart.
//!
//! Every executor serves every workflow; replicas share the calls. Nothing is kept here: a task is an execution, its
//! state is the fold of its record, so any executor answers for all of them, also when the one that started it is gone.

mod list;
mod start;
mod story;
mod task;

pub use story::{TaskEvent, count_task_events, task_events};

use sinew_protocol::code;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sinew_mesh::micro::Listed;
use sinew_mesh::rpc::{RpcRequest, RpcServer};
use sinew_mesh::trace::TraceParent;
use sinew_mesh::{HeaderMap, MeshError};
use sinew_protocol::a2a::{
    A2A_VERSION, A2aError, CancelTaskParams, CoreMethod, ErrorCode, SendMessageRequest, TaskIdParams,
    TaskQueryParams, is_terminal,
};
use sinew_protocol::command::{CancelCommand, Command};
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::jsonrpc::{Method, Refused, Request, Response, check_headers, error_of};
use sinew_protocol::{ExecutionId, Fault, Token, header};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::announce;
use super::intake::Handle;
use crate::client::{Client, ClientError};
use sinew_runtime::Execution;

/// The executor ends before it could answer.
const STOPPING: &str = code::EXECUTOR_STOPPING.as_str();
/// Calls that are answered at once.
const AT_ONCE: usize = 4_096;
/// Between tries to open a door.
const REOPEN: Duration = Duration::from_secs(1);
/// How long the end of a cancelled execution is waited for.
const CANCEL_PATIENCE: Duration = Duration::from_mins(10);
/// Answer to requests for webhooks.
const NO_PUSH: &str = "there are no push notifications on a bus: watch the task's progress";

/// Outcome of a call: a result with the number of the last event before it, or an error.
type Said = Result<(Value, Option<u64>), A2aError>;

/// The doors of all workflows in one executor.
pub(super) struct Doors {
    shared: Handle,
    client: Client,
    /// Executions whose events are republished, and until when somebody is believed to listen.
    told: Mutex<HashMap<ExecutionId, Instant>>,
    at_once: Arc<Semaphore>,
    stop: CancellationToken,
}

/// Workflow behind a door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DoorKind {
    /// A deployed workflow, listed as a service.
    Workflow,
    /// The workflow that asks one agent, or a person.
    BuiltIn,
}

/// An execution that the caller may see.
struct Known {
    record: ExecutionRecord,
    folded: Execution,
}

impl Doors {
    pub(super) fn new(shared: Handle, stop: CancellationToken) -> Arc<Self> {
        let client = Client::over(shared.mesh.clone(), shared.programs.clone());
        let at_once = Arc::new(Semaphore::new(AT_ONCE));
        Arc::new(Self { shared, client, told: Mutex::default(), at_once, stop })
    }

    /// Answers calls of one workflow until it is `closed`.
    pub(super) async fn serve(
        self: Arc<Self>,
        workflow: Arc<str>,
        door: DoorKind,
        closed: CancellationToken,
    ) {
        let Some((mut server, listed)) = self.open(&workflow, door, &closed).await else { return };
        let listed = listed.map(Arc::new);
        loop {
            let call = tokio::select! {
                biased;
                () = closed.cancelled() => break,
                call = server.next() => call,
            };
            let Some(call) = call else { return };
            self.take(&workflow, listed.as_ref(), call).await;
        }
        if let Err(error) = server.stop().await {
            debug!(workflow = &*workflow, %error, "the door was not closed");
        }
        // Calls that arrived before the subscription was closed are answered.
        while let Some(call) = server.next().await {
            self.take(&workflow, listed.as_ref(), call).await;
        }
    }

    async fn open(
        &self,
        workflow: &Arc<str>,
        door: DoorKind,
        closed: &CancellationToken,
    ) -> Option<(RpcServer, Option<Listed>)> {
        let mesh = &self.shared.mesh;
        loop {
            let (shared, name) = (Arc::clone(&self.shared), Arc::clone(workflow));
            let opened = async {
                let server = mesh.services().serve_rpc(workflow).await?;
                if door == DoorKind::BuiltIn {
                    return Ok((server, None));
                }
                let about = move || announce::about(&shared, &name);
                Ok::<_, MeshError>((server, Some(mesh.services().list_agent(workflow, about).await?)))
            };
            match opened.await {
                Ok(opened) => return Some(opened),
                Err(error) => debug!(workflow = &**workflow, %error, "the door cannot be opened yet"),
            }
            tokio::select! {
                biased;
                () = closed.cancelled() => return None,
                () = tokio::time::sleep(REOPEN) => {}
            }
        }
    }

    async fn take(self: &Arc<Self>, workflow: &Arc<str>, listed: Option<&Arc<Listed>>, call: RpcRequest) {
        let Ok(permit) = Arc::clone(&self.at_once).acquire_owned().await else { return };
        let (doors, workflow, listed) = (Arc::clone(self), Arc::clone(workflow), listed.cloned());
        tokio::spawn(async move {
            doors.answer(&workflow, listed.as_deref(), call).await;
            drop(permit);
        });
    }

    async fn answer(self: &Arc<Self>, workflow: &str, listed: Option<&Listed>, call: RpcRequest) {
        let asked = Instant::now();
        let (id, said) = match read(&call) {
            Err(Refused { id, error }) => (id, Err(*error)),
            Ok(request) => {
                let said = tokio::select! {
                    biased;
                    said = self.perform(workflow, &call.caller, &request, &call.headers) => said,
                    () = self.stop.cancelled() => Err(stopping()),
                };
                (request.id, said)
            }
        };
        if let Some(listed) = listed {
            listed.answered(asked.elapsed(), said.as_ref().err().map(|error| error.message.as_str()));
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, header::JSON);
        headers.insert(header::A2A_VERSION, A2A_VERSION);
        let response = match said {
            Ok((result, seq)) => {
                if let Some(seq) = seq {
                    headers.insert(header::A2A_SEQ, seq.to_string());
                }
                Response::ok(id, result)
            }
            Err(error) => Response::error(id, &error),
        };
        if let Err(error) = call.respond(headers, response.to_bytes()).await {
            debug!(workflow, %error, "a call was not answered");
        }
    }

    async fn perform(
        self: &Arc<Self>,
        workflow: &str,
        caller: &Token,
        request: &Request,
        headers: &HeaderMap,
    ) -> Said {
        let Method::Core(method) = request.method else {
            let card = announce::card(&self.shared, workflow).await;
            return card.map(|card| (json!(card), None)).map_err(|fault| error_of(&fault));
        };
        match method {
            CoreMethod::SendMessage => self.send(workflow, caller, request, headers, false).await,
            CoreMethod::SendStreamingMessage => self.send(workflow, caller, request, headers, true).await,
            CoreMethod::GetTask => {
                let params: TaskQueryParams = request.params()?;
                let known = self.theirs(workflow, caller, &params.id).await?;
                let task = self.task(&known).await?;
                Ok((json!(task), Some(story::length(&known.folded))))
            }
            CoreMethod::ListTasks => {
                let page = self.list(workflow, caller, request.params()?).await?;
                Ok((json!(page), None))
            }
            CoreMethod::CancelTask => self.cancel(workflow, caller, request.params()?).await,
            CoreMethod::SubscribeToTask => {
                let params: TaskIdParams = request.params()?;
                let known = self.theirs(workflow, caller, &params.id).await?;
                if known.folded.state().ended {
                    let text = "the task has ended: there is nothing to subscribe to";
                    return Err(A2aError::unsupported_operation(text));
                }
                self.stream(workflow, known).await
            }
            CoreMethod::CreateTaskPushNotificationConfig
            | CoreMethod::GetTaskPushNotificationConfig
            | CoreMethod::ListTaskPushNotificationConfigs
            | CoreMethod::DeleteTaskPushNotificationConfig => Err(A2aError::push_not_supported(NO_PUSH)),
            CoreMethod::GetExtendedAgentCard => {
                let text = "a workflow has one card, the same for everybody";
                Err(A2aError::extended_card_not_configured(text))
            }
            other => Err(A2aError::unsupported_operation(other.wire_name())),
        }
    }

    async fn send(
        self: &Arc<Self>,
        workflow: &str,
        caller: &Token,
        request: &Request,
        headers: &HeaderMap,
        streaming: bool,
    ) -> Said {
        let params: SendMessageRequest = request.params()?;
        let message = &params.message;
        if message.parts.is_empty() || message.id.0.is_empty() {
            return Err(A2aError::invalid_params("message: expected a messageId and at least one part"));
        }
        let configuration = params.configuration.as_ref();
        if configuration.is_some_and(|wanted| wanted.task_push_notification_config.is_some()) {
            return Err(A2aError::push_not_supported(NO_PUSH));
        }
        if let Some(task) = &message.task_id {
            self.theirs(workflow, caller, &task.0).await?;
            let text = "a workflow takes all it needs with the first message; who is asked by it answers with the \
                        command approve";
            return Err(A2aError::unsupported_operation(text));
        }
        let at_once = streaming || configuration.and_then(|wanted| wanted.return_immediately) == Some(true);
        let execution = ExecutionId::of(self.shared.mesh.namespace(), caller.as_str(), &message.id.0);
        let of_others =
            |known: &Known| known.record.meta.caller != *caller || known.record.meta.workflow != workflow;
        let known = match self.find(&execution).await? {
            Some(known) if settled(&known) || at_once || of_others(&known) => known,
            Some(_) => self.until(&execution, caller, false).await?,
            None => {
                let command = self.start(workflow, caller, &execution, &params, headers).await?;
                let trace = TraceParent::of(headers).map_or_else(TraceParent::fresh, TraceParent::child);
                match self.client.start_within(command, trace).await {
                    // The same message with another content is the same message.
                    Ok(_) | Err(ClientError::OtherStart(_)) => {}
                    Err(error) => return Err(failed(&error)),
                }
                self.until(&execution, caller, at_once).await?
            }
        };
        if of_others(&known) {
            // One message id for two workflows: which of them is meant nobody knows.
            return Err(A2aError::invalid_params("messageId: it was used for another workflow"));
        }
        if streaming && !known.folded.state().ended {
            return self.stream(workflow, known).await;
        }
        let seq = story::length(&known.folded);
        Ok((json!({ "task": self.task(&known).await? }), Some(seq)))
    }

    async fn cancel(&self, workflow: &str, caller: &Token, params: CancelTaskParams) -> Said {
        let known = self.theirs(workflow, caller, &params.id).await?;
        let not_cancelable = || A2aError::task_not_cancelable(short(&params.id, 64));
        if known.folded.state().ended {
            return Err(not_cancelable());
        }
        let execution = known.record.meta.execution.clone();
        let name = caller.name().unwrap_or_else(|| caller.to_string());
        let reason = format!("asked for by {name}");
        let command = Command::Cancel(CancelCommand { execution: execution.clone(), reason });
        let id = Token::of(&uuid::Uuid::now_v7().simple().to_string());
        let verdict =
            self.client.signal(&id, command, CANCEL_PATIENCE).await.map_err(|error| failed(&error))?;
        if !verdict.accepted {
            return Err(not_cancelable());
        }
        let ended = tokio::time::timeout(CANCEL_PATIENCE, self.until_ended(&execution, caller)).await;
        let known = ended.map_err(|_| failed(&ClientError::Undecided(CANCEL_PATIENCE)))??;
        let task = self.task(&known).await?;
        debug_assert!(is_terminal(task.status.state));
        Ok((json!(task), Some(story::length(&known.folded))))
    }

    /// An execution of this id, whoever started it.
    async fn find(&self, execution: &ExecutionId) -> Result<Option<Known>, A2aError> {
        let found = self.client.execution(execution).await.map_err(|error| failed(&error))?;
        Ok(found.map(|(record, folded)| Known { record, folded }))
    }

    /// The caller's own task. For everybody else it does not exist.
    async fn theirs(&self, workflow: &str, caller: &Token, id: &str) -> Result<Known, A2aError> {
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

/// Whether a blocking call is answered: the execution has ended, or waits for a person and nothing else.
fn settled(known: &Known) -> bool {
    known.folded.state().ended || task::asks(&known.folded)
}

/// The call itself, if the door understands it.
fn read(call: &RpcRequest) -> Result<Request, Refused> {
    let request = Request::read(&call.body)?;
    let refused = |error: A2aError| Refused { id: request.id.clone(), error: Box::new(error) };
    if let Some(defect) = &call.defect {
        return Err(refused(A2aError::new(ErrorCode::InvalidRequest, defect)));
    }
    let text = |name: &str| call.headers.get(name).map(AsRef::<str>::as_ref);
    check_headers(text(header::A2A_VERSION), text(header::CONTENT_TYPE)).map_err(refused)?;
    // Permissions are given by subject: what the body asks for must be what the caller may ask for.
    if request.method.as_str() == call.method {
        return Ok(request);
    }
    Err(refused(A2aError::new(ErrorCode::InvalidRequest, "the method is not that of the subject")))
}

/// An error of ours as A2A words it.
fn failed(error: &ClientError) -> A2aError {
    let retryable = matches!(error, ClientError::Mesh(error) if error.is_transient());
    let fault = match error {
        ClientError::Command(bad) => Fault::invalid(error.code().to_owned(), bad.to_string()),
        ClientError::Plan(fault) => fault.clone(),
        error => Fault::error(error.code().to_owned(), error.to_string()).with_retryable(retryable),
    };
    error_of(&fault)
}

fn broker(error: &MeshError) -> A2aError {
    error_of(&Fault::error(error.code(), error.to_string()).with_retryable(error.is_transient()))
}

fn stopping() -> A2aError {
    let text = "the executor stops before it could answer; the same message gets the same task";
    error_of(&Fault::error(STOPPING, text).with_retryable(true))
}

/// A text from outside, bounded and without what steers a terminal.
fn short(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}
