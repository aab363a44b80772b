//! An agent's queue: pending tasks, shared by all processes that serve its name.
//!
//! There is one durable consumer per agent name. A process requests a task only when it has
//! capacity, so no task waits in the memory of a busy process while another one idles.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::client::Request;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, Info};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::{HeaderMap, Subject as Name};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use sinew_protocol::stream::bucket;
use sinew_protocol::subject::below;
use sinew_protocol::{ExecutionId, Subject, TaskId, Token};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::stream::pull::{Item, Lost, Pull, answer, consumer_error, milliseconds, pause, unreachable};
use crate::stream::quarantine::SuspectMessage;
use crate::stream::stored::MessageQuery;
use crate::{crash, log_limited};

/// Time without acknowledgement or progress after which a delivered task is redelivered. Agents of earlier
/// versions report progress every five seconds.
pub const ACK_WAIT: Duration = Duration::from_secs(7);
/// Interval at which the process that works on a task reports progress.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// Deliveries after which a task counts as one that crashes its process. The consumer itself has no such limit:
/// the server would drop further deliveries without a reliable notification.
pub const MAX_DELIVERIES: u64 = 20;

/// Maximum number of unacknowledged deliveries of one agent, over all its processes.
const MAX_ACK_PENDING: i64 = 20_000;
/// Timeout of one request to the server.
const WAIT: Duration = Duration::from_secs(5);
/// Attempts for an acknowledgement before it fails.
const ANSWERS: u32 = 3;
/// Longest wait between two checks for a missing consumer.
const SLOWEST: Duration = Duration::from_secs(5);

/// The queue of one agent.
pub struct AgentQueue {
    mesh: Mesh,
    agent: Token,
    slots: Arc<WorkSlots>,
    at_once: usize,
    /// Delivered tasks that were not returned yet.
    waiting: VecDeque<Item>,
    state: WorkState,
    /// When the server created the queue: milliseconds since 1970 UTC, 0 before it was opened.
    made: u64,
}

enum WorkState {
    Opening(BoxFuture<'static, Pull>),
    Open(Box<Pull>),
}

/// Slots of tasks in progress, by key.
#[derive(Debug, Default)]
struct WorkSlots {
    busy: AtomicUsize,
    /// Additional slots, for tasks that wait for other work.
    lent: AtomicUsize,
    freed: Notify,
}

/// The slots of a queue, for tasks that release theirs while they wait.
#[derive(Clone, Debug)]
pub struct QueueSlots(Arc<WorkSlots>);

/// An additional slot of a queue, until it is dropped.
#[derive(Debug)]
pub struct LentSlot(Arc<WorkSlots>);

impl QueueSlots {
    /// Adds a slot to the queue.
    pub fn lend(&self) -> LentSlot {
        self.0.lent.fetch_add(1, Ordering::AcqRel);
        self.0.freed.notify_one();
        LentSlot(Arc::clone(&self.0))
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        self.0.lent.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The slot of a task in progress, released on drop.
#[derive(Debug)]
struct WorkSlot(Arc<WorkSlots>);

impl WorkSlot {
    fn take(slots: &Arc<WorkSlots>) -> Self {
        slots.busy.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(slots))
    }
}

impl Drop for WorkSlot {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}

/// Number of tasks in an agent's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLength {
    /// The agent.
    pub agent: Token,
    /// Tasks that were not delivered.
    pub queued: u64,
    /// Tasks that were delivered and not acknowledged.
    pub working: usize,
    /// Tasks that were delivered more than once.
    pub redelivered: usize,
}

/// Progress of an agent's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueProgress {
    /// Sequence number of the last delivered task.
    given_out: u64,
    /// Sequence number up to which every task was acknowledged.
    acknowledged: u64,
    /// Whether a delivered task is not acknowledged.
    has_outstanding: bool,
}

