//! Lowers a file to a plan.
//!
//! Invalid graphs that could still run (unbounded cycles, unreachable nodes) become plans; their
//! errors are also reported with the plan, so that a check of the file rejects them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use sinew_plan::{
    FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan, PlanEdge, PlanLimits, PlanNode,
    ReadyOrder, RetryPolicy, SchedulingProfile,
};
use sinew_source::{Diagnostics, Document, Node, Span};

use super::model::{AgentRoles, NodeExtra, NodeSources, PlanExtra, ResolvedTexts, Workflow};
use super::source::Reader;
use super::{NAME, inputs, shape, skill, validate};
use crate::display::{self, DISPLAY};
use crate::{LowerOptions, Lowered, text_input};

/// Default maximum of node visits in one execution.
const MAX_STEPS: u32 = 200;
/// Default agent.
const DEFAULT_AGENT: &str = "agent";
/// Default model of judges.
const JUDGE_MODEL: &str = "claude-haiku-4-5";
/// Reason for taking an edge without a condition.
const ONLY_PATH: &str = "only path";

pub(super) fn lower(document: Document, options: &LowerOptions<'_>) -> Result<Lowered, Diagnostics> {
    let root = &document.root;
    let mut diagnostics = Diagnostics::new(document.sources);
    let sorted = |mut diagnostics: Diagnostics| {
        diagnostics.set_dialect(NAME);
        diagnostics.sort();
        diagnostics
    };
    diagnostics.extend(validate::form(root));
    let malformed = diagnostics.has_errors();
    let workflow = match Workflow::deserialize(root.to_json()) {
        Ok(workflow) => workflow,
        Err(why) => {
            if !malformed {
                diagnostics.push(shape::error(root.span, "", &why.to_string()));
            }
            return Err(sorted(diagnostics));
        }
    };
    let findings = validate::graph(&workflow, root);
    let mut fatal = findings.fatal;
    diagnostics.extend(findings.items);
    let mut found = Vec::new();
    if let Some(declared) = &workflow.inputs {
        inputs::check_declared(declared, root, &mut found);
        fatal |= !found.is_empty();
    }
    if malformed {
        // Sources are only read for valid files.
        diagnostics.extend(found);
        return Err(sorted(diagnostics));
    }
    let skills = skill::collect(&workflow, root, options.read, &mut found);
    diagnostics.extend(found);
    if let Some(name) = &workflow.text_input {
        let schema = workflow.inputs.as_ref().map(inputs::json_schema);
        let wrong = text_input::check(schema.as_ref(), name, place(root, &["text_input"], None));
        fatal |= wrong.is_some();
        diagnostics.extend(wrong);
    }
    let mut reader = Reader::new(options.read);
    let rules = reader.texts(&workflow.rules, "workflow.rules", |n| place(root, &["rules"], Some(n)));
    let context = reader.texts(&workflow.context, "workflow.context", |n| place(root, &["context"], Some(n)));
    let nodes = nodes(&workflow, root, &mut reader, options);
    fatal |= !reader.found.is_empty();
    diagnostics.extend(reader.found);
    if fatal {
        return Err(sorted(diagnostics));
    }
    let agent = |kind: &str| {
        let named = options.agents.get(kind).or_else(|| options.agents.get("work"));
        named.cloned().unwrap_or_else(|| DEFAULT_AGENT.to_owned())
    };
    let max_steps = workflow.max_steps.map_or(MAX_STEPS, whole);
    let extra = PlanExtra {
        id: workflow.id.clone(),
        rules,
        context,
        sources: reader.records,
        missing_config: skill::missing_config(&skills, options.read),
        skills,
        inputs: workflow.inputs.clone(),
        max_steps,
        model: workflow.model.clone(),
        agents: AgentRoles { route: agent("route"), judge: agent("judge"), reflect: agent("reflect") },
    };
    let mut plan = plan(&workflow, nodes, limits(max_steps), extra);
    diagnostics.extend(display::mark_quiet(root.get(DISPLAY), &mut plan.nodes));
    let written = written(root);
    let place_of = |id: &String| Some(written.get(id.as_str()).map(|node| node.span).unwrap_or_default());
    let places = workflow.nodes.keys().map(place_of).collect();
    Ok(Lowered { plan, places, warnings: sorted(diagnostics), agents: BTreeMap::new() })
}

fn plan(workflow: &Workflow, nodes: Vec<PlanNode>, limits: PlanLimits, extra: PlanExtra) -> Plan {
    let ids: BTreeMap<&str, NodeIndex> =
        workflow.nodes.keys().enumerate().map(|(ix, id)| (id.as_str(), ix as NodeIndex)).collect();
    Plan {
        format: Plan::FORMAT,
        dialect: NAME.to_owned(),
        name: workflow.id.clone(),
        description: if workflow.description.is_empty() {
            workflow.name.clone()
        } else {
            workflow.description.clone()
        },
        version: match &workflow.version {
            Value::String(version) => Some(version.clone()),
            Value::Number(version) => Some(version.to_string()),
            _ => None,
        },
        profile: SchedulingProfile {
            order: ReadyOrder::Fifo,
            parallel: 1,
            failure: FailurePolicy::RouteOn,
            pause: PausePolicy::NodeLocal,
        },
        nodes,
        edges: edges(workflow, &ids),
        entry: ids.get(workflow.entry.as_str()).copied().into_iter().collect(),
        exits: Vec::new(),
        limits,
        input_schema: text_input::marked(
            workflow.inputs.as_ref().map(inputs::json_schema),
            workflow.text_input.as_deref(),
        ),
        output_schema: None,
        // Plain data with string keys always serializes.
        extra: serde_json::to_value(extra).unwrap_or_default(),
    }
}

