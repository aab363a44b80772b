//! A layered layout for graphs that are too large for dagre: nearly linear time, no recursion.
//!
//! The layout breaks cycles, assigns each node the layer after its last predecessor, orders layers
//! by the positions of neighbours, and moves nodes toward their neighbours. It wraps a layer that is
//! too wide into rows, so that ten thousand siblings form a block instead of a line.

use std::collections::BTreeMap;

use crate::layout::{EdgePath, ElementSizes, LayoutPositions, Point, Size};
use crate::model::Direction;

/// Gap between the nodes of a row, px.
const NODE_GAP: f64 = 28.0;
/// Gap between layers, px.
const LAYER_GAP: f64 = 56.0;
/// Gap between the rows of a wrapped layer, px.
const ROW_GAP: f64 = 22.0;
/// Minimum width of a layer that is wrapped, px.
const MIN_WRAP_WIDTH: f64 = 6_000.0;
/// Number of sweeps that order layers, and of sweeps that move nodes.
const SWEEPS: usize = 6;
/// Maximum bends of long edges, per node; further long edges are straight.
const BENDS_PER_NODE: usize = 3;
/// Width of an edge through a layer, px.
const BEND_WIDTH: f64 = 8.0;
/// Space around the members of a group, and above them for the title, px.
const GROUP_ROOM: (f64, f64) = (14.0, 30.0);

/// Places boxes and edges.
pub(crate) fn place_in_layers(sizes: &ElementSizes) -> LayoutPositions {
    let turned = |(width, height): Size| match sizes.direction {
        Direction::TopDown => (width, height),
        Direction::LeftRight => (height, width),
    };
    let boxes: Vec<Size> = sizes.nodes.iter().map(|size| turned(*size)).collect();
    let ends: Vec<(usize, usize)> = sizes.edges.iter().map(|(from, to, _)| (*from, *to)).collect();
    let mut grid = LayerGrid::of(&boxes, &ends);
    grid.order();
    grid.spread();
    let mut places = grid.places();
    if sizes.direction == Direction::LeftRight {
        let turn = |point: &mut Point| std::mem::swap(&mut point.x, &mut point.y);
        places.nodes.iter_mut().for_each(turn);
        places.edges.iter_mut().flat_map(|way| &mut way.points).for_each(turn);
    }
    for (way, (_, _, label)) in places.edges.iter_mut().zip(&sizes.edges) {
        way.label = label.map(|_| middle(&way.points));
    }
    places.groups = sizes.groups.iter().map(|(_, members)| around(members, sizes, &places.nodes)).collect();
    places
}

/// Returns the middle of an edge.
fn middle(points: &[Point]) -> Point {
    let at = |place: usize| points.get(place).copied().unwrap_or_default();
    let half = points.len() / 2;
    if points.len() % 2 == 1 {
        return at(half);
    }
    let (before, after) = (at(half.saturating_sub(1)), at(half));
    Point { x: f64::midpoint(before.x, after.x), y: f64::midpoint(before.y, after.y) }
}

/// Returns the box around the members of a group: left, top, width, height.
fn around(members: &[usize], sizes: &ElementSizes, places: &[Point]) -> [f64; 4] {
    let frames = members.iter().filter_map(|member| {
        let (place, (width, height)) = (places.get(*member)?, sizes.nodes.get(*member)?);
        Some([place.x - width / 2.0, place.y - height / 2.0, place.x + width / 2.0, place.y + height / 2.0])
    });
    let reach = frames.reduce(|one, other| {
        [one[0].min(other[0]), one[1].min(other[1]), one[2].max(other[2]), one[3].max(other[3])]
    });
    let (room, title) = GROUP_ROOM;
    reach.map_or([0.0; 4], |[left, top, right, bottom]| {
        [left - room, top - title, right - left + 2.0 * room, bottom - top + room + title]
    })
}

