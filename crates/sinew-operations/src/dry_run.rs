//! Dry runs: which agents an execution would call, with which input. No agent is called; every output
//! is a sample of its schema, or null without one.

use sinew_documents::execution_status::ExecutionStatus;
use sinew_documents::trial::{DryRun, WouldAsk};
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sinew_engine::{ExecutionMode, Fact, TerminalStatus, Time};
use sinew_execution::Call;
use sinew_execution::Execution;
use sinew_runtime::sim::{Sim, Stub, Stubbed};

use sinew_plan::Plan;

use crate::failure::Failure;
use crate::sample_input::sample_of_output;
use crate::workflow_file::{Loaded, program};

/// End of virtual time: an execution that waits longer waits for a person.
const END_OF_TIME: Time = 100 * 365 * 24 * 3_600_000;

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
    let samples = output_samples(program.graph.plan(), std::iter::empty());
    let mode = ExecutionMode { dry_run: true, samples, ..ExecutionMode::default() };
    sim.run(program, input, mode, END_OF_TIME);
    let execution = sim.execution();
    let state = execution.state();
    let outcome = state.outcome.as_ref();
    let status = match outcome.map(|outcome| outcome.status) {
        Some(TerminalStatus::Success) => ExecutionStatus::Success,
        Some(TerminalStatus::Failure) => ExecutionStatus::Failure,
        Some(TerminalStatus::Cancelled) => ExecutionStatus::Cancelled,
        None => ExecutionStatus::Waiting,
    };
    Ok(DryRun {
        workflow: execution.program().name().to_owned(),
        status,
        would_ask: would_ask(execution),
        error: outcome.and_then(|outcome| outcome.fault.clone()),
    })
}

/// Returns samples of the outputs of nodes whose file declares a schema, by node id, and of agents that
/// declare one, by name.
pub fn output_samples<'a>(
    plan: &'a Plan,
    agents: impl Iterator<Item = (&'a str, Option<&'a Value>)>,
) -> BTreeMap<String, Arc<Value>> {
    let own =
        plan.nodes.iter().filter_map(|node| Some((&node.id, node.extra.get("output_schema_override")?)));
    let of_node = own.filter(|(_, schema)| schema.is_object());
    let of_node = of_node.map(|(id, schema)| (id.clone(), schema));
    let of_agent = agents.filter_map(|(name, schema)| Some((name.to_owned(), schema?)));
    let sampled = |(name, schema): (String, &Value)| (name, Arc::new(sample_of_output(schema)));
    of_agent.chain(of_node).map(sampled).collect()
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
