//! Runs one execution on inputs. Only this module calls `decide` and `react`.

use std::sync::Arc;

use crate::action::{Action, OpenWait, has_due_task_timer, next_deadline, outstanding, react};
use crate::adapter::Adapter;
use crate::apply::apply;
use crate::ctx::AdapterContext;
use crate::decide::{decide, plan_retry};
use crate::fact::{Fact, Round};
use crate::fold::{FactError, fold};
use crate::graph::IndexedPlan;
use crate::input::{EngineInput, InputRefusal, RetryPlan, RetryRequest};
use crate::state::ExecutionState;
use crate::wire::encode_round;
use crate::{ActivationId, Time};

/// Stores the rounds of one execution.
pub trait RoundJournal {
    /// Appends the round of one input.
    fn append(&mut self, round: &Round);
}

/// Used if the shell stores the rounds.
impl RoundJournal for () {
    fn append(&mut self, _round: &Round) {}
}

impl RoundJournal for Vec<Round> {
    fn append(&mut self, round: &Round) {
        self.push(round.clone());
    }
}

/// Encoded rounds, see [`encode_round`].
impl RoundJournal for Vec<Vec<u8>> {
    fn append(&mut self, round: &Round) {
        self.push(encode_round(round));
    }
}

/// An execution of one plan: converts an input to facts, and facts to state and actions.
///
/// The machine reads no clock and stores nothing outside its memory. A shell stores the round of
/// each [`Decided`] before it performs the actions. If it cannot store a round, it replaces the
/// machine by a replayed one.
pub struct Machine<J = Vec<Round>> {
    graph: Arc<IndexedPlan>,
    adapter: &'static dyn Adapter,
    state: ExecutionState,
    journal: J,
    execution: Option<Box<str>>,
}

/// Consequences of one input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// Facts in order, with the time of the decision; the machine has folded and journaled them.
    /// Without facts the input has no effect, and nothing has to be stored.
    pub round: Round,
    /// Actions to perform after the round is stored.
    pub actions: Vec<Action>,
}

impl Decided {
    /// Returns the facts of the round.
    pub fn facts(&self) -> &[Fact] {
        &self.round.facts
    }

    /// Returns true if the input has no effect.
    pub fn is_empty(&self) -> bool {
        self.round.facts.is_empty()
    }
}

impl<J: RoundJournal + Default> Machine<J> {
    /// Returns a machine that has not started.
    pub fn new(graph: Arc<IndexedPlan>, adapter: &'static dyn Adapter) -> Self {
        Self::from_state(graph, adapter, ExecutionState::new(), J::default())
    }

    /// Folds a stored journal. Rejects a corrupt one and one of another plan;
    /// [`Machine::outstanding`] returns the actions to repeat.
    pub fn replay<'r>(
        graph: Arc<IndexedPlan>,
        adapter: &'static dyn Adapter,
        rounds: impl IntoIterator<Item = &'r Round>,
    ) -> Result<Self, FactError> {
        let mut machine = Self::new(graph, adapter);
        for round in rounds {
            machine.replay_round(round)?;
        }
        Ok(machine)
    }

    /// Folds a journal that this process wrote, without the checks of [`Machine::replay`].
    pub fn recover<'r>(
        graph: Arc<IndexedPlan>,
        adapter: &'static dyn Adapter,
        rounds: impl IntoIterator<Item = &'r Round>,
    ) -> Self {
        let mut machine = Self::new(graph, adapter);
        for round in rounds {
            for fact in &round.facts {
                apply(&machine.graph, &mut machine.state, round.at, fact);
            }
            machine.journal.append(round);
        }
        machine
    }
}

impl<J: RoundJournal> Machine<J> {
    /// Creates a machine that continues from a state, for example a snapshot, and appends to this
    /// journal.
    pub fn from_state(
        graph: Arc<IndexedPlan>,
        adapter: &'static dyn Adapter,
        state: ExecutionState,
        journal: J,
    ) -> Self {
        Self { graph, adapter, state, journal, execution: None }
    }

