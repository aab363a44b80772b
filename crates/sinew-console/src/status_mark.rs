//! Status as colour, icon and word.

use maud::{Markup, html};

use crate::shown_text;

/// Statuses of executions and nodes with their icons, which are the same as in drawings.
const ICONS: [(&str, &str); 9] = [
    ("planned", "○"),
    ("queued", "○"),
    ("running", "►"),
    ("succeeded", "✓"),
    ("failed", "✗"),
    ("skipped", "↷"),
    ("cancelled", "⊘"),
    ("waiting", "◷"),
    ("paused", "‖"),
];

/// The icon of a status, and the class with its colour.
pub(crate) fn icon_of(word: &str) -> (&'static str, &'static str) {
    ICONS.iter().find(|(known, _)| *known == word).map_or(("unknown", "?"), |(known, icon)| (known, icon))
}

/// A status.
pub(crate) fn status_mark(word: &str) -> Markup {
    mark_like(word, word)
}

/// Another word with the colour and icon of a status.
pub(crate) fn mark_like(status: &str, word: &str) -> Markup {
    let (class, icon) = icon_of(status);
    html! {
        span class={ "status is-" (class) } {
            span.icon aria-hidden="true" { (icon) }
            (shown_text::line(word, 20))
        }
    }
}
