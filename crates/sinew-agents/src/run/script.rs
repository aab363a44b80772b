//! Runs a script: one Python function from the input to the output.

use std::time::Duration;

use serde_json::json;
use sinew_script::{Function, PrintedText, ScriptError};

use super::{Limits, Output};
use crate::call::Call;
use crate::error::AgentError;

/// A script agent, ready to run.
pub(crate) struct Script(Function);

impl Script {
    /// Compiles the source. `time` overrides the default time limit of a run.
    pub(crate) fn compile(source: &str, time: Option<Duration>) -> Result<Self, ScriptError> {
        let usual = sinew_script::Limits::function();
        let limits = sinew_script::Limits { max_duration: time.unwrap_or(usual.max_duration), ..usual };
        Function::compile_with(source, limits).map(Self)
    }

    pub(crate) async fn run(&self, call: &Call, limits: &Limits) -> Result<Output, AgentError> {
        let (function, input, progress) = (self.0.clone(), call.input.clone(), call.progress.clone());
        // The interpreter blocks. After cancellation it stops at its own limit.
        let work = tokio::task::spawn_blocking(move || {
            let printed = PrintedText::default();
            let result = function.call_printing(&input, &printed);
            for line in printed.take().lines().filter(|line| !line.trim().is_empty()) {
                // Fails if the receiver was dropped.
                let _unheard = progress.send(json!({ "message": line }));
            }
            result
        });
        tokio::select! {
            biased;
            error = limits.reached() => Err(error),
            result = work => Ok(result.map_err(|error| AgentError::Host(error.to_string()))??.into()),
        }
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Script").field(&self.0.name()).finish()
    }
}
