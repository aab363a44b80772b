//! One execution in memory: journal, state, and the fixed order decide → append → apply → act.

use sinew_engine::{Action, BadFact, Ctx, Fact, Input, NativeEvent, Refused, Round, State, Time, Waiting};
use sinew_protocol::ExecutionId;

use crate::library::Program;

/// One execution.
#[derive(Clone, Debug)]
pub struct Execution {
    id: ExecutionId,
    program: Program,
    state: State,
    journal: Vec<Round>,
}

/// What came of one input.
#[derive(Debug, Default)]
pub struct Step {
    /// Facts, in order; the execution has folded them.
    pub facts: Vec<Fact>,
    /// What must happen now.
    pub actions: Vec<Action>,
}

impl Execution {
    /// An execution that has not begun.
    pub fn new(id: ExecutionId, program: Program) -> Self {
        Self { id, program, state: State::new(), journal: Vec::new() }
    }

    /// Folds a journal that was stored elsewhere, and refuses one that does not fit the plan.
    pub fn read(id: ExecutionId, program: Program, journal: Vec<Round>) -> Result<Self, BadFact> {
        let mut state = State::new();
        for round in &journal {
            for fact in &round.facts {
                sinew_engine::fold(&program.graph, &mut state, round.at, fact)?;
            }
        }
        Ok(Self { id, program, state, journal })
    }

    /// Folds a journal of its own. What was under way is in [`Execution::outstanding`].
    pub fn recover(id: ExecutionId, program: Program, journal: Vec<Round>) -> Self {
        let mut state = State::new();
        for round in &journal {
            for fact in &round.facts {
                sinew_engine::apply(&program.graph, &mut state, round.at, fact);
            }
        }
        Self { id, program, state, journal }
    }

    /// Takes an input: decides, appends, applies, and says what must happen.
    pub fn input(&mut self, now: Time, input: Input) -> Result<Step, Refused> {
        // Time never runs backwards in a journal, whatever the clock does.
        let now = now.max(self.state.at);
        let facts =
            sinew_engine::decide(&self.program.graph, self.program.adapter, &mut self.state, now, input)?;
        let actions = facts
            .iter()
            .flat_map(|fact| sinew_engine::react(&self.program.graph, &self.state, fact))
            .collect();
        if !facts.is_empty() {
            self.journal.push(Round { at: now, facts: facts.clone() });
        }
        Ok(Step { facts, actions })
    }

    /// Tasks whose end is not known: what is sent again after [`Execution::recover`].
    pub fn outstanding(&self) -> Vec<Action> {
        sinew_engine::outstanding(&self.program.graph, &self.state)
    }

    /// Its id.
    pub fn id(&self) -> &ExecutionId {
        &self.id
    }

    /// What it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The fold of its journal.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its facts so far.
    pub fn journal(&self) -> &[Round] {
        &self.journal
    }

    /// What an adapter sees of it.
    pub fn ctx(&self) -> Ctx<'_> {
        Ctx::new(&self.program.graph, &self.state, self.state.at)
    }

    /// When it must be woken, and why.
    pub fn next_deadline(&self) -> Option<(Time, Waiting)> {
        sinew_engine::next_deadline(&self.state)
    }

    /// The dialect's own events, made again from the journal.
    pub fn native_events(&self) -> Vec<NativeEvent> {
        let mut events = Vec::new();
        self.replay(|ctx, fact| events.extend(self.program.adapter.project(ctx, fact)));
        events
    }

    /// Returns the dialect's own result object, as it is now.
    pub fn native_result(&self) -> serde_json::Value {
        self.program.adapter.native_result(&self.ctx())
    }

    /// Walks the journal: each fact with the state just after it.
    pub fn replay(&self, mut visit: impl FnMut(&Ctx<'_>, &Fact)) {
        let mut state = State::new();
        for round in &self.journal {
            for fact in &round.facts {
                sinew_engine::apply(&self.program.graph, &mut state, round.at, fact);
                visit(&Ctx::new(&self.program.graph, &state, round.at), fact);
            }
        }
    }
}
