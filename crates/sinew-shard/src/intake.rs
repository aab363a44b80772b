//! Conversion of messages to inputs: decoding, and the lookups that a decision requires.
//!
//! A message is decoded into a [`PendingInput`]. The shell first quarantines unusable messages,
//! then answers the lookups one by one, which results in a [`ShardInput`]. A message that cannot be
//! decoded is quarantined before the position of the journal passes it.

use bytes::Bytes;
use serde_json::Value;
use sinew_engine::TaskReply;
use sinew_protocol::command::{Command, StartCommand};
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::message::BadMessage;
use sinew_protocol::person_wait::WaitReport;
use sinew_protocol::subject::Operation;
use sinew_protocol::task::{
    LogLine, NodeAnswer, NodeOutput, NodeResult, is_node_message, read_node_answer, read_result_bytes,
};
use sinew_protocol::usage::TaskUsage;
use sinew_protocol::{ExecutionId, Fault, Subject, TaskId, Token, code};

use crate::active::ActiveExecution;
use crate::bug::seeded_bug;
use crate::start_identity::StartIdentity;
use crate::stored::StoredExecution;
use crate::takeover_note::WorkItem;
use sinew_execution::Program;

/// The stream that a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InputStream {
    /// Commands to executions.
    Commands,
    /// Results of agents.
    Results,
}

impl InputStream {
    /// Returns the kind of the stream.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Commands => "COMMANDS",
            Self::Results => "RESULTS",
        }
    }
}

/// One message of a shard's streams.
#[derive(Clone, Copy, Debug)]
pub struct InboxMessage<'a> {
    /// The stream.
    pub stream: InputStream,
    /// Sequence of the message in the stream.
    pub seq: u64,
    /// The parsed subject; `None` if the subject is not valid.
    pub subject: Option<&'a Subject>,
    /// The body.
    pub body: &'a [u8],
    /// W3C trace context of the message.
    pub traceparent: Option<&'a str>,
}

impl InboxMessage<'_> {
    /// Returns the work item of the message, without reading its body.
    pub fn work_item(&self) -> WorkItem {
        WorkItem::of_message(self.subject, self.stream.as_str(), self.seq)
    }
}

/// An input for a shard's owner.
#[derive(Debug)]
pub enum ShardInput {
    /// A start, with everything that it references.
    Start(Box<StartInput>),
    /// Any other command.
    Command(Box<CommandInput>),
    /// The result of a task.
    TaskResult(Box<ResultInput>),
    /// A callee's report, with a valid proof that an executor sent it.
    CalleeWait(Box<WaitReport>),
    /// An execution is archived and its task answered.
    Archived {
        /// The execution.
        execution: ExecutionId,
        /// Number of the archived end.
        end_number: u32,
    },
    /// A message that was quarantined or repeats another.
    Nothing,
}

impl ShardInput {
    /// Returns the execution that the input is about.
    pub fn execution(&self) -> Option<&ExecutionId> {
        match self {
            Self::Start(start) => Some(&start.command.execution),
            Self::Command(command) => Some(&command.execution),
            Self::TaskResult(result) => Some(&result.execution),
            Self::CalleeWait(report) => Some(&report.execution),
            Self::Archived { execution, .. } => Some(execution),
            Self::Nothing => None,
        }
    }

    /// Returns a task's result as an input, with log messages.
    pub fn task_result_with_logs(
        execution: ExecutionId,
        task: TaskId,
        agent: Token,
        result: Result<TaskReply, Fault>,
        logs: Vec<LogLine>,
    ) -> Self {
        let input = ResultInput {
            execution,
            task,
            agent,
            result,
            usage: Value::Null,
            worked_ms: None,
            logs,
            is_checked: false,
            closed: None,
        };
        Self::TaskResult(Box::new(input))
    }

    /// Returns a task's result as an input.
    pub fn task_result(
        execution: ExecutionId,
        task: TaskId,
        agent: Token,
        result: Result<TaskReply, Fault>,
    ) -> Self {
        Self::task_result_with_logs(execution, task, agent, result, Vec::new())
    }
}