/// Nodes and bends of edges in layers, as cells. The first cells are the nodes.
struct LayerGrid {
    /// Width and height of each cell.
    boxes: Vec<Size>,
    /// Cells of each layer, in order.
    layers: Vec<Vec<usize>>,
    /// Neighbours of each cell in the layers above and below.
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
    /// Cells of each edge, starting with its source.
    ways: Vec<Vec<usize>>,
    x: Vec<f64>,
}

impl LayerGrid {
    fn of(boxes: &[Size], ends: &[(usize, usize)]) -> Self {
        let down = without_cycles(boxes.len(), ends);
        let rank = ranks(boxes.len(), &down);
        let count = rank.iter().max().map_or(0, |last| last + 1);
        let mut grid = Self {
            boxes: boxes.to_vec(),
            layers: vec![Vec::new(); count],
            above: vec![Vec::new(); boxes.len()],
            below: vec![Vec::new(); boxes.len()],
            ways: Vec::with_capacity(ends.len()),
            x: Vec::new(),
        };
        for node in visiting_order(boxes.len(), &down) {
            grid.layers[rank[node]].push(node);
        }
        let mut bends = boxes.len() * BENDS_PER_NODE;
        for (edge, (from, to)) in ends.iter().zip(&down) {
            let span = rank[*to].saturating_sub(rank[*from]);
            let mut way = vec![*from];
            if span > 1 && span - 1 <= bends {
                bends -= span - 1;
                for layer in rank[*from] + 1..rank[*to] {
                    way.push(grid.add_bend(layer));
                }
            }
            way.push(*to);
            for pair in way.windows(2) {
                grid.below[pair[0]].push(pair[1]);
                grid.above[pair[1]].push(pair[0]);
            }
            if edge.0 != *from {
                way.reverse();
            }
            grid.ways.push(way);
        }
        grid
    }

    fn add_bend(&mut self, layer: usize) -> usize {
        let cell = self.boxes.len();
        self.boxes.push((BEND_WIDTH, 0.0));
        self.above.push(Vec::new());
        self.below.push(Vec::new());
        self.layers[layer].push(cell);
        cell
    }

    /// Orders each layer by the mean of its neighbours, alternately from above and below.
    fn order(&mut self) {
        let mut place = vec![0.0; self.boxes.len()];
        let number = |layer: &[usize], place: &mut Vec<f64>| {
            for (at, cell) in layer.iter().enumerate() {
                place[*cell] = (at as f64 + 0.5) / layer.len() as f64;
            }
        };
        for layer in &self.layers {
            number(layer, &mut place);
        }
        for sweep in 0..SWEEPS {
            let is_down = sweep % 2 == 0;
            let neighbours = if is_down { &self.above } else { &self.below };
            let count = self.layers.len();
            for step in 0..count {
                let at = if is_down { step } else { count - 1 - step };
                let layer = &mut self.layers[at];
                let mut keyed: Vec<(f64, usize)> = layer
                    .iter()
                    .map(|cell| (mean(&neighbours[*cell], &place).unwrap_or(place[*cell]), *cell))
                    .collect();
                // The sort is stable, so cells with equal keys keep the order of the file.
                keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
                *layer = keyed.into_iter().map(|(_, cell)| cell).collect();
                number(layer, &mut place);
            }
        }
    }

    /// Assigns each cell its position in the row: in order, with gaps, and near its neighbours.
    fn spread(&mut self) {
        self.x = vec![0.0; self.boxes.len()];
        for layer in &self.layers {
            let width: f64 = layer.iter().map(|cell| self.boxes[*cell].0 + NODE_GAP).sum();
            let mut left = -width / 2.0;
            for cell in layer {
                self.x[*cell] = left + self.boxes[*cell].0 / 2.0;
                left += self.boxes[*cell].0 + NODE_GAP;
            }
        }
        let limit = self.wrap_width();
        for sweep in 0..SWEEPS {
            let is_down = sweep % 2 == 0;
            let count = self.layers.len();
            for step in 0..count {
                let at = if is_down { step } else { count - 1 - step };
                if self.width_of(at) > limit {
                    continue;
                }
                let neighbours = if is_down { &self.above } else { &self.below };
                let wanted: Vec<f64> = self.layers[at]
                    .iter()
                    .map(|cell| mean(&neighbours[*cell], &self.x).unwrap_or(self.x[*cell]))
                    .collect();
                self.settle(at, &wanted);
            }
        }
    }

