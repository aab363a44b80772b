//! Transitions of activations as one table: the facts allowed in each phase, and the next phase.
//!
//! [`crate::fold`] rejects a fact of a stored journal without a row here. A test executes every
//! row, and fails on a row that nothing executes. The page below is generated from the table.
//!
#![doc = include_str!("../lifecycle.md")]

use crate::fact_kind::FactKind;
use crate::state::{Activation, ActivationPhase};

/// A fact that moves an activation from one phase to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Phase before the fact; `None` for an activation that does not exist yet.
    pub from: Option<ActivationPhase>,
    /// The fact.
    pub fact: FactKind,
    /// Phase after the fact.
    pub to: ActivationPhase,
    /// Condition on the activation, in addition to its phase.
    pub when: TransitionCondition,
}

/// Condition of a transition on the activation, in addition to its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransitionCondition {
    /// No further condition.
    Always,
    /// The activation sleeps before it starts.
    NotBegun,
    /// The activation has no end yet.
    NotEnded,
    /// The activation has ended, and its tokens are not sent.
    Ended,
}

impl TransitionCondition {
    /// Returns true if the activation meets the condition.
    pub fn holds(self, activation: &Activation) -> bool {
        match self {
            Self::Always => true,
            Self::NotBegun => activation.began_at.is_none(),
            Self::NotEnded => activation.end.is_none(),
            Self::Ended => activation.end.is_some(),
        }
    }

    /// Returns the text for the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "",
            Self::NotBegun => "has not begun",
            Self::NotEnded => "has not ended",
            Self::Ended => "has ended",
        }
    }
}

/// All transitions. Facts that are not in the table do not change the phase of an activation.
pub const TRANSITIONS: &[Transition] = {
    use ActivationPhase::{
        BackedOff, Begun, Closed, Deferred, Owning, Ready, Running, Settled, Sleeping, Waiting,
    };
    use TransitionCondition::{Always, Ended, NotBegun, NotEnded};
    const fn row(
        from: ActivationPhase,
        fact: FactKind,
        to: ActivationPhase,
        when: TransitionCondition,
    ) -> Transition {
        Transition { from: Some(from), fact, to, when }
    }
    &[
        Transition { from: None, fact: FactKind::Activated, to: Ready, when: Always },
        row(Ready, FactKind::Deferred, Deferred, Always),
        row(Sleeping, FactKind::Deferred, Deferred, NotBegun),
        row(Deferred, FactKind::Undeferred, Ready, Always),
        row(Ready, FactKind::Began, Begun, Always),
        row(Sleeping, FactKind::Began, Begun, NotBegun),
        row(Begun, FactKind::Dispatched, Running, Always),
        row(Sleeping, FactKind::Dispatched, Running, NotEnded),
        row(Owning, FactKind::Dispatched, Running, NotEnded),
        row(BackedOff, FactKind::Dispatched, Running, Always),
        row(Settled, FactKind::Dispatched, Running, Always),
        row(Running, FactKind::Progressed, Running, Always),
        row(Running, FactKind::Yielded, Running, Always),
        row(Running, FactKind::CalleeWaits, Running, Always),
        row(Running, FactKind::Replied, Begun, Always),
        row(Begun, FactKind::BackedOff, BackedOff, Always),
        row(Sleeping, FactKind::BackedOff, BackedOff, NotEnded),
        row(Owning, FactKind::BackedOff, BackedOff, NotEnded),
        row(Settled, FactKind::BackedOff, BackedOff, Always),
        row(Ready, FactKind::Slept, Sleeping, Always),
        row(Begun, FactKind::Slept, Sleeping, NotEnded),
        row(Sleeping, FactKind::Slept, Sleeping, NotEnded),
        row(Owning, FactKind::Slept, Sleeping, NotEnded),
        row(Begun, FactKind::Awaited, Waiting, NotEnded),
        row(Sleeping, FactKind::Awaited, Waiting, NotEnded),
        row(Owning, FactKind::Awaited, Waiting, NotEnded),
        row(Waiting, FactKind::Reminded, Waiting, Always),
        row(Waiting, FactKind::Answered, Begun, Always),
        row(Begun, FactKind::Fanned, Owning, NotEnded),
        row(Sleeping, FactKind::Fanned, Owning, NotEnded),
        row(Owning, FactKind::Fanned, Owning, NotEnded),
        row(Begun, FactKind::Completed, Settled, NotEnded),
        row(Begun, FactKind::Completed, Closed, NotEnded),
        row(Sleeping, FactKind::Completed, Settled, NotEnded),
        row(Sleeping, FactKind::Completed, Closed, NotEnded),
        row(Owning, FactKind::Completed, Settled, NotEnded),
        row(Owning, FactKind::Completed, Closed, NotEnded),
        row(Begun, FactKind::Skipped, Settled, NotEnded),
        row(Begun, FactKind::Skipped, Closed, NotEnded),
        row(Sleeping, FactKind::Skipped, Settled, NotEnded),
        row(Sleeping, FactKind::Skipped, Closed, NotEnded),
        row(Owning, FactKind::Skipped, Settled, NotEnded),
        row(Owning, FactKind::Skipped, Closed, NotEnded),
        row(Begun, FactKind::Failed, Settled, Always),
        row(Begun, FactKind::Failed, Closed, Always),
        row(BackedOff, FactKind::Failed, Settled, Always),
        row(BackedOff, FactKind::Failed, Closed, Always),
        row(Sleeping, FactKind::Failed, Settled, Always),
        row(Sleeping, FactKind::Failed, Closed, Always),
        row(Waiting, FactKind::Failed, Settled, Always),
        row(Waiting, FactKind::Failed, Closed, Always),
        row(Owning, FactKind::Failed, Settled, Always),
        row(Owning, FactKind::Failed, Closed, Always),
        row(Settled, FactKind::Failed, Settled, Always),
        row(Ready, FactKind::Cancelled, Closed, Always),
        row(Deferred, FactKind::Cancelled, Closed, Always),
        row(Begun, FactKind::Cancelled, Closed, Always),
        row(Running, FactKind::Cancelled, Closed, Always),
        row(BackedOff, FactKind::Cancelled, Closed, Always),
        row(Sleeping, FactKind::Cancelled, Closed, Always),
        row(Waiting, FactKind::Cancelled, Closed, Always),
        row(Owning, FactKind::Cancelled, Closed, Always),
        row(Begun, FactKind::Routed, Closed, Ended),
        row(BackedOff, FactKind::Routed, Closed, Ended),
        row(Settled, FactKind::Routed, Closed, Always),
    ]
};

