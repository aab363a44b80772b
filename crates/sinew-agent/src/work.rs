//! One task from its input to its end: checks, tries, time, panics.

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

/// How long a handler may tidy up after its task was given up.
const TIDY_UP: Duration = Duration::from_secs(5);

/// How long the end of a handler is waited for when its process stops.
const HALT_TIMEOUT: Duration = Duration::from_secs(1);

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndedTask {
    /// The output and where it is kept, or why there is none.
    pub(crate) result: Result<ArtifactRef, Fault>,
    /// How often the handler was called after the first time.
    pub(crate) retries: u32,
    /// Time from the first call of the handler to the end; zero if it was not called.
    pub(crate) worked: Duration,
}

impl EndedTask {
    /// Logs why a task failed. Not the fault's message: it may quote the task.
    pub(crate) fn log_failure(&self, context: &Context) {
        let Err(fault) = &self.result else { return };
        let TaskProperties { agent, execution, task, .. } = context.about();
        let (code, retries) = (&*fault.code, self.retries);
        let reason = sinew_protocol::code::title(code).unwrap_or_default();
        log_limited!(20, info, %agent, %execution, %task, code, reason, retries, "task failed");
    }

    /// An end before any work.
    pub(crate) fn refused(fault: Fault) -> Self {
        Self { result: Err(bounded(fault)), retries: 0, worked: Duration::ZERO }
    }
}

/// The process has no answer to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The process stops before the task did: another one has to do it.
    Stopping,
    /// Another process does it, behind the steps of this one.
    TakenOver,
}

/// Works on a task. `halt` fires when the process cannot wait any longer.
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

/// Works on a task whose input was checked. The handler's first call may have been begun already.
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
            // The answer would compete with that of the other process, whatever it is.
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

/// How long a task may take: until its deadline, and never longer than the agent allows.
pub(crate) fn time_left(agent: &CompiledAgent, context: &Context) -> Duration {
    let left =
        context.deadline().map(|deadline| deadline.duration_since(SystemTime::now()).unwrap_or_default());
    left.unwrap_or(agent.agent.timeout).min(agent.agent.timeout)
}

pub(crate) fn check_input(agent: &CompiledAgent, input: &Value, context: &Context) -> Result<(), Fault> {
    check(agent, context.input_schema(), agent.input.as_ref(), input)
        .map_err(|refused| refused.fault(BAD_INPUT, "input"))
}

/// Checks an output against the request's schema, else against the agent's.
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

/// Checks against the request's schema, else against the agent's.
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

/// The first call of a handler, as far as it has come.
pub(crate) enum FirstCall {
    /// The handler works.
    Running(HandlerCall),
    /// The handler has answered.
    Answered(Result<HandlerOutput, Fault>),
}

/// Calls the handler; nothing of it runs before the call is polled.
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

/// Waits for a call of the handler, on a task of its own: it may block, or never come back.
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
            // The handler ends before it could give up the calls that it waits for: the next process finds them.
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

/// Returns the answer of a handler. A cancelled task ends as cancelled, whatever its handler returns on the way out.
fn unless_cancelled(context: &Context, answer: Result<HandlerOutput, Fault>) -> Result<HandlerOutput, Fault> {
    if context.cancel().is_cancelled() { Err(cancelled()) } else { answer }
}

/// A handler at work; it ends with whoever waits for it.
struct RunningHandler(JoinHandle<Result<HandlerOutput, Fault>>);

impl Drop for RunningHandler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The output as an artifact of the task, if it is one that may go out.
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

/// The artifact that a model's last message names.
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

/// The name that the request suggests, else one that follows from agent and task.
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
