//! DOT text for Graphviz.

use std::fmt::Write;

use crate::model::{Direction, Drawing, DrawnEdge, DrawnNode, EdgeKind, Graph, Shape};
use crate::names::{is_hidden, one_line};

/// Returns the drawing as DOT source.
#[must_use]
pub fn dot(drawing: &Drawing) -> String {
    let graph = Graph::of(drawing);
    let direction = match drawing.direction {
        Direction::TopDown => "TB",
        Direction::LeftRight => "LR",
    };
    let mut out = format!(
        "digraph workflow {{\n    rankdir={direction};\n    node [fontname=\"DejaVu Sans\", fontsize=11];\n    edge [fontname=\"DejaVu Sans\", fontsize=10];\n"
    );
    if let Some(caption) = &drawing.caption {
        let lines: Vec<String> = caption.texts().map(|line| escape(&line)).collect();
        let _ = writeln!(
            out,
            "    label=\"{}\"; labelloc=t; labeljust=l; fontname=\"DejaVu Sans\";",
            lines.join("\\l") + "\\l"
        );
    }
    for node in &graph.nodes {
        write_node(&mut out, node);
    }
    for (number, (title, members)) in graph.groups.iter().enumerate() {
        let _ = writeln!(
            out,
            "    subgraph cluster_{number} {{\n        label=\"{}\";",
            escape(&one_line(title))
        );
        for member in members {
            let _ = writeln!(out, "        {};", quoted(&graph.nodes[*member].id));
        }
        out.push_str("    }\n");
    }
    for (from, to, edge) in &graph.edges {
        write_edge(&mut out, &graph.nodes[*from].id, &graph.nodes[*to].id, edge);
    }
    out.push_str("}\n");
    out
}

fn write_node(out: &mut String, node: &DrawnNode) {
    let mut lines = vec![node.title.clone()];
    lines.extend(node.drawn_lines().iter().cloned());
    lines.extend(node.id_line().map(str::to_owned));
    lines.extend(node.status.as_ref().map(|mark| mark.line(false)));
    let label: Vec<String> = lines
        .iter()
        .flat_map(|l| l.lines())
        .map(one_line)
        .filter(|l| !l.is_empty())
        .map(|l| escape(&l))
        .collect();
    let _ = write!(out, "    {} [label=\"{}\", {}", quoted(&node.id), label.join("\\n"), shape(node.shape));
    let look = node.status.as_ref().map(|mark| mark.status.look());
    let mut styles = Vec::new();
    if matches!(node.shape, Shape::Task | Shape::Terminal) {
        styles.push("rounded");
    }
    if let Some(look) = &look {
        styles.push("filled");
        if look.dashed {
            styles.push("dashed");
        }
    }
    if !styles.is_empty() {
        let _ = write!(out, ", style=\"{}\"", styles.join(","));
    }
    if let Some(look) = look {
        let _ = write!(
            out,
            ", fillcolor=\"{}\", color=\"{}\", fontcolor=\"{}\", penwidth={}",
            look.fill, look.stroke, look.text, look.width
        );
    }
    if let (Some(color), None) = (node.color, &node.status) {
        let _ = write!(out, ", color=\"{color}\", penwidth=2");
    }
    out.push_str("];\n");
}

fn write_edge(out: &mut String, from: &str, to: &str, edge: &DrawnEdge) {
    let mut attributes = Vec::new();
    let label = escape(&one_line(&edge.text(false)));
    if !label.is_empty() {
        attributes.push(format!("label=\"{label}\""));
    }
    match edge.kind {
        EdgeKind::Flow => {}
        EdgeKind::Attach => attributes.push("style=dotted".to_owned()),
        EdgeKind::Back => attributes.push("style=dashed, constraint=false".to_owned()),
    }
    match edge.taken {
        Some(0) => attributes.push("color=\"#afb8c1\"".to_owned()),
        Some(_) => attributes.push("penwidth=2.5".to_owned()),
        None => {}
    }
    let _ = write!(out, "    {} -> {}", quoted(from), quoted(to));
    let _ = if attributes.is_empty() {
        writeln!(out, ";")
    } else {
        writeln!(out, " [{}];", attributes.join(", "))
    };
}

const fn shape(shape: Shape) -> &'static str {
    match shape {
        Shape::Terminal | Shape::Task | Shape::Box | Shape::Map => "shape=box",
        Shape::Decision => "shape=diamond",
        Shape::Join => "shape=circle",
        Shape::Fork => "shape=hexagon",
        Shape::Loop => "shape=parallelogram",
        Shape::Human => "shape=trapezium",
        Shape::Subworkflow => "shape=box, peripheries=2",
        Shape::Delay => "shape=cds",
    }
}

/// Quotes an id. Escapes unprintable characters instead of removing them, so that ids remain distinct.
fn quoted(id: &str) -> String {
    let mut out = String::from("\"");
    let mut previous = None;
    for c in id.chars() {
        if is_hidden(previous.replace(c), c) {
            let _ = write!(out, "\\\\u{{{:x}}}", u32::from(c));
        } else {
            out.push_str(&escape(c.encode_utf8(&mut [0; 4])));
        }
    }
    out.push('"');
    out
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
