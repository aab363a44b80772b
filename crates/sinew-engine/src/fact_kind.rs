//! Kinds of facts, for checks and tables that only need the kind.

use crate::ActivationId;
use crate::fact::Fact;

/// Kind of a [`Fact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKind {
    /// The execution began.
    Started,
    /// A child scope was opened for one item, branch or iteration of `owner`.
    Opened,
    /// Tokens left a node (`act` is none when the node died without being activated).
    Routed,
    /// Tokens became an activation, which is now ready.
    Activated,
    /// A node will not run in this scope.
    Died,
    /// A token came too late to matter.
    Dropped,
    /// A ready activation was put aside because a person is waited for.
    Deferred,
    /// A deferred activation is ready again.
    Undeferred,
    /// A ready activation began.
    Began,
    /// A note of the dialect's adapter, for its own events and for operators.
    Noted,
    /// A task was sent to an agent.
    Dispatched,
    /// Progress of an agent.
    Progressed,
    /// An attempt ended.
    Replied,
    /// An answer came for an attempt that no longer counts; kept for the audit only.
    Late,
    /// The next attempt waits.
    BackedOff,
    /// The activation sleeps.
    Slept,
    /// The activation waits for a person.
    Awaited,
    /// A callee of the running attempt waits for a person, or does not any more.
    CalleeWaits,
    /// A person decided, or the wait ran out.
    Answered,
    /// The activation waits for children.
    Fanned,
    /// An activation emitted values before its end.
    Yielded,
    /// The activation ended well.
    Completed,
    /// A gate kept the activation from running; it counts as done, with this output.
    Skipped,
    /// The activation failed.
    Failed,
    /// The activation was given up.
    Cancelled,
    /// An operator paused the execution.
    Paused,
    /// An operator resumed it.
    Resumed,
    /// A user or a parent requested cancellation.
    CancelRequested,
    /// The graph is done; exit nodes may follow.
    Concluded,
    /// The execution ended. Nothing but [`Fact::Reopened`] and [`Fact::Late`] follows.
    Ended,
    /// A failed or cancelled execution goes on after an operator's retry.
    Reopened,
}

impl FactKind {
    /// Returns the word for the kind, as the JSON of a fact has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Opened => "opened",
            Self::Routed => "routed",
            Self::Activated => "activated",
            Self::Died => "died",
            Self::Dropped => "dropped",
            Self::Deferred => "deferred",
            Self::Undeferred => "undeferred",
            Self::Began => "began",
            Self::Noted => "noted",
            Self::Dispatched => "dispatched",
            Self::Progressed => "progressed",
            Self::Replied => "replied",
            Self::Late => "late",
            Self::BackedOff => "backed_off",
            Self::Slept => "slept",
            Self::Awaited => "awaited",
            Self::CalleeWaits => "callee_waits",
            Self::Answered => "answered",
            Self::Fanned => "fanned",
            Self::Yielded => "yielded",
            Self::Completed => "completed",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::CancelRequested => "cancel_requested",
            Self::Concluded => "concluded",
            Self::Ended => "ended",
            Self::Reopened => "reopened",
        }
    }
}

impl Fact {
    /// Returns the kind of the fact.
    pub const fn kind(&self) -> FactKind {
        match self {
            Self::Started(_) => FactKind::Started,
            Self::Opened { .. } => FactKind::Opened,
            Self::Routed { .. } => FactKind::Routed,
            Self::Activated(_) => FactKind::Activated,
            Self::Died { .. } => FactKind::Died,
            Self::Dropped { .. } => FactKind::Dropped,
            Self::Deferred { .. } => FactKind::Deferred,
            Self::Undeferred { .. } => FactKind::Undeferred,
            Self::Began { .. } => FactKind::Began,
            Self::Noted { .. } => FactKind::Noted,
            Self::Dispatched { .. } => FactKind::Dispatched,
            Self::Progressed { .. } => FactKind::Progressed,
            Self::Replied { .. } => FactKind::Replied,
            Self::Late { .. } => FactKind::Late,
            Self::BackedOff { .. } => FactKind::BackedOff,
            Self::Slept { .. } => FactKind::Slept,
            Self::Awaited { .. } => FactKind::Awaited,
            Self::CalleeWaits { .. } => FactKind::CalleeWaits,
            Self::Answered { .. } => FactKind::Answered,
            Self::Fanned { .. } => FactKind::Fanned,
            Self::Yielded { .. } => FactKind::Yielded,
            Self::Completed { .. } => FactKind::Completed,
            Self::Skipped { .. } => FactKind::Skipped,
            Self::Failed { .. } => FactKind::Failed,
            Self::Cancelled { .. } => FactKind::Cancelled,
            Self::Paused { .. } => FactKind::Paused,
            Self::Resumed => FactKind::Resumed,
            Self::CancelRequested { .. } => FactKind::CancelRequested,
            Self::Concluded { .. } => FactKind::Concluded,
            Self::Ended => FactKind::Ended,
            Self::Reopened { .. } => FactKind::Reopened,
        }
    }

    /// Returns the one activation that the fact is about; `None` for a fact that makes one or that is about others.
    pub const fn activation(&self) -> Option<ActivationId> {
        match self {
            Self::Routed { act, .. } | Self::Noted { act, .. } => *act,
            Self::Deferred { act, .. }
            | Self::Undeferred { act }
            | Self::Began { act }
            | Self::Dispatched { act, .. }
            | Self::Progressed { act, .. }
            | Self::Replied { act, .. }
            | Self::Late { act, .. }
            | Self::BackedOff { act, .. }
            | Self::Slept { act, .. }
            | Self::Awaited { act, .. }
            | Self::CalleeWaits { act, .. }
            | Self::Answered { act, .. }
            | Self::Fanned { act, .. }
            | Self::Yielded { act, .. }
            | Self::Completed { act, .. }
            | Self::Skipped { act, .. }
            | Self::Failed { act, .. }
            | Self::Cancelled { act, .. } => Some(*act),
            Self::Started(_)
            | Self::Opened { .. }
            | Self::Activated(_)
            | Self::Died { .. }
            | Self::Dropped { .. }
            | Self::Paused { .. }
            | Self::Resumed
            | Self::CancelRequested { .. }
            | Self::Concluded { .. }
            | Self::Ended
            | Self::Reopened { .. } => None,
        }
    }
}
