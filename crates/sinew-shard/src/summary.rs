//! Summaries of a shard's executions.

use sinew_engine::{ExecutionState, OpenWait, WaitingFor, execution_status, waiting};
use sinew_protocol::Fault;
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::deployment::WORKFLOW_PAUSE_PREFIX;
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::query::{AN_OPERATOR, ExecutionStatus, Summary};
use sinew_protocol::usage::ModelTotals;

use sinew_execution::route::called_names;
use sinew_execution::usage::execution_usage;

/// The part of a list's row that depends on the execution's state.
#[derive(Clone, Debug)]
pub struct RowState {
    status: ExecutionStatus,
    started: u64,
    ended: Option<u64>,
    waiting: Option<String>,
    agents: Vec<String>,
    questions: Option<u32>,
    waits_for: Vec<String>,
    called: Box<[String]>,
    /// `None` for most executions, because few call a model.
    usage: Option<Box<ModelTotals>>,
}

/// Maximum number of agents in a row; others are omitted.
const MAX_ROW_AGENTS: usize = 8;

impl RowState {
    /// Returns whether the execution only waits for a person.
    pub fn is_waiting(&self) -> bool {
        self.status == ExecutionStatus::Waiting
    }

    /// Returns the start of the execution, milliseconds since 1970 UTC.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Reads the row from a state.
    pub fn of(state: &ExecutionState) -> Self {
        let waits = if state.ended { Vec::new() } else { waiting(state) };
        Self {
            status: execution_status(state, &waits),
            started: state.started_at,
            ended: ended(state),
            waiting: words(&waits),
            agents: agents(&waits),
            questions: Some(questions(&waits)),
            waits_for: wait_kinds(&waits),
            called: called_names(state).into_boxed_slice(),
            usage: Some(execution_usage(state)).filter(|used| !used.is_empty()).map(Box::new),
        }
    }
}

/// Returns one row of a list.
pub fn summary(meta: &ExecutionMeta, row: RowState) -> Summary {
    let RowState { status, started, ended, waiting, agents, questions, waits_for, called, usage } = row;
    Summary {
        execution: meta.execution.clone(),
        workflow: meta.workflow.clone(),
        status,
        caller: meta.caller.clone(),
        started,
        ended,
        waiting,
        agents,
        questions,
        waits_for,
        attributes: ExecutionAttributes::of(meta, called.into_vec()),
        plan: Some(meta.plan.clone()).filter(|plan| !plan.is_empty()),
        usage: usage.map(|used| *used).unwrap_or_default(),
    }
}

/// Returns the row of a held execution.
pub fn held_summary(meta: &ExecutionMeta, fault: &Fault) -> Summary {
    let row = RowState {
        status: ExecutionStatus::Waiting,
        started: meta.created,
        ended: None,
        waiting: Some(format!("{AN_OPERATOR}: {}", fault.message)),
        agents: Vec::new(),
        questions: None,
        waits_for: vec!["operator".to_owned()],
        called: Box::default(),
        usage: None,
    };
    summary(meta, row)
}

/// Returns when the execution ended.
pub fn ended(state: &ExecutionState) -> Option<u64> {
    state.ended.then_some(state.at)
}

/// Describes what an execution waits for.
pub fn words(waits: &[OpenWait]) -> Option<String> {
    let mut all = waits.iter().filter_map(|wait| match &wait.what {
        WaitingFor::Agent { name, attempt, is_workflow, .. } => {
            let callee = if *is_workflow { "workflow" } else { "agent" };
            let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
            Some(format!("{callee} {name}{again}"))
        }
        WaitingFor::Evaluation => Some("a script".to_owned()),
        WaitingFor::Retry { tries } => {
            let at = wait.until.map(|at| format!(" at {}", clock_time(at))).unwrap_or_default();
            Some(format!("the next attempt{at}; {tries} failed"))
        }
        WaitingFor::Sleep => Some("a delay".to_owned()),
        WaitingFor::Person(wait) => Some(format!("a person: {}", first_line(&wait.prompt))),
        WaitingFor::CalleePerson { wait, .. } => {
            Some(format!("a person: {} ({})", first_line(&wait.prompt), wait.place()))
        }
        WaitingFor::Resume { reason } if reason.starts_with(WORKFLOW_PAUSE_PREFIX) => Some(reason.clone()),
        WaitingFor::Resume { reason } => Some(format!("resume ({reason})")),
        WaitingFor::Children { .. } | WaitingFor::Turn | WaitingFor::Wall => None,
    });
    let first = all.next()?;
    match all.count() {
        0 => Some(first),
        more => Some(format!("{first} and {more} more")),
    }
}

/// Returns the time of day in UTC, with milliseconds.
fn clock_time(at: u64) -> String {
    let seconds = at / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60, at % 1_000)
}

/// Returns the number of nodes that ask a person.
fn questions(waits: &[OpenWait]) -> u32 {
    let asking = waits.iter().filter(|wait| matches!(wait.what, WaitingFor::Person(_)));
    u32::try_from(asking.count()).unwrap_or(u32::MAX)
}

/// Returns the agents whose replies are pending, without repetitions.
fn agents(waits: &[OpenWait]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for wait in waits {
        if let WaitingFor::Agent { name, is_workflow: false, .. } = &wait.what
            && !names.contains(name)
        {
            names.push(name.clone());
            if names.len() == MAX_ROW_AGENTS {
                break;
            }
        }
    }
    names
}

/// Returns the kinds of waits, without repetitions; agents and workflows with their names.
pub fn wait_kinds(waits: &[OpenWait]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for wait in waits {
        let kind = match &wait.what {
            WaitingFor::Agent { name, is_workflow: true, .. } => format!("workflow {name}"),
            WaitingFor::Agent { name, .. } => format!("agent {name}"),
            WaitingFor::Evaluation => "script".to_owned(),
            WaitingFor::Retry { .. } => "retry".to_owned(),
            WaitingFor::Sleep => "timer".to_owned(),
            WaitingFor::Person(_) | WaitingFor::CalleePerson { .. } => "person".to_owned(),
            WaitingFor::Resume { .. } => "operator".to_owned(),
            WaitingFor::Children { .. } | WaitingFor::Turn | WaitingFor::Wall => continue,
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
            if kinds.len() == MAX_ROW_AGENTS {
                break;
            }
        }
    }
    kinds
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(80).collect()
}
