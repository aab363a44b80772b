//! Starts kept by the pause of a workflow: once the workflow is resumed, the owner of their shard
//! resumes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sinew_mesh::HeaderMap;
use sinew_protocol::ExecutionId;
use sinew_protocol::deployment::WORKFLOW_PAUSE_PREFIX;
use sinew_protocol::query::{ExecutionStatus, Summary};
use sinew_protocol::subject::Operation;
use sinew_shard::ShardState;
use sinew_shard::outgoing::kept_resume;
use tokio::time::Instant;
use tracing::info;

use super::Shared;
use super::intake::Handle;
use super::outbox::{insist, report};

/// Time between checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between wake-ups without a kept start.
const IDLE: Duration = Duration::from_hours(1);
/// Number of checks that find no kept start before they stop: a start that was just decided is
/// committed later.
const LAST_CHECKS: u32 = 10;

/// Kept starts of one shard.
pub(super) struct KeptStarts {
    next: Instant,
    /// Starts that were kept in this process when this was last checked.
    seen: u64,
    /// Remaining checks. A new owner checks the executions that the previous one kept.
    checks: u32,
    resumed: BTreeSet<ExecutionId>,
}

impl KeptStarts {
    pub(super) fn new() -> Self {
        Self { next: Instant::now(), seen: 0, checks: LAST_CHECKS, resumed: BTreeSet::new() }
    }

    pub(super) const fn next_due(&self) -> Instant {
        self.next
    }

    /// Resumes the executions whose workflow is no longer paused. Costs nothing unless a start was
    /// kept.
    pub(super) fn poll(&mut self, shared: &Handle, state: &ShardState) {
        let (now, kept) = (Instant::now(), shared.programs.kept_count());
        if std::mem::replace(&mut self.seen, kept) != kept {
            self.checks = LAST_CHECKS;
            self.next = self.next.min(now + INTERVAL);
        }
        if now < self.next {
            return;
        }
        self.checks = self.checks.saturating_sub(1);
        let is_kept = |one: &Summary| {
            one.status == ExecutionStatus::Paused
                && one.waiting.as_deref().is_some_and(|waiting| waiting.starts_with(WORKFLOW_PAUSE_PREFIX))
        };
        for kept in state.summaries().into_iter().filter(is_kept) {
            self.checks = LAST_CHECKS;
            if shared.programs.is_unpaused(&kept.workflow) && self.resumed.insert(kept.execution.clone()) {
                let workflow = kept.workflow;
                info!(execution = %kept.execution, workflow, "resumed, because its workflow is no longer paused");
                tokio::spawn(resume(Arc::clone(shared), kept.execution));
            }
        }
        if self.checks == 0 {
            self.resumed.clear();
        }
        self.next = now + if self.checks == 0 { IDLE } else { INTERVAL };
    }
}

async fn resume(shared: Handle, execution: ExecutionId) {
    let shared: &Shared = &shared;
    let shard = execution.shard(shared.shards);
    let (id, command) = kept_resume(execution);
    let body = bytes::Bytes::from(command.to_json());
    let send = || shared.mesh.commands().send(Operation::Resume, shard, &id, HeaderMap::new(), body.clone());
    report(&insist(send).await);
}
