//! Shared drawings of tests.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use crate::{Direction, Drawing, DrawnEdge, DrawnNode, EdgeKind, NodeMark, Shape, Status};

pub(crate) fn node(id: &str, shape: Shape, title: &str, lines: &[&str]) -> DrawnNode {
    DrawnNode {
        id: id.to_owned(),
        shape,
        title: title.to_owned(),
        lines: lines.iter().map(|l| (*l).to_owned()).collect(),
        status: None,
        group: None,
        color: None,
        is_stack: false,
        is_quiet: false,
        sockets: Vec::new(),
    }
}

pub(crate) fn edge(from: &str, to: &str, label: &str) -> DrawnEdge {
    DrawnEdge {
        from: from.to_owned(),
        to: to.to_owned(),
        label: (!label.is_empty()).then(|| label.to_owned()),
        kind: EdgeKind::Flow,
        taken: None,
    }
}

/// Returns the graph of the recorded case `card-viz-mermaid-spec`.
pub(crate) fn card() -> Drawing {
    Drawing {
        direction: Direction::TopDown,
        caption: None,
        nodes: vec![
            node("Start", Shape::Terminal, "Start", &[]),
            node("a", Shape::Task, "Agent", &["A"]),
            node("c", Shape::Decision, "Decision", &["C", "True?"]),
            node("h", Shape::Task, "Agent", &["H"]),
            node("f", Shape::Fork, "Fork", &["F"]),
            node("b1", Shape::Task, "Agent", &["B"]),
            node("j", Shape::Join, "Join", &["J", "all"]),
            node("Finish", Shape::Terminal, "Finish", &[]),
        ],
        edges: vec![
            edge("Start", "a", ""),
            edge("a", "c", ""),
            edge("c", "h", "True"),
            edge("h", "f", ""),
            edge("f", "b1", "k"),
            edge("b1", "j", ""),
            edge("j", "Finish", ""),
        ],
    }
}

/// Returns branches that never join, with labels, a wide script, and a loop.
pub(crate) fn ways() -> Drawing {
    Drawing {
        direction: Direction::TopDown,
        caption: None,
        nodes: vec![
            node("Start", Shape::Terminal, "Start", &[]),
            node("route", Shape::Decision, "Switch", &["amount > 100"]),
            node("large", Shape::Human, "Human", &["Approval"]),
            node("pay", Shape::Task, "Agent", &["Cashier"]),
            node("tell", Shape::Task, "Agent", &["Mailer"]),
            node("small", Shape::Task, "Agent", &["出納係"]),
            node("none", Shape::Loop, "Loop", &["Wait"]),
        ],
        edges: vec![
            edge("Start", "route", ""),
            edge("route", "large", "large sums of more than a thousand"),
            edge("large", "pay", "approved"),
            edge("large", "tell", ""),
            edge("route", "small", "small"),
            edge("route", "none", ""),
            edge("none", "none", "not yet"),
        ],
    }
}

/// Returns two running branches that join, and a loop.
pub(crate) fn branches() -> Drawing {
    let mut drawing = Drawing {
        direction: Direction::TopDown,
        caption: None,
        nodes: vec![
            node("Start", Shape::Terminal, "Start", &[]),
            node("fan", Shape::Fork, "Fork", &["Fan out"]),
            node("left", Shape::Task, "Agent", &["Billing"]),
            node("right", Shape::Map, "Map", &["Each order"]),
            node("meet", Shape::Join, "Join", &["all"]),
            node("again", Shape::Loop, "Loop", &["Refine"]),
            node("Finish", Shape::Terminal, "Finish", &[]),
        ],
        edges: vec![
            edge("Start", "fan", ""),
            edge("fan", "left", "bill"),
            edge("fan", "right", "orders"),
            edge("left", "meet", ""),
            edge("right", "meet", ""),
            edge("meet", "again", ""),
            edge("again", "again", "not yet"),
            edge("again", "Finish", ""),
        ],
    };
    drawing.nodes[2].status = Some(NodeMark { status: Status::Running, note: Some("12 s".to_owned()) });
    drawing.nodes[3].status =
        Some(NodeMark { status: Status::Failed, note: Some("387 ok, 4 failed".to_owned()) });
    drawing
}

