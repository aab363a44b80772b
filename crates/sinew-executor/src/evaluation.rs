//! Scripts of a workflow, evaluated by workers of this process. Their outcomes are the reply to an ask.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;
use sinew_engine::{Ask, Reply};
use sinew_protocol::{ExecutionId, Fault};
use sinew_script::{CallBatch, CallOutcome, ScriptErrorKind};

/// The request of an evaluation cannot be read.
const UNREADABLE_REQUEST: &str = "SINEW-3008";

/// Evaluates on a worker; `done` is called there. Executions take turns.
pub(crate) fn submit_evaluation(
    execution: &ExecutionId,
    ask: &Ask,
    done: impl FnOnce(Result<Reply, Fault>) + Send + 'static,
) {
    let mut owner = DefaultHasher::new();
    execution.as_str().hash(&mut owner);
    match batch_of(ask) {
        Ok(batch) => batch.submit(owner.finish(), move |outcomes| done(reply_of(&outcomes))),
        Err(fault) => done(Err(fault)),
    }
}

/// Evaluates on a worker and waits for it.
pub(crate) fn perform_evaluation(ask: &Ask) -> Result<Reply, Fault> {
    reply_of(&batch_of(ask)?.perform())
}

fn batch_of(ask: &Ask) -> Result<CallBatch, Fault> {
    CallBatch::read(&ask.input).map_err(|error| {
        Fault::error(UNREADABLE_REQUEST, format!("the scripts to evaluate cannot be read: {error}"))
            .with_retryable(false)
    })
}

/// The outcomes as a reply, or a fault if a script was not even run.
fn reply_of(outcomes: &[CallOutcome]) -> Result<Reply, Fault> {
    for outcome in outcomes {
        if let CallOutcome::Error(error) = outcome
            && error.kind == ScriptErrorKind::Unavailable
        {
            return Err(Fault::error(error.code(), error.message.clone()));
        }
    }
    let outcomes = serde_json::to_value(outcomes).unwrap_or(Value::Null);
    Ok(Reply::new(outcomes))
}
