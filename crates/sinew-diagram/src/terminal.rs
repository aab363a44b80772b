//! Text for a terminal: boxes drawn by merman for chains and their branches, a tree for all else.
//!
//! As in [`crate::layout`], merman gets placeholders: each line of text is a run of one private
//! character, as many as the text has columns. A run that did not come back whole (an edge drawn
//! over it) makes the tree take over, so text is never lost.

use std::fmt::Write;

use merman::ascii::AsciiRenderOptions;
use merman::{AsciiRequest, OperationControl, RenderOutput, RenderRequest, Renderer};
use unicode_width::UnicodeWidthStr;

use crate::model::{Direction, DrawError, Drawing, DrawnNode, EdgeKind, Graph, Shape};
use crate::names::{one_line, truncate_columns};
use crate::tree;

/// Columns a drawing may take where nobody said how wide the terminal is.
const WIDTH: usize = 120;
/// More nodes than this are a tree at once: boxes would be pages long.
const MAX_BOXES: usize = 30;
/// Columns of one line in a box.
const MAX_LINE: usize = 36;
const FIRST: u32 = 0xE000;
const LAST: u32 = 0xF8FF;

/// The drawing for a terminal of 120 columns; `ascii` keeps to plain ASCII lines and icons.
pub fn terminal(drawing: &Drawing, ascii: bool) -> Result<String, DrawError> {
    terminal_within(drawing, ascii, WIDTH)
}

/// The drawing for a terminal of `columns`: boxes where they fit, else a tree of nodes.
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

/// Whether boxes would be true: where ways meet, go back or pass a group, merman joins their lines
/// so that one reads edges that are not there; and many boxes are pages long.
fn is_plain(graph: &Graph<'_>) -> bool {
    let mut entered = vec![false; graph.nodes.len()];
    graph.nodes.len() <= MAX_BOXES
        && graph.groups.is_empty()
        && graph.edges.iter().filter(|(from, to, _)| from != to).all(|(from, to, edge)| {
            edge.kind == EdgeKind::Flow && from < to && !std::mem::replace(&mut entered[*to], true)
        })
}

/// The graph as boxes, or nothing where merman refuses it or it is too wide.
fn boxes(direction: Direction, graph: &Graph<'_>, ascii: bool, columns: usize) -> Option<String> {
    let mut runs = TextRuns { texts: Vec::new() };
    let source = source(direction, graph, ascii, &mut runs)?;
    let mut options = if ascii { AsciiRenderOptions::ascii() } else { AsciiRenderOptions::unicode() };
    options.node_padding_x = Some(1);
    options.node_padding_y = Some(0);
    options.graph_padding_y = 3;
    let options = options.with_flowchart_node_label_wrap_width(1_000);
    let request = AsciiRequest { options, ..AsciiRequest::default() };
    let output =
        Renderer::new().render(RenderRequest::ascii(&source, OperationControl::new(), request)).ok()?;
    let RenderOutput::Ascii(Some(output)) = output else {
        return None;
    };
    let text = runs.fill(&output.text)?;
    let mut out = String::with_capacity(text.len());
    for line in text.lines().map(str::trim_end) {
        if line.width() > columns {
            return None;
        }
        let _ = writeln!(out, "{line}");
    }
    Some(out)
}

fn source(direction: Direction, graph: &Graph<'_>, ascii: bool, runs: &mut TextRuns) -> Option<String> {
    let direction = match direction {
        Direction::TopDown => "TB",
        Direction::LeftRight => "LR",
    };
    let mut out = format!("flowchart {direction}\n");
    for (number, node) in graph.nodes.iter().enumerate() {
        let mut label = Vec::new();
        // An edge to itself has no room outside the box.
        let again = graph.edges.iter().filter(|(from, to, _)| *from == number && *to == number);
        let again = again.map(|(_, _, edge)| {
            let text = one_line(&edge.text(ascii));
            truncate_columns(format!("{} {text}", if ascii { "again:" } else { "↺" }).trim_end(), MAX_LINE)
        });
        for line in node_lines(node, ascii).into_iter().chain(again) {
            label.push(runs.run(&line)?);
        }
        // Few shapes survive as characters; the others tell themselves by their title.
        let (open, close) = match node.shape {
            Shape::Terminal | Shape::Task => ('(', ')'),
            _ => ('[', ']'),
        };
        let _ = writeln!(out, "n{number}{open}\"{}\"{close}", label.join("<br/>"));
    }
    for (from, to, edge) in graph.edges.iter().filter(|(from, to, _)| from != to) {
        let _ = match truncate_columns(&one_line(&edge.text(ascii)), MAX_LINE) {
            text if text.is_empty() => writeln!(out, "n{from} --> n{to}"),
            text => writeln!(out, "n{from} -- \"{}\" --> n{to}", runs.run(&text)?),
        };
    }
    for (number, (title, members)) in graph.groups.iter().enumerate() {
        let title = match truncate_columns(&one_line(title), MAX_LINE) {
            empty if empty.is_empty() => "group".to_owned(),
            title => title,
        };
        let _ = writeln!(out, "subgraph g{number}[\"{}\"]\ndirection {direction}", runs.run(&title)?);
        for member in members {
            let _ = writeln!(out, "n{member}");
        }
        out.push_str("end\n");
    }
    Some(out)
}

/// The lines in a node's box: a mark of its shape and the title, what it is, its state.
fn node_lines(node: &DrawnNode, ascii: bool) -> Vec<String> {
    let title = one_line(&node.title);
    let mut lines = vec![match (sign(node.shape), ascii) {
        (Some(sign), false) => format!("{sign} {title}"),
        _ => title,
    }];
    lines.extend(node.lines.iter().flat_map(|l| l.lines()).map(one_line));
    lines.extend(node.id_line().map(one_line));
    lines.extend(node.status.as_ref().map(|mark| one_line(&mark.line(ascii))));
    lines.retain(|line| !line.is_empty());
    lines.truncate(6);
    if lines.is_empty() {
        lines.push("-".to_owned());
    }
    lines.iter().map(|line| truncate_columns(line, MAX_LINE)).collect()
}

/// A small drawing of a shape, put before the title; work and ends need none.
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

/// Lines of text that stand as runs of placeholders.
struct TextRuns {
    texts: Vec<String>,
}

impl TextRuns {
    /// A run as wide as the text; `None` when there are more lines than placeholders.
    fn run(&mut self, text: &str) -> Option<String> {
        let number = FIRST + u32::try_from(self.texts.len()).ok()?;
        let placeholder = char::from_u32(number).filter(|_| number <= LAST)?;
        self.texts.push(text.to_owned());
        Some(placeholder.to_string().repeat(text.width().max(1)))
    }

    /// The drawing with text for runs; `None` unless each run is there exactly once and whole.
    fn fill(&self, drawing: &str) -> Option<String> {
        let mut seen = vec![false; self.texts.len()];
        let mut out = String::with_capacity(drawing.len());
        let mut characters = drawing.chars().peekable();
        while let Some(c) = characters.next() {
            if !(FIRST..=LAST).contains(&u32::from(c)) {
                out.push(c);
                continue;
            }
            let number = (u32::from(c) - FIRST) as usize;
            let mut length = 1;
            while characters.next_if_eq(&c).is_some() {
                length += 1;
            }
            let text = self.texts.get(number)?;
            if length != text.width().max(1) || std::mem::replace(seen.get_mut(number)?, true) {
                return None;
            }
            out.push_str(text);
        }
        seen.iter().all(|s| *s).then_some(out)
    }
}
