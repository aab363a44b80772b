//! A plan as a drawing: one node per plan node, with readable labels, a start and a finish.
//!
//! Place in the data flow: `Plan (+ DrawnProgress) ──draw──▶ Drawing`, which `sinew-diagram`
//! renders as Mermaid, SVG, PNG, DOT or text. It knows operations, not dialects; some labels come
//! from the data that a dialect stores in a node.

mod opened;
mod run;
mod sockets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::Value;
use sinew_diagram::{Direction, Drawing, DrawingCaption, DrawnEdge, DrawnNode, EdgeKind, NodeColor, Shape};
use sinew_plan::{ExitCondition, NodeIndex, NodeOperation, Plan, PlanNode};

pub use opened::{open_children, open_workflow};
pub use run::{DrawnProgress, taken_edges};

use self::sockets::SocketLooks;

use sinew_documents::words;

use crate::execution_status::status_of;
use crate::record::Record;

/// Draws a plan, with its progress if given.
pub fn draw(plan: &Plan, direction: Direction, run: Option<&DrawnProgress>) -> Drawing {
    let mut sketch = DrawingBuilder { plan, run, drawing: Drawing { direction, ..Drawing::default() } };
    sketch.nodes();
    sketch.flow();
    sketch.children();
    sketch.end();
    sketch.drawing
}

/// Returns the caption of an execution's drawing: workflow, status, id, start, end and duration.
pub fn caption(record: &Record) -> DrawingCaption {
    let state = record.execution.state();
    let status = status_of(state);
    let duration = words::duration(record.at().saturating_sub(state.started_at));
    let (began, at) = (words::instant(state.started_at), words::instant(record.at()));
    let times = if status.is_terminal() {
        format!("{began} to {at}, {duration}")
    } else {
        format!("since {began}, as of {at}")
    };
    DrawingCaption {
        title: format!("{}: {}", record.plan().name, words::status_word(status)),
        lines: vec![format!("execution {}", record.id()), times],
    }
}

struct DrawingBuilder<'a> {
    plan: &'a Plan,
    run: Option<&'a DrawnProgress>,
    drawing: Drawing,
}

