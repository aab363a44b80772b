//! The file as nodes and edges: older names migrated, repeated edges dropped, channels inferred.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use sinew_source::{Diagnostic, Node, Span};

/// A graph as it stands in the file.
pub(super) struct Graph {
    pub(super) nodes: Vec<FileNode>,
    pub(super) edges: Vec<FileEdge>,
    /// Positions of nodes by id.
    places: BTreeMap<String, usize>,
    /// Positions of the edges that reach each node, in file order.
    incoming: Vec<Vec<usize>>,
    /// Positions of the edges that leave each node, in file order.
    outgoing: Vec<Vec<usize>>,
}

impl Graph {
    fn new(nodes: Vec<FileNode>, edges: Vec<FileEdge>, places: BTreeMap<String, usize>) -> Self {
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

    /// Returns the position of a node.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// Returns the node with this id.
    pub(super) fn find(&self, id: &str) -> Option<&FileNode> {
        self.places.get(id).map(|place| &self.nodes[*place])
    }

    /// Returns the edges that reach the node at this position.
    pub(super) fn edges_into(&self, place: usize) -> impl Iterator<Item = &FileEdge> {
        self.incoming[place].iter().map(|at| &self.edges[*at])
    }

    /// Returns the edges that leave the node at this position.
    pub(super) fn edges_out_of(&self, place: usize) -> impl Iterator<Item = &FileEdge> {
        self.outgoing[place].iter().map(|at| &self.edges[*at])
    }
}

/// One node of the file.
pub(super) struct FileNode {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) label: String,
    pub(super) data: Map<String, Value>,
    pub(super) span: Span,
    /// Where each parameter stands.
    pub(super) places: Vec<(String, Span)>,
}

/// One edge of the file.
#[derive(Clone)]
pub(super) struct FileEdge {
    pub(super) source: String,
    pub(super) source_handle: String,
    pub(super) target: String,
    pub(super) target_handle: String,
    /// Structure (`link`), not flow.
    pub(super) link: bool,
    pub(super) source_type: Option<String>,
    pub(super) target_type: Option<String>,
    pub(super) span: Span,
}

/// The graph: the document itself, or what it wraps (`agent`, `graph`, `graph_data`).
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

/// How much a document looks like one of these graphs, 0 to 100.
pub(super) fn resemblance(graph: &Node) -> u8 {
    let (Some(nodes), Some(edges)) =
        (graph.get("nodes").and_then(Node::as_array), graph.get("edges").and_then(Node::as_array))
    else {
        return 0;
    };
    let ours = |edge: &Node| edge.get("source").is_some() && edge.get("target").is_some();
    let typed = |node: &Node| node.get("type").is_some_and(|kind| kind.as_str().is_some());
    if nodes.is_empty() || !nodes.iter().all(typed) || !edges.iter().all(ours) {
        return 0;
    }
    let channels = edges.iter().any(|edge| edge.get("data").and_then(|data| data.get("channel")).is_some());
    if channels { 95 } else { 60 }
}

/// Reads a graph; what has no usable shape is left out and reported.
pub(super) fn read(graph: &Node, found: &mut Vec<Diagnostic>) -> Graph {
    let mut report = |span: Span, message: String| {
        found.push(
            Diagnostic::error(code::COVALT_GRAPH_WRONG_SHAPE.as_str(), message).at(span).sub_code("SCHEMA"),
        );
    };
    let mut nodes: Vec<FileNode> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (n, item) in list(graph, "nodes", true, &mut report).iter().enumerate() {
        let text = |key: &str| item.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
        let (id, kind) = (text("id"), text("type"));
        for (key, value) in [("id", id), ("type", kind)] {
            if value.is_none() {
                report(item.span, format!("nodes[{n}] needs a {key} that is a text"));
            }
        }
        let (Some(id), Some(kind)) = (id, kind) else { continue };
        if places.contains_key(id) {
            report(item.span, format!("two nodes have the id '{id}'"));
            continue;
        }
        places.insert(id.to_owned(), nodes.len());
        nodes.push(node(id, kind, item, &mut report));
    }
    let mut edges: Vec<FileEdge> = Vec::new();
    let mut known = BTreeSet::new();
    for (n, item) in list(graph, "edges", false, &mut report).iter().enumerate() {
        let Some(edge) = edge(n, item, &mut report) else { continue };
        let ends = [&edge.source, &edge.target, &edge.source_handle, &edge.target_handle].map(String::clone);
        if !known.insert((ends, edge.link)) {
            continue;
        }
        for (side, id) in [("source", &edge.source), ("target", &edge.target)] {
            if !places.contains_key(id) {
                report(item.span, format!("edges[{n}] has the {side} '{id}', which is no node"));
            }
        }
        edges.push(edge);
    }
    Graph::new(nodes, edges, places)
}

fn list<'n>(graph: &'n Node, key: &str, needed: bool, report: &mut impl FnMut(Span, String)) -> &'n [Node] {
    match graph.get(key).map(|value| (value, value.as_array())) {
        Some((_, Some(items))) => items,
        Some((value, None)) => {
            report(value.span, format!("{key} must be a list, not {}", value.type_name()));
            &[]
        }
        None => {
            if needed {
                report(graph.span, format!("a graph needs a list of {key}"));
            }
            &[]
        }
    }
}

fn node(id: &str, kind: &str, item: &Node, report: &mut impl FnMut(Span, String)) -> FileNode {
    let (data, places) = match item.get("data") {
        None => (Map::new(), Vec::new()),
        Some(data) => match (data.to_json(), data.as_object()) {
            (Value::Object(members), Some(nodes)) => {
                (members, nodes.iter().map(|member| (member.key.clone(), member.value.span)).collect())
            }
            (Value::Null, _) => (Map::new(), Vec::new()),
            _ => {
                report(data.span, format!("data of node '{id}' must be an object"));
                (Map::new(), Vec::new())
            }
        },
    };
    let text = |key: &str| data.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let label = text("_label").or_else(|| text("label")).unwrap_or(id).to_owned();
    FileNode { id: id.to_owned(), kind: migrated(kind), label, data, span: item.span, places }
}

/// Today's name of a kind: no prefix, dashes for underscores.
fn migrated(kind: &str) -> String {
    kind.strip_prefix("np:").unwrap_or(kind).replace('_', "-")
}

fn edge(n: usize, item: &Node, report: &mut impl FnMut(Span, String)) -> Option<FileEdge> {
    let text = |key: &str| item.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
    let (Some(source), Some(target)) = (text("source"), text("target")) else {
        report(item.span, format!("edges[{n}] needs a source and a target that are texts"));
        return None;
    };
    let data = |key: &str| item.get("data").and_then(|data| data.get(key));
    let kind = |key: &str| data(key).and_then(Node::as_str).map(str::to_owned);
    let source_handle = text("sourceHandle").unwrap_or("output").to_owned();
    let target_handle = text("targetHandle").unwrap_or("input").to_owned();
    let link = match data("channel").and_then(Node::as_str) {
        Some("link") => true,
        Some("flow") => false,
        Some(other) => {
            report(
                item.span,
                format!("edges[{n}] has the channel '{other}', which is neither flow nor link"),
            );
            false
        }
        None => source_handle == "tools" || target_handle == "tools",
    };
    Some(FileEdge {
        source: source.to_owned(),
        source_handle,
        target: target.to_owned(),
        target_handle,
        link,
        source_type: kind("sourceType"),
        target_type: kind("targetType"),
        span: item.span,
    })
}
