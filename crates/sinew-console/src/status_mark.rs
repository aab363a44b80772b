//! Status as colour, icon and word.

use maud::{Markup, html};
use sinew_documents::execution_status::ExecutionStatus;
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words::status_word;

use crate::shown_text;

/// A status of an execution or of a node. Its word is also the class with its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownStatus {
    /// The word.
    pub(crate) word: &'static str,
    /// The icon, which is the same as in drawings.
    pub(crate) icon: &'static str,
}

impl From<NodeStatus> for ShownStatus {
    fn from(status: NodeStatus) -> Self {
        let icon = match status {
            NodeStatus::Planned | NodeStatus::Queued => "○",
            NodeStatus::Running => "►",
            NodeStatus::Succeeded => "✓",
            NodeStatus::Failed => "✗",
            NodeStatus::Skipped => "↷",
            NodeStatus::Cancelled => "⊘",
            NodeStatus::Waiting => "◷",
        };
        Self { word: status.as_str(), icon }
    }
}

impl From<ExecutionStatus> for ShownStatus {
    fn from(status: ExecutionStatus) -> Self {
        let icon = match status {
            ExecutionStatus::Running => "►",
            ExecutionStatus::Waiting => "◷",
            ExecutionStatus::Paused => "‖",
            ExecutionStatus::Success => "✓",
            ExecutionStatus::Failure => "✗",
            ExecutionStatus::Cancelled => "⊘",
        };
        Self { word: status_word(status), icon }
    }
}

/// A status.
pub(crate) fn status_mark(status: impl Into<ShownStatus>) -> Markup {
    let status = status.into();
    mark_like(status, status.word)
}

/// A finding that needs attention.
pub(crate) fn warning_mark() -> Markup {
    html! { span class="status is-waiting" { span.icon aria-hidden="true" { "!" } "warning" } }
}

/// Another word with the colour and icon of a status.
pub(crate) fn mark_like(status: impl Into<ShownStatus>, word: &str) -> Markup {
    let ShownStatus { word: class, icon } = status.into();
    html! {
        span class={ "status is-" (class) } {
            span.icon aria-hidden="true" { (icon) }
            (shown_text::line(word, 20))
        }
    }
}
