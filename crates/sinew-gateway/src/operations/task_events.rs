//! Task events of executions, with one reader per execution for any number of streams.
//!
//! Event numbers are derived from the facts, so all gateways publish the same events, and a
//! subscriber can resume at another gateway after the last number that it has.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sinew_executor::client::{Client, ClientError};
use sinew_executor::service::{TaskEvent, count_task_events, task_events};
use sinew_mesh::HeaderMap;
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_protocol::a2a::{A2aError, CoreMethod, Task, TaskQueryParams, TaskState, TaskStatus};
use sinew_protocol::{ExecutionId, Vocabulary};
use tokio::sync::watch;
use tokio::time::Instant;

use super::peer::{ask_peer, client_failed};
use super::short;

/// Events within this time are processed together.
const GATHER: Duration = Duration::from_millis(20);
/// Interval at which the record is read without an event, in case one was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before a record is read again while the broker is unreachable.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Time limit for reading the task of an ended execution.
const TASK_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of events per execution kept for subscribers; slower ones read the record.
const MAX_KEPT_EVENTS: usize = 1_024;
/// Maximum size of the kept events per execution.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// The event logs with subscribers. Clones share them.
#[derive(Clone)]
pub(super) struct TaskEventHub {
    client: Client,
    logs: Arc<Mutex<HashMap<ExecutionId, Weak<TaskEventLog>>>>,
}

/// The latest events of one execution.
struct TaskEventLog {
    kept: Mutex<KeptEvents>,
    state: watch::Sender<TaskEventState>,
}

/// Progress of a task event log.
#[derive(Clone, Debug, Default)]
struct TaskEventState {
    last: u64,
    failure: Option<Arc<A2aError>>,
}

#[derive(Default)]
struct KeptEvents {
    /// Number of the event before the first kept one.
    before: u64,
    events: VecDeque<TaskEvent>,
    bytes: usize,
}

/// One subscriber's position in a task event log.
pub(super) struct TaskEventReader {
    hub: TaskEventHub,
    execution: ExecutionId,
    vocabulary: Vocabulary,
    log: Arc<TaskEventLog>,
    state: watch::Receiver<TaskEventState>,
    at: u64,
    ready: VecDeque<TaskEvent>,
}

impl TaskEventHub {
    pub(super) fn new(client: Client) -> Self {
        Self { client, logs: Arc::default() }
    }

    /// Subscribes to an execution's events after this number.
    pub(super) fn listen(
        &self,
        execution: &ExecutionId,
        vocabulary: Vocabulary,
        after: u64,
    ) -> TaskEventReader {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let told = logs.get(execution).and_then(Weak::upgrade);
        let log = told.filter(|log| log.state.borrow().failure.is_none()).unwrap_or_else(|| {
            let kept = KeptEvents { before: after, ..KeptEvents::default() };
            let state = TaskEventState { last: after, failure: None };
            let log = Arc::new(TaskEventLog { kept: Mutex::new(kept), state: watch::Sender::new(state) });
            logs.retain(|_, log| log.strong_count() > 0);
            logs.insert(execution.clone(), Arc::downgrade(&log));
            tokio::spawn(self.clone().tell(execution.clone(), vocabulary, Arc::downgrade(&log)));
            log
        });
        drop(logs);
        let state = log.state.subscribe();
        let (hub, execution) = (self.clone(), execution.clone());
        TaskEventReader { hub, execution, vocabulary, log, state, at: after, ready: VecDeque::new() }
    }

    /// Adds an execution's events to the log until the execution ends, or no subscriber remains.
    async fn tell(self, execution: ExecutionId, vocabulary: Vocabulary, told: Weak<TaskEventLog>) {
        let filter = EventFilter { execution: Some(execution.clone()), ..EventFilter::default() };
        let mut events = loop {
            match self.client.mesh().events().follow(&filter, EventStart::Now).await {
                Ok(events) => break events,
                Err(error) if error.is_transient() && told.strong_count() > 0 => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => return fail(&told, &super::peer::mesh_failed(&error)),
            }
        };
        loop {
            let began = Instant::now();
            let Some(last) = told.upgrade().map(|log| log.state.borrow().last) else { return };
            match self.events_after(&execution, vocabulary, last).await {
                Ok(new) => {
                    let is_over = new.last().is_some_and(|event| event.end.is_some());
                    let Some(log) = told.upgrade() else { return };
                    log.add(new);
                    if is_over {
                        return;
                    }
                }
                Err(TaskEventError::Transient) => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                Err(TaskEventError::Final(error)) => return fail(&told, &error),
            }
            // Reading a record takes longer the longer the execution, so long ones are read less
            // often.
            let rest = GATHER.max(began.elapsed() * 4);
            let _ = tokio::time::timeout(POLL_INTERVAL, events.next()).await;
            tokio::time::sleep(rest).await;
            while events.try_next().is_some() {}
        }
    }

