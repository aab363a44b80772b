//! One open execution in the memory of its shard's owner.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use sinew_engine::{
    Action, ActivationId, ActivationPhase, AdapterContext, EngineInput, ExecutionState, Fact, InputRefusal,
    Machine, RequestTarget, TaskRequest, Time, decode_round, encode_round,
};
use sinew_protocol::code;
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::person_wait::{PersonWait, WaitReport};
use sinew_protocol::{ActivationKey, Fault, TaskId, Token};

use crate::bug::seeded_bug;
use crate::stored::StoredExecution;
use crate::summary::RowState;
use crate::timer_check::DueTask;
use sinew_execution::Program;
use sinew_execution::events::KnownTasks;
use sinew_execution::{Call, TaskKey, activation_key, call_with_ids, path};

/// The code of the dialect or the engine panicked on an input.
pub const CODE_BROKE: &str = code::WORKFLOW_CODE_PANICKED.as_str();
/// A journal cannot be folded with the plan that it names.
pub(crate) const UNREADABLE: &str = code::JOURNAL_CANNOT_BE_FOLDED.as_str();

/// An execution that cannot be folded, with the reason.
pub(crate) type LoadError = Box<(StoredExecution, Fault)>;

/// Result of one input.
pub(crate) struct DecidedRound {
    /// The encoded round for the journal; `None` if the input had no effect.
    pub(crate) round: Option<Bytes>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) actions: Vec<Action>,
}

/// Reason why an input was rejected.
pub(crate) enum InputError {
    /// The execution's state does not allow it. Nothing was changed.
    Refused(InputRefusal),
    /// The code panicked. The state was dropped and folded again.
    Broke(Fault),
}

/// An execution whose facts are folded.
pub(crate) struct ActiveExecution {
    pub(crate) stored: StoredExecution,
    pub(crate) program: Program,
    /// The rounds are in `stored`.
    machine: Machine<()>,
    tasks: HashMap<TaskId, (ActivationId, u32)>,
    /// Ids of dispatched attempts, cached because computing them takes hashes.
    ids: KnownTasks,
    /// The wait for a person that was reported to the caller.
    reported: Option<PersonWait>,
    /// Its time in the shard's table of deadlines.
    pub(crate) due: Option<Time>,
    /// Whether an input changed it since the memory limit was last checked.
    pub(crate) touched: bool,
}

/// An open execution that is folded on its next input.
pub(crate) struct EvictedExecution {
    pub(crate) stored: StoredExecution,
    program: Program,
    /// As in [`ActiveExecution`].
    pub(crate) due: Option<Time>,
    /// Its row in lists, so that listing requires no folding.
    pub(crate) row: RowState,
}

impl EvictedExecution {
    /// Folds the execution again.
    pub(crate) fn load(self) -> Result<ActiveExecution, LoadError> {
        let due = self.due;
        ActiveExecution::fold(self.stored, self.program).map(|open| ActiveExecution { due, ..open })
    }
}

impl ActiveExecution {
    /// Creates an execution that has not started.
    pub(crate) fn new(meta: ExecutionMeta, program: Program) -> Self {
        let stored = StoredExecution::new(meta);
        let machine = program.machine().with_execution_id(stored.meta.execution.as_str());
        Self::with_machine(stored, program, machine)
    }

    fn with_machine(stored: StoredExecution, program: Program, machine: Machine<()>) -> Self {
        let (tasks, ids) = (HashMap::new(), HashMap::new());
        Self { stored, program, machine, tasks, ids, reported: None, due: None, touched: false }
    }

    /// Folds the facts of the journal.
    pub(crate) fn fold(stored: StoredExecution, program: Program) -> Result<Self, LoadError> {
        match refold(&stored, &program) {
            Ok(machine) => {
                let mut open = Self::with_machine(stored, program, machine);
                open.index_tasks();
                // An owner that folds the journal after a takeover always repeats the report.
                open.reported = open.person_wait();
                Ok(open)
            }
            Err(fault) => Err(Box::new((stored, fault))),
        }
    }

    /// Drops the folded state and keeps the stored facts.
    pub(crate) fn evict(mut self) -> EvictedExecution {
        self.stored.rounds.shrink();
        let row = RowState::of(self.machine.state());
        EvictedExecution { stored: self.stored, program: self.program, due: self.due, row }
    }

