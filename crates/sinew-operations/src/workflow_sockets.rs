//! Sockets of a covalt file's nodes, with their types, colours and outlines.

use serde_json::Value;
use sinew_dialects::covalt::describe_kind;
use sinew_documents::finding::{NodeSockets, Socket};

use crate::workflow_file::Loaded;

/// The dialect whose nodes have typed sockets.
const DIALECT: &str = "covalt";

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
        .map(|(workflow, node, kind)| NodeSockets {
            workflow: workflow.to_owned(),
            node: node.id.clone(),
            kind: node.kind.clone(),
            shape: kind["shape"].as_str().unwrap_or_default().to_owned(),
            color: kind["color"].as_str().unwrap_or_default().to_owned(),
            inputs: sockets_in(&kind["inputs"]),
            outputs: sockets_in(&kind["outputs"]),
        })
        .collect()
}

fn sockets_in(listed: &Value) -> Vec<Socket> {
    let sockets = listed.as_array().into_iter().flatten();
    sockets.filter_map(|socket| serde_json::from_value(socket.clone()).ok()).collect()
}
