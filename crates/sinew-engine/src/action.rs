//! Effects of facts outside the engine, and reasons why an execution waits.

use std::sync::Arc;

use serde::Serialize;
use sinew_protocol::person_wait::PersonWait;
use sinew_protocol::query::ExecutionStatus;

use crate::ask::{RequestTarget, TaskRequest, is_attempt_timeout};
use crate::fact::{ExecutionOutcome, Fact, PersonRequest, TerminalStatus};
use crate::graph::IndexedPlan;
use crate::state::{ActivationPhase, EngineTimer, ExecutionState, TimerKind};
use crate::{ActivationId, Time};

/// An effect that a shell performs after its fact was stored. Repeating it is idempotent, because
/// the ids are the same.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a task.
    Send {
        /// The activation.
        act: ActivationId,
        /// Its attempt; activation and attempt identify the task.
        attempt: u32,
        /// The request.
        ask: Arc<TaskRequest>,
        /// Deadline of the attempt.
        deadline: Option<Time>,
    },
    /// Cancel an agent's task.
    Cancel {
        /// The activation.
        act: ActivationId,
        /// Its attempt.
        attempt: u32,
        /// The cancelled request.
        ask: Arc<TaskRequest>,
    },
    /// The execution ended: archive it and answer its caller.
    Finish(ExecutionOutcome),
}