    /// Moves the cells of a layer as close to the wanted positions as order and gaps permit.
    fn settle(&mut self, layer: usize, wanted: &[f64]) {
        let cells = &self.layers[layer];
        let room =
            |one: usize, other: usize| f64::midpoint(self.boxes[one].0, self.boxes[other].0) + NODE_GAP;
        let mut right = wanted.to_vec();
        for at in 1..cells.len() {
            right[at] = right[at].max(right[at - 1] + room(cells[at - 1], cells[at]));
        }
        let mut left = wanted.to_vec();
        for at in (1..cells.len()).rev() {
            left[at - 1] = left[at - 1].min(left[at] - room(cells[at - 1], cells[at]));
        }
        // Both preserve order and gaps, so their mean does too.
        for (at, cell) in cells.iter().enumerate() {
            self.x[*cell] = f64::midpoint(left[at], right[at]);
        }
    }

    fn width_of(&self, layer: usize) -> f64 {
        self.layers[layer].iter().map(|cell| self.boxes[*cell].0 + NODE_GAP).sum()
    }

    /// Returns the width limit of a layer: about twice the side of a square with the area of all nodes.
    fn wrap_width(&self) -> f64 {
        let area: f64 =
            self.boxes.iter().map(|(width, height)| (width + NODE_GAP) * (height + ROW_GAP)).sum();
        (area.sqrt() * 2.0).max(MIN_WRAP_WIDTH)
    }

    /// Returns the final positions of nodes and edges.
    fn places(mut self) -> LayoutPositions {
        let limit = self.wrap_width();
        let mut y = vec![0.0; self.boxes.len()];
        let mut top = 0.0;
        for at in 0..self.layers.len() {
            let is_wrapped = self.width_of(at) > limit;
            let rows = if is_wrapped { self.rows(at, limit) } else { vec![self.layers[at].clone()] };
            for row in rows {
                let height = row.iter().map(|cell| self.boxes[*cell].1).fold(0.0, f64::max);
                if is_wrapped {
                    let width: f64 = row.iter().map(|cell| self.boxes[*cell].0 + NODE_GAP).sum();
                    let mut left = -width / 2.0;
                    for cell in &row {
                        self.x[*cell] = left + self.boxes[*cell].0 / 2.0;
                        left += self.boxes[*cell].0 + NODE_GAP;
                    }
                }
                for cell in &row {
                    y[*cell] = top + height / 2.0;
                }
                top += height + ROW_GAP;
            }
            top += LAYER_GAP - ROW_GAP;
        }
        let point = |cell: usize| Point { x: self.x[cell], y: y[cell] };
        let real = self.boxes.len() - self.bend_count();
        LayoutPositions {
            nodes: (0..real).map(point).collect(),
            edges: self
                .ways
                .iter()
                .map(|way| EdgePath { points: way.iter().map(|cell| point(*cell)).collect(), label: None })
                .collect(),
            groups: Vec::new(),
        }
    }

    fn bend_count(&self) -> usize {
        self.ways.iter().map(|way| way.len().saturating_sub(2)).sum()
    }

    /// Returns the rows of a wrapped layer.
    fn rows(&self, layer: usize, limit: f64) -> Vec<Vec<usize>> {
        let mut rows: Vec<Vec<usize>> = Vec::new();
        let mut width = f64::INFINITY;
        for cell in &self.layers[layer] {
            let own = self.boxes[*cell].0 + NODE_GAP;
            match rows.last_mut() {
                Some(row) if width + own <= limit => row.push(*cell),
                _ => {
                    rows.push(vec![*cell]);
                    width = 0.0;
                }
            }
            width += own;
        }
        rows
    }
}

