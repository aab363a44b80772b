//! From a plan back to the document of its author: definition, nodes and settings travel in the plan's `extra`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use sinew_plan::{NodeIx, Op, Plan};

/// Returns the document that lowers to this plan; none if the plan is not of this dialect.
pub(super) fn document(plan: &Plan) -> Option<Value> {
    let mut definition = plan.extra.as_object()?.clone();
    // A node that several others run has an activation plan of its own for each; the file has it once.
    let mut nodes: Vec<(u32, &Map<String, Value>)> = Vec::new();
    let mut seen = BTreeSet::new();
    // Branches of a fork stand in the fork itself.
    let branches: BTreeSet<NodeIx> = plan
        .nodes
        .iter()
        .flat_map(|node| match &node.op {
            Op::Fork { bodies } => bodies.clone(),
            _ => Vec::new(),
        })
        .collect();
    let own = plan.nodes.iter().zip(0..).filter(|(_, ix)| !branches.contains(ix));
    for (node, _) in own {
        let written = node.extra.as_object()?;
        if seen.insert(written.get("id")?.as_str()?) {
            nodes.push((node.rank, written));
        }
    }
    nodes.sort_by_key(|(rank, _)| *rank);
    definition
        .insert("nodes".to_owned(), nodes.into_iter().map(|(_, node)| Value::Object(node.clone())).collect());
    let settings = definition.remove("settings");
    let mut document = Map::new();
    document.insert("name".to_owned(), plan.name.clone().into());
    document.extend(settings.and_then(|settings| settings.as_object().cloned()).into_iter().flatten());
    document.insert("workflow".to_owned(), definition.into());
    Some(document.into())
}
