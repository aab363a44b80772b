//! One execution with its journal, checked after every input.

use std::collections::BTreeSet;

use crate::state::{EngineTimer, TimerKind};
use crate::tests::adapter::Scripted;
use crate::tests::properties::chosen_seed;
use crate::tests::script::tell;
use crate::{
    Action, Activation, ActivationId, ActivationPhase, EngineInput, ExecutionState, Fact, IndexedPlan,
    InputRefusal, Machine, Time, decode_round, encode_round,
};

pub(crate) struct World {
    /// The execution with its encoded rounds.
    pub(crate) machine: Machine<Vec<Vec<u8>>>,
    pub(crate) now: Time,
    /// Tasks that were sent, and neither answered nor cancelled.
    pub(crate) tasks: BTreeSet<(ActivationId, u32)>,
    pub(crate) finished: u32,
}

impl World {
    pub(crate) fn new(graph: IndexedPlan) -> Self {
        let machine = Machine::new(graph.into(), &Scripted);
        Self { machine, now: 0, tasks: BTreeSet::new(), finished: 0 }
    }

    pub(crate) fn graph(&self) -> &IndexedPlan {
        self.machine.graph()
    }

    pub(crate) fn state(&self) -> &ExecutionState {
        self.machine.state()
    }

    pub(crate) fn journal(&self) -> &[Vec<u8>] {
        self.machine.journal()
    }

    /// Handles an input; the facts are stored, applied and reacted to.
    pub(crate) fn input(&mut self, input: EngineInput) -> Result<Vec<Fact>, InputRefusal> {
        // A copy costs as much as the input, so only every fourth input is checked.
        let before = self.journal().len().is_multiple_of(4).then(|| self.state().clone());
        match self.machine.handle(self.now, input) {
            Ok(decided) => {
                for fact in decided.facts() {
                    if let Fact::Replied { act, attempt, .. } = fact {
                        self.tasks.remove(&(*act, *attempt));
                    }
                }
                decided.actions.iter().for_each(|action| self.perform(action));
                if decided.is_empty() {
                    assert!(before.is_none_or(|before| before == *self.state()), "no fact, no change");
                } else if chosen_seed().is_some() {
                    let told: Vec<String> =
                        decided.facts().iter().filter_map(|fact| tell(self, fact)).collect();
                    println!("@{} {}", self.now, told.join(" "));
                }
                self.check_state();
                Ok(decided.round.facts)
            }
            Err(refused) => {
                assert!(
                    before.is_none_or(|before| before == *self.state()),
                    "a refused input changed the state: {refused}"
                );
                Err(refused)
            }
        }
    }

    fn perform(&mut self, action: &Action) {
        match action {
            Action::Send { act, attempt, .. } => {
                assert!(self.tasks.insert((*act, *attempt)), "a task was sent twice");
            }
            Action::Cancel { act, attempt, ask } => {
                let one = self.state().act(*act);
                let asked = one.ask.as_ref().map(|ask| ask.target.clone());
                assert!(asked.as_ref() == Some(&ask.target) || one.attempt > *attempt);
                self.tasks.remove(&(*act, *attempt));
            }
            Action::Finish(_) => self.finished += 1,
        }
    }

    /// Returns the state folded from the journal.
    pub(crate) fn fold(&self) -> ExecutionState {
        fold(self.graph(), self.journal())
    }

    /// Drops everything except the journal.
    pub(crate) fn crash(&mut self) {
        let rounds: Vec<_> = self.journal().iter().map(|bytes| decode_round(bytes).unwrap()).collect();
        self.machine = Machine::replay(self.machine.graph().clone(), &Scripted, &rounds)
            .expect("facts of our own making are never refused");
    }

