//! One execution that takes inputs: the one place where `decide` and `react` are called.

use std::sync::Arc;

use crate::action::{Action, Waiting, next_deadline, outstanding, react};
use crate::adapter::Adapter;
use crate::apply::apply;
use crate::ctx::Ctx;
use crate::decide::{decide, plan_retry};
use crate::fact::{Fact, Round};
use crate::fold::{BadFact, fold};
use crate::graph::Graph;
use crate::input::{Input, Refused, Retry, RetryPlan};
use crate::state::State;
use crate::wire::encode_round;
use crate::{ActId, Time};

/// Keeper of the rounds of one execution.
pub trait Journal {
    /// Appends the round of one input.
    fn append(&mut self, round: &Round);
}

/// The shell keeps the rounds.
impl Journal for () {
    fn append(&mut self, _round: &Round) {}
}

impl Journal for Vec<Round> {
    fn append(&mut self, round: &Round) {
        self.push(round.clone());
    }
}

/// Rounds as a store has them, see [`encode_round`].
impl Journal for Vec<Vec<u8>> {
    fn append(&mut self, round: &Round) {
        self.push(encode_round(round));
    }
}

/// An execution of one plan: an input becomes facts, the facts become state, and both say what must happen.
///
/// The machine reads no clock and stores nothing outside its memory. A shell stores the round of each [`Decided`]
/// before it performs the actions. A shell that could not store a round replaces the machine by a replayed one.
pub struct Machine<J = Vec<Round>> {
    graph: Arc<Graph>,
    adapter: &'static dyn Adapter,
    state: State,
    journal: J,
}

/// Consequences of one input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// Facts in order, with the time of the decision; the machine has folded and journaled them. Without facts the
    /// input means nothing now, and there is nothing to store.
    pub round: Round,
    /// Actions to perform once the round is stored.
    pub actions: Vec<Action>,
}

impl Decided {
    /// Returns the facts of the round.
    pub fn facts(&self) -> &[Fact] {
        &self.round.facts
    }

    /// Returns true if the input means nothing now.
    pub fn is_empty(&self) -> bool {
        self.round.facts.is_empty()
    }
}

impl<J: Journal + Default> Machine<J> {
    /// Returns a machine that has not started.
    pub fn new(graph: Arc<Graph>, adapter: &'static dyn Adapter) -> Self {
        Self::from_state(graph, adapter, State::new(), J::default())
    }

    /// Folds a stored journal. Refuses a damaged one and one of another plan; [`Machine::outstanding`] has the actions
    /// to perform again.
    pub fn replay<'r>(
        graph: Arc<Graph>,
        adapter: &'static dyn Adapter,
        rounds: impl IntoIterator<Item = &'r Round>,
    ) -> Result<Self, BadFact> {
        let mut machine = Self::new(graph, adapter);
        for round in rounds {
            machine.replay_round(round)?;
        }
        Ok(machine)
    }

    /// Folds a journal that this process wrote, without the checks of [`Machine::replay`].
    pub fn recover<'r>(
        graph: Arc<Graph>,
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

impl<J: Journal> Machine<J> {
    /// Returns a machine that goes on from a state, for example a snapshot, and appends to this journal.
    pub fn from_state(graph: Arc<Graph>, adapter: &'static dyn Adapter, state: State, journal: J) -> Self {
        Self { graph, adapter, state, journal }
    }

    /// Folds one more round of a stored journal. A round with an impossible fact leaves the state of the facts before it.
    pub fn replay_round(&mut self, round: &Round) -> Result<(), BadFact> {
        for fact in &round.facts {
            fold(&self.graph, &mut self.state, round.at, fact)?;
        }
        self.journal.append(round);
        Ok(())
    }

    /// Takes an input: decides, folds and journals the facts, and returns them with the actions they require.
    ///
    /// A refused input changes nothing. A `now` before the last round counts as the time of that round, because time
    /// never runs backwards in a journal.
    pub fn handle(&mut self, now: Time, input: Input) -> Result<Decided, Refused> {
        let at = now.max(self.state.at);
        let facts = decide(&self.graph, self.adapter, &mut self.state, at, input)?;
        let actions = facts.iter().flat_map(|fact| react(&self.graph, &self.state, fact)).collect();
        let round = Round { at, facts };
        if !round.facts.is_empty() {
            self.journal.append(&round);
        }
        Ok(Decided { round, actions })
    }

    /// Returns the actions whose outcome the facts do not tell: a shell performs them again after a replay.
    pub fn outstanding(&self) -> Vec<Action> {
        outstanding(&self.graph, &self.state)
    }

    /// Returns the time at which the machine needs [`Input::Tick`], and for whom and why; `None` without a deadline.
    pub fn next_deadline(&self) -> Option<(Time, Waiting)> {
        next_deadline(&self.state)
    }

    /// Returns what a retry would do, without doing it.
    pub fn plan_retry(&self, retry: &Retry) -> Result<RetryPlan, Refused> {
        plan_retry(&self.graph, self.adapter, &self.state, retry)
    }

    /// Returns what an adapter sees now.
    pub fn context(&self) -> Ctx<'_> {
        Ctx::new(&self.graph, &self.state, self.state.at)
    }

    /// Returns the id in the plan of the node that an activation runs.
    pub fn node_id(&self, act: ActId) -> &str {
        &self.graph.plan().node(self.state.act(act).node).id
    }

    /// Returns the plan and its adjacency.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Returns the adapter of the plan's dialect.
    pub fn adapter(&self) -> &'static dyn Adapter {
        self.adapter
    }

    /// Returns the fold of the rounds.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the journal.
    pub fn journal(&self) -> &J {
        &self.journal
    }
}

impl Machine {
    /// Calls `visit` with each fact and what an adapter sees just after it.
    pub fn visit_facts(&self, mut visit: impl FnMut(&Ctx<'_>, &Fact)) {
        let mut state = State::new();
        for round in &self.journal {
            for fact in &round.facts {
                apply(&self.graph, &mut state, round.at, fact);
                visit(&Ctx::new(&self.graph, &state, round.at), fact);
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
