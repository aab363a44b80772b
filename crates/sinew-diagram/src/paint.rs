//! Paints SVG with plain attributes at the positions of the layout.
//!
//! Uses no script, style sheet, link, foreign object or reference by id, so that the SVG works as an
//! image, inline under a strict content security policy, twice in one page, and in resvg.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::layout::{self, EdgePath, ElementSizes, LayoutPositions, Point, Size};
use crate::model::{
    Direction, DrawError, Drawing, DrawingCaption, DrawnEdge, DrawnNode, EdgeKind, Graph, Shape, Status,
};
use crate::names::{one_line, xml};
use crate::theme::DrawingTheme;
use crate::{MAX_NODES, fonts, shapes, sockets};

/// Font size and line height of a node, px.
const TEXT: (f64, f64) = (13.0, 18.0);
/// Font size and line height of a quiet node, px.
const QUIET_TEXT: (f64, f64) = (10.5, 14.0);
/// Maximum text width of a quiet node, px.
const MAX_QUIET_WIDTH: f64 = 150.0;
/// Font size of edges and groups, px.
const SMALL: f64 = 11.5;
/// Margin around the drawing, px.
const MARGIN: f64 = 12.0;
/// Maximum lines of text in a node; longer text is truncated.
const MAX_LINES: usize = 7;

/// Returns the drawing as an SVG document, safe to embed as an image or inline.
pub fn svg(drawing: &Drawing) -> Result<String, DrawError> {
    svg_in(drawing, DrawingTheme::Light)
}

/// As [`svg`], in a theme.
pub fn svg_in(drawing: &Drawing, theme: DrawingTheme) -> Result<String, DrawError> {
    let graph = Graph::of(drawing);
    let (nodes, edges) = (graph.nodes.len(), graph.edges.len());
    if nodes > MAX_NODES || edges > 2 * MAX_NODES {
        return Err(DrawError::TooLarge { nodes, edges, limit: MAX_NODES });
    }
    let blocks: Vec<TextBlock> = graph.nodes.iter().map(|node| TextBlock::of(node)).collect();
    let labels: Vec<Vec<String>> = graph.edges.iter().map(|(_, _, edge)| edge_lines(edge)).collect();
    let sizes = sizes(drawing, &graph, &blocks, &labels);
    let places = if nodes == 0 {
        LayoutPositions { nodes: Vec::new(), edges: Vec::new(), groups: Vec::new() }
    } else {
        layout::place(&sizes)?
    };
    Ok(theme.apply(
        SvgPainter { direction: drawing.direction, ..SvgPainter::default() }
            .document(drawing, &graph, &blocks, &labels, &places),
    ))
}

/// Wrapped text of a node, with the size of its outline.
pub(crate) struct TextBlock {
    /// Lines, and whether each is bold.
    pub(crate) lines: Vec<(String, bool)>,
    pub(crate) outer: Size,
    /// Font size and line height, px.
    text: (f64, f64),
}

impl TextBlock {
    pub(crate) fn of(node: &DrawnNode) -> Self {
        if node.is_quiet {
            return Self::quiet(node);
        }
        let widest = if matches!(node.shape, Shape::Decision | Shape::Join) { 170.0 } else { 250.0 };
        let bold = node.shape != Shape::Terminal;
        let mut lines: Vec<(String, bool)> =
            wrap(&node.title, widest, TEXT.0, bold, 2).into_iter().map(|l| (l, bold)).collect();
        for line in node.lines.iter().flat_map(|l| l.lines()) {
            let room = MAX_LINES.saturating_sub(lines.len());
            lines.extend(wrap(line, widest, TEXT.0, false, room.min(3)).into_iter().map(|l| (l, false)));
        }
        // Never truncate the id, because commands need all of it.
        let id = node.id_line().map(|id| wrap(id, widest, TEXT.0, false, MAX_LINES)).unwrap_or_default();
        lines.extend(id.into_iter().map(|line| (line, false)));
        if let Some(mark) = &node.status {
            lines.extend(wrap(&mark.line(false), widest, TEXT.0, false, 2).into_iter().map(|l| (l, false)));
        }
        let widths: Vec<f64> = lines.iter().map(|(l, bold)| fonts::width(l, TEXT.0, *bold)).collect();
        Self { outer: shapes::outer(node.shape, &widths, TEXT.1), lines, text: TEXT }
    }