impl QueueProgress {
    /// Returns whether the task with this sequence number was delivered to a process.
    pub fn is_given_out(self, place: u64) -> bool {
        place <= self.given_out
    }

    /// Returns whether the task with this sequence number was acknowledged. False if it was not delivered, or
    /// is not yet known to be acknowledged.
    pub fn is_acknowledged(self, place: u64) -> bool {
        place <= self.acknowledged || (place <= self.given_out && !self.has_outstanding)
    }
}

/// Tasks of a mesh: the queues of agents, results, progress, and control messages.
#[derive(Clone, Copy, Debug)]
pub struct TaskExchange<'a> {
    pub(crate) mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the tasks of this mesh.
    pub fn tasks(&self) -> TaskExchange<'_> {
        TaskExchange { mesh: self }
    }
}

impl TaskExchange<'_> {
    /// Returns the queue of an agent with at most `at_once` deliveries at a time: each holds a slot until it is
    /// dropped. Without the right to create the consumer, the queue waits until an executor has created it.
    pub fn queue(self, agent: &Token, at_once: usize) -> AgentQueue {
        AgentQueue {
            mesh: self.mesh.clone(),
            agent: agent.clone(),
            slots: Arc::default(),
            at_once: at_once.max(1),
            waiting: VecDeque::new(),
            state: WorkState::Opening(opening(self.mesh.clone(), agent.clone())),
            made: 0,
        }
    }

    /// Returns whether a result is stored under a subject. Agents may query the results of their own tasks.
    pub async fn has_result(self, subject: &str) -> Result<bool, MeshError> {
        let stream = bucket(self.mesh.namespace(), "RESULTS");
        Ok(self.mesh.stored(&stream, subject).await?.is_some())
    }

    /// Returns whether this connection may read the queues of all agents.
    pub async fn may_see_queues(self) -> Result<bool, MeshError> {
        let stream = bucket(self.mesh.namespace(), "TASKS");
        self.mesh.may_publish(&format!("$JS.API.CONSUMER.LIST.{stream}")).await
    }

    /// Returns the number of tasks in agents' queues, for at most `max_queues` queues, with and without running
    /// processes. For executors and operators.
    pub async fn queue_lengths(self, max_queues: usize) -> Result<Vec<QueueLength>, MeshError> {
        const WHAT: &str = "read the queues of agents";
        let stream = bucket(self.mesh.namespace(), "TASKS");
        let call = format!("$JS.API.CONSUMER.LIST.{stream}");
        let jetstream = self.mesh.jetstream();
        let listed = async move {
            let stream =
                jetstream.get_stream_no_info(stream).await.map_err(|error| unreachable(WHAT, &error))?;
            let consumers = stream.consumers().take(max_queues).map_err(|error| unreachable(WHAT, &error));
            consumers.try_collect::<Vec<_>>().await
        };
        let consumers = self.mesh.permitted(&call, answer(self.mesh, WHAT, WAIT, listed)).await???;
        let length = |consumer: Info| {
            let agent = Token::parse(consumer.name.strip_prefix("agent-")?).ok()?;
            let Info { num_pending: queued, num_ack_pending: working, num_redelivered: redelivered, .. } =
                consumer;
            (queue_name(&agent) == consumer.name).then_some(QueueLength {
                agent,
                queued,
                working,
                redelivered,
            })
        };
        Ok(consumers.into_iter().filter_map(length).collect())
    }

    /// Returns the sequence number of a task; `None` if the stream does not have it. For executors.
    pub async fn task_place(
        self,
        agent: &Token,
        execution: &ExecutionId,
        task: &TaskId,
    ) -> Result<Option<u64>, MeshError> {
        let (agent, execution, task) = (agent.clone(), execution.clone(), task.clone());
        let subject = self.mesh.subject(&Subject::Task { agent, execution, task });
        let stream = bucket(self.mesh.namespace(), "TASKS");
        let stored = self.mesh.message(&stream, &MessageQuery::last(&subject)).await?;
        Ok(stored.map(|stored| stored.sequence))
    }

    /// Returns the progress of an agent's queue; `None` if it does not exist. For executors.
    pub async fn queue_progress(self, agent: &Token) -> Result<Option<QueueProgress>, MeshError> {
        let Some(queue) = existing(self.mesh, agent).await? else { return Ok(None) };
        let info = queue.cached_info();
        Ok(Some(QueueProgress {
            given_out: info.delivered.stream_sequence,
            acknowledged: info.ack_floor.stream_sequence,
            has_outstanding: info.num_ack_pending > 0,
        }))
    }

    /// Removes a task from its agent's queue. Returns false if the stream does not have it: it was never
    /// stored, or already removed. An agent that has received the task keeps its delivery. For executors.
    pub async fn withdraw(
        self,
        agent: &Token,
        execution: &ExecutionId,
        task: &TaskId,
    ) -> Result<bool, MeshError> {
        const WHAT: &str = "remove a task from its queue";
        let Some(seq) = self.task_place(agent, execution, task).await? else { return Ok(false) };
        let stream = bucket(self.mesh.namespace(), "TASKS");
        let request = format!("STREAM.MSG.DELETE.{stream}");
        let call = format!("$JS.API.{request}");
        let jetstream = self.mesh.jetstream();
        let query = RemovedMessage { seq, no_erase: true };
        let removed = jetstream.request::<_, _, Response<RemovalStatus>>(request, &query);
        let removed = self.mesh.permitted(&call, answer(self.mesh, WHAT, WAIT, removed)).await??;
        match removed.map_err(|error| unreachable(WHAT, &error))? {
            Response::Ok(status) => Ok(status.success),
            Response::Err { error } => {
                // Another executor may have removed it in the meantime.
                if self.task_place(agent, execution, task).await?.is_none() {
                    return Ok(false);
                }
                let (status, code) = (error.code() as u64, error.error_code().0);
                Err(MeshError::of_answer(WHAT, status, code, error.to_string()))
            }
        }
    }

    /// Creates the consumer of an agent's queue if it is missing. Executors call this for new cards and tasks.
    /// Returns the sequence number of the last delivered task, 0 before the first: it never delivers messages
    /// stored at or below it later, which happens if a cluster loses the ends of its streams in a power
    /// failure.
    pub async fn make_queue(self, agent: &Token) -> Result<u64, MeshError> {
        consumer(self.mesh, agent).await.map(|queue| queue.cached_info().delivered.stream_sequence)
    }
}

