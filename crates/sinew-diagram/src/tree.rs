//! Draws the graph as an indented list, if boxes cannot represent it.
//!
//! A chain is vertical, and branches are indented. A node with several incoming edges is written once,
//! below the branches that join in it, each of which ends in an arrow to it.

use std::fmt::Write;

use crate::model::{EdgeKind, Graph};
use crate::names::{one_line, truncate_columns};

/// Maximum columns of a node's text.
const MAX_LINE: usize = 100;

pub(crate) fn tree(graph: &Graph<'_>, ascii: bool) -> String {
    let mut edges = vec![Vec::new(); graph.nodes.len()];
    let mut ways_in = vec![0_usize; graph.nodes.len()];
    for (number, (from, to, edge)) in graph.edges.iter().enumerate() {
        edges[*from].push(number);
        if edge.kind == EdgeKind::Flow && from != to {
            ways_in[*to] += 1;
        }
    }
    let roots: Vec<usize> = (0..graph.nodes.len()).filter(|n| ways_in[*n] == 0).collect();
    let mut walk = TreeWalk {
        graph,
        ascii,
        edges,
        meets: ways_in.iter().map(|n| *n > 1).collect(),
        open: ways_in,
        done: vec![false; graph.nodes.len()],
        ready: Vec::new(),
        out: String::new(),
    };
    // After the roots, nodes that only cycles reach, in file order.
    for node in roots.into_iter().chain(0..graph.nodes.len()) {
        walk.chain(node);
    }
    walk.out
}

struct TreeWalk<'g> {
    graph: &'g Graph<'g>,
    ascii: bool,
    /// Indexes of the outgoing edges of each node.
    edges: Vec<Vec<usize>>,
    /// Number of incoming edges of each node that are not visited yet.
    open: Vec<usize>,
    /// Whether each node has several incoming edges.
    meets: Vec<bool>,
    done: Vec<bool>,
    /// Joins whose incoming edges are all visited.
    ready: Vec<usize>,
    out: String,
}

/// Maximum indentation depth; deeper branches keep the same indent.
const MAX_DEPTH: usize = 40;

/// A node whose edges are being visited, with its level in the list.
struct OpenNode {
    node: usize,
    /// Indexes of the outgoing edges.
    edges: Vec<usize>,
    /// Number of visited edges.
    walked: usize,
    /// Indent of the next nodes on the same level.
    indent: String,
    /// Next node on the same level.
    next: Option<usize>,
}

