//! A drawing with positions, for clients that paint only the visible part of large graphs.
//!
//! Positions depend only on nodes and edges, because each node reserves a line for its state. A
//! workflow and all its executions share one layout.

use crate::MAX_PLACED_NODES;
use crate::layered::{deepest_edges, place_in_layers};
use crate::layout::{self, ElementSizes, LayoutPositions, Point};
use crate::model::{DrawError, Drawing, DrawnNode, EdgeKind, Graph, NodeMark, Shape, Status};
use crate::paint::{TextBlock, edge_lines, group_title, joined, label_size, self_loop, sizes};

/// Maximum nodes of a drawing whose layers are balanced by dagre. In a larger one, each node is in
/// the layer after its last predecessor.
const MAX_BALANCED_NODES: usize = 150;

/// A drawing with positions, in px from its top left corner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacedDrawing {
    /// Width and height.
    pub size: (f64, f64),
    /// Nodes of the drawing in its order, then ends of edges that are not nodes.
    pub nodes: Vec<PlacedNode>,
    /// Edges in the order of the drawing. A large drawing omits edges to an end with many of them.
    pub edges: Vec<PlacedEdge>,
    /// Boxes around groups.
    pub groups: Vec<PlacedGroup>,
}

/// A node with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedNode {
    /// Id of the node.
    pub id: String,
    /// Outline of the node.
    pub shape: Shape,
    /// Left, top, width and height.
    pub frame: [f64; 4],
    /// Lines of text, the first one bold; without the line of the state.
    pub lines: Vec<String>,
    /// Whether the node represents many of its kind.
    pub is_stack: bool,
    /// Whether the node is drawn small, with its state before its line of text.
    pub is_quiet: bool,
}

/// An edge with its path.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedEdge {
    /// Index of the source node.
    pub from: usize,
    /// Index of the target node.
    pub to: usize,
    /// Kind of the edge.
    pub kind: EdgeKind,
    /// Points of the path, at least two.
    pub points: Vec<(f64, f64)>,
    /// Lines of the label; empty without a label.
    pub label: Vec<String>,
    /// Centre of the label.
    pub label_at: (f64, f64),
}

/// A box around nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedGroup {
    /// Title of the box, truncated.
    pub title: String,
    /// Left, top, width and height.
    pub frame: [f64; 4],
}

/// States of nodes and edges, in the order of a [`PlacedDrawing`] of the same drawing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrawnStates {
    /// State of each node; `None` without an overlaid execution.
    pub nodes: Vec<Option<NodeMark>>,
    /// Number of times that each edge was taken; `None` without an overlaid execution.
    pub edges: Vec<Option<u32>>,
}

impl DrawnStates {
    /// Returns the states of a drawing.
    pub fn of(drawing: &Drawing) -> Self {
        let (graph, _) = Graph::of(drawing).without_end_edges();
        Self {
            nodes: graph.nodes.iter().map(|node| node.status.clone()).collect(),
            edges: graph.edges.iter().map(|(_, _, edge)| edge.taken).collect(),
        }
    }
}

impl Status {
    /// Returns the state as a letter, for compact lists: `p`lanned, `r`unning, `s`ucceeded, `f`ailed,
    /// s`k`ipped, `c`ancelled, `w`aiting.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Planned => 'p',
            Self::Running => 'r',
            Self::Succeeded => 's',
            Self::Failed => 'f',
            Self::Skipped => 'k',
            Self::Cancelled => 'c',
            Self::Waiting => 'w',
        }
    }
}

impl NodeMark {
    /// Returns the state with its note as a line: `✓ succeeded · 2 attempts`.
    #[must_use]
    pub fn text(&self) -> String {
        self.line(false)
    }
}

