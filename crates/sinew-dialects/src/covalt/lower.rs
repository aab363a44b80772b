//! Lowers a file's graph to plans: one for the graph, one for each graph inside a loop.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sinew_plan::{
    FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan, PlanEdge, PlanLimits, PlanNode,
    ReadyOrder, RetryPolicy, SchedulingProfile,
};
use sinew_script::Function;
use sinew_source::{Diagnostic, Diagnostics, Document, Node, Sources, Span, token_span};

use super::catalogue::{self, NodeCatalogue, NodeDefinition, NodeLook};
use super::coerce::{self, DATA};
use super::model::{self, CanvasEdge, CanvasGraph, CanvasNode};
use super::order::{UpstreamIndex, cycle_through, kahn, on_cycles};
use super::script::{ExpressionFailure, ScriptExpression};
use super::{NAME, data_check, handle_check, known_members, links, template};
use crate::chain::path_text;
use crate::display::{self, DISPLAY};
use crate::{LowerOptions, Lowered};

/// Maximum length of a text whose expressions are reported at their tokens, in bytes.
const MAX_SEARCHED_BYTES: usize = 64 << 10;
/// Maximum nesting of loops.
const MAX_LOOP_DEPTH: u32 = 8;

/// Data of a node for the adapter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CanvasNodeData {
    pub(super) data: Map<String, Value>,
    /// Parameters whose `{{ … }}` the node evaluates itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) raw: Vec<String>,
    /// Whether it reports progress while it runs.
    pub(super) streaming: bool,
    /// Nodes on its side sockets, by handle.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) links: Map<String, Value>,
    /// The reason why it cannot run, if known in advance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
    /// Source of the plugin's executor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) executor: Option<String>,
    /// Executors of the nodes of its cluster, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) builders: BTreeMap<String, String>,
    /// Appearance of the kind in drawings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) look: Option<NodeLook>,
    /// Whether the kind is unknown: the node does nothing, and its successors do not run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unknown: bool,
}

/// Data of an edge for the adapter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CanvasEdgeData {
    /// The required type of the value at its end; `None` = unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_type: Option<String>,
    /// Whether it carries the value of one parameter, not data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) socket: bool,
    /// The node of the cluster whose parameter it sets, and that parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inner: Option<(String, String)>,
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
    let mut lowering = GraphLowering {
        catalogue: &catalogue,
        options,
        sources: &document.sources,
        found,
        made: Vec::new(),
        warned: Vec::new(),
    };
    lowering.graph(graph_node, name.unwrap_or(options.default_name), 0);
    let GraphLowering { found, made, warned, .. } = lowering;
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

type LoweredGraph = (Plan, Vec<Option<Span>>);

struct GraphLowering<'l> {
    catalogue: &'l NodeCatalogue,
    options: &'l LowerOptions<'l>,
    sources: &'l Sources,
    /// Findings that make the file invalid.
    found: Vec<Diagnostic>,
    /// Findings that do not prevent a plan.
    warned: Vec<Diagnostic>,
    made: Vec<LoweredGraph>,
}

