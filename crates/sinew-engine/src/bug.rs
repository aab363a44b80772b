//! Seeded bugs: faults in the rules of joins that tests enable to prove that they are detected.
//!
//! [`seeded_bug`] is the constant `false` outside of the tests of this crate.

/// Returns true if the tests have enabled this bug.
#[cfg(test)]
macro_rules! seeded_bug {
    ($bug:ident) => {
        crate::bug::is_on(crate::bug::JoinBug::$bug)
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
pub(crate) use tests::{JoinBug, is_on, switch};

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    /// A fault in the rules of joins.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum JoinBug {
        /// A branch resolves two edges.
        BranchCountedTwice,
        /// Every value of a fanned edge counts towards the join.
        FanCountedTwice,
        /// A branch that was not taken counts as taken.
        DeadBranchIsLive,
        /// A branch that failed counts as not taken.
        FailureForgotten,
        /// A veto edge has no effect.
        VetoIgnored,
        /// A quorum does not wait for the edges that do not count towards it.
        QuorumIgnoresRequired,
        /// A quorum waits for one additional branch.
        QuorumOneTooMany,
        /// A quorum that can no longer be reached does not run with the available tokens.
        UnmetQuorumDies,
        /// A join without a live branch runs.
        DeadJoinRuns,
        /// A join runs again for a late branch.
        JoinRunsAgain,
        /// The death of a node does not reach its dependents.
        DeathNotTold,
        /// After a failure, nodes die as if a branch was not taken.
        FailureDiesAsUntaken,
        /// A node that runs once runs for each token.
        OnceRunsForEach,
    }

    impl JoinBug {
        /// All bugs.
        pub(crate) const ALL: [Self; 13] = [
            Self::BranchCountedTwice,
            Self::FanCountedTwice,
            Self::DeadBranchIsLive,
            Self::FailureForgotten,
            Self::VetoIgnored,
            Self::QuorumIgnoresRequired,
            Self::QuorumOneTooMany,
            Self::UnmetQuorumDies,
            Self::DeadJoinRuns,
            Self::JoinRunsAgain,
            Self::DeathNotTold,
            Self::FailureDiesAsUntaken,
            Self::OnceRunsForEach,
        ];
    }

    thread_local! {
        static ON: Cell<Option<JoinBug>> = const { Cell::new(None) };
    }

    /// Returns true if this thread has enabled the bug.
    pub(crate) fn is_on(bug: JoinBug) -> bool {
        ON.get() == Some(bug)
    }

    /// Enables one bug in this thread, or disables all.
    pub(crate) fn switch(bug: Option<JoinBug>) {
        ON.set(bug);
    }
}
