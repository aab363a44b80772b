//! Seeded bugs: faults that tests enable to prove that they are detected.
//!
//! [`seeded_bug`] is the constant `false` outside of the tests of this crate.

/// Returns true if the tests have switched on this bug.
#[cfg(test)]
macro_rules! seeded_bug {
    ($bug:ident) => {
        crate::bug::is_on(crate::bug::SeededBug::$bug)
    };
}

/// Returns false: bugs are switched on by tests only.
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
                /// All of them.
                pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];
            }
        };
    }

    seeded_bugs! {
        /// A commit is appended without the position that it comes after.
        FenceNotChecked,
        /// An owner that lost an append goes on with what it has in memory.
        StateKeptAfterLostAppend,
        /// Tasks leave before their commit is stored.
        ActsBeforeStored,
        /// Positions pass inputs whose facts are not in the commit.
        PositionsAheadOfFacts,
        /// Positions pass inputs beyond those that were read.
        PositionsSkipInput,
        /// The tasks of a map that runs again have the ids of its first run.
        MapRepeatsItsTaskIds,
        /// A result counts although its token does not prove the task.
        TokenNotChecked,
        /// A result counts although another agent was asked.
        AgentNotChecked,
        /// A result of an earlier attempt counts for the current one.
        LateResultCounts,
        /// A start with the id of an open execution begins another one.
        DuplicateStartBegins,
        /// A start with the id of a closed execution begins another one.
        ClosedIdBeginsAgain,
        /// The same id of another caller counts as the same start.
        OtherCallersStartAccepted,
        /// A command that is read again is obeyed again.
        CommandObeyedTwice,
        /// A loaded execution has no deadline.
        TimerLostOnEviction,
        /// A replayed execution has no deadline.
        TimerLostOnTakeover,
        /// A timer fires although its owner has not read what was stored before.
        TimersBeforeInbox,
        /// A tick comes before the deadline.
        TimerFiresEarly,
        /// Outstanding actions are not repeated after a takeover.
        OutstandingNotRepeated,
        /// The journal is purged beyond what open executions need.
        PurgeTooFar,
        /// A checkpoint forgets the verdicts.
        CheckpointWithoutVerdicts,
        /// A refusal is forgotten that was given before the execution began, in the same commit.
        EarlierVerdictForgotten,
        /// A checkpoint leaves out the newest round.
        CheckpointWithoutLastRound,
        /// An execution is closed before its record is archived.
        ClosedBeforeArchived,
        /// A retry that is refused leaves a closed execution open.
        RefusedRetryReopens,
        /// A task leaves although its activation has ended in the same turn.
        EndedTaskSent,
        /// An end is archived that a retry of the same turn has taken back.
        ReopenedEndArchived,
        /// A refused retry takes back the verdicts that the same commit has on other commands.
        RefusedRetryForgetsVerdicts,
        /// An execution that was reopened is closed by the archive of its first end.
        ReopenedIsClosed,
        /// The usage of an answer that comes late does not count.
        LateUsageDropped,
        /// The usage of a late result that is read again counts for another attempt.
        UsageCountedAgain,
        /// An execution is closed by the archive of its end before late usage.
        LateUsageNotArchived,
        /// A journal's closing entry is not read.
        ClosingNotRead,
        /// A stolen shard is released by the loop that lost it.
        StolenShardReleased,
        /// An owner claims a shard that a living owner has.
        LivingOwnersShardClaimed,
        /// A shard is not released on leaving.
        LeavingKeepsShards,
        /// A shard too many that is left from a process of the same name is not released.
        UnservedShardKept,
        /// A held execution is worked on.
        HoldNotKept,
        /// A death with work in hand is not counted.
        DeathNotCounted,
        /// An item is condemned after its first death.
        CondemnedAtOnce,
        /// A child's start is worded with a new id each time.
        ChildIdNotDerived,
        /// A rejected start of a child answers nobody.
        RejectedChildUnanswered,
        /// A rejection of a child is not in the journal until its parent has the answer.
        RejectionNotJournaled,
        /// Results that came while an execution was held are not read when it is resumed.
        HeldResultsNotRead,
        /// Depth and chain of starts are accepted from any client.
        ChainBelieved,
    }

    thread_local! {
        static ON: Cell<Option<SeededBug>> = const { Cell::new(None) };
    }

    /// Returns true if this thread has switched on the bug.
    pub(crate) fn is_on(bug: SeededBug) -> bool {
        ON.get() == Some(bug)
    }

    /// Switches on a bug in this thread, or all off.
    pub(crate) fn switch(bug: Option<SeededBug>) {
        ON.set(bug);
    }
}