    /// Decides and folds an input. The caller stores the round before it acts.
    pub(crate) fn input(&mut self, now: Time, input: EngineInput) -> Result<DecidedRound, InputError> {
        let decided = catch_unwind(AssertUnwindSafe(|| self.machine.handle(now, input)));
        let sinew_engine::Decided { round, actions } = match decided {
            Ok(Ok(decided)) => decided,
            Ok(Err(refused)) => return Err(InputError::Refused(refused)),
            Err(_) => {
                // A decision may be folded partially, so the state is folded again from the stored
                // rounds.
                if let Ok(machine) = refold(&self.stored, &self.program) {
                    self.machine = machine;
                }
                let text = "the workflow's code panicked on this input, so the input was not applied";
                return Err(InputError::Broke(Fault::error(CODE_BROKE, text).with_retryable(false)));
            }
        };
        for action in &actions {
            if let Action::Send { act, attempt, .. } = action {
                self.index(*act, *attempt);
            }
        }
        if round.facts.is_empty() {
            return Ok(DecidedRound { round: None, facts: round.facts, actions });
        }
        let bytes = Bytes::from(encode_round(&round));
        self.stored.rounds.push(&bytes);
        Ok(DecidedRound { round: Some(bytes), facts: round.facts, actions })
    }

    /// Returns the actions to repeat, because they may not have completed.
    pub(crate) fn outstanding(&self) -> Vec<Action> {
        self.machine.outstanding()
    }

    /// Returns the unanswered tasks of agents and workflows, with the agent's or workflow's name.
    pub(crate) fn asked(&self) -> Vec<(TaskId, Token)> {
        let asked = self.outstanding().into_iter().filter_map(|action| match action {
            Action::Send { act, attempt, ask, .. } if !ask.is_evaluation() => {
                let (_, task) = self.ids.get(&(act, attempt))?;
                Some((task.clone(), Token::of(ask.target.name())))
            }
            _ => None,
        });
        asked.collect()
    }

    /// Returns the activation and attempt of a dispatched task.
    pub(crate) fn task(&self, task: &TaskId) -> Option<(ActivationId, u32)> {
        self.tasks.get(task).copied()
    }

    /// Returns the number of the execution's current end: a retry leads to another end, and late
    /// usage changes the record.
    pub(crate) fn end_number(&self) -> u32 {
        let state = self.machine.state();
        state.reopened + if seeded_bug!(LateUsageNotArchived) { 0 } else { state.late_usages }
    }

    /// Returns true if a result of this attempt is accepted now.
    pub(crate) fn awaits(&self, act: ActivationId, attempt: u32) -> bool {
        let one = self.machine.state().act(act);
        one.running == Some(attempt) && one.phase == ActivationPhase::Running
    }

    /// Returns the activation and attempt of any task of the execution, including completed ones.
    pub(crate) fn find_task(&self, task: &TaskId) -> Option<(ActivationId, u32)> {
        let past = || {
            let acts = self.machine.state().acts.iter().enumerate();
            let mut attempts = acts
                .flat_map(|(act, one)| (1..=one.attempt).map(move |attempt| (act as ActivationId, attempt)));
            attempts.find(|(act, attempt)| self.make_ids(*act, *attempt).1 == *task)
        };
        self.task(task).or_else(past)
    }

    /// Returns the request of an activation's running attempt.
    pub(crate) fn ask(&self, act: ActivationId, attempt: u32) -> Option<&Arc<TaskRequest>> {
        let one = self.machine.state().act(act);
        (one.attempt == attempt).then_some(one.ask.as_ref()).flatten()
    }

    pub(crate) fn call(
        &self,
        act: ActivationId,
        attempt: u32,
        ask: Arc<TaskRequest>,
        deadline: Option<Time>,
    ) -> Call {
        let key = TaskKey { run: 0, act, attempt };
        let ids = self.ids.get(&(act, attempt)).cloned().unwrap_or_else(|| self.make_ids(act, attempt));
        let state = self.machine.state();
        call_with_ids(&self.stored.meta.execution, &self.program, state, key, ids, ask, deadline)
    }

    fn make_ids(&self, act: ActivationId, attempt: u32) -> (ActivationKey, TaskId) {
        let execution = &self.stored.meta.execution;
        let (plan, state) = (self.program.graph.plan(), self.machine.state());
        let activation = if seeded_bug!(MapRepeatsItsTaskIds) {
            let one = state.act(act);
            let scopes = path(plan, state, act);
            let scopes: Vec<(&str, u32)> =
                scopes.iter().map(|(node, index)| (node.as_str(), *index)).collect();
            ActivationKey::of(execution, &plan.node(one.node).id, &scopes, one.ordinal)
        } else {
            activation_key(execution, plan, state, act)
        };
        let task = TaskId::of(execution, &activation, attempt);
        (activation, task)
    }

