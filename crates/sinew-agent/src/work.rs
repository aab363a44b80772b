//! Processes one task from its input to its end: validation, retries, time limits, panics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use serde_json::Value;
use sinew_mesh::log_limited;
use sinew_protocol::artifact::ArtifactRef;
use sinew_protocol::embed::ResultEmbed;
use sinew_protocol::unique_keys::read_unique;
use sinew_protocol::{ArtifactName, Fault, FaultKind};
use sinew_source::{Schema, Violation};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::agent::CompiledAgent;
use crate::context::Context;
use crate::failure::{
    ARTIFACTS, BAD_INPUT, BAD_OUTPUT, CANCELLED, FAILED, Failure, NO_MARKER, PANICKED, TOO_LATE, bad_json,
    bad_schema, bounded, is_bad_output, violations,
};
use crate::handler::{HandlerCall, HandlerOutput};
use crate::handler_pace::PacedCall;
use crate::task_properties::TaskProperties;

/// Time for a handler to clean up after its task was cancelled.
const TIDY_UP: Duration = Duration::from_secs(5);

/// Wait for the end of a handler when its process stops.
const HALT_TIMEOUT: Duration = Duration::from_secs(1);

/// End of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndedTask {
    /// The output and its location, or the fault.
    pub(crate) result: Result<ArtifactRef, Fault>,
    /// Number of handler calls after the first.
    pub(crate) retries: u32,
    /// Time from the first handler call to the end; zero if it was not called.
    pub(crate) worked: Duration,
}

impl EndedTask {
    /// Logs a failed task without its fault's message, which may quote the task.
    pub(crate) fn log_failure(&self, context: &Context) {
        let Err(fault) = &self.result else { return };
        let TaskProperties { agent, execution, task, .. } = context.about();
        let (code, retries) = (&*fault.code, self.retries);
        let reason = sinew_protocol::code::title(code).unwrap_or_default();
        log_limited!(20, info, %agent, %execution, %task, code, reason, retries, "task failed");
    }

    /// Ends a task before any work.
    pub(crate) fn refused(fault: Fault) -> Self {
        Self { result: Err(bounded(fault)), retries: 0, worked: Duration::ZERO }
    }
}

/// Why the process has no answer to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The process stops before the task ends: another one has to process it.
    Stopping,
    /// Another process has taken it over, after the steps of this one.
    TakenOver,
}

/// Processes a task. `halt` fires when the process cannot wait any longer.
pub(crate) async fn work(
    agent: &CompiledAgent,
    input: &Value,
    context: &Context,
    halt: &CancellationToken,
) -> Result<EndedTask, GivenUp> {
    if let Err(fault) = check_input(agent, input, context) {
        return Ok(EndedTask::refused(fault));
    }
    go_on(agent, input, context, halt, None).await
}

/// Processes a task with validated input. The handler's first call may already have started.
pub(crate) async fn go_on(
    agent: &CompiledAgent,
    input: &Value,
    context: &Context,
    halt: &CancellationToken,
    mut first: Option<FirstCall>,
) -> Result<EndedTask, GivenUp> {
    let began = Instant::now();
    let until = began + time_left(agent, context);
    let mut retry = 0;
    let mut context = context.clone();
    loop {
        let called = match first.take() {
            Some(FirstCall::Answered(answer)) => unless_cancelled(&context, answer),
            Some(FirstCall::Running(call)) => attempt(agent, call, &context, until, halt).await?,
            None if context.cancel().is_cancelled() => Err(cancelled()),
            None => {
                let call = begin_call(agent, input.clone(), &context);
                attempt(agent, call, &context, until, halt).await?
            }
        };
        if context.step_log().is_taken_over() {
            // The answer would compete with that of the other process.
            return Err(GivenUp::TakenOver);
        }
        let result = match called {
            Ok(said) => kept(agent, said, &context),
            Err(fault) => Err(bounded(fault)),
        };
        match result {
            Err(fault) if is_bad_output(&fault) && retry < agent.agent.output_retries => {
                retry += 1;
                let mut feedback = vec![fault.message];
                feedback.extend(fault.details);
                context = context.again(retry, feedback);
            }
            result => return Ok(EndedTask { result, retries: retry, worked: began.elapsed() }),
        }
    }
}

/// Returns the time limit of a task: its deadline, and at most the agent's limit.
pub(crate) fn time_left(agent: &CompiledAgent, context: &Context) -> Duration {
    let left =
        context.deadline().map(|deadline| deadline.duration_since(SystemTime::now()).unwrap_or_default());
    left.unwrap_or(agent.agent.timeout).min(agent.agent.timeout)
}

pub(crate) fn check_input(agent: &CompiledAgent, input: &Value, context: &Context) -> Result<(), Fault> {
    check(agent, context.input_schema(), agent.input.as_ref(), input)
        .map_err(|refused| refused.fault(BAD_INPUT, "input"))
}

/// Validates an output against the request's schema, else against the agent's.
pub(crate) fn check_output(agent: &CompiledAgent, value: &Value, context: &Context) -> Result<(), Fault> {
    check(agent, context.output_schema(), agent.output.as_ref(), value)
        .map_err(|refused| refused.fault(BAD_OUTPUT, "output"))
}

enum RefusedTask {
    Schema(sinew_source::SchemaError),
    Value(Vec<Violation>),
}

impl RefusedTask {
    fn fault(&self, code: &'static str, what: &str) -> Fault {
        match self {
            Self::Schema(error) => bad_schema(code, what, error),
            Self::Value(found) => violations(code, what, found),
        }
    }
}

