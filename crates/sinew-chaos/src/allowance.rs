//! Findings that a run allows: messages of attackers, and losses of a broker with delayed sync.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use sinew_protocol::ExecutionId;

/// Maximum time between the last activity of an execution and the end of its record.
const ENDING_MS: u64 = 5_000;

/// Returns the time in Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Findings that are not defects in this run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowances {
    /// Execution whose tasks and results attackers stored.
    pub(crate) ghost: Option<ExecutionId>,
    /// Power cuts of brokers with delayed sync.
    pub(crate) losses: Option<PowerLosses>,
}

/// Power cuts, and the window of writes that they can lose.
#[derive(Clone, Debug, Default)]
pub(crate) struct PowerLosses {
    /// Times of the cuts, in Unix milliseconds.
    pub(crate) cuts: Vec<u64>,
    pub(crate) window_ms: u64,
}

impl PowerLosses {
    /// Returns whether a write at this time may be lost.
    fn reach(&self, at: u64) -> bool {
        self.cuts.iter().any(|cut| (at..=at.saturating_add(self.window_ms + ENDING_MS)).contains(cut))
    }
}

/// Times of acceptance and activity of each execution.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActivityTimes(BTreeMap<String, BTreeSet<u64>>);

impl ActivityTimes {
    pub(crate) fn add(&mut self, execution: &str, at: u64) {
        self.0.entry(execution.to_owned()).or_default().insert(at);
    }

    /// Returns whether a whole execution may be lost: its end was within the window.
    pub(crate) fn may_lose_all(&self, losses: &PowerLosses, execution: &str) -> bool {
        let last = self.0.get(execution).and_then(BTreeSet::last);
        last.is_some_and(|at| losses.reach(*at))
    }

    /// Returns whether a part of the execution in a finding may be lost.
    pub(crate) fn may_lose_part(&self, losses: &PowerLosses, finding: &str) -> bool {
        let mut words = finding.split(|letter: char| !letter.is_ascii_alphanumeric());
        words.any(|word| self.0.get(word).is_some_and(|times| times.iter().any(|at| losses.reach(*at))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_younger_than_the_window_may_be_lost() {
        let losses = PowerLosses { cuts: vec![100_000], window_ms: 10_000 };
        let mut times = ActivityTimes::default();
        times.add("old", 1_000);
        times.add("young", 95_000);
        times.add("both", 1_000);
        times.add("both", 95_000);
        times.add("later", 100_001);
        let lost = ["old", "young", "both", "later", "unknown"];
        assert_eq!(lost.map(|id| times.may_lose_all(&losses, id)), [false, true, true, false, false]);
        times.add("both", 150_000);
        assert!(!times.may_lose_all(&losses, "both"), "there was work after the cut");
        assert!(times.may_lose_part(&losses, "chaos.v1.task.alpha.both.x belongs to no dispatch"));
        assert!(!times.may_lose_part(&losses, "old: journal and record differ"));
    }
}