/// Request to delete one message of a stream.
#[derive(Serialize)]
struct RemovedMessage {
    seq: u64,
    /// Its bytes need not be overwritten.
    no_erase: bool,
}

/// The server's reply to such a request.
#[derive(Deserialize)]
struct RemovalStatus {
    #[serde(default)]
    success: bool,
}

/// Returns the name of the consumer of an agent's queue.
pub fn queue_name(agent: &Token) -> String {
    // Names of streams and consumers may be longer than tokens.
    format!("agent-{agent}")
}

impl AgentQueue {
    /// Returns the agent.
    pub fn agent(&self) -> &Token {
        &self.agent
    }

    /// Returns the slots of this queue.
    pub fn places(&self) -> QueueSlots {
        QueueSlots(Arc::clone(&self.slots))
    }

    /// Returns the number of occupied slots.
    pub fn busy(&self) -> usize {
        self.slots.busy.load(Ordering::Acquire)
    }

    /// Waits for the next task and a free slot. Recovers from a lost connection and a deleted consumer.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Delivery {
        loop {
            let lent = self.slots.lent.load(Ordering::Acquire);
            let free = (self.at_once + lent).saturating_sub(self.busy());
            if free > 0
                && let Some(item) = self.waiting.pop_front()
            {
                if let Some(delivery) = self.delivery(item) {
                    return delivery;
                }
                continue;
            }
            match &mut self.state {
                WorkState::Opening(opening) => {
                    let pull = opening.as_mut().await;
                    self.made = milliseconds(pull.made());
                    self.state = WorkState::Open(Box::new(pull));
                }
                WorkState::Open(pull) => {
                    match work(pull, &self.slots, free.saturating_sub(self.waiting.len()), self.at_once).await
                    {
                        Ok(Some(item)) => self.waiting.push_back(item),
                        Ok(None) => {}
                        Err(Lost(reason)) => {
                            tracing::debug!(agent = %self.agent, reason, "reopening the queue");
                            self.state = WorkState::Opening(opening(self.mesh.clone(), self.agent.clone()));
                        }
                    }
                }
            }
        }
    }

    /// Returns a task that has already arrived, if a slot is free.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.next().now_or_never()
    }

    /// Stops requesting tasks until the next call of [`AgentQueue::next`]. Tasks that have arrived and were
    /// not returned are redelivered, to this process or another one.
    pub fn pause(&mut self) {
        self.waiting.clear();
        self.state = WorkState::Opening(opening(self.mesh.clone(), self.agent.clone()));
    }

    /// Converts a message to a delivery; quarantines it and returns `None` if it is not a task.
    fn delivery(&self, item: Item) -> Option<Delivery> {
        let Item { seq, delivered, time, message, .. } = item;
        let answers =
            Answers { mesh: self.mesh.clone(), reply: message.reply.unwrap_or(Name::from_static("_")) };
        let name = message.subject.as_str().to_owned();
        let headers = message.headers.unwrap_or_default();
        let body = message.payload;
        if let Some(Subject::Task { agent, execution, task }) = Subject::parse(self.mesh.namespace(), &name) {
            let slot = WorkSlot::take(&self.slots);
            let place = DeliveryInfo { seq, delivered, time, queue_made: self.made };
            return Some(Delivery {
                agent,
                execution,
                task,
                name,
                place,
                headers,
                body,
                answers,
                _slot: slot,
            });
        }
        // No execution waits for an answer to it. Not awaited here, because the caller may be cancelled.
        let suspect = SuspectMessage { stream: "TASKS", seq, time, name, headers, body };
        tokio::spawn(async move {
            log_limited!(warn, subject = suspect.name, "a message in a queue is not a task");
            match answers.mesh.quarantine().put_or_drop(suspect, "its subject is not that of a task").await {
                // If quarantining fails, it stays in the stream and is redelivered.
                Err(error) => {
                    log_limited!(warn, %error, "cannot quarantine a message of a queue");
                }
                Ok(_) => drop(answers.term("not a task").await),
            }
        });
        None
    }
}

