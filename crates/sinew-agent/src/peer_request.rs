//! One request to another agent, repeated under the same id until its task has ended.
//!
//! A message may be lost, and its receiver may crash. So after a short wait for the reply, the task
//! is queried; if no process knows it for a while, the message is sent again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::trace::TraceParent;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::a2a::{
    A2A_VERSION, CoreMethod, Message, SendMessageRequest, SendMessageResponse, Task, is_terminal,
};
use sinew_protocol::jsonrpc::{Method, Request, Response, fault_of};
use sinew_protocol::unique_keys::check_unique_keys;
use sinew_protocol::{Token, code, header};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::artifacts::Artifacts;
use crate::callee_wait::wait_message;
use crate::failure::{Failure, no_peer};
use crate::table::Entry;
use crate::task_calls::{CallCounts, TaskCalls};
use crate::task_properties::{TaskProperties, own_ids};

/// Wait for the reply to a message before its task is queried.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a query of a task.
const POLL_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two queries of a task, initially and at most; agents are always queried at the
/// shorter one, because each replica answers only a part of the queries.
const POLL_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Time without information about a task after which its replica counts as dead.
const REPLICA_LEASE: Duration = Duration::from_secs(15);
/// Consecutive queries of a task before it counts as unknown: a process of an older version only
/// answers for its own tasks.
const REPLICA_TRIES: usize = 4;
/// Time without a reply of any executor after which a call fails.
const EXECUTOR_LEASE: Duration = Duration::from_mins(1);

/// Consecutive requests without an answer after which no executor is considered to run.
const EXECUTOR_TRIES: usize = 2;

/// Kind of the endpoint that has a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    /// Every executor knows the task: it is an execution.
    Execution,
    /// The replica that accepted the task knows it; others query it, unless they are of an older
    /// version.
    Agent,
}

impl PeerKind {
    /// Time without replies after which the peer counts as unreachable.
    fn lease(self) -> Duration {
        match self {
            Self::Execution => EXECUTOR_LEASE,
            Self::Agent => REPLICA_LEASE,
        }
    }

    fn max_interval(self) -> Duration {
        match self {
            Self::Execution => POLL_INTERVAL.1,
            Self::Agent => POLL_INTERVAL.0,
        }
    }
}

/// Queries an agent's own A2A endpoint for the task of a message that was sent and may have been
/// accepted, until the task has ended. If no process of the agent knows it for a while, because it
/// was lost or its process crashed, it is sent again.
///
/// # Errors
/// The reply is malformed, or no process replies anymore or in time.
pub async fn ask_until_answered(
    mesh: &Mesh,
    agent: &str,
    request: &SendMessageRequest,
    until: Instant,
) -> Result<Task, Failure> {
    let id = request.message.id.0.as_str();
    let (execution, task) = own_ids(mesh.namespace(), &Token::of(agent), mesh.caller(), id);
    let about = TaskProperties::new(agent, execution, task);
    let (cancel, artifacts, calls) = (CancellationToken::new(), Artifacts::default(), CallCounts::default());
    let context = TaskCalls {
        about: &about,
        cancel: &cancel,
        artifacts: &artifacts,
        calls: &calls,
        waits: None,
        entry: None,
    };
    let request = PeerRequest { mesh, id, request, context, until };
    let task = request.own_task(agent, PeerKind::Agent);
    let ended = request.follow(agent, PeerKind::Agent, Some(task)).await?;
    ended.ok_or_else(|| no_peer(agent, "no process responds", true))
}

/// A request to another agent.
pub(crate) struct PeerRequest<'a> {
    pub(crate) mesh: &'a Mesh,
    /// Id of the message.
    pub(crate) id: &'a str,
    pub(crate) request: &'a SendMessageRequest,
    pub(crate) context: TaskCalls<'a>,
    /// When the caller stops waiting for the answer.
    pub(crate) until: Instant,
}

/// State of a task at the peer.
enum PeerTask {
    Known(Box<Task>),
    /// The responding process does not know the task.
    Unknown,
    /// No reply arrived in time.
    Silent,
    /// No responders.
    Nobody,
}