/// The dialect reports its own budget, so the limit of the engine is higher.
fn limits(max_steps: u32) -> PlanLimits {
    let limits = PlanLimits::default();
    PlanLimits { activations: limits.activations.max(max_steps.saturating_add(2)), ..limits }
}

/// Returns the nodes of the file by id.
pub(super) fn written(root: &Node) -> BTreeMap<&str, &Node> {
    let members = root.get("nodes").and_then(Node::as_object).unwrap_or_default();
    members.iter().rev().map(|member| (member.key.as_str(), &member.value)).collect()
}

/// Returns the span of a value in the file: under these keys, then at an index.
fn place(root: &Node, keys: &[&str], n: Option<usize>) -> Span {
    let node = keys.iter().try_fold(root, |node, key| node.get(key));
    let element = n.and_then(|n| node.and_then(Node::as_array).and_then(|items| items.get(n)));
    element.or(node).map(|node| node.span).unwrap_or_default()
}

/// Converts a number that was checked to be a non-negative integer.
#[expect(clippy::cast_sign_loss, reason = "checked to be whole and not negative; the cast saturates")]
pub(super) fn whole(number: f64) -> u32 {
    number as u32
}

fn nodes(
    workflow: &Workflow,
    root: &Node,
    reader: &mut Reader<'_>,
    options: &LowerOptions<'_>,
) -> Vec<PlanNode> {
    let worker = options.agents.get("work").cloned().unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    let written = written(root);
    let mut nodes = Vec::with_capacity(workflow.nodes.len());
    for (id, node) in &workflow.nodes {
        let at =
            |keys: &[&str], n| written.get(id.as_str()).map(|node| place(node, keys, n)).unwrap_or_default();
        let mut texts = |key: &str, sources: &Option<NodeSources>| {
            let (only, sources, keys) = match sources.as_ref()? {
                NodeSources::Added(sources) => (false, sources, vec![key]),
                NodeSources::Given { only, sources } => (*only, sources, vec![key, "sources"]),
            };
            let texts = reader.texts(sources, &format!("nodes.{id}.{key}"), |n| at(&keys, Some(n)));
            Some(ResolvedTexts { only, texts })
        };
        let mut work = node.work.clone();
        work.model = work.model.or_else(|| workflow.model.clone());
        let judge = work.judge_model.or_else(|| workflow.judge_model.clone());
        work.judge_model = Some(judge.unwrap_or_else(|| JUDGE_MODEL.to_owned()));
        let (rules, context) = (texts("rules", &node.rules), texts("context", &node.context));
        let instruction =
            reader.text(&node.instruction, &format!("nodes.{id}.instruction"), at(&["instruction"], None));
        let extra = NodeExtra { instruction, rules, context, work };
        nodes.push(PlanNode {
            id: id.clone(),
            kind: "node".to_owned(),
            label: Some(node.name.clone()),
            op: NodeOperation::Agent,
            join: JoinRule::Each,
            rank: 0,
            agent: Some(worker.clone()),
            retry: RetryPolicy::default(),
            attempt_timeout_ms: None,
            timeout_ms: None,
            inner: false,
            attached: false,
            quiet: false,
            handles_failure: false,
            extra: serde_json::to_value(extra).unwrap_or_default(),
        });
    }
    nodes
}

fn edges(workflow: &Workflow, ids: &BTreeMap<&str, NodeIndex>) -> Vec<PlanEdge> {
    // Edges between the same two nodes share a counter, and the first defines the reason for taking
    // them.
    let mut pairs: BTreeMap<(NodeIndex, NodeIndex), (u32, String)> = BTreeMap::new();
    let mut edges = Vec::with_capacity(workflow.edges.len());
    for edge in &workflow.edges {
        let (Some(&from), Some(&to)) = (ids.get(edge.from.as_str()), ids.get(edge.to.as_str())) else {
            continue;
        };
        let when = edge.when.clone();
        let next = pairs.len() as u32;
        let (counter, reason) = pairs
            .entry((from, to))
            .or_insert_with(|| (next, when.clone().unwrap_or_else(|| ONLY_PATH.to_owned())))
            .clone();
        edges.push(PlanEdge {
            from,
            port: "out".to_owned(),
            to,
            handle: "in".to_owned(),
            label: when.clone(),
            budget: edge.max_iterations.map(whole),
            counter,
            veto: false,
            quorum: false,
            attach: false,
            extra: json!({ "when": when, "reason": reason }),
        });
    }
    edges
}
