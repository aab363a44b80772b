//! One open execution in the memory of its shard's owner.

use sinew_protocol::code;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sinew_engine::{
    Action, ActivationId, AdapterContext, EngineInput, ExecutionState, Fact, InputRefusal, Machine,
    TaskRequest, Time, decode_round, encode_round,
};
use sinew_protocol::journal::{ExecutionHold, ExecutionMeta, ExecutionRecord, Verdict};
use sinew_protocol::{ActivationKey, Fault, TaskId};
use tracing::debug;

use super::view::RowState;
use crate::call::{Call, TaskKey, activation_key, call_with_ids};
use crate::library::Program;

/// The dialect's or engine's code broke on an input.
pub(super) const BROKE: &str = code::WORKFLOW_CODE_PANICKED.as_str();
/// A journal cannot be folded with the plan it names.
pub(super) const UNREADABLE: &str = code::JOURNAL_CANNOT_BE_FOLDED.as_str();

/// Decisions that take longer are told.
const SLOW_DECISION: Duration = Duration::from_millis(20);

/// Facts of an execution as they stand in the journal; what they mean is not known yet.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Shared with what is being sent for it.
    pub(super) meta: Arc<ExecutionMeta>,
    pub(super) rounds: Log,
    pub(super) verdicts: Vec<Verdict>,
    /// Sequence of the oldest journal message that holds a part of it.
    pub(super) first: u64,
    /// Why no owner works on it, if none does.
    pub(super) hold: Option<ExecutionHold>,
}

impl Stored {
    /// The execution as it is archived and shown.
    pub(super) fn record(&self) -> ExecutionRecord {
        ExecutionRecord {
            meta: ExecutionMeta::clone(&self.meta),
            rounds: self.rounds.to_rounds(),
            commands: self.verdicts.clone(),
            hold: self.hold.clone(),
        }
    }
}

