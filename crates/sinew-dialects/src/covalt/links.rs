//! Structural clusters: what hangs off the side sockets of a node, built before anything flows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::catalogue::Catalogue;
use super::model::{FileEdge, FileNode, Graph};

/// Deepest cluster.
const DEEPEST: usize = 64;
/// Most nodes of one cluster; shared parts count each time.
const LARGEST: usize = 2_000;
/// Most nodes of all clusters of a graph: a plan holds a copy of each.
const MAX_LINKED_NODES: usize = 50_000;

/// Ids of nodes that are structure only: of a structural kind, or wired to others by links alone.
pub(super) fn structural<'g>(graph: &'g Graph, catalogue: &Catalogue) -> BTreeSet<&'g str> {
    let is_structural = |place: usize, node: &FileNode| {
        let own =
            catalogue.get(&node.kind).is_some_and(|kind| kind.mode == super::catalogue::Mode::Structural);
        let links_out = graph.edges_out_of(place).any(|edge| edge.link);
        let flows = graph.edges_out_of(place).chain(graph.edges_into(place)).any(|edge| !edge.link);
        own || (links_out && !flows)
    };
    let nodes = graph.nodes.iter().enumerate().filter(|(place, node)| is_structural(*place, node));
    nodes.map(|(_, node)| node.id.as_str()).collect()
}

/// What hangs off a node, by handle; or the chain of a cycle. `built` counts the nodes of all clusters of a graph.
pub(super) fn tree(graph: &Graph, id: &str, built: &mut usize) -> Result<Map<String, Value>, String> {
    let first = *built;
    Builder { graph, chain: Vec::new(), first, built }.resolve_all(id)
}

struct Builder<'g, 'b> {
    graph: &'g Graph,
    chain: Vec<String>,
    /// Nodes of the clusters before this one.
    first: usize,
    built: &'b mut usize,
}

impl Builder<'_, '_> {
    fn resolve_all(&mut self, id: &str) -> Result<Map<String, Value>, String> {
        let graph = self.graph;
        // By handle, in the order in which handles are first named.
        let mut handles: Vec<(&str, Vec<&FileEdge>)> = Vec::new();
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

    fn materialize(&mut self, node: &FileNode, handle: &str) -> Result<Value, String> {
        let step = format!("materialize({}.{handle})", node.id);
        if let Some(first) = self.chain.iter().position(|known| *known == step) {
            let mut chain = self.chain[first..].to_vec();
            chain.push(step);
            return Err(format!("Link dependency cycle detected: {}", chain.join(" -> ")));
        }
        *self.built += 1;
        if *self.built - self.first > LARGEST {
            return Err(format!("Links lead to more than {LARGEST} nodes at '{}'", node.id));
        }
        if *self.built > MAX_LINKED_NODES {
            return Err(format!(
                "Links of all nodes lead to more than {MAX_LINKED_NODES} nodes at '{}'",
                node.id
            ));
        }
        if self.chain.len() > 2 * DEEPEST {
            return Err(format!("Links are nested more than {DEEPEST} deep at '{}'", node.id));
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

/// A sub-agent as its parent sees it: a tool that takes a task.
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
