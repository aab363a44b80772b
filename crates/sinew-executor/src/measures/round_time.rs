//! Durations of the parts of a round, logged to show which part delayed a shard.

use std::time::{Duration, Instant};

use tracing::debug;

/// Duration from which a round is logged.
const SLOW_ROUND: Duration = Duration::from_millis(20);

/// Stopwatch of one round.
pub(crate) struct RoundTime {
    began: Instant,
    lap: Instant,
    parts: Vec<(&'static str, Duration)>,
}

impl RoundTime {
    pub(crate) fn start() -> Self {
        let began = Instant::now();
        Self { began, lap: began, parts: Vec::new() }
    }

    /// Ends a part of the round.
    pub(crate) fn part(&mut self, name: &'static str) {
        let now = Instant::now();
        self.parts.push((name, now - self.lap));
        self.lap = now;
    }

    /// Returns the time since the round started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Logs a slow round with its number of messages and the bytes of its commit.
    pub(crate) fn tell(&self, shard: u32, messages: usize, bytes: usize) {
        if self.elapsed() > SLOW_ROUND {
            let parts: Vec<_> = self.parts.iter().map(|(name, took)| format!("{name} {took:.1?}")).collect();
            let took = self.elapsed().as_millis() as u64;
            debug!(shard, took, messages, bytes, parts = parts.join(", "), "slow round");
        }
    }
}
