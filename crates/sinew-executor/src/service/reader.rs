//! A journal on its way to a [`Book`]: commits go in, in order; what is left are the executions that are open.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use sinew_protocol::journal::{
    Commit, Entry, EntryKind, ExecutionHold, ExecutionMeta, ExecutionRecord, Positions, Verdict,
};
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, Fault};

use super::book::{Book, VERDICTS};
use super::open::{Log, Open, Stored, UNREADABLE};
use sinew_shard::Program;

/// Content of a journal as far as it was read.
#[derive(Default)]
pub(crate) struct Reader {
    stored: HashMap<ExecutionId, Stored>,
    positions: Positions,
    refused: VecDeque<(ExecutionId, Verdict)>,
    /// Plans that are needed.
    pub(crate) plans: HashSet<String>,
    pub(super) entries: u64,
}

impl Reader {
    /// Up to where inputs are part of what was read.
    pub(crate) const fn positions(&self) -> Positions {
        self.positions
    }

    /// Returns the record of one execution as far as it was read.
    pub(crate) fn record(&self, execution: &ExecutionId) -> Option<ExecutionRecord> {
        self.stored.get(execution).map(Stored::record)
    }

    /// Verdicts on commands for an execution that is not open.
    pub(crate) fn verdicts(&self, execution: &ExecutionId) -> Vec<Verdict> {
        let refused = self.refused.iter().filter(|(id, _)| id == execution);
        refused.map(|(_, verdict)| verdict.clone()).collect()
    }

    /// One row for every execution that is open.
    pub(crate) fn summaries(self, program: impl Fn(&str) -> Option<Program>) -> Vec<Summary> {
        let missing = || Fault::error(UNREADABLE, "its plan is not in the store");
        self.finish(usize::MAX, |meta| program(&meta.plan).ok_or_else(missing), |_| ()).summaries()
    }

    /// Takes the next commit.
    pub(crate) fn read(&mut self, sequence: u64, commit: Commit) {
        self.positions = commit.positions;
        for entry in commit.entries {
            self.entries += 1;
            self.entry(sequence, entry);
        }
    }

    fn entry(&mut self, sequence: u64, entry: Entry) {
        if entry.kind == EntryKind::Closed {
            self.stored.remove(&entry.execution);
            return;
        }
        if entry.kind == EntryKind::Checkpoint {
            self.stored.remove(&entry.execution);
        }
        if let Some(meta) = entry.meta {
            self.plans.insert(meta.plan.clone());
            let rounds = Log::default();
            let stored =
                Stored { meta: Arc::new(meta), rounds, verdicts: Vec::new(), first: sequence, hold: None };
            self.stored.entry(entry.execution.clone()).or_insert(stored);
        }
        if let Some(stored) = self.stored.get_mut(&entry.execution) {
            stored.hold = entry.hold.or(stored.hold.take());
            entry.rounds.iter().for_each(|round: &Bytes| stored.rounds.push(round));
            stored.verdicts.extend(entry.commands);
            return;
        }
        let verdicts = entry.commands.into_iter();
        self.refused.extend(verdicts.map(|verdict| (entry.execution.clone(), verdict)));
        while self.refused.len() > VERDICTS {
            self.refused.pop_front();
        }
    }

    /// Marks an execution that no owner may take up; false if it is not open.
    pub(super) fn set_aside(&mut self, execution: &ExecutionId, hold: ExecutionHold) -> bool {
        let Some(stored) = self.stored.get_mut(execution) else { return false };
        stored.hold = Some(hold);
        true
    }

    /// Returns a book without executions, and the executions that are open.
    pub(super) fn into_parts(self, room: usize) -> (Book, Vec<Stored>) {
        let book = Book::new(self.positions, self.refused, room);
        (book, self.stored.into_values().collect())
    }

    /// Folds what is open, shows it to `visit`, and keeps as much of it folded as there is room for. `program` gives the
    /// program of a plan, or why there is none.
    pub(super) fn finish(
        self,
        room: usize,
        program: impl Fn(&ExecutionMeta) -> Result<Program, Fault>,
        mut visit: impl FnMut(&Open),
    ) -> Book {
        let mut book = Book::new(self.positions, self.refused, room);
        for (_, stored) in self.stored {
            let program = program(&stored.meta);
            book.take(stored, program, &mut visit);
        }
        book
    }
}