    /// Returns true if an input is expected: from an agent, a person, an operator or a timer.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.tasks.is_empty()
            || self.state().paused.is_some()
            || self.state().waiting().next().is_some()
            || self.machine.next_deadline().is_some()
    }

    fn check_state(&self) {
        let state = self.state();
        let sent: BTreeSet<(ActivationId, u32)> = self
            .machine
            .outstanding()
            .into_iter()
            .filter_map(|action| match action {
                Action::Send { act, attempt, .. } => Some((act, attempt)),
                Action::Cancel { .. } | Action::Finish(_) => None,
            })
            .collect();
        assert_eq!(sent, self.tasks, "what is sent again after a crash is what has no answer");
        let open = state.acts.iter().filter(|one| one.phase != ActivationPhase::Closed).count();
        assert_eq!(state.open as usize, open, "open activations are counted");
        assert!(
            state
                .acts
                .iter()
                .all(|one| !matches!(one.phase, ActivationPhase::Begun | ActivationPhase::Settled)),
            "nothing half done"
        );
        let ready: BTreeSet<ActivationId> = state.ready.iter().copied().collect();
        assert_eq!(ready.len(), state.ready.len(), "nothing is queued twice");
        assert!(
            ready.iter().all(|act| state.act(*act).phase == ActivationPhase::Ready),
            "what is queued is ready"
        );
        assert_eq!(ready.len(), state.acts.iter().filter(|one| one.phase == ActivationPhase::Ready).count());
        for (at, one) in state.acts.iter().enumerate() {
            let act = at as ActivationId;
            let runs = |timer: &EngineTimer| one.stopped_at.is_none() || timer.kind == TimerKind::Person;
            let is_armed = |timer: EngineTimer| state.timers.contains(&timer) == runs(&timer);
            assert!(one.timer.is_none_or(is_armed), "timer of {at} is armed unless its clock is stopped");
            let is_open = one.began_at.is_some() && one.end.is_none();
            let timer = |at: Time| EngineTimer { at, act: Some(act), kind: TimerKind::Activation };
            let is_armed =
                |at: Time| state.timers.contains(&timer(at)) == (is_open && one.stopped_at.is_none());
            assert!(
                one.deadline.is_none_or(is_armed),
                "deadline of {at} is armed unless its clock is stopped"
            );
            let below = |other: &ActivationId| {
                let mut next = Some(*other);
                std::iter::from_fn(|| {
                    let here = next?;
                    next = state.act(here).owner;
                    Some(here)
                })
                .any(|above| above == act)
            };
            let people = state.asking.iter().filter(|other| below(other)).count();
            assert_eq!(one.people as usize, people, "waits for people below {at} are counted");
            if let Some(own) = &one.children {
                assert!(
                    own.limit.is_none_or(|limit| own.active <= limit.max(1)),
                    "never more children than allowed"
                );
            }
        }
        let wall = state.timers.iter().any(|timer| timer.kind == TimerKind::Wall);
        assert!(
            !wall || state.asking.is_empty(),
            "the time of the execution stands while a person is waited for"
        );
        assert!(
            state.stopped_wall.is_none() || !state.asking.is_empty() || state.paused.is_some(),
            "and runs again afterwards"
        );
        let parallel = self.graph().plan().profile.parallel;
        // Activations that waited for a person or for children resume without queueing again.
        let fresh = |one: &&Activation| one.wait.is_none() && one.children.is_none();
        let working = |one: &&Activation| {
            matches!(
                one.phase,
                ActivationPhase::Running | ActivationPhase::BackedOff | ActivationPhase::Sleeping
            )
        };
        let count = state.acts.iter().filter(fresh).filter(working).count();
        assert!(parallel == 0 || count <= parallel as usize, "never more than may run");
        assert!(
            state.start.is_none() || state.ended || self.is_waiting(),
            "nothing is awaited, and it has not ended"
        );
        assert!(!state.ended || (open == 0 && state.timers.is_empty()), "an end is an end");
        assert_eq!(
            self.finished,
            if state.ended { state.reopened + 1 } else { state.reopened },
            "it ends once"
        );
    }

    /// Performs the expensive checks: the stored journal and the stored state equal the state.
    pub(crate) fn check_stored(&self) {
        assert!(self.fold() == *self.state(), "state is the fold of the journal");
        let json = serde_json::to_string(self.state()).unwrap();
        assert!(
            serde_json::from_str::<ExecutionState>(&json).unwrap() == *self.state(),
            "state survives JSON"
        );
    }
}

pub(crate) fn fold(graph: &IndexedPlan, journal: &[Vec<u8>]) -> ExecutionState {
    let mut state = ExecutionState::new();
    for bytes in journal {
        let round = decode_round(bytes).unwrap();
        assert_eq!(&encode_round(&round), bytes, "encoding is canonical");
        for fact in &round.facts {
            crate::fold(graph, &mut state, round.at, fact)
                .expect("facts of our own making are never refused");
        }
    }
    state
}
