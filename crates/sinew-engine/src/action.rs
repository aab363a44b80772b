//! What must happen outside because of a fact, and what an execution waits for.

use std::sync::Arc;

use serde::Serialize;

use crate::ask::Ask;
use crate::decide::ATTEMPT_TIMED_OUT;
use crate::fact::{Fact, Outcome, Wait};
use crate::graph::Graph;
use crate::state::{Phase, State, TimerKind};
use crate::{ActId, Time};

/// Something a shell does after the fact it comes from was stored. Doing it twice does no harm: the ids are the same.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a task.
    Send {
        /// The activation.
        act: ActId,
        /// Its attempt; with the activation it names the task.
        attempt: u32,
        /// What is asked.
        ask: Arc<Ask>,
        /// When the attempt is given up.
        deadline: Option<Time>,
    },
    /// Tell an agent that its task is given up.
    Cancel {
        /// The activation.
        act: ActId,
        /// Its attempt.
        attempt: u32,
        /// Who works on it.
        ask: Arc<Ask>,
    },
    /// The execution ended: archive it, answer its caller.
    Finish(Outcome),
}

/// Actions of one fact of the round that was just applied.
pub(crate) fn react(_graph: &Graph, state: &State, fact: &Fact) -> Vec<Action> {
    match fact {
        Fact::Dispatched { act, attempt, ask, deadline, .. } => {
            vec![Action::Send { act: *act, attempt: *attempt, ask: Arc::clone(ask), deadline: *deadline }]
        }
        Fact::Cancelled { act, .. } => cancel(state, *act, state.act(*act).running).into_iter().collect(),
        Fact::Replied { act, attempt, result: Err(fault), .. } if fault.code == ATTEMPT_TIMED_OUT => {
            cancel(state, *act, Some(*attempt)).into_iter().collect()
        }
        Fact::Ended => state.outcome.clone().map(Action::Finish).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn cancel(state: &State, act: ActId, attempt: Option<u32>) -> Option<Action> {
    let one = state.act(act);
    let attempt = attempt?;
    // The facts of a whole round may be applied by now, the dispatch of the next attempt among them.
    let ask = if attempt == one.attempt { &one.ask } else { &one.asked_before };
    Some(Action::Cancel { act, attempt, ask: Arc::clone(ask.as_ref()?) })
}

/// Actions whose outcome is not known from the facts: what a shell performs again after it folded a journal.
pub(crate) fn outstanding(_graph: &Graph, state: &State) -> Vec<Action> {
    let mut actions = Vec::new();
    for (act, one) in state.acts.iter().enumerate() {
        let (Some(attempt), Some(ask)) = (one.running, &one.ask) else { continue };
        let act = act as ActId;
        actions.push(if one.phase == Phase::Running {
            let deadline = one.timer.map(|timer| timer.at);
            Action::Send { act, attempt, ask: Arc::clone(ask), deadline }
        } else {
            Action::Cancel { act, attempt, ask: Arc::clone(ask) }
        });
    }
    if state.ended {
        actions.extend(state.outcome.clone().map(Action::Finish));
    }
    actions
}

/// What an activation or an execution waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    /// The activation; none for the whole execution.
    pub act: Option<ActId>,
    /// For what.
    #[serde(rename = "for")]
    pub what: WaitingFor,
    /// Since when.
    pub since: Time,
    /// Until when, if there is an end to it.
    pub until: Option<Time>,
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingFor {
    /// An agent's answer.
    Agent {
        /// Its name.
        name: String,
        /// The attempt.
        attempt: u32,
        /// Attempts at this ask so far.
        tries: u32,
    },
    /// A worker that evaluates scripts.
    Evaluation,
    /// The next attempt.
    Retry {
        /// Attempts at this ask so far.
        tries: u32,
    },
    /// Time to pass.
    Sleep,
    /// A person.
    Person(Arc<Wait>),
    /// Children.
    Children {
        /// Ended.
        done: u32,
        /// Started and not ended.
        active: u32,
        /// In all.
        of: u32,
    },
    /// A free place (`parallel`) or the answer of a person before it.
    Turn,
    /// An operator's resume.
    Resume {
        /// Who paused it and why.
        reason: String,
    },
    /// The end of the execution's own time.
    Wall,
}

/// When the execution must be woken, and for whom and why.
pub(crate) fn next_deadline(state: &State) -> Option<(Time, Waiting)> {
    let timer = state.timers.iter().find(|timer| due_matters(state, timer.kind))?;
    let waiting = match timer.act {
        Some(act) => waiting_of(state, act).unwrap_or(Waiting {
            act: Some(act),
            what: WaitingFor::Sleep,
            since: state.at,
            until: Some(timer.at),
        }),
        None => Waiting { act: None, what: WaitingFor::Wall, since: state.started_at, until: Some(timer.at) },
    };
    Some((timer.at, waiting))
}

/// A pause stops what would start something; deadlines go on.
pub(crate) fn due_matters(state: &State, kind: TimerKind) -> bool {
    match kind {
        TimerKind::Backoff | TimerKind::Sleep => state.paused.is_none(),
        TimerKind::Attempt | TimerKind::Person | TimerKind::Activation | TimerKind::Wall => true,
    }
}

/// What every open activation waits for, in the order in which they were made.
pub fn waiting(state: &State) -> Vec<Waiting> {
    let pause = state.paused.as_ref().map(|reason| Waiting {
        act: None,
        what: WaitingFor::Resume { reason: reason.clone() },
        since: state.at,
        until: None,
    });
    pause.into_iter().chain((0..state.acts.len() as ActId).filter_map(|act| waiting_of(state, act))).collect()
}

/// What one activation waits for; none if it is at work in the engine or over.
pub fn waiting_of(state: &State, act: ActId) -> Option<Waiting> {
    let one = state.act(act);
    let name = || one.ask.as_ref().map(|ask| ask.target.name().to_owned()).unwrap_or_default();
    let what = match one.phase {
        Phase::Ready | Phase::Deferred => WaitingFor::Turn,
        Phase::Running if one.ask.as_ref().is_some_and(|ask| ask.is_evaluation()) => WaitingFor::Evaluation,
        Phase::Running => WaitingFor::Agent { name: name(), attempt: one.attempt, tries: one.tries },
        Phase::BackedOff if one.tries == 0 => WaitingFor::Turn,
        Phase::BackedOff => WaitingFor::Retry { tries: one.tries },
        Phase::Sleeping => WaitingFor::Sleep,
        Phase::Waiting => WaitingFor::Person(one.wait.clone().unwrap_or_default()),
        Phase::Owning => {
            let children = one.children.as_deref()?;
            WaitingFor::Children {
                done: children.acts.len() as u32 - children.active,
                active: children.active,
                of: children.list.len() as u32,
            }
        }
        Phase::Begun | Phase::Settled | Phase::Closed => return None,
    };
    let until = one.timer.map(|timer| timer.at).into_iter().chain(one.deadline).min();
    Some(Waiting { act: Some(act), what, since: one.began_at.unwrap_or(one.made_at), until })
}