impl PeerRequest<'_> {
    /// Calls an endpoint and waits for the end of the task. `None` if it has no responders and the
    /// message was not accepted.
    pub(crate) async fn ask(&self, door: &str, kind: PeerKind) -> Result<Option<Task>, Failure> {
        self.follow(door, kind, None).await
    }

    /// Returns true if an executor replies at an endpoint. With an observer of all subjects, NATS
    /// does not report missing responders.
    pub(crate) async fn finds_executor(&self, door: &str) -> Result<bool, Failure> {
        let task = self.own_task(door, PeerKind::Execution);
        for _ in 0..EXECUTOR_TRIES {
            match self.poll_once(door, &task).await? {
                PeerTask::Known(_) | PeerTask::Unknown => return Ok(true),
                PeerTask::Nobody => return Ok(false),
                PeerTask::Silent => {}
            }
            // While the broker is unreachable, a missing reply proves nothing about executors.
            match self.mesh.cards().get(&Token::of(door)).await {
                Ok(_) | Err(MeshError::Forbidden { .. }) => {}
                Err(error) => return Err(no_peer(door, &error.to_string(), error.is_transient())),
            }
        }
        Ok(false)
    }

    /// Like [`PeerRequest::ask`]; starts with a query of the task of a message that was already
    /// sent.
    async fn follow(
        &self,
        door: &str,
        kind: PeerKind,
        mut task_id: Option<String>,
    ) -> Result<Option<Task>, Failure> {
        let clock = &self.context.about.clock;
        // While the peer waits for a person, the clock of this task is stopped, too.
        let mut stopped = None;
        let (mut heard_at, mut is_sent) = (Instant::now(), task_id.is_some());
        let mut interval = POLL_INTERVAL.0;
        loop {
            // Boxed, so that exchanges take no memory during the long pauses between them.
            let state = match &task_id {
                None => Box::pin(self.send(door)).await?,
                Some(id) => Box::pin(self.poll(door, kind, id)).await?,
            };
            match state {
                PeerTask::Known(task) if is_terminal(task.status.state) => return Ok(Some(*task)),
                PeerTask::Known(task) => {
                    let wait = wait_message(&task);
                    if wait.is_some() != stopped.is_some() {
                        if let Some(hears) = self.context.waits {
                            hears(wait.is_some());
                        }
                        let show =
                            |wait| self.context.entry.map(|entry| ShownWait::new(entry, self.id, wait));
                        stopped = wait.map(|wait| (clock.stop(), show(wait)));
                    } else if let (Some(wait), Some((_, Some(shown)))) = (wait, &stopped) {
                        shown.update(wait);
                    }
                    (heard_at, is_sent) = (Instant::now(), true);
                    task_id = Some(task.id.0);
                }
                PeerTask::Nobody if !is_sent => return Ok(None),
                // A replica of an older version may know it; only missing replies of all replicas
                // mean that none does.
                PeerTask::Unknown if kind == PeerKind::Agent && heard_at.elapsed() < REPLICA_LEASE => {}
                PeerTask::Unknown => (task_id, heard_at) = (None, Instant::now()),
                PeerTask::Nobody | PeerTask::Silent if heard_at.elapsed() > kind.lease() => {
                    return Err(no_peer(door, "no process responds anymore", true));
                }
                // The message may have been accepted: its task id is derived from the message.
                PeerTask::Silent if task_id.is_none() => {
                    (task_id, is_sent) = (Some(self.own_task(door, kind)), true);
                }
                PeerTask::Nobody | PeerTask::Silent => {}
            }
            let left = clock.left(self.until);
            if left == Some(Duration::ZERO) {
                return Err(no_peer(door, "it did not respond in time", true));
            }
            sleep(left.map_or(interval, |left| interval.min(left))).await;
            interval = (interval * 2).min(kind.max_interval());
        }
    }

    /// Returns the id of the task of a message.
    fn own_task(&self, door: &str, kind: PeerKind) -> String {
        let agent = sinew_protocol::Token::of(door);
        let (execution, task) =
            crate::task_properties::own_ids(self.mesh.namespace(), &agent, self.mesh.caller(), self.id);
        match kind {
            PeerKind::Execution => execution.to_string(),
            PeerKind::Agent => task.to_string(),
        }
    }

    async fn send(&self, door: &str) -> Result<PeerTask, Failure> {
        let method = Method::Core(CoreMethod::SendMessage);
        let body = Request::new(self.id, method, self.request).to_bytes();
        let reply = self.exchange(door, method, body, ANSWER_TIMEOUT).await?;
        match reply {
            Ok(response) => match response.into_result() {
                Ok(result) => match serde_json::from_value(result) {
                    Ok(SendMessageResponse::Task(task)) => Ok(PeerTask::Known(Box::new(task))),
                    Ok(_) => Err(no_peer(door, "its response is not a task", false)),
                    Err(error) => Err(no_peer(door, &error.to_string(), false)),
                },
                Err(error) => {
                    let fault = fault_of(&error);
                    // Another process of the same name accepts the message.
                    let is_leaving = [code::AGENT_STOPPING.as_str(), code::EXECUTOR_STOPPING.as_str()];
                    if is_leaving.contains(&fault.code.as_ref()) {
                        return Ok(PeerTask::Unknown);
                    }
                    Err(fault.into())
                }
            },
            Err(state) => Ok(state),
        }
    }

    /// Queries the state of the task.
    async fn poll(&self, door: &str, kind: PeerKind, id: &str) -> Result<PeerTask, Failure> {
        let tries = if kind == PeerKind::Agent { REPLICA_TRIES } else { 1 };
        let mut state = PeerTask::Unknown;
        for _ in 0..tries {
            state = self.poll_once(door, id).await?;
            if !matches!(state, PeerTask::Unknown) {
                break;
            }
        }
        Ok(state)
    }

    async fn poll_once(&self, door: &str, id: &str) -> Result<PeerTask, Failure> {
        let method = Method::Core(CoreMethod::GetTask);
        let body = Request::new(self.id, method, &json!({ "id": id, "historyLength": 0 })).to_bytes();
        let reply = self.exchange(door, method, body, POLL_TIMEOUT).await?;
        Ok(match reply {
            Ok(response) => match response.into_result().map(serde_json::from_value::<Task>) {
                Ok(Ok(task)) => PeerTask::Known(Box::new(task)),
                Ok(Err(error)) => return Err(no_peer(door, &error.to_string(), false)),
                Err(_) => PeerTask::Unknown,
            },
            Err(state) => state,
        })
    }

    /// Performs one request; returns the reply, or why it is missing.
    async fn exchange(
        &self,
        door: &str,
        method: Method,
        body: bytes::Bytes,
        timeout: Duration,
    ) -> Result<Result<Response, PeerTask>, Failure> {
        let left = self.context.about.clock.left(self.until).unwrap_or(timeout);
        let headers = self.headers(left);
        let called = self.mesh.services().call_rpc(door, method.as_str(), headers, body, timeout.min(left));
        let reply = match called.await {
            Ok(reply) => reply,
            Err(MeshError::NobodyAnswers { .. }) => return Ok(Err(PeerTask::Nobody)),
            Err(MeshError::NoAnswer { .. } | MeshError::Unreachable { .. }) => {
                return Ok(Err(PeerTask::Silent));
            }
            Err(error) => return Err(no_peer(door, &error.to_string(), error.is_transient())),
        };
        let bad = |reason: &str| no_peer(door, reason, false);
        check_unique_keys(&reply.body).map_err(|error| bad(&error.to_string()))?;
        Response::read(&reply.body).map(Ok).map_err(|error| bad(&error.to_string()))
    }

    fn headers(&self, left: Duration) -> HeaderMap {
        let about = self.context.about;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, header::JSON);
        headers.insert(header::A2A_VERSION, A2A_VERSION);
        headers.insert(header::CALL_DEPTH, (about.depth + 1).to_string());
        let deadline = (SystemTime::now() + left).duration_since(UNIX_EPOCH).unwrap_or_default();
        headers.insert(header::DEADLINE, deadline.as_millis().to_string());
        let trace = about.trace_parent.as_deref().and_then(|text| text.parse::<TraceParent>().ok());
        if let Some(trace) = trace {
            trace.child().put(&mut headers);
        }
        headers
    }
}

/// A call of a task whose callee waits for a person. On drop, the task's status no longer shows it.
struct ShownWait<'a> {
    entry: &'a Entry,
    call: &'a str,
}

impl<'a> ShownWait<'a> {
    fn new(entry: &'a Entry, call: &'a str, wait: Message) -> Self {
        entry.callee_waits.set(call, Some(wait));
        entry.show_callee_wait();
        Self { entry, call }
    }

    /// Shows the callee's present question.
    fn update(&self, wait: Message) {
        if self.entry.callee_waits.update(self.call, wait) {
            self.entry.show_callee_wait();
        }
    }
}

impl Drop for ShownWait<'_> {
    fn drop(&mut self) {
        self.entry.callee_waits.set(self.call, None);
        self.entry.show_callee_wait();
    }
}
