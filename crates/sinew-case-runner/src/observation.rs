//! Runs a case on the engine, and returns its result.

use std::collections::BTreeSet;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::{Value, json};
use sinew_engine::{
    ActivationPhase, AdapterContext, ExecutionMode, Fact, InputRefusal, NodeView as Standing, ROOT, Time,
};
use sinew_execution::{Execution, Library, Program, events};
use sinew_inspection::execution_status::end_word;
use sinew_inspection::node_rows;
use sinew_plan::NodeIndex;
use sinew_runtime::sim::{Signal, Sim};

use crate::case_file::Case;
use crate::stub::{AskedAgent, StubPlayer};

/// End of virtual time: an execution that runs for a hundred years never ends.
const FOREVER: Time = 100 * 365 * 24 * 3_600_000;

/// Result of a test execution.
#[derive(Debug)]
pub(crate) struct CaseObservation {
    /// Status as in views; `running` if the execution is stuck.
    pub(crate) status: &'static str,
    /// Output of the execution.
    pub(crate) output: Option<Value>,
    /// Message of the error.
    pub(crate) error: Option<String>,
    /// Nodes by id, and children by their id in events.
    pub(crate) nodes: IndexMap<String, NodeObservation>,
    /// Ids of reachable nodes, in file order.
    pub(crate) listed: Vec<String>,
    /// Used stubs, by kind and name.
    pub(crate) used: BTreeSet<String>,
    /// Names of all nodes and agents of the workflows.
    pub(crate) names: BTreeSet<String>,
    /// All calls of agents.
    pub(crate) asked: Vec<AskedAgent>,
    /// Started nodes, in order.
    pub(crate) order: Vec<String>,
    /// Virtual milliseconds to the end.
    pub(crate) elapsed: Time,
    /// Events of the dialect.
    pub(crate) events: Vec<String>,
    /// Result of the dialect.
    pub(crate) result: Value,
    /// Number of facts of all executions.
    pub(crate) facts: usize,
    /// Violations that fail any case.
    pub(crate) wrong: Vec<String>,
    /// Refused signals, each with the reason.
    pub(crate) refused: Vec<String>,
    /// All executions, for coverage.
    pub(crate) executions: Vec<Execution>,
}

/// Result of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeObservation {
    /// Status as in views.
    pub(crate) status: &'static str,
    /// Attempts of the last activation.
    pub(crate) attempts: u32,
    /// Last output.
    pub(crate) output: Option<Value>,
}

/// Runs a case. `crashes` are numbers of facts after which all memory is lost.
pub(crate) fn run(
    case: &Case,
    program: &Program,
    library: &Arc<Library>,
    crashes: &[usize],
) -> CaseObservation {
    let player = StubPlayer::new(case.stubs.clone());
    let mut sim = Sim::new(Arc::clone(library), player);
    for n in crashes {
        sim.crash_after(*n);
    }
    for (at, signal, _) in &case.signals {
        sim.signal(*at, signal.clone());
    }
    sim.run(program.clone(), case.input.clone(), ExecutionMode::default(), FOREVER);
    let execution = sim.execution();
    let ctx = execution.ctx();
    let outcome = execution.state().outcome.as_ref().filter(|_| execution.state().ended);
    let asked_unlisted = |(agent, node): &(String, String)| {
        format!("node '{node}' called agent '{agent}', which the case does not list")
    };
    CaseObservation {
        status: status(execution),
        output: outcome.and_then(|outcome| outcome.output.as_deref().cloned()),
        error: outcome.and_then(|outcome| outcome.fault.as_ref()).map(|fault| fault.message.clone()),
        nodes: nodes(&ctx),
        listed: listed(&ctx),
        used: sim.stub().used().cloned().collect(),
        names: names(library),
        asked: sim.stub().asked.clone(),
        order: order(execution),
        elapsed: elapsed(execution).unwrap_or_else(|| sim.now()),
        events: execution.native_events().into_iter().map(|event| event.line).collect(),
        result: execution.native_result(),
        facts: sim.facts(),
        wrong: sim.stub().unlisted.iter().map(asked_unlisted).collect(),
        refused: sim.refused.iter().map(refused).collect(),
        executions: sim.executions().cloned().collect(),
    }
}

