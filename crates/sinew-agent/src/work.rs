//! One task from its input to its end: checks, tries, time, panics.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sinew_protocol::artifact::ArtifactRef;
use sinew_protocol::embed::ResultEmbed;
use sinew_protocol::unique_keys::read_unique;
use sinew_protocol::{ArtifactName, Fault, FaultKind};
use sinew_source::{Schema, Violation};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::agent::Compiled;
use crate::context::Context;
use crate::failure::{
    ARTIFACTS, BAD_INPUT, BAD_OUTPUT, CANCELLED, FAILED, Failure, NO_MARKER, PANICKED, TOO_LATE, bad_json,
    bad_schema, bounded, is_bad_output, violations,
};
use crate::handler::Said;

/// How long a handler may tidy up after its task was given up.
const TIDY_UP: Duration = Duration::from_secs(5);

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    /// The output and where it is kept, or why there is none.
    pub(crate) result: Result<ArtifactRef, Fault>,
    /// How often the handler was called after the first time.
    pub(crate) retries: u32,
}

impl Ended {
    /// An end before any work.
    pub(crate) fn refused(fault: Fault) -> Self {
        Self { result: Err(bounded(fault)), retries: 0 }
    }
}

/// The process stops before the task did: another one has to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenUp;

/// Works on a task. `halt` fires when the process cannot wait any longer.
pub(crate) async fn work(
    agent: &Compiled,
    input: &Value,
    context: &Context,
    halt: &CancellationToken,
) -> Result<Ended, GivenUp> {
    if let Err(fault) = check_input(agent, input, context) {
        return Ok(Ended::refused(fault));
    }
    let until = Instant::now() + time_left(agent, context);
    let mut retry = 0;
    let mut context = context.clone();
    loop {
        let result = match attempt(agent, input, &context, until, halt).await? {
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
            result => return Ok(Ended { result, retries: retry }),
        }
    }
}

/// How long a task may take: until its deadline, and never longer than the agent allows.
pub(crate) fn time_left(agent: &Compiled, context: &Context) -> Duration {
    let left =
        context.deadline().map(|deadline| deadline.duration_since(SystemTime::now()).unwrap_or_default());
    left.unwrap_or(agent.agent.timeout).min(agent.agent.timeout)
}

fn check_input(agent: &Compiled, input: &Value, context: &Context) -> Result<(), Fault> {
    check(agent, context.input_schema(), agent.input.as_ref(), input)
        .map_err(|refused| refused.fault(BAD_INPUT, "input"))
}

enum Refused {
    Schema(sinew_source::SchemaError),
    Value(Vec<Violation>),
}

impl Refused {
    fn fault(&self, code: &'static str, what: &str) -> Fault {
        match self {
            Self::Schema(error) => bad_schema(code, what, error),
            Self::Value(found) => violations(code, what, found),
        }
    }
}

/// Checks against the request's schema, else against the agent's.
fn check(
    agent: &Compiled,
    request: Option<&Value>,
    own: Option<&Schema>,
    value: &Value,
) -> Result<(), Refused> {
    if let Some(schema) = request {
        let schema: Arc<Schema> = agent.schemas.get(schema).map_err(Refused::Schema)?;
        return schema.check(value).map_err(Refused::Value);
    }
    own.map_or(Ok(()), |schema| schema.check(value).map_err(Refused::Value))
}

/// Calls the handler once, on a task of its own: it may panic, block, or never come back.
async fn attempt(
    agent: &Compiled,
    input: &Value,
    context: &Context,
    until: Instant,
    halt: &CancellationToken,
) -> Result<Result<Said, Fault>, GivenUp> {
    let cancelled = || Fault::cancelled(CANCELLED, "the task was cancelled");
    if context.cancel().is_cancelled() {
        return Ok(Err(cancelled()));
    }
    let handler = Arc::clone(&agent.agent.handler);
    let (own_input, own_context) = (input.clone(), context.clone());
    let called = async move { handler(own_input, own_context).await };
    let mut called = Called(tokio::spawn(called.in_current_span()));
    let why = tokio::select! {
        biased;
        said = &mut called.0 => return Ok(said.unwrap_or_else(|error| {
            tracing::error!(agent = agent.agent.name, task = %context.task(), %error, "the handler panicked");
            Err(Fault::error(PANICKED, "the handler panicked"))
        })),
        () = halt.cancelled() => {
            context.cancel().cancel();
            return Err(GivenUp);
        }
        () = context.cancel().cancelled() => cancelled(),
        () = sleep_until(until) => Fault::timeout(TOO_LATE, "the handler did not answer in time"),
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

/// A handler at work; it ends with whoever waits for it.
struct Called(JoinHandle<Result<Said, Fault>>);

impl Drop for Called {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The output as an artifact of the task, if it is one that may go out.
fn kept(agent: &Compiled, said: Said, context: &Context) -> Result<ArtifactRef, Fault> {
    let (value, kept) = match said {
        Said::Value(value) => (value, None),
        Said::Text(text) => {
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
    check(agent, context.output_schema(), agent.output.as_ref(), &value)
        .map_err(|refused| refused.fault(BAD_OUTPUT, "output"))?;
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
        let message = embed.message.unwrap_or_else(|| "the model says that the work failed".to_owned());
        return Err(Fault::new(FaultKind::Failure, FAILED, message));
    }
    match embed.reference() {
        Some(Ok(reference)) => Ok(reference),
        Some(Err(error)) => Err(bad(&error.to_string())),
        None => Err(bad("the result marker names no artifact")),
    }
}

/// The name that the request suggests, else one that follows from agent and task.
fn output_name(context: &Context) -> String {
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
