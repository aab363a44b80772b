//! Messages of stored commits, for the shell to send.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde_json::Value;
use sinew_engine::{Action, ExecutionOutcome, RequestTarget, TerminalStatus};
use sinew_protocol::artifact::sha256;
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::command::{CancelCommand, Command, ResumeCommand, StartCommand};
use sinew_protocol::journal::{ExecutionMeta, ExecutionRecord, ParentRef};
use sinew_protocol::person_wait::WaitReport;
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{ExecutionId, Fault, ResultKey, ResultToken, Subject, TaskId, Token, code};

use crate::active::ActiveExecution;
use crate::bug::seeded_bug;
use sinew_execution::Call;
use sinew_execution::route::{called_names, route};
use sinew_execution::usage::execution_usage;

/// A message to send. Repeating it is idempotent, because all ids are the same.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// A task for an agent or a workflow.
    Task {
        /// The task.
        call: Call,
        /// Constant properties of the execution.
        meta: Arc<ExecutionMeta>,
        /// Names of the calling workflows, outermost first.
        chain: Vec<String>,
    },
    /// Scripts to evaluate.
    Evaluation {
        /// The task.
        call: Call,
        /// Caller of the execution.
        caller: Token,
    },
    /// A cancelled evaluation.
    CancelEvaluation {
        /// Its task.
        task: TaskId,
    },
    /// A cancelled task of an agent or a workflow.
    CancelTask {
        /// The task.
        call: Call,
    },
    /// An execution has ended: archive its record, then answer the task that started it.
    Finish {
        /// The complete record.
        record: Box<ExecutionRecord>,
        /// How it ended.
        outcome: ExecutionOutcome,
        /// When it began, in milliseconds since 1970 UTC.
        started: u64,
        /// When it ended, in milliseconds since 1970 UTC.
        ended: u64,
        /// Number of this end of the execution: only archiving the newest one closes the execution.
        end_number: u32,
        /// Model calls of the execution.
        usage: ModelTotals,
        /// True if no agent was called and every output was null.
        is_dry_run: bool,
        /// Route of the execution.
        route: String,
        /// Attributes by which the execution is found.
        attributes: Box<ExecutionAttributes>,
        /// The last wait report to the task that started the execution, if it ever waited for a
        /// person. The end of the execution does not answer that task.
        wait_report: Option<Box<WaitReport>>,
    },
    /// A report to the execution's task: it starts or stops waiting for a person.
    WaitReport(Box<WaitReport>),
    /// The answer to a start by request.
    StartAnswer {
        /// The execution.
        execution: ExecutionId,
        /// Subject for the answer.
        reply: String,
        /// The decision on the start.
        decision: StartDecision,
    },
    /// A sub-workflow could not be started, so its task has to be answered.
    ChildStartRejected {
        /// Constant properties that the execution would have had.
        meta: Box<ExecutionMeta>,
        /// Reason why it could not be started.
        fault: Fault,
    },
}

/// Decision on a start by request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartDecision {
    /// The execution started.
    Begun,
    /// The same start already started it.
    Known,
    /// It was rejected; code and reason.
    Refused(String),
}

impl Outgoing {
    /// Returns the message of an action.
    pub(crate) fn of(active: &ActiveExecution, action: Action) -> Self {
        let (state, meta) = (active.state(), &active.stored.meta);
        match action {
            Action::Send { act, attempt, ask, deadline } => {
                let call = active.call(act, attempt, ask, deadline);
                if call.ask.is_evaluation() {
                    return Self::Evaluation { call, caller: meta.caller.clone() };
                }
                let chain = state.start.as_ref().map(|start| start.chain.clone()).unwrap_or_default();
                Self::Task { call, meta: Arc::clone(meta), chain }
            }
            Action::Cancel { act, attempt, ask } => {
                let call = active.call(act, attempt, ask, None);
                if call.ask.is_evaluation() {
                    return Self::CancelEvaluation { task: call.task };
                }
                Self::CancelTask { call }
            }
            Action::Finish(outcome) => Self::Finish {
                record: Box::new(active.stored.record()),
                outcome,
                started: state.started_at,
                ended: state.at,
                end_number: active.end_number(),
                usage: execution_usage(state),
                is_dry_run: state.start.as_ref().is_some_and(|start| start.mode.dry_run),
                route: route(active.program.graph.plan(), state),
                attributes: Box::new(ExecutionAttributes::of(meta, called_names(state))),
                wait_report: active.wait_report().filter(|_| meta.parent.is_none()).map(Box::new),
            },
        }
    }