impl GraphLowering<'_> {
    fn graph(&mut self, node: &Node, name: &str, depth: u32) {
        let mut graph = model::read(node, &mut self.found);
        let slot = self.made.len();
        self.check_kinds(&graph);
        self.check_wires(&graph);
        handle_check::check(&graph, self.catalogue, &mut self.warned);
        data_check::check(&graph, self.catalogue, &mut self.warned);
        self.mark_sockets(&mut graph);
        let graph = links::lead_sockets_to_owners(graph, self.catalogue);
        let structural = links::structural(&graph, self.catalogue);
        self.check_references(&graph, &structural);
        self.check_code(&graph);
        let order = kahn(&graph, &structural);
        let cycle = self.check_cycles(&graph, &structural, &order, node.span);
        let (mut plan, mut places) = self.plan(&graph, &structural, &order, name);
        self.warned.extend(display::mark_quiet(node.get(DISPLAY), &mut plan.nodes));
        if !cycle.is_empty() {
            plan.extra = json!({ "cycle": cycle });
        }
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
                Some(inner) if depth < MAX_LOOP_DEPTH => {
                    self.graph(inner, &body_name(name, &one.id), depth + 1);
                }
                Some(inner) => {
                    let message = format!("loops are nested more than {MAX_LOOP_DEPTH} deep");
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

    fn check_kinds(&mut self, graph: &CanvasGraph) {
        for node in graph.nodes.iter().filter(|node| !self.catalogue.contains_key(&node.kind)) {
            let message = format!("Flow contains unknown node type(s): '{}'", node.kind);
            let mut problem = Diagnostic::error(code::COVALT_NODE_TYPE_UNKNOWN.as_str(), message)
                .at(node.kind_span)
                .sub_code("UNKNOWN_NODE_TYPE");
            let kinds = self.catalogue.keys().map(String::as_str);
            if let Some(known) = sinew_source::hint_for(self.warned.len(), &node.kind, kinds) {
                problem = problem.hint(format!("did you mean '{known}'?"));
            }
            self.warned.push(problem);
        }
    }

    fn check_wires(&mut self, graph: &CanvasGraph) {
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

    fn source_type(&self, edge: &CanvasEdge, from: &CanvasNode) -> Option<String> {
        let definition = self.catalogue.get(&from.kind);
        let declared = || {
            let ports = from.data.get(definition?.outputs_from.as_ref()?)?;
            ports.get(&edge.source_handle)?.get("type")?.as_str().map(str::to_owned)
        };
        let own = || definition?.outputs.get(&edge.source_handle).cloned();
        edge.source_type.clone().or_else(declared).or_else(own)
    }

    fn target_type(&self, edge: &CanvasEdge, to: &CanvasNode) -> Option<String> {
        let own = || self.catalogue.get(&to.kind)?.inputs.get(&edge.target_handle).cloned();
        edge.target_type.clone().or_else(own)
    }

    /// Marks edges that end at a configuration socket: they carry a value, on either channel.
    fn mark_sockets(&self, graph: &mut CanvasGraph) {
        let kinds: Vec<(bool, bool, Option<String>)> = graph
            .edges
            .iter()
            .map(|edge| {
                let (Some(from), Some(to)) = (graph.find(&edge.source), graph.find(&edge.target)) else {
                    return (false, false, None);
                };
                let types = [self.source_type(edge, from), self.target_type(edge, to)];
                let any = |is: fn(&str) -> bool| types.iter().flatten().any(|kind| is(kind));
                let target = types[1].as_deref().is_some_and(coerce::is_configuration);
                let own = self.catalogue.get(&to.kind);
                let declared = own.is_some_and(|own| own.inputs.contains_key(&edge.target_handle));
                let value = any(coerce::is_configuration) && !any(coerce::is_structural);
                let [_, target_type] = types;
                (value, value && target && declared, target_type)
            })
            .collect();
        for (edge, (value, socket, target_type)) in graph.edges.iter_mut().zip(kinds) {
            edge.socket = socket || (edge.link && value);
            edge.link = edge.link && !value;
            // An edge that is redirected to another node keeps the type of its own socket.
            if edge.socket {
                edge.target_type = target_type;
            }
        }
    }

    /// Rejects a cycle that an execution from the start would reach. Returns the nodes of other
    /// cycles, which an execution with an entry scope may exclude.
    fn check_cycles(
        &mut self,
        graph: &CanvasGraph,
        structural: &BTreeSet<&str>,
        order: &[&str],
        span: Span,
    ) -> Vec<String> {
        let ordered: BTreeSet<&str> = order.iter().copied().collect();
        let left: BTreeSet<&str> = graph
            .nodes
            .iter()
            .map(|node| node.id.as_str())
            .filter(|id| !ordered.contains(id) && !structural.contains(id))
            .collect();
        if left.is_empty() {
            return Vec::new();
        }
        let cyclic = on_cycles(graph, left);
        let mut reached: BTreeSet<&str> = ordered.clone();
        let mut open: Vec<&str> = ordered.into_iter().collect();
        while let Some(id) = open.pop() {
            let edges = graph.place(id).into_iter().flat_map(|place| graph.edges_out_of(place));
            for edge in edges.filter(|edge| !edge.link) {
                if reached.insert(&edge.target) {
                    open.push(&edge.target);
                }
            }
        }
        let cycle = cycle_through(graph, &cyclic);
        let named = path_text(&cycle.iter().chain(cycle.first()).copied().collect::<Vec<_>>());
        let message = "the flow contains a cycle";
        // The edge that closes the cycle.
        let closing = cycle.first().zip(cycle.last()).and_then(|(first, last)| {
            let mut edges = graph.edges.iter().filter(|edge| !edge.link);
            edges.find(|edge| edge.source == **last && edge.target == **first)
        });
        let span = closing.map_or(span, |edge| edge.target_node_span);
        if order.is_empty() || cyclic.iter().any(|id| reached.contains(id)) {
            self.found.push(
                Diagnostic::error(code::COVALT_CYCLE.as_str(), message)
                    .at(span)
                    .sub_code("FLOW_CYCLE")
                    .hint(format!("the cycle is {named}; remove one of these edges")),
            );
        } else {
            let message = format!("{message} that nothing reaches: {named}");
            self.warned.push(
                Diagnostic::warning(code::COVALT_CYCLE.as_str(), message)
                    .at(span)
                    .sub_code("FLOW_CYCLE")
                    .hint("executions of the whole graph are rejected; start outside the cycle with `execution.entry_node_ids` in the input"),
            );
        }
        cyclic.into_iter().map(str::to_owned).collect()
    }

    /// Compiles the Python of code nodes, so that errors are reported with their line before
    /// execution.
    #[expect(
        clippy::disallowed_methods,
        reason = "for files that are checked, not for the engine's decisions"
    )]
    fn check_code(&mut self, graph: &CanvasGraph) {
        let python = |node: &&CanvasNode| node.kind == "code" && super::compute::is_python(&node.data);
        for node in graph.nodes.iter().filter(python) {
            let source = node.data.get("code").and_then(Value::as_str).unwrap_or_default();
            let Err(error) = Function::compile(source) else { continue };
            let place = node.place("code");
            let line = error.line.map(|line| format!(" at line {line}")).unwrap_or_default();
            let message = format!("the code of node '{}' is not valid{line}: {error}", node.id);
            let span = crate::script_span::place_in(self.sources, place, source, &error).unwrap_or(place);
            self.warned.push(Diagnostic::error(error.code(), message).at(span).sub_code("CODE_INVALID"));
        }
    }

    /// Returns the span of a part of a text.
    fn token(&self, value: &Node, text: &str, range: std::ops::Range<usize>) -> Span {
        // Each search reads the text, and a file may have thousands of expressions.
        let is_large =
            self.warned.len() >= sinew_source::MAX_HINTED_FINDINGS || text.len() > MAX_SEARCHED_BYTES;
        if is_large { value.span } else { token_span(self.sources, value.span, text, range) }
    }

    /// Reports an expression that is never closed: as an error if it can only be an expression.
    fn check_open(&mut self, node: &CanvasNode, key: &str, value: &Node, text: &str) {
        let Some(open) = template::open_at(text) else { return };
        let inner = text[open + 2..].trim_start();
        let is_expression = inner.starts_with('$') || inner.starts_with("input.");
        let message =
            format!("'{key}' of node '{}' opens an expression with {{{{ and never closes it", node.id);
        let code = code::TEAM_TEMPLATE_NOT_CLOSED.as_str();
        let finding = if is_expression { Diagnostic::error } else { Diagnostic::warning }(code, message);
        let finding = finding.at(self.token(value, text, open..text.len())).sub_code("TEMPLATE_OPEN");
        self.warned.push(finding.hint("close it with }}; until then the text remains unchanged"));
    }

    /// Returns a parsed expression, or reports that it cannot be read.
    fn readable(
        &mut self,
        node: &CanvasNode,
        text: &str,
        parsed: Result<ScriptExpression, ExpressionFailure>,
        place: Span,
    ) -> Option<ScriptExpression> {
        let error = match parsed {
            Ok(expr) => return Some(expr),
            Err(error) => error,
        };
        let message = format!(
            "expression in node '{}' cannot be parsed and evaluates to an empty text: '{text}': {error}",
            node.id
        );
        let broken = Diagnostic::error(code::COVALT_EXPRESSION_CANNOT_BE_READ.as_str(), message);
        self.warned.push(broken.at(place).sub_code("EXPRESSION"));
        None
    }

    /// Checks that expressions only refer to nodes that run earlier.
    fn check_references(&mut self, graph: &CanvasGraph, structural: &BTreeSet<&str>) {
        let mut references: Vec<(usize, Span, String)> = Vec::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            let raw = self.catalogue.get(&node.kind).map(|kind| kind.raw.as_slice()).unwrap_or_default();
            // A prompt template evaluates its own expressions, next to paths to values.
            let is_prompt = node.kind == "prompt-template";
            for member in node.written.iter().filter(|member| is_prompt || !raw.contains(&member.key)) {
                template::texts(&member.value, &mut |value, text| {
                    let is_path = |inner: &str| is_prompt && template::is_plain_path(inner);
                    self.check_open(node, &member.key, value, text);
                    let found = template::expressions(text).filter(|(_, inner, _)| !is_path(inner));
                    for (offset, inner, parsed) in found {
                        let place = self.token(value, text, offset..offset + inner.len());
                        let Some(expr) = self.readable(node, inner, parsed, place) else { continue };
                        let known = self.warned.len();
                        self.warned.extend(known_members::unknown_members(graph, at, &expr, place, known));
                        known_members::report_unknown_words(&node.id, &expr, place, &mut self.warned);
                        for name in expr.references() {
                            let quoted = |quote| inner.find(&format!("$({quote}{name}{quote})"));
                            let start = quoted('\'').or_else(|| quoted('"'));
                            let place = start.map_or(place, |start| {
                                let start = offset + start;
                                self.token(value, text, start..start + name.len() + 5)
                            });
                            references.push((at, place, name.to_owned()));
                        }
                    }
                });
            }
        }
        // With a missing edge, too little would be upstream.
        if self.found.iter().any(|item| item.code == code::COVALT_GRAPH_WRONG_SHAPE.as_str()) {
            return;
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

    fn plan(
        &mut self,
        graph: &CanvasGraph,
        structural: &BTreeSet<&str>,
        order: &[&str],
        name: &str,
    ) -> LoweredGraph {
        let ids: BTreeMap<&str, NodeIndex> =
            graph.nodes.iter().enumerate().map(|(ix, node)| (node.id.as_str(), ix as NodeIndex)).collect();
        let ranks: BTreeMap<&str, usize> = order.iter().enumerate().map(|(rank, id)| (*id, rank)).collect();
        let mut nodes: Vec<PlanNode> = Vec::with_capacity(graph.nodes.len());
        let mut linked = 0;
        for node in &graph.nodes {
            let rank = ranks.get(node.id.as_str()).copied().unwrap_or(order.len()) as u32;
            nodes.push(self.node(graph, node, structural.contains(node.id.as_str()), rank, &mut linked));
        }
        let edges = self.plan_edges(graph, &ids, &nodes);
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

    fn plan_edges(
        &self,
        graph: &CanvasGraph,
        ids: &BTreeMap<&str, NodeIndex>,
        nodes: &[PlanNode],
    ) -> Vec<PlanEdge> {
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
            let data = CanvasEdgeData { target_type, socket: edge.socket, inner: edge.inner.clone() };
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
                extra: serde_json::to_value(data).unwrap_or_default(),
            });
        }
        edges
    }

    fn node(
        &mut self,
        graph: &CanvasGraph,
        node: &CanvasNode,
        attached: bool,
        rank: u32,
        linked: &mut usize,
    ) -> PlanNode {
        let unknown = NodeDefinition::default();
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
        let mut builders = BTreeMap::new();
        links::kinds_of(&links, &mut |kind| {
            if let Some(code) = self.catalogue.get(kind).and_then(|own| own.executor.clone()) {
                builders.insert(kind.to_owned(), code);
            }
        });
        let mut data = definition.parameters.clone();
        data.extend(node.data.clone());
        let computed =
            node.kind == "code" && (super::compute::is_python(&data) || super::compute::is_blank(&data));
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
        let extra = CanvasNodeData {
            data,
            raw: definition.raw.clone(),
            streaming: definition.streaming,
            links,
            problem,
            executor: definition.executor.clone().filter(|_| !attached),
            builders,
            look: known.map(NodeDefinition::look),
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
        quiet: false,
        handles_failure: false,
        extra: json!({}),
    }
}

fn body_name(workflow: &str, node: &str) -> String {
    format!("{workflow}.{node}")
}

/// Returns the name of an edge in messages.
fn edge_name(edge: &CanvasEdge) -> String {
    format!("{}.{} -> {}.{}", edge.source, edge.source_handle, edge.target, edge.target_handle)
}