/// A start, with everything that it references.
#[derive(Debug)]
pub struct StartInput {
    pub(crate) command: StartCommand,
    pub(crate) id: Token,
    pub(crate) caller: Token,
    pub(crate) identity: StartIdentity,
    pub(crate) program: Result<Program, Fault>,
    pub(crate) input: Result<Value, Fault>,
    pub(crate) traceparent: Option<String>,
    /// Whether an executor created the reference to the parent.
    pub(crate) is_parent_proved: bool,
    /// Subject for the answer to a request; `None` for a start from the command stream.
    pub(crate) reply: Option<String>,
    /// Whether the same start created an execution that is closed.
    pub(crate) is_closed: bool,
    /// Reason why the execution starts paused: its workflow is paused.
    pub(crate) paused: Option<String>,
}

/// Any command except a start.
#[derive(Debug)]
pub struct CommandInput {
    pub(crate) execution: ExecutionId,
    pub(crate) id: Token,
    pub(crate) caller: Token,
    pub(crate) op: Operation,
    pub(crate) command: Command,
    /// The execution, if it is closed and to be retried, or held and to be resumed.
    pub(crate) restored: Option<Result<ActiveExecution, Fault>>,
    /// Reason why the command is rejected regardless of its content.
    pub(crate) refusal: Option<Fault>,
    /// Results that arrived while the execution was held.
    pub(crate) results: Vec<ResultInput>,
}

/// The result of a task.
#[derive(Debug)]
pub struct ResultInput {
    /// The execution of the task.
    pub execution: ExecutionId,
    /// The task.
    pub task: TaskId,
    /// Agent that answered.
    pub agent: Token,
    /// The reply, or the reason why it failed.
    pub result: Result<TaskReply, Fault>,
    /// Tokens and cost reported by a failed attempt; null if none.
    pub usage: Value,
    /// Milliseconds of work, if the agent reports them.
    pub worked_ms: Option<u64>,
    /// Messages about the work, oldest first.
    pub logs: Vec<LogLine>,
    /// Whether the output was checked against its schema.
    pub is_checked: bool,
    /// The execution, if it is closed and the answer reports usage.
    pub(crate) closed: Option<Box<ActiveExecution>>,
}

/// Reason why a message is quarantined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineReason {
    /// The error code.
    pub code: &'static str,
    /// Description of the defect. It may quote the message.
    pub text: String,
}

/// A lookup in a store. The shell retries until there is an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The record of a closed execution.
    Record(ExecutionId),
    /// The program of a deployed workflow: of this digest, or the latest one.
    Program {
        /// Name of the workflow.
        workflow: String,
        /// Digest of the plan.
        version: Option<String>,
    },
    /// The program of a plan, by its digest.
    Plan(String),
    /// A value in the artifact store, by its address.
    Value(String),
    /// The stored result of a task.
    Result {
        /// The execution of the task.
        execution: ExecutionId,
        /// The task.
        task: TaskId,
        /// The agent that was called.
        agent: Token,
    },
}

/// Answer to a [`Lookup`].
#[derive(Debug)]
pub enum Found {
    /// To [`Lookup::Program`].
    Start {
        /// The program, or why it cannot be used.
        program: Result<Program, Fault>,
        /// Why its execution starts paused, if its workflow is paused.
        paused: Option<String>,
    },
    /// To [`Lookup::Record`]; `None` if there is no such record.
    Record(Result<Option<Box<ExecutionRecord>>, Fault>),
    /// To [`Lookup::Plan`], or to [`Lookup::Program`] if its workflow is not paused.
    Program(Result<Program, Fault>),
    /// To [`Lookup::Value`].
    Value(Result<Value, Fault>),
    /// To [`Lookup::Result`], as the body of the message; `None` if there is no result.
    Result(Result<Option<Bytes>, Fault>),
}

/// A message that is being converted to an input.
#[derive(Debug)]
pub struct PendingInput {
    pub(crate) quarantine: Option<QuarantineReason>,
    pub(crate) step: IntakeStep,
}

/// A stage of converting a message to an input.
#[derive(Debug)]
pub(crate) enum IntakeStep {
    Ready(ShardInput),
    /// Compares a start with the record of its id.
    StartRecord(Box<StartInput>),
    StartProgram(Box<StartInput>),
    StartValue(Box<StartInput>),
    /// Reads the record of a closed execution to be retried.
    CommandRecord(Box<CommandInput>),
    /// Folds an execution to be resumed.
    CommandPlan(Box<CommandInput>, Box<StoredExecution>),
    /// Reads the results that arrived while the execution was held, and the value that the last one
    /// names.
    CommandResults(Box<CommandInput>, Vec<(TaskId, Token)>, Option<Box<PendingInput>>),
    ResultValue(Box<ResultInput>, Box<NodeResult>),
    /// Reads the record of a closed execution to count the usage of a late result.
    LateRecord(Box<ResultInput>),
    LatePlan(Box<ResultInput>, Box<StoredExecution>),
}

