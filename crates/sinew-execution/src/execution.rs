//! Execution in one process: a machine that keeps its rounds, with its id and program.

use std::sync::Arc;

use sinew_engine::{Action, AdapterContext, Decided, EngineInput, Fact, FactError, Machine, NativeEvent};
use sinew_engine::{ExecutionState, InputRefusal, OpenWait, Round, Time};
use sinew_protocol::ExecutionId;
use sinew_protocol::deployment::WORKFLOW_PAUSE_PREFIX;

use crate::native_events::NativeEvents;
use crate::program::Program;

/// Execution in one process.
#[derive(Clone, Debug)]
pub struct Execution {
    id: ExecutionId,
    program: Program,
    machine: Machine,
}

impl Execution {
    /// Returns an execution that has not started.
    pub fn new(id: ExecutionId, program: Program) -> Self {
        let machine = program.machine().with_execution_id(id.as_str());
        Self { id, program, machine }
    }

    /// Folds a journal from external storage, and rejects one that does not fit the plan.
    pub fn read(id: ExecutionId, program: Program, journal: &[Round]) -> Result<Self, FactError> {
        let machine = Machine::replay(Arc::clone(&program.graph), program.adapter, journal)?;
        let machine = machine.with_execution_id(id.as_str());
        Ok(Self { id, program, machine })
    }

    /// Folds a journal that this process wrote. [`Execution::outstanding`] returns the interrupted
    /// actions.
    pub fn recover(id: ExecutionId, program: Program, journal: &[Round]) -> Self {
        let machine = Machine::recover(Arc::clone(&program.graph), program.adapter, journal);
        let machine = machine.with_execution_id(id.as_str());
        Self { id, program, machine }
    }

    /// Processes an input: decides, appends, applies, and returns the required actions.
    pub fn input(&mut self, now: Time, input: EngineInput) -> Result<Decided, InputRefusal> {
        self.machine.handle(now, input)
    }

    /// Returns the actions without a known result: they are performed again after
    /// [`Execution::recover`].
    pub fn outstanding(&self) -> Vec<Action> {
        self.machine.outstanding()
    }

    /// Returns the id of the execution.
    pub fn id(&self) -> &ExecutionId {
        &self.id
    }

    /// Returns the plan and the adapter of its dialect.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the fold of the journal.
    pub fn state(&self) -> &ExecutionState {
        self.machine.state()
    }

    /// Returns the rounds so far.
    pub fn journal(&self) -> &[Round] {
        self.machine.journal()
    }

    /// Returns the adapter's view of the execution.
    pub fn ctx(&self) -> AdapterContext<'_> {
        self.machine.context().with_execution_id(self.id.as_str())
    }

    /// Returns the time at which the execution must be woken, and the reason.
    pub fn next_deadline(&self) -> Option<(Time, OpenWait)> {
        self.machine.next_deadline()
    }

    /// Returns the events of the dialect, derived from the journal.
    pub fn native_events(&self) -> Vec<NativeEvent> {
        let (mut events, mut projection) = (Vec::new(), NativeEvents::default());
        self.replay(|ctx, fact| events.extend(projection.of_fact(self.program.adapter, ctx, fact)));
        events
    }

    /// Returns why the execution has not started work: its workflow is paused. `None` if it has, or if
    /// an operator paused it.
    pub fn kept_reason(&self) -> Option<&str> {
        let state = self.state();
        let reason = state.paused.as_deref().filter(|reason| reason.starts_with(WORKFLOW_PAUSE_PREFIX));
        reason.filter(|_| !state.ended)
    }

    /// Returns the current result object of the dialect.
    pub fn native_result(&self) -> serde_json::Value {
        self.program.adapter.native_result(&self.ctx())
    }

    /// Visits the journal: each fact with the state just after it.
    pub fn replay(&self, mut visit: impl FnMut(&AdapterContext<'_>, &Fact)) {
        self.machine.visit_facts(|ctx, fact| {
            let ctx = AdapterContext::new(ctx.graph, ctx.state, ctx.now);
            visit(&ctx.with_execution_id(self.id.as_str()), fact);
        });
    }
}
