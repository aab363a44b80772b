//! Checks of inputs before an execution starts.

use serde_json::Value;
use sinew_documents::words;
use sinew_engine::{EngineInput, ExecutionMode};
use sinew_execution::{Execution, Program};
use sinew_protocol::ExecutionId;
use sinew_runtime::local;

use crate::failure::{Failure, FailureKind, known};

/// Validates an input like the start of an execution, without storing anything.
pub fn check_input(program: &Program, input: &Value, mode: &ExecutionMode) -> Result<(), Failure> {
    let mut trial = Execution::new(ExecutionId::of("local", "input-check", program.name()), program.clone());
    let start = EngineInput::Start {
        input: input.clone(),
        mode: mode.clone(),
        depth: 0,
        chain: Vec::new(),
        paused: None,
    };
    let started = trial.input(local::now(), start);
    let refused = match (&started, trial.state().start.as_ref()) {
        (Err(refused), _) => return Err(Failure::usage(refused.to_string())),
        (Ok(_), Some(start)) => start.refused.as_ref(),
        (Ok(_), None) => None,
    };
    let Some(fault) = refused else { return Ok(()) };
    let is_news = |detail: &&String| !fault.message.contains(detail.as_str());
    let details = fault.details.iter().filter(is_news).map(|detail| format!("\n  {detail}"));
    let message = std::iter::once(fault.message.clone()).chain(details).collect::<String>();
    let name = words::shell(program.name());
    Err(Failure::new(
        FailureKind::Usage,
        known(&fault.code),
        format!("the input is rejected and nothing was stored: {message}"),
    )
    .hint(format!("`sinew workflow describe {name}` shows the schema of the input")))
}
