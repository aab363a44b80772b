//! The open executions of a shard: active, evicted and held ones, with their deadlines.
//!
//! An execution without recent inputs is evicted: only its stored facts are kept, and they are
//! folded again on the next input. The memory of a table is therefore bounded, except for the
//! facts.

use std::collections::{BTreeSet, VecDeque};

use indexmap::IndexMap;
use sinew_engine::{EngineInput, InputRefusal, Time};
use sinew_protocol::journal::{Commit, Entry, EntryKind, ExecutionHold, ExecutionMeta, Verdict};
use sinew_protocol::person_wait::CallingRef;
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, Fault, Token};

use crate::active::{ActiveExecution, EvictedExecution, InputError};
use crate::bug::seeded_bug;
use crate::commit_builder::{CommitBuilder, Effect, RejectedChild};
use crate::stored::StoredExecution;
use crate::summary::{self, RowState};
use crate::timer_check::HandInTime;
use sinew_execution::Program;

/// Maximum number of verdicts on commands to executions that are not open, kept for late requests.
pub(crate) const MAX_VERDICTS: usize = 1_000;
/// Estimated size of an active execution in addition to its facts.
const ACTIVE_BYTES: usize = 4 * 1024;
/// Estimated memory per byte of encoded facts, for values, maps and their names.
const BYTES_PER_FACT_BYTE: usize = 4;

/// Open executions of a shard.
#[derive(Default)]
pub(crate) struct ExecutionTable {
    /// Folded open executions, unordered. Boxed, because a map allocates up to twice the number of
    /// its entries.
    active: IndexMap<ExecutionId, Box<ActiveExecution>>,
    /// Open executions without recent inputs.
    evicted: IndexMap<ExecutionId, EvictedExecution>,
    /// Held executions with the reason; never dropped and never processed.
    held: IndexMap<ExecutionId, (StoredExecution, Fault)>,
    /// Estimated memory limit of active executions, in bytes.
    pub(crate) memory_limit_bytes: usize,
    /// Index of the next active execution to check for eviction.
    next_to_evict: usize,
    /// Size of the rounds of active and evicted executions, updated on each change because every
    /// commit needs it.
    bytes: usize,
    /// Share of active executions in that size.
    active_bytes: usize,
    due: BTreeSet<(Time, ExecutionId)>,
    /// Period for agents to deliver results after an outage.
    pub(crate) hand_in: HandInTime,
    /// Children that could not be started and whose parents have no answer yet.
    rejected: IndexMap<ExecutionId, RejectedChild>,
    refused: VecDeque<(ExecutionId, Verdict)>,
    /// Number of evicted executions that were loaded.
    pub(crate) loads: u64,
}

impl ExecutionTable {
    /// Creates a table without executions.
    pub(crate) fn new(
        refused: VecDeque<(ExecutionId, Verdict)>,
        rejected: IndexMap<ExecutionId, RejectedChild>,
        memory_limit_bytes: usize,
    ) -> Self {
        Self { memory_limit_bytes, rejected, refused, ..Self::default() }
    }

    /// Starts an execution. Does nothing if it already exists.
    pub(crate) fn start(
        &mut self,
        commit: &mut CommitBuilder,
        now: Time,
        meta: ExecutionMeta,
        program: Program,
        input: EngineInput,
    ) -> Result<(), InputError> {
        let execution = meta.execution.clone();
        if self.known(&execution).is_some() && !seeded_bug!(DuplicateStartBegins) {
            return Err(InputError::Refused(InputRefusal::Started));
        }
        commit.entry(&execution).meta = Some(meta.clone());
        let mut open = Box::new(ActiveExecution::new(meta, program));
        self.adopt_verdicts(commit, &mut open.stored);
        self.active.insert(execution.clone(), open);
        let begun = self.input(commit, now, &execution, input);
        if begun.is_err() {
            self.active.swap_remove(&execution);
            commit.forget_start(&execution);
        }
        begun
    }

    /// Keeps a child that could not be started in the journal until its parent has the answer.
    pub(crate) fn reject(&mut self, commit: &mut CommitBuilder, meta: ExecutionMeta, fault: Fault) {
        let meta = Box::new(meta);
        let execution = meta.execution.clone();
        // The entry of another execution must not be changed. Ids of children are derived, so this
        // happens only with forged ones.
        if self.known(&execution).is_none() && !seeded_bug!(RejectionNotJournaled) {
            let reason = ExecutionHold { code: fault.code.to_string(), reason: fault.message.clone() };
            let rejected = RejectedChild { meta: meta.clone(), reason, first: 0 };
            commit.reject(&rejected);
            self.rejected.insert(execution, rejected);
        }
        commit.effects.push(Effect::ChildStartRejected { meta, fault });
    }

