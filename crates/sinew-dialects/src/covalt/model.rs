//! The file as nodes and edges: older names migrated, repeated edges dropped, channels inferred.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use sinew_source::{Diagnostic, Member, Node, Span, did_you_mean, hint_for};

use crate::near_members::misspelled;

/// A graph as written in the file.
pub(super) struct CanvasGraph {
    pub(super) nodes: Vec<CanvasNode>,
    pub(super) edges: Vec<CanvasEdge>,
    /// Indexes of nodes by id.
    pub(super) places: BTreeMap<String, usize>,
    /// Indexes of the edges that reach each node, in file order.
    incoming: Vec<Vec<usize>>,
    /// Indexes of the edges that leave each node, in file order.
    outgoing: Vec<Vec<usize>>,
}

impl CanvasGraph {
    /// Builds a graph with its indexes.
    pub(super) fn new(
        nodes: Vec<CanvasNode>,
        edges: Vec<CanvasEdge>,
        places: BTreeMap<String, usize>,
    ) -> Self {
        let mut incoming = vec![Vec::new(); nodes.len()];
        let mut outgoing = vec![Vec::new(); nodes.len()];
        for (at, edge) in edges.iter().enumerate() {
            let add = |lists: &mut Vec<Vec<usize>>, id: &str| {
                if let Some(place) = places.get(id) {
                    lists[*place].push(at);
                }
            };
            add(&mut outgoing, &edge.source);
            add(&mut incoming, &edge.target);
        }
        Self { nodes, edges, places, incoming, outgoing }
    }

    /// Returns the index of a node.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// Returns the node with this id.
    pub(super) fn find(&self, id: &str) -> Option<&CanvasNode> {
        self.places.get(id).map(|place| &self.nodes[*place])
    }

    /// Returns the edges that reach the node at this index.
    pub(super) fn edges_into(&self, place: usize) -> impl Iterator<Item = &CanvasEdge> {
        self.incoming[place].iter().map(|at| &self.edges[*at])
    }

    /// Returns the edges that leave the node at this index.
    pub(super) fn edges_out_of(&self, place: usize) -> impl Iterator<Item = &CanvasEdge> {
        self.outgoing[place].iter().map(|at| &self.edges[*at])
    }
}

/// One node of the file.
pub(super) struct CanvasNode {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) label: String,
    pub(super) data: Map<String, Value>,
    pub(super) span: Span,
    /// Span of the kind.
    pub(super) kind_span: Span,
    /// The parameters as written.
    pub(super) written: Vec<Member>,
}

impl CanvasNode {
    /// Returns the span of a parameter's value, or else of the node.
    pub(super) fn place(&self, parameter: &str) -> Span {
        self.written
            .iter()
            .find(|member| member.key == parameter)
            .map_or(self.span, |member| member.value.span)
    }
}

/// One edge of the file.
#[derive(Clone)]
pub(super) struct CanvasEdge {
    pub(super) source: String,
    pub(super) source_handle: String,
    pub(super) target: String,
    pub(super) target_handle: String,
    /// Whether it is structural (`link`) and not part of the flow.
    pub(super) link: bool,
    /// Whether it ends at a typed side socket and carries a value for one parameter.
    pub(super) socket: bool,
    /// The node of a cluster and the socket that receives the value, if the edge is redirected to
    /// the cluster's agent.
    pub(super) inner: Option<(String, String)>,
    pub(super) source_type: Option<String>,
    pub(super) target_type: Option<String>,
    pub(super) span: Span,
    /// Span of the target.
    pub(super) target_node_span: Span,
    /// Span of the source handle, or else of the edge.
    pub(super) source_span: Span,
    /// Span of the target handle, or else of the edge.
    pub(super) target_span: Span,
}

/// Returns the graph: the document itself, or its field `agent`, `graph` or `graph_data`.
pub(super) fn graph_of(root: &Node) -> &Node {
    let mut node = root;
    for key in ["agent", "graph_data", "graph"] {
        if node.get("nodes").is_none()
            && let Some(inner) = node.get(key)
        {
            node = inner;
        }
    }
    node
}