    /// Returns one small line: the icon of the state, and the title.
    fn quiet(node: &DrawnNode) -> Self {
        let icon =
            node.status.as_ref().map(|mark| format!("{} ", mark.status.look().icon)).unwrap_or_default();
        let lines = wrap(&format!("{icon}{}", node.title), MAX_QUIET_WIDTH, QUIET_TEXT.0, false, 1);
        let widths: Vec<f64> = lines.iter().map(|line| fonts::width(line, QUIET_TEXT.0, false)).collect();
        let outer = shapes::outer(node.shape, &widths, QUIET_TEXT.1);
        Self { outer, lines: lines.into_iter().map(|line| (line, false)).collect(), text: QUIET_TEXT }
    }
}

pub(crate) fn edge_lines(edge: &DrawnEdge) -> Vec<String> {
    wrap(&edge.text(false), 180.0, SMALL, true, 3)
}

/// Wraps text to lines of at most `widest` px. Breaks long words, and truncates after `most` lines.
fn wrap(text: &str, widest: f64, size: f64, bold: bool, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut length = 0.0;
    let width = |text: &str| fonts::width(text, size, bold);
    let space = width(" ");
    // Limit the input to far more than fits.
    let text: String = one_line(text).chars().take(600).collect();
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let whole = width(word);
        let mut gap = if line.is_empty() { 0.0 } else { space };
        if gap > 0.0 && length + gap + whole > widest {
            lines.push(std::mem::take(&mut line));
            (length, gap) = (0.0, 0.0);
        }
        if gap > 0.0 {
            line.push(' ');
            length += gap;
        }
        for part in parts(word, whole <= widest) {
            let step = width(part);
            if length + step > widest && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
                length = 0.0;
            }
            if step <= widest {
                line.push_str(part);
                length += step;
                continue;
            }
            for c in part.chars() {
                let step = width(c.encode_utf8(&mut [0; 4]));
                if length + step > widest {
                    lines.push(std::mem::take(&mut line));
                    length = 0.0;
                }
                line.push(c);
                length += step;
            }
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            while width(last) + width("…") > widest && last.pop().is_some() {}
            last.push('…');
        }
    }
    lines
}

/// Returns a word as one part, or if it must break, as parts that end in a separator.
fn parts(word: &str, whole: bool) -> Vec<&str> {
    if whole { vec![word] } else { word.split_inclusive(['.', '_', '-', '/', ':', ',']).collect() }
}

pub(crate) fn sizes(
    drawing: &Drawing,
    graph: &Graph<'_>,
    blocks: &[TextBlock],
    labels: &[Vec<String>],
) -> ElementSizes {
    ElementSizes {
        direction: drawing.direction,
        nodes: blocks
            .iter()
            .zip(&graph.edges_to_self())
            .map(|(block, loops)| {
                let (width, height) = block.outer;
                match (loops, drawing.direction) {
                    (false, _) => (width, height),
                    (true, Direction::TopDown) => (width + 2.0 * SELF_LOOP, height),
                    (true, Direction::LeftRight) => (width, height + 2.0 * SELF_LOOP),
                }
            })
            .collect(),
        edges: graph
            .edges
            .iter()
            .zip(labels)
            .filter(|((from, to, _), _)| from != to)
            .map(|((from, to, _), lines)| (*from, *to, label_size(lines)))
            .collect(),
        groups: graph
            .groups
            .iter()
            .map(|(title, members)| {
                ((fonts::width(&group_title(title), SMALL, true) + 12.0, 18.0), members.clone())
            })
            .collect(),
    }
}

pub(crate) fn group_title(title: &str) -> String {
    wrap(title, 300.0, SMALL, true, 1).into_iter().next().unwrap_or_default()
}

/// Number of outlines behind that of a stack, and their offset, px.
const STACK: (u8, f64) = (2, 4.0);
/// Extent of an edge from a node to itself, px.
const SELF_LOOP: f64 = 30.0;

impl Graph<'_> {
    fn edges_to_self(&self) -> Vec<bool> {
        let mut loops = vec![false; self.nodes.len()];
        for (from, to, _) in &self.edges {
            if from == to {
                loops[*from] = true;
            }
        }
        loops
    }
}

pub(crate) fn label_size(lines: &[String]) -> Option<Size> {
    let width = lines.iter().map(|l| fonts::width(l, SMALL, true)).reduce(f64::max)?;
    Some((width + 8.0, 15.0 * lines.len() as f64 + 4.0))
}

