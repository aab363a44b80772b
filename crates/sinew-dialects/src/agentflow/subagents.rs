//! Delegation: the links from agents to their sub-agents, and the checks of these links.
//!
//! The links are checked as a whole, because one invalid link fails whichever agent runs first.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sinew_source::Span;

use super::model::{Agent, CanvasGraph, FileNode, FlowConnection, Work};

/// Maximum depth of delegation: every level is a whole agent run inside another.
const DEEPEST: usize = 32;

/// An error in the links.
pub(super) struct LinkProblem {
    /// Short name of the rule.
    pub(super) code: &'static str,
    /// Message as in the execution's log.
    pub(super) message: String,
    pub(super) span: Span,
}

/// Returns all errors, in file order; cycles last.
pub(super) fn problems(graph: &CanvasGraph) -> Vec<LinkProblem> {
    let mut found = Vec::new();
    let nodes: BTreeMap<&str, &Work> =
        graph.nodes.iter().map(|node| (node.id.as_str(), &node.work)).collect();
    let mut flow: BTreeMap<&str, &FlowConnection> = BTreeMap::new();
    for edge in graph.connections.iter().filter(|edge| !edge.is_subagent()) {
        flow.entry(&edge.source).or_insert(edge);
        flow.entry(&edge.target).or_insert(edge);
    }
    let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
    for link in graph.connections.iter().filter(|connection| connection.is_subagent()) {
        let (source, target) = (link.source.as_str(), link.target.as_str());
        let mut report = |code, rule: &str| {
            let message = format!("Subagent link \"{source}\" -> \"{target}\" {rule}");
            found.push(LinkProblem { code, message, span: link.handle_span });
        };
        match nodes.get(source) {
            None => report("SUBAGENT_SOURCE_MISSING", "has a source that does not exist."),
            Some(Work::Agent(agent)) if !agent.delegates() => {
                report("SUBAGENT_TOOL_DISABLED", "requires the subagents tool to be enabled on its source.");
            }
            Some(Work::Agent(_)) => {}
            Some(_) => report("SUBAGENT_SOURCE_TYPE", "must start at an agent node."),
        }
        match nodes.get(target) {
            None => report("SUBAGENT_TARGET_MISSING", "has a target that does not exist."),
            Some(Work::Agent(_)) => {}
            Some(_) => report("SUBAGENT_TARGET_TYPE", "must end at an agent node."),
        }
        if link.target_handle.as_deref().is_some_and(|handle| handle != "input") {
            report("SUBAGENT_HANDLE", "must connect to input handle.");
        }
        if source == target {
            report("SUBAGENT_SELF", "cannot reference itself.");
            continue;
        }
        if parents.get(target).is_some_and(|parent| *parent != source) {
            report("SUBAGENT_PARENTS", "gives its target more than one parent.");
        } else if parents.insert(target, source).is_some() {
            report("SUBAGENT_PARENTS", "is drawn twice.");
        }
        if let Some(edge) = flow.get(target) {
            let message = format!(
                "Subagent target \"{target}\" cannot be used in the regular execution edge \"{}\" -> \"{}\".",
                edge.source, edge.target
            );
            found.push(LinkProblem { code: "SUBAGENT_IN_FLOW", message, span: edge.target_span });
        }
    }
    found.extend(cycles(graph, &parents));
    found
}

/// Finds each cycle and each chain that is too deep by following parents: every node has at most
/// one.
fn cycles(graph: &CanvasGraph, parents: &BTreeMap<&str, &str>) -> Vec<LinkProblem> {
    let mut found = Vec::new();
    let mut depths: BTreeMap<&str, usize> = BTreeMap::new();
    let mut links: BTreeMap<&str, Span> = BTreeMap::new();
    for link in graph.connections.iter().filter(|link| link.is_subagent()) {
        links.entry(&link.source).or_insert(link.handle_span);
    }
    let place = |id: &str| links.get(id).copied().unwrap_or_default();
    for node in &graph.nodes {
        // The path from the node up to its root, or to a node with a known depth.
        let mut path: Vec<&str> = Vec::new();
        let mut next = Some(node.id.as_str());
        while let Some(id) = next.filter(|id| !depths.contains_key(id) && path.len() <= DEEPEST) {
            if let Some(start) = path.iter().position(|seen| *seen == id) {
                let message = cycle(&path[start..], &node.id);
                found.push(LinkProblem { code: "SUBAGENT_CYCLE", message, span: place(id) });
                break;
            }
            path.push(id);
            next = parents.get(id).copied();
        }
        let above = next.and_then(|id| depths.get(id)).map_or(0, |depth| depth + 1);
        let crosses = above <= DEEPEST + 1 && above + path.len() > DEEPEST + 1;
        if crosses || path.len() > DEEPEST {
            let message = format!("Subagents above \"{}\" are nested deeper than {DEEPEST} levels.", node.id);
            found.push(LinkProblem { code: "SUBAGENT_DEPTH", message, span: place(&node.id) });
        }
        for (n, id) in path.iter().rev().enumerate() {
            depths.insert(id, above + n);
        }
    }
    found
}

/// Formats a cycle, walked from child to parent, in reading order. The first node is repeated twice
/// at the end, as always in the logs of this dialect.
fn cycle(path: &[&str], first: &str) -> String {
    let mut cycle: Vec<&str> = path.iter().rev().copied().collect();
    let first = cycle.iter().position(|id| *id == first).unwrap_or(0);
    cycle.rotate_left(first);
    let (head, text) = (cycle[0], cycle.join(" -> "));
    format!("Subagent cycle detected: {text} -> {head} -> {head}")
}

/// The sub-agents of each agent.
pub(super) struct DelegationTree<'g> {
    agents: BTreeMap<&'g str, &'g Agent>,
    below: BTreeMap<&'g str, Vec<&'g str>>,
}

impl<'g> DelegationTree<'g> {
    pub(super) fn of(graph: &'g CanvasGraph) -> Self {
        let agent = |node: &'g FileNode| match &node.work {
            Work::Agent(agent) => Some((node.id.as_str(), agent)),
            _ => None,
        };
        let mut below: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for link in graph.connections.iter().filter(|link| link.is_subagent()) {
            below.entry(&link.source).or_default().push(&link.target);
        }
        Self { agents: graph.nodes.iter().filter_map(agent).collect(), below }
    }

    /// Returns an agent's settings with its sub-agents as tools. Requires checked links.
    pub(super) fn tree(&self, id: &str, agent: &Agent) -> Value {
        let below = self.below.get(id).into_iter().flatten().filter_map(|child| {
            let settings = self.agents.get(child)?;
            let Value::Object(below) = self.tree(child, settings) else { return None };
            let mut node = serde_json::Map::new();
            node.insert("nodeId".into(), json!(child));
            node.insert("agentName".into(), json!(settings.name));
            node.extend(below);
            Some(Value::Object(node))
        });
        let below: Vec<Value> = below.collect();
        let mut own = json!({
            "systemPrompt": agent.system_prompt,
            "model": agent.model,
            "reasoningEffort": agent.effort,
        });
        if !agent.tools.is_null() {
            own["tools"] = agent.tools.clone();
        }
        if !below.is_empty() {
            own["subagents"] = Value::Array(below);
        }
        own
    }
}
