//! A side-by-side diff of two texts: removed lines on the left, added lines on the right.

use maud::{Markup, html};
use similar::{ChangeTag, DiffOp, TextDiff};

use crate::shown_text;

/// Maximum compared bytes of each text.
const MAX_COMPARED_BYTES: usize = 256 << 10;
/// Maximum shown lines.
const MAX_LINES: usize = 600;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// Maximum characters per line.
const MAX_LINE_CHARS: usize = 400;

/// A line of one side: its class, its sign, and its text.
type SideLine<'t> = (&'static str, &'static str, &'t str);

/// The diff of two untrusted texts, each with the name of its side.
pub(crate) fn text_diff(sides: [&str; 2], old: &str, new: &str) -> Markup {
    if old == new {
        return html! { p.empty { "No differences." } };
    }
    let cut = |text: &str| text[..text.floor_char_boundary(MAX_COMPARED_BYTES)].to_owned();
    let (old, new) = (cut(old), cut(new));
    if old == new {
        let size = shown_text::size(MAX_COMPARED_BYTES as u64);
        return html! { p.empty { "No differences in the first " (size) "; the rest is not compared." } };
    }
    // Comparing dissimilar texts takes long; show what was found until the timeout.
    let diff = TextDiff::configure().timeout(std::time::Duration::from_millis(500)).diff_lines(&old, &new);
    let groups = diff.grouped_ops(CONTEXT_LINES);
    let groups =
        groups.iter().map(|group| group.iter().flat_map(|op| rows_of(&diff, op)).collect::<Vec<_>>());
    let mut shown = 0;
    html! {
        div.diff tabindex="0" role="region" aria-label="Difference" {
            table.sides {
                thead { tr { @for side in sides { th scope="col" { (shown_text::line(side, 60)) } } } }
                @for group in groups {
                    tbody {
                        @for [left, right] in group {
                            @if { shown += 1; shown <= MAX_LINES } { tr { (side_cell(left)) (side_cell(right)) } }
                        }
                    }
                }
            }
            @if shown > MAX_LINES { p.more { (shown - MAX_LINES) " more lines" } }
        }
    }
}

/// Rows of one operation: a replaced line is next to its replacement.
fn rows_of<'t>(diff: &TextDiff<'t, 't, 't, str>, op: &DiffOp) -> Vec<[Option<SideLine<'t>>; 2]> {
    let mut taken = Vec::new();
    let mut added = Vec::new();
    let mut rows = Vec::new();
    for change in diff.iter_changes(op) {
        match change.tag() {
            ChangeTag::Delete => taken.push(("is-removed", "−", change.value())),
            ChangeTag::Insert => added.push(("is-added", "+", change.value())),
            ChangeTag::Equal => rows.push([Some(("", " ", change.value())); 2]),
        }
    }
    let pairs = (0..taken.len().max(added.len())).map(|n| [taken.get(n).copied(), added.get(n).copied()]);
    rows.extend(pairs);
    rows
}

fn side_cell(line: Option<SideLine<'_>>) -> Markup {
    html! {
        @match line {
            Some((class, sign, text)) => td class=(class) { span.icon { (sign) } (shown_text::line(text.trim_end_matches('\n'), MAX_LINE_CHARS)) },
            None => td.is-none {},
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_have_signs_and_stay_text() {
        let html = text_diff(["a", "<b>"], "one\ntwo <b>\n", "one\nthree <script>\nfour\n").into_string();
        for wanted in [
            "<th scope=\"col\">a</th><th scope=\"col\">&lt;b&gt;</th>",
            "<tr><td class=\"\"><span class=\"icon\"> </span>one</td><td class=\"\"><span class=\"icon\"> </span>one</td></tr>",
            "<tr><td class=\"is-removed\"><span class=\"icon\">−</span>two &lt;b&gt;</td>\
             <td class=\"is-added\"><span class=\"icon\">+</span>three &lt;script&gt;</td></tr>",
            "<tr><td class=\"is-none\"></td><td class=\"is-added\"><span class=\"icon\">+</span>four</td></tr>",
        ] {
            assert!(html.contains(wanted), "{wanted} is not in {html}");
        }
        let diff = |old: &str, new: &str| text_diff(["a", "b"], old, new).into_string();
        assert!(diff("same", "same").contains("No differences."));
        let many = "x\n".repeat(2_000);
        let html = diff("", &many);
        assert!(html.contains("1400 more lines") && html.len() < 96 << 10, "{}", html.len());
        // Text that is not compared is not reported as equal.
        let long = "x".repeat(MAX_COMPARED_BYTES);
        assert!(diff(&format!("{long}a"), &format!("{long}b")).contains("the rest is not compared"));
    }
}
