//! From a file's graph to plans: one for the graph, one for each graph inside a loop.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sinew_plan::{
    FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan, PlanEdge, PlanLimits, PlanNode,
    ReadyOrder, RetryPolicy, SchedulingProfile,
};
use sinew_source::{Diagnostic, Diagnostics, Document, Node, Span};

use super::catalogue::{self, Catalogue, Definition};
use super::coerce::{self, DATA};
use super::model::{self, FileEdge, FileNode, Graph};
use super::{NAME, links, template};
use crate::{LowerOptions, Lowered, reach};

/// Deepest loop within a loop.
const DEEPEST_LOOP: u32 = 8;

/// What the adapter reads of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Extra {
    pub(super) data: Map<String, Value>,
    /// Parameters whose `{{ … }}` are the node's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) raw: Vec<String>,
    /// Whether it says things while it works.
    pub(super) streaming: bool,
    /// What hangs off its side sockets, by handle.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) links: Map<String, Value>,
    /// Why it cannot run, known before it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// Nobody knows this kind: it does nothing, and what is behind it does not run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unknown: bool,
}

/// What the adapter reads of an edge.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EdgeExtra {
    /// The type the value must have at its end; none = as it comes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_type: Option<String>,
}

pub(super) fn lower(document: Document, options: &LowerOptions<'_>) -> Result<Vec<Lowered>, Diagnostics> {
    let mut found = Vec::new();
    let root = &document.root;
    let graph_node = model::graph_of(root);
    let catalogue = catalogue::with_plugins(
        if graph_node.get("plugins").is_some() { graph_node } else { root },
        options,
        &mut found,
    );
    let name =
        [root, graph_node].iter().find_map(|node| node.get("name")?.as_str().filter(|name| !name.is_empty()));
    let mut lowering =
        Lowering { catalogue: &catalogue, options, found, made: Vec::new(), warned: Vec::new() };
    lowering.graph(graph_node, name.unwrap_or(options.default_name), 0);
    let Lowering { found, made, warned, .. } = lowering;
    let mut diagnostics = Diagnostics::new(document.sources);
    diagnostics.extend(found);
    if diagnostics.has_errors() {
        diagnostics.extend(warned);
        diagnostics.set_dialect(NAME);
        diagnostics.sort();
        return Err(diagnostics);
    }
    diagnostics.extend(warned);
    diagnostics.set_dialect(NAME);
    diagnostics.sort();
    let mut warnings = Some(diagnostics);
    Ok(made
        .into_iter()
        .map(|(plan, places)| Lowered {
            plan,
            places,
            warnings: warnings.take().unwrap_or_default(),
            agents: BTreeMap::new(),
        })
        .collect())
}

type Made = (Plan, Vec<Option<Span>>);

struct Lowering<'l> {
    catalogue: &'l Catalogue,
    options: &'l LowerOptions<'l>,
    /// What makes the file unusable.
    found: Vec<Diagnostic>,
    /// What is wrong, although there is a plan that shows how it would go.
    warned: Vec<Diagnostic>,
    made: Vec<Made>,
}

