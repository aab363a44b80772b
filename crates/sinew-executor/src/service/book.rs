//! Everything a shard's owner knows: its open executions, what is due, and how far its inputs were read.
//!
//! Pure: time comes in as an argument, effects go out as data. The shard loop stores a [`Stage`] before it performs
//! its effects, and throws the whole book away when the journal says that somebody else owns the shard.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use indexmap::IndexMap;
use sinew_engine::{Action, Fact, Input, Refused, Time};
use sinew_protocol::journal::{Commit, Entry, EntryKind, ExecutionMeta, ExecutionRecord, Positions, Verdict};
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, Fault, Token};

use super::open::{Open, Stored, Unfit};
use crate::library::Program;

/// Verdicts on commands to executions that are not open, kept for whoever asks late.
const VERDICTS: usize = 1_000;

/// What a shard's owner knows.
#[derive(Default)]
pub(super) struct Book {
    open: HashMap<ExecutionId, Open>,
    /// Bytes of rounds of the open ones, kept as they change: asked for with every commit.
    bytes: usize,
    /// Executions whose facts cannot be folded here, with the reason; never dropped, never acted on.
    broken: HashMap<ExecutionId, (Stored, Fault)>,
    due: BTreeSet<(Time, ExecutionId)>,
    pub(super) positions: Positions,
    refused: VecDeque<(ExecutionId, Verdict)>,
}

/// A commit in the making, and what happens once it is stored.
#[derive(Default)]
pub(super) struct Stage {
    entries: IndexMap<ExecutionId, Entry>,
    pub(super) effects: Vec<Effect>,
}

/// What happens after a commit was stored, in order.
pub(super) enum Effect {
    /// Facts to show.
    Facts { execution: ExecutionId, round: usize, facts: Vec<Fact> },
    /// Something outside the engine.
    Act { execution: ExecutionId, action: Action },
    /// What came of a command.
    Verdict { execution: ExecutionId, workflow: String, verdict: Verdict },
    /// A sub-workflow could not be started: tell the task it answers.
    Stillborn { meta: Box<ExecutionMeta>, fault: Fault },
}

impl Stage {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The commit to store.
    pub(super) fn commit(&mut self, owner: &Token, positions: Positions) -> Commit {
        let entries = std::mem::take(&mut self.entries).into_values().collect();
        Commit { owner: owner.clone(), positions, entries }
    }

    fn entry(&mut self, execution: &ExecutionId) -> &mut Entry {
        let new = || Entry::rounds(execution.clone(), Vec::new());
        self.entries.entry(execution.clone()).or_insert_with(new)
    }

    pub(super) fn verdict(&mut self, execution: &ExecutionId, verdict: Verdict) {
        self.entry(execution).commands.push(verdict);
    }
}

impl Book {
    /// Begins an execution. Nothing happens to one that is there already.
    pub(super) fn start(
        &mut self,
        stage: &mut Stage,
        now: Time,
        meta: ExecutionMeta,
        program: Program,
        input: Input,
    ) -> Result<(), Unfit> {
        let execution = meta.execution.clone();
        if self.knows(&execution) {
            return Err(Unfit::Refused(Refused::Started));
        }
        stage.entry(&execution).meta = Some(meta.clone());
        self.open.insert(execution.clone(), Open::new(meta, program));
        let begun = self.input(stage, now, &execution, input);
        if begun.is_err() {
            self.open.remove(&execution);
            stage.entries.shift_remove(&execution);
        }
        begun
    }

    /// Takes a closed execution back, with all it was: its facts are journaled again.
    pub(super) fn reopen(&mut self, stage: &mut Stage, open: Open) {
        let execution = open.stored.meta.execution.clone();
        checkpoint(stage, &open);
        self.bytes += open.stored.rounds.size();
        self.open.insert(execution, open);
    }

    /// Gives an input to an open execution.
    pub(super) fn input(
        &mut self,
        stage: &mut Stage,
        now: Time,
        execution: &ExecutionId,
        input: Input,
    ) -> Result<(), Unfit> {
        let Some(open) = self.open.get_mut(execution) else {
            return Err(Unfit::Refused(Refused::NotStarted));
        };
        let before = open.stored.rounds.size();
        let decided = open.input(now, input)?;
        self.bytes += open.stored.rounds.size() - before;
        if let Some(round) = decided.round {
            let number = open.stored.rounds.len();
            stage.entry(execution).rounds.push(round);
            stage.effects.push(Effect::Facts {
                execution: execution.clone(),
                round: number,
                facts: decided.facts,
            });
        }
        let effects = decided.actions.into_iter();
        stage.effects.extend(effects.map(|action| Effect::Act { execution: execution.clone(), action }));
        self.schedule(execution);
        Ok(())
    }

    /// Keeps what came of a command, with the execution if it is open.
    pub(super) fn verdict(&mut self, stage: &mut Stage, execution: &ExecutionId, verdict: Verdict) {
        stage.verdict(execution, verdict.clone());
        let workflow = if let Some(open) = self.open.get_mut(execution) {
            open.stored.verdicts.push(verdict.clone());
            open.stored.meta.workflow.clone()
        } else {
            if self.refused.len() == VERDICTS {
                self.refused.pop_front();
            }
            self.refused.push_back((execution.clone(), verdict.clone()));
            String::new()
        };
        stage.effects.push(Effect::Verdict { execution: execution.clone(), workflow, verdict });
    }

