//! Opening of a shard by a new owner: read the journal, claim it, fold open executions, repeat
//! unfinished work.
//!
//! The claim is the first message of the new owner and fences the old one, so it is stored before
//! executions are folded or messages sent. Executions are folded in groups, and each group is noted
//! before it is processed.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use sinew_protocol::journal::{Commit, Entry, ExecutionHold, Positions};
use sinew_protocol::{ExecutionId, Fault, code};

use crate::active::UNREADABLE;
use crate::bug::seeded_bug;
use crate::commit_builder::RejectedChild;
use crate::journal_reader::JournalReader;
use crate::outgoing::Outgoing;
use crate::state::{PendingCommit, ShardConfig, ShardState};
use crate::stored::StoredExecution;
use crate::takeover_guard::TakeoverGuard;
use crate::takeover_note::{MAX_ITEM_DEATHS, WorkItem};
use sinew_execution::Program;

/// A shard whose journal was read, and which is not open yet.
#[derive(Debug)]
pub struct ShardOpening {
    state: ShardState,
    guard: TakeoverGuard,
    claim: Bytes,
    groups: VecDeque<Vec<StoredExecution>>,
    held: Vec<ExecutionHeld>,
    is_empty: bool,
}

/// An execution that was held because it crashed its owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionHeld {
    /// The execution.
    pub execution: ExecutionId,
    /// The reason.
    pub hold: ExecutionHold,
}

impl ShardOpening {
    /// Starts opening a shard whose journal ends at `position` and has `journal_bytes` bytes. The
    /// streams are read after `positions`.
    pub fn new(
        config: Arc<ShardConfig>,
        mut reader: JournalReader,
        mut guard: TakeoverGuard,
        positions: Positions,
        position: u64,
        journal_bytes: usize,
    ) -> Self {
        let held = hold_condemned(&mut reader, &mut guard);
        let entry = |held: &ExecutionHeld| Entry {
            hold: Some(held.hold.clone()),
            ..Entry::rounds(held.execution.clone(), Vec::new())
        };
        let entries = held.iter().map(entry).collect();
        let claim = Commit { owner: config.owner.clone(), positions, entries }.encode();
        let (table, stored) = reader.into_parts(config.memory_limit_bytes);
        let mut state = ShardState::new(config, table, positions, position, journal_bytes);
        let (with_hold, mut work): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|stored| stored.hold.is_some());
        for stored in with_hold {
            if seeded_bug!(HoldNotKept) {
                work.push(StoredExecution { hold: None, ..stored });
                continue;
            }
            let program = Err(missing_plan(&stored.meta.plan));
            state.take_stored(stored, program);
        }
        let is_empty = work.is_empty();
        let groups = guard.note().split_open(work, item_of).into();
        Self { state, guard, claim, groups, held, is_empty }
    }

    /// Returns the first commit of the new owner, which fences the old one.
    pub fn claim(&self) -> PendingCommit {
        let (after, entries) = (self.state.journal_position(), self.held.len());
        PendingCommit { after, body: self.claim.clone(), entries }
    }

    /// Records the sequence of the stored claim in the journal.
    pub fn handle_claimed(&mut self, sequence: u64) {
        self.state.handle_claimed(sequence);
    }

    /// Returns the executions that this opening has held.
    pub fn held(&self) -> &[ExecutionHeld] {
        &self.held
    }

    /// Returns answers to parents whose children could not be started, which the last owner may not
    /// have sent.
    pub fn rejected_children(&self) -> Vec<Outgoing> {
        let rejected = self.state.table.rejected();
        let message =
            |one: &RejectedChild| Outgoing::ChildStartRejected { meta: one.meta.clone(), fault: one.fault() };
        rejected.map(message).collect()
    }

    /// Returns true if no execution has to be folded; a stale note then has to be cleared.
    pub fn is_without_work(&self) -> bool {
        self.is_empty
    }

    /// Returns the takeover guard, to note work in progress.
    pub fn guard(&mut self) -> &mut TakeoverGuard {
        &mut self.guard
    }

    /// Returns the items of the next group, to be noted before [`ShardOpening::fold_group`]; `None`
    /// if all are folded.
    pub fn next_group(&self) -> Option<Vec<WorkItem>> {
        Some(self.groups.front()?.iter().map(item_of).collect())
    }

    /// Returns the digests of the next group's plans, with repetitions.
    pub fn group_plans(&self) -> Vec<String> {
        self.groups.front().into_iter().flatten().map(|stored| stored.meta.plan.clone()).collect()
    }

    /// Folds the next group. If a plan cannot be loaded, its executions are held, and the shard
    /// still opens. Returns the messages to send again.
    pub fn fold_group(&mut self, program: impl Fn(&str) -> Option<Program>) -> Vec<Outgoing> {
        for stored in self.groups.pop_front().unwrap_or_default() {
            let plan = stored.meta.plan.clone();
            let program = program(&plan).ok_or_else(|| missing_plan(&plan));
            self.state.take_stored(stored, program);
        }
        std::iter::from_fn(|| self.state.poll_outgoing()).collect()
    }

    /// Completes the opening.
    pub fn finish(self) -> (ShardState, TakeoverGuard) {
        (self.state, self.guard)
    }
}

fn item_of(stored: &StoredExecution) -> WorkItem {
    WorkItem::Execution(stored.meta.execution.clone())
}

fn missing_plan(digest: &str) -> Fault {
    Fault::error(UNREADABLE, format!("plan {digest} is not in the store"))
}

/// Holds executions that crashed their owners.
fn hold_condemned(reader: &mut JournalReader, guard: &mut TakeoverGuard) -> Vec<ExecutionHeld> {
    let reason = format!("{MAX_ITEM_DEATHS} executors crashed while they processed the execution");
    let mut held = Vec::new();
    for item in guard.note().condemned().to_vec() {
        let WorkItem::Execution(execution) = &item else { continue };
        let code = code::EXECUTION_QUARANTINED.as_str().to_owned();
        let hold = ExecutionHold { code, reason: reason.clone() };
        if reader.hold(execution, hold.clone()) {
            guard.settle(&item);
            held.push(ExecutionHeld { execution: execution.clone(), hold });
        }
    }
    held
}
