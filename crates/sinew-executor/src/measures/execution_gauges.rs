//! Gauges of open executions and of those that wait for a person, updated shortly after a commit
//! rather than at each one.

use std::time::Duration;

use sinew_shard::ShardState;
use tokio::time::Instant;

/// Time between a commit and the new values.
const GAUGE_DELAY: Duration = Duration::from_secs(1);

/// Gauges of one shard, reset to zero when another owner takes the shard over.
pub(crate) struct ExecutionGauges {
    shard: String,
    due: Option<Instant>,
}

impl ExecutionGauges {
    /// Gauges of a shard that was just opened.
    pub(crate) fn new(shard: u32) -> Self {
        let mut gauges = Self { shard: shard.to_string(), due: None };
        gauges.note_commit();
        gauges
    }

    /// Schedules an update after a commit.
    pub(crate) fn note_commit(&mut self) {
        self.due.get_or_insert_with(|| Instant::now() + GAUGE_DELAY);
    }

    /// Returns when to update the values; `None` if they are current.
    pub(crate) const fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// Updates the values if due.
    pub(crate) fn tell(&mut self, state: &ShardState) {
        if self.due.take_if(|due| *due <= Instant::now()).is_some() {
            self.set(state.open_count(), state.waiting_count());
            self.set_oldest(state.oldest_start(), state.oldest_waiting_start());
        }
    }

    fn set(&self, open: usize, waiting: usize) {
        metrics::gauge!("sinew_executions_open", "shard" => self.shard.clone()).set(open as f64);
        metrics::gauge!("sinew_executions_waiting", "shard" => self.shard.clone()).set(waiting as f64);
    }

    /// Sets the start times of the oldest executions; 0 if there are none.
    fn set_oldest(&self, open: Option<u64>, waiting: Option<u64>) {
        for (status, started) in [("open", open), ("waiting", waiting)] {
            let seconds = started.unwrap_or_default() as f64 / 1e3;
            metrics::gauge!("sinew_oldest_execution_timestamp_seconds", "shard" => self.shard.clone(), "status" => status)
                .set(seconds);
        }
    }
}

impl Drop for ExecutionGauges {
    fn drop(&mut self) {
        self.set_oldest(None, None);
        self.set(0, 0);
    }
}