impl Lowering<'_> {
    fn graph(&mut self, node: &Node, name: &str, depth: u32) {
        let graph = model::read(node, &mut self.found);
        let slot = self.made.len();
        let structural = links::structural(&graph, self.catalogue);
        self.check_kinds(&graph);
        self.check_wires(&graph);
        self.check_references(&graph, &structural);
        let order = kahn(&graph, &structural);
        if order.len() < graph.nodes.len() - structural.len() {
            let message = "the flow contains a cycle";
            self.found.push(
                Diagnostic::error(code::COVALT_CYCLE.as_str(), message).at(node.span).sub_code("FLOW_CYCLE"),
            );
        }
        let (plan, mut places) = self.plan(&graph, &structural, &order, name);
        places.resize(plan.nodes.len(), None);
        self.made.insert(slot, (plan, places));
        let mut written: BTreeMap<&str, &Node> = BTreeMap::new();
        for own in node.get("nodes").and_then(Node::as_array).unwrap_or_default() {
            if let Some(id) = own.get("id").and_then(Node::as_str) {
                written.entry(id).or_insert(own);
            }
        }
        for one in graph.nodes.iter().filter(|one| one.kind == "loop") {
            let inner = ["graph", "body"].iter().find_map(|key| {
                let own = written.get(one.id.as_str())?;
                own.get("data")?.get(key).filter(|inner| inner.as_object().is_some())
            });
            match inner {
                Some(inner) if depth < DEEPEST_LOOP => {
                    self.graph(inner, &body_name(name, &one.id), depth + 1);
                }
                Some(inner) => {
                    let message = format!("loops are nested more than {DEEPEST_LOOP} deep");
                    self.found.push(
                        Diagnostic::error(code::COVALT_GRAPH_WRONG_SHAPE.as_str(), message)
                            .at(inner.span)
                            .sub_code("SCHEMA"),
                    );
                }
                None if one.data.get("workflow").is_some() => {}
                None => {
                    let message = format!("loop '{}' needs a graph or the name of a workflow", one.id);
                    self.found.push(
                        Diagnostic::error(code::COVALT_GRAPH_WRONG_SHAPE.as_str(), message)
                            .at(one.span)
                            .sub_code("SCHEMA"),
                    );
                }
            }
        }
    }

    fn check_kinds(&mut self, graph: &Graph) {
        for node in graph.nodes.iter().filter(|node| !self.catalogue.contains_key(&node.kind)) {
            let message = format!("Flow contains unknown node type(s): '{}'", node.kind);
            let mut problem = Diagnostic::error(code::COVALT_NODE_TYPE_UNKNOWN.as_str(), message)
                .at(node.span)
                .sub_code("UNKNOWN_NODE_TYPE");
            let kinds = self.catalogue.keys().map(String::as_str);
            if let Some(known) = sinew_source::hint_for(self.warned.len(), &node.kind, kinds) {
                problem = problem.hint(format!("did you mean '{known}'?"));
            }
            self.warned.push(problem);
        }
    }

    fn check_wires(&mut self, graph: &Graph) {
        for edge in &graph.edges {
            let (Some(from), Some(to)) = (graph.find(&edge.source), graph.find(&edge.target)) else {
                continue;
            };
            let source = self.source_type(edge, from);
            let target = self.target_type(edge, to);
            let (source, target) = (source.as_deref().unwrap_or(DATA), target.as_deref().unwrap_or(DATA));
            if !coerce::may(source, target) {
                let message = coerce::refusal(source, target, &edge_name(edge));
                self.found.push(
                    Diagnostic::error(code::SOCKETS_DO_NOT_FIT.as_str(), message)
                        .at(edge.span)
                        .sub_code("NO_COERCION"),
                );
            }
        }
    }

    fn source_type(&self, edge: &FileEdge, from: &FileNode) -> Option<String> {
        let definition = self.catalogue.get(&from.kind);
        let declared = || {
            let ports = from.data.get(definition?.outputs_from.as_ref()?)?;
            ports.get(&edge.source_handle)?.get("type")?.as_str().map(str::to_owned)
        };
        let own = || definition?.outputs.get(&edge.source_handle).cloned();
        edge.source_type.clone().or_else(declared).or_else(own)
    }

    fn target_type(&self, edge: &FileEdge, to: &FileNode) -> Option<String> {
        let own = || self.catalogue.get(&to.kind)?.inputs.get(&edge.target_handle).cloned();
        edge.target_type.clone().or_else(own)
    }

    /// Expressions may only refer to what has run by then.
    fn check_references(&mut self, graph: &Graph, structural: &BTreeSet<&str>) {
        let mut references: Vec<(usize, Span, String)> = Vec::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            let raw = self.catalogue.get(&node.kind).map(|kind| kind.raw.clone()).unwrap_or_default();
            let places: BTreeMap<&str, Span> =
                node.places.iter().rev().map(|(name, span)| (name.as_str(), *span)).collect();
            for (key, value) in node.data.iter().filter(|(key, _)| !raw.contains(key)) {
                let place = places.get(key.as_str()).copied().unwrap_or(node.span);
                template::expressions(value, &mut |text, parsed| match parsed {
                    Ok(expr) => {
                        references
                            .extend(expr.references().into_iter().map(|name| (at, place, name.to_owned())));
                    }
                    Err(error) => {
                        let message = format!(
                            "expression in node '{}' cannot be read and will be empty: '{text}': {error}",
                            node.id
                        );
                        let broken =
                            Diagnostic::warning(code::COVALT_EXPRESSION_CANNOT_BE_READ.as_str(), message)
                                .at(place);
                        self.warned.push(broken.sub_code("EXPRESSION"));
                    }
                });
            }
        }
        let upstream = UpstreamIndex::of(graph, structural);
        let known = upstream.has(&references);
        for ((at, place, name), _) in references.iter().zip(known).filter(|(_, known)| !known) {
            let node = &graph.nodes[*at];
            let message =
                format!("expression in node '{}' references '{name}', which is not upstream of it", node.id);
            let mut problem = Diagnostic::error(code::EXPRESSION_NODE_NOT_RUN.as_str(), message)
                .at(*place)
                .sub_code("NOT_UPSTREAM");
            if self.found.len() < sinew_source::MAX_HINTED_FINDINGS {
                let above = upstream.labels(*at);
                if let Some(known) = sinew_source::did_you_mean(name, above.into_iter()) {
                    problem = problem.hint(format!("did you mean '{known}'?"));
                }
            }
            self.found.push(problem);
        }
    }

    fn plan(&mut self, graph: &Graph, structural: &BTreeSet<&str>, order: &[&str], name: &str) -> Made {
        let ids: BTreeMap<&str, NodeIndex> =
            graph.nodes.iter().enumerate().map(|(ix, node)| (node.id.as_str(), ix as NodeIndex)).collect();
        let ranks: BTreeMap<&str, usize> = order.iter().enumerate().map(|(rank, id)| (*id, rank)).collect();
        let mut nodes: Vec<PlanNode> = Vec::with_capacity(graph.nodes.len());
        let mut linked = 0;
        for node in &graph.nodes {
            let rank = ranks.get(node.id.as_str()).copied().unwrap_or(order.len()) as u32;
            nodes.push(self.node(graph, node, structural.contains(node.id.as_str()), rank, &mut linked));
        }
        let mut edges: Vec<PlanEdge> = Vec::new();
        for edge in &graph.edges {
            let (Some(from), Some(to)) = (ids.get(edge.source.as_str()), ids.get(edge.target.as_str()))
            else {
                continue;
            };
            let attach = edge.link;
            if !attach && (nodes[*from as usize].attached || nodes[*to as usize].attached) {
                continue;
            }
            let target_type = graph.find(&edge.target).and_then(|to| self.target_type(edge, to));
            edges.push(PlanEdge {
                from: *from,
                port: edge.source_handle.clone(),
                to: *to,
                handle: edge.target_handle.clone(),
                label: (edge.source_handle != "output").then(|| edge.source_handle.clone()),
                budget: None,
                counter: edges.len() as u32,
                veto: false,
                quorum: false,
                attach,
                extra: serde_json::to_value(EdgeExtra { target_type }).unwrap_or_default(),
            });
        }
        let reached: BTreeSet<NodeIndex> =
            edges.iter().filter(|edge| !edge.attach).map(|edge| edge.to).collect();
        let is_entry = |ix: &NodeIndex| !nodes[*ix as usize].attached && !reached.contains(ix);
        let mut entry: Vec<NodeIndex> = (0..nodes.len() as NodeIndex).filter(is_entry).collect();
        entry.sort_by_key(|ix| nodes[*ix as usize].rank);
        for node in graph.nodes.iter().filter(|node| node.kind == "loop") {
            let body = nodes.len() as NodeIndex;
            let workflow = node
                .data
                .get("workflow")
                .and_then(Value::as_str)
                .filter(|_| !node.data.contains_key("graph"));
            let workflow = workflow.map_or_else(|| body_name(name, &node.id), str::to_owned);
            if let Some(ix) = ids.get(node.id.as_str()) {
                nodes[*ix as usize].op = NodeOperation::Map { body };
            }
            nodes.push(PlanNode {
                op: NodeOperation::Workflow,
                agent: Some(workflow),
                inner: true,
                ..plan_node(&format!("{}#body", node.id), "loop-body")
            });
        }
        let places = graph.nodes.iter().map(|node| Some(node.span)).collect();
        let profile = SchedulingProfile {
            order: ReadyOrder::Rank,
            parallel: 0,
            failure: FailurePolicy::Stop,
            pause: PausePolicy::NodeLocal,
        };
        let plan = Plan {
            format: Plan::FORMAT,
            dialect: NAME.to_owned(),
            name: name.to_owned(),
            description: String::new(),
            version: None,
            profile,
            nodes,
            edges,
            entry,
            exits: Vec::new(),
            limits: PlanLimits::default(),
            input_schema: None,
            output_schema: None,
            extra: Value::Null,
        };
        (plan, places)
    }

    fn node(
        &mut self,
        graph: &Graph,
        node: &FileNode,
        attached: bool,
        rank: u32,
        linked: &mut usize,
    ) -> PlanNode {
        let unknown = Definition::default();
        let known = self.catalogue.get(&node.kind);
        let definition = known.unwrap_or(&unknown);
        let (links, problem) =
            match if attached { Ok(Map::new()) } else { links::tree(graph, &node.id, linked) } {
                Ok(links) => (links, None),
                Err(problem) => (Map::new(), Some(problem)),
            };
        if let Some(problem) = &problem {
            let text = problem.replacen("Link", "link", 1);
            self.warned.push(
                Diagnostic::error(code::COVALT_CYCLE.as_str(), text).at(node.span).sub_code("LINK_CYCLE"),
            );
        }
        let mut data = definition.parameters.clone();
        data.extend(node.data.clone());
        let computed = node.kind == "code" && super::compute::is_python(&data);
        let asked = definition.agent.as_ref().filter(|_| !computed);
        let op = match (node.kind.as_str(), asked) {
            ("chat-start" | "webhook-trigger", _) => NodeOperation::Source,
            (_, Some(_)) => NodeOperation::Agent,
            _ => NodeOperation::Pure,
        };
        let agent = asked.filter(|_| !attached).map(|own| {
            let named = node.data.get("agent").and_then(Value::as_str);
            let agents = self.options.agents;
            let given = agents.get(&node.kind).or_else(|| agents.get(own)).or_else(|| agents.get("work"));
            named.map(str::to_owned).or_else(|| given.cloned()).unwrap_or_else(|| own.clone())
        });
        let extra = Extra {
            data,
            raw: definition.raw.clone(),
            streaming: definition.streaming,
            links,
            problem,
            unknown: known.is_none(),
        };
        PlanNode {
            label: Some(node.label.clone()),
            op,
            rank,
            agent,
            attached,
            extra: serde_json::to_value(extra).unwrap_or_default(),
            ..plan_node(&node.id, &node.kind)
        }
    }
}