/// Requests tasks for the free slots, then waits for a task or for another free slot.
async fn work(
    pull: &mut Pull,
    slots: &WorkSlots,
    wanted: usize,
    at_once: usize,
) -> Result<Option<Item>, Lost> {
    let missing = wanted.saturating_sub(pull.asked());
    // One request for several slots: a request for each would cost as much as its task.
    if missing > 0 && (pull.asked() == 0 || missing >= at_once / 4) {
        pull.ask(missing, 0).await?;
    }
    tokio::select! { biased;
        item = pull.next() => item,
        () = slots.freed.notified() => Ok(None),
    }
}

/// Opens a queue, waiting until it exists.
fn opening(mesh: Mesh, agent: Token) -> BoxFuture<'static, Pull> {
    Box::pin(async move {
        let mut attempt = 0;
        // Requests without the right would repeatedly be logged as violations.
        let may_make = may_make_queue(&mesh, &agent).await;
        loop {
            sleep(pause(attempt, SLOWEST)).await;
            let opened = match existing(&mesh, &agent).await {
                // If rights are unreadable and insufficient, each attempt waits for the full timeout.
                Ok(None) if may_make && attempt % 8 == 0 => consumer(&mesh, &agent).await.map(Some),
                found => found,
            };
            let error = match opened {
                Ok(Some(consumer)) => match Pull::open(&mesh, consumer).await {
                    Ok(pull) => return pull,
                    Err(error) => Some(error),
                },
                Ok(None) => None,
                Err(error) => Some(error),
            };
            // A lost connection is logged separately, and indicates nothing about the queue.
            if attempt == 1 && mesh.connection_problem().is_none() {
                match error {
                    None => tracing::info!(%agent, "the queue does not exist yet; waiting for it"),
                    Some(error) => tracing::info!(%agent, %error, "cannot open the queue; retrying"),
                }
            }
            attempt = attempt.saturating_add(1);
        }
    })
}

