//! Lowers a file's graph to a plan.
//!
//! Graphs that cannot run still become plans, which fail with the messages that users of the
//! dialect know from their logs. Their errors are also reported with the plan, so that a check of
//! the file rejects them before any execution.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sinew_plan::{
    FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan, PlanEdge, PlanLimits, PlanNode,
    ReadyOrder, RetryPolicy, SchedulingProfile,
};
use sinew_source::{Diagnostic, Diagnostics, Document, Node, Span};

use super::model::{self, CanvasGraph, FileNode, FlowConnection, Work};
use super::{NAME, subagents, unknown_keys};
use crate::display::{self, DISPLAY};
use crate::{LowerOptions, Lowered};

/// Maximum number of tokens over one connection. Reject loops need a few; an endless cycle must not
/// run forever.
const EDGE_BUDGET: u32 = 1_000;
/// The agent if neither the file nor the caller names one.
const DEFAULT_AGENT: &str = "agent";

/// Data of a node for the adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Extra {
    /// Operation of the node.
    #[serde(flatten)]
    pub(super) work: Work,
    /// Settings of an agent and its sub-agents, for the agent.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) own: Value,
    /// Connections to missing nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<MissingTarget>,
}

/// A connection to a missing node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MissingTarget {
    pub(super) port: String,
    pub(super) target: String,
}

pub(super) fn lower(document: Document, options: &LowerOptions<'_>) -> Result<Lowered, Diagnostics> {
    let mut found = Vec::new();
    let root = model::graph_of(&document.root);
    let graph = model::read(root, &mut found);
    let mut diagnostics = Diagnostics::new(document.sources);
    if !found.is_empty() {
        diagnostics.extend(found);
        diagnostics.set_dialect(NAME);
        diagnostics.sort();
        return Err(diagnostics);
    }
    let name = root.get("name").and_then(Node::as_str).filter(|name| !name.is_empty());
    let (mut plan, places) =
        plan(&graph, name.unwrap_or(options.default_name), options.agents, root.span, &mut found);
    unknown_keys::check(root, &diagnostics.sources, &mut found);
    diagnostics.extend(found);
    diagnostics.extend(display::mark_quiet(root.get(DISPLAY), &mut plan.nodes));
    diagnostics.set_dialect(NAME);
    diagnostics.sort();
    Ok(Lowered { plan, places, warnings: diagnostics, agents: BTreeMap::new() })
}

fn plan(
    graph: &CanvasGraph,
    name: &str,
    agents: &BTreeMap<String, String>,
    whole: Span,
    found: &mut Vec<Diagnostic>,
) -> (Plan, Vec<Option<Span>>) {
    let problems = subagents::problems(graph);
    let first_problem = problems.first().map(|problem| problem.message.clone());
    found.extend(problems.into_iter().map(|problem| {
        let message = problem.message.trim_end_matches('.').replacen("Subagent", "subagent", 1);
        Diagnostic::error(code::AGENTFLOW_SUBAGENT_LINKS_NOT_VALID.as_str(), message)
            .at(problem.span)
            .sub_code(problem.code)
    }));
    let ids: BTreeMap<&str, NodeIndex> =
        graph.nodes.iter().enumerate().map(|(ix, node)| (node.id.as_str(), ix as NodeIndex)).collect();
    let (edges, mut missing) = edges(graph, &ids, found);
    let delegated: BTreeSet<NodeIndex> =
        edges.iter().filter(|edge| edge.attach).map(|edge| edge.from).collect();
    let in_flow: BTreeSet<NodeIndex> =
        edges.iter().filter(|edge| !edge.attach).flat_map(|edge| [edge.from, edge.to]).collect();
    let delegation = subagents::DelegationTree::of(graph);
    let mut nodes: Vec<PlanNode> = Vec::with_capacity(graph.nodes.len());
    for (ix, node) in graph.nodes.iter().enumerate() {
        let ix = ix as NodeIndex;
        if matches!(node.work, Work::Unknown) {
            found.push(unknown_kind(node, found.len()));
        }
        let own = match &node.work {
            Work::Agent(agent) if first_problem.is_none() => delegation.tree(&node.id, agent),
            _ => Value::Null,
        };
        let extra = Extra { work: node.work.clone(), own, missing: missing.remove(&ix).unwrap_or_default() };
        let mut lowered = plan_node(&node.id, &node.kind, extra, agents);
        lowered.attached = delegated.contains(&ix) && !in_flow.contains(&ix);
        nodes.push(lowered);
    }
    let mut places: Vec<Option<Span>> = graph.nodes.iter().map(|node| Some(node.span)).collect();
    let entry = entry(graph, whole, found).unwrap_or_else(|message| {
        // An additional node fails in place of the missing start.
        let mut id = "system".to_owned();
        while ids.contains_key(id.as_str()) {
            id.push('_');
        }
        let extra = Extra { work: Work::Broken { message }, own: Value::Null, missing: Vec::new() };
        nodes.push(plan_node(&id, "system", extra, agents));
        places.push(None);
        nodes.len() as NodeIndex - 1
    });
    let plan = Plan {
        format: Plan::FORMAT,
        dialect: NAME.to_owned(),
        name: name.to_owned(),
        description: String::new(),
        version: None,
        profile: SchedulingProfile {
            order: ReadyOrder::DepthFirst,
            parallel: 0,
            failure: FailurePolicy::Drain,
            pause: PausePolicy::FreezeDefer,
        },
        nodes,
        edges,
        entry: vec![entry],
        exits: Vec::new(),
        limits: PlanLimits { edge: EDGE_BUDGET, ..PlanLimits::default() },
        input_schema: None,
        output_schema: None,
        extra: json!({ "subagent_problem": first_problem }),
    };
    (plan, places)
}