impl PendingInput {
    pub(crate) fn ready(input: ShardInput) -> Self {
        Self { quarantine: None, step: IntakeStep::Ready(input) }
    }

    pub(crate) fn quarantined(code: &'static str, text: impl Into<String>) -> Self {
        let quarantine = Some(QuarantineReason { code, text: text.into() });
        Self { quarantine, step: IntakeStep::Ready(ShardInput::Nothing) }
    }

    /// Returns why the message is quarantined; the shell handles this first.
    pub fn take_quarantine(&mut self) -> Option<QuarantineReason> {
        self.quarantine.take()
    }

    /// Returns the next lookup, or `None` if the input is complete.
    pub fn lookup(&self) -> Option<Lookup> {
        Some(match &self.step {
            IntakeStep::Ready(_) => return None,
            IntakeStep::StartRecord(start) => Lookup::Record(start.command.execution.clone()),
            IntakeStep::StartProgram(start) => Lookup::Program {
                workflow: start.command.workflow.clone(),
                version: start.command.version.clone(),
            },
            IntakeStep::StartValue(start) => {
                Lookup::Value(start.command.input_artifact.clone().unwrap_or_default())
            }
            IntakeStep::CommandRecord(command) => Lookup::Record(command.execution.clone()),
            IntakeStep::CommandPlan(_, stored) | IntakeStep::LatePlan(_, stored) => {
                Lookup::Plan(stored.meta.plan.clone())
            }
            IntakeStep::LateRecord(result) => Lookup::Record(result.execution.clone()),
            IntakeStep::CommandResults(_, _, Some(result)) => return result.lookup(),
            IntakeStep::CommandResults(command, tasks, None) => {
                let (task, agent) = tasks.last()?.clone();
                Lookup::Result { execution: command.execution.clone(), task, agent }
            }
            IntakeStep::ResultValue(_, result) => match &result.output {
                NodeOutput::Address(address) => Lookup::Value(address.clone()),
                NodeOutput::Value(_) | NodeOutput::None => return None,
            },
        })
    }

    /// Takes the answer to [`PendingInput::lookup`]. An answer to another lookup counts as a fault
    /// of the store.
    pub fn supply(&mut self, found: Found) {
        let ready = IntakeStep::Ready(ShardInput::Nothing);
        self.step = match (std::mem::replace(&mut self.step, ready), found) {
            (IntakeStep::StartRecord(start), Found::Record(record)) => compared(start, record),
            (IntakeStep::StartProgram(start), Found::Program(program)) => {
                self.step = IntakeStep::StartProgram(start);
                return self.supply(Found::Start { program, paused: None });
            }
            (IntakeStep::StartProgram(mut start), Found::Start { program, paused }) => {
                (start.program, start.paused) = (program, paused);
                match start.command.input_artifact {
                    Some(_) => IntakeStep::StartValue(start),
                    None => IntakeStep::Ready(ShardInput::Start(start)),
                }
            }
            (IntakeStep::StartValue(mut start), Found::Value(value)) => {
                start.input = value;
                IntakeStep::Ready(ShardInput::Start(start))
            }
            (IntakeStep::CommandRecord(mut command), Found::Record(record)) => match record {
                Ok(Some(record)) => {
                    IntakeStep::CommandPlan(command, Box::new(StoredExecution::of_record(*record)))
                }
                Ok(None) => IntakeStep::Ready(ShardInput::Command(command)),
                Err(fault) => {
                    command.restored = Some(Err(fault));
                    IntakeStep::Ready(ShardInput::Command(command))
                }
            },
            (IntakeStep::CommandPlan(mut command, stored), Found::Program(program)) => {
                let folded = program
                    .and_then(|program| ActiveExecution::fold(*stored, program).map_err(|error| error.1));
                let tasks = match (&command.command, &folded) {
                    (Command::Resume(_), Ok(active)) if !seeded_bug!(HeldResultsNotRead) => active.asked(),
                    _ => Vec::new(),
                };
                command.restored = Some(folded);
                next_result(command, tasks)
            }
            (IntakeStep::CommandResults(command, tasks, Some(mut result)), found) => {
                result.supply(found);
                with_result(command, tasks, result)
            }
            (IntakeStep::CommandResults(command, tasks, None), Found::Result(found)) => {
                stored_result(command, tasks, found)
            }
            (IntakeStep::ResultValue(mut input, mut result), Found::Value(value)) => {
                input.result = value.and_then(|value| {
                    result.output = NodeOutput::Value(value);
                    reply_at_hand(*result).unwrap_or_else(|_| Ok(TaskReply::new(Value::Null)))
                });
                IntakeStep::Ready(ShardInput::TaskResult(input))
            }
            (IntakeStep::LateRecord(result), Found::Record(Ok(Some(record)))) => {
                IntakeStep::LatePlan(result, Box::new(StoredExecution::of_record(*record)))
            }
            (IntakeStep::LatePlan(mut result, stored), Found::Program(Ok(program))) => {
                result.closed = ActiveExecution::fold(*stored, program).ok().map(Box::new);
                IntakeStep::Ready(ShardInput::TaskResult(result))
            }
            (IntakeStep::LateRecord(result) | IntakeStep::LatePlan(result, _), _) => {
                IntakeStep::Ready(ShardInput::TaskResult(result))
            }
            (step, _) => step,
        };
    }

