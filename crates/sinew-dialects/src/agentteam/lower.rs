//! Lowers a file to a plan.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sinew_plan::{
    FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan, PlanEdge, PlanLimits, PlanNode,
    ReadyOrder, RetryCondition, RetryPolicy, SchedulingProfile,
};
use sinew_source::{Diagnostics, Document, Node};

use super::argument::ConversionArgument;
use super::flow::{milliseconds, number};
use super::model::{self, TeamConnection, TeamFile, TeamNode};
use super::schema::{NodeContract, SchemaChecks};
use super::spec::{self, NodeSpec, OutputShape, SpecRegistry};
use super::{NAME, validate};
use crate::display::{self, DISPLAY};
use crate::{LowerOptions, Lowered};

/// Revision of the lowering rules.
const REVISION: u64 = 2;
/// Maximum delay between two attempts, in milliseconds.
const MAX_BACKOFF_MS: u64 = 5_000;

/// Data of a node for the adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TeamNodeData {
    pub(super) kind: String,
    pub(super) subtype: String,
    pub(super) name: String,
    pub(super) configurations: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) input_params: Map<String, Value>,
    /// Defaults by field of an output; `None` = outputs are passed on unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shape: OutputShape,
    /// Tools and memories, for the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attached: Vec<Value>,
    /// Types that inputs and outputs are checked against at run time.
    #[serde(default, skip_serializing_if = "NodeContract::is_empty")]
    pub(super) contract: NodeContract,
}

/// Rules of a plan that earlier versions did not have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlanRules {
    /// Every output at `result` is a standard message.
    pub(super) standard: bool,
    /// Whether agent answers, triggers and starts follow the text of the specification; plans of
    /// earlier versions keep the recorded behaviour.
    pub(super) by_text: bool,
    /// The argument of conversion functions.
    pub(super) argument: ConversionArgument,
    /// Treatment of values that break a contract.
    pub(super) schema_checks: SchemaChecks,
}

impl PlanRules {
    /// Reads the rules of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let word = |key: &str| plan.extra.get(key).and_then(Value::as_str).unwrap_or_default();
        Self {
            standard: plan.extra.get("standard").and_then(Value::as_bool).unwrap_or(false),
            by_text: plan
                .extra
                .get("revision")
                .and_then(Value::as_u64)
                .is_some_and(|revision| revision >= REVISION),
            argument: ConversionArgument::of_word(word("conversion_argument"))
                .unwrap_or(ConversionArgument::Wrapper),
            schema_checks: SchemaChecks::of_word(word("schema_checks")).unwrap_or(SchemaChecks::Off),
        }
    }

    /// Returns whether a node of this kind only outputs the data that starts the workflow.
    pub(super) fn is_start(self, kind: &str) -> bool {
        self.by_text && kind == "TRIGGER"
    }

    fn of_file(file: &TeamFile) -> Value {
        json!({
            "standard": file.standard,
            "revision": REVISION,
            "conversion_argument": file.argument.word(),
            "schema_checks": file.schema_checks.word(),
        })
    }
}

/// Data of an edge for the adapter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ConnectionData {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) conversion: Option<String>,
}

pub(super) fn lower(document: Document, options: &LowerOptions<'_>) -> Result<Lowered, Diagnostics> {
    let mut found = Vec::new();
    let root = &document.root;
    let registry = spec::registry(root, options.read, &mut found);
    let file = model::read(root, &mut found);
    validate::check(&file, &registry, root.span, &document.sources, &mut found);
    let mut lowered = plan(&file, &registry, options);
    let display = root.get("metadata").and_then(|metadata| metadata.get(DISPLAY));
    found.extend(display::mark_quiet(display, &mut lowered.nodes));
    let mut diagnostics = Diagnostics::new(document.sources);
    diagnostics.extend(found);
    diagnostics.set_dialect(NAME);
    diagnostics.sort();
    if diagnostics.has_errors() {
        return Err(diagnostics);
    }
    let places = file.nodes.iter().map(|node| Some(node.span)).collect();
    Ok(Lowered { plan: lowered, places, warnings: diagnostics, agents: agents(root) })
}

/// Returns the agent definitions in the file.
fn agents(root: &Node) -> BTreeMap<String, Value> {
    let members = root.get("agents").and_then(Node::as_object).unwrap_or_default();
    members.iter().map(|member| (member.key.clone(), member.value.to_json())).collect()
}

