//! Seeded bugs: faults in the rules of joins that tests enable to prove that they are detected.
//!
//! [`seeded_bug`] is the constant `false` outside of the tests of this crate.

/// Returns true if the tests have switched on this bug.
#[cfg(test)]
macro_rules! seeded_bug {
    ($bug:ident) => {
        crate::bug::is_on(crate::bug::JoinBug::$bug)
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
pub(crate) use tests::{JoinBug, is_on, switch};

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    /// A fault in the rules of joins.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum JoinBug {
        /// A branch resolves two edges.
        BranchCountedTwice,
        /// Every value of a fan counts towards the join.
        FanCountedTwice,
        /// A branch that was not taken counts as one that was.
        DeadBranchIsLive,
        /// A branch that failed counts as one that was not taken.
        FailureForgotten,
        /// An edge with a veto stops nothing.
        VetoIgnored,
        /// A quorum does not wait for the edges that do not count towards it.
        QuorumIgnoresRequired,
        /// A quorum waits for one branch more.
        QuorumOneTooMany,
        /// A quorum that cannot be met any more does not run with what it has.
        UnmetQuorumDies,
        /// A join without a live branch runs.
        DeadJoinRuns,
        /// A join that ran runs again for a late branch.
        JoinRunsAgain,
        /// A node that died tells nobody behind it.
        DeathNotTold,
        /// Behind a failure, nodes die as if a branch was not taken.
        FailureDiesAsUntaken,
        /// A node that runs once runs for each token.
        OnceRunsForEach,
    }

    impl JoinBug {
        /// All of them.
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

    /// Returns true if this thread has switched on the bug.
    pub(crate) fn is_on(bug: JoinBug) -> bool {
        ON.get() == Some(bug)
    }

    /// Switches on a bug in this thread, or all off.
    pub(crate) fn switch(bug: Option<JoinBug>) {
        ON.set(bug);
    }
}
