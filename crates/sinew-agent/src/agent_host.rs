//! State that the queue and the A2A endpoint of an agent share: tasks, slots, and how a task is
//! processed.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sinew_mesh::Mesh;
use sinew_protocol::a2a::Task;
use sinew_protocol::unique_keys::read_unique;
use sinew_protocol::{Fault, Token};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::agent::CompiledAgent;
use crate::cancelled_tasks::CancelledTasks;
use crate::context::Context;
use crate::failure::{ARTIFACTS, BAD_INPUT, CANCELLED, TOO_LATE, bad_json};
use crate::feed::{EventFeed, OutgoingEvents, state_word};
use crate::node_tasks::NodeTasks;
use crate::parking::AgentSlots;
use crate::peers::Peers;
use crate::reply;
use crate::request::{Asked, Input, Request};
use crate::table::{Begin, Entry, Origin, TaskTable};
use crate::task_properties::TaskProperties;
use crate::work::{EndedTask, GivenUp, time_left, work};

/// Maximum number of open tasks beyond those in progress.
const MOST_WAITING: usize = 1_024;

/// One agent in one process.
pub(crate) struct AgentHost {
    pub(crate) mesh: Mesh,
    pub(crate) agent: CompiledAgent,
    pub(crate) token: Token,
    pub(crate) table: TaskTable,
    pub(crate) peers: Peers,
    /// Cancelled when no new task is accepted.
    pub(crate) draining: CancellationToken,
    /// Whether new tasks are taken. An operator stops the intake until it is resumed, or this process
    /// ends: the state is not stored.
    pub(crate) intake: watch::Sender<bool>,
    /// Id of this process in its statistics; set when it is listed.
    pub(crate) process: OnceLock<String>,
    /// Cancelled when the grace time is over.
    pub(crate) halt: CancellationToken,
    /// Work in progress.
    pub(crate) going_on: TaskTracker,
    /// Tasks from node requests.
    pub(crate) nodes: NodeTasks,
    /// Cancelled tasks that may still arrive.
    pub(crate) cancelled: CancelledTasks,
    /// Slots of tasks in progress.
    pub(crate) places: AgentSlots,
    pub(crate) outgoing: OutgoingEvents,
}

