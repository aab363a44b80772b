//! Excerpts of drawings that are too large to read as a whole: the paths to a node, and a drawing
//! without the edges that only lead to its end.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Drawing, EdgeKind, Graph, Shape};

/// Maximum nodes of a drawing that can be read as a whole.
const MAX_READABLE_NODES: usize = 150;
/// Maximum shown edges to the end of a larger drawing.
const MAX_END_EDGES: usize = 8;

impl Drawing {
    /// Returns the node with everything that leads to it: its predecessors, their predecessors, and
    /// the edges between them. Edges that close a cycle are not followed. `None` if the drawing
    /// does not contain the node.
    #[must_use]
    pub fn paths_to(&self, id: &str) -> Option<Self> {
        let start = self.nodes.iter().find(|node| node.id == id)?;
        let mut before: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.kind != EdgeKind::Back) {
            before.entry(&edge.to).or_default().push(&edge.from);
        }
        let mut kept = BTreeSet::from([start.id.as_str()]);
        let mut open = vec![start.id.as_str()];
        while let Some(node) = open.pop() {
            let found = before.get(node).into_iter().flatten().copied();
            open.extend(found.filter(|from| kept.insert(*from)));
        }
        Some(Self {
            direction: self.direction,
            caption: self.caption.clone(),
            nodes: self.nodes.iter().filter(|node| kept.contains(node.id.as_str())).cloned().collect(),
            edges: self
                .edges
                .iter()
                .filter(|edge| kept.contains(edge.from.as_str()) && kept.contains(edge.to.as_str()))
                .cloned()
                .collect(),
        })
    }
}

impl Graph<'_> {
    /// Returns the graph without the edges to its end, and their sources and targets, if it is large
    /// and has many of them: every node without successor has such an edge, and they cross
    /// everything.
    pub(crate) fn without_end_edges(mut self) -> (Self, Vec<(usize, usize)>) {
        let mut counts = vec![0_usize; self.nodes.len()];
        for (_, to, _) in &self.edges {
            counts[*to] += 1;
        }
        let is_large = self.nodes.len() > MAX_READABLE_NODES;
        let is_end =
            |to: usize| is_large && self.nodes[to].shape == Shape::Terminal && counts[to] > MAX_END_EDGES;
        let (hidden, shown): (Vec<_>, Vec<_>) = self.edges.into_iter().partition(|(_, to, _)| is_end(*to));
        self.edges = shown;
        (self, hidden.into_iter().map(|(from, to, _)| (from, to)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::common;

    #[test]
    fn paths_to_a_node_contain_its_predecessors_only() {
        // Forks of ten that join: n0 leads to n1..n10, which lead to n11.
        let drawing = common::large(24);
        let check = |id: &str, expected: Option<Vec<usize>>| {
            let found = drawing.paths_to(id);
            let ids = |found: &Drawing| found.nodes.iter().map(|node| node.id.clone()).collect::<Vec<_>>();
            let expected = expected.map(|ids| ids.into_iter().map(|n| format!("n{n}")).collect::<Vec<_>>());
            assert_eq!(found.as_ref().map(ids), expected, "{id}");
            found.map_or(0, |found| found.edges.len())
        };
        assert_eq!(check("unknown", None), 0);
        assert_eq!(check("n0", Some(vec![0])), 0);
        assert_eq!(check("n5", Some(vec![0, 5])), 1);
        assert_eq!(check("n13", Some((0..=13).collect())), 22);
    }

    #[test]
    fn edges_that_close_a_cycle_are_no_path() {
        let drawing = common::everything();
        let found = drawing.paths_to("check_risk").unwrap();
        let ids: Vec<&str> = found.nodes.iter().map(|node| node.id.as_str()).collect();
        assert_eq!(ids, ["Start", "check_risk"]);
    }
}