impl PlacedDrawing {
    /// Places each node and edge: small graphs as in pictures, larger ones in layers.
    ///
    /// # Errors
    /// Fails if the graph has more than [`MAX_PLACED_NODES`] nodes or four times as many edges, or if
    /// the layout engine refuses it.
    pub fn of(drawing: &Drawing) -> Result<Self, DrawError> {
        let (graph, hidden) = Graph::of(drawing).without_end_edges();
        let (nodes, edges) = (graph.nodes.len(), graph.edges.len());
        if nodes > MAX_PLACED_NODES || edges > 4 * MAX_PLACED_NODES {
            return Err(DrawError::TooLarge { nodes, edges, limit: MAX_PLACED_NODES });
        }
        if nodes == 0 {
            return Ok(Self::default());
        }
        let blocks: Vec<TextBlock> = graph.nodes.iter().map(|node| roomy_block(node)).collect();
        let labels: Vec<Vec<String>> = graph
            .edges
            .iter()
            .map(|(_, _, edge)| edge_lines(&crate::DrawnEdge { taken: None, ..(*edge).clone() }))
            .collect();
        let mut sizes = sizes(drawing, &graph, &blocks, &labels);
        // The end is below the deepest of the nodes that lead to it.
        sizes.edges.extend(deepest_edges(nodes, &sizes.edges, &hidden));
        let is_small = nodes <= MAX_BALANCED_NODES && edges <= 2 * MAX_BALANCED_NODES;
        let places = if is_small { layout::place(&sizes)? } else { place_in_layers(&sizes) };
        Ok(collect(drawing, &graph, &blocks, labels, &sizes, &places))
    }
}

/// Returns text and size of a node, including a line for its state.
fn roomy_block(node: &DrawnNode) -> TextBlock {
    let mark = NodeMark { status: Status::Succeeded, note: None };
    let status = (node.shape != Shape::Terminal).then_some(mark);
    let mut block = TextBlock::of(&DrawnNode { status: status.clone(), ..node.clone() });
    if node.is_quiet {
        // The icon of the state is in the line of the title.
        block.lines = TextBlock::of(&DrawnNode { status: None, ..node.clone() }).lines;
    } else if status.is_some() {
        block.lines.pop();
    }
    block
}

fn collect(
    drawing: &Drawing,
    graph: &Graph<'_>,
    blocks: &[TextBlock],
    labels: Vec<Vec<String>>,
    sizes: &ElementSizes,
    places: &LayoutPositions,
) -> PlacedDrawing {
    let mut reach = DrawnReach::default();
    let mut placed = PlacedDrawing::default();
    for ((node, block), at) in graph.nodes.iter().zip(blocks).zip(&places.nodes) {
        let (width, height) = block.outer;
        let frame = [at.x - width / 2.0, at.y - height / 2.0, width, height];
        reach.take(frame);
        placed.nodes.push(PlacedNode {
            id: node.id.clone(),
            shape: node.shape,
            frame,
            lines: block.lines.iter().map(|(line, _)| line.clone()).collect(),
            is_stack: node.is_stack,
            is_quiet: node.is_quiet,
        });
    }
    let mut ways = places.edges.iter();
    for ((from, to, edge), label) in graph.edges.iter().zip(labels) {
        let end = |n: usize| (graph.nodes[n].shape, places.nodes[n], blocks[n].outer);
        let way = if from == to {
            self_loop(drawing.direction, end(*from), label_size(&label))
        } else {
            match ways.next() {
                Some(way) => joined(way, end(*from), end(*to)),
                None => continue,
            }
        };
        for point in &way.points {
            reach.take([point.x, point.y, 0.0, 0.0]);
        }
        let at = way.label.unwrap_or_default();
        placed.edges.push(PlacedEdge {
            from: *from,
            to: *to,
            kind: edge.kind,
            points: way.points.iter().map(|point| (point.x, point.y)).collect(),
            label,
            label_at: (at.x, at.y),
        });
    }
    for ((title, _), frame) in graph.groups.iter().zip(&places.groups) {
        reach.take(*frame);
        placed.groups.push(PlacedGroup { title: group_title(title), frame: *frame });
    }
    debug_assert_eq!(sizes.nodes.len(), placed.nodes.len());
    placed.moved(reach.corner(), reach.size())
}

impl PlacedDrawing {
    /// Moves the drawing so that its corner is at 0, 0.
    fn moved(mut self, corner: Point, size: (f64, f64)) -> Self {
        let shift = |frame: &mut [f64; 4]| {
            frame[0] -= corner.x;
            frame[1] -= corner.y;
        };
        self.nodes.iter_mut().for_each(|node| shift(&mut node.frame));
        self.groups.iter_mut().for_each(|group| shift(&mut group.frame));
        for edge in &mut self.edges {
            let points = edge.points.iter_mut().chain([&mut edge.label_at]);
            points.for_each(|(x, y)| (*x, *y) = (*x - corner.x, *y - corner.y));
        }
        self.size = size;
        self
    }
}

/// Extent of a drawing: left, top, right, bottom.
#[derive(Default)]
struct DrawnReach(Option<[f64; 4]>);

impl DrawnReach {
    fn take(&mut self, [left, top, width, height]: [f64; 4]) {
        let (right, bottom) = (left + width, top + height);
        let [a, b, c, d] = self.0.unwrap_or([left, top, right, bottom]);
        self.0 = Some([a.min(left), b.min(top), c.max(right), d.max(bottom)]);
    }