/// Returns the resemblance of a document to these graphs, 0 to 100.
pub(super) fn resemblance(graph: &Node) -> u8 {
    // The name of the list, and one end of an edge, may be misspelled.
    let edges = graph.get("edges").or_else(|| Some(&misspelled(graph, "edges")?.value));
    let (Some(nodes), Some(edges)) =
        (graph.get("nodes").and_then(Node::as_array), edges.and_then(Node::as_array))
    else {
        return resemblance_without_nodes(graph);
    };
    let ours = |edge: &Node| edge.get("source").is_some() || edge.get("target").is_some();
    let typed = |node: &Node| node.get("type").is_some_and(|kind| kind.as_str().is_some());
    if nodes.is_empty() || !nodes.iter().all(typed) || !edges.iter().all(ours) {
        return 0;
    }
    let channels = edges.iter().any(|edge| edge.get("data").and_then(|data| data.get("channel")).is_some());
    if channels { 95 } else { 60 }
}

/// Returns the resemblance of a document with edges of this dialect but no nodes: most likely a
/// misspelled name.
fn resemblance_without_nodes(graph: &Node) -> u8 {
    let edges = graph.get("edges").and_then(Node::as_array).unwrap_or_default();
    let channel = |edge: &Node| edge.get("data").and_then(|data| data.get("channel")).is_some();
    let ours = |edge: &Node| edge.get("source").is_some() && edge.get("target").is_some();
    if graph.get("nodes").is_none() && edges.iter().all(ours) && edges.iter().any(channel) { 40 } else { 0 }
}

/// Reads a graph; reports and omits entries without a usable shape.
pub(super) fn read(graph: &Node, found: &mut Vec<Diagnostic>) -> CanvasGraph {
    let mut report = |span: Span, message: String, hint: Option<String>| {
        let wrong = Diagnostic::error(code::COVALT_GRAPH_WRONG_SHAPE.as_str(), message);
        let wrong = wrong.at(span).sub_code("SCHEMA");
        found.push(match hint {
            Some(hint) => wrong.hint(hint),
            None => wrong,
        });
    };
    let mut nodes: Vec<CanvasNode> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let items = list(graph, "nodes", true, &mut report);
    if items.is_empty()
        && let Some(written) = graph.get("nodes").filter(|written| written.as_array().is_some())
    {
        report(written.span, "a graph needs at least one node".to_owned(), None);
    }
    for (n, item) in items.iter().enumerate() {
        let text = |key: &str| item.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
        let (id, kind) = (text("id"), text("type"));
        for (key, value) in [("id", id), ("type", kind)] {
            if value.is_none() {
                let (span, hint) = place_of_missing(item, key);
                report(span, format!("nodes[{n}] needs a {key} that is a text"), hint);
            }
        }
        let (Some(id), Some(kind)) = (id, kind) else { continue };
        if places.contains_key(id) {
            let span = item.get("id").map_or(item.span, |id| id.span);
            report(span, format!("two nodes have the id '{id}'"), None);
            continue;
        }
        places.insert(id.to_owned(), nodes.len());
        nodes.push(node(id, kind, item, &mut report));
    }
    let mut edges: Vec<CanvasEdge> = Vec::new();
    let mut known = BTreeSet::new();
    for (n, item) in list(graph, "edges", false, &mut report).iter().enumerate() {
        let Some(edge) = edge(n, item, &mut report) else { continue };
        let ends = [&edge.source, &edge.target, &edge.source_handle, &edge.target_handle].map(String::clone);
        if !known.insert((ends, edge.link)) {
            continue;
        }
        for (side, id) in [("source", &edge.source), ("target", &edge.target)] {
            if !places.contains_key(id) {
                let near = hint_for(n, id, places.keys().map(String::as_str));
                let hint = near.map(|near| format!("did you mean '{near}'?"));
                let span = item.get(side).map_or(item.span, |side| side.span);
                report(span, format!("edges[{n}] has the {side} '{id}', which is not a node"), hint);
            }
        }
        edges.push(edge);
    }
    CanvasGraph::new(nodes, edges, places)
}

