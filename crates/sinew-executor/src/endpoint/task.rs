//! An execution as the A2A task that its caller sees.

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_engine::{WaitingFor, execution_status, waiting};
use sinew_mesh::artifact::ArtifactOwner;
use sinew_protocol::a2a::{
    A2aError, Artifact, ContextId, Message, Part, Task, TaskId as A2aTaskId, TaskState, TaskStatus,
    format_timestamp, trim_history,
};
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::task::{Content, METADATA, ResultArtifact, ResultExtra};

use super::history::history;
use super::start::STRUCTURED;
use super::{KnownExecution, WorkflowEndpoints, broker};
use crate::large_input::workflow_task_id;
use sinew_execution::Execution;
use sinew_execution::artifacts::output_artifacts;
use sinew_execution::reply::{Ending, result_content, result_name};

/// Member of a task's metadata with the dialect's own result object.
const NATIVE_RESULT: &str = "native_result";

/// Returns whether the execution only waits for a person.
pub(super) fn asks(folded: &Execution) -> bool {
    let state = folded.state();
    !state.ended && execution_status(state, &waiting(state)) == ExecutionStatus::Waiting
}

pub(super) fn session(meta: &ExecutionMeta) -> &str {
    if meta.session.is_empty() { meta.execution.as_str() } else { &meta.session }
}

/// Formats a time for A2A.
pub(super) fn moment(at: u64) -> String {
    format_timestamp(i64::try_from(at).unwrap_or(i64::MAX))
}

impl WorkflowEndpoints {
    /// Returns the current task with its newest messages: all within the limits of a history for
    /// `None`.
    pub(super) async fn task(
        &self,
        known: &KnownExecution,
        history_length: Option<u32>,
    ) -> Result<Task, A2aError> {
        let is_ended = known.folded.state().ended;
        let mut task = if is_ended { self.ended(known).await? } else { open(known) };
        if self.shared.native_results && (is_ended || asks(&known.folded)) {
            add_native_result(&mut task, &known.folded);
        }
        if history_length != Some(0) {
            task.history = Some(history(known));
            trim_history(&mut task, history_length);
        }
        task.status.timestamp = Some(moment(known.folded.state().at));
        Ok(task)
    }

    async fn ended(&self, known: &KnownExecution) -> Result<Task, A2aError> {
        let meta = &known.record.meta;
        let outcome = known.folded.state().outcome.clone();
        let outcome = outcome.ok_or_else(|| A2aError::internal("the execution ended without an outcome"))?;
        let execution = &meta.execution;
        let name =
            result_name(&meta.workflow, execution.as_str()).map_err(|error| error_of(&error.into()))?;
        let content = result_content(&outcome);
        let bytes: Bytes = serde_json::to_vec(&content).unwrap_or_default().into();
        let large = bytes.len() > INLINE_LIMIT;
        let (app, user, id) =
            (meta.workflow.as_str(), meta.caller.as_str(), workflow_task_id(execution, &meta.workflow));
        let place = ArtifactOwner { app, user, execution, task: &id };
        // Equal bytes have equal keys, independent of the process that stores them.
        let stored = self.shared.artifacts.put(&place, name, 0, "application/json", bytes).await;
        let stored = stored.map_err(|error| broker(&error))?;
        let inside = Content::of(&stored.part).unwrap_or(Content::Data(content));
        let artifact = ResultArtifact { meta: stored.meta, content: inside };
        let mut task = sinew_execution::reply::task(&Ending {
            workflow: &meta.workflow,
            task: execution.as_str(),
            session: session(meta),
            outcome: &outcome,
            artifact: artifact.reference(),
            structured: meta.labels.contains_key(STRUCTURED),
            vocabulary: self.shared.vocabulary,
        });
        let files = output_artifacts(&known.folded.ctx());
        // The result is last, where callers look for the output of a task that names none.
        task.artifacts = Some(files.iter().map(file_of).chain([artifact.to_a2a()]).collect());
        if let Some(Value::Object(metadata)) = &mut task.metadata {
            if large {
                metadata.shift_remove("output");
            }
            let usage = sinew_execution::usage::usage_of_child(known.folded.state());
            if outcome.fault.is_some() || !usage.is_null() {
                let extra = ResultExtra { fault: outcome.fault, usage, ..ResultExtra::default() };
                metadata.insert(METADATA.to_owned(), serde_json::to_value(extra).unwrap_or_default());
            }
        }
        Ok(task)
    }
}

/// Returns an artifact of an agent as a file of the workflow's task. JSON is a file as well: the data
/// of a task is its result.
pub(super) fn file_of(artifact: &ResultArtifact) -> Artifact {
    match &artifact.content {
        Content::Data(data) => {
            let content = Content::Raw(data.to_string().into());
            ResultArtifact { content, meta: artifact.meta.clone() }.to_a2a()
        }
        _ => artifact.to_a2a(),
    }
}

/// Returns the state of the task of an open execution.
pub(super) fn open_state(folded: &Execution) -> TaskState {
    if asks(folded) {
        TaskState::InputRequired
    } else if folded.kept_reason().is_some() {
        TaskState::Submitted
    } else {
        TaskState::Working
    }
}

/// Returns the task of an open execution.
fn open(known: &KnownExecution) -> Task {
    let (meta, state) = (&known.record.meta, known.folded.state());
    let waits = waiting(state);
    let asks = asks(&known.folded);
    let mut status = TaskStatus::new(open_state(&known.folded));
    let prompts = waits.iter().filter_map(|wait| match &wait.what {
        WaitingFor::Person(wait) => Some(wait.prompt.as_str()),
        WaitingFor::CalleePerson { wait, .. } => Some(wait.prompt.as_str()),
        _ => None,
    });
    let text =
        if asks { Some(prompts.collect::<Vec<_>>().join("\n")) } else { sinew_shard::summary::words(&waits) };
    status.message = text
        .filter(|text| !text.is_empty())
        .map(|text| said(meta, &format!("{}-status", meta.execution), Part::text(text)));
    if let (true, Some(message)) = (asks, &mut status.message) {
        let until = waits.iter().filter_map(|wait| wait.until).min();
        message.metadata = until.map(|until| json!({ METADATA: { "until": moment(until) } }));
    }
    Task {
        id: A2aTaskId::new(meta.execution.as_str()),
        context_id: ContextId::new(session(meta)),
        status,
        artifacts: None,
        history: None,
        metadata: Some(json!({ "workflow_name": meta.workflow, "agent_name": meta.workflow })),
    }
}

/// Adds the dialect's own result object if it is small.
fn add_native_result(task: &mut Task, folded: &Execution) {
    let native = folded.native_result();
    let small = serde_json::to_vec(&native).is_ok_and(|bytes| bytes.len() <= INLINE_LIMIT);
    if let Some(Value::Object(metadata)) = task.metadata.as_mut().filter(|_| small) {
        metadata.insert(NATIVE_RESULT.to_owned(), native);
    }
}

/// Returns a message of the workflow about its task.
pub(super) fn said(meta: &ExecutionMeta, id: &str, part: Part) -> Message {
    let message = Message::agent(id, vec![part]).with_task_id(meta.execution.as_str());
    message.with_context_id(session(meta))
}