    /// Sets the id of the machine's execution. Without an id, a dialect's random numbers are the
    /// same for all executions of a plan.
    #[must_use]
    pub fn with_execution_id(self, id: &str) -> Self {
        Self { execution: Some(id.into()), ..self }
    }

    /// Folds one more round of a stored journal. A round with an impossible fact leaves the state
    /// of the preceding facts.
    pub fn replay_round(&mut self, round: &Round) -> Result<(), FactError> {
        for fact in &round.facts {
            fold(&self.graph, &mut self.state, round.at, fact)?;
        }
        self.journal.append(round);
        Ok(())
    }

    /// Handles an input: decides, folds and journals the facts, and returns them with the actions
    /// they require.
    ///
    /// A rejected input changes nothing. A `now` before the last round counts as the time of that
    /// round, because time never runs backwards in a journal.
    pub fn handle(&mut self, now: Time, input: EngineInput) -> Result<Decided, InputRefusal> {
        let at = now.max(self.state.at);
        let place = (self.execution.as_deref(), at);
        let facts = decide(&self.graph, self.adapter, &mut self.state, place, input)?;
        let actions = facts.iter().flat_map(|fact| react(&self.graph, &self.state, fact)).collect();
        let round = Round { at, facts };
        if !round.facts.is_empty() {
            self.journal.append(&round);
        }
        Ok(Decided { round, actions })
    }

    /// Returns the actions that may not have completed: a shell performs them again after a replay.
    pub fn outstanding(&self) -> Vec<Action> {
        outstanding(&self.graph, &self.state)
    }

    /// Returns the time at which the machine needs [`EngineInput::Tick`], with the activation and
    /// reason; `None` without a deadline.
    pub fn next_deadline(&self) -> Option<(Time, OpenWait)> {
        next_deadline(&self.state)
    }

    /// Returns true if a timer is due by `now` that ends the work of an agent on a task sent before
    /// `sent_before`: the timer of its attempt, or of an activation or the execution while the
    /// agent works.
    pub fn has_due_task_timer(&self, now: Time, sent_before: Time) -> bool {
        has_due_task_timer(&self.state, now, sent_before)
    }

    /// Returns the effects of a retry without performing it.
    pub fn plan_retry(&self, retry: &RetryRequest) -> Result<RetryPlan, InputRefusal> {
        plan_retry(&self.graph, self.adapter, &self.state, retry)
    }

    /// Returns the current view for an adapter.
    pub fn context(&self) -> AdapterContext<'_> {
        AdapterContext::new(&self.graph, &self.state, self.state.at).with_id(self.execution.as_deref())
    }

    /// Returns the plan's id of the node that an activation runs.
    pub fn node_id(&self, act: ActivationId) -> &str {
        &self.graph.plan().node(self.state.act(act).node).id
    }

    /// Returns the plan and its adjacency.
    pub fn graph(&self) -> &Arc<IndexedPlan> {
        &self.graph
    }

    /// Returns the adapter of the plan's dialect.
    pub fn adapter(&self) -> &'static dyn Adapter {
        self.adapter
    }

    /// Returns the fold of the rounds.
    pub fn state(&self) -> &ExecutionState {
        &self.state
    }

    /// Returns the journal.
    pub fn journal(&self) -> &J {
        &self.journal
    }
}

impl Machine {
    /// Calls `visit` with each fact and an adapter's view just after it.
    pub fn visit_facts(&self, mut visit: impl FnMut(&AdapterContext<'_>, &Fact)) {
        let mut state = ExecutionState::new();
        for round in &self.journal {
            for fact in &round.facts {
                apply(&self.graph, &mut state, round.at, fact);
                let ctx = AdapterContext::new(&self.graph, &state, round.at);
                visit(&ctx.with_id(self.execution.as_deref()), fact);
            }
        }
    }
}

impl<J: Clone> Clone for Machine<J> {
    fn clone(&self) -> Self {
        Self {
            graph: Arc::clone(&self.graph),
            adapter: self.adapter,
            state: self.state.clone(),
            journal: self.journal.clone(),
            execution: self.execution.clone(),
        }
    }
}

impl<J> std::fmt::Debug for Machine<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("workflow", &self.graph.plan().name)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