/// Returns whether this connection may create the queue of an agent, or its rights are unreadable.
async fn may_make_queue(mesh: &Mesh, agent: &Token) -> bool {
    let Ok(Some(rights)) = mesh.rights().await else { return true };
    let (stream, name) = (bucket(mesh.namespace(), "TASKS"), queue_name(agent));
    let filter = below(mesh.namespace(), &["task", agent.as_str()]);
    rights.may_publish(&format!("$JS.API.CONSUMER.CREATE.{stream}.{name}.{filter}"))
}

async fn existing(mesh: &Mesh, agent: &Token) -> Result<Option<Consumer<Config>>, MeshError> {
    const WHAT: &str = "look for an agent's queue";
    let (name, stream) = (queue_name(agent), bucket(mesh.namespace(), "TASKS"));
    let jetstream = mesh.jetstream();
    let found = jetstream.get_consumer_from_stream::<Config, _, _>(name, stream);
    match answer(mesh, WHAT, WAIT, found).await? {
        Ok(consumer) => Ok(Some(consumer)),
        Err(error) => match error.kind() {
            ConsumerErrorKind::JetStream(refusal) if refusal.code() == 404 => Ok(None),
            _ => Err(consumer_error(WHAT, &error)),
        },
    }
}

async fn consumer(mesh: &Mesh, agent: &Token) -> Result<Consumer<Config>, MeshError> {
    const WHAT: &str = "create an agent's queue";
    // Earlier versions created queues with a longer wait; the server applies the new time to them, too.
    if let Some(existing) = existing(mesh, agent).await?
        && existing.cached_info().config.ack_wait == ACK_WAIT
    {
        return Ok(existing);
    }
    let config = Config {
        durable_name: Some(queue_name(agent)),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        max_ack_pending: MAX_ACK_PENDING,
        filter_subject: below(mesh.namespace(), &["task", agent.as_str()]),
        ..Config::default()
    };
    crash::point("queue.before");
    let stream = bucket(mesh.namespace(), "TASKS");
    let call = format!("$JS.API.CONSUMER.CREATE.{stream}.");
    let jetstream = mesh.jetstream();
    let made = jetstream.create_consumer_on_stream(config, stream);
    let made = mesh.permitted(&call, answer(mesh, WHAT, WAIT, made)).await??;
    let made = made.map_err(|error| consumer_error(WHAT, &error));
    crash::point("queue.after");
    made
}

/// Position and age of a delivered task.
#[derive(Clone, Copy, Debug)]
struct DeliveryInfo {
    seq: u64,
    delivered: u64,
    time: u64,
    queue_made: u64,
}

/// A delivered task. It is redelivered after [`ACK_WAIT`] without acknowledgement or progress.
#[derive(Debug)]
pub struct Delivery {
    /// Agent that the task is for.
    pub agent: Token,
    /// The execution it belongs to.
    pub execution: ExecutionId,
    /// Its id.
    pub task: TaskId,
    /// The subject as received.
    pub name: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    place: DeliveryInfo,
    answers: Answers,
    _slot: WorkSlot,
}

impl Delivery {
    /// Returns the number of its deliveries, including this one.
    pub fn delivered(&self) -> u64 {
        self.place.delivered
    }

