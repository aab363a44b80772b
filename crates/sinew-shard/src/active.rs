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
use crate::call::{Call, TaskKey, activation_key, call_with_ids};
use crate::events::KnownTasks;
use crate::program::Program;
use crate::stored::StoredExecution;
use crate::summary::RowState;
use crate::timer_check::DueTask;

/// The dialect's or engine's code broke on an input.
pub const CODE_BROKE: &str = code::WORKFLOW_CODE_PANICKED.as_str();
/// A journal cannot be folded with the plan it names.
pub(crate) const UNREADABLE: &str = code::JOURNAL_CANNOT_BE_FOLDED.as_str();

/// An execution that cannot be folded, with the reason.
pub(crate) type LoadError = Box<(StoredExecution, Fault)>;

/// Outcome of one input.
pub(crate) struct DecidedRound {
    /// The round as the journal takes it; none when the input meant nothing.
    pub(crate) round: Option<Bytes>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) actions: Vec<Action>,
}

/// Why an input was not taken.
pub(crate) enum InputError {
    /// The execution is in no state for it. Nothing was changed.
    Refused(InputRefusal),
    /// The code broke. The state was thrown away and folded again.
    Broke(Fault),
}

/// An execution whose facts were folded.
pub(crate) struct ActiveExecution {
    pub(crate) stored: StoredExecution,
    pub(crate) program: Program,
    /// The rounds are in `stored`.
    machine: Machine<()>,
    tasks: HashMap<TaskId, (ActivationId, u32)>,
    /// Ids of attempts that were handed out: made once, of hashes.
    ids: KnownTasks,
    /// The wait for a person that its caller knows of.
    reported: Option<PersonWait>,
    /// Its time in the shard's table of deadlines.
    pub(crate) due: Option<Time>,
    /// An input changed it since the memory limit was last checked.
    pub(crate) touched: bool,
}

/// An open execution that is folded when something comes in for it.
pub(crate) struct EvictedExecution {
    pub(crate) stored: StoredExecution,
    program: Program,
    /// As in [`ActiveExecution`].
    pub(crate) due: Option<Time>,
    /// Its row in lists, so that a list folds nothing.
    pub(crate) row: RowState,
}

impl EvictedExecution {
    /// Folds it again.
    pub(crate) fn load(self) -> Result<ActiveExecution, LoadError> {
        let due = self.due;
        ActiveExecution::fold(self.stored, self.program).map(|open| ActiveExecution { due, ..open })
    }
}

impl ActiveExecution {
    /// An execution that has not begun.
    pub(crate) fn new(meta: ExecutionMeta, program: Program) -> Self {
        let stored = StoredExecution::new(meta);
        let machine = program.machine().with_execution_id(stored.meta.execution.as_str());
        Self::with_machine(stored, program, machine)
    }

    fn with_machine(stored: StoredExecution, program: Program, machine: Machine<()>) -> Self {
        let (tasks, ids) = (HashMap::new(), HashMap::new());
        Self { stored, program, machine, tasks, ids, reported: None, due: None, touched: false }
    }

    /// Folds what the journal holds.
    pub(crate) fn fold(stored: StoredExecution, program: Program) -> Result<Self, LoadError> {
        match refold(&stored, &program) {
            Ok(machine) => {
                let mut open = Self::with_machine(stored, program, machine);
                open.index_tasks();
                // An owner that folds the journal after a takeover sends the report again in any case.
                open.reported = open.person_wait();
                Ok(open)
            }
            Err(fault) => Err(Box::new((stored, fault))),
        }
    }

    /// Keeps what the journal holds, and no more.
    pub(crate) fn evict(mut self) -> EvictedExecution {
        self.stored.rounds.shrink();
        let row = RowState::of(self.machine.state());
        EvictedExecution { stored: self.stored, program: self.program, due: self.due, row }
    }

    /// Takes an input: decides and folds. The caller stores the round before it acts.
    pub(crate) fn input(&mut self, now: Time, input: EngineInput) -> Result<DecidedRound, InputError> {
        let decided = catch_unwind(AssertUnwindSafe(|| self.machine.handle(now, input)));
        let sinew_engine::Decided { round, actions } = match decided {
            Ok(Ok(decided)) => decided,
            Ok(Err(refused)) => return Err(InputError::Refused(refused)),
            Err(_) => {
                // Half a decision may be folded in: only the stored rounds are true.
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

    /// Returns the actions to repeat because their end is not known.
    pub(crate) fn outstanding(&self) -> Vec<Action> {
        self.machine.outstanding()
    }

    /// Returns the tasks that an agent or a workflow was asked to do and has not answered, with its name.
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

    /// The activation and attempt of a task that was handed out.
    pub(crate) fn task(&self, task: &TaskId) -> Option<(ActivationId, u32)> {
        self.tasks.get(task).copied()
    }

    /// Returns the number of the execution's present end: a retry brings another end, and late usage changes the record.
    pub(crate) fn end_number(&self) -> u32 {
        let state = self.machine.state();
        state.reopened + if seeded_bug!(LateUsageNotArchived) { 0 } else { state.late_usages }
    }

    /// Returns true if an answer to this attempt would count now.
    pub(crate) fn awaits(&self, act: ActivationId, attempt: u32) -> bool {
        let one = self.machine.state().act(act);
        one.running == Some(attempt) && one.phase == ActivationPhase::Running
    }

    /// Returns the activation and attempt of any task of the execution, also of one that is over.
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
        let activation = activation_key(execution, &self.program, self.machine.state(), act);
        let task = TaskId::of(execution, &activation, attempt);
        (activation, task)
    }

    /// Returns the wait for a person as callers see it; `None` if no person is waited for.
    fn person_wait(&self) -> Option<PersonWait> {
        crate::person_wait::person_wait(&self.stored.meta, &self.machine.context())
    }

    /// Returns the report for the caller, if the caller does not know yet whether a person is waited for.
    pub(crate) fn poll_wait_report(&mut self) -> Option<WaitReport> {
        self.stored.meta.caller_task()?;
        let wait = self.person_wait();
        if wait == self.reported {
            return None;
        }
        self.reported = wait;
        self.wait_report()
    }

    /// Returns the report for the caller as it is now; `None` if the execution has no caller or never waited for a person.
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

    /// Ids of tasks that were handed out since the execution was folded.
    pub(crate) fn known_tasks(&self) -> &KnownTasks {
        &self.ids
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.machine.next_deadline().map(|(at, _)| at)
    }

    /// Returns true if a timer is due that ends the work of an agent on a task that was sent before a time.
    pub(crate) fn has_due_task_timer(&self, now: Time, sent_before: Time) -> bool {
        self.machine.has_due_task_timer(now, sent_before)
    }

    /// Returns the tasks of agents whose time has run out.
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

/// Returns true if an activation failed or was cancelled, or its execution ended before it.
pub fn has_failed(state: &ExecutionState, act: ActivationId) -> bool {
    state.act(act).end.map_or(state.ended, |end| !end.is_success())
}

/// The fold of stored rounds. A journal of another plan, or a damaged one, is an error and never a panic.
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
