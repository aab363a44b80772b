//! Two texts line by line, as a list of what was taken and what was added.

use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};

use crate::shown_text;

/// Bytes of each text that are compared.
const MAX_COMPARED_BYTES: usize = 256 << 10;
/// Lines that are shown.
const MAX_LINES: usize = 600;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// Characters of a line.
const MAX_LINE_CHARS: usize = 400;

/// The difference of two texts of others.
pub(crate) fn text_diff(old: &str, new: &str) -> Markup {
    let cut = |text: &str| text[..text.floor_char_boundary(MAX_COMPARED_BYTES)].to_owned();
    let (old, new) = (cut(old), cut(new));
    // Comparing texts without likeness takes long; what is found by then is shown.
    let diff = TextDiff::configure().timeout(std::time::Duration::from_millis(500)).diff_lines(&old, &new);
    let mut shown = 0;
    html! {
        @if old == new { p.empty { "They are the same." } } @else {
            div.diff tabindex="0" role="region" aria-label="Difference" {
                @for group in diff.grouped_ops(CONTEXT_LINES) {
                    ol.lines {
                        @for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
                            @if { shown += 1; shown <= MAX_LINES } {
                                @let (class, sign) = match change.tag() {
                                    ChangeTag::Delete => ("is-removed", "−"),
                                    ChangeTag::Insert => ("is-added", "+"),
                                    ChangeTag::Equal => ("", " "),
                                };
                                li class=(class) { span.icon { (sign) } (shown_text::line(change.value().trim_end_matches('\n'), MAX_LINE_CHARS)) }
                            }
                        }
                    }
                }
                @if shown > MAX_LINES { p.more { (shown - MAX_LINES) " more lines" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_have_signs_and_stay_text() {
        let html = text_diff("one\ntwo <b>\n", "one\nthree <script>\n").into_string();
        assert!(
            html.contains("<li class=\"is-removed\"><span class=\"icon\">−</span>two &lt;b&gt;</li>"),
            "{html}"
        );
        assert!(
            html.contains("<li class=\"is-added\"><span class=\"icon\">+</span>three &lt;script&gt;</li>"),
            "{html}"
        );
        assert!(text_diff("same", "same").into_string().contains("They are the same"));
        let many = "x\n".repeat(2_000);
        let html = text_diff("", &many).into_string();
        assert!(html.contains("1400 more lines") && html.len() < 64 << 10, "{}", html.len());
    }
}
