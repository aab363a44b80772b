//! Words of the agents of one execution as they come: progress that is kept, and pieces of answers that are not.

use std::collections::BTreeMap;

use axum::response::Response;
use serde_json::json;
use sinew_engine::ActivationId;
use sinew_inspection::record::Record;
use sinew_mesh::live::{Progress, ProgressFeed};
use sinew_operations::agent_calls::told_values;
use sinew_operations::execution_changes::ExecutionChanges;
use sinew_operations::failure::Failure;
use sinew_protocol::TaskId;
use sinew_runtime::{activation_key, events};

use super::api_call::ApiCall;
use super::frame_stream::{FrameQueue, FrameSource, FrameStream};
use crate::http_error::HttpProblem;

/// Tasks whose nodes are known; beyond them, words have no node.
const MAX_TASKS: usize = 10_000;
/// Latest attempts of an activation whose words have its node.
const ATTEMPTS_KEPT: u32 = 100;

/// Source of the words of the agents of one execution.
struct ProgressFrames {
    changes: ExecutionChanges,
    feed: ProgressFeed,
    tasks: TaskNodes,
}

/// Answers with words from now on, until the execution has ended.
pub(super) async fn follow(call: ApiCall) -> Result<Response, HttpProblem> {
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
    /// Makes a frame of words. They are text of agents: readers show them as text.
    fn take(&mut self, said: &Progress, queue: &mut FrameQueue) {
        let values = told_values(said);
        if values.is_empty() {
            return;
        }
        let node = self.tasks.node(&self.changes.record, &said.task);
        let frame = json!({ "task": said.task.as_str(), "node": node, "values": values });
        // JSON has no line ends of its own, so the data is one line.
        queue.push(format!("data: {frame}\n\n"));
    }
}

/// Activations of an execution by the tasks of their attempts. Each attempt is entered once, so that words about unknown tasks
/// cost no search.
#[derive(Default)]
struct TaskNodes {
    acts: BTreeMap<TaskId, ActivationId>,
    /// Attempts that were entered, by activation.
    entered: Vec<u32>,
    /// Whether all attempts of the record are entered.
    is_current: bool,
}

impl TaskNodes {
    /// The node of a task, with its place in maps and loops; `None` if the execution has not told of the task yet.
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
                let key = activation_key(id, record.execution.program(), ctx.state, act);
                // One activation does not fill the table alone, however often it was retried.
                let first = (*entered + 1).max(latest.saturating_sub(ATTEMPTS_KEPT - 1));
                self.acts.extend((first..=latest).map(|attempt| (TaskId::of(id, &key, attempt), act)));
                *entered = latest;
            }
        }
        self.is_current = true;
    }
}
