//! Withdrawal of tasks whose activation has ended: removes them from their agent's queue and stops
//! agents that already process one.
//!
//! The task is removed from the queue before the agent is notified. So an agent either never
//! receives the task, or is already subscribed to the notification.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sinew_execution::Call;
use sinew_mesh::live::Control;
use sinew_mesh::{HeaderMap, MeshError};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Token};
use sinew_shard::Outgoing;
use sinew_shard::outgoing::{callee_cancel, child_id};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::Shared;
use super::outbox::{insist, report};

/// Withdrawals that this process performs at the same time: one fail-fast may withdraw thousands of tasks.
static WITHDRAWALS: Semaphore = Semaphore::const_new(32);
/// How long the agent's notification waits for the removal of the task from its queue.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Withdrawals in progress by execution. The end of an execution is archived after them.
#[derive(Default)]
pub(super) struct Withdrawals(HashMap<ExecutionId, PendingWithdrawals>);

#[derive(Default)]
struct PendingWithdrawals {
    count: usize,
    finish: Option<Outgoing>,
}

impl Withdrawals {
    /// Counts the start of a withdrawal.
    pub(super) fn begin(&mut self, execution: &ExecutionId) {
        self.0.entry(execution.clone()).or_default().count += 1;
    }

    /// Counts the end of a withdrawal. Returns the end of the execution if it waited for this
    /// withdrawal.
    pub(super) fn end(&mut self, execution: &ExecutionId) -> Option<Outgoing> {
        let pending = self.0.get_mut(execution)?;
        pending.count = pending.count.saturating_sub(1);
        if pending.count > 0 {
            return None;
        }
        self.0.remove(execution)?.finish
    }

    /// Returns the end of an execution, or keeps it until the last of its withdrawals has ended.
    pub(super) fn admit(&mut self, finish: Outgoing) -> Option<Outgoing> {
        match finish.execution().and_then(|execution| self.0.get_mut(execution)) {
            Some(pending) => {
                pending.finish = Some(finish);
                None
            }
            None => Some(finish),
        }
    }
}

/// Withdraws a task from its agent or workflow.
pub(super) async fn withdraw(shared: &Shared, call: &Call) {
    if shared.is_workflow(call) {
        return cancel_callee(shared, child_id(call)).await;
    }
    // Direct tasks are not stored, but an agent may have changed its delivery while the task waited.
    let removal = async {
        // The semaphore is never closed.
        let _permit = WITHDRAWALS.acquire().await;
        let agent = Token::of(call.ask.target.name());
        insist(|| shared.mesh.tasks().withdraw(&agent, &call.execution, &call.task)).await
    };
    let mut removal = std::pin::pin!(removal);
    let removed = tokio::time::timeout(REMOVAL_TIMEOUT, &mut removal).await;
    notify(shared, call).await;
    let removed = if let Ok(removed) = removed {
        removed
    } else {
        let removed = removal.await;
        // An agent that received the task in the meantime may have missed the first notification.
        notify(shared, call).await;
        removed
    };
    match removed {
        Ok(_) => {}
        Err(MeshError::Forbidden { .. }) => {
            static WARNED: AtomicBool = AtomicBool::new(false);
            if !WARNED.swap(true, Ordering::Relaxed) {
                warn!(
                    "executors lack the right to remove tasks from queues, so agents may start tasks of ended executions; run `sinew \
                     mesh permissions` again"
                );
            }
        }
        failed => drop(report(&failed)),
    }
}

/// Notifies every process of the agent, if any.
async fn notify(shared: &Shared, call: &Call) {
    let (agent, task) = (call.ask.target.name(), &call.task);
    let control = Control::Cancel { execution: call.execution.clone() };
    if let Err(error) = shared.mesh.tasks().control(agent, task, &control).await {
        debug!(agent, %task, %error, "cannot notify the agent of a cancelled task");
    }
}

/// Cancels an execution whose caller no longer needs it.
pub(super) async fn cancel_callee(shared: &Shared, execution: ExecutionId) {
    let command = callee_cancel(execution);
    let callee = command.execution();
    let id = Token::parse(callee.as_str()).unwrap_or_else(|_| Token::of("cancel"));
    let (shard, body) = (callee.shard(shared.shards), bytes::Bytes::from(command.to_json()));
    let sent =
        insist(|| shared.mesh.commands().send(Operation::Cancel, shard, &id, HeaderMap::new(), body.clone()));
    report(&sent.await);
}
