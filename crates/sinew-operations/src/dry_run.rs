//! Dry runs: which agents an execution would call, with which input. No agent is called, and every
//! output is null.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_engine::{ExecutionMode, Fact, Time};
use sinew_execution::Call;
use sinew_execution::Execution;
use sinew_inspection::execution_status::end_word;
use sinew_protocol::Fault;
use sinew_runtime::sim::{Sim, Stub, Stubbed};

use crate::failure::Failure;
use crate::workflow_file::{Loaded, program};

/// End of virtual time: an execution that waits longer waits for a person.
const END_OF_TIME: Time = 100 * 365 * 24 * 3_600_000;

/// A task that an agent or a workflow would be given.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WouldAsk {
    /// The node, as the plan names it.
    pub node: String,
    /// Name of the agent or workflow.
    pub agent: Value,
    /// Input of the task.
    pub input: Value,
}

/// Outcome of a dry run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DryRun {
    /// Name of the workflow.
    pub workflow: String,
    /// Status of the execution at the end.
    pub status: &'static str,
    /// Tasks in the order in which they would be sent.
    pub would_ask: Vec<WouldAsk>,
    /// Why the input is refused or the execution failed; `None` if it did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

/// Rejects all calls, because a dry run calls no agent.
struct NoAgents;

impl Stub for NoAgents {
    fn call(&mut self, _now: Time, _call: &Call) -> Stubbed {
        Stubbed::Silent
    }
}

/// Runs a workflow of a file in virtual time without calling agents; the first one if none is
/// named.
///
/// # Errors
/// Fails if the file has no workflow with this name, or if it cannot be run.
pub fn dry_run(loaded: &Loaded, workflow: Option<&str>, input: Value) -> Result<DryRun, Failure> {
    let program = program(loaded.dialect, loaded.pick(workflow)?)?;
    let mut sim = Sim::new(Arc::new(loaded.library()?), NoAgents);
    let mode = ExecutionMode { dry_run: true, ..ExecutionMode::default() };
    sim.run(program, input, mode, END_OF_TIME);
    let execution = sim.execution();
    let state = execution.state();
    let outcome = state.outcome.as_ref();
    let status = match outcome {
        Some(outcome) => end_word(outcome.status),
        None => "waiting",
    };
    Ok(DryRun {
        workflow: execution.program().name().to_owned(),
        status,
        would_ask: would_ask(execution),
        error: outcome.and_then(|outcome| outcome.fault.clone()),
    })
}

/// Returns the tasks that a dry run would have sent, in order.
pub fn would_ask(execution: &Execution) -> Vec<WouldAsk> {
    let plan = execution.program().graph.plan();
    let facts = execution.journal().iter().flat_map(|round| &round.facts);
    let asked = facts.filter_map(|fact| match fact {
        Fact::Noted { act: Some(act), note } if note["engine"] == "dry_run" => Some(WouldAsk {
            node: plan.node(execution.state().act(*act).node).id.clone(),
            agent: note["would_ask"].clone(),
            input: note["input"].clone(),
        }),
        _ => None,
    });
    asked.collect()
}
