//! Everything a shard's owner knows: its open executions, what is due, and how far its inputs were read.
//!
//! Pure: time comes in as an argument, effects go out as data. The shard loop stores a [`Stage`] before it performs
//! its effects, and throws the whole book away when the journal says that somebody else owns the shard.
//!
//! An execution that nothing happens to is kept as it stands in the journal; its facts are folded again when something
//! comes in for it. So what a book takes is bounded, but for the facts themselves.

use std::collections::{BTreeSet, HashMap, VecDeque};

use indexmap::IndexMap;
use sinew_engine::{Action, EngineInput, Fact, InputRefusal, Time};
use sinew_protocol::journal::{Commit, Entry, EntryKind, ExecutionHold, ExecutionMeta, Positions, Verdict};
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, Fault, Token};

use super::open::{Cold, Open, Stored, Unfit};
use super::view::{self, RowState};
use crate::library::Program;

/// Verdicts on commands to executions that are not open, kept for whoever asks late.
pub(super) const VERDICTS: usize = 1_000;
/// Estimated bytes of a folded execution beyond those of its facts.
const FOLDED: usize = 4 * 1024;
/// Bytes in memory of a byte of encoded facts, about: values, maps and the names in them.
const SWELL: usize = 4;

/// State of a shard's owner.
#[derive(Default)]
pub(super) struct Book {
    /// Open executions whose facts are folded, in no order.
    open: IndexMap<ExecutionId, Open>,
    /// Open executions that nothing has happened to for a while.
    cold: HashMap<ExecutionId, Cold>,
    /// Bytes that folded executions may take, about.
    room: usize,
    /// The folded one that is looked at next when there is no room.
    hand: usize,
    /// Bytes of rounds of the open ones, kept as they change: asked for with every commit.
    bytes: usize,
    /// As much of that as belongs to folded ones.
    folded: usize,
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

/// Effects after a commit was stored, in order.
pub(super) enum Effect {
    /// Facts to show.
    Facts { execution: ExecutionId, round: usize, facts: Vec<Fact> },
    /// An action of the engine.
    Act { execution: ExecutionId, action: Action },
    /// Verdict on a command.
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
    /// A book without executions.
    pub(super) fn new(positions: Positions, refused: VecDeque<(ExecutionId, Verdict)>, room: usize) -> Self {
        Self { room, positions, refused, ..Self::default() }
    }

    /// Begins an execution. Nothing happens to one that is there already.
    pub(super) fn start(
        &mut self,
        stage: &mut Stage,
        now: Time,
        meta: ExecutionMeta,
        program: Program,
        input: EngineInput,
    ) -> Result<(), Unfit> {
        let execution = meta.execution.clone();
        if self.known(&execution).is_some() {
            return Err(Unfit::Refused(InputRefusal::Started));
        }
        stage.entry(&execution).meta = Some(meta.clone());
        self.open.insert(execution.clone(), Open::new(meta, program));
        let begun = self.input(stage, now, &execution, input);
        if begun.is_err() {
            self.open.swap_remove(&execution);
            stage.entries.shift_remove(&execution);
        }
        begun
    }

    /// Takes a closed execution back, with all it was: its facts are journaled again.
    pub(super) fn reopen(&mut self, stage: &mut Stage, mut open: Open) {
        open.stored.hold = None;
        self.broken.remove(&open.stored.meta.execution);
        checkpoint(stage, &open.stored);
        self.hold(open);
    }

    /// Holds a folded execution.
    pub(super) fn hold(&mut self, open: Open) {
        let execution = open.stored.meta.execution.clone();
        self.bytes += open.stored.rounds.size();
        self.folded += open.stored.rounds.size();
        self.open.insert(execution.clone(), open);
        self.schedule(&execution);
    }

    /// Folds an execution of the journal, shows it to `visit` and keeps it. Without a program, or with a hold, it is kept
    /// for an operator.
    pub(super) fn take(
        &mut self,
        stored: Stored,
        program: Result<Program, Fault>,
        visit: impl FnOnce(&Open),
    ) {
        let folded = match (held(&stored), program) {
            (Some(fault), _) | (None, Err(fault)) => Err(Box::new((stored, fault))),
            (None, Ok(program)) => Open::fold(stored, program),
        };
        match folded {
            Ok(open) => {
                visit(&open);
                self.hold(open);
            }
            Err(unfolded) => self.set_aside(*unfolded),
        }
        self.cool();
    }

    /// Holds an execution that cannot be folded, for an operator.
    pub(super) fn set_aside(&mut self, (stored, fault): (Stored, Fault)) {
        self.broken.insert(stored.meta.execution.clone(), (stored, fault));
    }