/// Returns all shapes, states and kinds of edges, a group, a self-loop and hostile names.
pub(crate) fn everything() -> Drawing {
    let mut nodes = vec![
        node("Start", Shape::Terminal, "Start", &[]),
        node("check_risk", Shape::Task, "Agent", &["RiskEvaluator"]),
        node(
            "decide",
            Shape::Decision,
            "Decision",
            &["Decide", "{{check_risk.output.score}} > 0.8 and amount < 1000"],
        ),
        node("per item", Shape::Map, "Map", &["EachOrder", "{{input.orders}}"]),
        node("fan", Shape::Fork, "Fork", &["Fan out"]),
        node(
            "left",
            Shape::Task,
            "Agent",
            &["A-very-long-agent-name-without-any-space-that-has-to-break-somewhere"],
        ),
        node("right", Shape::Subworkflow, "Workflow", &["Enrich address"]),
        node("meet", Shape::Join, "Join", &["Meet", "all"]),
        node("again", Shape::Loop, "Loop", &["Refine", "until good"]),
        node("ask", Shape::Human, "Human", &["Ms \"Q\" <b>approves</b> & signs; 100%%"]),
        node("pause", Shape::Delay, "Delay", &["5 minutes"]),
        node("tool", Shape::Box, "Tool", &["search"]),
        node("end", Shape::Terminal, "Finish", &[]),
    ];
    let states = [
        (Status::Succeeded, None),
        (Status::Succeeded, Some("2 attempts")),
        (Status::Succeeded, None),
        (Status::Failed, Some("387 ok, 4 failed")),
        (Status::Succeeded, None),
        (Status::Running, Some("12 s")),
        (Status::Cancelled, None),
        (Status::Planned, None),
        (Status::Running, Some("×3")),
        (Status::Waiting, Some("2 h")),
        (Status::Skipped, None),
    ];
    for (node, (status, note)) in nodes.iter_mut().zip(states) {
        node.status = Some(NodeMark { status, note: note.map(str::to_owned) });
    }
    for at in [5, 6] {
        nodes[at].group = Some("Both at once".to_owned());
    }
    let mut edges = vec![
        edge("Start", "check_risk", ""),
        edge("check_risk", "decide", ""),
        edge("decide", "per item", "True"),
        edge("decide", "fan", "False"),
        edge("fan", "left", "left_key"),
        edge("fan", "right", "right_key"),
        edge("left", "meet", ""),
        edge("right", "meet", ""),
        edge("meet", "again", ""),
        edge("again", "ask", "done"),
        edge("per item", "ask", ""),
        edge("ask", "pause", "wait"),
        edge("pause", "end", ""),
        edge("tool", "left", "uses"),
        edge("ask", "check_risk", "rejected: try again"),
        edge("again", "again", "next"),
    ];
    for edge in edges.iter_mut().take(6) {
        edge.taken = Some(1);
    }
    edges[11].taken = Some(0);
    edges[13].kind = EdgeKind::Attach;
    edges[14].kind = EdgeKind::Back;
    edges[14].taken = Some(3);
    Drawing { nodes, edges, ..Drawing::default() }
}

/// Returns `count` nodes: a sequence of forks of ten that join.
pub(crate) fn large(count: usize) -> Drawing {
    let mut drawing = Drawing::default();
    let mut last = None;
    for number in 0..count {
        let id = format!("n{number}");
        let place = number % 12;
        let shape = match place {
            0 => Shape::Fork,
            11 => Shape::Join,
            _ => Shape::Task,
        };
        drawing.nodes.push(node(&id, shape, "Agent", &[&format!("Worker {number}")]));
        match place {
            0 => drawing.edges.extend(last.map(|l: usize| edge(&format!("n{l}"), &id, ""))),
            11 => {
                for from in number - 10..number {
                    drawing.edges.push(edge(&format!("n{from}"), &id, ""));
                }
                last = Some(number);
            }
            _ => drawing.edges.push(edge(&format!("n{}", number - place), &id, "k")),
        }
    }
    drawing
}