/// Returns the actions of one fact of the round that was just applied.
pub(crate) fn react(_graph: &IndexedPlan, state: &ExecutionState, fact: &Fact) -> Vec<Action> {
    match fact {
        Fact::Dispatched { act, attempt, ask, deadline, .. } => {
            vec![Action::Send { act: *act, attempt: *attempt, ask: Arc::clone(ask), deadline: *deadline }]
        }
        Fact::Cancelled { act, .. } => cancel(state, *act, state.act(*act).running).into_iter().collect(),
        Fact::Replied { act, attempt, result: Err(fault), .. } if is_attempt_timeout(&fault.code) => {
            cancel(state, *act, Some(*attempt)).into_iter().collect()
        }
        Fact::Ended => state.outcome.clone().map(Action::Finish).into_iter().collect(),
        // The archive also needs the usage.
        Fact::Late { usage, .. } if state.ended && !usage.is_null() => {
            state.outcome.clone().map(Action::Finish).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn cancel(state: &ExecutionState, act: ActivationId, attempt: Option<u32>) -> Option<Action> {
    let one = state.act(act);
    let attempt = attempt?;
    // All facts of a round may already be applied, including the dispatch of the next attempt.
    let ask = if attempt == one.attempt { &one.ask } else { &one.asked_before };
    Some(Action::Cancel { act, attempt, ask: Arc::clone(ask.as_ref()?) })
}

/// Returns the actions that may not have completed: a shell performs them again after it folded a
/// journal.
pub(crate) fn outstanding(_graph: &IndexedPlan, state: &ExecutionState) -> Vec<Action> {
    let mut actions = Vec::new();
    for (act, one) in state.acts.iter().enumerate() {
        let (Some(attempt), Some(ask)) = (one.running, &one.ask) else { continue };
        let act = act as ActivationId;
        actions.push(if one.phase == ActivationPhase::Running {
            // The deadline of a stopped timer is unknown: the owner cancels the attempt when it is
            // due.
            let deadline = one.timer.filter(|_| one.stopped_at.is_none()).map(|timer| timer.at);
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

/// Reason why an activation or an execution waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenWait {
    /// The activation; `None` for the whole execution.
    pub act: Option<ActivationId>,
    /// What it waits for.
    #[serde(rename = "for")]
    pub what: WaitingFor,
    /// Start of the wait.
    pub since: Time,
    /// End of the wait, if it has one.
    pub until: Option<Time>,
}

/// Kind of waiting, with its data.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingFor {
    /// A reply of an agent or a workflow.
    Agent {
        /// Its name.
        name: String,
        /// The attempt.
        attempt: u32,
        /// Number of attempts at this request so far.
        tries: u32,
        /// Whether it is a workflow, whose executions have executors and no heartbeat.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_workflow: bool,
    },
    /// A worker that evaluates scripts.
    Evaluation,
    /// The next attempt.
    Retry {
        /// Number of attempts at this request so far.
        tries: u32,
    },
    /// The end of a sleep.
    Sleep,
    /// A person.
    Person(Arc<PersonRequest>),
    /// A person, on behalf of a callee of this execution.
    CalleePerson {
        /// Name of the agent or workflow that was called.
        name: String,
        /// The attempt.
        attempt: u32,
        /// The oldest question.
        wait: Arc<PersonWait>,
        /// Number of further questions.
        more: u32,
    },
    /// Children.
    Children {
        /// Number of ended children.
        done: u32,
        /// Number of running children.
        active: u32,
        /// Total number of children.
        of: u32,
    },
    /// A free slot (`parallel`), or the answer to an earlier question.
    Turn,
    /// An operator's resume.
    Resume {
        /// Operator and reason of the pause.
        reason: String,
    },
    /// The end of the execution's own time limit.
    Wall,
}

/// Returns when the execution must be woken, with the activation and reason.
pub(crate) fn next_deadline(state: &ExecutionState) -> Option<(Time, OpenWait)> {
    let timer = state.timers.iter().find(|timer| due_matters(state, timer.kind))?;
    let waiting = match timer.act {
        Some(act) => waiting_of(state, act).unwrap_or(OpenWait {
            act: Some(act),
            what: WaitingFor::Sleep,
            since: state.at,
            until: Some(timer.at),
        }),
        None => {
            OpenWait { act: None, what: WaitingFor::Wall, since: state.started_at, until: Some(timer.at) }
        }
    };
    Some((timer.at, waiting))
}

/// Returns whether a timer is due that ends the work of an agent on a task sent before this time.
pub(crate) fn has_due_task_timer(state: &ExecutionState, now: Time, sent_before: Time) -> bool {
    let works = |act: ActivationId| {
        let one = state.act(act);
        one.phase == ActivationPhase::Running
            && one.sent_at.is_some_and(|sent_at| sent_at < sent_before)
            && one.ask.as_ref().is_some_and(|ask| !ask.is_evaluation())
    };
    state.timers.iter().take_while(|timer| timer.at <= now).any(|timer| match timer.kind {
        TimerKind::Attempt => timer.act.is_some_and(works),
        TimerKind::Activation | TimerKind::Wall => (0..state.acts.len() as ActivationId).any(works),
        TimerKind::Backoff | TimerKind::Sleep | TimerKind::Person | TimerKind::Reminder => false,
    })
}

/// Returns whether a due timer takes effect: a pause blocks timers that start work, but not
/// deadlines.
pub(crate) fn due_matters(state: &ExecutionState, kind: TimerKind) -> bool {
    match kind {
        TimerKind::Backoff | TimerKind::Sleep => state.paused.is_none(),
        TimerKind::Attempt
        | TimerKind::Person
        | TimerKind::Reminder
        | TimerKind::Activation
        | TimerKind::Wall => true,
    }
}

/// Returns the wait of each open activation, oldest activation first.
pub fn waiting(state: &ExecutionState) -> Vec<OpenWait> {
    let pause = state.paused.as_ref().map(|reason| OpenWait {
        act: None,
        what: WaitingFor::Resume { reason: reason.clone() },
        since: state.at,
        until: None,
    });
    pause
        .into_iter()
        .chain((0..state.acts.len() as ActivationId).filter_map(|act| waiting_of(state, act)))
        .collect()
}

/// Returns the status of an execution, from its state and its [`waiting`] list: it waits for a
/// person if no other work is in progress.
pub fn execution_status(state: &ExecutionState, waits: &[OpenWait]) -> ExecutionStatus {
    if state.ended {
        return match state.outcome.as_ref().map(|outcome| outcome.status) {
            Some(TerminalStatus::Success) => ExecutionStatus::Success,
            Some(TerminalStatus::Cancelled) => ExecutionStatus::Cancelled,
            Some(TerminalStatus::Failure) | None => ExecutionStatus::Failure,
        };
    }
    if state.paused.is_some() {
        return ExecutionStatus::Paused;
    }
    let works = |wait: &OpenWait| match &wait.what {
        WaitingFor::Agent { .. } | WaitingFor::Evaluation | WaitingFor::Retry { .. } | WaitingFor::Sleep => {
            true
        }
        WaitingFor::CalleePerson { wait, .. } => wait.is_busy,
        _ => false,
    };
    let person =
        |wait: &OpenWait| matches!(wait.what, WaitingFor::Person(_) | WaitingFor::CalleePerson { .. });
    if !waits.iter().any(works) && waits.iter().any(person) {
        return ExecutionStatus::Waiting;
    }
    ExecutionStatus::Running
}

/// Returns the wait of one activation, or `None` if the engine is processing it or it is closed.
pub fn waiting_of(state: &ExecutionState, act: ActivationId) -> Option<OpenWait> {
    let one = state.act(act);
    let name = || one.ask.as_ref().map(|ask| ask.target.name().to_owned()).unwrap_or_default();
    let what = match one.phase {
        ActivationPhase::Ready | ActivationPhase::Deferred => WaitingFor::Turn,
        ActivationPhase::Running if one.ask.as_ref().is_some_and(|ask| ask.is_evaluation()) => {
            WaitingFor::Evaluation
        }
        ActivationPhase::Running => match one.callee_wait() {
            Some(wait) => WaitingFor::CalleePerson {
                name: name(),
                attempt: one.attempt,
                wait: Arc::clone(wait),
                more: further(one.callee_waits()),
            },
            None => WaitingFor::Agent {
                name: name(),
                attempt: one.attempt,
                tries: one.tries,
                is_workflow: one
                    .ask
                    .as_ref()
                    .is_some_and(|ask| matches!(ask.target, RequestTarget::Workflow(_))),
            },
        },
        ActivationPhase::BackedOff if one.tries == 0 => WaitingFor::Turn,
        ActivationPhase::BackedOff => WaitingFor::Retry { tries: one.tries },
        ActivationPhase::Sleeping => WaitingFor::Sleep,
        ActivationPhase::Waiting => WaitingFor::Person(one.wait.clone().unwrap_or_default()),
        ActivationPhase::Owning => {
            let children = one.children.as_deref()?;
            WaitingFor::Children {
                done: children.acts.len() as u32 - children.active,
                active: children.active,
                of: children.list.len() as u32,
            }
        }
        ActivationPhase::Begun | ActivationPhase::Settled | ActivationPhase::Closed => return None,
    };
    let runs = |timer: &EngineTimer| one.stopped_at.is_none() || timer.kind == TimerKind::Person;
    let timer = one.timer.filter(runs).map(|timer| timer.at);
    let until = timer.into_iter().chain(one.deadline.filter(|_| one.stopped_at.is_none())).min();
    let (since, until) = match &what {
        WaitingFor::CalleePerson { wait, .. } => (wait.since, wait.due),
        _ => (one.began_at.unwrap_or(one.made_at), until),
    };
    Some(OpenWait { act: Some(act), what, since, until })
}

/// Returns the number of questions after the first.
fn further<'a>(waits: impl Iterator<Item = &'a Arc<PersonWait>>) -> u32 {
    // The numbers come from messages and may overflow.
    let all = waits.fold(0_u32, |all, wait| all.saturating_add(wait.more).saturating_add(1));
    all.saturating_sub(1)
}

/// Returns the activations that wait for a person, themselves or through a callee, and whether other work is in progress.
pub fn people_waits(state: &ExecutionState) -> (Vec<OpenWait>, bool) {
    let waits: Vec<OpenWait> = state.asking.iter().filter_map(|act| waiting_of(state, *act)).collect();
    let running = |wait: &&OpenWait| matches!(&wait.what, WaitingFor::CalleePerson { .. });
    let busy = |wait: &OpenWait| matches!(&wait.what, WaitingFor::CalleePerson { wait, .. } if wait.is_busy);
    let is_busy = state.active as usize > waits.iter().filter(running).count() || waits.iter().any(busy);
    (waits, is_busy)
}