    /// An open execution, folded, if need be now.
    pub(super) fn wake(&mut self, execution: &ExecutionId) -> Option<&mut Open> {
        if let Some(cold) = self.cold.remove(execution) {
            let (due, size) = (cold.due, cold.stored.rounds.size());
            metrics::counter!("sinew_refolds_total").increment(1);
            match cold.wake() {
                Ok(open) => {
                    self.folded += size;
                    self.open.insert(execution.clone(), open);
                }
                // It could be folded before: this is the code's fault, not the journal's.
                Err(unfolded) => {
                    if let Some(due) = due {
                        self.due.remove(&(due, execution.clone()));
                    }
                    self.bytes = self.bytes.saturating_sub(size);
                    self.set_aside(*unfolded);
                }
            }
        }
        let open = self.open.get_mut(execution)?;
        open.touched = true;
        Some(open)
    }

    /// Lets go of folded executions that nothing happened to, until there is room for the others.
    pub(super) fn cool(&mut self) {
        while FOLDED * self.open.len() + SWELL * self.folded > self.room {
            if self.hand >= self.open.len() {
                self.hand = 0;
            }
            let Some((_, open)) = self.open.get_index_mut(self.hand) else { return };
            if std::mem::take(&mut open.touched) {
                self.hand += 1;
                continue;
            }
            if let Some((execution, open)) = self.open.swap_remove_index(self.hand) {
                self.folded = self.folded.saturating_sub(open.stored.rounds.size());
                self.cold.insert(execution, open.cool());
            }
        }
    }

    /// Gives an input to an open execution.
    pub(super) fn input(
        &mut self,
        stage: &mut Stage,
        now: Time,
        execution: &ExecutionId,
        input: EngineInput,
    ) -> Result<(), Unfit> {
        let Some(open) = self.wake(execution) else {
            return Err(Unfit::Refused(InputRefusal::NotStarted));
        };
        let before = open.stored.rounds.size();
        let decided = open.input(now, input)?;
        let (number, more) = (open.stored.rounds.len(), open.stored.rounds.size() - before);
        self.bytes += more;
        self.folded += more;
        if let Some(round) = decided.round {
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
        let workflow = if let Some(stored) = self.stored_mut(execution) {
            stored.verdicts.push(verdict.clone());
            stored.meta.workflow.clone()
        } else {
            if self.refused.len() == VERDICTS {
                self.refused.pop_front();
            }
            self.refused.push_back((execution.clone(), verdict.clone()));
            String::new()
        };
        stage.effects.push(Effect::Verdict { execution: execution.clone(), workflow, verdict });
    }

    /// Returns the verdict on a command of this caller; `None` until the command was decided. Another caller may use the
    /// same id for a command of its own.
    pub(super) fn decided(
        &self,
        execution: &ExecutionId,
        caller: &Token,
        command: &Token,
    ) -> Option<&Verdict> {
        let open = self.known(execution).into_iter().flat_map(|stored| &stored.verdicts);
        let refused = self.refused.iter().filter(|(id, _)| id == execution).map(|(_, verdict)| verdict);
        open.chain(refused).find(|verdict| verdict.id == *command && verdict.caller == *caller)
    }

    /// Returns the remembered verdicts on commands for an execution, open or not.
    pub(super) fn verdicts_of(&self, execution: &ExecutionId) -> Vec<Verdict> {
        let open = self.known(execution).into_iter().flat_map(|stored| &stored.verdicts);
        let refused = self.refused.iter().filter(|(id, _)| id == execution).map(|(_, verdict)| verdict);
        open.chain(refused).cloned().collect()
    }

    /// Returns the executions for which something is due, at most so many.
    pub(super) fn due_now(&self, now: Time, most: usize) -> Vec<ExecutionId> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        due.take(most).map(|(_, execution)| execution.clone()).collect()
    }

    /// Wakes one execution for what is due.
    pub(super) fn tick_one(&mut self, stage: &mut Stage, now: Time, execution: &ExecutionId) {
        let Some(open) = self.wake(execution) else { return };
        if let Some(due) = open.due.take_if(|due| *due <= now) {
            self.due.remove(&(due, execution.clone()));
            let _ = self.input(stage, now, execution, EngineInput::Tick);
        }
    }