impl AgentHost {
    pub(crate) fn new(mesh: Mesh, agent: CompiledAgent) -> Self {
        Self {
            token: Token::of(&agent.agent.name),
            table: TaskTable::default(),
            peers: Peers::new(&mesh),
            draining: CancellationToken::new(),
            intake: watch::Sender::new(true),
            process: OnceLock::new(),
            halt: CancellationToken::new(),
            going_on: TaskTracker::new(),
            nodes: NodeTasks::default(),
            cancelled: CancelledTasks::default(),
            places: AgentSlots {
                working: Arc::new(Semaphore::new(agent.agent.concurrency)),
                queue: Arc::default(),
            },
            outgoing: OutgoingEvents::start(&mesh),
            mesh,
            agent,
        }
    }

    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { namespace: self.mesh.namespace(), agent: &self.agent.agent.name }
    }

    /// Waits until the intake is open, or closed.
    pub(crate) async fn intake_is(&self, open: bool) {
        let mut intake = self.intake.subscribe();
        // The sender lives as long as the host.
        let _ = intake.wait_for(|is_open| *is_open == open).await;
    }

    /// Returns the limit of open tasks for a new one that did not come from the queue.
    pub(crate) fn most_open(&self) -> usize {
        if *self.intake.borrow() { self.agent.agent.concurrency.saturating_add(MOST_WAITING) } else { 0 }
    }

    /// Returns the statistics of this process in the format of NATS endpoints.
    pub(crate) fn figures(&self) -> Value {
        let mut figures = self.agent.figures.to_json();
        figures["draining"] = (!*self.intake.borrow() || self.draining.is_cancelled()).into();
        figures
    }

    /// Returns the task of a request, and starts it if it is new. `caller` is the caller at the A2A
    /// endpoint.
    pub(crate) fn begin(
        self: &Arc<Self>,
        request: Request,
        caller: Option<Token>,
        most_open: usize,
    ) -> Begin {
        let origin = match (&request.result_subject, &caller) {
            (Some(subject), _) => Origin::Execution(subject.clone()),
            (None, Some(caller)) => Origin::Caller(caller.clone()),
            (None, None) => Origin::Caller(self.token.clone()),
        };
        let id = request.about.task.as_str().to_owned();
        let begin = self.table.begin(&origin, &id, most_open, || {
            let brief = request.result_subject.is_some();
            let feed = EventFeed::new(&self.mesh, &self.outgoing, &request.about, brief);
            Entry::new(origin.clone(), caller, &request.about, request.message.as_deref(), feed)
        });
        if let Begin::New(entry) = &begin {
            // Check after the task is in the table, so that a cancellation that arrives now finds
            // it there.
            if self.cancelled.contains(&request.about.execution, &request.about.task) {
                entry.cancel.cancel();
            }
            let (host, entry) = (Arc::clone(self), Arc::clone(entry));
            let about = &request.about;
            let span = tracing::info_span!(
                "task",
                agent = about.agent,
                execution = %about.execution,
                task = %about.task,
                attempt = about.attempt,
                trace_parent = about.trace_parent,
            );
            self.going_on.spawn(async move { host.carry_out(entry, request).await }.instrument(span));
        }
        begin
    }

    async fn carry_out(&self, entry: Arc<Entry>, request: Request) {
        // Dropped in any case, so that no caller waits in vain.
        let open = Open { host: self, entry: Some(entry) };
        let Some(entry) = open.entry.as_ref() else { return };
        let about = request.about.clone();
        let queued = about.queued;
        let context = Context::of_entry(about, entry, self.peers.clone());
        let timer = self.agent.figures.begin(&self.agent.agent.name, queued);
        let ended = match self.attempt(entry, request, &context).await {
            Ok(ended) => ended,
            Err(GivenUp::Stopping) => {
                tracing::warn!(task = %context.task(), "aborted the task because this process is shutting down");
                return;
            }
            Err(GivenUp::TakenOver) => {
                tracing::info!(task = %context.task(), "aborted the task because another process took it over");
                entry.mark_taken_over();
                return;
            }
        };
        timer.end(ended.worked, ended.result.as_ref().err());
        let task = reply::task(&self.mesh, &self.agent.agent, &context, &ended, &self.halt).await;
        ended.log_failure(&context);
        tracing::debug!(state = state_word(task.status.state), retries = ended.retries, "task ended");
        open.end(task).await;
    }

    async fn attempt(
        &self,
        entry: &Entry,
        request: Request,
        context: &Context,
    ) -> Result<EndedTask, GivenUp> {
        if request.is_late(SystemTime::now()) {
            return Ok(EndedTask::refused(Fault::timeout(
                TOO_LATE,
                "the deadline had passed when the task arrived",
            )));
        }
        let until = Instant::now() + time_left(&self.agent, context);
        let slot = tokio::select! {
            biased;
            () = self.halt.cancelled() => return Err(GivenUp::Stopping),
            () = context.cancel().cancelled() => {
                return Ok(EndedTask::refused(Fault::cancelled(CANCELLED, "the task was cancelled before it started")));
            }
            () = sleep_until(until) => {
                return Ok(EndedTask::refused(Fault::timeout(TOO_LATE, "the agent was busy until the deadline")));
            }
            slot = Arc::clone(&self.places.working).acquire_owned() => slot.map_err(|_| GivenUp::Stopping)?,
        };
        context.slot().hold(self.places.clone(), slot);
        entry.working();
        entry.feed.begun();
        let input = match request.input {
            Input::Value(value) => value,
            Input::Address(address) => match self.fetch(&address, until).await {
                Ok(value) => value,
                Err(fault) => return Ok(EndedTask::refused(fault)),
            },
        };
        let ended = work(&self.agent, &input, context, &self.halt).await;
        context.slot().release();
        ended
    }

    /// Drops an expired deadline of a redelivered task with steps. If the task has waited for a
    /// person, its owner has moved the deadline; an owner whose deadline has passed cancels the
    /// task.
    pub(crate) async fn drop_passed_deadline(&self, about: &mut TaskProperties) {
        if about.deadline.is_none_or(|deadline| deadline > SystemTime::now()) {
            return;
        }
        let Some((log, steps)) = about.step_log().zip(self.peers.steps()) else { return };
        if steps.count(&log).await.is_ok_and(|count| count > 0) {
            about.deadline = None;
        }
    }

    /// Fetches the input at an address.
    async fn fetch(&self, address: &str, until: Instant) -> Result<Value, Fault> {
        let bytes = tokio::select! {
            bytes = self.peers.fetch(address) => bytes.map_err(crate::Failure::into_fault)?,
            () = sleep_until(until) => return Err(Fault::timeout(ARTIFACTS, "the input was not available in time")),
        };
        read_unique(&bytes).map_err(|error| bad_json(BAD_INPUT, "input", &error))
    }

    /// Returns the time after which no caller waits for a task anymore.
    pub(crate) fn patience(&self, about: &TaskProperties) -> Duration {
        let left = about.deadline.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        left.unwrap_or(self.agent.agent.timeout).min(self.agent.agent.timeout)
    }
}

/// A task in progress; forgotten if this is dropped before its end.
struct Open<'a> {
    host: &'a AgentHost,
    entry: Option<Arc<Entry>>,
}

impl Open<'_> {
    async fn end(mut self, task: Task) {
        if let Some(entry) = self.entry.take() {
            let task = Arc::new(task);
            self.host.table.end(&entry, Arc::clone(&task));
            entry.feed.ended(&task).await;
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.host.table.forget(&entry);
        }
    }
}
