//! Task events as a stream: of a workflow from its facts, of an agent from its published events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use sinew_mesh::live::ProgressFeed;
use sinew_protocol::a2a::{
    A2aError, CoreMethod, ErrorCode, StreamResponse, Task, TaskIdParams, TaskState, is_terminal,
};
use sinew_protocol::card::{self, extension_params};
use sinew_protocol::{TaskId, Vocabulary, header};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::decision::execution_of;
use super::peer::mesh_failed;
use super::target::TaskLocation;
use super::{A2aOperations, OperationCall, named_task, short};

/// Maximum number of events buffered for a slow client.
const MAX_WAITING: usize = 16;
/// Time without events of an agent after which its task is queried.
const SILENCE: Duration = Duration::from_secs(30);
/// Time without events, after a question, until the stream ends.
const QUESTION_GRACE: Duration = Duration::from_secs(1);

/// One event of a stream.
#[derive(Debug)]
pub enum StreamItem {
    /// A `StreamResponse`.
    Event {
        /// Number of the event in its task; `None` if the stream has no numbers.
        seq: Option<u64>,
        /// The event as JSON.
        body: Bytes,
    },
    /// The stream failed. No item follows.
    Failed(A2aError),
}

/// Re-encodes an event.
pub(crate) type EventMap = Box<dyn Fn(Bytes) -> Bytes + Send + Sync>;

/// Events of one task until its end. Dropping it ends the work that produces them.
pub struct TaskStream {
    items: mpsc::Receiver<StreamItem>,
    /// Permits of an open stream, released at the end.
    places: Vec<OwnedSemaphorePermit>,
    map: Option<EventMap>,
}

impl std::fmt::Debug for TaskStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskStream").field("items", &self.items).finish_non_exhaustive()
    }
}

impl TaskStream {
    /// Returns the next event, or `None` after the last.
    pub async fn next(&mut self) -> Option<StreamItem> {
        match (self.items.recv().await?, &self.map) {
            (StreamItem::Event { seq, body }, Some(map)) => Some(StreamItem::Event { seq, body: map(body) }),
            (item, _) => Some(item),
        }
    }

    /// Converts each event of the stream.
    pub(crate) fn mapped(mut self, map: EventMap) -> Self {
        self.map = Some(map);
        self
    }

    /// Holds these permits as long as the stream exists.
    pub(crate) fn holding(mut self, places: Vec<OwnedSemaphorePermit>) -> Self {
        self.places = places;
        self
    }

    /// Returns a stream of one event.
    pub(crate) fn one(body: Box<RawValue>) -> Self {
        let (sender, items) = mpsc::channel(1);
        // The channel has capacity for one.
        let _ = sender.try_send(StreamItem::Event { seq: None, body: bytes_of(body) });
        Self { items, places: Vec::new(), map: None }
    }
}

/// The start of a stream.
pub(super) struct StreamStart {
    /// First event; `None` if the client has it.
    pub(super) first: Option<Box<RawValue>>,
    /// Number of the last event that the client has, or that the first event includes.
    pub(super) seq: u64,
    /// Whether no event follows.
    pub(super) ended: bool,
    /// Whether the first event answers a message and asks for input: nothing may follow.
    pub(super) asks: bool,
    /// Events of an agent, subscribed to before the first event was created.
    pub(super) feed: Option<ProgressFeed>,
}

/// Writes a stream, and ends it if the client does not read.
struct StreamWriter {
    items: mpsc::Sender<StreamItem>,
    slow_client: Duration,
    /// Whether the task asked for input since the stream began or its state was last queried.
    has_asked: AtomicBool,
}

/// The client disconnected, or reads too slowly.
struct ClientGone;

/// Result of waiting for an event.
enum NextEvent<T> {
    /// An event, or `None` after the last.
    Event(T),
    /// The task waits for input: the stream ends, as clients take the end of a stream for the end of
    /// a turn.
    TurnOver,
    /// No event arrived in time.
    Silence,
}

impl StreamWriter {
    async fn send(&self, item: StreamItem) -> Result<(), ClientGone> {
        self.items.send_timeout(item, self.slow_client).await.map_err(|_| ClientGone)
    }

    async fn event(&self, seq: u64, body: Bytes) -> Result<(), ClientGone> {
        if asks_for_input(&body) {
            self.has_asked.store(true, Ordering::Relaxed);
        }
        self.send(StreamItem::Event { seq: Some(seq), body }).await
    }
}