    /// Wakes whatever is due.
    pub(super) fn tick(&mut self, stage: &mut Stage, now: Time) {
        while let Some((at, execution)) = self.due.first().cloned() {
            if at > now {
                break;
            }
            self.due.pop_first();
            if let Some(open) = self.wake(&execution) {
                open.due = None;
            }
            // A tick is never refused; an execution whose code breaks on it waits for an operator.
            let _ = self.input(stage, now, &execution, EngineInput::Tick);
        }
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The commit with these entries was stored as this journal message.
    pub(super) fn committed(&mut self, sequence: u64, commit: &Commit) {
        for entry in &commit.entries {
            if let Some(stored) = self.stored_mut(&entry.execution)
                && (stored.first == 0 || entry.kind == EntryKind::Checkpoint)
            {
                stored.first = sequence;
            }
        }
    }

    /// Archived and answered: the execution leaves memory with the next commit, unless it was reopened meanwhile.
    pub(super) fn close(&mut self, stage: &mut Stage, execution: &ExecutionId, reopened: u32) {
        let open = self.open.get(execution).map(|open| (&open.stored, open.due, open.ended()));
        let cold = || self.cold.get(execution).map(|cold| (&cold.stored, cold.due, cold.ended));
        let Some((stored, due, ended)) = open.or_else(cold) else { return };
        if ended != Some(reopened) {
            return;
        }
        let size = stored.rounds.size();
        stage.entry(execution).kind = EntryKind::Closed;
        if let Some(due) = due {
            self.due.remove(&(due, execution.clone()));
        }
        self.bytes = self.bytes.saturating_sub(size);
        if self.open.swap_remove(execution).is_some() {
            self.folded = self.folded.saturating_sub(size);
        }
        self.cold.remove(execution);
    }

    /// An open execution that is folded, as every one is that something happened to in this round.
    pub(super) fn get(&self, execution: &ExecutionId) -> Option<&Open> {
        self.open.get(execution)
    }

    /// Returns the stored part of an open execution.
    pub(super) fn stored(&self, execution: &ExecutionId) -> Option<&Stored> {
        let open = self.open.get(execution).map(|open| &open.stored);
        open.or_else(|| self.cold.get(execution).map(|cold| &cold.stored))
    }

    fn stored_mut(&mut self, execution: &ExecutionId) -> Option<&mut Stored> {
        match self.open.get_mut(execution) {
            Some(open) => Some(&mut open.stored),
            None => match self.cold.get_mut(execution) {
                Some(cold) => Some(&mut cold.stored),
                None => self.broken.get_mut(execution).map(|(stored, _)| stored),
            },
        }
    }

    fn all(&self) -> impl Iterator<Item = &Stored> {
        self.open
            .values()
            .map(|open| &open.stored)
            .chain(self.cold.values().map(|cold| &cold.stored))
            .chain(self.broken.values().map(|(stored, _)| stored))
    }

    /// One row for every execution that is open.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        let open = self.open.values().map(|open| view::summary(&open.stored, RowState::of(open.state())));
        let cold = self.cold.values().map(|cold| view::summary(&cold.stored, cold.row.clone()));
        let broken = self.broken().map(|(stored, fault)| view::broken(stored, fault));
        open.chain(cold).chain(broken).collect()
    }

    /// Returns an execution as a record shows it: one that waits for an operator says why.
    pub(super) fn shown(&self, execution: &ExecutionId) -> Option<Stored> {
        if let Some((stored, fault)) = self.broken.get(execution) {
            let hold = ExecutionHold { code: fault.code.to_string(), reason: fault.message.clone() };
            return Some(Stored { hold: Some(hold), ..stored.clone() });
        }
        self.stored(execution).cloned()
    }

    /// Returns an execution that waits for an operator, with the reason.
    pub(super) fn set_aside_one(&self, execution: &ExecutionId) -> Option<&(Stored, Fault)> {
        self.broken.get(execution)
    }

    pub(super) fn broken(&self) -> impl Iterator<Item = (&Stored, &Fault)> {
        self.broken.values().map(|(stored, fault)| (stored, fault))
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len() + self.cold.len()
    }

    /// How many of them are folded.
    pub(super) fn folded(&self) -> usize {
        self.open.len()
    }

    /// Bytes of rounds of open executions: what the journal would hold if nothing in it were superfluous.
    pub(super) fn size(&self) -> usize {
        self.bytes
    }

    /// Returns an execution that is open, worked on or not.
    pub(super) fn known(&self, execution: &ExecutionId) -> Option<&Stored> {
        self.stored(execution).or_else(|| self.broken.get(execution).map(|(stored, _)| stored))
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
        self.all().map(|stored| stored.first).min()
    }

    /// Journals those executions again whose facts lie below this message, at most so many bytes of them.
    pub(super) fn compact(&self, stage: &mut Stage, below: u64, bytes: usize) {
        let mut size = 0;
        for stored in self.all().filter(|stored| stored.first < below) {
            if size > bytes {
                break;
            }
            size += stored.rounds.size();
            checkpoint(stage, stored);
        }
    }
}

/// Why no owner works on an execution, as a fault.
fn held(stored: &Stored) -> Option<Fault> {
    let ExecutionHold { code, reason } = stored.hold.as_ref()?;
    Some(Fault::error(code.clone(), reason.clone()).with_retryable(false))
}

fn checkpoint(stage: &mut Stage, stored: &Stored) {
    *stage.entry(&stored.meta.execution) = Entry::checkpoint(stored.record());
}