/// Returns the place of a missing member, and the advice to rename a member that resembles it.
fn place_of_missing(object: &Node, key: &str) -> (Span, Option<String>) {
    match misspelled(object, key) {
        Some(near) => (near.key_span, Some(format!("did you mean '{key}'?"))),
        None => (object.get(key).map_or(object.span, |value| value.span), None),
    }
}

/// Receives a finding: place, message and hint.
trait Report: FnMut(Span, String, Option<String>) {}
impl<F: FnMut(Span, String, Option<String>)> Report for F {}

fn list<'n>(graph: &'n Node, key: &str, needed: bool, report: &mut impl Report) -> &'n [Node] {
    match graph.get(key).map(|value| (value, value.as_array())) {
        Some((_, Some(items))) => items,
        Some((value, None)) => {
            report(value.span, format!("{key} must be a list, not {}", value.type_name()), None);
            &[]
        }
        None => {
            let (span, hint) = place_of_missing(graph, key);
            if needed || hint.is_some() {
                report(span, format!("a graph needs a list of {key}"), hint);
            }
            &[]
        }
    }
}

fn node(id: &str, kind: &str, item: &Node, report: &mut impl Report) -> CanvasNode {
    let (data, written) = match item.get("data") {
        None => (Map::new(), Vec::new()),
        Some(data) => match (data.to_json(), data.as_object()) {
            (Value::Object(members), Some(nodes)) => (members, nodes.to_vec()),
            (Value::Null, _) => (Map::new(), Vec::new()),
            _ => {
                report(data.span, format!("data of node '{id}' must be an object"), None);
                (Map::new(), Vec::new())
            }
        },
    };
    let text = |key: &str| data.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let label = text("_label").or_else(|| text("label")).unwrap_or(id).to_owned();
    let kind_span = item.get("type").map_or(item.span, |kind| kind.span);
    CanvasNode { id: id.to_owned(), kind: migrated(kind), label, data, span: item.span, kind_span, written }
}

/// Returns the current name of a kind: no prefix, dashes for underscores.
fn migrated(kind: &str) -> String {
    kind.strip_prefix("np:").unwrap_or(kind).replace('_', "-")
}

fn edge(n: usize, item: &Node, report: &mut impl Report) -> Option<CanvasEdge> {
    let text = |key: &str| item.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
    let (Some(source), Some(target)) = (text("source"), text("target")) else {
        let missing = if text("source").is_none() { "source" } else { "target" };
        let (span, hint) = place_of_missing(item, missing);
        report(span, format!("edges[{n}] needs a source and a target that are texts"), hint);
        return None;
    };
    let data = |key: &str| item.get("data").and_then(|data| data.get(key));
    let kind = |key: &str| data(key).and_then(Node::as_str).map(str::to_owned);
    let place = |key: &str| item.get(key).map_or(item.span, |handle| handle.span);
    let source_handle = text("sourceHandle").unwrap_or("output").to_owned();
    let target_handle = text("targetHandle").unwrap_or("input").to_owned();
    let link = match data("channel").and_then(Node::as_str) {
        Some("link") => true,
        Some("flow") => false,
        Some(other) => {
            let near = did_you_mean(other, ["flow", "link"].into_iter());
            report(
                data("channel").map_or(item.span, |channel| channel.span),
                format!("edges[{n}] has the channel '{other}', which is neither flow nor link"),
                near.map(|near| format!("did you mean '{near}'?")),
            );
            false
        }
        None => source_handle == "tools" || target_handle == "tools",
    };
    Some(CanvasEdge {
        source: source.to_owned(),
        source_handle,
        target: target.to_owned(),
        target_handle,
        link,
        socket: false,
        inner: None,
        source_type: kind("sourceType"),
        target_type: kind("targetType"),
        span: item.span,
        target_node_span: place("target"),
        source_span: place("sourceHandle"),
        target_span: place("targetHandle"),
    })
}
