//! Renewal of tasks: stores tasks again, under the same ids, once they have waited longer than the
//! mesh keeps messages.

use std::time::Duration;

use sinew_engine::Time;
use sinew_protocol::ExecutionId;
use sinew_shard::{Outgoing, ShardState};
use tokio::time::Instant;

/// Executions in one batch: evicted executions have to be folded for it.
const BATCH: usize = 64;
/// Time between two batches.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between two passes over all executions.
const MAX_INTERVAL: Duration = Duration::from_hours(1);

/// Finds old tasks of the executions of one shard.
pub(super) struct TaskRenewal {
    max_age: Duration,
    interval: Duration,
    next: Instant,
    pending: Vec<ExecutionId>,
}

impl TaskRenewal {
    /// Creates the renewal of a shard that was just opened; the stream of tasks keeps a message for
    /// `max_age`.
    pub(super) fn new(max_age: Duration) -> Self {
        let interval = (max_age / 8).min(MAX_INTERVAL);
        Self { max_age, interval, next: Instant::now() + interval, pending: Vec::new() }
    }

    /// Returns when to poll again.
    pub(super) const fn next_due(&self) -> Instant {
        self.next
    }

    /// Returns tasks that the stream may have removed. `now` is the broker's time.
    pub(super) fn poll(&mut self, now: Time, state: &mut ShardState) -> Vec<Outgoing> {
        if Instant::now() < self.next {
            return Vec::new();
        }
        let before = now.saturating_sub(self.max_age.as_millis() as u64);
        if self.pending.is_empty() {
            self.pending = state.created_before(before);
        }
        let batch = self.pending.split_off(self.pending.len().saturating_sub(BATCH));
        self.next = Instant::now() + if self.pending.is_empty() { self.interval } else { BATCH_INTERVAL };
        batch.iter().flat_map(|execution| state.tasks_sent_before(execution, before)).collect()
    }
}
