//! Computes positions for boxes of known sizes, with dugong, a port of dagre.

use dugong::graphlib::{Graph, GraphOptions};
use dugong::{EdgeLabel, GraphLabel, LabelPos, NodeLabel, NoopWorkControl, RankDir};

use crate::model::{Direction, DrawError};

/// Width and height, px.
pub(crate) type Size = (f64, f64);

/// Elements to place.
pub(crate) struct ElementSizes {
    pub(crate) direction: Direction,
    pub(crate) nodes: Vec<Size>,
    /// Source, target and size of the label, if any. Excludes edges from a node to itself.
    pub(crate) edges: Vec<(usize, usize, Option<Size>)>,
    /// Size of the title, and members.
    pub(crate) groups: Vec<(Size, Vec<usize>)>,
}

/// Positions in px, in the order of [`ElementSizes`].
pub(crate) struct LayoutPositions {
    /// Centres of nodes.
    pub(crate) nodes: Vec<Point>,
    pub(crate) edges: Vec<EdgePath>,
    /// Boxes around groups: left, top, width, height.
    pub(crate) groups: Vec<[f64; 4]>,
}

/// A point, px.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// The path of an edge.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgePath {
    pub(crate) points: Vec<Point>,
    /// Centre of the label.
    pub(crate) label: Option<Point>,
}

/// Gap between nodes of a row, and between rows, px.
const GAPS: (f64, f64) = (36.0, 44.0);
/// Gap between edges, px.
const EDGE_GAP: f64 = 20.0;
/// Space around the title of a group, px.
const TITLE_ROOM: f64 = 16.0;

type LayoutGraph = Graph<NodeLabel, EdgeLabel, GraphLabel>;

/// Places boxes and edges.
pub(crate) fn place(sizes: &ElementSizes) -> Result<LayoutPositions, DrawError> {
    let mut graph = graph(sizes);
    // The caller limits the graph to MAX_NODES.
    dugong::layout_controlled(&mut graph, &mut NoopWorkControl)
        .map_err(|error| DrawError::Layout { reason: error.to_string() })?;
    Ok(collect(sizes, &graph))
}

fn node_key(number: usize) -> String {
    format!("n{number}")
}

fn edge_key(number: usize) -> String {
    format!("e{number}")
}

fn group_key(number: usize) -> String {
    format!("g{number}")
}

fn graph(sizes: &ElementSizes) -> LayoutGraph {
    let mut graph = LayoutGraph::new(GraphOptions { directed: true, multigraph: true, compound: true });
    graph.set_graph(GraphLabel {
        rankdir: match sizes.direction {
            Direction::TopDown => RankDir::TB,
            Direction::LeftRight => RankDir::LR,
        },
        nodesep: GAPS.0,
        ranksep: GAPS.1,
        edgesep: EDGE_GAP,
        ..GraphLabel::default()
    });
    for (number, (width, height)) in sizes.nodes.iter().copied().enumerate() {
        graph.set_node(node_key(number), NodeLabel { width, height, ..NodeLabel::default() });
    }
    for (number, (_, members)) in sizes.groups.iter().enumerate() {
        graph.set_node(group_key(number), NodeLabel::default());
        for member in members {
            graph.set_parent(node_key(*member), group_key(number));
        }
    }
    for (number, (from, to, label)) in sizes.edges.iter().enumerate() {
        let (width, height) = label.unwrap_or_default();
        let edge = EdgeLabel {
            width,
            height,
            labelpos: LabelPos::C,
            minlen: 1,
            weight: 1.0,
            ..EdgeLabel::default()
        };
        graph.set_edge_named(node_key(*from), node_key(*to), Some(edge_key(number)), Some(edge));
    }
    graph
}

fn collect(sizes: &ElementSizes, graph: &LayoutGraph) -> LayoutPositions {
    let centre = |label: &NodeLabel| Point { x: label.x.unwrap_or_default(), y: label.y.unwrap_or_default() };
    let node = |number| graph.node(&node_key(number)).map(centre).unwrap_or_default();
    let edge = |(number, (from, to, label)): (usize, &(usize, usize, Option<Size>))| {
        let Some(way) = graph.edge(&node_key(*from), &node_key(*to), Some(&edge_key(number))) else {
            return EdgePath::default();
        };
        let at = way.x.zip(way.y).map(|(x, y)| Point { x, y });
        let points = way.points.iter().map(|point| Point { x: point.x, y: point.y });
        EdgePath { points: points.collect(), label: at.filter(|_| label.is_some()) }
    };
    let group = |(number, ((title, _), _)): (usize, &(Size, Vec<usize>))| {
        let Some(label) = graph.node(&group_key(number)) else { return [0.0; 4] };
        let at = centre(label);
        // dagre ignores the title.
        let width = label.width.max(title + TITLE_ROOM);
        [at.x - width / 2.0, at.y - label.height / 2.0, width, label.height]
    };
    LayoutPositions {
        nodes: (0..sizes.nodes.len()).map(node).collect(),
        edges: sizes.edges.iter().enumerate().map(edge).collect(),
        groups: sizes.groups.iter().enumerate().map(group).collect(),
    }
}
