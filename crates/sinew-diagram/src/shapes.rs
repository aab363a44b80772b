//! Outlines of nodes: their size for a text, their elements, and intersections with edges.

use std::fmt::Write;

use crate::layout::{Point, Size};
use crate::model::Shape;

/// Returns the outer size of a shape for lines of these widths and the height `line`.
pub(crate) fn outer(shape: Shape, widths: &[f64], line: f64) -> Size {
    let width = widths.iter().copied().fold(24.0, f64::max);
    let height = line * widths.len().max(1) as f64;
    // Half the width of each line, and the distance of its outer edge from the centre.
    let corners = || {
        widths.iter().enumerate().map(|(number, width)| {
            let middle = line * (number as f64 + 0.5) - height / 2.0;
            (width / 2.0, middle.abs() + line / 2.0)
        })
    };
    match shape {
        Shape::Task | Shape::Box => (width + 28.0, height + 18.0),
        Shape::Terminal => (width + 36.0, height + 16.0),
        Shape::Decision => {
            let half = corners().map(|(x, y)| x + y / FLAT).fold(30.0, f64::max) + 10.0;
            (half * 2.0, half * 2.0 * FLAT)
        }
        Shape::Join => {
            let radius = corners().map(|(x, y)| x.hypot(y)).fold(16.0, f64::max) + 5.0;
            (radius * 2.0, radius * 2.0)
        }
        Shape::Fork => (width + 34.0 + height / 2.0, height + 18.0),
        Shape::Loop | Shape::Human => (width + 2.0 * LEAN + 20.0, height + 18.0),
        Shape::Map => (width + 28.0 + 2.0 * BAR, height + 18.0),
        Shape::Subworkflow => (width + 36.0, height + 26.0),
        Shape::Delay => (width + 30.0 + height / 2.0, height + 18.0),
    }
}

/// Ratio of height to width of a diamond.
const FLAT: f64 = 0.62;
/// Horizontal offset of slanted sides, px.
const LEAN: f64 = 16.0;
/// Width of the side bars of a map, px.
const BAR: f64 = 7.0;

/// Returns the outline as SVG elements that inherit the paint of their group.
pub(crate) fn outline(shape: Shape, centre: Point, (width, height): Size) -> String {
    let (left, top) = (centre.x - width / 2.0, centre.y - height / 2.0);
    let (right, bottom) = (left + width, top + height);
    let rect = |inset: f64, radius: f64| {
        format!(
            r#"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="{radius:.1}"/>"#,
            left + inset,
            top + inset,
            (width - 2.0 * inset).max(0.0),
            (height - 2.0 * inset).max(0.0)
        )
    };
    match shape {
        Shape::Terminal => rect(0.0, height / 2.0),
        Shape::Task => rect(0.0, 8.0),
        Shape::Box => rect(0.0, 1.5),
        Shape::Subworkflow => rect(0.0, 2.0) + &rect(4.0, 1.0),
        Shape::Map => {
            let (a, b) = (left + BAR, right - BAR);
            rect(0.0, 1.5)
                + &format!(r#"<path d="M{a:.1} {top:.1}V{bottom:.1}M{b:.1} {top:.1}V{bottom:.1}"/>"#)
        }
        Shape::Join => {
            format!(r#"<circle cx="{:.1}" cy="{:.1}" r="{:.1}"/>"#, centre.x, centre.y, width / 2.0)
        }
        Shape::Delay => {
            let radius = height / 2.0;
            let edge = right - radius;
            format!(
                r#"<path d="M{left:.1} {top:.1}H{edge:.1}A{radius:.1} {radius:.1} 0 0 1 {edge:.1} {bottom:.1}H{left:.1}Z"/>"#
            )
        }
        Shape::Decision | Shape::Fork | Shape::Loop | Shape::Human => {
            let mut path = String::new();
            for (number, corner) in corners(shape, centre, (width, height)).iter().enumerate() {
                let _ =
                    write!(path, "{}{:.1} {:.1}", if number == 0 { 'M' } else { 'L' }, corner.x, corner.y);
            }
            format!(r#"<path d="{path}Z" stroke-linejoin="round"/>"#)
        }
    }
}

fn corners(shape: Shape, centre: Point, (width, height): Size) -> Vec<Point> {
    let at = |x: f64, y: f64| Point { x: centre.x + x, y: centre.y + y };
    let (w, h) = (width / 2.0, height / 2.0);
    match shape {
        Shape::Decision => vec![at(0.0, -h), at(w, 0.0), at(0.0, h), at(-w, 0.0)],
        Shape::Fork => {
            let cut = h / 2.0 + 4.0;
            vec![at(-w + cut, -h), at(w - cut, -h), at(w, 0.0), at(w - cut, h), at(-w + cut, h), at(-w, 0.0)]
        }
        Shape::Loop => vec![at(-w + LEAN, -h), at(w, -h), at(w - LEAN, h), at(-w, h)],
        Shape::Human => vec![at(-w + LEAN, -h), at(w - LEAN, -h), at(w, h), at(-w, h)],
        Shape::Join => (0..24)
            .map(|n| {
                let angle = std::f64::consts::TAU * f64::from(n) / 24.0;
                at(w * angle.cos(), h * angle.sin())
            })
            .collect(),
        _ => vec![at(-w, -h), at(w, -h), at(w, h), at(-w, h)],
    }
}

/// Returns the intersection of the outline with the line from `outside` to the centre.
pub(crate) fn meet(shape: Shape, centre: Point, size: Size, outside: Point) -> Point {
    let corners = corners(shape, centre, size);
    let direction = Point { x: outside.x - centre.x, y: outside.y - centre.y };
    let mut farthest: f64 = 0.0;
    for (a, b) in corners.iter().zip(corners.iter().cycle().skip(1)) {
        // centre + t * direction = a + u * along
        let along = Point { x: b.x - a.x, y: b.y - a.y };
        let to = Point { x: a.x - centre.x, y: a.y - centre.y };
        let cross = direction.x * along.y - direction.y * along.x;
        if cross.abs() < 1e-9 {
            continue;
        }
        let t = (to.x * along.y - to.y * along.x) / cross;
        let u = (to.x * direction.y - to.y * direction.x) / cross;
        if (-1e-9..=1.0 + 1e-9).contains(&u) && t > farthest {
            farthest = t;
        }
    }
    if farthest == 0.0 {
        return centre;
    }
    Point { x: centre.x + direction.x * farthest, y: centre.y + direction.y * farthest }
}
