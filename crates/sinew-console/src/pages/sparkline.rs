//! Sparklines in table cells.

use maud::{Markup, html};

/// Width of a time span, and height of a sparkline.
const SPAN_WIDTH: usize = 4;
const HEIGHT: u64 = 20;
/// Minimum height of a value, so that a small one is visible next to a large one.
const MIN_VALUE_HEIGHT: u64 = 2;

/// Position of a value.
type LinePoint = (usize, u64);

/// A line of values, oldest first; spans without a value leave a gap. The label states the figures
/// as text.
pub(super) fn sparkline(values: &[Option<u64>], label: &str) -> Markup {
    let view_box = format!("0 0 {} {HEIGHT}", values.len().max(1) * SPAN_WIDTH);
    html! {
        svg.spark viewBox=(view_box) preserveAspectRatio="none" role="img" aria-label=(label) {
            title { (label) }
            @for points in parts_of_line(values) {
                @let text = points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ");
                polyline points=(text) vector-effect="non-scaling-stroke" {}
            }
        }
    }
}

/// Groups of adjacent values. A value without neighbours is as wide as its span.
fn parts_of_line(values: &[Option<u64>]) -> Vec<Vec<LinePoint>> {
    let most = values.iter().flatten().copied().max().unwrap_or_default();
    let mut parts: Vec<Vec<LinePoint>> = Vec::new();
    let mut is_behind_value = false;
    for (place, value) in values.iter().enumerate() {
        let Some(value) = value else {
            is_behind_value = false;
            continue;
        };
        let point = (place * SPAN_WIDTH + SPAN_WIDTH / 2, height_of(*value, most));
        match parts.last_mut().filter(|_| is_behind_value) {
            Some(part) => part.push(point),
            None => parts.push(vec![point]),
        }
        is_behind_value = true;
    }
    for part in &mut parts {
        if let [(x, y)] = part[..] {
            *part = vec![(x.saturating_sub(SPAN_WIDTH / 2), y), (x + SPAN_WIDTH / 2, y)];
        }
    }
    parts
}

fn height_of(value: u64, most: u64) -> u64 {
    if most == 0 {
        return HEIGHT - 1;
    }
    let share = u128::from(value) * u128::from(HEIGHT - 2) / u128::from(most);
    let share = u64::try_from(share).unwrap_or(HEIGHT - 2);
    let least = if value > 0 { MIN_VALUE_HEIGHT } else { 0 };
    HEIGHT - 1 - share.max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_part_a_line_and_small_values_are_seen() {
        assert_eq!(parts_of_line(&[]), Vec::<Vec<LinePoint>>::new());
        assert_eq!(parts_of_line(&[None, None]), Vec::<Vec<LinePoint>>::new());
        let parts = parts_of_line(&[Some(0), Some(u64::MAX), None, Some(1)]);
        assert_eq!(parts, [vec![(2, 19), (6, 1)], vec![(12, 17), (16, 17)]]);
        assert_eq!(parts_of_line(&[Some(0)]), [vec![(0, 19), (4, 19)]]);
    }

    #[test]
    fn a_line_says_its_figures() {
        let text = sparkline(&[Some(1), Some(2)], "p95 <b>").into_string();
        assert!(
            text.contains("aria-label=\"p95 &lt;b&gt;\"") && text.contains("<polyline points=\"2,10 6,1\""),
            "{text}"
        );
    }
}
