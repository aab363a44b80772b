//! Sockets of a covalt file's nodes, with their types, colours and outlines.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_dialects::covalt::describe_kind;

use crate::workflow_file::Loaded;

/// The dialect whose nodes have typed sockets.
const DIALECT: &str = "covalt";

/// Sockets of a node, as the catalogue of its kind describes them.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeSockets {
    /// Name of the workflow.
    pub workflow: String,
    /// Id of the node.
    pub node: String,
    /// Kind of the node.
    pub kind: String,
    /// Outline of the node.
    pub shape: Value,
    /// Colour of the node.
    pub color: Value,
    /// Sockets that take values: name, type, colour, outline.
    pub inputs: Value,
    /// Sockets that give values: name, type, colour, outline.
    pub outputs: Value,
}

/// Returns the sockets of all nodes whose kinds are in the catalogue; empty for other dialects.
pub fn sockets_of(loaded: &Loaded) -> Vec<NodeSockets> {
    if loaded.dialect.name() != DIALECT {
        return Vec::new();
    }
    let nodes = loaded
        .workflows
        .iter()
        .flat_map(|lowered| lowered.plan.nodes.iter().map(|node| (lowered.plan.name.as_str(), node)));
    let known = nodes.filter_map(|(workflow, node)| Some((workflow, node, describe_kind(&node.kind)?)));
    known
        .map(|(workflow, node, mut kind)| NodeSockets {
            workflow: workflow.to_owned(),
            node: node.id.clone(),
            kind: node.kind.clone(),
            shape: kind["shape"].take(),
            color: kind["color"].take(),
            inputs: kind["inputs"].take(),
            outputs: kind["outputs"].take(),
        })
        .collect()
}