    /// Returns the input; [`ShardInput::Nothing`] while a lookup is pending.
    pub fn finish(self) -> ShardInput {
        match self.step {
            IntakeStep::Ready(input) => input,
            _ => ShardInput::Nothing,
        }
    }
}

/// Takes the stored result of the last of these tasks.
fn stored_result(
    mut command: Box<CommandInput>,
    mut tasks: Vec<(TaskId, Token)>,
    found: Result<Option<Bytes>, Fault>,
) -> IntakeStep {
    let Some((task, agent)) = tasks.pop() else { return next_result(command, tasks) };
    match found {
        Ok(Some(body)) => {
            let result = PendingInput::of_stored_result(&body, &command.execution, &task, &agent);
            with_result(command, tasks, Box::new(result))
        }
        Ok(None) => next_result(command, tasks),
        // Without its results the execution could wait forever, so it stays held.
        Err(fault) => {
            command.refusal = Some(fault);
            IntakeStep::Ready(ShardInput::Command(command))
        }
    }
}

/// Stores a complete result.
fn with_result(
    mut command: Box<CommandInput>,
    tasks: Vec<(TaskId, Token)>,
    result: Box<PendingInput>,
) -> IntakeStep {
    if result.lookup().is_some() {
        return IntakeStep::CommandResults(command, tasks, Some(result));
    }
    if let ShardInput::TaskResult(result) = result.finish() {
        command.results.push(*result);
    }
    next_result(command, tasks)
}

fn next_result(command: Box<CommandInput>, tasks: Vec<(TaskId, Token)>) -> IntakeStep {
    if tasks.is_empty() {
        return IntakeStep::Ready(ShardInput::Command(command));
    }
    IntakeStep::CommandResults(command, tasks, None)
}

/// Compares a start with the closed execution of the same id: an id is never reused.
fn compared(mut start: Box<StartInput>, record: Result<Option<Box<ExecutionRecord>>, Fault>) -> IntakeStep {
    let same = match record {
        Ok(Some(_)) if seeded_bug!(ClosedIdBeginsAgain) => Ok(false),
        Ok(Some(record)) => start.identity.compare(&record.meta).map(|()| true),
        Ok(None) => Ok(false),
        Err(fault) => Err(fault),
    };
    match same {
        Ok(true) if start.reply.is_none() => IntakeStep::Ready(ShardInput::Nothing),
        Ok(true) => {
            start.is_closed = true;
            IntakeStep::Ready(ShardInput::Start(start))
        }
        Ok(false) => IntakeStep::StartProgram(start),
        Err(fault) => {
            start.program = Err(fault);
            IntakeStep::Ready(ShardInput::Start(start))
        }
    }
}