    /// True once this command was decided.
    pub(super) fn decided(&self, execution: &ExecutionId, command: &Token) -> Option<&Verdict> {
        let open = self.open.get(execution).into_iter().flat_map(|open| &open.stored.verdicts);
        let refused = self.refused.iter().filter(|(id, _)| id == execution).map(|(_, verdict)| verdict);
        open.chain(refused).find(|verdict| &verdict.id == command)
    }

    /// Wakes whatever is due.
    pub(super) fn tick(&mut self, stage: &mut Stage, now: Time) {
        while let Some((at, execution)) = self.due.first().cloned() {
            if at > now {
                break;
            }
            self.due.pop_first();
            if let Some(open) = self.open.get_mut(&execution) {
                open.due = None;
            }
            // A tick is never refused; an execution whose code breaks on it waits for an operator.
            let _ = self.input(stage, now, &execution, Input::Tick);
        }
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The commit with these entries was stored as this journal message.
    pub(super) fn stored(&mut self, sequence: u64, commit: &Commit) {
        for entry in &commit.entries {
            if let Some(open) = self.open.get_mut(&entry.execution)
                && (open.stored.first == 0 || entry.kind == EntryKind::Checkpoint)
            {
                open.stored.first = sequence;
            }
        }
    }

    /// Archived and answered: the execution leaves memory with the next commit, unless it was reopened meanwhile.
    pub(super) fn close(&mut self, stage: &mut Stage, execution: &ExecutionId, reopened: u32) {
        let Some(open) = self.open.get(execution) else { return };
        if !open.state().ended || open.state().reopened != reopened {
            return;
        }
        stage.entry(execution).kind = EntryKind::Closed;
        if let Some(due) = open.due {
            self.due.remove(&(due, execution.clone()));
        }
        self.bytes = self.bytes.saturating_sub(open.stored.rounds.size());
        self.open.remove(execution);
    }

    pub(super) fn get(&self, execution: &ExecutionId) -> Option<&Open> {
        self.open.get(execution)
    }

    pub(super) fn broken(&self) -> impl Iterator<Item = (&Stored, &Fault)> {
        self.broken.values().map(|(stored, fault)| (stored, fault))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Open> {
        self.open.values()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Bytes of rounds of open executions: what the journal would hold if nothing in it were superfluous.
    pub(super) fn size(&self) -> usize {
        self.bytes
    }

    fn knows(&self, execution: &ExecutionId) -> bool {
        self.open.contains_key(execution) || self.broken.contains_key(execution)
    }

    fn schedule(&mut self, execution: &ExecutionId) {
        let Some(open) = self.open.get_mut(execution) else { return };
        let next = open.next_deadline();
        if next == open.due {
            return;
        }
        if let Some(old) = std::mem::replace(&mut open.due, next) {
            self.due.remove(&(old, execution.clone()));
        }
        if let Some(next) = next {
            self.due.insert((next, execution.clone()));
        }
    }

    /// The oldest journal message that is still needed; none when no execution is open.
    pub(super) fn oldest(&self) -> Option<u64> {
        let open = self.open.values().map(|open| open.stored.first);
        open.chain(self.broken.values().map(|(stored, _)| stored.first)).min()
    }

    /// Journals those executions again whose facts lie below this message, at most so many bytes of them.
    pub(super) fn compact(&self, stage: &mut Stage, below: u64, bytes: usize) {
        let mut size = 0;
        for open in self.open.values().filter(|open| open.stored.first < below) {
            if size > bytes {
                break;
            }
            size += open.stored.rounds.size();
            checkpoint(stage, open);
        }
    }
}

fn checkpoint(stage: &mut Stage, open: &Open) {
    *stage.entry(&open.stored.meta.execution) = Entry::checkpoint(open.stored.record());
}

/// A journal on its way to a book: commits go in, in order; what is left are the executions that are open.
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
    pub(super) const fn positions(&self) -> Positions {
        self.positions
    }

    /// What was read of one execution.
    pub(crate) fn record(&self, execution: &ExecutionId) -> Option<ExecutionRecord> {
        self.stored.get(execution).map(Stored::record)
    }

    /// One row for every execution that is open.
    pub(crate) fn summaries(self, program: impl Fn(&str) -> Option<Program>) -> Vec<Summary> {
        let missing = || Fault::error(super::open::UNREADABLE, "its plan is not in the store");
        let book = self.finish(|meta| program(&meta.plan).ok_or_else(missing));
        let broken = book.broken().map(|(stored, fault)| super::view::broken(stored, fault));
        book.iter().map(super::view::summary).chain(broken).collect()
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
            let rounds = super::open::Log::default();
            let stored = Stored { meta: Arc::new(meta), rounds, verdicts: Vec::new(), first: sequence };
            self.stored.entry(entry.execution.clone()).or_insert(stored);
        }
        if let Some(stored) = self.stored.get_mut(&entry.execution) {
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

    /// Folds what is open. `program` gives the program of a plan, or why there is none.
    pub(super) fn finish(self, program: impl Fn(&ExecutionMeta) -> Result<Program, Fault>) -> Book {
        let mut book = Book { positions: self.positions, refused: self.refused, ..Book::default() };
        for (execution, stored) in self.stored {
            let folded = match program(&stored.meta) {
                Ok(program) => Open::fold(stored, program),
                Err(fault) => Err(Box::new((stored, fault))),
            };
            match folded {
                Ok(open) => {
                    book.bytes += open.stored.rounds.size();
                    book.open.insert(execution.clone(), open);
                    book.schedule(&execution);
                }
                Err(unfolded) => {
                    book.broken.insert(execution, *unfolded);
                }
            }
        }
        book
    }
}
