//! Large drawings in parts: positions of all nodes as numbers, and the texts of visible ones.
//!
//! No part exceeds 256 KiB, whatever the drawing. Layouts depend on the plan alone, so the most
//! recent ones are cached.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_diagram::{Drawing, DrawnStates, EdgeKind, PlacedDrawing, PlacedEdge, Shape};
use sinew_operations::failure::{Failure, FailureKind};

use super::api_call::{ApiCall, answer};
use crate::http_error::HttpProblem;
use crate::layout_cache::LayoutCache;

/// Maximum number of nodes in a part.
const MAX_NODES: usize = 10_000;
/// Maximum number of edges in a part.
const MAX_EDGES: usize = 16_000;
/// Maximum number of nodes and edges in a window, with texts and routes.
const MAX_IN_WINDOW: usize = 300;

/// Part of a placed drawing.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlacedPart {
    #[default]
    Nodes,
    Edges,
    States,
    Window,
    Place,
    Find,
}

/// A requested part of a drawing.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedPart<'q> {
    pub(super) part: PlacedPart,
    /// First node or edge.
    pub(super) from: usize,
    /// Left, top, right and bottom of a window.
    pub(super) window: [f64; 4],
    /// Node whose position is requested.
    pub(super) node: Option<&'q str>,
    /// Text of the nodes to find.
    pub(super) text: &'q str,
}

/// Returns a part of a drawing.
pub(super) async fn respond(
    call: &ApiCall,
    wanted: WantedPart<'_>,
    drawing: Drawing,
    key: String,
) -> Result<Response, HttpProblem> {
    let make = async {
        let drawing = drawing.clone();
        let placed = call.compute(move || PlacedDrawing::of(&drawing)).await?.map_err(|error| {
            Failure::new(FailureKind::Failed, error.code(), error.to_string())
                .hint("format=mermaid has no node limit")
        })?;
        Ok::<_, HttpProblem>(placed)
    };
    let placed = call.state.layouts.find_or_make(key, make).await?;
    part_of(&placed, &DrawnStates::of(&drawing), wanted)
}

/// Returns a part of the drawing of a plan with a cached layout, or `None` if it is not cached.
pub(super) async fn respond_kept(
    layouts: &LayoutCache,
    wanted: WantedPart<'_>,
    key: &str,
) -> Option<Result<Response, HttpProblem>> {
    let placed = layouts.find(key).await?;
    let states = DrawnStates { nodes: vec![None; placed.nodes.len()], edges: vec![None; placed.edges.len()] };
    Some(part_of(&placed, &states, wanted))
}

fn part_of(
    placed: &PlacedDrawing,
    states: &DrawnStates,
    wanted: WantedPart<'_>,
) -> Result<Response, HttpProblem> {
    answer(&match wanted.part {
        PlacedPart::Nodes => nodes(placed, states, wanted.from),
        PlacedPart::Edges => edges(placed, states, wanted.from),
        PlacedPart::States => {
            json!({ "states": state_letters(states, 0), "taken": taken_letters(states, 0) })
        }
        PlacedPart::Window => window(placed, states, wanted.window),
        PlacedPart::Place => place(placed, wanted.node.unwrap_or_default()),
        PlacedPart::Find => find(placed, wanted.text),
    })
}

/// Returns the position of one node; null for one that is not drawn, such as a child of a collapsed
/// map.
fn place(placed: &PlacedDrawing, node: &str) -> Value {
    let found = placed.nodes.iter().enumerate().find(|(_, one)| one.id == node);
    json!({ "at": found.map(|(at, _)| at), "frame": found.map(|(_, one)| one.frame.map(f64::round)) })
}

/// Returns the nodes whose id or text contains a text, regardless of case, and their number.
fn find(placed: &PlacedDrawing, text: &str) -> Value {
    let wanted = text.trim().to_lowercase();
    let contains = |text: &String| text.to_lowercase().contains(&wanted);
    let found =
        placed.nodes.iter().enumerate().filter(|(_, node)| {
            !wanted.is_empty() && (contains(&node.id) || node.lines.iter().any(contains))
        });
    let found: Vec<usize> = found.map(|(at, _)| at).collect();
    json!({ "total": found.len(), "at": found.iter().take(MAX_IN_WINDOW).collect::<Vec<_>>() })
}

/// Encodes states of nodes as letters; a dash without an execution.
fn state_letters(states: &DrawnStates, from: usize) -> String {
    let marks = states.nodes.iter().skip(from);
    marks.map(|mark| mark.as_ref().map_or('-', |mark| mark.status.letter())).collect()
}

/// Encodes whether edges were traversed: `1` or `0`, or a dash without an execution.
fn taken_letters(states: &DrawnStates, from: usize) -> String {
    let letter = |taken: &Option<u32>| match taken {
        None => '-',
        Some(0) => '0',
        Some(_) => '1',
    };
    states.edges.iter().skip(from).map(letter).collect()
}

