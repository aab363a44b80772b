//! The state of a shard's owner: many executions, one journal.
//!
//! A turn has four parts: inputs are handled; the commit is polled and stored by the shell;
//! outgoing messages are polled and sent; and the turn ends with eviction and sometimes a purge. No
//! message is sent before its commit is stored: [`ShardState::poll_outgoing`] returns messages of a
//! commit only after [`ShardState::handle_stored`].

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use sinew_engine::{Action, SharedJson, TaskRequest, Time};
use sinew_protocol::journal::{Commit, Positions, Verdict};
use sinew_protocol::person_wait::CallingRef;
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, Fault, ResultKey, TaskId, Token};

use crate::active::has_failed;
use crate::bug::seeded_bug;
use crate::closed_ids::ClosedIds;
use crate::commit_builder::{CommitBuilder, Effect};
use crate::in_flight::{CommitInFlight, ShownEffect};
use crate::intake::{InputStream, ResultInput, ShardInput};
use crate::notice::ShardNotice;
use crate::outgoing::Outgoing;
use crate::stored::StoredExecution;
use crate::table::ExecutionTable;
use crate::timer_check::{DueTask, HandInTime, InboxEnds};
use sinew_execution::Program;

/// Maximum size of executions that one commit journals again.
const COMPACTION_STEP_BYTES: usize = 512 * 1024;

/// Constant properties of a shard and its owner.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Number of the shard.
    pub shard: u32,
    /// Number of shards of the mesh.
    pub shards: NonZeroU32,
    /// Namespace of the mesh.
    pub namespace: String,
    /// The executor that owns the shard.
    pub owner: Token,
    /// Key of the tokens in results.
    pub key: ResultKey,
    /// Minimum journal size for compaction, in bytes.
    pub compaction_threshold_bytes: usize,
    /// Estimated memory limit of the shard's active executions, in bytes; idle ones are evicted.
    pub memory_limit_bytes: usize,
}

impl ShardConfig {
    /// Returns true if an execution belongs to this shard.
    pub fn holds(&self, execution: &ExecutionId) -> bool {
        execution.shard(self.shards) == self.shard
    }
}

/// Checks an output against the schema of its task or its agent's card.
pub trait OutputCheck {
    /// Returns the fault of an output that violates its schema.
    fn check(&self, ask: &TaskRequest, output: &SharedJson) -> Result<(), Fault>;
}

/// A commit to append to the journal.
#[derive(Clone, Debug)]
pub struct PendingCommit {
    /// Expected last position of the journal, which fences other writers.
    pub after: u64,
    /// The commit (`sinew.v1.Commit`).
    pub body: Bytes,
    /// Number of its entries.
    pub entries: usize,
}

/// Estimated size of a journal and the part that open executions do not need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompactionState {
    /// Bytes written since old messages were removed.
    pub(crate) bytes: usize,
    /// Sequence below which the journal is rewritten or removed; `None` while the journal is short.
    cut: Option<u64>,
}

/// State of a shard's owner.
pub struct ShardState {
    pub(crate) config: Arc<ShardConfig>,
    pub(crate) table: ExecutionTable,
    pub(crate) builder: CommitBuilder,
    pub(crate) notices: Vec<ShardNotice>,
    pub(crate) closed_ids: ClosedIds,
    pub(crate) outgoing: VecDeque<Outgoing>,
    positions: Positions,
    /// Positions of the newest stored commit.
    stored_positions: Positions,
    /// Position of the journal.
    position: u64,
    compaction: CompactionState,
    /// The commit that is being appended.
    pub(crate) in_flight: Option<CommitInFlight>,
    /// Effects of the stored commit to publish.
    pub(crate) shown: Vec<ShownEffect>,
    /// Time at which the newest inputs were decided.
    pub(crate) now: Time,
    is_lost: bool,
}

impl ShardState {
    /// Creates the state of a shard whose journal was read up to `position`.
    pub(crate) fn new(
        config: Arc<ShardConfig>,
        table: ExecutionTable,
        positions: Positions,
        position: u64,
        journal_bytes: usize,
    ) -> Self {
        Self {
            config,
            table,
            builder: CommitBuilder::default(),
            notices: Vec::new(),
            closed_ids: ClosedIds::default(),
            outgoing: VecDeque::new(),
            positions,
            stored_positions: positions,
            position,
            compaction: CompactionState { bytes: journal_bytes, cut: None },
            in_flight: None,
            shown: Vec::new(),
            now: 0,
            is_lost: false,
        }
    }

