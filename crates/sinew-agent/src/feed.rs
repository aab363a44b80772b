//! Progress of a task: numbered A2A stream events on one core subject.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use sinew_mesh::Mesh;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::live::LARGEST_STATUS;
use sinew_protocol::a2a::{
    ContextId, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use sinew_protocol::{Subject, header};
use tokio::sync::mpsc;

use crate::task_properties::TaskProperties;

/// Maximum number of events that wait for the connection; further progress is dropped.
const WAITING: usize = 4_096;

/// Sender for all feeds of a process.
#[derive(Clone)]
pub(crate) struct OutgoingEvents(mpsc::Sender<FeedPacket>);

struct FeedPacket {
    subject: String,
    headers: HeaderMap,
    body: Bytes,
}

impl OutgoingEvents {
    /// Sends the events of all feeds in order, until the last feed is dropped.
    pub(crate) fn start(mesh: &Mesh) -> Self {
        let (sender, mut receiver) = mpsc::channel::<FeedPacket>(WAITING);
        let mesh = mesh.clone();
        tokio::spawn(async move {
            while let Some(FeedPacket { subject, headers, body }) = receiver.recv().await {
                if let Err(error) = mesh.client().publish_with_headers(subject, headers, body).await {
                    tracing::debug!(%error, "cannot publish progress");
                }
            }
        });
        Self(sender)
    }
}

/// The events of one task. Clones share its numbering.
#[derive(Clone)]
pub(crate) struct EventFeed(Arc<FeedState>);

struct FeedState {
    outgoing: OutgoingEvents,
    subject: String,
    task: TaskId,
    session: ContextId,
    /// For a task of an execution, which knows its start and receives its result: nothing is
    /// published unless the handler reports progress; then the end follows, without the result.
    brief: bool,
    /// Number of the last event, and whether it was the final one.
    last: Mutex<(u64, bool)>,
}

impl EventFeed {
    /// Creates the feed of a task; `brief` if the caller receives its result in another way.
    pub(crate) fn new(mesh: &Mesh, outgoing: &OutgoingEvents, about: &TaskProperties, brief: bool) -> Self {
        let subject = Subject::Progress { execution: about.execution.clone(), task: about.task.clone() };
        Self(Arc::new(FeedState {
            outgoing: outgoing.clone(),
            subject: mesh.subject(&subject),
            task: TaskId::new(about.task.as_str()),
            session: ContextId::new(about.context_id()),
            brief,
            last: Mutex::new((0, false)),
        }))
    }

    /// Returns the number of the newest event; 0 before the first.
    pub(crate) fn seq(&self) -> u64 {
        self.last().0
    }

    /// Reports the start of the task.
    pub(crate) fn begun(&self) {
        if self.0.brief {
            return;
        }
        self.status(TaskStatus::with_timestamp(TaskState::Working));
    }

    /// Reports progress of the handler. Anything but text is sent as data.
    pub(crate) fn working(&self, value: Value) {
        let part = match value {
            Value::String(text) => Part::text(text),
            value => Part::data(value),
        };
        let mut status = TaskStatus::with_timestamp(TaskState::Working);
        let id = format!("{}-progress-{}", self.0.task, self.seq() + 1);
        status.message = Some(Message::agent(id, vec![part]).with_task_id(self.0.task.clone()));
        self.status(status);
    }

    /// Reports that the task asks its caller, or continues with the answer.
    pub(crate) fn changed(&self, status: TaskStatus) {
        self.status(status);
    }

    fn status(&self, status: TaskStatus) {
        let event = TaskStatusUpdateEvent {
            task_id: self.0.task.clone(),
            context_id: self.0.session.clone(),
            status,
            metadata: None,
        };
        let Some(body) =
            body(&StreamResponse::StatusUpdate(event)).filter(|body| body.len() <= LARGEST_STATUS)
        else {
            tracing::warn!(task = %self.0.task, "dropped progress larger than 64 KiB");
            return;
        };
        let mut last = self.last();
        if last.1 {
            return;
        }
        // Only sent events are numbered, so a gap always means a loss.
        let Ok(place) = self.0.outgoing.0.try_reserve() else {
            tracing::debug!(task = %self.0.task, "dropped progress because the connection is too slow");
            return;
        };
        last.0 += 1;
        place.send(self.packet(last.0, None, body));
    }

    /// Reports the end of the task: its artifacts, then its last status. Later events are not sent.
    pub(crate) async fn ended(&self, task: &Task) {
        let artifacts = task.artifacts.iter().flatten().filter(|_| !self.0.brief).map(|artifact| {
            StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: task.id.clone(),
                context_id: task.context_id.clone(),
                artifact: artifact.clone(),
                append: None,
                last_chunk: Some(true),
                metadata: None,
            })
        });
        let status = |metadata: Option<Value>| {
            let Task { id, context_id, status, .. } = task;
            let message = status.message.clone().filter(|_| !self.0.brief);
            StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                task_id: id.clone(),
                context_id: context_id.clone(),
                status: TaskStatus {
                    message,
                    timestamp: status.timestamp.clone(),
                    ..TaskStatus::new(status.state)
                },
                metadata: metadata.filter(|_| !self.0.brief),
            })
        };
        // Output that is too large for a stream is in the task itself.
        let small = |body: &Bytes| body.len() <= LARGEST_STATUS;
        let mut bodies: Vec<Bytes> = artifacts.filter_map(|event| body(&event)).filter(small).collect();
        let last = body(&status(task.metadata.clone())).filter(small);
        bodies.extend(last.or_else(|| body(&status(None))));
        let mut packets = Vec::with_capacity(bodies.len());
        {
            let mut last = self.last();
            if std::mem::replace(&mut last.1, true) || (self.0.brief && last.0 == 0) {
                return;
            }
            let count = bodies.len();
            for (at, body) in bodies.into_iter().enumerate() {
                last.0 += 1;
                let end = (at + 1 == count).then(|| state_word(task.status.state));
                packets.push(self.packet(last.0, end, body));
            }
        }
        for packet in packets {
            let _ = self.0.outgoing.0.send(packet).await;
        }
    }

    fn packet(&self, seq: u64, end: Option<&str>, body: Bytes) -> FeedPacket {
        let mut headers = HeaderMap::new();
        headers.insert(header::A2A_SEQ, seq.to_string());
        if let Some(end) = end {
            headers.insert(header::A2A_END, end);
        }
        FeedPacket { subject: self.0.subject.clone(), headers, body }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, (u64, bool)> {
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encodes the event as JSON; plain data cannot fail.
fn body(event: &StreamResponse) -> Option<Bytes> {
    serde_json::to_vec(event).ok().map(Bytes::from)
}

/// Returns the name of a state, in lower case.
pub(crate) const fn state_word(state: TaskState) -> &'static str {
    match state {
        TaskState::Submitted => "submitted",
        TaskState::Working => "working",
        TaskState::Completed => "completed",
        TaskState::Failed => "failed",
        TaskState::Canceled => "canceled",
        TaskState::Rejected => "rejected",
        TaskState::InputRequired => "input-required",
        TaskState::AuthRequired => "auth-required",
        _ => "unspecified",
    }
}
