//! Checks that the owner of a shard makes periodically, independent of its inputs.

use sinew_engine::Time;
use sinew_shard::{Outgoing, ShardState};
use tokio::time::Instant;

use super::caller_check::CallerCheck;
use super::intake::Handle;
use super::kept_starts::KeptStarts;
use super::outbox::Job;
use super::task_renewal::TaskRenewal;

/// The checks of one shard.
pub(super) struct PeriodicChecks {
    callers: CallerCheck,
    tasks: TaskRenewal,
    kept: KeptStarts,
}

impl PeriodicChecks {
    /// Creates the checks of a shard that was just opened.
    pub(super) fn new(shared: &Handle) -> Self {
        Self {
            callers: CallerCheck::new(shared.caller_check_interval),
            tasks: TaskRenewal::new(shared.max_task_age),
            kept: KeptStarts::new(),
        }
    }

    /// Returns when to poll again.
    pub(super) fn next_due(&self) -> Instant {
        self.callers.next_due().min(self.tasks.next_due()).min(self.kept.next_due())
    }

    /// Runs the checks that are due, and returns the resulting jobs. `now` is the broker's time.
    pub(super) fn poll(&mut self, shared: &Handle, now: Time, state: &mut ShardState) -> Vec<Job> {
        self.callers.poll(shared, state);
        self.kept.poll(shared, state);
        let is_queued = |task: &Outgoing| match task {
            Outgoing::Task { call, .. } => !shared.is_workflow(call) && !shared.is_direct(call),
            _ => false,
        };
        self.tasks.poll(now, state).into_iter().filter(is_queued).map(Job::Send).collect()
    }
}
