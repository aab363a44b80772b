//! Draws boxes of characters for trees: each node has at most one incoming edge, and no edge goes back.
//!
//! The layout measures along the direction of the graph and across it, so it supports both directions.

use unicode_width::UnicodeWidthStr;

use crate::model::Direction;

/// Columns between boxes in a row, and rows between boxes in a column.
const GAPS: (usize, usize) = (3, 1);

/// A box with its lines of text.
pub(crate) struct TextBox {
    pub(crate) lines: Vec<String>,
    /// Whether the box has round corners.
    pub(crate) is_round: bool,
    /// Successors, each with the label of the edge, which may be empty.
    pub(crate) next: Vec<(usize, String)>,
}

/// Characters of lines.
struct LineSet {
    /// Corners: left top, right top, left bottom, right bottom.
    round: [&'static str; 4],
    sharp: [&'static str; 4],
    horizontal: &'static str,
    vertical: &'static str,
    /// Start of a line that leaves a box downward, and to the right.
    leaving: [&'static str; 2],
    /// Arrow heads downward, and to the right.
    heads: [&'static str; 2],
    /// Junction of the trunk with a bar, downward and to the right.
    trunk: [&'static str; 2],
    /// Junction of a bar with a branch between its ends.
    branch: [&'static str; 2],
    cross: &'static str,
}

const UNICODE: LineSet = LineSet {
    round: ["╭", "╮", "╰", "╯"],
    sharp: ["┌", "┐", "└", "┘"],
    horizontal: "─",
    vertical: "│",
    leaving: ["┬", "├"],
    heads: ["▼", "►"],
    trunk: ["┴", "┤"],
    branch: ["┬", "├"],
    cross: "┼",
};

const ASCII: LineSet = LineSet {
    round: ["+", "+", "+", "+"],
    sharp: ["+", "+", "+", "+"],
    horizontal: "-",
    vertical: "|",
    leaving: ["+", "+"],
    heads: ["v", ">"],
    trunk: ["+", "+"],
    branch: ["+", "+"],
    cross: "+",
};

/// Draws the boxes as lines of text.
pub(crate) fn draw_boxes(boxes: &[TextBox], direction: Direction, ascii: bool) -> Vec<String> {
    let art = BoxArt { boxes, direction, set: if ascii { &ASCII } else { &UNICODE } };
    let mut is_entered = vec![false; boxes.len()];
    for (next, _) in boxes.iter().flat_map(|one| &one.next) {
        is_entered[*next] = true;
    }
    let roots = (0..boxes.len()).filter(|at| !is_entered[*at]).map(|root| art.branch(root, ""));
    let mut canvas = TextCanvas::default();
    let mut across = 0;
    for root in roots {
        for (at, place) in &root.places {
            art.paint(&mut canvas, *at, place.moved(0, across), &root);
        }
        across += root.across + art.gap();
    }
    canvas.lines()
}

/// Position of a box: its first cell along and across, and the cell across where lines meet it.
#[derive(Clone, Copy)]
struct BoxPosition {
    along: usize,
    across: usize,
    anchor: usize,
}

impl BoxPosition {
    const fn moved(self, along: usize, across: usize) -> Self {
        Self { along: self.along + along, across: self.across + across, anchor: self.anchor + across }
    }
}

/// A box and all its successors.
struct BoxBranch {
    /// Size across, in cells.
    across: usize,
    /// Cell across where the incoming line meets the first box.
    anchor: usize,
    /// Positions of boxes, starting with the first box.
    places: Vec<(usize, BoxPosition)>,
}

impl BoxBranch {
    fn anchor_of(&self, wanted: usize) -> usize {
        self.places.iter().find(|(at, _)| *at == wanted).map_or(0, |(_, place)| place.anchor)
    }
}

struct BoxArt<'a> {
    boxes: &'a [TextBox],
    direction: Direction,
    set: &'static LineSet,
}

impl BoxArt<'_> {
    const fn is_down(&self) -> bool {
        matches!(self.direction, Direction::TopDown)
    }

    const fn gap(&self) -> usize {
        if self.is_down() { GAPS.0 } else { GAPS.1 }
    }

    /// Converts columns and rows to lengths along and across.
    const fn turned(&self, columns: usize, rows: usize) -> (usize, usize) {
        if self.is_down() { (rows, columns) } else { (columns, rows) }
    }

    fn size(&self, at: usize) -> (usize, usize) {
        let lines = &self.boxes[at].lines;
        let columns = lines.iter().map(|line| line.width()).max().unwrap_or(0);
        self.turned(columns + 4, lines.len() + 2)
    }

    /// Returns the length of the lines between a box and its successors.
    fn link(&self, at: usize) -> usize {
        let next = &self.boxes[at].next;
        let longest = next.iter().map(|(_, label)| label.width()).max().unwrap_or(0);
        let bar = usize::from(next.len() > 1);
        match (self.is_down(), longest) {
            (true, 0) => 2 + bar,
            (true, _) => 3 + bar,
            (false, 0) => 4 + bar,
            (false, _) => 5 + bar + longest,
        }
    }

    /// Places a box, whose incoming edge has this label, and all its successors.
    fn branch(&self, at: usize, label: &str) -> BoxBranch {
        let (along, across) = self.size(at);
        let behind = along + self.link(at);
        let mut places = Vec::new();
        let (mut end, mut anchors) = (0, Vec::new());
        for (next, label) in &self.boxes[at].next {
            if !anchors.is_empty() {
                end += self.gap();
            }
            let branch = self.branch(*next, label);
            places.extend(branch.places.iter().map(|(at, place)| (*at, place.moved(behind, end))));
            anchors.push(end + branch.anchor);
            end += branch.across;
        }
        let middle = match (anchors.first(), anchors.last()) {
            (Some(first), Some(last)) => usize::midpoint(*first, *last),
            _ => across / 2,
        };
        // The label of the incoming edge needs space on both sides.
        let (_, label) = self.turned(label.width(), 1);
        let before = (across / 2).max(label / 2);
        let shift = before.saturating_sub(middle);
        let anchor = middle + shift;
        let first = BoxPosition { along: 0, across: anchor - across / 2, anchor };
        let mut all = vec![(at, first)];
        all.extend(places.into_iter().map(|(at, place)| (at, place.moved(0, shift))));
        let own_end = (first.across + across).max(anchor - label / 2 + label);
        BoxBranch { across: own_end.max(end + shift), anchor, places: all }
    }

    fn paint(&self, canvas: &mut TextCanvas, at: usize, place: BoxPosition, tree: &BoxBranch) {
        let own = tree.anchor_of(at);
        let offset = place.anchor - own;
        let next: Vec<(usize, &str)> = self.boxes[at]
            .next
            .iter()
            .map(|(to, label)| (tree.anchor_of(*to) + offset, label.as_str()))
            .collect();
        self.paint_box(canvas, at, place, !next.is_empty());
        if !next.is_empty() {
            let begin = place.along + self.size(at).0;
            self.paint_links(canvas, begin, self.link(at), place.anchor, &next);
        }
    }

    fn paint_box(&self, canvas: &mut TextCanvas, at: usize, place: BoxPosition, leaves: bool) {
        let (text, set) = (&self.boxes[at], self.set);
        let (along, across) = self.size(at);
        let (columns, rows) = self.turned(along, across);
        let (columns, rows) = if self.is_down() { (across, along) } else { (columns, rows) };
        let (x, y) = self.cell(place.along, place.across);
        let [left_top, right_top, left_bottom, right_bottom] =
            if text.is_round { set.round } else { set.sharp };
        let line = set.horizontal.repeat(columns - 2);
        canvas.put(x, y, format!("{left_top}{line}{right_top}"));
        for (row, line) in text.lines.iter().enumerate() {
            let room = columns - 2 - line.width();
            let (before, after) = (" ".repeat(room / 2), " ".repeat(room - room / 2));
            canvas.put(x, y + 1 + row, format!("{0}{before}{line}{after}{0}", set.vertical));
        }
        canvas.put(x, y + rows - 1, format!("{left_bottom}{line}{right_bottom}"));
        if leaves {
            let (x, y) = self.cell(place.along + along - 1, place.anchor);
            canvas.put(x, y, set.leaving[usize::from(!self.is_down())].to_owned());
        }
    }

    /// Paints lines from a box to its successors, over `length` cells from `begin`.
    fn paint_links(
        &self,
        canvas: &mut TextCanvas,
        begin: usize,
        length: usize,
        trunk: usize,
        next: &[(usize, &str)],
    ) {
        let (set, turn) = (self.set, usize::from(!self.is_down()));
        let (line, bar) =
            if self.is_down() { (set.vertical, set.horizontal) } else { (set.horizontal, set.vertical) };
        let mut put = |along: usize, across: usize, text: &str| {
            let (x, y) = self.cell(along, across);
            canvas.put(x, y, text.to_owned());
        };
        let is_wide = next.len() > 1;
        put(begin, trunk, line);
        if let (true, Some((first, _)), Some((last, _))) = (is_wide, next.first(), next.last()) {
            for across in *first..=*last {
                let leaves = next.iter().any(|(anchor, _)| *anchor == across);
                let [_, right_top, left_bottom, _] = set.sharp;
                let text = match (across == trunk, leaves) {
                    _ if across == *first => set.sharp[0],
                    _ if across == *last && self.is_down() => right_top,
                    _ if across == *last => left_bottom,
                    (true, true) => set.cross,
                    (true, false) => set.trunk[turn],
                    (false, true) => set.branch[turn],
                    (false, false) => bar,
                };
                put(begin + 1, across, text);
            }
        }
        let after = begin + 1 + usize::from(is_wide);
        for (anchor, label) in next {
            for along in after..begin + length - 1 {
                put(along, *anchor, line);
            }
            put(begin + length - 1, *anchor, set.heads[turn]);
            if self.is_down() && !label.is_empty() {
                put(after, anchor - label.width() / 2, label);
            } else if !label.is_empty() {
                put(after + 1, *anchor, label);
            }
        }
    }

    /// Converts lengths along and across to column and row.
    const fn cell(&self, along: usize, across: usize) -> (usize, usize) {
        if self.is_down() { (across, along) } else { (along, across) }
    }
}

/// Text at positions; later text overwrites earlier text.
#[derive(Default)]
struct TextCanvas {
    rows: Vec<Vec<(usize, String)>>,
}

impl TextCanvas {
    fn put(&mut self, column: usize, row: usize, text: String) {
        if self.rows.len() <= row {
            self.rows.resize_with(row + 1, Vec::new);
        }
        self.rows[row].push((column, text));
    }

    fn lines(&self) -> Vec<String> {
        self.rows.iter().map(|row| joined(row)).collect()
    }
}

/// Joins the texts of a row to a line.
fn joined(row: &[(usize, String)]) -> String {
    // A wide character occupies two cells, the second of which is empty.
    let mut cells: Vec<Option<String>> = Vec::new();
    for (column, text) in row {
        let mut at = *column;
        for c in text.chars() {
            let width = unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
            if width == 0 {
                if let Some(Some(cell)) = at.checked_sub(1).and_then(|before| cells.get_mut(before)) {
                    cell.push(c);
                }
                continue;
            }
            if cells.len() < at + width {
                cells.resize(at + width, Some(" ".to_owned()));
            }
            cells[at] = Some(c.to_string());
            for filled in &mut cells[at + 1..at + width] {
                *filled = None;
            }
            at += width;
        }
    }
    let line: String = cells.into_iter().flatten().collect();
    line.trim_end().to_owned()
}