/// Returns the mean of the values of these cells; `None` if there are no cells.
fn mean(cells: &[usize], values: &[f64]) -> Option<f64> {
    (!cells.is_empty()).then(|| cells.iter().map(|cell| values[*cell]).sum::<f64>() / cells.len() as f64)
}

/// Returns the edges, with those that close a cycle reversed.
fn without_cycles(nodes: usize, ends: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut out = vec![Vec::new(); nodes];
    for (edge, (from, _)) in ends.iter().enumerate() {
        out[*from].push(edge);
    }
    let mut down = ends.to_vec();
    // 0 = not visited, 1 = on the current path, 2 = done.
    let mut state = vec![0_u8; nodes];
    for root in 0..nodes {
        if state[root] != 0 {
            continue;
        }
        state[root] = 1;
        let mut path = vec![(root, 0)];
        while let Some((node, next)) = path.last_mut() {
            let Some(edge) = out[*node].get(*next).copied() else {
                state[*node] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            let (from, to) = ends[edge];
            match state[to] {
                0 => {
                    state[to] = 1;
                    path.push((to, 0));
                }
                1 => down[edge] = (to, from),
                _ => {}
            }
        }
    }
    down
}

/// Returns the layer of each node: after its last predecessor, or without predecessors, directly before
/// its first successor.
fn ranks(nodes: usize, down: &[(usize, usize)]) -> Vec<usize> {
    let (mut out, mut open) = (vec![Vec::new(); nodes], vec![0_usize; nodes]);
    for (from, to) in down {
        out[*from].push(*to);
        open[*to] += 1;
    }
    let sources: Vec<usize> = (0..nodes).filter(|node| open[*node] == 0).collect();
    let mut rank = vec![0_usize; nodes];
    let mut ready = sources.clone();
    while let Some(node) = ready.pop() {
        for to in &out[node] {
            rank[*to] = rank[*to].max(rank[node] + 1);
            open[*to] -= 1;
            if open[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    for node in sources {
        if let Some(first) = out[node].iter().map(|to| rank[*to]).min() {
            rank[node] = first.saturating_sub(1);
        }
    }
    rank
}

/// Returns, of edges that are not placed, one for each target: that from the deepest source.
pub(crate) fn deepest_edges(
    nodes: usize,
    placed: &[(usize, usize, Option<Size>)],
    hidden: &[(usize, usize)],
) -> Vec<(usize, usize, Option<Size>)> {
    let ends: Vec<(usize, usize)> = placed.iter().map(|(from, to, _)| (*from, *to)).collect();
    let rank = if hidden.is_empty() { Vec::new() } else { ranks(nodes, &without_cycles(nodes, &ends)) };
    let mut deepest: BTreeMap<usize, usize> = BTreeMap::new();
    for (from, to) in hidden {
        let known = deepest.entry(*to).or_insert(*from);
        if rank[*from] > rank[*known] {
            *known = *from;
        }
    }
    deepest.into_iter().map(|(to, from)| (from, to, None)).collect()
}

/// Returns nodes in the order of a walk along the edges, so that branches start side by side.
fn visiting_order(nodes: usize, down: &[(usize, usize)]) -> Vec<usize> {
    let (mut out, mut has_before) = (vec![Vec::new(); nodes], vec![false; nodes]);
    for (from, to) in down {
        out[*from].push(*to);
        has_before[*to] = true;
    }
    let roots = (0..nodes).filter(|node| !has_before[*node]).chain(0..nodes);
    let (mut seen, mut order) = (vec![false; nodes], Vec::with_capacity(nodes));
    for root in roots {
        let mut path = vec![root];
        while let Some(node) = path.pop() {
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            order.push(node);
            path.extend(out[node].iter().rev().copied().filter(|to| !seen[*to]));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(nodes: usize, edges: Vec<(usize, usize)>, direction: Direction) -> ElementSizes {
        ElementSizes {
            direction,
            nodes: (0..nodes).map(|n| (80.0 + (n % 7) as f64 * 20.0, 40.0 + (n % 3) as f64 * 18.0)).collect(),
            edges: edges.into_iter().map(|(from, to)| (from, to, None)).collect(),
            groups: Vec::new(),
        }
    }

    fn check(name: &str, sizes: &ElementSizes) {
        let places = place_in_layers(sizes);
        assert_eq!(places.nodes.len(), sizes.nodes.len(), "{name}");
        assert_eq!(places.edges.len(), sizes.edges.len(), "{name}");
        // Boxes that overlap vertically must not overlap horizontally.
        let mut boxes: Vec<(Point, Size)> = places.nodes.iter().copied().zip(sizes.nodes.clone()).collect();
        boxes.sort_by(|one, other| one.0.x.total_cmp(&other.0.x));
        for (at, (one, (width, height))) in boxes.iter().enumerate() {
            assert!(one.x.is_finite() && one.y.is_finite(), "{name}");
            for (other, (w, h)) in boxes[at + 1..].iter().take(400) {
                let is_apart = (other.x - one.x).abs() + 0.01 >= (width + w) / 2.0
                    || (other.y - one.y).abs() + 0.01 >= (height + h) / 2.0;
                assert!(is_apart, "{name}: two nodes overlap at {one:?} and {other:?}");
            }
        }
        for (way, (from, to, _)) in places.edges.iter().zip(&sizes.edges) {
            assert_eq!(way.points.first(), places.nodes.get(*from), "{name}");
            assert_eq!(way.points.last(), places.nodes.get(*to), "{name}");
        }
    }

    #[test]
    fn boxes_are_apart_and_edges_meet_them() {
        let grid = |side: usize| -> Vec<(usize, usize)> {
            (0..side * side)
                .flat_map(|n| [(n, n + side), (n, n + 1)])
                .filter(|(from, to)| *to < side * side && (to - from != 1 || !to.is_multiple_of(side)))
                .collect()
        };
        for direction in [Direction::TopDown, Direction::LeftRight] {
            check("none", &sizes(0, vec![], direction));
            check("one", &sizes(1, vec![], direction));
            check("chain", &sizes(300, (1..300).map(|n| (n - 1, n)).collect(), direction));
            check("cycle", &sizes(3, vec![(0, 1), (1, 2), (2, 0)], direction));
            check("twice", &sizes(2, vec![(0, 1), (0, 1), (1, 0)], direction));
            check("star", &sizes(1_000, (1..999).flat_map(|n| [(0, n), (n, 999)]).collect(), direction));
            check("grid", &sizes(400, grid(20), direction));
            check("skips", &sizes(60, (1..60).flat_map(|n| [(n - 1, n), (0, n)]).collect(), direction));
            check("apart", &sizes(50, vec![(0, 1), (10, 11)], direction));
        }
    }

    #[test]
    fn siblings_without_number_are_a_block() {
        let wide = sizes(10_001, (1..10_001).map(|n| (0, n)).collect(), Direction::TopDown);
        let places = place_in_layers(&wide);
        let reach = |of: fn(&Point) -> f64| {
            let values: Vec<f64> = places.nodes.iter().map(of).collect();
            values.iter().copied().fold(f64::MIN, f64::max) - values.iter().copied().fold(f64::MAX, f64::min)
        };
        let (width, height) = (reach(|point| point.x), reach(|point| point.y));
        assert!(width / height < 8.0 && height / width < 8.0, "{width} by {height}");
    }

    #[test]
    fn order_takes_crossings_out() {
        // Two chains whose middle nodes are listed in reverse order.
        let straight = sizes(6, vec![(0, 3), (1, 2), (3, 5), (2, 4)], Direction::TopDown);
        let places = place_in_layers(&straight);
        let is_left = |one: usize, other: usize| places.nodes[one].x < places.nodes[other].x;
        assert_eq!(is_left(0, 1), is_left(3, 2));
        assert_eq!(is_left(3, 2), is_left(5, 4));
    }
}