impl PendingInput {
    /// Returns a task's result as a pending input; an output that is stored elsewhere has to be
    /// looked up.
    pub fn of_result(execution: ExecutionId, task: TaskId, agent: Token, mut result: NodeResult) -> Self {
        let logs = std::mem::take(&mut result.logs);
        let usage = if result.fault.is_some() { std::mem::take(&mut result.usage) } else { Value::Null };
        let worked_ms = result.worked_ms;
        let input = |result| ResultInput {
            execution,
            task,
            agent,
            result,
            usage,
            worked_ms,
            logs,
            is_checked: false,
            closed: None,
        };
        match reply_at_hand(result) {
            Ok(reply) => Self::ready(ShardInput::TaskResult(Box::new(input(reply)))),
            Err(elsewhere) => {
                let input = Box::new(input(Ok(TaskReply::default())));
                Self { quarantine: None, step: IntakeStep::ResultValue(input, elsewhere) }
            }
        }
    }

    /// Converts the result for a closed execution: only its usage counts.
    pub(crate) fn of_closed(self) -> Self {
        let step = match self.step {
            IntakeStep::Ready(ShardInput::TaskResult(result)) => {
                let used = result.result.as_ref().map_or(&result.usage, |reply| &reply.usage);
                match TaskUsage::of(used) {
                    Some(_) => IntakeStep::LateRecord(result),
                    None => IntakeStep::Ready(ShardInput::TaskResult(result)),
                }
            }
            IntakeStep::ResultValue(mut result, stored) if TaskUsage::of(&stored.usage).is_some() => {
                result.result = Ok(TaskReply { usage: stored.usage, ..TaskReply::default() });
                IntakeStep::LateRecord(result)
            }
            step => step,
        };
        Self { step, ..self }
    }

    /// Decodes a task's result after its proof was checked.
    pub(crate) fn of_stored_result(
        body: &[u8],
        execution: &ExecutionId,
        task: &TaskId,
        agent: &Token,
    ) -> Self {
        let (execution, task, agent) = (execution.clone(), task.clone(), agent.clone());
        match read_stored_result(body, &task) {
            Ok(result) => Self::of_result(execution, task, agent, result),
            Err(bad) => {
                // The sender is proved, so an unreadable result is the agent's invalid answer.
                let text = format!("cannot read the agent's result: {bad}");
                let is_bad_message = bad.code() == BadMessage::CODE;
                let code = if is_bad_message { code::MESSAGE_MEANINGLESS.as_str() } else { bad.code() };
                let result = Err(Fault::error(code, text.clone()));
                let mut pending = Self::quarantined(code, text);
                pending.step = IntakeStep::Ready(ShardInput::task_result(execution, task, agent, result));
                pending
            }
        }
    }
}

/// Reads the result of this task, in either format that an agent may use.
fn read_stored_result(body: &[u8], task: &TaskId) -> Result<NodeResult, BadMessage> {
    if !is_node_message(body) {
        return read_result_bytes(body).and_then(|result| of_task(result, task));
    }
    match read_node_answer(body, task)? {
        NodeAnswer::Ended(result) => Ok(*result),
        NodeAnswer::Refused(_) => {
            let reason = "a refusal is not a result".to_owned();
            Err(BadMessage::Field { kind: "task".to_owned(), reason })
        }
    }
}

/// Returns a result if it names this task. A result that names another task is rejected.
pub fn of_task(result: NodeResult, task: &TaskId) -> Result<NodeResult, BadMessage> {
    if result.task == task.as_str() {
        return Ok(result);
    }
    let reason = "its id belongs to another task".to_owned();
    Err(BadMessage::Field { kind: "task".to_owned(), reason })
}

/// Converts an agent's result for the engine, or returns it unchanged if the output is stored
/// elsewhere.
pub fn reply_at_hand(result: NodeResult) -> Result<Result<TaskReply, Fault>, Box<NodeResult>> {
    if let Some(fault) = result.fault {
        return Ok(Err(fault));
    }
    if matches!(result.output, NodeOutput::Address(_)) {
        return Err(Box::new(result));
    }
    let artifacts = result.artifact_values();
    let output = match result.output {
        NodeOutput::Value(value) => value,
        NodeOutput::Address(_) | NodeOutput::None => Value::Null,
    };
    Ok(Ok(TaskReply { artifacts, events: result.events, usage: result.usage, ..TaskReply::new(output) }))
}