impl DrawingBuilder<'_> {
    /// Adds a start, unless the plan has one, then all nodes in file order.
    fn nodes(&mut self) {
        let plan = self.plan;
        if plan.entry.is_empty() || plan.entry.iter().any(|ix| plan.node(*ix).op != NodeOperation::Source) {
            let start = free_id(plan, "Start");
            for ix in &plan.entry {
                let taken = self.run.map(|run| run.begun(*ix));
                self.edge(&start, &plan.node(*ix).id, None, EdgeKind::Flow, taken);
            }
            self.terminal(start, "Start");
        }
        let shared = shared_agents(plan);
        let many: BTreeSet<NodeIndex> = plan
            .nodes
            .iter()
            .filter_map(|node| match &node.op {
                NodeOperation::Map { body } => Some(*body),
                _ => None,
            })
            .collect();
        let parting: BTreeSet<NodeIndex> = plan
            .edges
            .iter()
            .filter(|edge| !edge.attach && edge.label.is_some())
            .map(|edge| edge.from)
            .collect();
        let mut looks = SocketLooks::default();
        for (ix, node) in plan.nodes.iter().enumerate() {
            let status = self.run.and_then(|run| run.mark(ix as NodeIndex));
            let (title, lines) = if node.quiet { quiet_words(node) } else { node_words(node, &shared) };
            let shape = shape(node, parting.contains(&(ix as NodeIndex)));
            self.drawing.nodes.push(DrawnNode {
                id: node.id.clone(),
                shape,
                title,
                lines,
                status,
                group: None,
                color: node.extra.pointer("/look/color").and_then(Value::as_str).and_then(NodeColor::parse),
                is_stack: many.contains(&(ix as NodeIndex)),
                is_quiet: node.quiet,
                sockets: looks.of(plan, node),
            });
        }
    }

    /// Adds the edges of the plan.
    fn flow(&mut self) {
        let plan = self.plan;
        let back = back_edges(plan);
        for (ix, edge) in plan.edges.iter().enumerate() {
            let kind = match () {
                () if edge.attach => EdgeKind::Attach,
                () if back.contains(&ix) => EdgeKind::Back,
                () => EdgeKind::Flow,
            };
            let taken = self.run.filter(|_| !edge.attach).map(|run| run.taken(ix));
            let (from, to) = (&plan.node(edge.from).id, &plan.node(edge.to).id);
            self.edge(from, to, edge.label.clone(), kind, taken);
        }
    }

    /// Adds edges to the bodies of maps, loops and forks.
    fn children(&mut self) {
        let plan = self.plan;
        for (ix, node) in plan.nodes.iter().enumerate() {
            let ix = ix as NodeIndex;
            let taken = |body: NodeIndex| self.run.map(|run| run.children(ix, body));
            let mut edges = Vec::new();
            match &node.op {
                NodeOperation::Map { body } => edges.push((*body, Some("each item".to_owned()))),
                NodeOperation::Loop { body } => edges.push((*body, Some("repeat".to_owned()))),
                NodeOperation::Fork { bodies } => edges.extend(bodies.iter().enumerate().map(|(n, body)| {
                    let key = node.extra.pointer(&format!("/branches/{n}/output_key"));
                    (*body, key.and_then(Value::as_str).map(str::to_owned))
                })),
                _ => {}
            }
            let edges: Vec<_> = edges.into_iter().map(|(body, label)| (body, label, taken(body))).collect();
            for (body, label, taken) in edges {
                self.edge(&node.id, &plan.node(body).id, label, EdgeKind::Flow, taken);
                if matches!(node.op, NodeOperation::Loop { .. }) {
                    self.edge(&plan.node(body).id, &node.id, None, EdgeKind::Back, taken);
                }
            }
        }
    }

    /// Adds the finish, after all nodes without successor, and the exit handlers.
    fn end(&mut self) {
        let plan = self.plan;
        let finish = free_id(plan, "Finish");
        let leads_on: BTreeSet<NodeIndex> =
            plan.edges.iter().filter(|edge| !edge.attach).map(|edge| edge.from).collect();
        let exits: BTreeSet<NodeIndex> = plan.exits.iter().map(|exit| exit.node).collect();
        for (ix, node) in plan.nodes.iter().enumerate() {
            let ix = ix as NodeIndex;
            if !node.inner && !node.attached && !leads_on.contains(&ix) && !exits.contains(&ix) {
                let taken = self.run.map(|run| run.ended(ix));
                self.edge(&node.id, &finish, None, EdgeKind::Flow, taken);
            }
        }
        for exit in &plan.exits {
            let when = match exit.on {
                ExitCondition::Always => "always",
                ExitCondition::Success => "on success",
                ExitCondition::Failure => "on failure",
                ExitCondition::Cancel => "on cancel",
            };
            let taken = self.run.map(|run| run.begun(exit.node));
            self.edge(&finish, &plan.node(exit.node).id, Some(when.to_owned()), EdgeKind::Flow, taken);
        }
        self.terminal(finish, "Finish");
        if let Some(node) = self.drawing.nodes.last_mut() {
            node.status = self.run.and_then(DrawnProgress::outcome);
        }
    }

    fn terminal(&mut self, id: String, title: &str) {
        self.drawing.nodes.push(DrawnNode {
            id,
            shape: Shape::Terminal,
            title: title.to_owned(),
            lines: Vec::new(),
            status: None,
            group: None,
            color: None,
            is_stack: false,
            is_quiet: false,
            sockets: Vec::new(),
        });
    }

    fn edge(&mut self, from: &str, to: &str, label: Option<String>, kind: EdgeKind, taken: Option<u32>) {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.drawing.edges.push(DrawnEdge { from, to, label, kind, taken });
    }
}

/// Returns the shape of a node. `parts` is true if it has labelled outgoing edges.
fn shape(node: &PlanNode, parts: bool) -> Shape {
    let own = node.extra.pointer("/look/shape").and_then(Value::as_str);
    match own.filter(|_| matches!(node.op, NodeOperation::Pure | NodeOperation::Agent)) {
        Some("diamond") => return Shape::Decision,
        Some("circle") => return Shape::Join,
        Some("hexagon") => return Shape::Fork,
        Some("parallelogram") => return Shape::Loop,
        Some("pill") => return Shape::Terminal,
        Some("rounded") if !node.attached => return Shape::Task,
        _ => {}
    }
    match &node.op {
        NodeOperation::Source => Shape::Terminal,
        NodeOperation::Agent if node.attached => Shape::Box,
        NodeOperation::Agent => Shape::Task,
        NodeOperation::Human => Shape::Human,
        NodeOperation::Delay => Shape::Delay,
        NodeOperation::Workflow => Shape::Subworkflow,
        NodeOperation::Map { .. } => Shape::Map,
        NodeOperation::Loop { .. } => Shape::Loop,
        NodeOperation::Fork { .. } => Shape::Fork,
        NodeOperation::Pure => {
            let kind = node.kind.to_ascii_lowercase();
            if kind.contains("join") || kind.contains("merge") {
                Shape::Join
            } else if parts || matches!(kind.as_str(), "conditional" | "switch" | "if") {
                Shape::Decision
            } else {
                Shape::Box
            }
        }
    }
}