fn plan_node(id: &str, kind: &str) -> PlanNode {
    PlanNode {
        id: id.to_owned(),
        kind: kind.to_owned(),
        label: None,
        op: NodeOperation::Pure,
        join: JoinRule::Resolved { quorum: None },
        rank: 0,
        agent: None,
        retry: RetryPolicy::default(),
        attempt_timeout_ms: None,
        timeout_ms: None,
        inner: false,
        attached: false,
        extra: json!({}),
    }
}

fn body_name(workflow: &str, node: &str) -> String {
    format!("{workflow}.{node}")
}

/// How messages write an edge.
fn edge_name(edge: &FileEdge) -> String {
    format!("{}.{} -> {}.{}", edge.source, edge.source_handle, edge.target, edge.target_handle)
}

/// Flow nodes in the order in which they start: sources by id, then each batch that became ready by id.
fn kahn<'g>(graph: &'g Graph, structural: &BTreeSet<&str>) -> Vec<&'g str> {
    let mut waits: BTreeMap<&str, usize> = graph
        .nodes
        .iter()
        .filter(|node| !structural.contains(node.id.as_str()))
        .map(|node| (node.id.as_str(), 0))
        .collect();
    let mut after: BTreeMap<&str, BTreeSet<&'g str>> = BTreeMap::new();
    for edge in graph.edges.iter().filter(|edge| !edge.link) {
        if waits.contains_key(edge.source.as_str())
            && let Some(count) = waits.get_mut(edge.target.as_str())
            && after.entry(&edge.source).or_default().insert(&edge.target)
        {
            *count += 1;
        }
    }
    let first = graph.nodes.iter().map(|node| node.id.as_str()).filter(|id| waits.get(id) == Some(&0));
    let mut order: Vec<&str> = first.collect();
    order.sort_unstable();
    let mut next = 0;
    while let Some(id) = order.get(next).copied() {
        next += 1;
        for other in after.get(id).into_iter().flatten() {
            if let Some(count) = waits.get_mut(other) {
                *count -= 1;
                if *count == 0 {
                    order.push(other);
                }
            }
        }
    }
    order
}

