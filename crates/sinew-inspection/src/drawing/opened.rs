//! Expanded parts of a drawing: the children of a map, loop or fork, and called workflows.

use std::collections::BTreeSet;

use sinew_diagram::{Drawing, DrawnEdge, DrawnNode, EdgeKind, NodeMark, Shape, Status};
use sinew_documents::node_status::NodeStatus;
use sinew_engine::ActivationId;
use sinew_execution::events;
use sinew_plan::{NodeIndex, NodeOperation};

use super::run::status_of;
use crate::node_rows;
use crate::record::Record;

/// Maximum individually drawn children; the others are one node with their count.
const MAX_CHILDREN: usize = 24;

/// Draws the children that a map, loop or fork has created so far, with their statuses, in a box.
/// `node` is the node that creates them, or the node whose activations they are. Returns false if
/// there is no such node or it has no children.
pub fn open_children(drawing: &mut Drawing, record: &Record, node: &str) -> bool {
    let plan = record.plan();
    let Some(ix) = plan.find(node) else { return false };
    let bodies: Vec<NodeIndex> = match &plan.node(ix).op {
        NodeOperation::Map { body } | NodeOperation::Loop { body } => vec![*body],
        NodeOperation::Fork { bodies } => bodies.clone(),
        _ if plan.node(ix).inner => vec![ix],
        _ => return false,
    };
    let opened = bodies.into_iter().filter(|body| open_body(drawing, record, *body));
    opened.count() > 0
}

/// Replaces a node by its activations.
fn open_body(drawing: &mut Drawing, record: &Record, body: NodeIndex) -> bool {
    let ctx = record.execution.ctx();
    let id = &record.plan().node(body).id;
    let Some(at) = drawing.nodes.iter().position(|node| node.id == *id) else { return false };
    let mut children: Vec<ActivationId> = (0..ctx.state.acts.len() as ActivationId)
        .filter(|act| {
            let one = ctx.act(*act);
            one.node == body && one.owner.is_some()
        })
        .collect();
    if children.is_empty() {
        return false;
    }
    let total = children.len();
    // Failed and waiting children come first; children with the same status stay in order.
    if total > MAX_CHILDREN {
        children.sort_by_key(|act| node_rows::word(ctx.act(*act)).rank());
    }
    let rest = children.split_off(children.len().min(MAX_CHILDREN));
    children.sort_unstable();
    let pattern = DrawnNode { is_stack: false, is_quiet: false, ..drawing.nodes[at].clone() };
    let title = format!("{id}: {total} activations");
    let node = |id: String, first: String, mark: NodeMark| DrawnNode {
        lines: std::iter::once(first).chain(pattern.lines.iter().cloned()).collect(),
        id,
        status: Some(mark),
        group: Some(title.clone()),
        ..pattern.clone()
    };
    let mut opened: Vec<DrawnNode> = children
        .iter()
        .map(|act| {
            let one = ctx.act(*act);
            let label = events::label(&ctx, *act);
            let note = (one.tries > 1).then(|| format!("{} attempts", one.tries));
            node(label.clone(), label, NodeMark { status: status_of(node_rows::word(one)), note })
        })
        .collect();
    if !rest.is_empty() {
        let mut words: Vec<NodeStatus> = rest.iter().map(|act| node_rows::word(ctx.act(*act))).collect();
        words.dedup();
        let status = match words.as_slice() {
            [only] => status_of(*only),
            _ => Status::Planned,
        };
        let more =
            node(format!("{id}…"), format!("and {} more", rest.len()), NodeMark { status, note: None });
        opened.push(DrawnNode { is_stack: true, ..more });
    }
    let ids: Vec<String> = opened.iter().map(|node| node.id.clone()).collect();
    drawing.nodes.splice(at..=at, opened);
    drawing.edges = std::mem::take(&mut drawing.edges)
        .into_iter()
        .flat_map(|edge| {
            let count = if edge.from == *id || edge.to == *id { ids.len() } else { 1 };
            (0..count).map(move |n| (edge.clone(), n))
        })
        .map(|(mut edge, n)| {
            if edge.from == *id || edge.to == *id {
                edge.taken = edge.taken.map(|taken| taken.min(1));
            }
            for end in [&mut edge.from, &mut edge.to] {
                if *end == *id {
                    end.clone_from(&ids[n]);
                }
            }
            edge
        })
        .collect();
    true
}

/// Inserts the drawing of a workflow between the node that calls it and the successors of that node.
/// Ids of inserted nodes are prefixed with the id of the node: `billing/check`. Returns false if the
/// drawing has no such node.
pub fn open_workflow(drawing: &mut Drawing, node: &str, workflow: &str, inside: Drawing) -> bool {
    let Some(at) = drawing.nodes.iter().position(|one| one.id == node) else { return false };
    let inner_id = |id: &str| format!("{node}/{id}");
    let title = format!("{node}: {workflow}");
    let entered: BTreeSet<&str> = inside.edges.iter().map(|edge| edge.to.as_str()).collect();
    let left: BTreeSet<&str> = inside.edges.iter().map(|edge| edge.from.as_str()).collect();
    let entries: Vec<String> = inside
        .nodes
        .iter()
        .map(|one| one.id.as_str())
        .filter(|id| !entered.contains(id))
        .map(inner_id)
        .collect();
    let ends: Vec<String> = inside
        .nodes
        .iter()
        .map(|one| one.id.as_str())
        .filter(|id| !left.contains(id))
        .map(inner_id)
        .collect();
    let is_run = drawing.nodes[at].status.is_some();
    for edge in &mut drawing.edges {
        if let Some(end) = ends.first().filter(|_| edge.from == node && edge.kind == EdgeKind::Flow) {
            edge.from.clone_from(end);
        }
    }
    let within = inside.nodes.into_iter().map(|one| DrawnNode {
        id: inner_id(&one.id),
        group: Some(title.clone()),
        ..one
    });
    let within: Vec<DrawnNode> = within.collect();
    let behind = drawing.nodes.split_off(at + 1);
    drawing.nodes.extend(within.into_iter().chain(behind));
    drawing.nodes[at].shape = Shape::Subworkflow;
    drawing.edges.extend(entries.into_iter().map(|entry| DrawnEdge {
        from: node.to_owned(),
        to: entry,
        label: None,
        kind: EdgeKind::Flow,
        taken: is_run.then_some(1),
    }));
    drawing.edges.extend(inside.edges.into_iter().map(|edge| DrawnEdge {
        from: inner_id(&edge.from),
        to: inner_id(&edge.to),
        ..edge
    }));
    true
}