    /// Returns the wait for a person as callers see it, or `None` if the execution waits for no
    /// person.
    fn person_wait(&self) -> Option<PersonWait> {
        crate::person_wait::person_wait(&self.stored.meta, &self.machine.context())
    }

    /// Returns the report for the caller if the wait for a person has changed since the last
    /// report.
    pub(crate) fn poll_wait_report(&mut self) -> Option<WaitReport> {
        self.stored.meta.caller_task()?;
        let wait = self.person_wait();
        if wait == self.reported {
            return None;
        }
        self.reported = wait;
        self.wait_report()
    }

    /// Returns the current report for the caller, or `None` if the execution has no caller or never
    /// waited for a person.
    pub(crate) fn wait_report(&self) -> Option<WaitReport> {
        let (execution, task) = self.stored.meta.caller_task()?;
        if !self.machine.state().has_asked {
            return None;
        }
        Some(WaitReport {
            execution: execution.clone(),
            task: task.clone(),
            callee: self.stored.meta.execution.clone(),
            number: self.stored.rounds.count() as u64,
            wait: self.person_wait(),
            proof: String::new(),
        })
    }

    pub(crate) fn state(&self) -> &ExecutionState {
        self.machine.state()
    }

    pub(crate) fn ctx(&self) -> AdapterContext<'_> {
        self.machine.context()
    }

    /// Returns the ids of tasks dispatched since the execution was folded.
    pub(crate) fn known_tasks(&self) -> &KnownTasks {
        &self.ids
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.machine.next_deadline().map(|(at, _)| at)
    }

    /// Returns true if a due timer would end the work of an agent on a task sent before this time.
    pub(crate) fn has_due_task_timer(&self, now: Time, sent_before: Time) -> bool {
        self.machine.has_due_task_timer(now, sent_before)
    }

    /// Returns agents' tasks whose deadline has passed.
    pub(crate) fn due_tasks(&self, now: Time) -> Vec<DueTask> {
        let is_due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let due = self.outstanding().into_iter().filter_map(|action| match action {
            Action::Send { act, attempt, ask, deadline } if is_due(deadline) => {
                let RequestTarget::Agent(agent) = &ask.target else { return None };
                let (_, task) = self.ids.get(&(act, attempt))?;
                let execution = self.stored.meta.execution.clone();
                Some(DueTask { execution, task: task.clone(), agent: agent.clone(), act, attempt })
            }
            _ => None,
        });
        due.collect()
    }

    fn index(&mut self, act: ActivationId, attempt: u32) {
        if self.ids.contains_key(&(act, attempt)) {
            return;
        }
        let ids = self.make_ids(act, attempt);
        self.tasks.insert(ids.1.clone(), (act, attempt));
        self.ids.insert((act, attempt), ids);
    }

    fn index_tasks(&mut self) {
        for action in self.outstanding() {
            if let Action::Send { act, attempt, .. } | Action::Cancel { act, attempt, .. } = action {
                self.index(act, attempt);
            }
        }
    }
}

impl std::fmt::Debug for ActiveExecution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveExecution")
            .field("execution", &self.stored.meta.execution)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

/// Returns true if an activation failed or was cancelled, or its execution ended before it
/// completed.
pub fn has_failed(state: &ExecutionState, act: ActivationId) -> bool {
    state.act(act).end.map_or(state.ended, |end| !end.is_success())
}

/// Folds stored rounds. A journal of another plan, or a corrupt one, is an error and never a panic.
fn refold(stored: &StoredExecution, program: &Program) -> Result<Machine<()>, Fault> {
    let unreadable = |text: String| Fault::error(UNREADABLE, text).with_retryable(false);
    let mut machine = program.machine().with_execution_id(stored.meta.execution.as_str());
    for (nth, bytes) in stored.rounds.iter().enumerate() {
        let round = decode_round(bytes)
            .map_err(|error| unreadable(format!("round {nth} of the journal: {error}")))?;
        machine
            .replay_round(&round)
            .map_err(|bad| unreadable(format!("round {nth} of the journal: {bad}")))?;
    }
    Ok(machine)
}