/// Returns the names of all nodes and agents of the workflows.
fn names(library: &Library) -> BTreeSet<String> {
    let nodes = library.iter().flat_map(|program| &program.graph.plan().nodes);
    nodes.flat_map(|node| node.agent.iter().chain([&node.id])).cloned().collect()
}

/// Formats the refusal of a signal.
fn refused((signal, why): &(Signal, InputRefusal)) -> String {
    let what = match signal {
        Signal::Answer(Some(node), _) => format!("the answer to '{node}'"),
        Signal::Answer(None, _) => "the answer".to_owned(),
        Signal::Cancel(_) => "the cancellation".to_owned(),
        Signal::Pause(_) => "the pause".to_owned(),
        Signal::Resume => "the resumption".to_owned(),
        Signal::Retry(_) => "the retry".to_owned(),
    };
    match why {
        InputRefusal::NotWaiting(_) => format!("{what}: no node waits for a person there at that time"),
        why => format!("{what}: {why}"),
    }
}

fn status(execution: &Execution) -> &'static str {
    let state = execution.state();
    match state.outcome.as_ref().filter(|_| state.ended).map(|outcome| outcome.status) {
        Some(ended) => end_word(ended),
        None if state.paused.is_some() => "paused",
        None if state.acts.iter().any(|one| one.phase == ActivationPhase::Waiting) => "waiting",
        None => "running",
    }
}

fn listed(ctx: &AdapterContext<'_>) -> Vec<String> {
    let nodes = ctx.plan().nodes.iter().filter(|node| !node.inner && !node.attached);
    nodes.map(|node| node.id.clone()).collect()
}

/// Returns the current nodes and children.
pub(crate) fn nodes(ctx: &AdapterContext<'_>) -> IndexMap<String, NodeObservation> {
    let plan = ctx.plan();
    let mut nodes = IndexMap::new();
    for ix in 0..plan.nodes.len() as NodeIndex {
        let status = match ctx.seen(ROOT, ix) {
            Standing::Dead(_) => "skipped",
            _ => "planned",
        };
        nodes.insert(plan.node(ix).id.clone(), NodeObservation { status, attempts: 0, output: None });
    }
    for (act, one) in ctx.state.acts.iter().enumerate() {
        let seen = NodeObservation {
            status: node_rows::word(one).as_str(),
            attempts: one.attempt,
            output: one.output.as_ref().map(|output| Value::clone(&output.value)),
        };
        nodes.insert(events::label(ctx, act as u32), seen.clone());
        nodes.insert(plan.node(one.node).id.clone(), seen);
    }
    nodes
}

fn order(execution: &Execution) -> Vec<String> {
    let mut order = Vec::new();
    execution.replay(|ctx, fact| {
        if let Fact::Began { act } = fact {
            order.push(events::label(ctx, *act));
        }
    });
    order
}

/// Returns the end time of the execution.
fn elapsed(execution: &Execution) -> Option<Time> {
    let ended = |round: &&sinew_engine::Round| round.facts.contains(&Fact::Ended);
    execution.journal().iter().rfind(ended).map(|round| round.at)
}

impl CaseObservation {
    /// Returns the part of the result that crashes must not change.
    pub(crate) fn essence(&self) -> Value {
        let nodes: IndexMap<&str, Value> = self
            .nodes
            .iter()
            .map(|(id, node)| (id.as_str(), json!({ "status": node.status, "output": node.output })))
            .collect();
        json!({
            "status": self.status,
            "output": self.output,
            "error": self.error,
            "nodes": nodes,
            "elapsed_ms": self.elapsed,
            "events": self.events,
            "result": self.result,
        })
    }
}
