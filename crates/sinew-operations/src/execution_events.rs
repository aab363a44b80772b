//! Events of a running execution as they occur: stored ones, and events of the dialect that agents
//! report before they are stored with the result.

use std::collections::{HashMap, VecDeque};

use sinew_engine::ActivationId;
use sinew_execution::{NativeEvents, activation_key};
use sinew_inspection::events::{EventWords, RecordedEvent, lines_beside, live_lines};
use sinew_inspection::record::Record;
use sinew_mesh::live::{Progress, ProgressFeed};
use sinew_protocol::TaskId;

use crate::agent_calls::told_values;
use crate::execution_changes::{ExecutionChanges, FoundExecution};
use crate::failure::Failure;

/// Maximum number of updates that wait for the record to contain their task.
const MAX_WAITING: usize = 1_024;

/// Follows the events of one execution.
pub struct ExecutionEvents {
    changes: ExecutionChanges,
    words: EventWords,
    /// Progress of the agents; `None` if it has no events in this vocabulary.
    feed: Option<ProgressFeed>,
    live: NativeEvents,
    /// Attempts in the record by their tasks.
    tasks: HashMap<TaskId, (ActivationId, u32)>,
    /// Updates whose tasks the record does not contain yet.
    waiting: VecDeque<Progress>,
    /// Position of the last stored event.
    after: (usize, usize),
}

impl ExecutionEvents {
    /// Follows the events after this position. Fails if the execution is not on a mesh.
    pub async fn of(
        found: FoundExecution,
        words: EventWords,
        after: (usize, usize),
    ) -> Result<Self, Failure> {
        let feed = match (&found.remote, words) {
            (Some(remote), EventWords::Native) => {
                let id = found.record.execution.id();
                Some(remote.mesh().tasks().watch_progress(Some(id), None).await?)
            }
            _ => None,
        };
        let changes = ExecutionChanges::of(found).await?;
        let (live, tasks, waiting) = (NativeEvents::default(), HashMap::new(), VecDeque::new());
        Ok(Self { changes, words, feed, live, tasks, waiting, after })
    }

    /// Returns the position of the last stored event that was returned.
    pub const fn after(&self) -> (usize, usize) {
        self.after
    }

    /// Returns the events that the record contains now and were not returned before.
    pub fn take_stored(&mut self) -> Vec<RecordedEvent> {
        let mut events = lines_beside(&self.changes.record, self.words, &self.live);
        events.retain(|event| event.place() > self.after);
        self.after = events.last().map_or(self.after, RecordedEvent::place);
        if self.feed.is_some() {
            self.tasks = tasks(&self.changes.record);
        }
        for progress in std::mem::take(&mut self.waiting) {
            events.extend(self.live_events(progress));
        }
        events
    }

    /// Waits for the next events; `None` after the execution has ended and all were returned.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Vec<RecordedEvent>>, Failure> {
        let reported = async {
            match &mut self.feed {
                Some(feed) => feed.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = self.changes.next() => Ok(changed?.then(|| self.take_stored())),
            progress = reported => {
                if progress.is_none() {
                    // Stored events are read without the connection's subscription.
                    self.feed = None;
                }
                Ok(Some(progress.map(|progress| self.live_events(progress)).unwrap_or_default()))
            }
        }
    }

    /// Returns the events of an update. It waits if the record does not contain its task yet.
    fn live_events(&mut self, progress: Progress) -> Vec<RecordedEvent> {
        let Some(attempt) = self.tasks.get(&progress.task).copied() else {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push_back(progress);
            }
            return Vec::new();
        };
        let values = told_values(&progress).into_iter();
        values.flat_map(|value| live_lines(&self.changes.record, &mut self.live, attempt, value)).collect()
    }
}

/// Returns the attempts of an execution by their tasks.
fn tasks(record: &Record) -> HashMap<TaskId, (ActivationId, u32)> {
    let (id, ctx) = (record.execution.id(), record.execution.ctx());
    let mut tasks = HashMap::new();
    for act in 0..ctx.state.acts.len() as ActivationId {
        let key = activation_key(id, record.plan(), ctx.state, act);
        tasks.extend(
            (1..=ctx.act(act).attempt).map(|attempt| (TaskId::of(id, &key, attempt), (act, attempt))),
        );
    }
    tasks
}