    /// Reads the events of an execution after this number from its record.
    async fn events_after(
        &self,
        execution: &ExecutionId,
        vocabulary: Vocabulary,
        after: u64,
    ) -> Result<Vec<TaskEvent>, TaskEventError> {
        let found = self.client.execution(execution).await.map_err(|error| TaskEventError::of(&error))?;
        let Some((record, folded)) = found else {
            return Err(TaskEventError::Final(A2aError::task_not_found(short(execution.as_str(), 64))));
        };
        if count_task_events(&folded) <= after {
            return Ok(Vec::new());
        }
        let task = if folded.state().ended {
            self.ended_task(&record.meta.workflow, record.meta.caller.clone(), execution).await?
        } else {
            open_task(execution)
        };
        Ok(task_events(&record.meta, &folded, &task, vocabulary, after))
    }

    /// Returns the task of an ended execution, as an executor encodes it.
    async fn ended_task(
        &self,
        workflow: &str,
        caller: sinew_protocol::Token,
        execution: &ExecutionId,
    ) -> Result<Task, TaskEventError> {
        let mesh = self.client.mesh().on_behalf_of(caller);
        let params = TaskQueryParams { tenant: None, id: execution.to_string(), history_length: Some(0) };
        let asked =
            ask_peer(&mesh, workflow, CoreMethod::GetTask, HeaderMap::new(), &params, TASK_TIMEOUT).await;
        match asked {
            Ok(reply) => reply.read().map_err(TaskEventError::Final),
            Err(error) if error.is_silent => Err(TaskEventError::Transient),
            Err(error) => Err(TaskEventError::Final(error.into())),
        }
    }
}

/// Reason why no events could be read from a record.
enum TaskEventError {
    /// The broker or the executors are unreachable.
    Transient,
    Final(A2aError),
}

impl TaskEventError {
    fn of(error: &ClientError) -> Self {
        match error {
            ClientError::Mesh(mesh) if mesh.is_transient() => Self::Transient,
            error => Self::Final(client_failed(error)),
        }
    }
}

/// Returns the task of a running execution with the members that its events need.
fn open_task(execution: &ExecutionId) -> Task {
    Task {
        id: sinew_protocol::a2a::TaskId::new(execution.as_str()),
        context_id: sinew_protocol::a2a::ContextId::new(execution.as_str()),
        status: TaskStatus::new(TaskState::Working),
        artifacts: None,
        history: None,
        metadata: None,
    }
}

fn fail(told: &Weak<TaskEventLog>, error: &A2aError) {
    if let Some(log) = told.upgrade() {
        log.state.send_modify(|state| state.failure = Some(Arc::new(error.clone())));
    }
}

impl TaskEventLog {
    fn add(&self, new: Vec<TaskEvent>) {
        let Some(last) = new.last().map(|event| event.seq) else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += new.iter().map(|event| event.body.len()).sum::<usize>();
        kept.events.extend(new);
        while kept.events.len() > MAX_KEPT_EVENTS || kept.bytes > MAX_KEPT_BYTES {
            let Some(oldest) = kept.events.pop_front() else { break };
            kept.before = oldest.seq;
            kept.bytes -= oldest.body.len();
        }
        drop(kept);
        self.state.send_modify(|state| state.last = last);
    }

    /// Returns the kept events after this number, or `None` if some of them were dropped.
    fn after(&self, after: u64) -> Option<Vec<TaskEvent>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if after < kept.before {
            return None;
        }
        Some(kept.events.iter().filter(|event| event.seq > after).cloned().collect())
    }
}

impl TaskEventReader {
    /// Returns the next event, in order and without gaps, or `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Result<TaskEvent, A2aError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.at = event.seq;
                return Some(Ok(event));
            }
            let (last, failure) = {
                let state = self.state.borrow_and_update();
                (state.last, state.failure.clone())
            };
            if let Some(error) = failure {
                return Some(Err((*error).clone()));
            }
            match self.log.after(self.at) {
                Some(new) => self.ready.extend(new),
                // Rare; boxed so that waiting streams do not reserve the memory for reading a
                // record.
                None => {
                    match Box::pin(self.hub.events_after(&self.execution, self.vocabulary, self.at)).await {
                        Ok(new) => self.ready.extend(new),
                        Err(TaskEventError::Transient) => tokio::time::sleep(RETRY_PAUSE).await,
                        Err(TaskEventError::Final(error)) => return Some(Err(error)),
                    }
                }
            }
            let is_behind = self.at < last;
            if self.ready.is_empty() && !is_behind && self.state.changed().await.is_err() {
                return None;
            }
        }
    }
}