/// Encoded rounds in one piece of memory: most of what an idle execution costs.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Log {
    pub(super) fn push(&mut self, round: &[u8]) {
        self.bytes.extend_from_slice(round);
        self.ends.push(self.bytes.len() as u32);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start as usize..*end as usize])
    }

    pub(super) fn to_rounds(&self) -> Vec<Bytes> {
        self.iter().map(Bytes::copy_from_slice).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// Outcome of one input.
pub(super) struct Decided {
    /// The round as the journal takes it; none when the input meant nothing.
    pub(super) round: Option<Bytes>,
    pub(super) facts: Vec<Fact>,
    pub(super) actions: Vec<Action>,
}

/// Why an input was not taken.
pub(super) enum Unfit {
    /// The execution is in no state for it. Nothing was changed.
    Refused(InputRefusal),
    /// The code broke. The state was thrown away and folded again.
    Broke(Fault),
}

/// An execution whose facts were folded.
pub(super) struct Open {
    pub(super) stored: Stored,
    pub(super) program: Program,
    /// The rounds are in `stored`.
    machine: Machine<()>,
    tasks: HashMap<TaskId, (ActivationId, u32)>,
    /// Ids of attempts that were handed out: made once, of hashes.
    ids: HashMap<(ActivationId, u32), (ActivationKey, TaskId)>,
    /// Its time in the shard's table of deadlines.
    pub(super) due: Option<Time>,
    /// An input changed it since the memory limit was last checked.
    pub(super) touched: bool,
}

/// An open execution that is folded when something comes in for it.
pub(super) struct Cold {
    pub(super) stored: Stored,
    program: Program,
    /// As in [`Open`].
    pub(super) due: Option<Time>,
    /// Its row in lists, so that a list folds nothing.
    pub(super) row: RowState,
    /// How often it was reopened, once it has ended: closing it folds nothing.
    pub(super) ended: Option<u32>,
}

impl Cold {
    /// Folds it again.
    pub(super) fn wake(self) -> Result<Open, Box<(Stored, Fault)>> {
        let due = self.due;
        Open::fold(self.stored, self.program).map(|open| Open { due, ..open })
    }
}

impl Open {
    /// An execution that has not begun.
    pub(super) fn new(meta: ExecutionMeta, program: Program) -> Self {
        let stored = Stored {
            meta: Arc::new(meta),
            rounds: Log::default(),
            verdicts: Vec::new(),
            first: 0,
            hold: None,
        };
        let machine = program.machine();
        Self::with_machine(stored, program, machine)
    }

    fn with_machine(stored: Stored, program: Program, machine: Machine<()>) -> Self {
        let (tasks, ids) = (HashMap::new(), HashMap::new());
        Self { stored, program, machine, tasks, ids, due: None, touched: false }
    }

    /// Folds what the journal holds.
    pub(super) fn fold(stored: Stored, program: Program) -> Result<Self, Box<(Stored, Fault)>> {
        match refold(&stored.rounds, &program) {
            Ok(machine) => {
                let mut open = Self::with_machine(stored, program, machine);
                open.index_tasks();
                Ok(open)
            }
            Err(fault) => Err(Box::new((stored, fault))),
        }
    }

    /// Keeps what the journal holds, and no more.
    pub(super) fn cool(self) -> Cold {
        let state = self.machine.state();
        let (row, ended) = (RowState::of(state), self.ended());
        Cold { stored: self.stored, program: self.program, due: self.due, row, ended }
    }

    /// Takes an input: decides and folds. The caller stores the round before it acts.
    pub(super) fn input(&mut self, now: Time, input: EngineInput) -> Result<Decided, Unfit> {
        let began = Instant::now();
        let decided = catch_unwind(AssertUnwindSafe(|| self.machine.handle(now, input)));
        if began.elapsed() > SLOW_DECISION {
            let (took, meta) = (began.elapsed().as_millis() as u64, &self.stored.meta);
            debug!(execution = %meta.execution, workflow = meta.workflow, took, "a decision took long");
        }
        let sinew_engine::Decided { round, actions } = match decided {
            Ok(Ok(decided)) => decided,
            Ok(Err(refused)) => return Err(Unfit::Refused(refused)),
            Err(_) => {
                // Half a decision may be folded in: only the stored rounds are true.
                if let Ok(machine) = refold(&self.stored.rounds, &self.program) {
                    self.machine = machine;
                }
                let text = "the workflow's code broke on this input; it was set aside";
                return Err(Unfit::Broke(Fault::error(BROKE, text).with_retryable(false)));
            }
        };
        for action in &actions {
            if let Action::Send { act, attempt, .. } = action {
                self.index(*act, *attempt);
            }
        }
        if round.facts.is_empty() {
            return Ok(Decided { round: None, facts: round.facts, actions });
        }
        let bytes = Bytes::from(encode_round(&round));
        self.stored.rounds.push(&bytes);
        Ok(Decided { round: Some(bytes), facts: round.facts, actions })
    }

    /// Returns the actions to repeat because their end is not known.
    pub(super) fn outstanding(&self) -> Vec<Action> {
        self.machine.outstanding()
    }

    /// The activation and attempt of a task that was handed out.
    pub(super) fn task(&self, task: &TaskId) -> Option<(ActivationId, u32)> {
        self.tasks.get(task).copied()
    }

    /// Returns the request of an activation's running attempt.
    pub(super) fn ask(&self, act: ActivationId, attempt: u32) -> Option<&Arc<TaskRequest>> {
        let one = self.machine.state().act(act);
        (one.attempt == attempt).then_some(one.ask.as_ref()).flatten()
    }

    pub(super) fn call(
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

    pub(super) fn state(&self) -> &ExecutionState {
        self.machine.state()
    }

    /// How often it was reopened before it ended; `None` while it goes on.
    pub(super) fn ended(&self) -> Option<u32> {
        let state = self.machine.state();
        state.ended.then_some(state.reopened)
    }

    pub(super) fn ctx(&self) -> AdapterContext<'_> {
        self.machine.context()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.machine.next_deadline().map(|(at, _)| at)
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

/// The fold of stored rounds. A journal of another plan, or a damaged one, is an error and never a panic.
fn refold(rounds: &Log, program: &Program) -> Result<Machine<()>, Fault> {
    let unreadable = |text: String| Fault::error(UNREADABLE, text).with_retryable(false);
    let mut machine = program.machine();
    for (nth, bytes) in rounds.iter().enumerate() {
        let round = decode_round(bytes)
            .map_err(|error| unreadable(format!("round {nth} of the journal: {error}")))?;
        machine
            .replay_round(&round)
            .map_err(|bad| unreadable(format!("round {nth} of the journal: {bad}")))?;
    }
    Ok(machine)
}