    /// Returns why a child could not be started, or `None` once its parent has the answer.
    pub(crate) fn rejection(&self, execution: &ExecutionId) -> Option<Fault> {
        self.rejected.get(execution).map(RejectedChild::fault)
    }

    /// Returns the children that could not be started and whose parents may have no answer.
    pub(crate) fn rejected(&self) -> impl Iterator<Item = &RejectedChild> {
        self.rejected.values()
    }

    /// Reopens a closed execution with its complete record: its facts are journaled again.
    pub(crate) fn reopen(&mut self, commit: &mut CommitBuilder, mut open: ActiveExecution) {
        open.stored.hold = None;
        self.held.swap_remove(&open.stored.meta.execution);
        self.adopt_verdicts(commit, &mut open.stored);
        checkpoint(commit, &open.stored);
        self.keep(open);
    }

    /// Moves the verdicts to an execution on commands that the same commit rejected before it was
    /// open.
    fn adopt_verdicts(&mut self, commit: &mut CommitBuilder, stored: &mut StoredExecution) {
        let execution = &stored.meta.execution;
        for verdict in &commit.entry(execution).commands {
            if !stored.verdicts.contains(verdict) && !seeded_bug!(EarlierVerdictForgotten) {
                stored.verdicts.push(verdict.clone());
                self.refused.retain(|(of, refused)| of != execution || refused != verdict);
            }
        }
    }

    /// Undoes [`ExecutionTable::reopen`] of the same commit, and restores its earlier verdicts.
    pub(crate) fn forget_reopened(
        &mut self,
        commit: &mut CommitBuilder,
        execution: &ExecutionId,
        earlier: Vec<Verdict>,
    ) {
        if seeded_bug!(RefusedRetryReopens) {
            return;
        }
        commit.forget(execution);
        if let Some(open) = self.active.swap_remove(execution) {
            let size = open.stored.rounds.size();
            self.bytes = self.bytes.saturating_sub(size);
            self.active_bytes = self.active_bytes.saturating_sub(size);
            if let Some(due) = open.due {
                self.due.remove(&(due, execution.clone()));
            }
        }
        for verdict in earlier.into_iter().filter(|_| !seeded_bug!(RefusedRetryForgetsVerdicts)) {
            commit.verdict(execution, verdict.clone());
            self.refused.push_back((execution.clone(), verdict));
        }
    }

    /// Stores an active execution.
    pub(crate) fn keep(&mut self, open: ActiveExecution) {
        let execution = open.stored.meta.execution.clone();
        self.bytes += open.stored.rounds.size();
        self.active_bytes += open.stored.rounds.size();
        self.active.insert(execution.clone(), Box::new(open));
        if !seeded_bug!(TimerLostOnTakeover) {
            self.schedule(&execution);
        }
    }

    /// Folds an execution of the journal, passes it to `visit` and stores it. Without a program, or
    /// with a hold, the execution is held.
    pub(crate) fn take(
        &mut self,
        stored: StoredExecution,
        program: Result<Program, Fault>,
        visit: impl FnOnce(&ActiveExecution),
    ) {
        let folded = match (hold_fault(&stored), program) {
            (Some(fault), _) | (None, Err(fault)) => Err(Box::new((stored, fault))),
            (None, Ok(program)) => ActiveExecution::fold(stored, program),
        };
        match folded {
            Ok(open) => {
                visit(&open);
                self.keep(open);
            }
            Err(unloaded) => self.hold(*unloaded),
        }
        self.evict();
    }

    /// Holds an execution until an operator resumes it.
    pub(crate) fn hold(&mut self, (stored, fault): (StoredExecution, Fault)) {
        self.held.insert(stored.meta.execution.clone(), (stored, fault));
    }

    /// Returns an open execution, which is folded if it was evicted.
    pub(crate) fn load(&mut self, execution: &ExecutionId) -> Option<&mut ActiveExecution> {
        if let Some(evicted) = self.evicted.swap_remove(execution) {
            let (due, size) = (evicted.due, evicted.stored.rounds.size());
            self.loads += 1;
            match evicted.load() {
                Ok(open) => {
                    self.active_bytes += size;
                    self.active.insert(execution.clone(), Box::new(open));
                }
                // The execution was folded before, so the code is at fault, not the journal.
                Err(unloaded) => {
                    if let Some(due) = due {
                        self.due.remove(&(due, execution.clone()));
                    }
                    self.bytes = self.bytes.saturating_sub(size);
                    self.hold(*unloaded);
                }
            }
        }
        let open = self.active.get_mut(execution)?;
        open.touched = true;
        Some(open)
    }