/// Returns a warning about a node of an unknown type; `count` findings came before.
fn unknown_kind(node: &FileNode, count: usize) -> Diagnostic {
    let message = format!("node type '{}' is unknown; the node would be skipped", node.kind);
    let warning = Diagnostic::warning(code::AGENTFLOW_PART_DOES_NOTHING.as_str(), message)
        .at(node.kind_span)
        .sub_code("UNKNOWN_NODE_TYPE");
    match sinew_source::hint_for(count, &node.kind, ["start", "agent", "if", "approval"].into_iter()) {
        Some(kind) => warning.hint(format!("did you mean '{kind}'?")),
        None => warning,
    }
}

/// Returns the only start node, or the reason why the graph cannot start.
fn entry(graph: &CanvasGraph, whole: Span, found: &mut Vec<Diagnostic>) -> Result<NodeIndex, String> {
    let is_start = |(_, node): &(usize, &FileNode)| matches!(node.work, Work::Start { .. });
    let starts: Vec<(usize, &FileNode)> = graph.nodes.iter().enumerate().filter(is_start).collect();
    match starts.as_slice() {
        [(ix, _)] => Ok(*ix as NodeIndex),
        [] => {
            found.push(
                Diagnostic::error(code::AGENTFLOW_GRAPH_CANNOT_START.as_str(), "the graph has no start node")
                    .at(whole)
                    .sub_code("NO_START"),
            );
            Err("No start node found in workflow graph".to_owned())
        }
        [(_, first), others @ ..] => {
            let message = format!("the graph has {} start nodes; exactly one is required", starts.len());
            for (_, other) in others {
                found.push(
                    Diagnostic::error(code::AGENTFLOW_GRAPH_CANNOT_START.as_str(), message.clone())
                        .at(other.span)
                        .sub_code("MULTIPLE_STARTS")
                        .related(first.span, "the first one"),
                );
            }
            Err("More than one start node found in workflow graph".to_owned())
        }
    }
}