    /// Returns the execution that the message is about.
    pub fn execution(&self) -> Option<&ExecutionId> {
        match self {
            Self::Task { call, .. } | Self::Evaluation { call, .. } | Self::CancelTask { call } => {
                Some(&call.execution)
            }
            Self::CancelEvaluation { .. } => None,
            Self::Finish { record, .. } => Some(&record.meta.execution),
            Self::StartAnswer { execution, .. } => Some(execution),
            Self::ChildStartRejected { meta, .. } => Some(&meta.execution),
            Self::WaitReport(report) => Some(&report.callee),
        }
    }
}

/// Returns true if a workflow processes a task; `is_deployed` knows the names of workflows deployed
/// as agents.
pub fn is_for_workflow(call: &Call, is_deployed: impl Fn(&str) -> bool) -> bool {
    match &call.ask.target {
        RequestTarget::Workflow(_) => true,
        RequestTarget::Agent(name) => is_deployed(name),
        RequestTarget::Evaluation => false,
    }
}

/// Returns the id of the execution that processes a task.
pub fn child_id(call: &Call) -> ExecutionId {
    let attempt = if seeded_bug!(ChildIdNotDerived) { child_number() } else { call.key.attempt };
    ExecutionId::child(&call.execution, &call.activation, attempt)
}

/// Returns a different number each time, for a child's id that is not derived from its task.
#[cfg(test)]
fn child_number() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(not(test))]
const fn child_number() -> u32 {
    0
}

/// Returns the start of the execution that processes a task. The input is a value or an artifact's
/// address; the end of the execution is sent to `result_subject`.
pub fn child_start(
    call: &Call,
    meta: &ExecutionMeta,
    chain: &[String],
    (input, input_artifact): (Value, Option<String>),
    result_subject: String,
) -> StartCommand {
    let workflow = call.ask.target.name().to_owned();
    let mut chain = chain.to_vec();
    chain.push(call.workflow.clone());
    StartCommand {
        execution: child_id(call),
        workflow: workflow.clone(),
        version: None,
        input,
        input_artifact,
        mode: Value::Null,
        depth: call.depth,
        chain,
        parent: Some(ParentRef {
            execution: call.execution.clone(),
            task: call.task.clone(),
            result_subject,
            agent: workflow,
        }),
        user: meta.user.clone(),
        user_config: meta.user_config.clone(),
        session: meta.session.clone(),
        labels: meta.labels.clone(),
        idempotency_key: None,
        behalf: None,
        calling: None,
        conversation: meta.conversation(),
    }
}

/// Returns the command that cancels an execution whose caller no longer needs it.
pub fn callee_cancel(execution: ExecutionId) -> Command {
    Command::Cancel(CancelCommand { execution, reason: "its caller gave it up".to_owned() })
}

/// Returns the command that starts the work of an execution after the pause of its workflow, and its
/// id: an execution is kept at most once.
pub fn kept_resume(execution: ExecutionId) -> (Token, Command) {
    let id = Token::of(&sha256(format!("workflow resume {execution}").as_bytes())[..32]);
    (id, Command::Resume(ResumeCommand { execution }))
}

/// Returns the command with a report for the caller's owner, and its id: equal reports have equal
/// ids.
pub fn wait_command(report: WaitReport, key: &ResultKey) -> (Token, Command) {
    let id = Token::of(&format!("{}-{}", report.callee, report.number));
    (id, Command::Wait(Box::new(report.prove(key))))
}

/// Returns the subject of the result of a task.
pub fn result_subject(shards: NonZeroU32, key: &ResultKey, call: &Call, agent: &Token) -> Subject {
    Subject::Result {
        shard: call.execution.shard(shards),
        agent: agent.clone(),
        execution: call.execution.clone(),
        task: call.task.clone(),
        token: ResultToken::of(key, &call.task),
    }
}

/// Returns the end of a sub-workflow as the result of its task.
pub fn child_result(outcome: &ExecutionOutcome) -> Result<Value, Fault> {
    match outcome.status {
        TerminalStatus::Success => Ok(outcome.output.as_deref().cloned().unwrap_or_default()),
        status => Err(outcome.fault.clone().map_or_else(
            || {
                let text = format!("the sub-workflow ended with {}", status.as_str());
                Fault::failure(code::SUB_WORKFLOW_FAILED.as_str(), text)
            },
            |fault| Fault { retryable: true, ..fault },
        )),
    }
}

/// Returns the end of a sub-workflow that could not be started.
pub fn rejected_child_outcome(fault: Fault) -> ExecutionOutcome {
    ExecutionOutcome { status: TerminalStatus::Failure, output: None, fault: Some(fault), cause: None }
}