/// Collects elements and their extent.
#[derive(Default)]
struct SvgPainter {
    out: String,
    reach: Option<[f64; 4]>,
    direction: Direction,
}

impl SvgPainter {
    fn document(
        mut self,
        drawing: &Drawing,
        graph: &Graph<'_>,
        blocks: &[TextBlock],
        labels: &[Vec<String>],
        places: &LayoutPositions,
    ) -> String {
        for ((title, _), place) in graph.groups.iter().zip(&places.groups) {
            self.group(title, *place);
        }
        let mut ways = places.edges.iter();
        let mut texts = Vec::new();
        for ((from, to, edge), lines) in graph.edges.iter().zip(labels) {
            let end = |n: usize| (graph.nodes[n].shape, places.nodes[n], blocks[n].outer);
            let way = if from == to {
                self_loop(drawing.direction, end(*from), label_size(lines))
            } else {
                match ways.next() {
                    Some(way) => joined(way, end(*from), end(*to)),
                    None => continue,
                }
            };
            self.edge(edge, &way);
            texts.push((edge, way.label, lines));
        }
        for ((node, block), place) in graph.nodes.iter().zip(blocks).zip(&places.nodes) {
            self.node(node, block, *place);
        }
        // Labels last, so that nothing covers them.
        for (edge, place, lines) in texts {
            self.label(edge, place, lines);
        }
        if let Some(caption) = &drawing.caption {
            self.legend(graph);
            self.caption(caption);
        }
        self.finish(graph, drawing.caption.as_ref())
    }