    fn corner(&self) -> Point {
        let [x, y, ..] = self.0.unwrap_or_default();
        Point { x, y }
    }

    fn size(&self) -> (f64, f64) {
        let [left, top, right, bottom] = self.0.unwrap_or_default();
        (right - left, bottom - top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Direction, DrawnEdge};

    fn drawing(nodes: usize) -> Drawing {
        let node = |n: usize| DrawnNode {
            id: format!("n{n}"),
            shape: Shape::Task,
            title: "Agent".to_owned(),
            lines: vec![format!("worker {n}")],
            status: None,
            group: (n % 100 == 7).then(|| "group".to_owned()),
            color: None,
            is_stack: n.is_multiple_of(10),
            is_quiet: n % 10 == 3,
            sockets: Vec::new(),
        };
        let edge = |n: usize| DrawnEdge {
            from: format!("n{}", n / 2),
            to: format!("n{n}"),
            label: (n.is_multiple_of(5)).then(|| "yes".to_owned()),
            kind: EdgeKind::Flow,
            taken: None,
        };
        Drawing {
            direction: Direction::TopDown,
            caption: None,
            nodes: (0..nodes).map(node).collect(),
            edges: (1..nodes).map(edge).collect(),
        }
    }

    #[test]
    fn small_and_large_graphs_have_places_that_states_do_not_move() {
        for nodes in [1, 30, MAX_BALANCED_NODES + 1] {
            let mut drawing = drawing(nodes);
            let placed = PlacedDrawing::of(&drawing).unwrap();
            assert_eq!((placed.nodes.len(), placed.edges.len()), (nodes, nodes - 1));
            for [left, top, width, height] in placed.nodes.iter().map(|node| node.frame) {
                assert!(left >= 0.0 && top >= 0.0 && width > 20.0 && height > 20.0);
                assert!(left + width <= placed.size.0 + 0.01 && top + height <= placed.size.1 + 0.01);
            }
            for (n, node) in placed.nodes.iter().enumerate() {
                assert_eq!((node.is_quiet, node.frame[3] < 40.0), (n % 10 == 3, n % 10 == 3), "{node:?}");
            }
            let mark = NodeMark { status: Status::Failed, note: Some("3 attempts".to_owned()) };
            for node in &mut drawing.nodes {
                node.status = node.is_quiet.then(|| mark.clone());
            }
            drawing.nodes[0].status = Some(mark.clone());
            assert_eq!(PlacedDrawing::of(&drawing).unwrap(), placed);
            assert_eq!(DrawnStates::of(&drawing).nodes[0], Some(mark));
        }
    }

    #[test]
    fn a_large_graph_has_each_node_in_its_layer_and_few_edges_to_its_end() {
        let (width, layers) = (20, 20);
        let mut large = drawing(width * layers);
        large.nodes.push(DrawnNode { shape: Shape::Terminal, ..drawing(1).nodes[0].clone() });
        let end = format!("n{}", width * layers);
        large.nodes.last_mut().unwrap().id.clone_from(&end);
        // Only the first column continues; every other node leads to the end.
        let edge = |from: usize, to: String| DrawnEdge {
            from: format!("n{from}"),
            to,
            label: None,
            kind: EdgeKind::Flow,
            taken: None,
        };
        let below = |n: usize| edge(n - width - (n - width) % width, format!("n{n}"));
        large.edges = (width..width * layers).map(below).collect();
        large.edges.extend((0..width * layers).filter(|n| n % width > 0).map(|n| edge(n, end.clone())));
        let placed = PlacedDrawing::of(&large).unwrap();
        assert_eq!(placed.edges.len(), width * (layers - 1));
        assert_eq!(DrawnStates::of(&large).edges.len(), placed.edges.len());
        let middle = |n: usize| placed.nodes[n].frame[1] + placed.nodes[n].frame[3] / 2.0;
        for n in width..width * layers {
            assert!((middle(n) - middle(n - n % width)).abs() < 1.0, "n{n} is in another layer");
        }
        assert!(middle(width * layers) > middle(width * layers - 1), "the end is below everything");
    }

    #[test]
    fn more_nodes_than_any_surface_paints_are_refused() {
        let refused = PlacedDrawing::of(&drawing(MAX_PLACED_NODES + 1)).unwrap_err();
        assert_eq!(refused.code(), "SINEW-2901");
    }
}
