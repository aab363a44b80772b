//! Statuses of nodes: names, icons and colours.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Status of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// Not reached yet
    Planned,
    /// Waits for a free slot
    Queued,
    /// Running
    Running,
    /// Waits for a person
    Waiting,
    /// Succeeded
    Succeeded,
    /// Failed
    Failed,
    /// Skipped
    Skipped,
    /// Cancelled
    Cancelled,
}

impl NodeStatus {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Planned,
        Self::Queued,
        Self::Running,
        Self::Waiting,
        Self::Succeeded,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
    ];

    /// Returns the name of the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the status with this name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Returns true if the node is running or waiting.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }

    /// Returns true if the node needs no attention: it succeeded, was skipped, or has not started.
    pub const fn is_calm(self) -> bool {
        matches!(self, Self::Planned | Self::Succeeded | Self::Skipped)
    }

    /// Returns true if it has ended.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled)
    }

    /// Rank when not all nodes fit: failed nodes first, then open ones.
    pub const fn rank(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Running | Self::Waiting => 2,
            Self::Queued | Self::Cancelled => 3,
            Self::Planned | Self::Succeeded | Self::Skipped => 4,
        }
    }

    /// Returns the icon.
    pub const fn icon(self, ascii: bool) -> &'static str {
        match (self, ascii) {
            (Self::Planned, false) => "·",
            (Self::Queued, false) => "◌",
            (Self::Running, false) => "◐",
            (Self::Succeeded, false) => "✓",
            (Self::Failed, false) => "✗",
            (Self::Skipped, false) => "↷",
            (Self::Cancelled, false) => "⊘",
            (Self::Planned, true) => ".",
            (Self::Queued, true) => "o",
            (Self::Running, true) => "*",
            (Self::Waiting, _) => "?",
            (Self::Succeeded, true) => "+",
            (Self::Failed, true) => "x",
            (Self::Skipped, true) => "-",
            (Self::Cancelled, true) => "/",
        }
    }

    /// Returns the colour on a terminal.
    pub const fn color(self) -> &'static str {
        match self {
            Self::Planned | Self::Skipped | Self::Queued => "\u{1b}[2m",
            Self::Running => "\u{1b}[36m",
            Self::Waiting => "\u{1b}[33m",
            Self::Succeeded => "\u{1b}[32m",
            Self::Failed => "\u{1b}[31m",
            Self::Cancelled => "\u{1b}[35m",
        }
    }
}

/// Statuses are ordered by name, which is the order of members in documents.
impl Ord for NodeStatus {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl PartialOrd for NodeStatus {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