impl A2aOperations {
    /// Subscribes to a task: from now on, or after the event that the client has.
    pub(crate) async fn subscribe(&self, call: &OperationCall, id: &str) -> Result<TaskStream, A2aError> {
        let place = self.locate(call, id).await?;
        if !place.is_workflow {
            return self.subscribe_to_agent(call, place).await;
        }
        let found = self.task_of_peer(call, &place).await?;
        let seq = found.seq.unwrap_or(0);
        let ended = is_terminal(found.task.status.state);
        if let Some(last) = call.last_event {
            let beginning = StreamStart {
                first: None,
                seq: last.min(seq),
                ended: ended && last >= seq,
                asks: false,
                feed: None,
            };
            return self.follow(call, place, beginning);
        }
        if ended {
            return Err(nothing_follows());
        }
        let first = Some(named_task(&found.task));
        let beginning = StreamStart { first, seq, ended, asks: false, feed: None };
        self.follow(call, place, beginning)
    }

    async fn subscribe_to_agent(
        &self,
        call: &OperationCall,
        place: TaskLocation,
    ) -> Result<TaskStream, A2aError> {
        let feed = self.feed_of(&place).await?;
        let params = TaskIdParams { tenant: None, id: place.id.clone() };
        let asked = self.ask_for_task(call, &place, CoreMethod::SubscribeToTask, &params).await;
        let (mut task, seq): (Task, u64) = match asked {
            Ok(reply) => {
                let StreamResponse::Task(task) = reply.read()? else {
                    let text = "the agent's stream does not start with its task";
                    return Err(A2aError::new(ErrorCode::InvalidAgentResponse, text));
                };
                (task, reply.seq.unwrap_or(0))
            }
            // The client's stream broke before the end: it gets the final task.
            Err(error) if error.code() == ErrorCode::UnsupportedOperation && call.last_event.is_some() => {
                let found = self.task_of_peer(call, &place).await?;
                (found.task, found.seq.unwrap_or(0))
            }
            Err(error) => return Err(error.into()),
        };
        let ended = is_terminal(task.status.state);
        place.show(&mut task);
        let has_all = call.last_event.is_some_and(|last| last >= seq);
        let first = (!has_all).then(|| named_task(&task));
        self.follow(call, place, StreamStart { first, seq, ended, asks: false, feed: Some(feed) })
    }

    /// Subscribes to an agent's events of a task from now on.
    async fn feed_of(&self, place: &TaskLocation) -> Result<ProgressFeed, A2aError> {
        let task = TaskId::parse(&place.id).map_err(|_| A2aError::task_not_found(short(&place.id, 64)))?;
        let feed = self.shared.client.mesh().tasks().watch_progress(None, Some(&task)).await;
        feed.map_err(|error| mesh_failed(&error))
    }

    /// Continues a stream from its start until the end of its task.
    pub(super) fn follow(
        &self,
        call: &OperationCall,
        place: TaskLocation,
        beginning: StreamStart,
    ) -> Result<TaskStream, A2aError> {
        let (items, receiver) = mpsc::channel(MAX_WAITING);
        let slow_client = self.shared.slow_client;
        let writer = StreamWriter { items, slow_client, has_asked: AtomicBool::new(false) };
        let (operations, call) = (self.clone(), call.clone());
        let execution = if place.is_workflow { Some(execution_of(&place)?) } else { None };
        tokio::spawn(async move {
            let StreamStart { first, seq, ended, asks, feed } = beginning;
            if let Some(first) = first
                && writer.event(seq, bytes_of(first)).await.is_err()
            {
                return;
            }
            // A client that subscribes to a waiting task waits for what follows.
            writer.has_asked.store(asks, Ordering::Relaxed);
            if ended {
                return;
            }
            let told = async {
                // Only one of the two futures is allocated per stream, because thousands are open
                // at once.
                match execution {
                    Some(execution) => {
                        Box::pin(operations.tell_workflow(&call, &place, &execution, seq, &writer)).await
                    }
                    None => Box::pin(operations.tell_agent(&call, &place, feed, seq, &writer)).await,
                }
            };
            tokio::select! {
                _ = told => {}
                () = writer.items.closed() => {}
            }
        });
        Ok(TaskStream { items: receiver, places: Vec::new(), map: None })
    }

    /// Waits for an event, or for the end of the turn: the task waits for input, and nothing else is in
    /// progress.
    async fn next_event<T>(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        writer: &StreamWriter,
        (limit, next): (Duration, impl Future<Output = T>),
    ) -> NextEvent<T> {
        if !writer.has_asked.load(Ordering::Relaxed) {
            let next = tokio::time::timeout(limit, next).await;
            return next.map_or(NextEvent::Silence, NextEvent::Event);
        }
        tokio::pin!(next);
        if let Ok(event) = tokio::time::timeout(QUESTION_GRACE, &mut next).await {
            return NextEvent::Event(event);
        }
        // Another node may have continued, or a person may have answered: only the task knows.
        // Boxed, because thousands of streams wait here.
        let found = Box::pin(self.task_of_peer(call, place)).await;
        if found.is_ok_and(|found| is_interrupted(found.task.status.state)) {
            return NextEvent::TurnOver;
        }
        writer.has_asked.store(false, Ordering::Relaxed);
        let next = tokio::time::timeout(limit, next).await;
        next.map_or(NextEvent::Silence, NextEvent::Event)
    }

