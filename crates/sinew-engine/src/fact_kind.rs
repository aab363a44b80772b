//! Kinds of facts, for checks and tables that only need the kind.

use crate::ActivationId;
use crate::fact::Fact;

/// Kind of a [`Fact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactKind {
    /// The execution started.
    Started,
    /// A child scope was opened for one item, branch or iteration of `owner`.
    Opened,
    /// Tokens left a node (`act` is `None` if the node died without being activated).
    Routed,
    /// Tokens became an activation, which is now ready.
    Activated,
    /// A node will not run in this scope.
    Died,
    /// A token arrived too late to have an effect.
    Dropped,
    /// A ready activation was deferred because the execution waits for a person.
    Deferred,
    /// A deferred activation is ready again.
    Undeferred,
    /// A ready activation started.
    Began,
    /// A note of the dialect's adapter, for its own events and for operators.
    Noted,
    /// A task was sent to an agent.
    Dispatched,
    /// Progress of an agent.
    Progressed,
    /// An attempt ended.
    Replied,
    /// A reply arrived for an attempt that no longer counts; kept for audits only.
    Late,
    /// The next attempt waits for its back-off.
    BackedOff,
    /// The activation sleeps.
    Slept,
    /// The activation waits for a person.
    Awaited,
    /// A callee of the running attempt starts or stops waiting for a person.
    CalleeWaits,
    /// People are reminded of the activation's open question.
    Reminded,
    /// A person decided, or the wait timed out.
    Answered,
    /// The activation waits for children.
    Fanned,
    /// An activation emitted values before its end.
    Yielded,
    /// The activation succeeded.
    Completed,
    /// A condition prevented the activation from running; it counts as completed, with this output.
    Skipped,
    /// The activation failed.
    Failed,
    /// The activation was cancelled.
    Cancelled,
    /// An operator paused the execution.
    Paused,
    /// An operator resumed the execution.
    Resumed,
    /// A user or a parent requested cancellation.
    CancelRequested,
    /// The graph is complete; exit nodes may follow.
    Concluded,
    /// The execution ended. Only [`Fact::Reopened`] and [`Fact::Late`] can follow.
    Ended,
    /// A failed or cancelled execution continues after an operator's retry.
    Reopened,
}

impl FactKind {
    /// Returns the name of the kind in the JSON of a fact.
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
            Self::Reminded => "reminded",
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
            Self::Reminded { .. } => FactKind::Reminded,
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

    /// Returns the activation that the fact concerns, or `None` if it creates one or concerns
    /// others.
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
            | Self::Reminded { act }
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
