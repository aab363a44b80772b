//! The route of an execution, and the agents that it called: what a search over closed executions
//! compares without reading records.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use sinew_engine::{Activation, ExecutionState, RequestTarget, TokenValue};
use sinew_plan::{EdgeIndex, Plan};
use sinew_protocol::artifact::hash64;

/// Way of one node through an execution, over all its activations.
#[derive(Default)]
struct NodeRoute {
    ends: BTreeSet<&'static str>,
    live: BTreeSet<EdgeIndex>,
    children: &'static str,
    attempts: &'static str,
}

impl NodeRoute {
    fn add(&mut self, activation: &Activation) {
        self.ends.insert(activation.end.map_or("open", |end| end.as_str()));
        let is_live = |value: &TokenValue| !matches!(value, TokenValue::Dead | TokenValue::Failed);
        let live = activation.sent.iter().filter(|token| is_live(&token.value));
        self.live.extend(live.map(|token| token.edge));
        let children = activation.children.as_ref().map_or(0, |children| children.acts.len());
        self.children = self.children.max(class(children));
        self.attempts = self.attempts.max(class(activation.attempt as usize));
    }
}

/// Routes do not depend on how many items a map has or how often a task was tried.
const fn class(count: usize) -> &'static str {
    match count {
        0 => "0",
        1 => "1",
        _ => "many",
    }
}

/// Returns the route of an execution: 11 characters, a 64-bit hash over the nodes that ran with
/// their ends, live edges, and counts of children and attempts as 0, 1 or many, and over outcome and
/// fault code. Executions of one plan with equal routes ran the same nodes in the same way.
pub fn route(plan: &Plan, state: &ExecutionState) -> String {
    let mut nodes: BTreeMap<&str, NodeRoute> = BTreeMap::new();
    for activation in &state.acts {
        nodes.entry(&plan.node(activation.node).id).or_default().add(activation);
    }
    let mut text = String::new();
    for (id, node) in &nodes {
        let ends: Vec<&str> = node.ends.iter().copied().collect();
        let edge = |edge: &EdgeIndex| {
            let edge = &plan.edges[*edge as usize];
            (plan.node(edge.from).id.as_str(), plan.node(edge.to).id.as_str())
        };
        let live: BTreeSet<(&str, &str)> = node.live.iter().map(edge).collect();
        let _ = writeln!(text, "{id:?} {ends:?} {live:?} {} {}", node.children, node.attempts);
    }
    if let Some(outcome) = &state.outcome {
        let code = outcome.fault.as_ref().map_or("", |fault| fault.code.as_ref());
        let _ = write!(text, "{} {code}", outcome.status.as_str());
    }
    hash64(text.as_bytes())
}

/// Returns the agents and workflows that an execution called, in order of first call.
pub fn called_names(state: &ExecutionState) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for ask in state.acts.iter().flat_map(|one| one.asked_before.iter().chain(&one.ask)) {
        let name = ask.target.name();
        if !matches!(ask.target, RequestTarget::Evaluation) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}