    async fn tell_workflow(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        execution: &sinew_protocol::ExecutionId,
        after: u64,
        writer: &StreamWriter,
    ) -> Result<(), ClientGone> {
        let mut reader = self.shared.logs.listen(execution, self.vocabulary_of(place), after);
        loop {
            match self.next_event(call, place, writer, (Duration::MAX, reader.next())).await {
                NextEvent::Event(Some(Ok(event))) => {
                    writer.event(event.seq, event.body).await?;
                    if event.end.is_some() {
                        return Ok(());
                    }
                }
                NextEvent::Event(Some(Err(error))) => return writer.send(StreamItem::Failed(error)).await,
                NextEvent::Event(None) | NextEvent::TurnOver => return Ok(()),
                NextEvent::Silence => {}
            }
        }
    }

    /// Events of agents are not stored: after a gap, a timeout or a lost connection, the task
    /// itself is queried.
    async fn tell_agent(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        feed: Option<ProgressFeed>,
        after: u64,
        writer: &StreamWriter,
    ) -> Result<(), ClientGone> {
        let mut at = after;
        let mut feed = match feed {
            Some(feed) => feed,
            None => match self.feed_of(place).await {
                Ok(feed) => feed,
                Err(error) => return writer.send(StreamItem::Failed(error)).await,
            },
        };
        loop {
            let next = self.next_event(call, place, writer, (SILENCE, feed.next())).await;
            if let NextEvent::TurnOver = next {
                return Ok(());
            }
            if let NextEvent::Event(Some(progress)) = next {
                let seq =
                    progress.headers.get(header::A2A_SEQ).and_then(|text| text.as_str().parse::<u64>().ok());
                let Some(seq) = seq else { continue };
                if seq <= at {
                    continue;
                }
                if seq == at + 1
                    && let Some(body) = shown_event(place, progress.body)
                {
                    writer.event(seq, body).await?;
                    at = seq;
                    if progress.headers.get(header::A2A_END).is_some() {
                        return Ok(());
                    }
                    continue;
                }
            } else {
                match self.feed_of(place).await {
                    Ok(again) => feed = again,
                    Err(error) => return writer.send(StreamItem::Failed(error)).await,
                }
            }
            match self.task_of_peer(call, place).await {
                Ok(mut found) => {
                    let seq = found.seq.unwrap_or(at);
                    let ended = is_terminal(found.task.status.state);
                    if seq > at || ended {
                        place.show(&mut found.task);
                        writer.event(seq, bytes_of(named_task(&found.task))).await?;
                        at = seq;
                    }
                    if ended {
                        return Ok(());
                    }
                }
                Err(error) => return writer.send(StreamItem::Failed(error)).await,
            }
        }
    }

    /// Returns the vocabulary of a workflow's executors, as declared by its card.
    fn vocabulary_of(&self, place: &TaskLocation) -> Vocabulary {
        let announced = self.shared.cards.get(&place.agent);
        let params = announced.as_ref().and_then(|it| extension_params(&it.card, card::DELIVERY));
        match params.and_then(|params| params.get("vocabulary")?.as_str()) {
            Some("spec") => Vocabulary::Spec,
            _ => Vocabulary::Current,
        }
    }
}

pub(super) fn nothing_follows() -> A2aError {
    A2aError::unsupported_operation("the task has ended; subscribing is not possible")
}

/// Returns whether an event says that the task waits for input.
fn asks_for_input(event: &[u8]) -> bool {
    // Most events are not questions, and are not parsed.
    let names_state = std::str::from_utf8(event).is_ok_and(|text| text.contains("_REQUIRED"));
    names_state
        && serde_json::from_slice::<StreamResponse>(event).is_ok_and(|event| match event {
            StreamResponse::StatusUpdate(update) => is_interrupted(update.status.state),
            StreamResponse::Task(task) => is_interrupted(task.status.state),
            _ => false,
        })
}

/// Returns whether a task waits for its client.
pub(super) fn is_interrupted(state: TaskState) -> bool {
    matches!(state, TaskState::InputRequired | TaskState::AuthRequired)
}

fn bytes_of(json: Box<RawValue>) -> Bytes {
    Bytes::from(Box::<str>::from(json).into_string())
}

/// Returns an agent's event with the ids that the client knows, or `None` if it is not an event.
fn shown_event(place: &TaskLocation, body: Bytes) -> Option<Bytes> {
    let mut event: StreamResponse = serde_json::from_slice(&body).ok()?;
    if !place.renames() && !body.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return Some(body);
    }
    place.show_in_event(&mut event);
    serde_json::to_vec(&event).ok().map(Bytes::from)
}
