//! What a shard's owner answers about its executions.

use sinew_engine::{State, Status, Waiting, WaitingFor, waiting};
use sinew_protocol::Fault;
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::query::{ExecutionStatus, Summary};

use super::open::Stored;

/// One row of a list.
pub(super) fn summary(stored: &Stored, state: &State) -> Summary {
    let waits = if state.ended { Vec::new() } else { waiting(state) };
    row(&stored.meta, status(state, &waits), state.started_at, ended(state), words(&waits))
}

/// The row of an execution that cannot be folded here.
pub(super) fn broken(stored: &Stored, fault: &Fault) -> Summary {
    let meta = &stored.meta;
    row(meta, ExecutionStatus::Waiting, meta.created, None, Some(format!("an operator: {}", fault.message)))
}

fn row(
    meta: &ExecutionMeta,
    status: ExecutionStatus,
    started: u64,
    ended: Option<u64>,
    waiting: Option<String>,
) -> Summary {
    Summary {
        execution: meta.execution.clone(),
        workflow: meta.workflow.clone(),
        status,
        caller: meta.caller.clone(),
        started,
        ended,
        waiting,
        labels: meta.labels.clone(),
    }
}

/// How an execution stands.
pub fn status(state: &State, waits: &[Waiting]) -> ExecutionStatus {
    if state.ended {
        return match state.outcome.as_ref().map(|outcome| outcome.status) {
            Some(Status::Success) => ExecutionStatus::Success,
            Some(Status::Cancelled) => ExecutionStatus::Cancelled,
            Some(Status::Failure) | None => ExecutionStatus::Failure,
        };
    }
    if state.paused.is_some() {
        return ExecutionStatus::Paused;
    }
    let works = |wait: &Waiting| {
        matches!(
            wait.what,
            WaitingFor::Agent { .. } | WaitingFor::Evaluation | WaitingFor::Retry { .. } | WaitingFor::Sleep
        )
    };
    let person = |wait: &Waiting| matches!(wait.what, WaitingFor::Person(_));
    if !waits.iter().any(works) && waits.iter().any(person) {
        return ExecutionStatus::Waiting;
    }
    ExecutionStatus::Running
}

/// When it ended.
pub fn ended(state: &State) -> Option<u64> {
    state.ended.then_some(state.at)
}

/// What it waits for, in a few words.
pub fn words(waits: &[Waiting]) -> Option<String> {
    let mut all = waits.iter().filter_map(|wait| match &wait.what {
        WaitingFor::Agent { name, attempt, .. } if *attempt > 1 => {
            Some(format!("agent {name}, attempt {attempt}"))
        }
        WaitingFor::Agent { name, .. } => Some(format!("agent {name}")),
        WaitingFor::Evaluation => Some("a script".to_owned()),
        WaitingFor::Retry { tries } => Some(format!("attempt {}", tries + 1)),
        WaitingFor::Sleep => Some("a delay".to_owned()),
        WaitingFor::Person(wait) => Some(format!("a person: {}", first_line(&wait.prompt))),
        WaitingFor::Resume { reason } => Some(format!("resume ({reason})")),
        WaitingFor::Children { .. } | WaitingFor::Turn | WaitingFor::Wall => None,
    });
    let first = all.next()?;
    match all.count() {
        0 => Some(first),
        more => Some(format!("{first} and {more} more")),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(80).collect()
}
