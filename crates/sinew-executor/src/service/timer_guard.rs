//! The check before timers of a shard fire: inputs that were stored before the timers were due are
//! read first, and after an outage agents have time to deliver their results.

use std::time::Duration;

use sinew_engine::Time;
use sinew_mesh::{MeshError, ServerClock};
use sinew_shard::InboxEnds;
use tokio::time::Instant;
use tracing::debug;

/// Milliseconds for which timers that end the work of agents are delayed after a takeover or an
/// outage. Agents reconnect within 4 s and repeat an unstored result within a second.
pub(super) const HAND_IN_MS: Time = 6_000;
/// Pause before the ends of the inbox are queried again: after an error, or while the inbox has not
/// reached them.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
const REPEAT_PAUSE: Duration = Duration::from_secs(1);

/// Permission for due timers of one shard to fire.
pub(super) struct TimerGuard {
    ends: Option<InboxEnds>,
    /// When the ends are queried again if timers are due.
    next: Instant,
    /// Whether the broker did not reply to the last query.
    is_lost: bool,
    /// Number of connections of this process at the last reply.
    connections: u64,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// The broker was reachable all the time, as far as this process knows.
    None,
    /// The broker is reachable again.
    Ended,
}

impl TimerGuard {
    pub(super) fn new(connections: u64) -> Self {
        Self { ends: None, next: Instant::now(), is_lost: false, connections }
    }

    /// Returns true if the ends of the inbox must be queried, because the last reply does not cover
    /// a timer.
    pub(super) fn is_needed(&self, due: Time) -> bool {
        let is_covered = self.ends.is_some_and(|ends| due <= ends.at);
        Instant::now() >= self.next || !(is_covered || self.is_lost)
    }

    /// Handles the ends of the inbox that were queried at a time of the broker's clock.
    pub(super) fn handle_ends(
        &mut self,
        at: Time,
        ends: Result<(u64, u64), MeshError>,
        connections: u64,
    ) -> Outage {
        match ends {
            Ok((commands, results)) => {
                self.ends = Some(InboxEnds { at, commands, results });
                self.next = Instant::now() + REPEAT_PAUSE;
                let was_lost = std::mem::take(&mut self.is_lost);
                let before = std::mem::replace(&mut self.connections, connections);
                if was_lost || before != connections { Outage::Ended } else { Outage::None }
            }
            Err(error) => {
                debug!(%error, "due timers wait until the broker responds");
                (self.ends, self.is_lost) = (None, true);
                self.next = Instant::now() + RETRY_PAUSE;
                Outage::None
            }
        }
    }

    /// Returns the ends up to which the inbox must be read before timers that were due at the query
    /// fire.
    pub(super) fn ends(&self) -> Option<InboxEnds> {
        self.ends
    }

    /// Returns how long the loop may wait for messages before it checks again.
    pub(super) fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}

/// Returns the time until a point of the broker's clock; zero if it has passed.
pub(super) fn until(clock: &ServerClock, at: Time) -> Duration {
    Duration::from_millis(at.saturating_sub(clock.now()))
}

/// Sleeps for this long; forever without a duration.
pub(super) async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