    /// Writes title and lines above the painted elements.
    fn caption(&mut self, caption: &DrawingCaption) {
        let [left, top, ..] = self.reach.unwrap_or_default();
        let texts: Vec<String> =
            caption.texts().flat_map(|text| wrap(&text, 900.0, TEXT.0, true, 2)).collect();
        let first = top - 10.0 - TEXT.1 * texts.len() as f64;
        for (number, text) in texts.iter().enumerate() {
            let (y, is_title) = (first + TEXT.1 * (number as f64 + 0.8), number == 0);
            self.reach(left, first, left + fonts::width(text, TEXT.0, true), y);
            let (weight, fill) =
                if is_title { (r#" font-weight="bold""#, "#1f2328") } else { ("", "#57606a") };
            let _ = write!(
                self.out,
                r#"<text class="caption" x="{left:.1}" y="{y:.1}" font-size="{}" fill="{fill}"{weight}>{}</text>"#,
                TEXT.0,
                xml(text)
            );
        }
    }

    /// Paints a sample of each state in the drawing below the painted elements.
    fn legend(&mut self, graph: &Graph<'_>) {
        let is_there = |status: &Status| {
            graph.nodes.iter().any(|node| node.status.as_ref().is_some_and(|mark| mark.status == *status))
        };
        let [left, _, _, bottom] = self.reach.unwrap_or_default();
        let (mut x, y) = (left, bottom + 16.0);
        for look in Status::ALL.into_iter().filter(is_there).map(Status::look) {
            let text = format!("{} {}", look.icon, look.word);
            let width = fonts::width(&text, SMALL, false) + 14.0;
            self.reach(x, y, x + width, y + 18.0);
            let dash = if look.dashed { r#" stroke-dasharray="5 4""# } else { "" };
            let _ = write!(
                self.out,
                concat!(
                    r#"<g class="legend"><rect x="{:.1}" y="{:.1}" width="{:.1}" height="18" rx="4" fill="{}" "#,
                    r#"stroke="{}" stroke-width="{}"{}/><text x="{:.1}" y="{:.1}" font-size="{}" fill="{}">{}</text></g>"#
                ),
                x,
                y,
                width,
                look.fill,
                look.stroke,
                look.width,
                dash,
                x + 7.0,
                y + 13.0,
                SMALL,
                look.text,
                text
            );
            x += width + 8.0;
        }
    }

    fn finish(self, graph: &Graph<'_>, caption: Option<&DrawingCaption>) -> String {
        let [left, top, right, bottom] = self.reach.unwrap_or([0.0, 0.0, 40.0, 20.0]);
        let (left, top) = (left - MARGIN, top - MARGIN);
        let (width, height) = (right + MARGIN - left, bottom + MARGIN - top);
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" "#,
                r#"viewBox="{left:.1} {top:.1} {width:.1} {height:.1}" role="img" font-family="{font}">"#,
                "<title>{title}</title><desc>{desc}</desc>",
                r##"<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" fill="#ffffff"/>"##,
                "{body}</svg>\n"
            ),
            width = width,
            height = height,
            left = left,
            top = top,
            font = fonts::FAMILIES,
            title =
                xml(&caption.map_or_else(|| "Workflow graph".to_owned(), |caption| one_line(&caption.title))),
            desc = xml(&describe(graph)),
            body = self.out,
        )
    }

    fn reach(&mut self, left: f64, top: f64, right: f64, bottom: f64) {
        let [a, b, c, d] = self.reach.unwrap_or([left, top, right, bottom]);
        self.reach = Some([a.min(left), b.min(top), c.max(right), d.max(bottom)]);
    }

    fn group(&mut self, title: &str, [left, top, width, height]: [f64; 4]) {
        self.reach(left, top, left + width, top + height);
        let _ = write!(
            self.out,
            concat!(
                r##"<g class="group"><rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="6" fill="#f6f8fa" "##,
                r##"stroke="#d0d7de"/><text x="{:.1}" y="{:.1}" font-size="{}" font-weight="bold" fill="#57606a">{}</text></g>"##
            ),
            left,
            top,
            width,
            height,
            left + 9.0,
            top + 17.0,
            SMALL,
            xml(&group_title(title))
        );
    }

    fn node(&mut self, node: &DrawnNode, block: &TextBlock, place: Point) {
        let (width, height) = block.outer;
        self.reach(
            place.x - width / 2.0,
            place.y - height / 2.0,
            place.x + width / 2.0,
            place.y + height / 2.0,
        );
        let paint = SvgPaint::of(node);
        let class = node.status.as_ref().map_or("", |mark| mark.status.look().word);
        let quiet = if node.is_quiet { "quiet " } else { "" };
        let mut told = vec![node.title.clone()];
        told.extend(node.lines.iter().cloned());
        told.extend(node.status.as_ref().map(|mark| mark.line(false)));
        let told: Vec<String> = told.iter().map(|l| one_line(l)).filter(|l| !l.is_empty()).collect();
        let outlines = self.outlines(node, place, block.outer);
        let _ = write!(
            self.out,
            concat!(
                r#"<g class="node {quiet}{class}" data-node="{id}"><title>{told}</title>"#,
                r#"<g fill="{fill}" stroke="{stroke}" stroke-width="{width}"{dash}>{outline}</g>"#,
                r#"<text font-size="{size}" fill="{text}" text-anchor="middle">"#
            ),
            quiet = quiet,
            class = class,
            id = xml(&node.id),
            told = xml(&told.join(", ")),
            fill = paint.fill,
            stroke = paint.stroke,
            width = paint.width,
            dash = if paint.dashed { r#" stroke-dasharray="5 4""# } else { "" },
            outline = outlines,
            size = block.text.0,
            text = paint.text,
        );
        // From the centre half a line up, and down to the baseline.
        let (size, step) = block.text;
        let first = place.y - step * (block.lines.len() as f64 - 1.0) / 2.0 + size * 0.36;
        // The round end of the delay shifts its visual centre.
        let x = if node.shape == Shape::Delay { place.x - 4.0 } else { place.x };
        for (number, (line, bold)) in block.lines.iter().enumerate() {
            let y = first + step * number as f64;
            let weight = if *bold { r#" font-weight="bold""# } else { "" };
            let _ = write!(self.out, r#"<tspan x="{x:.1}" y="{y:.1}"{weight}>{}</tspan>"#, xml(line));
        }
        self.out.push_str("</text>");
        self.out.push_str(&sockets::paint(&node.sockets, self.direction, (place.x, place.y), block.outer));
        self.out.push_str("</g>");
    }

    /// Returns the outline of a node; a stack has two more behind it.
    fn outlines(&mut self, node: &DrawnNode, place: Point, size: Size) -> String {
        let mut all = String::new();
        for behind in (1..=STACK.0).rev().filter(|_| node.is_stack) {
            let shift = f64::from(behind) * STACK.1;
            let at = Point { x: place.x + shift, y: place.y + shift };
            self.reach(at.x, at.y, at.x + size.0 / 2.0, at.y + size.1 / 2.0);
            all += &shapes::outline(node.shape, at, size);
        }
        all + &shapes::outline(node.shape, place, size)
    }

    fn edge(&mut self, edge: &DrawnEdge, way: &EdgePath) {
        let (Some(tip), true) = (way.points.last().copied(), way.points.len() > 1) else {
            return;
        };
        for point in &way.points {
            self.reach(point.x, point.y, point.x, point.y);
        }
        let (stroke, width) = match edge.taken {
            Some(0) => ("#afb8c1", 1.2),
            Some(_) => ("#1f2328", 2.2),
            None => ("#57606a", 1.4),
        };
        let dash = match (edge.kind, edge.taken) {
            (EdgeKind::Attach, _) => r#" stroke-dasharray="2 4""#,
            (EdgeKind::Back, _) => r#" stroke-dasharray="7 4""#,
            (EdgeKind::Flow, Some(0)) => r#" stroke-dasharray="4 4""#,
            (EdgeKind::Flow, _) => "",
        };
        let head = 7.0 + width;
        let before = way.points[way.points.len() - 2];
        let length = (tip.x - before.x).hypot(tip.y - before.y).max(1e-6);
        let (dx, dy) = ((tip.x - before.x) / length, (tip.y - before.y) / length);
        let base = Point { x: tip.x - dx * head, y: tip.y - dy * head };
        let half = head * 0.42;
        let mut points = way.points.clone();
        if let Some(last) = points.last_mut() {
            // End the line inside the arrow head, to keep the tip sharp.
            *last = Point { x: tip.x - dx * head * 0.8, y: tip.y - dy * head * 0.8 };
        }
        let _ = write!(
            self.out,
            concat!(
                r#"<g class="edge" data-from="{}" data-to="{}"><path d="{}" fill="none" stroke="{stroke}" stroke-width="{width}"{dash}/>"#,
                r#"<path d="M{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}Z" fill="{stroke}"/></g>"#
            ),
            xml(&edge.from),
            xml(&edge.to),
            curve(&points),
            tip.x,
            tip.y,
            base.x - dy * half,
            base.y + dx * half,
            base.x + dy * half,
            base.y - dx * half,
            stroke = stroke,
            width = width,
            dash = dash,
        );
    }

    fn label(&mut self, edge: &DrawnEdge, place: Option<Point>, lines: &[String]) {
        let (Some(place), Some((width, height))) = (place, label_size(lines)) else {
            return;
        };
        let (left, top) = (place.x - width / 2.0, place.y - height / 2.0);
        self.reach(left, top, left + width, top + height);
        let (fill, weight) = match edge.taken {
            Some(0) => ("#6e7781", ""),
            Some(_) => ("#1f2328", r#" font-weight="bold""#),
            None => ("#32383f", ""),
        };
        let _ = write!(
            self.out,
            concat!(
                r##"<g class="label"><rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="3" fill="#ffffff" fill-opacity="0.92"/>"##,
                r#"<text font-size="{}" fill="{}" text-anchor="middle"{}>"#
            ),
            left, top, width, height, SMALL, fill, weight
        );
        for (number, line) in lines.iter().enumerate() {
            let y = top + 2.0 + 15.0 * number as f64 + 11.5;
            let _ = write!(self.out, r#"<tspan x="{:.1}" y="{y:.1}">{}</tspan>"#, place.x, xml(line));
        }
        self.out.push_str("</text></g>");
    }
}

struct SvgPaint {
    fill: &'static str,
    stroke: Cow<'static, str>,
    text: &'static str,
    width: f64,
    dashed: bool,
}

impl SvgPaint {
    /// Returns the paint of the state; without an execution, ends are dark, choices and joins tinted,
    /// work light.
    fn of(node: &DrawnNode) -> Self {
        if let Some(mark) = &node.status {
            let look = mark.status.look();
            return Self {
                fill: look.fill,
                stroke: look.stroke.into(),
                text: look.text,
                width: look.width,
                dashed: look.dashed,
            };
        }
        let (fill, stroke, text) = match node.shape {
            Shape::Terminal => ("#424a53", "#424a53", "#ffffff"),
            Shape::Decision | Shape::Loop => ("#eef1fb", "#5a6ea8", "#1f2328"),
            Shape::Join | Shape::Fork | Shape::Map => ("#eef6f7", "#4a808a", "#1f2328"),
            Shape::Human | Shape::Delay => ("#fbf5e6", "#94783a", "#1f2328"),
            Shape::Task | Shape::Box | Shape::Subworkflow => ("#f6f8fa", "#57606a", "#1f2328"),
        };
        let (stroke, width) = match node.color {
            Some(color) => (color.to_string().into(), 2.0),
            None => (stroke.into(), 1.4),
        };
        Self { fill, stroke, text, width, dashed: false }
    }
}

/// Returns the path with its ends on the outlines of the nodes.
pub(crate) fn joined(way: &EdgePath, from: (Shape, Point, Size), to: (Shape, Point, Size)) -> EdgePath {
    let mut points = way.points.clone();
    let count = points.len();
    if count < 2 {
        points = vec![from.1, to.1];
    }
    let count = points.len().max(count);
    // A path of two points has no inner point to aim at: use the centres.
    let (second, last_but_one) = if count == 2 { (to.1, from.1) } else { (points[1], points[count - 2]) };
    points[0] = shapes::meet(from.0, from.1, from.2, second);
    points[count - 1] = shapes::meet(to.0, to.1, to.2, last_but_one);
    EdgePath { points, label: way.label }
}

/// Returns the path of an edge from a node to itself, on a side across the graph's direction.
pub(crate) fn self_loop(
    direction: Direction,
    (shape, centre, size): (Shape, Point, Size),
    label: Option<Size>,
) -> EdgePath {
    let (width, height) = size;
    let at = |x: f64, y: f64| Point { x: centre.x + x, y: centre.y + y };
    let (wide, high) = label.unwrap_or_default();
    let (out, label_at) = match direction {
        Direction::TopDown => {
            let (out, half) = (width / 2.0 + SELF_LOOP, height / 2.5);
            ([at(out - 8.0, -half), at(out, 0.0), at(out - 8.0, half)], at(out + wide / 2.0 - 6.0, 0.0))
        }
        Direction::LeftRight => {
            let (out, half) = (-height / 2.0 - SELF_LOOP, width / 6.0);
            ([at(-half, out + 8.0), at(0.0, out), at(half, out + 8.0)], at(0.0, out - high / 2.0 + 6.0))
        }
    };
    // Aim from the sides of the loop at the outline, to meet slanted sides too.
    let ends = [out[0], out[2]].map(|p| shapes::meet(shape, centre, size, p));
    EdgePath { points: vec![ends[0], out[0], out[1], out[2], ends[1]], label: label.map(|_| label_at) }
}

/// Returns a B-spline along the points, from the first to the last.
fn curve(points: &[Point]) -> String {
    let mut path = String::new();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return path;
    };
    let _ = write!(path, "M{:.1} {:.1}", first.x, first.y);
    if points.len() > 2 {
        let blend = |a: Point, b: Point, k: f64| Point { x: a.x + (b.x - a.x) * k, y: a.y + (b.y - a.y) * k };
        let start = blend(points[0], points[1], 1.0 / 6.0);
        let _ = write!(path, "L{:.1} {:.1}", start.x, start.y);
        for three in points.windows(3) {
            let (a, b, c) = (three[0], three[1], three[2]);
            let leave = blend(a, b, 1.0 / 3.0);
            let arrive = blend(a, b, 2.0 / 3.0);
            let end = Point { x: (a.x + 4.0 * b.x + c.x) / 6.0, y: (a.y + 4.0 * b.y + c.y) / 6.0 };
            let _ = write!(
                path,
                "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
                leave.x, leave.y, arrive.x, arrive.y, end.x, end.y
            );
        }
        let (a, b) = (points[points.len() - 2], *last);
        let (leave, arrive) = (blend(a, b, 1.0 / 3.0), blend(a, b, 2.0 / 3.0));
        let end = blend(a, b, 5.0 / 6.0);
        let _ = write!(
            path,
            "C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
            leave.x, leave.y, arrive.x, arrive.y, end.x, end.y
        );
    }
    let _ = write!(path, "L{:.1} {:.1}", last.x, last.y);
    path
}

/// Returns a description of the drawing for screen readers.
fn describe(graph: &Graph<'_>) -> String {
    let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let mut states: BTreeMap<Status, usize> = BTreeMap::new();
    for mark in graph.nodes.iter().filter_map(|node| node.status.as_ref()) {
        *states.entry(mark.status).or_default() += 1;
    }
    let states: Vec<String> =
        states.iter().map(|(status, n)| format!("{n} {}", status.look().word)).collect();
    let states = if states.is_empty() { String::new() } else { format!(": {}", states.join(", ")) };
    format!("{}, {}{states}", count(graph.nodes.len(), "node"), count(graph.edges.len(), "edge"))
}
