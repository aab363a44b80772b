//! Order of the flow: start order, cycles and predecessors of nodes.

use std::collections::{BTreeMap, BTreeSet};

use sinew_source::Span;

use super::model::{CanvasGraph, CanvasNode};
use crate::reach;

/// Returns flow nodes in start order: sources by id, then each batch of ready nodes by id.
pub(super) fn kahn<'g>(graph: &'g CanvasGraph, structural: &BTreeSet<&str>) -> Vec<&'g str> {
    let mut waits: BTreeMap<&str, usize> = graph
        .nodes
        .iter()
        .filter(|node| !structural.contains(node.id.as_str()))
        .map(|node| (node.id.as_str(), 0))
        .collect();
    let mut after: BTreeMap<&str, BTreeSet<&'g str>> = BTreeMap::new();
    for edge in graph.edges.iter().filter(|edge| !edge.link) {
        if waits.contains_key(edge.source.as_str())
            && let Some(count) = waits.get_mut(edge.target.as_str())
            && after.entry(&edge.source).or_default().insert(&edge.target)
        {
            *count += 1;
        }
    }
    let first = graph.nodes.iter().map(|node| node.id.as_str()).filter(|id| waits.get(id) == Some(&0));
    let mut order: Vec<&str> = first.collect();
    order.sort_unstable();
    let mut next = 0;
    while let Some(id) = order.get(next).copied() {
        next += 1;
        for other in after.get(id).into_iter().flatten() {
            if let Some(count) = waits.get_mut(other) {
                *count -= 1;
                if *count == 0 {
                    order.push(other);
                }
            }
        }
    }
    order
}

/// Returns the nodes on a cycle among those that cannot be ordered. Nodes after a cycle are
/// excluded.
pub(super) fn on_cycles<'g>(graph: &'g CanvasGraph, mut left: BTreeSet<&'g str>) -> Vec<&'g str> {
    loop {
        let leads_on = |id: &&str| {
            let edges = graph.place(id).into_iter().flat_map(|place| graph.edges_out_of(place));
            edges.filter(|edge| !edge.link).any(|edge| left.contains(edge.target.as_str()))
        };
        let ends: Vec<&str> = left.iter().copied().filter(|id| !leads_on(id)).collect();
        if ends.is_empty() {
            return left.into_iter().collect();
        }
        for id in ends {
            left.remove(id);
        }
    }
}

/// Returns one cycle among nodes that all lead to a cycle, from the node that is first in the file.
pub(super) fn cycle_through<'g>(graph: &'g CanvasGraph, cyclic: &[&'g str]) -> Vec<&'g str> {
    let within: BTreeSet<&str> = cyclic.iter().copied().collect();
    let next = |id: &str| {
        let edges = graph.place(id).into_iter().flat_map(|place| graph.edges_out_of(place));
        edges.filter(|edge| !edge.link).map(|edge| edge.target.as_str()).find(|id| within.contains(id))
    };
    let mut walk: Vec<&'g str> = cyclic.first().copied().into_iter().collect();
    let mut places: BTreeMap<&str, usize> = walk.iter().map(|id| (*id, 0)).collect();
    while let Some(id) = walk.last().and_then(|id| next(id)) {
        if let Some(start) = places.insert(id, walk.len()) {
            let mut cycle = walk.split_off(start);
            let first = cycle.iter().enumerate().min_by_key(|(_, id)| graph.place(id)).map_or(0, |(n, _)| n);
            cycle.rotate_left(first);
            return cycle;
        }
        walk.push(id);
    }
    walk
}

/// Nodes that run before each node. Nodes before the flow nodes of a cluster run before its structural nodes.
pub(super) struct UpstreamIndex<'g> {
    graph: &'g CanvasGraph,
    structural: &'g BTreeSet<&'g str>,
    /// Predecessors of each node: as part of the flow at its index, and as part of a cluster at its
    /// index plus the node count.
    before: Vec<Vec<usize>>,
}

impl<'g> UpstreamIndex<'g> {
    /// Indexes a graph.
    pub(super) fn of(graph: &'g CanvasGraph, structural: &'g BTreeSet<&'g str>) -> Self {
        let count = graph.nodes.len();
        let mut before = vec![Vec::new(); 2 * count];
        for edge in &graph.edges {
            let (Some(source), Some(target)) = (graph.place(&edge.source), graph.place(&edge.target)) else {
                continue;
            };
            if edge.link {
                before[count + source].push(count + target);
            } else {
                before[target].push(source);
                before[count + target].push(source);
            }
        }
        Self { graph, structural, before }
    }

    /// Returns the index where a walk from a node starts.
    fn start(&self, node: usize) -> usize {
        let is_structural = self.structural.contains(self.graph.nodes[node].id.as_str());
        if is_structural { self.graph.nodes.len() + node } else { node }
    }

    /// Returns for each reference whether a node of this id or label runs before the node that refers to it.
    pub(super) fn has(&self, references: &[(usize, Span, String)]) -> Vec<bool> {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, _, name) in references {
            let number = numbers.len();
            numbers.entry(name).or_insert(number);
        }
        let number = |name: &str| numbers.get(name).copied();
        let marks =
            |node: &CanvasNode| [number(&node.id), number(&node.label)].into_iter().flatten().collect();
        let mut all: Vec<Vec<usize>> = self.graph.nodes.iter().map(marks).collect();
        all.resize(self.before.len(), Vec::new());
        let question =
            |(node, _, name): &(usize, Span, String)| (self.start(*node), number(name).unwrap_or(0));
        reach::reaches(&self.before, &all, &references.iter().map(question).collect::<Vec<_>>())
    }

    /// Returns the labels of all nodes that run before a node, in file order.
    pub(super) fn labels(&self, node: usize) -> Vec<&'g str> {
        let mut seen = vec![false; self.before.len()];
        let mut open = vec![self.start(node)];
        while let Some(at) = open.pop() {
            for before in &self.before[at] {
                if !std::mem::replace(&mut seen[*before], true) {
                    open.push(*before);
                }
            }
        }
        self.graph
            .nodes
            .iter()
            .zip(seen)
            .filter(|(_, seen)| *seen)
            .map(|(node, _)| node.label.as_str())
            .collect()
    }
}
