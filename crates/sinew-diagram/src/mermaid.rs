//! Mermaid text, for workflow cards, pull requests and documents.

use std::fmt::Write;

use crate::model::{Direction, Drawing, DrawnNode, EdgeKind, Graph, Shape, Status};
use crate::names::{is_bare_label, mermaid_id, mermaid_label, one_line};

/// Returns the drawing as Mermaid source, safe for any names (spec: Visualization Extension).
#[must_use]
pub fn mermaid(drawing: &Drawing) -> String {
    let graph = Graph::of(drawing);
    let direction = match drawing.direction {
        Direction::TopDown => "TD",
        Direction::LeftRight => "LR",
    };
    let mut out = String::new();
    if let Some(caption) = &drawing.caption {
        let title: Vec<String> = caption.texts().map(|line| mermaid_label(&line)).collect();
        let _ = writeln!(out, "---\ntitle: \"{}\"\n---", title.join(" · ").replace('\\', "\\\\"));
    }
    let _ = writeln!(out, "graph {direction}");
    write(&mut out, &graph);
    out
}

fn write(out: &mut String, graph: &Graph<'_>) {
    // A group is written at its first member, and contains the other members.
    let mut groups = graph.groups.iter().enumerate().peekable();
    for (at, node) in graph.nodes.iter().enumerate() {
        match groups.peek() {
            Some((number, (title, members))) if members[0] == at => {
                let title = match mermaid_label(title) {
                    empty if empty.is_empty() => " ".to_owned(),
                    title => title,
                };
                let _ = writeln!(out, "    subgraph group__{number}[\"{title}\"]");
                for member in members {
                    let _ = writeln!(out, "        {}", node_text(&graph.nodes[*member]));
                }
                out.push_str("    end\n");
                groups.next();
            }
            _ if node.group.is_some() => {}
            _ => {
                let _ = writeln!(out, "    {}", node_text(node));
            }
        }
    }
    for (from, to, edge) in &graph.edges {
        let (from, to) = (mermaid_id(&graph.nodes[*from].id), mermaid_id(&graph.nodes[*to].id));
        let text = one_line(&edge.text(false));
        let label = if is_bare_label(&text) { text } else { mermaid_label(&text) };
        let _ = match (edge.kind, label.as_str()) {
            (EdgeKind::Attach, "") => writeln!(out, "    {from} -.-> {to}"),
            (_, "") => writeln!(out, "    {from} --> {to}"),
            (EdgeKind::Attach, label) => writeln!(out, "    {from} -. {} .-> {to}", quoted(label)),
            (_, label) => writeln!(out, "    {from} -- {} --> {to}", quoted(label)),
        };
    }
    write_styles(out, graph);
}

fn quoted(label: &str) -> String {
    if is_bare_label(label) { label.to_owned() } else { format!("\"{label}\"") }
}

fn node_text(node: &DrawnNode) -> String {
    let id = mermaid_id(&node.id);
    // Write Start and Finish without quotes, as people do.
    if node.shape == Shape::Terminal
        && node.lines.is_empty()
        && node.status.is_none()
        && is_bare_label(&node.title)
    {
        return format!("{id}([{}])", node.title);
    }
    let (open, close) = match node.shape {
        Shape::Terminal => ("([", "])"),
        Shape::Task => ("(", ")"),
        Shape::Box => ("[", "]"),
        Shape::Decision => ("{", "}"),
        Shape::Join => ("((", "))"),
        Shape::Fork => ("{{", "}}"),
        Shape::Loop => ("[/", "/]"),
        Shape::Map | Shape::Subworkflow => ("[[", "]]"),
        Shape::Human => ("[/", "\\]"),
        Shape::Delay => (">", "]"),
    };
    let title = match (mermaid_label(&node.title), node.shape) {
        (title, _) if title.is_empty() => None,
        (title, Shape::Terminal) => Some(title),
        (title, _) => Some(format!("<b>{title}</b>")),
    };
    let mut lines: Vec<String> = title.into_iter().collect();
    lines.extend(node.drawn_lines().iter().map(|line| mermaid_label(line)).filter(|line| !line.is_empty()));
    lines.extend(node.status.as_ref().map(|mark| mermaid_label(&mark.line(false))));
    if lines.is_empty() {
        lines.push(" ".to_owned());
    }
    format!("{id}{open}\"{}\"{close}", lines.join("<br/>"))
}

/// Writes colours of states and taken edges, only if an execution is overlaid.
fn write_styles(out: &mut String, graph: &Graph<'_>) {
    for status in Status::ALL {
        let members: Vec<String> = graph
            .nodes
            .iter()
            .filter(|node| node.status.as_ref().is_some_and(|mark| mark.status == status))
            .map(|node| mermaid_id(&node.id))
            .collect();
        if members.is_empty() {
            continue;
        }
        let look = status.look();
        let dash = if look.dashed { ",stroke-dasharray:5 4" } else { "" };
        let _ = writeln!(
            out,
            "    classDef {} fill:{},stroke:{},color:{},stroke-width:{}px{dash}",
            look.word, look.fill, look.stroke, look.text, look.width
        );
        let _ = writeln!(out, "    class {} {}", members.join(","), look.word);
    }
    for node in &graph.nodes {
        if let (Some(color), None) = (node.color, &node.status) {
            let _ = writeln!(out, "    style {} stroke:{color},stroke-width:2px", mermaid_id(&node.id));
        }
    }
    for (taken, style) in
        [(false, "stroke:#afb8c1,stroke-dasharray:4 4"), (true, "stroke:#1f2328,stroke-width:2.5px")]
    {
        let numbers: Vec<String> = graph
            .edges
            .iter()
            .enumerate()
            .filter(|(_, (_, _, edge))| edge.taken.map(|n| n > 0) == Some(taken))
            .map(|(number, _)| number.to_string())
            .collect();
        if !numbers.is_empty() {
            let _ = writeln!(out, "    linkStyle {} {style}", numbers.join(","));
        }
    }
}
