//! Text for a terminal: boxes for small trees, else an indented list.

use unicode_width::UnicodeWidthStr;

use crate::boxes::{TextBox, draw_boxes};
use crate::model::{Direction, DrawError, Drawing, DrawnNode, EdgeKind, Graph, Shape};
use crate::names::{one_line, truncate_columns};
use crate::tree;

/// Columns of a drawing if the width of the terminal is unknown.
const WIDTH: usize = 120;
/// Maximum nodes drawn as boxes; more would span pages.
const MAX_BOXES: usize = 30;
/// Maximum columns of a line in a box.
const MAX_LINE: usize = 36;

/// Draws for a terminal of 120 columns; `ascii` restricts lines and icons to ASCII.
pub fn terminal(drawing: &Drawing, ascii: bool) -> Result<String, DrawError> {
    terminal_within(drawing, ascii, WIDTH)
}

/// Draws for a terminal of `columns`: boxes if they fit, else an indented list.
pub fn terminal_within(drawing: &Drawing, ascii: bool, columns: usize) -> Result<String, DrawError> {
    let graph = Graph::of(drawing);
    if graph.nodes.is_empty() {
        return Ok(String::new());
    }
    let boxes = if is_plain(&graph) { boxes(drawing.direction, &graph, ascii, columns) } else { None };
    let body = boxes.unwrap_or_else(|| tree::tree(&graph, ascii));
    let Some(caption) = &drawing.caption else { return Ok(body) };
    let head: Vec<String> = caption.texts().map(|line| truncate_columns(&line, columns.max(20))).collect();
    Ok(format!("{}\n\n{body}", head.join("\n")))
}

/// Returns whether boxes can represent the graph: no joins, back edges or groups, and few nodes.
fn is_plain(graph: &Graph<'_>) -> bool {
    let mut entered = vec![false; graph.nodes.len()];
    graph.nodes.len() <= MAX_BOXES
        && graph.groups.is_empty()
        && graph.edges.iter().filter(|(from, to, _)| from != to).all(|(from, to, edge)| {
            edge.kind == EdgeKind::Flow && from < to && !std::mem::replace(&mut entered[*to], true)
        })
}

/// Draws the graph as boxes; `None` if they are too wide.
fn boxes(direction: Direction, graph: &Graph<'_>, ascii: bool, columns: usize) -> Option<String> {
    let text_box = |number: usize| {
        // An edge from a node to itself does not fit outside the box.
        let again = graph.edges.iter().filter(|(from, to, _)| *from == number && *to == number);
        let again = again.map(|(_, _, edge)| {
            let text = one_line(&edge.text(ascii));
            truncate_columns(format!("{} {text}", if ascii { "again:" } else { "↺" }).trim_end(), MAX_LINE)
        });
        let next = graph.edges.iter().filter(|(from, to, _)| *from == number && from != to);
        TextBox {
            lines: node_lines(&graph.nodes[number], ascii).into_iter().chain(again).collect(),
            // Characters can represent few shapes; the title identifies the others.
            is_round: matches!(graph.nodes[number].shape, Shape::Terminal | Shape::Task),
            next: next
                .map(|(_, to, edge)| (*to, truncate_columns(&one_line(&edge.text(ascii)), MAX_LINE)))
                .collect(),
        }
    };
    let boxes: Vec<TextBox> = (0..graph.nodes.len()).map(text_box).collect();
    let lines = draw_boxes(&boxes, direction, ascii);
    lines.iter().all(|line| line.width() <= columns).then(|| lines.join("\n") + "\n")
}

/// Returns the lines of a node's box: a sign of its shape and the title, its text, its state.
fn node_lines(node: &DrawnNode, ascii: bool) -> Vec<String> {
    let title = one_line(&node.title);
    let mut lines = vec![match (sign(node.shape), ascii) {
        (Some(sign), false) => format!("{sign} {title}"),
        _ => title,
    }];
    lines.extend(node.drawn_lines().iter().flat_map(|l| l.lines()).map(one_line));
    lines.extend(node.id_line().map(one_line));
    lines.extend(node.status.as_ref().map(|mark| one_line(&mark.line(ascii))));
    lines.retain(|line| !line.is_empty());
    lines.truncate(6);
    if lines.is_empty() {
        lines.push("-".to_owned());
    }
    lines.iter().map(|line| truncate_columns(line, MAX_LINE)).collect()
}

/// Returns the sign of a shape before the title; `None` for work and ends.
const fn sign(shape: Shape) -> Option<&'static str> {
    match shape {
        Shape::Terminal | Shape::Task | Shape::Box => None,
        Shape::Decision => Some("◇"),
        Shape::Join => Some("◎"),
        Shape::Fork => Some("⋔"),
        Shape::Loop => Some("↻"),
        Shape::Map => Some("≡"),
        Shape::Human => Some("☺"),
        Shape::Subworkflow => Some("▣"),
        Shape::Delay => Some("◔"),
    }
}
