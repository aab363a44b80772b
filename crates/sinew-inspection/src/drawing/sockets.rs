//! Typed sockets of covalt nodes.

use std::collections::BTreeMap;

use serde_json::Value;
use sinew_diagram::{DrawnSocket, NodeColor, SocketShape};
use sinew_dialects::covalt::describe_kind;
use sinew_plan::{Plan, PlanNode};

/// The dialect whose nodes have typed sockets.
const DIALECT: &str = "covalt";

/// Cache of sockets by kind of node.
#[derive(Default)]
pub(super) struct SocketLooks(BTreeMap<String, Vec<DrawnSocket>>);

impl SocketLooks {
    /// Returns the sockets of a node from the catalogue; empty for unknown kinds.
    pub(super) fn of(&mut self, plan: &Plan, node: &PlanNode) -> Vec<DrawnSocket> {
        if plan.dialect != DIALECT {
            return Vec::new();
        }
        self.0.entry(node.kind.clone()).or_insert_with(|| sockets_of_kind(&node.kind)).clone()
    }
}

fn sockets_of_kind(kind: &str) -> Vec<DrawnSocket> {
    let Some(kind) = describe_kind(kind) else { return Vec::new() };
    let side = |name: &str, is_output: bool| -> Vec<DrawnSocket> {
        let all = kind[name].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter_map(|socket| drawn(socket, is_output)).collect()
    };
    let (inputs, outputs) = (side("inputs", false), side("outputs", true));
    inputs.into_iter().chain(outputs).collect()
}

fn drawn(socket: &Value, is_output: bool) -> Option<DrawnSocket> {
    let text = |name: &str| socket[name].as_str().unwrap_or_default();
    Some(DrawnSocket {
        name: text("name").to_owned(),
        kind: text("type").to_owned(),
        shape: SocketShape::parse(text("shape")),
        color: NodeColor::parse(text("color"))?,
        is_output,
    })
}