    /// Records the journal position of the owner's first commit.
    pub(crate) fn handle_claimed(&mut self, sequence: u64) {
        self.position = sequence;
    }

    /// Records a message's position in its stream: the next commit includes the message.
    /// `stored_at` is when the server stored it, in milliseconds since 1970 UTC; 0 if unknown.
    pub fn handle_position(&mut self, stream: InputStream, seq: u64, stored_at: u64) {
        let positions = &mut self.positions;
        let (position, stored) = match stream {
            InputStream::Commands => (&mut positions.commands, &mut positions.commands_stored),
            InputStream::Results => (&mut positions.results, &mut positions.results_stored),
        };
        let seq = if seeded_bug!(PositionsSkipInput) { seq + 1 } else { seq };
        if seq > *position {
            (*position, *stored) = (seq, stored_at);
        }
    }

    /// Handles one input.
    pub fn handle_input(&mut self, now: Time, input: ShardInput, schemas: &dyn OutputCheck) {
        self.now = now;
        self.closed_ids.handle_time(now);
        match input {
            ShardInput::Start(start) => self.handle_start(now, *start),
            ShardInput::Command(mut command) => {
                let results = std::mem::take(&mut command.results);
                let execution = command.execution.clone();
                self.handle_command(now, *command);
                // Results that arrived while the execution was held count once it is no longer
                // held.
                let results = results.into_iter().filter(|_| self.table.held_one(&execution).is_none());
                for result in results.collect::<Vec<_>>() {
                    self.handle_result(now, result, schemas);
                }
            }
            ShardInput::TaskResult(result) => self.handle_result(now, *result, schemas),
            ShardInput::CalleeWait(report) => self.handle_callee_wait(now, *report),
            ShardInput::Archived { execution, end_number } => {
                self.table.close(&mut self.builder, &execution, end_number);
                if self.table.known(&execution).is_none() {
                    self.closed_ids.remember(execution.as_str(), now);
                }
            }
            ShardInput::Nothing => {}
        }
    }

    /// Records the end of an outage: for `hand_in_ms` milliseconds, no timer fires that ends the
    /// work of an agent on a task sent earlier. During this time agents deliver the results that
    /// they could not store.
    pub fn handle_outage(&mut self, now: Time, hand_in_ms: Time) {
        self.table.hand_in = HandInTime { from: now, until: now.saturating_add(hand_in_ms) };
    }

    /// Wakes every execution whose deadline had passed when the ends of the inbox were read. Does
    /// nothing until everything up to these ends was handled.
    pub fn handle_timeout(&mut self, ends: &InboxEnds) {
        if !ends.are_reached(&self.positions) {
            return;
        }
        self.now = self.now.max(ends.at);
        self.closed_ids.handle_time(ends.at);
        let at = if seeded_bug!(TimerFiresEarly) { ends.at + 5_000 } else { ends.at };
        self.table.tick(&mut self.builder, at);
    }

    /// Wakes these executions like [`ShardState::handle_timeout`].
    pub fn handle_timeout_of(&mut self, ends: &InboxEnds, executions: &[ExecutionId]) {
        if !ends.are_reached(&self.positions) {
            return;
        }
        self.now = self.now.max(ends.at);
        for execution in executions {
            self.table.tick_one(&mut self.builder, ends.at, execution);
        }
    }

    /// Returns the commit of all inputs since the last one, with executions that are journaled
    /// again; `None` if nothing has to be stored. The state takes no input until
    /// [`ShardState::handle_stored`].
    pub fn poll_commit(&mut self) -> Option<PendingCommit> {
        if self.is_lost {
            return None;
        }
        self.compact();
        if self.builder.is_empty() {
            // Answers to repeated starts need no commit; other effects belong to removed entries.
            for effect in std::mem::take(&mut self.builder.effects) {
                if let Effect::StartDecided { execution, reply, decision } = effect {
                    self.outgoing.push_back(Outgoing::StartAnswer { execution, reply, decision });
                }
            }
            return None;
        }
        let (commit, effects) =
            if seeded_bug!(PositionsAheadOfFacts) && self.positions != self.stored_positions {
                let (owner, positions) = (self.config.owner.clone(), self.positions);
                (Commit { owner, positions, entries: Vec::new() }, Vec::new())
            } else {
                let commit = self.builder.commit(&self.config.owner, self.positions);
                (commit, std::mem::take(&mut self.builder.effects))
            };
        let (body, entries) = (commit.encode(), commit.entries.len());
        self.compaction.bytes += body.len();
        self.in_flight = Some(CommitInFlight::new(commit, effects));
        if seeded_bug!(ActsBeforeStored) {
            self.prepare();
            if let Some(flight) = self.in_flight.take() {
                self.in_flight = Some(CommitInFlight::new(flight.commit.clone(), Vec::new()));
                self.release(flight);
            }
        }
        let after = if seeded_bug!(FenceNotChecked) { u64::MAX } else { self.position };
        Some(PendingCommit { after, body, entries })
    }