impl TreeWalk<'_> {
    /// Writes a node and all its successors. Uses an explicit stack instead of recursion, because the
    /// file determines the nesting of branches.
    fn chain(&mut self, start: usize) {
        let mut levels: Vec<OpenNode> = Vec::new();
        levels.extend(self.open(start, "", ""));
        while let Some(level) = levels.last_mut() {
            let Some(at) = level.edges.get(level.walked).copied() else {
                let next = if level.edges.len() > 1 { self.take_ready() } else { level.next };
                let indent = std::mem::take(&mut level.indent);
                levels.pop();
                levels.extend(next.and_then(|node| self.open(node, &indent, &indent)));
                continue;
            };
            level.walked += 1;
            let (_, to, edge) = self.graph.edges[at];
            let arrived = edge.kind == EdgeKind::Flow && to != level.node && self.walked(to);
            let (single, last) = (level.edges.len() == 1, level.walked == level.edges.len());
            // The enclosing level writes a join; at the outermost level, this one does.
            let enter = arrived && (!self.meets[to] || (level.indent.is_empty() && single));
            if enter && single && edge.text(self.ascii).is_empty() {
                level.next = Some(to);
            } else if let Some((below, before)) = self.branch(at, &level.indent, last, enter) {
                levels.extend(self.open(to, &below, &before));
            }
        }
    }

    /// Writes the line of a node once, after `before`; its successors get `indent`.
    fn open(&mut self, node: usize, indent: &str, before: &str) -> Option<OpenNode> {
        if std::mem::replace(&mut self.done[node], true) {
            return None;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "{before}{}", self.text(node));
        let edges = std::mem::take(&mut self.edges[node]);
        Some(OpenNode { node, edges, walked: 0, indent: indent.to_owned(), next: None })
    }

    /// Marks an incoming edge as visited. Returns true for the last one, if the node is not written.
    fn walked(&mut self, node: usize) -> bool {
        self.open[node] = self.open[node].saturating_sub(1);
        let last = self.open[node] == 0 && !self.done[node];
        if last && self.meets[node] {
            self.ready.push(node);
        }
        last
    }

    fn take_ready(&mut self) -> Option<usize> {
        while let Some(node) = self.ready.pop() {
            if !self.done[node] {
                return Some(node);
            }
        }
        None
    }

    /// Writes the line of an edge, or returns indent and prefix of its node if `enter` is set.
    fn branch(&mut self, edge: usize, indent: &str, last: bool, enter: bool) -> Option<(String, String)> {
        let (_, to, edge) = self.graph.edges[edge];
        let (turn, on) = match (self.ascii, last) {
            (false, false) => ("├─ ", "│  "),
            (false, true) => ("└─ ", "   "),
            (true, false) => ("|- ", "|  "),
            (true, true) => ("`- ", "   "),
        };
        let label = match one_line(&edge.text(self.ascii)) {
            none if none.is_empty() => String::new(),
            label => format!("[{}] ", truncate_columns(&label, 40)),
        };
        if enter {
            let deep = indent.chars().count() / 3 >= MAX_DEPTH;
            let below = if deep { indent.to_owned() } else { format!("{indent}{on}") };
            return Some((below, format!("{indent}{turn}{label}")));
        }
        let arrow = match (edge.kind, self.ascii) {
            (EdgeKind::Back, false) => "↺",
            (EdgeKind::Back, true) => "back to",
            (_, false) => "→",
            (_, true) => "->",
        };
        let id = truncate_columns(&one_line(&self.graph.nodes[to].id), 60);
        let _ = writeln!(self.out, "{indent}{turn}{label}{arrow} {id}");
        None
    }

    fn text(&self, node: usize) -> String {
        let node = &self.graph.nodes[node];
        let (id, title) = (one_line(&node.id), one_line(&node.title));
        let mut parts =
            if id == title || title.is_empty() { vec![id] } else { vec![format!("{id}  {title}")] };
        parts.extend(
            node.drawn_lines().iter().flat_map(|l| l.lines()).map(one_line).filter(|l| !l.is_empty()),
        );
        let mut text = truncate_columns(&parts.join(if self.ascii { " - " } else { " · " }), MAX_LINE);
        if let Some(mark) = &node.status {
            let _ = write!(text, "  {}", one_line(&mark.line(self.ascii)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::model::{Drawing, DrawnEdge, DrawnNode, EdgeKind, Graph, Shape};

    /// Stack size of the drawing thread, too small for recursion over the nodes of a graph.
    const STACK_BYTES: usize = 128 << 10;
    const NODE_COUNT: usize = 10_000;

    fn drawing(edges: impl Iterator<Item = (usize, usize)>) -> Drawing {
        let node = |n: usize| DrawnNode {
            id: format!("n{n}"),
            shape: Shape::Task,
            title: "Agent".to_owned(),
            lines: Vec::new(),
            status: None,
            group: None,
            is_stack: false,
            is_quiet: false,
            sockets: Vec::new(),
            color: None,
        };
        let edge = |(from, to)| DrawnEdge {
            from: format!("n{from}"),
            to: format!("n{to}"),
            label: Some("ok".to_owned()),
            kind: EdgeKind::Flow,
            taken: None,
        };
        Drawing {
            nodes: (0..NODE_COUNT).map(node).collect(),
            edges: edges.map(edge).collect(),
            ..Drawing::default()
        }
    }

    #[test]
    fn large_graphs_need_little_stack_and_time() {
        let cases = [
            ("chain of labels", drawing((1..NODE_COUNT).map(|n| (n - 1, n)))),
            // Each second node is a leaf, and the others are nested.
            ("branches in branches", drawing((2..NODE_COUNT).map(|n| (n - 2 - n % 2, n)))),
            ("one to all", drawing((1..NODE_COUNT).map(|n| (0, n)))),
            ("all to one", drawing((0..NODE_COUNT - 1).map(|n| (n, NODE_COUNT - 1)))),
            ("layers", drawing((100..NODE_COUNT).flat_map(|n| [(n - 100, n), (n / 100 * 100 - 100, n)]))),
        ];
        for (name, drawing) in cases {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let draw = move || {
                let begun = std::time::Instant::now();
                let text = super::tree(&Graph::of(&drawing), false);
                (text, begun.elapsed())
            };
            let (text, time) = thread.spawn(draw).unwrap().join().unwrap();
            for n in [0, NODE_COUNT / 2, NODE_COUNT - 1] {
                assert!(text.contains(&format!("n{n}  Agent\n")), "{name}: no line for node {n}");
            }
            assert!(time < Duration::from_secs(20), "{name}: {time:?}");
        }
    }
}