/// Returns the title and the other lines of a node.
fn node_words(node: &PlanNode, shared: &BTreeSet<&str>) -> (String, Vec<String>) {
    let name = node.label.clone().unwrap_or_else(|| heading(&node.id));
    let text = |key: &str| node.extra.get(key).and_then(Value::as_str);
    let number = |key: &str| node.extra.get(key).and_then(Value::as_u64);
    let title = match (&node.op, node.kind.as_str()) {
        (NodeOperation::Source, kind) => {
            return (node.label.clone().unwrap_or_else(|| heading(kind)), Vec::new());
        }
        (_, "conditional") => "Decision".to_owned(),
        (_, kind) => heading(kind),
    };
    let mut lines = Vec::new();
    // The icon of an editor is shown by name.
    let look = |key: &str| node.extra.pointer(&format!("/look/{key}")).and_then(Value::as_str);
    if let (Some(category), Some(icon)) = (look("category"), look("icon")) {
        lines.push(format!("{category} · {icon}"));
    }
    match &node.agent {
        Some(agent) => {
            lines.push(agent.clone());
            // Otherwise nodes of the same agent would look identical.
            if shared.contains(agent.as_str()) && name != *agent {
                lines.push(name);
            }
        }
        None => lines.push(name),
    }
    match &node.op {
        NodeOperation::Pure => {
            if let Some(condition) = text("condition") {
                lines.push(format!("{condition}?"));
            }
            match (text("strategy"), number("n"), node.extra.get("wait_for").and_then(Value::as_array)) {
                (Some("n_of_m"), Some(n), Some(of)) => lines.push(format!("{n} of {}", of.len())),
                (Some(strategy), ..) => lines.push(strategy.to_owned()),
                (None, ..) => {}
            }
        }
        NodeOperation::Map { .. } => lines.extend(text("items").map(str::to_owned)),
        NodeOperation::Loop { .. } => {
            lines.extend(text("condition").map(|condition| format!("while {condition}")));
            lines.extend(number("max_iterations").map(|most| match most {
                1 => "at most once".to_owned(),
                most => format!("at most {most} times"),
            }));
        }
        _ => {}
    }
    lines.extend(text("when").map(|when| format!("if {when}")));
    (title, lines)
}

/// Returns the name of a quiet node, and its kind for the tooltip.
fn quiet_words(node: &PlanNode) -> (String, Vec<String>) {
    (node.label.clone().unwrap_or_else(|| node.id.clone()), vec![heading(&node.kind)])
}

/// Formats `check_risk` as `Check Risk`; a name with capitals is not changed.
fn heading(id: &str) -> String {
    if id.chars().any(char::is_uppercase) {
        return id.to_owned();
    }
    let words = id.split(['_', '-', ' ']).filter(|word| !word.is_empty()).map(|word| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>())
    });
    words.flatten().collect::<Vec<_>>().join(" ")
}

/// Returns agents that several nodes use.
fn shared_agents(plan: &Plan) -> BTreeSet<&str> {
    let mut seen = BTreeSet::new();
    plan.nodes.iter().filter_map(|node| node.agent.as_deref()).filter(|agent| !seen.insert(*agent)).collect()
}

/// Appends underscores to an id that a node of the plan already has.
fn free_id(plan: &Plan, id: &str) -> String {
    let mut id = id.to_owned();
    while plan.find(&id).is_some() {
        id.push('_');
    }
    id
}

/// Returns edges that close a cycle, found by a traversal in file order.
fn back_edges(plan: &Plan) -> BTreeSet<usize> {
    let mut out = vec![Vec::new(); plan.nodes.len()];
    for (ix, edge) in plan.edges.iter().enumerate().filter(|(_, edge)| !edge.attach) {
        out[edge.from as usize].push(ix);
    }
    let mut back = BTreeSet::new();
    // 0 = not visited, 1 = on the current path, 2 = done.
    let mut colour = vec![0_u8; plan.nodes.len()];
    let roots = plan.entry.iter().copied().chain(0..plan.nodes.len() as NodeIndex);
    for root in roots {
        if colour[root as usize] != 0 {
            continue;
        }
        colour[root as usize] = 1;
        let mut path = vec![(root as usize, 0)];
        while let Some((node, next)) = path.last_mut() {
            let Some(ix) = out[*node].get(*next) else {
                colour[*node] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            let to = plan.edges[*ix].to as usize;
            match colour[to] {
                0 => {
                    colour[to] = 1;
                    path.push((to, 0));
                }
                1 => {
                    back.insert(*ix);
                }
                _ => {}
            }
        }
    }
    back
}
