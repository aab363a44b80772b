//! A commit under construction, and its effects after it is stored.

use indexmap::IndexMap;
use sinew_engine::{Action, Fact};
use sinew_protocol::journal::{Commit, Entry, ExecutionHold, ExecutionMeta, Positions, Verdict};
use sinew_protocol::{ExecutionId, Fault, Token};

use crate::outgoing::StartDecision;

/// Entries of the next commit, with the effects of their facts.
#[derive(Default)]
pub(crate) struct CommitBuilder {
    entries: IndexMap<ExecutionId, Entry>,
    pub(crate) effects: Vec<Effect>,
}

/// A child that could not be started, until its parent's task is answered.
#[derive(Clone, Debug)]
pub(crate) struct RejectedChild {
    /// Constant properties that the execution would have had.
    pub(crate) meta: Box<ExecutionMeta>,
    /// The reason, as stored in the journal.
    pub(crate) reason: ExecutionHold,
    /// Sequence of the journal message with the rejection; 0 before it is stored.
    pub(crate) first: u64,
}

impl RejectedChild {
    /// Returns the reason as the fault of the parent's task.
    pub(crate) fn fault(&self) -> Fault {
        Fault::invalid(self.reason.code.clone(), self.reason.reason.clone())
    }
}

/// Effect of a stored commit.
pub(crate) enum Effect {
    /// Facts to publish.
    Facts { execution: ExecutionId, round: usize, facts: Vec<Fact> },
    /// An action of the engine.
    Act { execution: ExecutionId, action: Action },
    /// Verdict on a command. The workflow's name is empty if the execution is not open.
    Verdict { execution: ExecutionId, workflow: String, verdict: Verdict },
    /// A start by request was decided.
    StartDecided { execution: ExecutionId, reply: String, decision: StartDecision },
    /// A sub-workflow could not be started, so its parent's task has to be answered.
    ChildStartRejected { meta: Box<ExecutionMeta>, fault: Fault },
}

impl CommitBuilder {
    /// Returns true if nothing has to be stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the commit; the effects remain.
    pub(crate) fn commit(&mut self, owner: &Token, positions: Positions) -> Commit {
        let entries = std::mem::take(&mut self.entries).into_values().collect();
        Commit { owner: owner.clone(), positions, entries }
    }

    /// Returns the entry of an execution.
    pub(crate) fn entry(&mut self, execution: &ExecutionId) -> &mut Entry {
        let new = || Entry::rounds(execution.clone(), Vec::new());
        self.entries.entry(execution.clone()).or_insert_with(new)
    }

    /// Adds a verdict to the entry of an execution.
    pub(crate) fn verdict(&mut self, execution: &ExecutionId, verdict: Verdict) {
        self.entry(execution).commands.push(verdict);
    }

    /// Returns the verdicts in the entry of an execution.
    pub(crate) fn verdicts_of(&self, execution: &ExecutionId) -> Vec<Verdict> {
        self.entries.get(execution).map(|entry| entry.commands.clone()).unwrap_or_default()
    }

    /// Adds a child that could not be started. Its entry has no rounds, and stores the reason as a
    /// hold.
    pub(crate) fn reject(&mut self, rejected: &RejectedChild) {
        let entry = self.entry(&rejected.meta.execution);
        entry.meta = Some(ExecutionMeta::clone(&rejected.meta));
        entry.hold = Some(rejected.reason.clone());
    }

    /// Removes the entry of an execution.
    pub(crate) fn forget(&mut self, execution: &ExecutionId) {
        self.entries.shift_remove(execution);
    }

    /// Removes the start of an execution that could not start; verdicts of the same commit remain.
    pub(crate) fn forget_start(&mut self, execution: &ExecutionId) {
        let entry = self.entry(execution);
        (entry.meta, entry.rounds) = (None, Vec::new());
        if entry.commands.is_empty() {
            self.entries.shift_remove(execution);
        }
    }
}
