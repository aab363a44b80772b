//! Time of a task that counts towards its limits: it is stopped while a person is awaited.
//!
//! The owner of the execution stops its clocks likewise, so the task continues for as long as its
//! caller waits.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The clock of one task, shared by all its time limits.
#[derive(Debug, Default)]
pub(crate) struct TaskClock {
    state: Mutex<ClockState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct ClockState {
    /// Parts of the task that wait for a person.
    waits: u32,
    stopped_at: Option<Instant>,
    /// Total time for which the clock was stopped.
    stopped: Duration,
}

impl TaskClock {
    /// Stops the clock until the guard is dropped.
    pub(crate) fn stop(&self) -> StoppedClock<'_> {
        let mut state = self.state();
        state.waits += 1;
        state.stopped_at.get_or_insert_with(Instant::now);
        drop(state);
        self.changed.notify_waiters();
        StoppedClock(self)
    }

    /// Returns the time until a deadline that was set before the clock was first stopped; `None`
    /// while it is stopped.
    pub(crate) fn left(&self, until: Instant) -> Option<Duration> {
        let state = self.state();
        state.stopped_at.is_none().then(|| (until + state.stopped).saturating_duration_since(Instant::now()))
    }

    /// Waits until a deadline has passed.
    pub(crate) async fn passed(&self, until: Instant) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Subscribe before reading the state, so that no change is missed.
            changed.as_mut().enable();
            match self.left(until) {
                Some(Duration::ZERO) => return,
                Some(left) => {
                    let _ = tokio::time::timeout(left, changed).await;
                }
                None => changed.await,
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stopped clock. It continues when all guards are dropped.
#[derive(Debug)]
pub(crate) struct StoppedClock<'a>(&'a TaskClock);

impl Drop for StoppedClock<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waits = state.waits.saturating_sub(1);
        if state.waits == 0
            && let Some(at) = state.stopped_at.take()
        {
            state.stopped += at.elapsed();
        }
        drop(state);
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_moves_by_the_time_for_which_the_clock_was_stopped() {
        let clock = TaskClock::default();
        let begun = Instant::now();
        let until = begun + Duration::from_mins(5);
        tokio::time::advance(Duration::from_secs(200)).await;
        let first = clock.stop();
        tokio::time::advance(Duration::from_hours(2)).await;
        let second = clock.stop();
        assert_eq!(clock.left(until), None);
        drop(first);
        assert_eq!(clock.left(until), None, "another person is waited for");
        tokio::time::advance(Duration::from_mins(1)).await;
        let waiting = clock.passed(until);
        drop(second);
        assert_eq!(clock.left(until), Some(Duration::from_secs(100)));
        waiting.await;
        assert_eq!(begun.elapsed(), Duration::from_mins(126));
    }
}
