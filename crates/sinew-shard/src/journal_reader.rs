//! Folds the commits of a journal, in order, into the open executions of a shard.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use indexmap::IndexMap;
use sinew_protocol::journal::{Commit, Entry, EntryKind, ExecutionHold, ExecutionRecord, Positions, Verdict};
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, Fault};

use crate::active::UNREADABLE;
use crate::bug::seeded_bug;
use crate::commit_builder::RejectedChild;
use crate::stored::StoredExecution;
use crate::table::{ExecutionTable, MAX_VERDICTS};
use sinew_execution::Program;

/// Content of a journal as far as it was read.
#[derive(Debug, Default)]
pub struct JournalReader {
    stored: IndexMap<ExecutionId, StoredExecution>,
    positions: Positions,
    refused: VecDeque<(ExecutionId, Verdict)>,
    /// Children that could not be started and whose parents may have no answer.
    rejected: IndexMap<ExecutionId, RejectedChild>,
    /// Digests of the required plans.
    plans: HashSet<String>,
    entries: u64,
}

impl JournalReader {
    /// Returns the positions up to which the commits include the inputs.
    pub const fn positions(&self) -> Positions {
        self.positions
    }

    /// Returns the record of one execution as far as it was read.
    pub fn record(&self, execution: &ExecutionId) -> Option<ExecutionRecord> {
        self.stored.get(execution).map(StoredExecution::record)
    }

    /// Returns verdicts on commands for an execution that is not open.
    pub fn verdicts(&self, execution: &ExecutionId) -> Vec<Verdict> {
        let refused = self.refused.iter().filter(|(id, _)| id == execution);
        refused.map(|(_, verdict)| verdict.clone()).collect()
    }

    /// Returns one row for every open execution. `program` returns the program of a plan by its
    /// digest.
    pub fn summaries(self, program: impl Fn(&str) -> Option<Program>) -> Vec<Summary> {
        let missing = || Fault::error(UNREADABLE, "its plan is not in the store");
        let (mut table, stored) = self.into_parts(usize::MAX);
        for stored in stored {
            let program = program(&stored.meta.plan).ok_or_else(missing);
            table.take(stored, program, |_| ());
        }
        table.summaries()
    }

    /// Returns the digests of the open executions' plans.
    pub fn plans(&self) -> impl Iterator<Item = &str> {
        self.plans.iter().map(String::as_str)
    }

    /// Returns the number of entries read.
    pub const fn entry_count(&self) -> u64 {
        self.entries
    }

    /// Takes the next commit, at its sequence in the journal.
    pub fn read(&mut self, sequence: u64, commit: Commit) {
        self.positions = commit.positions;
        for entry in commit.entries {
            self.entries += 1;
            self.entry(sequence, entry);
        }
    }

    fn entry(&mut self, sequence: u64, entry: Entry) {
        if entry.kind == EntryKind::Closed && !seeded_bug!(ClosingNotRead) {
            self.stored.swap_remove(&entry.execution);
            self.rejected.swap_remove(&entry.execution);
            return;
        }
        if let Some(rejected) = rejected_child(&entry, sequence) {
            self.rejected.insert(entry.execution.clone(), rejected);
            return self.refuse(&entry.execution, entry.commands);
        }
        if entry.kind == EntryKind::Checkpoint {
            self.stored.swap_remove(&entry.execution);
        }
        if let Some(meta) = entry.meta {
            self.plans.insert(meta.plan.clone());
            let stored = StoredExecution { first: sequence, ..StoredExecution::new(meta) };
            self.stored.entry(entry.execution.clone()).or_insert(stored);
        }
        if let Some(stored) = self.stored.get_mut(&entry.execution) {
            stored.hold = entry.hold.or(stored.hold.take());
            entry.rounds.iter().for_each(|round: &Bytes| stored.rounds.push(round));
            stored.verdicts.extend(entry.commands);
            return;
        }
        self.refuse(&entry.execution, entry.commands);
    }

    fn refuse(&mut self, execution: &ExecutionId, verdicts: Vec<Verdict>) {
        self.refused.extend(verdicts.into_iter().map(|verdict| (execution.clone(), verdict)));
        while self.refused.len() > MAX_VERDICTS {
            self.refused.pop_front();
        }
    }

    /// Marks an execution as held; returns false if it is not open.
    pub(crate) fn hold(&mut self, execution: &ExecutionId, hold: ExecutionHold) -> bool {
        let Some(stored) = self.stored.get_mut(execution) else { return false };
        stored.hold = Some(hold);
        true
    }

    /// Returns a table without executions, and the open executions.
    pub(crate) fn into_parts(self, memory_limit_bytes: usize) -> (ExecutionTable, Vec<StoredExecution>) {
        let table = ExecutionTable::new(self.refused, self.rejected, memory_limit_bytes);
        (table, self.stored.into_values().collect())
    }
}

/// Returns the child that could not be started, if this is its entry: it has a reason and no
/// rounds.
fn rejected_child(entry: &Entry, first: u64) -> Option<RejectedChild> {
    let (Some(meta), Some(reason), []) = (&entry.meta, &entry.hold, entry.rounds.as_slice()) else {
        return None;
    };
    let meta = Box::new(meta.clone());
    (entry.kind == EntryKind::Rounds).then(|| RejectedChild { meta, reason: reason.clone(), first })
}
