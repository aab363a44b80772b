//! Conversion of a plan of this dialect to its original file.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sinew_plan::{NodeIndex, NodeOperation, Plan};

use super::lower::EVENT_FIELDS;
use crate::display::{self, DISPLAY};

/// Returns the definition stored in a plan, as a document that lowers to the same plan.
pub(super) fn document(plan: &Plan) -> Value {
    // Branches of forks are nodes of the plan, but not of the file.
    let branches: BTreeSet<NodeIndex> = plan
        .nodes
        .iter()
        .flat_map(|node| match &node.op {
            NodeOperation::Fork { bodies } => bodies.as_slice(),
            _ => &[],
        })
        .copied()
        .collect();
    let written = (0..plan.nodes.len() as NodeIndex).filter(|ix| !branches.contains(ix));
    let nodes: Vec<Value> = written
        .map(|ix| {
            let mut node = plan.node(ix).extra.clone();
            if let Some(members) = node.as_object_mut() {
                members.shift_remove(EVENT_FIELDS);
            }
            node
        })
        .collect();
    let mut workflow = plan.extra.as_object().cloned().unwrap_or_default();
    let settings = workflow.shift_remove("settings");
    workflow.insert("nodes".to_owned(), Value::Array(nodes));
    if let Some(display) = display::document(plan.nodes.iter()) {
        workflow.insert(DISPLAY.to_owned(), display);
    }
    let mut document = Map::from_iter([("name".to_owned(), json!(plan.name))]);
    document.extend(settings.and_then(|settings| settings.as_object().cloned()).unwrap_or_default());
    document.insert("workflow".to_owned(), Value::Object(workflow));
    Value::Object(document)
}