/// Returns true if the table has rows for the kind, so that not every phase allows the fact.
pub(crate) fn is_restricted(fact: FactKind) -> bool {
    TRANSITIONS.iter().any(|row| row.fact == fact)
}

/// Returns true if the activation's phase allows the fact.
pub(crate) fn may_happen(activation: &Activation, fact: FactKind) -> bool {
    let here = |row: &&Transition| row.fact == fact && row.from == Some(activation.phase);
    TRANSITIONS.iter().filter(here).any(|row| row.when.holds(activation))
}

/// Returns the page that the documentation of this module shows: a table and a diagram in Mermaid.
#[cfg(test)]
pub(crate) fn page() -> String {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    let name = |phase: Option<ActivationPhase>| phase.map_or("-", ActivationPhase::as_str);
    let mut text = String::from("| before | fact | after | if the activation |\n|---|---|---|---|\n");
    let mut arrows: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    let place = |phase: Option<ActivationPhase>| phase.map_or(0, |phase| phase as usize + 1);
    for row in TRANSITIONS {
        let (before, after, fact) = (name(row.from), row.to.as_str(), row.fact.as_str());
        let _ = writeln!(text, "| {before} | {fact} | {after} | {} |", row.when.as_str());
        arrows.entry((place(row.from), place(Some(row.to)))).or_default().push(fact);
    }
    text.push_str("\n```mermaid\nstateDiagram-v2\n");
    let states: BTreeMap<usize, &str> = TRANSITIONS
        .iter()
        .flat_map(|row| [row.from, Some(row.to)])
        .map(|phase| (place(phase), phase.map_or("[*]", ActivationPhase::as_str)))
        .collect();
    for ((from, to), facts) in arrows {
        let _ = writeln!(text, "    {} --> {}: {}", states[&from], states[&to], facts.join(", "));
    }
    let end = ActivationPhase::Closed.as_str();
    let _ = writeln!(text, "    {end} --> [*]\n```");
    text
}
