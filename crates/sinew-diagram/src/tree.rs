//! The graph as an indented list, for graphs too large for boxes.
//!
//! A chain goes straight down; branches are indented; a node several edges lead to stands once,
//! below the branches that meet in it, and each of those ends in an arrow to it.

use std::fmt::Write;

use crate::model::{EdgeKind, Graph};
use crate::names::one_line;
use crate::terminal::cut;

/// Columns of one node's text.
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
    let mut walk = Walk {
        graph,
        ascii,
        edges,
        meets: ways_in.iter().map(|n| *n > 1).collect(),
        open: ways_in,
        done: vec![false; graph.nodes.len()],
        ready: Vec::new(),
        out: String::new(),
    };
    // After the roots, whatever only cycles lead to, in file order.
    for node in roots.into_iter().chain(0..graph.nodes.len()) {
        walk.chain(node, "", String::new());
    }
    walk.out
}

struct Walk<'g> {
    graph: &'g Graph<'g>,
    ascii: bool,
    /// Numbers of the edges that leave each node.
    edges: Vec<Vec<usize>>,
    /// How many ways into each node have not been walked yet.
    open: Vec<usize>,
    /// Whether several ways lead into each node.
    meets: Vec<bool>,
    done: Vec<bool>,
    /// Nodes where ways meet and all have been walked.
    ready: Vec<usize>,
    out: String,
}

/// Branches deeper than this go on at the same indent: the list stays readable and the stack small.
const MAX_DEPTH: usize = 40;

impl Walk<'_> {
    /// Writes a node and what follows it; `first` stands before it, `indent` before what follows.
    fn chain(&mut self, start: usize, indent: &str, first: String) {
        let mut next = Some(start);
        let mut before = first;
        while let Some(node) = next.take() {
            if std::mem::replace(&mut self.done[node], true) {
                return;
            }
            let _ = writeln!(self.out, "{before}{}", self.text(node));
            indent.clone_into(&mut before);
            let edges = std::mem::take(&mut self.edges[node]);
            for (number, at) in edges.iter().enumerate() {
                let (_, to, edge) = self.graph.edges[*at];
                let arrived = edge.kind == EdgeKind::Flow && to != node && self.walked(to);
                // Where ways meet, the enclosing level goes on; at the outermost there is none.
                let enter = arrived && (!self.meets[to] || (indent.is_empty() && edges.len() == 1));
                if enter && edges.len() == 1 && edge.text(self.ascii).is_empty() {
                    next = Some(to);
                } else {
                    self.branch(*at, indent, number + 1 == edges.len(), enter);
                }
            }
            if edges.len() > 1 {
                next = self.take_ready();
            }
        }
    }

    /// Counts a way into a node as walked; true when it was the last one and the node is new.
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

    fn branch(&mut self, edge: usize, indent: &str, last: bool, enter: bool) {
        let (_, to, edge) = self.graph.edges[edge];
        let (turn, on) = match (self.ascii, last) {
            (false, false) => ("├─ ", "│  "),
            (false, true) => ("└─ ", "   "),
            (true, false) => ("|- ", "|  "),
            (true, true) => ("`- ", "   "),
        };
        let label = match one_line(&edge.text(self.ascii)) {
            none if none.is_empty() => String::new(),
            label => format!("[{}] ", cut(&label, 40)),
        };
        if enter {
            let deep = indent.chars().count() / 3 >= MAX_DEPTH;
            let below = if deep { indent.to_owned() } else { format!("{indent}{on}") };
            self.chain(to, &below, format!("{indent}{turn}{label}"));
        } else {
            let arrow = match (edge.kind, self.ascii) {
                (EdgeKind::Back, false) => "↺",
                (EdgeKind::Back, true) => "back to",
                (_, false) => "→",
                (_, true) => "->",
            };
            let id = cut(&one_line(&self.graph.nodes[to].id), 60);
            let _ = writeln!(self.out, "{indent}{turn}{label}{arrow} {id}");
        }
    }

    fn text(&self, node: usize) -> String {
        let node = &self.graph.nodes[node];
        let (id, title) = (one_line(&node.id), one_line(&node.title));
        let mut parts =
            if id == title || title.is_empty() { vec![id] } else { vec![format!("{id}  {title}")] };
        parts.extend(node.lines.iter().flat_map(|l| l.lines()).map(one_line).filter(|l| !l.is_empty()));
        let mut text = cut(&parts.join(if self.ascii { " - " } else { " · " }), MAX_LINE);
        if let Some(mark) = &node.status {
            let _ = write!(text, "  {}", one_line(&mark.line(self.ascii)));
        }
        text
    }
}
