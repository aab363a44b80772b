//! An execution as a stream of numbered A2A events.
//!
//! The numbers are derived from the facts alone, so every publisher emits the same events. Two
//! executors may publish them concurrently, and one can continue after another was killed;
//! subscribers skip the events that they have received.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sinew_engine::{AdapterContext, Fact};
use sinew_mesh::HeaderMap;
use sinew_mesh::a2a_endpoint::{A2aAnswer, A2aOutcome};
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_mesh::live::LARGEST_STATUS;
use sinew_protocol::a2a::{
    Artifact, ContextId, Part, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::jsonrpc::temporary_error;
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::{ExecutionId, MeshMessage, Vocabulary, header};
use tokio::time::Instant;
use tracing::debug;

use super::task::{file_of, moment, said, session};
use super::{KnownExecution, WorkflowEndpoints};
use crate::large_input::workflow_task_id;
use sinew_execution::Execution;
use sinew_execution::artifacts::output_artifacts;
use sinew_execution::reply::result_content;

/// How long events are published for possible subscribers; a new subscription prolongs it.
const TOLD_FOR: Duration = Duration::from_mins(10);
/// Maximum number of executions whose events one executor publishes.
const MOST_TOLD: usize = 1_024;
/// Interval for batching events.
const GATHER: Duration = Duration::from_millis(20);
/// Interval for reading the record without an event, in case one was lost.
const LOOK: Duration = Duration::from_secs(10);

/// An event before it is encoded.
pub(super) enum TaskUpdate {
    /// An event of the execution.
    Event(Box<MeshMessage>),
    /// The execution asks a person.
    Asked(String),
    /// A callee no longer waits for a person.
    Continued,
    /// The result, if it fits into an event.
    Result,
    /// A file of the result.
    File(Box<Artifact>),
    /// The end.
    End,
}

/// Returns how many events an execution has as an A2A task so far.
pub fn count_task_events(folded: &Execution) -> u64 {
    length(folded)
}

/// Returns the number of events so far.
pub(super) fn length(folded: &Execution) -> u64 {
    let mut length = 0;
    folded.replay(|ctx, fact| length += updates(ctx, folded.id(), fact).len() as u64);
    length
}

/// Returns the events of one fact.
pub(super) fn updates(ctx: &AdapterContext<'_>, execution: &ExecutionId, fact: &Fact) -> Vec<TaskUpdate> {
    match fact {
        Fact::Awaited { wait, .. } => vec![TaskUpdate::Asked(wait.prompt.clone())],
        Fact::Reminded { act } => {
            let prompt = ctx.act(*act).wait.as_ref().map(|wait| wait.prompt.as_str()).unwrap_or_default();
            vec![TaskUpdate::Asked(format!("Reminder: {prompt}"))]
        }
        Fact::CalleeWaits { wait: Some(wait), .. } => vec![TaskUpdate::Asked(wait.prompt.clone())],
        Fact::CalleeWaits { wait: None, .. } => vec![TaskUpdate::Continued],
        Fact::Ended => {
            let small = ctx.outcome().is_some_and(|outcome| {
                serde_json::to_vec(&result_content(outcome)).is_ok_and(|bytes| bytes.len() <= INLINE_LIMIT)
            });
            let files = output_artifacts(ctx);
            let files = files.iter().map(|file| TaskUpdate::File(Box::new(file_of(file))));
            files.chain(small.then_some(TaskUpdate::Result)).chain([TaskUpdate::End]).collect()
        }
        fact => {
            let events = sinew_execution::events::project(ctx, execution, fact).into_iter();
            events.map(|event| TaskUpdate::Event(Box::new(event))).collect()
        }
    }
}

/// A numbered event of an execution, as published to subscribers of its A2A task.
#[derive(Clone, Debug)]
pub struct TaskEvent {
    /// Number of the event in its task, from 1.
    pub seq: u64,
    /// Name of the terminal state, on the last event of an ended task.
    pub end: Option<&'static str>,
    /// JSON of a `StreamResponse`, at most 64 KiB.
    pub body: Bytes,
}

/// Returns the events of an execution after this number. `task` is the execution's current task.
/// The numbers are derived from the facts alone, so all readers of the record get the same events.
pub fn task_events(
    meta: &ExecutionMeta,
    folded: &Execution,
    task: &Task,
    vocabulary: Vocabulary,
    after: u64,
) -> Vec<TaskEvent> {
    let mut lines = Vec::new();
    let mut seq = 0;
    let ended = folded.state().ended;
    let ends = folded.journal().iter().flat_map(|round| &round.facts);
    let mut ends = ends.filter(|fact| matches!(fact, Fact::Ended)).count();
    folded.replay(|ctx, fact| {
        let told = updates(ctx, folded.id(), fact);
        // Retrying an execution removes its end event; event numbers are not reused.
        let last = matches!(fact, Fact::Ended) && {
            ends -= 1;
            ends == 0 && ended
        };
        for one in told {
            seq += 1;
            if seq > after {
                lines.push(line(meta, seq, &one, last.then_some(task), ctx.state.at, vocabulary));
            }
        }
    });
    lines
}

fn line(
    meta: &ExecutionMeta,
    seq: u64,
    told: &TaskUpdate,
    last: Option<&Task>,
    at: u64,
    vocabulary: Vocabulary,
) -> TaskEvent {
    let status = |state: TaskState, part: Option<Part>| {
        let mut status = TaskStatus::new(state);
        status.timestamp = Some(moment(at));
        status.message = part.map(|part| said(meta, &format!("{}-event-{seq}", meta.execution), part));
        update(meta, status, None)
    };
    let working = |part| status(TaskState::Working, part);
    let mut end = None;
    let event = match (told, last) {
        (TaskUpdate::Event(message), _) => working(Some(message.to_part(vocabulary))),
        (TaskUpdate::Asked(prompt), _) => status(TaskState::InputRequired, Some(Part::text(prompt.clone()))),
        (TaskUpdate::Result, Some(task)) => match task.artifacts.iter().flatten().next_back() {
            Some(artifact) => whole_artifact(meta, artifact),
            None => working(None),
        },
        (TaskUpdate::File(file), Some(_)) => whole_artifact(meta, file),
        (TaskUpdate::End, Some(task)) => {
            end = Some(word(task.status.state));
            update(meta, task.status.clone(), task.metadata.clone())
        }
        (TaskUpdate::Result | TaskUpdate::File(_) | TaskUpdate::End, None) | (TaskUpdate::Continued, _) => {
            working(None)
        }
    };
    let small = |event: &StreamResponse| {
        let body = serde_json::to_vec(event).unwrap_or_default();
        (body.len() <= LARGEST_STATUS).then(|| Bytes::from(body))
    };
    // Output that is too large for an event is in the task; its number must still be used.
    let state = last.filter(|_| end.is_some()).map_or(TaskState::Working, |task| task.status.state);
    let body = small(&event).or_else(|| small(&status(state, None))).unwrap_or_default();
    TaskEvent { seq, end, body }
}

fn whole_artifact(meta: &ExecutionMeta, artifact: &Artifact) -> StreamResponse {
    StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
        task_id: TaskId::new(meta.execution.as_str()),
        context_id: ContextId::new(session(meta)),
        artifact: artifact.clone(),
        append: None,
        last_chunk: Some(true),
        metadata: None,
    })
}