    /// Evicts executions without inputs since the last eviction, until the others fit into the
    /// memory limit.
    pub(crate) fn evict(&mut self) {
        while ACTIVE_BYTES * self.active.len() + BYTES_PER_FACT_BYTE * self.active_bytes
            > self.memory_limit_bytes
        {
            if self.next_to_evict >= self.active.len() {
                self.next_to_evict = 0;
            }
            let Some((_, open)) = self.active.get_index_mut(self.next_to_evict) else { return };
            if std::mem::take(&mut open.touched) {
                self.next_to_evict += 1;
                continue;
            }
            if let Some((execution, open)) = self.active.swap_remove_index(self.next_to_evict) {
                self.active_bytes = self.active_bytes.saturating_sub(open.stored.rounds.size());
                if seeded_bug!(TimerLostOnEviction)
                    && let Some(due) = open.due
                {
                    self.due.remove(&(due, execution.clone()));
                }
                self.evicted.insert(execution, open.evict());
            }
        }
    }

    /// Applies an input to an open execution.
    pub(crate) fn input(
        &mut self,
        commit: &mut CommitBuilder,
        now: Time,
        execution: &ExecutionId,
        input: EngineInput,
    ) -> Result<(), InputError> {
        let Some(open) = self.load(execution) else {
            return Err(InputError::Refused(InputRefusal::NotStarted));
        };
        let before = open.stored.rounds.size();
        let decided = open.input(now, input)?;
        let (number, more) = (open.stored.rounds.count(), open.stored.rounds.size() - before);
        self.bytes += more;
        self.active_bytes += more;
        if let Some(round) = decided.round {
            commit.entry(execution).rounds.push(round);
            commit.effects.push(Effect::Facts {
                execution: execution.clone(),
                round: number,
                facts: decided.facts,
            });
        }
        let effects = decided.actions.into_iter();
        commit.effects.extend(effects.map(|action| Effect::Act { execution: execution.clone(), action }));
        self.schedule(execution);
        Ok(())
    }

    /// Stores the verdict on a command, with the execution if it is open.
    pub(crate) fn verdict(&mut self, commit: &mut CommitBuilder, execution: &ExecutionId, verdict: Verdict) {
        commit.verdict(execution, verdict.clone());
        let workflow = if let Some(stored) = self.stored_mut(execution) {
            stored.verdicts.push(verdict.clone());
            stored.meta.workflow.clone()
        } else {
            if self.refused.len() == MAX_VERDICTS {
                self.refused.pop_front();
            }
            self.refused.push_back((execution.clone(), verdict.clone()));
            String::new()
        };
        commit.effects.push(Effect::Verdict { execution: execution.clone(), workflow, verdict });
    }

    /// Returns the verdict on a command of this caller, or `None` if it was not decided yet. Other
    /// callers may use the same id for their own commands.
    pub(crate) fn decided(
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
    pub(crate) fn verdicts_of(&self, execution: &ExecutionId) -> Vec<Verdict> {
        let open = self.known(execution).into_iter().flat_map(|stored| &stored.verdicts);
        let refused = self.refused.iter().filter(|(id, _)| id == execution).map(|(_, verdict)| verdict);
        open.chain(refused).cloned().collect()
    }

    /// Returns up to `most` executions with a due deadline.
    pub(crate) fn due_now(&self, now: Time, most: usize) -> Vec<ExecutionId> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        due.take(most).map(|(_, execution)| execution.clone()).collect()
    }

    /// Handles one execution's due deadline.
    pub(crate) fn tick_one(&mut self, commit: &mut CommitBuilder, now: Time, execution: &ExecutionId) {
        let Some(open) = self.load(execution) else { return };
        if let Some(due) = open.due.take_if(|due| *due <= now) {
            self.due.remove(&(due, execution.clone()));
            self.fire(commit, now, execution);
        }
    }