    /// Returns true if the task may already be done: it was delivered more than once, or it is older than its
    /// queue, which was recreated and delivers every task of the stream again.
    pub fn may_be_done(&self) -> bool {
        self.place.delivered > 1 || self.place.time < self.place.queue_made
    }

    /// Returns its sequence number.
    pub fn seq(&self) -> u64 {
        self.place.seq
    }

    /// Returns when it was stored: milliseconds since 1970 UTC, by the server's clock.
    pub fn time(&self) -> u64 {
        self.place.time
    }

    /// Returns whether it was delivered so often that it should be quarantined instead of retried.
    pub fn exhausted(&self) -> bool {
        self.place.delivered > MAX_DELIVERIES
    }

    /// Returns the handle for acknowledgements, for a separate task that reports progress.
    pub fn answers(&self) -> Answers {
        self.answers.clone()
    }

    /// Reports that the work is in progress.
    pub async fn progress(&self) -> Result<(), MeshError> {
        self.answers.progress().await
    }

    /// Acknowledges the task after its result is stored; returns when the server has confirmed.
    pub async fn ack(&self) -> Result<(), MeshError> {
        self.answers.confirmed(Bytes::from_static(b"+ACK")).await
    }

    /// Returns the task to the queue for redelivery to any process after this delay.
    pub async fn nak(&self, delay: Duration) -> Result<(), MeshError> {
        self.answers.nak(delay).await
    }

    /// Ends the task without redelivery.
    pub async fn term(&self, reason: &str) -> Result<(), MeshError> {
        self.answers.term(reason).await
    }
}

impl From<&Delivery> for SuspectMessage {
    fn from(delivery: &Delivery) -> Self {
        Self {
            stream: "TASKS",
            seq: delivery.place.seq,
            time: delivery.place.time,
            name: delivery.name.clone(),
            headers: delivery.headers.clone(),
            body: delivery.body.clone(),
        }
    }
}

/// Sends acknowledgements of one delivery.
#[derive(Clone, Debug)]
pub struct Answers {
    mesh: Mesh,
    reply: Name,
}

impl Answers {
    /// Reports that the work is in progress.
    pub async fn progress(&self) -> Result<(), MeshError> {
        let said = self.mesh.client().publish(self.reply.clone(), Bytes::from_static(b"+WPI")).await;
        said.map_err(|error| unreachable("extend a task's acknowledgement deadline", &error))
    }

    async fn nak(&self, delay: Duration) -> Result<(), MeshError> {
        self.confirmed(format!("-NAK {{\"delay\":{}}}", delay.as_nanos()).into()).await
    }

    async fn term(&self, reason: &str) -> Result<(), MeshError> {
        let reason: String = reason.chars().filter(|letter| !letter.is_control()).take(200).collect();
        self.confirmed(format!("+TERM {reason}").into()).await
    }

    /// Repeats an acknowledgement until the server confirms: if it were lost, the task would be done twice.
    async fn confirmed(&self, word: Bytes) -> Result<(), MeshError> {
        const WHAT: &str = "acknowledge a delivery";
        let mut attempt = 0;
        crash::point("ack.before");
        crash::sent(&self.mesh, &self.reply, &HeaderMap::new(), &word).await;
        loop {
            let request = Request::new().payload(word.clone()).timeout(Some(WAIT));
            let client = self.mesh.client();
            let asked = client.send_request(self.reply.clone(), request);
            let error = match answer(&self.mesh, WHAT, WAIT, asked).await {
                Ok(Ok(_)) => {
                    crash::point("ack.after");
                    return Ok(());
                }
                Ok(Err(error)) => unreachable(WHAT, &error),
                Err(error) => error,
            };
            attempt += 1;
            if attempt == ANSWERS {
                return Err(error);
            }
            sleep(pause(attempt, SLOWEST)).await;
        }
    }
}