/// Validates a value against the request's schema, else against the agent's.
fn check(
    agent: &CompiledAgent,
    request: Option<&Value>,
    own: Option<&Schema>,
    value: &Value,
) -> Result<(), RefusedTask> {
    if let Some(schema) = request {
        let schema: Arc<Schema> = agent.schemas.get(schema).map_err(RefusedTask::Schema)?;
        return schema.check(value).map_err(RefusedTask::Value);
    }
    own.map_or(Ok(()), |schema| schema.check(value).map_err(RefusedTask::Value))
}

/// State of the first handler call.
pub(crate) enum FirstCall {
    /// The handler is running.
    Running(HandlerCall),
    /// The handler has returned.
    Answered(Result<HandlerOutput, Fault>),
}

/// Calls the handler; it runs only when the call is polled.
pub(crate) fn begin_call(agent: &CompiledAgent, input: Value, context: &Context) -> HandlerCall {
    let (handler, context) = (Arc::clone(&agent.agent.handler), context.clone());
    let task = context.clone();
    let called = AssertUnwindSafe(async move { handler(input, context).await }).catch_unwind();
    called
        .map(move |said| {
            said.unwrap_or_else(|_| {
                tracing::error!(agent = task.agent(), task = %task.task(), "the handler panicked");
                Err(Fault::error(PANICKED, "the handler panicked"))
            })
        })
        .boxed()
}

/// Waits for a handler call in a separate task, because it may block or never return.
async fn attempt(
    agent: &CompiledAgent,
    call: HandlerCall,
    context: &Context,
    until: Instant,
    halt: &CancellationToken,
) -> Result<Result<HandlerOutput, Fault>, GivenUp> {
    let mut called = RunningHandler(tokio::spawn(PacedCall::new(call, &agent.pace).in_current_span()));
    let why = tokio::select! {
        biased;
        said = &mut called.0 => {
            let said = said.unwrap_or_else(|error| {
                tracing::error!(agent = agent.agent.name, task = %context.task(), %error, "the handler panicked");
                Err(Fault::error(PANICKED, "the handler panicked"))
            });
            return Ok(unless_cancelled(context, said));
        }
        () = halt.cancelled() => {
            // The handler is aborted before it could cancel the calls that it waits for: the next
            // process finds them.
            called.0.abort();
            let _ended = timeout(HALT_TIMEOUT, &mut called.0).await;
            context.cancel().cancel();
            return Err(GivenUp::Stopping);
        }
        () = context.cancel().cancelled() => cancelled(),
        () = context.about().clock.passed(until) => {
            Fault::timeout(TOO_LATE, "the handler did not finish in time")
        }
    };
    // Later results of the handler do not count: the task has ended for the caller.
    context.cancel().cancel();
    tokio::select! {
        biased;
        _ = &mut called.0 => {}
        () = halt.cancelled() => {}
        () = sleep(TIDY_UP) => {}
    }
    Ok(Err(why))
}

fn cancelled() -> Fault {
    Fault::cancelled(CANCELLED, "the task was cancelled")
}

/// Returns the answer of a handler. A cancelled task ends as cancelled, whatever its handler
/// returns.
fn unless_cancelled(context: &Context, answer: Result<HandlerOutput, Fault>) -> Result<HandlerOutput, Fault> {
    if context.cancel().is_cancelled() { Err(cancelled()) } else { answer }
}

/// A running handler; aborted on drop.
struct RunningHandler(JoinHandle<Result<HandlerOutput, Fault>>);

impl Drop for RunningHandler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stores the output as an artifact of the task, if it is valid.
fn kept(agent: &CompiledAgent, said: HandlerOutput, context: &Context) -> Result<ArtifactRef, Fault> {
    let (value, kept) = match said {
        HandlerOutput::Value(value) => (value, None),
        HandlerOutput::Text(text) => {
            let reference = marked(&text)?;
            let named = context.artifacts().find(reference.name.as_str(), reference.version);
            let Some(found) = named else {
                let message =
                    format!("the result marker names artifact {reference}, which this task does not have");
                return Err(Fault::failure(ARTIFACTS, message));
            };
            let value = read_unique(&found.bytes).map_err(|error| bad_json(BAD_OUTPUT, "output", &error))?;
            (value, Some(found.meta.reference()))
        }
    };
    check_output(agent, &value, context)?;
    match kept {
        Some(reference) => Ok(reference),
        None => {
            context.artifacts().put_json(output_name(context).as_str(), &value).map_err(Failure::into_fault)
        }
    }
}

/// Returns the artifact that a model's last message references.
fn marked(text: &str) -> Result<ArtifactRef, Fault> {
    let wanted = "end the last message with «result:artifact=NAME:VERSION status=success», naming an artifact of this task";
    let bad = |what: &str| Fault::invalid(NO_MARKER, what).with_details([wanted]);
    let embed = ResultEmbed::last(text).ok_or_else(|| bad("the last message has no result marker"))?;
    if embed.failed {
        let message = embed.message.unwrap_or_else(|| "the model reported a failure".to_owned());
        return Err(Fault::new(FaultKind::Failure, FAILED, message));
    }
    match embed.reference() {
        Some(Ok(reference)) => Ok(reference),
        Some(Err(error)) => Err(bad(&error.to_string())),
        None => Err(bad("the result marker names no artifact")),
    }
}

/// Returns the name that the request suggests, else one derived from agent and task.
pub(crate) fn output_name(context: &Context) -> String {
    let suggested = context.about().output_name.as_deref().filter(|name| ArtifactName::parse(name).is_ok());
    suggested.map_or_else(
        || {
            let task = context.task().as_str();
            format!("output_{}.json", &task[task.len().saturating_sub(8)..])
        },
        str::to_owned,
    )
}

#[cfg(test)]
mod tests;
