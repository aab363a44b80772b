//! Structural clusters: the nodes on the side sockets of a node, built before any value flows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::catalogue::NodeCatalogue;
use super::model::{CanvasEdge, CanvasGraph, CanvasNode};

/// Maximum depth of a cluster.
const MAX_CLUSTER_DEPTH: usize = 64;
/// Maximum number of nodes of one cluster; shared parts count each time.
const MAX_CLUSTER_NODES: usize = 2_000;
/// Maximum number of nodes of all clusters of a graph: a plan contains a copy of each.
const MAX_LINKED_NODES: usize = 50_000;

/// Returns the ids of structural nodes: of a structural kind, or wired to others only by links.
pub(super) fn structural<'g>(graph: &'g CanvasGraph, catalogue: &NodeCatalogue) -> BTreeSet<&'g str> {
    let is_structural = |place: usize, node: &CanvasNode| {
        let own =
            catalogue.get(&node.kind).is_some_and(|kind| kind.mode == super::catalogue::NodeMode::Structural);
        let links_out = graph.edges_out_of(place).any(|edge| edge.link);
        let leaves = graph.edges_out_of(place).any(|edge| !edge.link);
        let flows = leaves || graph.edges_into(place).any(|edge| !edge.link && !edge.socket);
        own || (links_out && !flows)
    };
    let nodes = graph.nodes.iter().enumerate().filter(|(place, node)| is_structural(*place, node));
    nodes.map(|(_, node)| node.id.as_str()).collect()
}

/// Redirects wires into sockets of a cluster's inner nodes to the agents of that cluster, which
/// wait for the value and apply it when they build the cluster.
pub(super) fn lead_sockets_to_owners(graph: CanvasGraph, catalogue: &NodeCatalogue) -> CanvasGraph {
    let inner: BTreeSet<String> = structural(&graph, catalogue).into_iter().map(str::to_owned).collect();
    if !graph.edges.iter().any(|edge| edge.socket && inner.contains(&edge.target)) {
        return graph;
    }
    let mut edges = Vec::with_capacity(graph.edges.len());
    for edge in &graph.edges {
        if !(edge.socket && inner.contains(&edge.target)) {
            edges.push(edge.clone());
            continue;
        }
        for owner in owners(&graph, &edge.target, &inner) {
            edges.push(CanvasEdge {
                target: owner.to_owned(),
                target_handle: format!("{}/{}", edge.target, edge.target_handle),
                inner: Some((edge.target.clone(), edge.target_handle.clone())),
                ..edge.clone()
            });
            if edges.len() > MAX_LINKED_NODES {
                break;
            }
        }
    }
    let CanvasGraph { nodes, places, .. } = graph;
    CanvasGraph::new(nodes, edges, places)
}

/// Returns the flow nodes whose clusters contain a node, by id.
fn owners<'g>(graph: &'g CanvasGraph, id: &str, inner: &BTreeSet<String>) -> BTreeSet<&'g str> {
    let (mut owners, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut open: Vec<&str> = graph.find(id).map(|node| node.id.as_str()).into_iter().collect();
    while let Some(at) = open.pop() {
        let links = graph.place(at).into_iter().flat_map(|place| graph.edges_out_of(place));
        for edge in links.filter(|edge| edge.link) {
            if !inner.contains(&edge.target) {
                owners.insert(edge.target.as_str());
            } else if seen.insert(edge.target.as_str()) {
                open.push(&edge.target);
            }
        }
    }
    owners
}

/// Returns the nodes on the side sockets of a node, by handle; or the chain of a cycle. `built`
/// counts the nodes of all clusters of a graph.
pub(super) fn tree(graph: &CanvasGraph, id: &str, built: &mut usize) -> Result<Map<String, Value>, String> {
    let first = *built;
    ClusterBuilder { graph, chain: Vec::new(), first, built }.resolve_all(id)
}

struct ClusterBuilder<'g, 'b> {
    graph: &'g CanvasGraph,
    chain: Vec<String>,
    /// Number of nodes in earlier clusters.
    first: usize,
    built: &'b mut usize,
}

impl ClusterBuilder<'_, '_> {
    fn resolve_all(&mut self, id: &str) -> Result<Map<String, Value>, String> {
        let graph = self.graph;
        // By handle, in order of first use.
        let mut handles: Vec<(&str, Vec<&CanvasEdge>)> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let incoming = graph.place(id).into_iter().flat_map(|place| graph.edges_into(place));
        for edge in incoming.filter(|edge| edge.link) {
            let place = *places.entry(&edge.target_handle).or_insert(handles.len());
            if place == handles.len() {
                handles.push((&edge.target_handle, Vec::new()));
            }
            handles[place].1.push(edge);
        }
        let mut all = Map::new();
        for (handle, edges) in handles {
            self.chain.push(format!("resolve({id}.{handle})"));
            let mut resolved = Vec::new();
            for edge in edges {
                if let Some(node) = graph.find(&edge.source) {
                    resolved.push(self.materialize(node, &edge.source_handle)?);
                }
            }
            self.chain.pop();
            all.insert(handle.to_owned(), Value::Array(resolved));
        }
        Ok(all)
    }

    fn materialize(&mut self, node: &CanvasNode, handle: &str) -> Result<Value, String> {
        let step = format!("materialize({}.{handle})", node.id);
        if let Some(first) = self.chain.iter().position(|known| *known == step) {
            let mut chain = self.chain[first..].to_vec();
            chain.push(step);
            return Err(format!("Link dependency cycle detected: {}", chain.join(" -> ")));
        }
        *self.built += 1;
        if *self.built - self.first > MAX_CLUSTER_NODES {
            return Err(format!("Links lead to more than {MAX_CLUSTER_NODES} nodes at '{}'", node.id));
        }
        if *self.built > MAX_LINKED_NODES {
            return Err(format!(
                "Links of all nodes lead to more than {MAX_LINKED_NODES} nodes at '{}'",
                node.id
            ));
        }
        if self.chain.len() > 2 * MAX_CLUSTER_DEPTH {
            return Err(format!("Links are nested more than {MAX_CLUSTER_DEPTH} deep at '{}'", node.id));
        }
        self.chain.push(step);
        let links = self.resolve_all(&node.id)?;
        self.chain.pop();
        Ok(json!({
            "id": node.id,
            "type": node.kind,
            "label": node.label,
            "handle": handle,
            "data": node.data,
            "links": links,
        }))
    }
}

/// Visits the kinds of all nodes of a cluster.
pub(super) fn kinds_of(tree: &Map<String, Value>, visit: &mut impl FnMut(&str)) {
    for node in tree.values().filter_map(Value::as_array).flatten() {
        if let Some(kind) = node["type"].as_str() {
            visit(kind);
        }
        if let Some(below) = node["links"].as_object() {
            kinds_of(below, visit);
        }
    }
}

/// Returns a sub-agent as a tool of its parent, which takes a task.
pub(super) fn delegation(label: &str, description: &str) -> Value {
    let mut name: String =
        label.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    name = name.trim_matches('_').to_owned();
    json!({
        "name": format!("delegate_to_{name}"),
        "description": description,
        "parameters": {
            "type": "object",
            "properties": { "task": { "type": "string" } },
            "required": ["task"]
        }
    })
}
