//! Cancellation of executions that an agent started during a task whose activation failed or was
//! cancelled.
//!
//! The agent cancels them with its task. A crashed agent does not, so the owner of such an
//! execution periodically queries the owner of the calling execution. No state is stored for this:
//! after a takeover the new owner queries again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sinew_engine::ActivationId;
use sinew_execution::activation_key;
use sinew_mesh::query::{Answer, Query, QueryError};
use sinew_protocol::person_wait::CallingRef;
use sinew_protocol::{ExecutionId, Fault, TaskId};
use sinew_shard::ShardState;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info};

use super::intake::Handle;
use super::{Shared, lost_results, withdrawal};

/// Longest time between two checks of one execution: its caller may wait for a person for weeks.
const MAX_INTERVAL: Duration = Duration::from_mins(10);
/// Concurrent checks of this process.
static CHECKS: Semaphore = Semaphore::const_new(16);

/// The checks of one shard.
pub(super) struct CallerCheck {
    interval: Duration,
    next: Instant,
    /// When an execution is checked next, and the interval after that.
    due: HashMap<ExecutionId, (Instant, Duration)>,
    /// Checks in progress, aborted with the shard.
    checks: JoinSet<()>,
}

impl CallerCheck {
    /// Creates the checks of a shard that was just opened.
    pub(super) fn new(interval: Duration) -> Self {
        let next = Instant::now() + interval;
        Self { interval, next, due: HashMap::new(), checks: JoinSet::new() }
    }

    /// Returns when to poll again.
    pub(super) const fn next_due(&self) -> Instant {
        self.next
    }

    /// Starts the checks that are due.
    pub(super) fn poll(&mut self, shared: &Handle, state: &ShardState) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        while self.checks.try_join_next().is_some() {}
        let mut before = std::mem::take(&mut self.due);
        for (execution, calling) in state.callees() {
            let first = || (now + self.interval, self.interval);
            let (mut at, mut wait) = before.remove(execution).unwrap_or_else(first);
            if at <= now {
                wait = (wait * 2).min(MAX_INTERVAL);
                at = now + wait;
                self.checks.spawn(check(Arc::clone(shared), execution.clone(), calling.clone()));
            }
            self.due.insert(execution.clone(), (at, wait));
        }
    }
}

/// Cancels an execution if its caller no longer needs it.
async fn check(shared: Handle, execution: ExecutionId, calling: CallingRef) {
    // The semaphore is never closed.
    let _permit = CHECKS.acquire().await;
    match has_failed(&shared, &calling).await {
        Ok(true) => {
            let (caller, task) = (calling.execution, calling.task);
            info!(%execution, %caller, %task, "cancelled the execution: the task that started it has failed");
            withdrawal::cancel_callee(&shared, execution).await;
        }
        Ok(false) => {}
        Err(fault) => {
            debug!(%execution, %fault, "cannot determine whether the caller still needs the execution");
        }
    }
}

/// Returns true if the activation of a task is known to have failed or been cancelled.
async fn has_failed(shared: &Shared, calling: &CallingRef) -> Result<bool, Fault> {
    let shard = calling.execution.shard(shared.shards);
    match shared.mesh.services().ask_shard(shard, &Query::HasTaskFailed(calling.clone())).await? {
        Answer::HasTaskFailed(has_failed) => Ok(has_failed),
        // An execution leaves its shard when the history contains it.
        Answer::Error(QueryError::NotFound) => {
            let Some(closed) = lost_results::read_closed(shared, &calling.execution).await? else {
                return Ok(false);
            };
            let (state, program) = (closed.folded.state(), closed.folded.program());
            let is_task = |act: ActivationId, attempt: u32| {
                let activation = activation_key(&calling.execution, program.graph.plan(), state, act);
                TaskId::of(&calling.execution, &activation, attempt) == calling.task
            };
            Ok((0..).zip(&state.acts).any(|(act, one)| {
                sinew_shard::has_failed(state, act) && (1..=one.attempt).any(|attempt| is_task(act, attempt))
            }))
        }
        // Owners of older versions cannot parse this query.
        _ => Ok(false),
    }
}