    /// Wakes a due execution, unless one of its timers is blocked. Its entry in the table of
    /// deadlines was removed.
    fn fire(&mut self, commit: &mut CommitBuilder, now: Time, execution: &ExecutionId) {
        let HandInTime { from, until } = self.hand_in;
        if now < until
            && let Some(open) = self.load(execution)
            && open.has_due_task_timer(now, from)
        {
            open.due = Some(until);
            self.due.insert((until, execution.clone()));
            return;
        }
        // Ticks are never rejected; an execution whose code panics on one is held.
        let _ = self.input(commit, now, execution, EngineInput::Tick);
    }

    /// Handles all due deadlines.
    pub(crate) fn tick(&mut self, commit: &mut CommitBuilder, now: Time) {
        while let Some((at, execution)) = self.due.first().cloned() {
            if at > now {
                break;
            }
            self.due.pop_first();
            if let Some(open) = self.load(&execution) {
                open.due = None;
            }
            self.fire(commit, now, &execution);
        }
    }

    /// Returns the next deadline.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Records the journal message in which the commit with these entries was stored.
    pub(crate) fn committed(&mut self, sequence: u64, commit: &Commit) {
        for entry in &commit.entries {
            if let Some(stored) = self.stored_mut(&entry.execution)
                && (stored.first == 0 || entry.kind == EntryKind::Checkpoint)
            {
                stored.first = sequence;
            }
            if let Some(rejected) = self.rejected.get_mut(&entry.execution).filter(|_| entry.meta.is_some()) {
                rejected.first = sequence;
            }
        }
    }

    /// Closes an archived and answered execution with the next commit, unless its end has changed
    /// since.
    pub(crate) fn close(&mut self, commit: &mut CommitBuilder, execution: &ExecutionId, end_number: u32) {
        if self.rejected.swap_remove(execution).is_some() {
            commit.entry(execution).kind = EntryKind::Closed;
            return;
        }
        let Some(open) = self.load(execution) else { return };
        let is_same_end = open.end_number() == end_number || seeded_bug!(ReopenedIsClosed);
        if !(open.state().ended || seeded_bug!(ReopenedIsClosed)) || !is_same_end {
            return;
        }
        let (due, size) = (open.due, open.stored.rounds.size());
        commit.entry(execution).kind = EntryKind::Closed;
        if let Some(due) = due {
            self.due.remove(&(due, execution.clone()));
        }
        self.bytes = self.bytes.saturating_sub(size);
        self.active_bytes = self.active_bytes.saturating_sub(size);
        self.active.swap_remove(execution);
    }

    /// Returns an open folded execution, as is every execution with an input in this round.
    pub(crate) fn get(&self, execution: &ExecutionId) -> Option<&ActiveExecution> {
        self.active.get(execution).map(Box::as_ref)
    }

    /// Like [`ExecutionTable::get`], to record what was sent for it.
    pub(crate) fn get_mut(&mut self, execution: &ExecutionId) -> Option<&mut ActiveExecution> {
        self.active.get_mut(execution).map(Box::as_mut)
    }

    /// Returns the stored part of an open execution.
    pub(crate) fn stored(&self, execution: &ExecutionId) -> Option<&StoredExecution> {
        let open = self.active.get(execution).map(|open| &open.stored);
        open.or_else(|| self.evicted.get(execution).map(|evicted| &evicted.stored))
    }

    fn stored_mut(&mut self, execution: &ExecutionId) -> Option<&mut StoredExecution> {
        match self.active.get_mut(execution) {
            Some(open) => Some(&mut open.stored),
            None => match self.evicted.get_mut(execution) {
                Some(evicted) => Some(&mut evicted.stored),
                None => self.held.get_mut(execution).map(|(stored, _)| stored),
            },
        }
    }

    fn all(&self) -> impl Iterator<Item = &StoredExecution> {
        self.active
            .values()
            .map(|open| &open.stored)
            .chain(self.evicted.values().map(|evicted| &evicted.stored))
            .chain(self.held.values().map(|(stored, _)| stored))
    }

    /// Returns the executions created before this time.
    pub(crate) fn created_before(&self, before: Time) -> Vec<ExecutionId> {
        let old = self.all().filter(|stored| stored.meta.created < before);
        old.map(|stored| stored.meta.execution.clone()).collect()
    }

    /// Returns the running executions that an agent started during a task, with that task.
    pub(crate) fn callees(&self) -> impl Iterator<Item = (&ExecutionId, &CallingRef)> {
        let active = self.active.values().filter(|open| !open.state().ended).map(|open| &open.stored);
        let evicted = self.evicted.values().map(|evicted| &evicted.stored);
        let open = active.chain(evicted);
        open.filter_map(|stored| Some((&stored.meta.execution, stored.meta.calling.as_ref()?)))
    }

