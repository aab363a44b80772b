//! Structural clusters: what hangs off the side sockets of a node, built before anything flows.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::catalogue::Catalogue;
use super::model::{FileNode, Graph};

/// Deepest cluster.
const DEEPEST: usize = 64;
/// Most nodes of one cluster; shared parts count each time.
const LARGEST: usize = 2_000;

/// Ids of nodes that are structure only: of a structural kind, or wired to others by links alone.
pub(super) fn structural<'g>(graph: &'g Graph, catalogue: &Catalogue) -> BTreeSet<&'g str> {
    let is_structural = |node: &&FileNode| {
        let own =
            catalogue.get(&node.kind).is_some_and(|kind| kind.mode == super::catalogue::Mode::Structural);
        let links_out = graph.edges.iter().any(|edge| edge.link && edge.source == node.id);
        let flows =
            graph.edges.iter().any(|edge| !edge.link && (edge.source == node.id || edge.target == node.id));
        own || (links_out && !flows)
    };
    graph.nodes.iter().filter(is_structural).map(|node| node.id.as_str()).collect()
}

/// What hangs off a node, by handle; or the chain of a cycle.
pub(super) fn tree(graph: &Graph, id: &str) -> Result<Map<String, Value>, String> {
    Builder { graph, chain: Vec::new(), built: 0 }.resolve_all(id)
}

struct Builder<'g> {
    graph: &'g Graph,
    chain: Vec<String>,
    built: usize,
}

impl Builder<'_> {
    fn resolve_all(&mut self, id: &str) -> Result<Map<String, Value>, String> {
        let mut handles: Vec<&str> = Vec::new();
        for edge in self.graph.edges.iter().filter(|edge| edge.link && edge.target == id) {
            if !handles.contains(&edge.target_handle.as_str()) {
                handles.push(&edge.target_handle);
            }
        }
        let mut all = Map::new();
        for handle in handles {
            self.chain.push(format!("resolve({id}.{handle})"));
            let resolved = self.resolve(id, handle)?;
            self.chain.pop();
            all.insert(handle.to_owned(), Value::Array(resolved));
        }
        Ok(all)
    }

    fn resolve(&mut self, id: &str, handle: &str) -> Result<Vec<Value>, String> {
        let graph = self.graph;
        let edges =
            graph.edges.iter().filter(|edge| edge.link && edge.target == id && edge.target_handle == handle);
        let mut all = Vec::new();
        for edge in edges {
            let Some(node) = graph.nodes.iter().find(|node| node.id == edge.source) else { continue };
            all.push(self.materialize(node, &edge.source_handle)?);
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
        self.built += 1;
        if self.built > LARGEST {
            return Err(format!("Links lead to more than {LARGEST} nodes at '{}'", node.id));
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
