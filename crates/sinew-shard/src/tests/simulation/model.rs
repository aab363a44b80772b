//! The model: executions as recorded in the bus's journals, folded by the engine independently of
//! the owners' state.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sinew_engine::{ActivationId, ActivationPhase, Fact, Machine, Round, Time, decode_round};
use sinew_protocol::journal::{ExecutionMeta, Verdict};
use sinew_protocol::{ExecutionId, TaskId, Token};

use crate::stored::StoredExecution;
use crate::tests::kit::program_by_digest;
use sinew_execution::Program;
use sinew_execution::task_id;

/// A dispatched attempt.
#[derive(Clone, Debug)]
pub(super) struct ModelAttempt {
    pub(super) task: TaskId,
    /// The agent or workflow that was called; `None` for an evaluation.
    pub(super) agent: Option<Token>,
    pub(super) deadline: Option<Time>,
    /// Whether the journal contains its end.
    pub(super) has_reply: bool,
}

/// An execution as recorded in the journal.
pub(super) struct ModelExecution {
    pub(super) shard: u32,
    pub(super) stored: StoredExecution,
    pub(super) program: Program,
    pub(super) machine: Machine<()>,
    /// Whether no entry has closed it.
    pub(super) is_open: bool,
    pub(super) is_paused: bool,
    pub(super) has_ended: bool,
    /// Rounds up to the newest end or later usage; 0 before an end. Later rounds are late results
    /// without usage, which the archive may omit.
    pub(super) rounds_until_end: usize,
    pub(super) attempts: BTreeMap<(ActivationId, u32), ModelAttempt>,
    pub(super) completed: BTreeSet<ActivationId>,
    /// When sleeping activations resume.
    pub(super) slept: BTreeMap<ActivationId, Time>,
}

impl ModelExecution {
    pub(super) fn new(shard: u32, meta: ExecutionMeta) -> Self {
        let program = program_by_digest(&meta.plan).unwrap();
        Self {
            shard,
            machine: program.machine(),
            stored: StoredExecution::new(meta),
            program,
            is_open: true,
            is_paused: false,
            has_ended: false,
            rounds_until_end: 0,
            attempts: BTreeMap::new(),
            completed: BTreeSet::new(),
            slept: BTreeMap::new(),
        }
    }

    /// Folds a round of the journal; returns it, or the reason why it cannot be folded.
    pub(super) fn fold(&mut self, bytes: &[u8]) -> Result<Round, String> {
        let round = decode_round(bytes).map_err(|error| error.to_string())?;
        self.stored.rounds.push(bytes);
        self.machine.replay_round(&round).map_err(|error| error.to_string())?;
        Ok(round)
    }

    /// Handles a fact of a folded round.
    pub(super) fn take(&mut self, fact: &Fact) {
        match fact {
            Fact::Dispatched { act, attempt, ask, deadline, .. } => {
                let (plan, state) = (self.program.graph.plan(), self.machine.state());
                let task = task_id(&self.stored.meta.execution, plan, state, *act, *attempt);
                let agent = (!ask.is_evaluation()).then(|| Token::of(ask.target.name()));
                let one = ModelAttempt { task, agent, deadline: *deadline, has_reply: false };
                self.attempts.insert((*act, *attempt), one);
            }
            Fact::Replied { act, attempt, .. } => {
                if let Some(one) = self.attempts.get_mut(&(*act, *attempt)) {
                    one.has_reply = true;
                }
            }
            Fact::Slept { act, until } => drop(self.slept.insert(*act, *until)),
            Fact::Completed { act, .. } => {
                self.completed.insert(*act);
                self.slept.remove(act);
            }
            Fact::Paused { .. } => self.is_paused = true,
            Fact::Resumed => self.is_paused = false,
            Fact::Ended => {
                (self.has_ended, self.is_paused) = (true, false);
                self.rounds_until_end = self.stored.rounds.count();
            }
            Fact::Late { usage, .. } if self.has_ended && !usage.is_null() => {
                self.rounds_until_end = self.stored.rounds.count();
            }
            Fact::Reopened { .. } => self.has_ended = false,
            _ => {}
        }
    }

    /// Returns the attempt of a task.
    pub(super) fn attempt_of(&self, task: &str) -> Option<((ActivationId, u32), &ModelAttempt)> {
        self.attempts.iter().find(|(_, one)| one.task.as_str() == task).map(|(key, one)| (*key, one))
    }

    /// Returns the number of a map's activations with an attempt in progress.
    pub(super) fn items_in_flight(&self) -> usize {
        let acts = self.machine.state().acts.iter();
        acts.filter(|act| act.owner.is_some() && act.phase == ActivationPhase::Running).count()
    }

    /// Returns true if the execution is paused or waits for a person.
    pub(super) fn needs_a_person(&self) -> bool {
        self.is_open && (self.is_paused || self.machine.state().waiting().next().is_some())
    }

    /// Describes the state of the execution.
    pub(super) fn describe(&self) -> String {
        let (name, shard, ended, hold) = (self.program.name(), self.shard, self.has_ended, &self.stored.hold);
        let waits = sinew_engine::waiting(self.machine.state());
        format!("{} ({name}, shard {shard}, ended: {ended}, {hold:?}): {waits:?}", self.stored.meta.execution)
    }
}

/// Content of all journals.
#[derive(Default)]
pub(super) struct Model {
    pub(super) executions: HashMap<ExecutionId, ModelExecution>,
    /// Verdicts by execution, caller and id of the command.
    pub(super) verdicts: BTreeMap<(ExecutionId, Token, Token), Verdict>,
}

impl Model {
    /// Returns true if the execution is held.
    pub(super) fn is_held(&self, execution: &ExecutionId) -> bool {
        self.executions.get(execution).is_some_and(|one| one.is_open && one.stored.hold.is_some())
    }

    /// Returns true if the execution has started and is not closed.
    pub(super) fn is_open(&self, execution: &ExecutionId) -> bool {
        self.executions.get(execution).is_some_and(|one| one.is_open)
    }

    /// Returns the executions that are not closed, by id.
    pub(super) fn open(&self) -> BTreeMap<&ExecutionId, &ModelExecution> {
        self.executions.iter().filter(|(_, one)| one.is_open).collect()
    }
}
