//! Seeded bugs: faults that tests enable to prove that they are detected.
//!
//! [`seeded_bug`] is the constant `false` outside of the tests of this crate.

/// Returns true if the tests have enabled this bug.
#[cfg(test)]
macro_rules! seeded_bug {
    ($bug:ident) => {
        crate::bug::is_on(crate::bug::SeededBug::$bug)
    };
}

/// Returns false: only tests enable bugs.
#[cfg(not(test))]
macro_rules! seeded_bug {
    ($bug:ident) => {
        false
    };
}

pub(crate) use seeded_bug;

#[cfg(test)]
pub(crate) use tests::{SeededBug, is_on, switch};

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    macro_rules! seeded_bugs {
        ($($(#[doc = $text:literal])* $name:ident,)*) => {
            /// A fault in the rules of a shard.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub(crate) enum SeededBug { $($(#[doc = $text])* $name,)* }

            impl SeededBug {
                /// All bugs.
                pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];
            }
        };
    }

    seeded_bugs! {
        /// A commit is appended without its expected position.
        FenceNotChecked,
        /// An owner that lost an append keeps its state in memory.
        StateKeptAfterLostAppend,
        /// Tasks are sent before their commit is stored.
        ActsBeforeStored,
        /// Positions pass inputs whose facts are not in the commit.
        PositionsAheadOfFacts,
        /// Positions pass inputs that were not read.
        PositionsSkipInput,
        /// The tasks of a map that runs again have the ids of its first run.
        MapRepeatsItsTaskIds,
        /// A result counts although its token does not match the task.
        TokenNotChecked,
        /// A result counts although another agent was called.
        AgentNotChecked,
        /// A result of an earlier attempt counts for the current one.
        LateResultCounts,
        /// A start with the id of an open execution starts another one.
        DuplicateStartBegins,
        /// A start with the id of a closed execution starts another one.
        ClosedIdBeginsAgain,
        /// A start of another caller with the same id counts as the same start.
        OtherCallersStartAccepted,
        /// A command that is read again is executed again.
        CommandObeyedTwice,
        /// A loaded execution has no deadline.
        TimerLostOnEviction,
        /// A replayed execution has no deadline.
        TimerLostOnTakeover,
        /// A timer fires although its owner has not read what was stored earlier.
        TimersBeforeInbox,
        /// A tick arrives before the deadline.
        TimerFiresEarly,
        /// Outstanding actions are not repeated after a takeover.
        OutstandingNotRepeated,
        /// The journal is purged beyond what open executions need.
        PurgeTooFar,
        /// A checkpoint forgets the verdicts.
        CheckpointWithoutVerdicts,
        /// A rejection from before the execution started in the same commit is forgotten.
        EarlierVerdictForgotten,
        /// A checkpoint omits the newest round.
        CheckpointWithoutLastRound,
        /// An execution is closed before its record is archived.
        ClosedBeforeArchived,
        /// A rejected retry leaves a closed execution open.
        RefusedRetryReopens,
        /// A task is sent although its activation ended in the same turn.
        EndedTaskSent,
        /// An end is archived that a retry in the same turn has removed.
        ReopenedEndArchived,
        /// A rejected retry removes the same commit's verdicts on other commands.
        RefusedRetryForgetsVerdicts,
        /// The archive of its first end closes a reopened execution.
        ReopenedIsClosed,
        /// The usage of a late result does not count.
        LateUsageDropped,
        /// The usage of a repeated late result counts for another attempt.
        UsageCountedAgain,
        /// The archive of an end without late usage closes an execution.
        LateUsageNotArchived,
        /// A journal's closing entry is not read.
        ClosingNotRead,
        /// The loop that lost a shard releases it.
        StolenShardReleased,
        /// An owner claims the shard of a live owner.
        LivingOwnersShardClaimed,
        /// A leaving executor does not release its shards.
        LeavingKeepsShards,
        /// An excess shard of an earlier process with the same name is not released.
        UnservedShardKept,
        /// A held execution is processed.
        HoldNotKept,
        /// A crash with work in progress is not counted.
        DeathNotCounted,
        /// An item is condemned after its first crash.
        CondemnedAtOnce,
        /// A child's start gets a new id each time.
        ChildIdNotDerived,
        /// A rejected start of a child is not answered.
        RejectedChildUnanswered,
        /// A child's rejection is not in the journal while its parent has no answer.
        RejectionNotJournaled,
        /// Results that arrived while an execution was held are not read on resume.
        HeldResultsNotRead,
        /// Depth and chain of starts are accepted from any client.
        ChainBelieved,
    }

    thread_local! {
        static ON: Cell<Option<SeededBug>> = const { Cell::new(None) };
    }

    /// Returns true if this thread has enabled the bug.
    pub(crate) fn is_on(bug: SeededBug) -> bool {
        ON.get() == Some(bug)
    }

    /// Enables one bug in this thread, or disables all.
    pub(crate) fn switch(bug: Option<SeededBug>) {
        ON.set(bug);
    }
}