fn edges(
    graph: &CanvasGraph,
    ids: &BTreeMap<&str, NodeIndex>,
    found: &mut Vec<Diagnostic>,
) -> (Vec<PlanEdge>, BTreeMap<NodeIndex, Vec<MissingTarget>>) {
    let known: Vec<&str> = ids.keys().copied().collect();
    let mut edges = Vec::new();
    let mut missing: BTreeMap<NodeIndex, Vec<MissingTarget>> = BTreeMap::new();
    for connection in &graph.connections {
        let (from, to) = (ids.get(connection.source.as_str()), ids.get(connection.target.as_str()));
        let count = found.len();
        let mut warn = |code: &str, message: String, at: Span, word: &str, known: &[&str]| {
            let warning = Diagnostic::warning(code::AGENTFLOW_PART_DOES_NOTHING.as_str(), message);
            let warning = warning.at(at).sub_code(code);
            found.push(match sinew_source::hint_for(count, word, known.iter().copied()) {
                Some(near) => warning.hint(format!("did you mean '{near}'?")),
                None => warning,
            });
        };
        let Some(&from) = from else {
            let message = format!("connection source '{}' is not a node", connection.source);
            warn("UNKNOWN_SOURCE", message, connection.source_span, &connection.source, &known);
            continue;
        };
        let work = &graph.nodes[from as usize].work;
        let port = port(connection, work);
        let Some(&to) = to else {
            if !connection.is_subagent() {
                let message = format!("connection target '{}' is not a node", connection.target);
                warn("UNKNOWN_TARGET", message, connection.target_span, &connection.target, &known);
                missing
                    .entry(from)
                    .or_default()
                    .push(MissingTarget { port, target: connection.target.clone() });
            }
            continue;
        };
        if !connection.is_subagent() && !may_leave(work, &port) {
            let ports = ports(work);
            let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
            let message = format!("node '{}' has no branch '{port}'", connection.source);
            warn("UNKNOWN_HANDLE", message, connection.handle_span, &port, &ports);
        }
        let attach = connection.is_subagent();
        edges.push(PlanEdge {
            // Structure is attached to the agent that uses it.
            from: if attach { to } else { from },
            to: if attach { from } else { to },
            label: label(work, &port),
            port,
            handle: connection.target_handle.clone().unwrap_or_else(|| "input".to_owned()),
            budget: None,
            counter: edges.len() as u32,
            veto: false,
            quorum: false,
            attach,
            extra: Value::Null,
        });
    }
    (edges, missing)
}

/// Returns the port that a connection leaves. `true` was the name of the first condition when there
/// was only one.
fn port(connection: &FlowConnection, work: &Work) -> String {
    match work {
        Work::If { .. } if connection.source_handle == "true" => condition_port(0),
        _ => connection.source_handle.clone(),
    }
}

/// Returns the port of a condition.
pub(super) fn condition_port(ix: usize) -> String {
    format!("condition-{ix}")
}

/// Returns the condition whose port this is.
fn condition_of(port: &str) -> Option<usize> {
    let ix = port.strip_prefix("condition-")?.parse().ok()?;
    (condition_port(ix) == port).then_some(ix)
}

/// Returns whether a token can ever leave a node at this port.
fn may_leave(work: &Work, port: &str) -> bool {
    match work {
        Work::If { conditions } => {
            port == "false" || condition_of(port).is_some_and(|ix| ix < conditions.len())
        }
        Work::Approval { .. } => matches!(port, "approve" | "reject"),
        _ => true,
    }
}

/// Returns the ports of a node with branches.
fn ports(work: &Work) -> Vec<String> {
    match work {
        Work::If { conditions } => {
            (0..conditions.len()).map(condition_port).chain(["false".to_owned()]).collect()
        }
        Work::Approval { .. } => vec!["approve".to_owned(), "reject".to_owned()],
        _ => Vec::new(),
    }
}

fn label(work: &Work, port: &str) -> Option<String> {
    let Work::If { conditions } = work else { return (port != "output").then(|| port.to_owned()) };
    let condition = condition_of(port).and_then(|ix| conditions.get(ix));
    let named = condition.map(|condition| format!("{} \"{}\"", condition.operator(), condition.value));
    named.or_else(|| Some("else".to_owned()))
}

fn plan_node(id: &str, kind: &str, extra: Extra, agents: &BTreeMap<String, String>) -> PlanNode {
    let (op, label, agent) = match &extra.work {
        Work::Start { .. } => (NodeOperation::Source, None, None),
        Work::Agent(agent) => {
            let mapped = agents.get(&agent.name).cloned();
            let own = || agent.named.then(|| agent.name.clone());
            let name = mapped.or_else(own).or_else(|| agents.get("work").cloned());
            let name = name.unwrap_or_else(|| DEFAULT_AGENT.to_owned());
            (NodeOperation::Agent, agent.named.then(|| agent.name.clone()), Some(name))
        }
        Work::If { .. } | Work::Unknown | Work::Broken { .. } => (NodeOperation::Pure, None, None),
        Work::Approval { .. } => (NodeOperation::Human, None, None),
    };
    PlanNode {
        id: id.to_owned(),
        kind: kind.to_owned(),
        label,
        op,
        join: JoinRule::Each,
        rank: 0,
        agent,
        retry: RetryPolicy::default(),
        attempt_timeout_ms: None,
        timeout_ms: None,
        inner: false,
        attached: false,
        quiet: false,
        handles_failure: false,
        // Plain data with string keys always serializes.
        extra: serde_json::to_value(extra).unwrap_or_default(),
    }
}