/// What runs before each node. Before a structural node runs what runs before the flow nodes of its cluster.
struct UpstreamIndex<'g> {
    graph: &'g Graph,
    structural: &'g BTreeSet<&'g str>,
    /// Each node once as part of the flow and, at its place plus the number of nodes, once as part of a cluster.
    before: Vec<Vec<usize>>,
}

impl<'g> UpstreamIndex<'g> {
    fn of(graph: &'g Graph, structural: &'g BTreeSet<&'g str>) -> Self {
        let count = graph.nodes.len();
        let mut before = vec![Vec::new(); 2 * count];
        for edge in &graph.edges {
            let (Some(source), Some(target)) = (graph.place(&edge.source), graph.place(&edge.target)) else {
                continue;
            };
            if edge.link {
                before[count + source].push(count + target);
            } else {
                before[target].push(source);
                before[count + target].push(source);
            }
        }
        Self { graph, structural, before }
    }

    /// The place where a walk from a node begins.
    fn start(&self, node: usize) -> usize {
        let is_structural = self.structural.contains(self.graph.nodes[node].id.as_str());
        if is_structural { self.graph.nodes.len() + node } else { node }
    }

    /// Returns for each reference whether a node of this id or label runs before the node that refers to it.
    fn has(&self, references: &[(usize, Span, String)]) -> Vec<bool> {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, _, name) in references {
            let number = numbers.len();
            numbers.entry(name).or_insert(number);
        }
        let number = |name: &str| numbers.get(name).copied();
        let marks = |node: &FileNode| [number(&node.id), number(&node.label)].into_iter().flatten().collect();
        let mut all: Vec<Vec<usize>> = self.graph.nodes.iter().map(marks).collect();
        all.resize(self.before.len(), Vec::new());
        let question =
            |(node, _, name): &(usize, Span, String)| (self.start(*node), number(name).unwrap_or(0));
        reach::reaches(&self.before, &all, &references.iter().map(question).collect::<Vec<_>>())
    }

    /// Returns the labels of all nodes that run before a node, in file order.
    fn labels(&self, node: usize) -> Vec<&'g str> {
        let mut seen = vec![false; self.before.len()];
        let mut open = vec![self.start(node)];
        while let Some(at) = open.pop() {
            for before in &self.before[at] {
                if !std::mem::replace(&mut seen[*before], true) {
                    open.push(*before);
                }
            }
        }
        self.graph
            .nodes
            .iter()
            .zip(seen)
            .filter(|(_, seen)| *seen)
            .map(|(node, _)| node.label.as_str())
            .collect()
    }
}
