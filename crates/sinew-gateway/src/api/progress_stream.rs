//! Live output of one execution's agents: stored progress, and answer chunks that are not stored.

use std::collections::BTreeMap;

use axum::response::Response;
use serde_json::json;
use sinew_engine::ActivationId;
use sinew_execution::{activation_key, events};
use sinew_inspection::record::Record;
use sinew_mesh::live::{Progress, ProgressFeed};
use sinew_operations::agent_calls::told_values;
use sinew_operations::execution_changes::ExecutionChanges;
use sinew_operations::failure::Failure;
use sinew_protocol::TaskId;

use super::api_call::ApiCall;
use super::frame_stream::{FrameQueue, FrameSource, FrameStream};
use super::route::{ApiRoute, EVENT_STREAM, get};
use crate::http_error::HttpProblem;

/// Maximum number of tasks with known nodes; output of further tasks has no node.
const MAX_TASKS: usize = 10_000;
/// Number of latest attempts of an activation whose output includes its node.
const ATTEMPTS_KEPT: u32 = 100;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get(
            "/executions/{id}/progress",
            "FollowProgress",
            "Stream progress of the agents of an execution, including partial answers, which are not stored",
            follow,
        )
        .returns_media(EVENT_STREAM),
    ]
}

/// Source of the live output of one execution's agents.
struct ProgressFrames {
    changes: ExecutionChanges,
    feed: ProgressFeed,
    tasks: TaskNodes,
}

/// Returns output from now on, until the execution has ended.
async fn follow(call: ApiCall) -> Result<Response, HttpProblem> {
    let found = call.found().await?;
    let stream = FrameStream::open(&call.state)?;
    let id = found.record.execution.id().clone();
    let feed = call.operator.mesh().tasks().watch_progress(Some(&id), None).await.map_err(Failure::from)?;
    let changes = ExecutionChanges::of(found).await?;
    Ok(stream.respond(ProgressFrames { changes, feed, tasks: TaskNodes::default() }))
}

impl FrameSource for ProgressFrames {
    async fn fill(&mut self, queue: &mut FrameQueue) {
        tokio::select! {
            biased;
            said = self.feed.next() => match said {
                Some(said) => self.take(&said, queue),
                None => queue.end(": the connection was closed\n\n"),
            },
            changed = self.changes.next() => match changed {
                Ok(true) => self.tasks.is_current = false,
                Ok(false) => queue.end("event: end\ndata: {}\n\n"),
                Err(_) => queue.end(": cannot read the execution\n\n"),
            },
        }
    }
}

impl ProgressFrames {
    /// Appends a frame of output. It is untrusted text of agents, which clients display as text.
    fn take(&mut self, said: &Progress, queue: &mut FrameQueue) {
        let values = told_values(said);
        if values.is_empty() {
            return;
        }
        let node = self.tasks.node(&self.changes.record, &said.task);
        let frame = json!({ "task": said.task.as_str(), "node": node, "values": values });
        // JSON output contains no line breaks, so the data is one line.
        queue.push(format!("data: {frame}\n\n"));
    }
}

/// Activations of an execution by the tasks of their attempts. Each attempt is added once, so that
/// output of unknown tasks does not cause searches.
#[derive(Default)]
struct TaskNodes {
    acts: BTreeMap<TaskId, ActivationId>,
    /// Number of added attempts by activation.
    entered: Vec<u32>,
    /// Whether all attempts of the record are added.
    is_current: bool,
}

impl TaskNodes {
    /// Returns the node of a task, with its position in maps and loops, or `None` if the
    /// execution's record does not contain the task yet.
    fn node(&mut self, record: &Record, task: &TaskId) -> Option<String> {
        if !self.acts.contains_key(task) && !self.is_current {
            self.enter(record);
        }
        let act = *self.acts.get(task)?;
        Some(events::label(&record.execution.ctx(), act))
    }

    fn enter(&mut self, record: &Record) {
        let (ctx, id) = (record.execution.ctx(), record.execution.id());
        self.entered.resize(ctx.state.acts.len(), 0);
        for (act, entered) in (0..).zip(&mut self.entered) {
            let latest = ctx.act(act).attempt;
            if *entered < latest && self.acts.len() < MAX_TASKS {
                let key = activation_key(id, record.plan(), ctx.state, act);
                // Limits the entries of one activation, however often it was retried.
                let first = (*entered + 1).max(latest.saturating_sub(ATTEMPTS_KEPT - 1));
                self.acts.extend((first..=latest).map(|attempt| (TaskId::of(id, &key, attempt), act)));
                *entered = latest;
            }
        }
        self.is_current = true;
    }
}