fn update(meta: &ExecutionMeta, status: TaskStatus, metadata: Option<serde_json::Value>) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: TaskId::new(meta.execution.as_str()),
        context_id: ContextId::new(session(meta)),
        status,
        metadata,
    })
}

const fn word(state: TaskState) -> &'static str {
    match state {
        TaskState::Completed => "completed",
        TaskState::Canceled => "canceled",
        TaskState::Rejected => "rejected",
        _ => "failed",
    }
}

impl WorkflowEndpoints {
    /// Returns the first event of the stream; the others are published as the task's progress.
    pub(super) async fn stream(
        self: &Arc<Self>,
        workflow: &str,
        known: KnownExecution,
        history_length: Option<u32>,
    ) -> A2aOutcome {
        let task = self.task(&known, history_length).await?;
        let seq = length(&known.folded);
        let execution = known.record.meta.execution;
        let until = Instant::now() + TOLD_FOR;
        let begun = {
            let mut told = self.told();
            let room = told.len() < MOST_TOLD || told.contains_key(&execution);
            if !room {
                return Err(temporary_error(super::STOPPING, "too many streams are open at this executor"));
            }
            told.insert(execution.clone(), until).is_some()
        };
        if !begun {
            let endpoints = Arc::clone(self);
            let workflow = workflow.to_owned();
            tokio::spawn(async move {
                endpoints.narrate(&workflow, &execution, seq).await;
                endpoints.told().remove(&execution);
            });
        }
        Ok(A2aAnswer::of_task(&task).with_seq(seq))
    }

    /// Publishes the events after this number, until the end or until subscribers are no longer
    /// assumed.
    async fn narrate(&self, workflow: &str, execution: &ExecutionId, mut seq: u64) {
        let filter = EventFilter { execution: Some(execution.clone()), ..EventFilter::default() };
        let mesh = &self.shared.mesh;
        let mut events = match mesh.events().follow(&filter, EventStart::Now).await {
            Ok(events) => events,
            // Subscribers subscribe again if they receive nothing.
            Err(error) => return debug!(%execution, %error, "cannot follow the events of an execution"),
        };
        let task_id = workflow_task_id(execution, workflow);
        loop {
            let began = Instant::now();
            if let Ok(Some(known)) = self.find(execution).await
                && length(&known.folded) > seq
                && let Ok(task) = self.task(&known, Some(0)).await
            {
                let vocabulary = self.shared.vocabulary;
                for line in task_events(&known.record.meta, &known.folded, &task, vocabulary, seq) {
                    let mut headers = HeaderMap::new();
                    headers.insert(header::A2A_SEQ, line.seq.to_string());
                    if let Some(end) = line.end {
                        headers.insert(header::A2A_END, end);
                    }
                    if let Err(error) =
                        mesh.tasks().report_progress(execution, &task_id, headers, line.body).await
                    {
                        return debug!(%execution, %error, "cannot publish the task events of an execution; stopping");
                    }
                    seq = line.seq;
                    if line.end.is_some() {
                        return;
                    }
                }
            }
            // Reading a record costs as much as the execution is long, so long ones are read less
            // often.
            let rest = GATHER.max(began.elapsed() * 4);
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = tokio::time::timeout(LOOK, events.next()) => {}
            }
            tokio::time::sleep(rest).await;
            while events.try_next().is_some() {}
            if self.told().get(execution).is_none_or(|until| *until < Instant::now()) {
                return;
            }
        }
    }
}