    /// Records the journal position of the stored commit. Its messages can now be sent.
    pub fn handle_stored(&mut self, sequence: u64) {
        self.prepare();
        let Some(flight) = self.in_flight.take() else { return };
        self.position = sequence;
        self.stored_positions = flight.commit.positions;
        self.table.committed(sequence, &flight.commit);
        self.release(flight);
    }

    /// Drops the state: the commit was not stored, so only the journal is valid.
    pub fn handle_lost(&mut self) {
        if seeded_bug!(StateKeptAfterLostAppend) {
            return self.handle_stored(self.position);
        }
        self.is_lost = true;
        self.in_flight = None;
        self.outgoing.clear();
        self.shown.clear();
        self.builder = CommitBuilder::default();
        self.table = ExecutionTable::default();
    }

    /// Returns true if the shard has to be reopened before any other operation.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns the next message of a stored commit.
    pub fn poll_outgoing(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// Returns observations since the last call, for logs and metrics.
    pub fn take_notices(&mut self) -> Vec<ShardNotice> {
        let loads = std::mem::take(&mut self.table.loads);
        if loads > 0 {
            self.notices.push(ShardNotice::ExecutionsLoaded(loads));
        }
        std::mem::take(&mut self.notices)
    }

    /// Ends a turn: evicts executions above the memory limit. Returns the sequence below which the
    /// journal can be purged, or `None` if a purge is not worthwhile yet.
    pub fn end_turn(&mut self) -> Option<u64> {
        self.table.evict();
        let cut = self.compaction.cut?;
        if seeded_bug!(PurgeTooFar) {
            return Some(self.position);
        }
        let keep = self.table.oldest().unwrap_or(self.position);
        (keep >= cut).then_some(keep)
    }

    /// Records that the journal was purged.
    pub fn handle_purged(&mut self) {
        self.compaction = CompactionState { bytes: self.table.size(), cut: None };
    }

    /// Returns when [`ShardState::handle_timeout`] is due; `None` without a deadline.
    pub fn next_timeout(&self) -> Option<Time> {
        let due = self.table.next_due();
        if seeded_bug!(TimerFiresEarly) { due.map(|due| due.saturating_sub(5_000)) } else { due }
    }

    /// Returns up to `most` executions that [`ShardState::handle_timeout_of`] would wake.
    pub fn due_executions(&self, ends: &InboxEnds, most: usize) -> Vec<ExecutionId> {
        if !ends.are_reached(&self.positions) {
            return Vec::new();
        }
        self.table.due_now(ends.at, most)
    }

    /// Returns up to `most` overdue agents' tasks that [`ShardState::handle_timeout`] would end
    /// now.
    pub fn due_tasks(&mut self, ends: &InboxEnds, most: usize) -> Vec<DueTask> {
        let mut tasks = Vec::new();
        for execution in self.due_executions(ends, most) {
            let HandInTime { from, until } = self.table.hand_in;
            let Some(active) = self.table.load(&execution) else { continue };
            if ends.at >= until || !active.has_due_task_timer(ends.at, from) {
                tasks.extend(active.due_tasks(ends.at));
            }
        }
        tasks.truncate(most);
        tasks
    }

    /// Returns the request of a result, if the result is accepted now and comes from the called
    /// agent.
    pub fn request_of(&mut self, result: &ResultInput) -> Option<Arc<TaskRequest>> {
        let active = self.table.load(&result.execution)?;
        let ask = active.task(&result.task).and_then(|(act, attempt)| active.ask(act, attempt))?;
        result.agent.stands_for(ask.target.name()).then(|| Arc::clone(ask))
    }

    /// Returns true if a task was dispatched and its result is accepted now.
    pub fn awaits(&mut self, execution: &ExecutionId, task: &TaskId) -> bool {
        let Some(active) = self.table.load(execution) else { return false };
        active.task(task).is_some_and(|(act, attempt)| active.state().act(act).running == Some(attempt))
    }

    /// Returns the open executions created before this time.
    pub fn created_before(&self, before: Time) -> Vec<ExecutionId> {
        self.table.created_before(before)
    }

    /// Returns an execution's unanswered tasks that were sent before this time.
    pub fn tasks_sent_before(&mut self, execution: &ExecutionId, before: Time) -> Vec<Outgoing> {
        let Some(active) = self.table.load(execution) else { return Vec::new() };
        let is_old = |action: &Action| match action {
            Action::Send { act, .. } => active.state().act(*act).sent_at.is_some_and(|at| at < before),
            _ => false,
        };
        let old: Vec<Action> = active.outstanding().into_iter().filter(is_old).collect();
        let tasks = old.into_iter().map(|action| Outgoing::of(active, action));
        tasks.filter(|task| matches!(task, Outgoing::Task { .. })).collect()
    }

    /// Returns the running executions that an agent started during a task, with that task.
    pub fn callees(&self) -> impl Iterator<Item = (&ExecutionId, &CallingRef)> {
        self.table.callees()
    }

    /// Returns true if the activation of a task failed or was cancelled, so that executions started
    /// during the task are no longer needed. A later attempt of an activation may wait for an
    /// execution that an earlier one started. Returns `None` if the execution is not open in this
    /// shard.
    pub fn has_task_failed(&mut self, calling: &CallingRef) -> Option<bool> {
        if self.table.held_one(&calling.execution).is_some() {
            return Some(false);
        }
        let active = self.table.load(&calling.execution)?;
        let task = active.find_task(&calling.task);
        Some(task.is_some_and(|(act, _)| has_failed(active.state(), act)))
    }

    /// Returns the constant properties of shard and owner.
    pub fn config(&self) -> &Arc<ShardConfig> {
        &self.config
    }

    /// Returns the positions up to which the state includes the inputs.
    pub fn positions(&self) -> Positions {
        self.positions
    }

    /// Returns the journal position known to this owner.
    pub fn journal_position(&self) -> u64 {
        self.position
    }

    /// Returns one row for every open execution.
    pub fn summaries(&self) -> Vec<Summary> {
        self.table.summaries()
    }

    /// Returns an open execution as in its record; a held one includes the reason.
    pub fn shown(&self, execution: &ExecutionId) -> Option<StoredExecution> {
        self.table.shown(execution)
    }

    /// Returns the remembered verdicts on commands to an execution, open or not.
    pub fn verdicts_of(&self, execution: &ExecutionId) -> Vec<Verdict> {
        self.table.verdicts_of(execution)
    }

    /// Returns the held executions with the reasons.
    pub fn held(&self) -> impl Iterator<Item = (&StoredExecution, &Fault)> {
        self.table.held()
    }

    /// Returns the number of open executions that are not held.
    pub fn open_count(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of open executions that only wait for a person.
    pub fn waiting_count(&self) -> usize {
        self.table.waiting_count()
    }

    /// Returns the start of the oldest open execution that is not held, milliseconds since 1970 UTC.
    pub fn oldest_start(&self) -> Option<Time> {
        self.table.oldest_start()
    }

    /// Returns the start of the oldest execution that only waits for a person.
    pub fn oldest_waiting_start(&self) -> Option<Time> {
        self.table.oldest_waiting_start()
    }

    /// Returns the number of executions whose facts are folded.
    pub fn active_count(&self) -> usize {
        self.table.active_count()
    }

    /// Folds a stored execution of the journal and repeats its outstanding actions. With a hold, or
    /// without a program, the execution is held.
    pub(crate) fn take_stored(&mut self, stored: StoredExecution, program: Result<Program, Fault>) {
        let outgoing = &mut self.outgoing;
        self.table.take(stored, program, |active| {
            if seeded_bug!(OutstandingNotRepeated) {
                return;
            }
            outgoing.extend(active.outstanding().into_iter().map(|action| Outgoing::of(active, action)));
            // The last owner may not have sent the report; an ended execution includes it in its
            // end.
            let report = active.wait_report().filter(|_| !active.state().ended);
            outgoing.extend(report.map(|report| Outgoing::WaitReport(Box::new(report))));
        });
    }

    /// Journals old executions again, a few at a time, once open executions probably need only a
    /// small part of the journal.
    fn compact(&mut self) {
        let CompactionState { bytes, cut } = self.compaction;
        if cut.is_none() && bytes > self.config.compaction_threshold_bytes && bytes > 2 * self.table.size() {
            self.compaction.cut = Some(self.position);
        }
        if let Some(cut) = self.compaction.cut {
            self.table.compact(&mut self.builder, cut, COMPACTION_STEP_BYTES);
        }
    }
}

impl std::fmt::Debug for ShardState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardState")
            .field("shard", &self.config.shard)
            .field("open", &self.table.len())
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