    /// Returns a row for every open execution.
    pub(crate) fn summaries(&self) -> Vec<Summary> {
        let open =
            self.active.values().map(|open| summary::summary(&open.stored.meta, RowState::of(open.state())));
        let evicted = self.evicted.values();
        let evicted = evicted.map(|one| summary::summary(&one.stored.meta, one.row.clone()));
        let held = self.held().map(|(stored, fault)| summary::held_summary(&stored.meta, fault));
        open.chain(evicted).chain(held).collect()
    }

    /// Returns an execution as in its record, with the reason if it is held.
    pub(crate) fn shown(&self, execution: &ExecutionId) -> Option<StoredExecution> {
        if let Some((stored, fault)) = self.held.get(execution) {
            let hold = ExecutionHold { code: fault.code.to_string(), reason: fault.message.clone() };
            return Some(StoredExecution { hold: Some(hold), ..stored.clone() });
        }
        self.stored(execution).cloned()
    }

    /// Returns a held execution with the reason.
    pub(crate) fn held_one(&self, execution: &ExecutionId) -> Option<&(StoredExecution, Fault)> {
        self.held.get(execution)
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = (&StoredExecution, &Fault)> {
        self.held.values().map(|(stored, fault)| (stored, fault))
    }

    /// Returns the number of open executions.
    pub(crate) fn len(&self) -> usize {
        self.active.len() + self.evicted.len()
    }

    /// Returns the number of executions that only wait for a person.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting_starts().count()
    }

    /// Returns the start of the oldest open execution.
    pub(crate) fn oldest_start(&self) -> Option<Time> {
        let active = self.active.values().map(|open| open.state().started_at);
        active.chain(self.evicted.values().map(|evicted| evicted.row.started())).min()
    }

    /// Returns the start of the oldest execution that only waits for a person.
    pub(crate) fn oldest_waiting_start(&self) -> Option<Time> {
        self.waiting_starts().min()
    }

    /// Returns the starts of the executions that only wait for a person.
    fn waiting_starts(&self) -> impl Iterator<Item = Time> {
        // This check is cheap, and few executions wait for a person.
        let asks = self.active.values().filter(|open| open.state().asks_people());
        let active = asks.filter(|open| RowState::of(open.state()).is_waiting());
        let evicted = self.evicted.values().filter(|evicted| evicted.row.is_waiting());
        active.map(|open| open.state().started_at).chain(evicted.map(|evicted| evicted.row.started()))
    }

    /// Returns the number of folded executions.
    pub(crate) fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Returns the size of the open executions' rounds: the minimum size of the journal.
    pub(crate) fn size(&self) -> usize {
        self.bytes
    }

    /// Returns an open execution, active or not.
    pub(crate) fn known(&self, execution: &ExecutionId) -> Option<&StoredExecution> {
        self.stored(execution).or_else(|| self.held.get(execution).map(|(stored, _)| stored))
    }

    fn schedule(&mut self, execution: &ExecutionId) {
        let Some(open) = self.active.get_mut(execution) else { return };
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

    /// Returns the oldest journal message that is still needed; `None` if no execution is open.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let rejected = self.rejected.values().map(|rejected| rejected.first);
        self.all().map(|stored| stored.first).chain(rejected).min()
    }

    /// Journals executions with facts below this message again, up to `bytes` bytes.
    pub(crate) fn compact(&self, commit: &mut CommitBuilder, below: u64, bytes: usize) {
        let mut size = 0;
        for stored in self.all().filter(|stored| stored.first < below) {
            if size > bytes {
                break;
            }
            size += stored.rounds.size();
            checkpoint(commit, stored);
        }
        self.rejected.values().filter(|rejected| rejected.first < below).for_each(|one| commit.reject(one));
    }
}

/// Converts the reason of a hold to a fault.
fn hold_fault(stored: &StoredExecution) -> Option<Fault> {
    let ExecutionHold { code, reason } = stored.hold.as_ref()?;
    Some(Fault::error(code.clone(), reason.clone()).with_retryable(false))
}

fn checkpoint(commit: &mut CommitBuilder, stored: &StoredExecution) {
    let mut record = stored.record();
    if seeded_bug!(CheckpointWithoutVerdicts) {
        record.commands.clear();
    }
    if seeded_bug!(CheckpointWithoutLastRound) {
        record.rounds.pop();
    }
    *commit.entry(&stored.meta.execution) = Entry::checkpoint(record);
}