fn plan(file: &TeamFile, registry: &SpecRegistry, options: &LowerOptions<'_>) -> Plan {
    let ids: BTreeMap<&str, NodeIndex> =
        file.nodes.iter().enumerate().map(|(ix, node)| (node.id.as_str(), ix as NodeIndex)).collect();
    let attached = validate::attached(file);
    let nodes = file.nodes.iter().map(|node| {
        let below: Vec<Value> = node
            .attached
            .iter()
            .filter_map(|(id, _)| ids.get(id.as_str()).map(|ix| &file.nodes[*ix as usize]))
            .map(|other| {
                json!({
                    "id": other.id, "name": other.name, "type": other.kind, "subtype": other.subtype,
                    "configurations": other.configurations,
                })
            })
            .collect();
        let spec = registry.get(&node.spec_name());
        plan_node(node, spec, below, attached.contains(node.id.as_str()), options.agents)
    });
    let nodes: Vec<PlanNode> = nodes.collect();
    let mut edges: Vec<PlanEdge> = Vec::new();
    for connection in &file.connections {
        let (Some(from), Some(to)) = (ids.get(connection.from.as_str()), ids.get(connection.to.as_str()))
        else {
            continue;
        };
        if !nodes[*from as usize].attached && !nodes[*to as usize].attached {
            edges.push(edge(connection, *from, *to, edges.len()));
        }
    }
    for node in &file.nodes {
        for (id, _) in &node.attached {
            let (Some(from), Some(to)) = (ids.get(id.as_str()), ids.get(node.id.as_str())) else { continue };
            edges.push(attach(*from, *to, edges.len()));
        }
    }
    let starts: Vec<NodeIndex> =
        file.triggers.iter().filter_map(|(id, _)| ids.get(id.as_str()).copied()).collect();
    let entry = if starts.is_empty() {
        let reached: BTreeSet<NodeIndex> =
            edges.iter().filter(|edge| !edge.attach).map(|edge| edge.to).collect();
        (0..nodes.len() as NodeIndex)
            .filter(|ix| !nodes[*ix as usize].attached && !reached.contains(ix))
            .collect()
    } else {
        starts
    };
    Plan {
        format: Plan::FORMAT,
        dialect: NAME.to_owned(),
        name: file.name.clone().unwrap_or_else(|| options.default_name.to_owned()),
        description: file.description.clone(),
        version: file.version.clone(),
        profile: SchedulingProfile {
            order: ReadyOrder::Fifo,
            parallel: 1,
            failure: FailurePolicy::Stop,
            pause: PausePolicy::FreezeDefer,
        },
        nodes,
        edges,
        entry,
        exits: Vec::new(),
        limits: PlanLimits::default(),
        input_schema: None,
        output_schema: None,
        extra: PlanRules::of_file(file),
    }
}

fn edge(connection: &TeamConnection, from: NodeIndex, to: NodeIndex, n: usize) -> PlanEdge {
    let extra = ConnectionData { id: connection.id.clone(), conversion: connection.conversion.clone() };
    PlanEdge {
        from,
        port: connection.port.clone(),
        to,
        handle: "result".to_owned(),
        label: (connection.port != "result").then(|| connection.port.clone()),
        budget: None,
        counter: n as u32,
        veto: false,
        quorum: false,
        attach: false,
        extra: serde_json::to_value(extra).unwrap_or_default(),
    }
}

/// Structure is attached to the agent that uses it.
fn attach(from: NodeIndex, to: NodeIndex, n: usize) -> PlanEdge {
    PlanEdge {
        from,
        port: "attached".to_owned(),
        to,
        handle: "attached".to_owned(),
        label: None,
        budget: None,
        counter: n as u32,
        veto: false,
        quorum: false,
        attach: true,
        extra: Value::Null,
    }
}

/// Returns the agent of a node: named in its configurations, else by `TYPE.SUBTYPE`, `TYPE` or
/// `work` of the options, else named after the type.
fn agent_of(node: &TeamNode, agents: &BTreeMap<String, String>) -> String {
    let named = node.configurations.get("agent").and_then(Value::as_str).map(str::to_owned);
    let by_kind =
        || agents.get(&node.spec_name()).or_else(|| agents.get(&node.kind)).or_else(|| agents.get("work"));
    named.or_else(|| by_kind().cloned()).unwrap_or_else(|| node.kind.to_lowercase().replace('_', "-"))
}

fn plan_node(
    node: &TeamNode,
    spec: Option<&NodeSpec>,
    below: Vec<Value>,
    attached: bool,
    agents: &BTreeMap<String, String>,
) -> PlanNode {
    let op = match (node.kind.as_str(), node.subtype.as_str()) {
        ("TRIGGER", _) => NodeOperation::Source,
        ("HUMAN_IN_THE_LOOP", _) => NodeOperation::Human,
        ("FLOW", "WAIT" | "DELAY") => NodeOperation::Delay,
        ("FLOW", _) => NodeOperation::Pure,
        _ => NodeOperation::Agent,
    };
    let seconds = |key: &str| node.configurations.get(key).and_then(number);
    let timeout = match op {
        NodeOperation::Agent => {
            seconds("timeout_seconds").or_else(|| seconds("timeout")).filter(|seconds| *seconds > 0.0)
        }
        _ => None,
    };
    let attempts = seconds("retry_attempts").unwrap_or(0.0).clamp(0.0, 100.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=100")]
    let limit = attempts as u32;
    PlanNode {
        id: node.id.clone(),
        kind: node.spec_name(),
        label: (node.name != node.id).then(|| node.name.clone()),
        agent: (op == NodeOperation::Agent && !attached).then(|| agent_of(node, agents)),
        op,
        join: JoinRule::Once,
        rank: 0,
        retry: RetryPolicy {
            limit,
            on: RetryCondition::Always,
            delay_ms: seconds("retry_backoff_seconds").map_or(0, milliseconds),
            factor: seconds("retry_backoff_factor").unwrap_or(2.0),
            max_delay_ms: Some(MAX_BACKOFF_MS),
            jitter_ms: seconds("retry_jitter_seconds").map_or(0, milliseconds).min(MAX_BACKOFF_MS),
        },
        attempt_timeout_ms: timeout.map(milliseconds),
        timeout_ms: None,
        inner: false,
        attached,
        quiet: false,
        handles_failure: false,
        extra: serde_json::to_value(TeamNodeData {
            kind: node.kind.clone(),
            subtype: node.subtype.clone(),
            name: node.name.clone(),
            configurations: node.configurations.clone(),
            input_params: node.input_params.clone(),
            shape: spec.and_then(NodeSpec::shape),
            attached: below,
            contract: spec.map(NodeContract::of).unwrap_or_default(),
        })
        .unwrap_or_default(),
    }
}