/// Encodes a shape as a letter, in the order of their kinds.
const fn shape_letter(shape: Shape) -> char {
    match shape {
        Shape::Terminal => 't',
        Shape::Task => 'a',
        Shape::Box => 'b',
        Shape::Decision => 'd',
        Shape::Join => 'j',
        Shape::Fork => 'f',
        Shape::Loop => 'l',
        Shape::Map => 'm',
        Shape::Human => 'h',
        Shape::Subworkflow => 's',
        Shape::Delay => 'w',
    }
}

/// Encodes positions of nodes as lists of integer px: a list of numbers is a third of the size of a
/// list of objects.
fn nodes(placed: &PlacedDrawing, states: &DrawnStates, from: usize) -> Value {
    let part = || placed.nodes.iter().skip(from).take(MAX_NODES);
    let side = |at: usize| -> Vec<i64> { part().map(|node| node.frame[at].round() as i64).collect() };
    let groups: Vec<Value> = placed
        .groups
        .iter()
        .take(MAX_IN_WINDOW)
        .map(|group| json!({ "title": group.title, "frame": group.frame.map(f64::round) }))
        .collect();
    json!({
        "size": [placed.size.0.ceil(), placed.size.1.ceil()],
        "total": placed.nodes.len(),
        "edges": placed.edges.len(),
        "from": from,
        "left": side(0),
        "top": side(1),
        "width": side(2),
        "height": side(3),
        "shapes": part().map(|node| shape_letter(node.shape)).collect::<String>(),
        "stacks": part().enumerate().filter(|(_, node)| node.is_stack).map(|(at, _)| at + from).collect::<Vec<_>>(),
        "quiet": part().enumerate().filter(|(_, node)| node.is_quiet).map(|(at, _)| at + from).collect::<Vec<_>>(),
        "states": state_letters(states, from).chars().take(MAX_NODES).collect::<String>(),
        "groups": if from == 0 { groups } else { Vec::new() },
    })
}

fn edges(placed: &PlacedDrawing, states: &DrawnStates, from: usize) -> Value {
    let part = || placed.edges.iter().skip(from).take(MAX_EDGES);
    json!({
        "total": placed.edges.len(),
        "from": from,
        "ends": part().flat_map(|edge| [edge.from, edge.to]).collect::<Vec<_>>(),
        "taken": taken_letters(states, from).chars().take(MAX_EDGES).collect::<String>(),
    })
}

/// Returns the nodes and edges in a window, nearest to its centre first if they exceed the maximum.
fn window(placed: &PlacedDrawing, states: &DrawnStates, [left, top, right, bottom]: [f64; 4]) -> Value {
    let is_inside =
        |[x, y, width, height]: [f64; 4]| x <= right && x + width >= left && y <= bottom && y + height >= top;
    let inside = placed.nodes.iter().enumerate().filter(|(_, node)| is_inside(node.frame));
    let rows: Vec<Value> = inside
        .take(MAX_IN_WINDOW)
        .map(|(at, node)| {
            let mark = states.nodes.get(at).and_then(Option::as_ref);
            json!({ "at": at, "id": node.id, "lines": node.lines, "state": mark.map(sinew_diagram::NodeMark::text) })
        })
        .collect();
    let ways: Vec<Value> = placed
        .edges
        .iter()
        .enumerate()
        .filter(|(_, edge)| is_inside(frame_of(edge)))
        .take(MAX_IN_WINDOW)
        .map(|(at, edge)| way(at, edge))
        .collect();
    json!({ "nodes": rows, "edges": ways })
}

/// Returns the bounding box of an edge.
fn frame_of(edge: &PlacedEdge) -> [f64; 4] {
    let (mut left, mut top) = (f64::INFINITY, f64::INFINITY);
    let (mut right, mut bottom) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for (x, y) in &edge.points {
        (left, right) = (left.min(*x), right.max(*x));
        (top, bottom) = (top.min(*y), bottom.max(*y));
    }
    [left, top, right - left, bottom - top]
}

/// Maximum number of points sent per edge, which is sufficient for an edge over thousands of
/// layers.
const MAX_POINTS: usize = 40;

fn way(at: usize, edge: &PlacedEdge) -> Value {
    let step = edge.points.len().div_ceil(MAX_POINTS).max(1);
    let last = edge.points.len().saturating_sub(1);
    let kept = edge.points.iter().enumerate().filter(|(n, _)| n.is_multiple_of(step) || *n == last);
    let points: Vec<i64> = kept.flat_map(|(_, (x, y))| [x.round() as i64, y.round() as i64]).collect();
    let kind = match edge.kind {
        EdgeKind::Flow => "flow",
        EdgeKind::Attach => "attach",
        EdgeKind::Back => "back",
    };
    let mut way = json!({ "at": at, "kind": kind, "points": points });
    if !edge.label.is_empty() {
        way["label"] =
            json!({ "lines": edge.label, "at": [edge.label_at.0.round(), edge.label_at.1.round()] });
    }
    way
}
