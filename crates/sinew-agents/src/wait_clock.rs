//! A clock that excludes time spent waiting for people, for the time limits of agents and calls.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Time spent waiting for people.
#[derive(Clone, Copy, Debug, Default)]
struct WaitedTime {
    past: Duration,
    since: Option<Instant>,
    /// Number of current waits.
    waits: u32,
}

/// A clock that stops while work waits for a person. Clones share the clock.
#[derive(Clone, Debug, Default)]
pub struct WaitClock(Arc<watch::Sender<WaitedTime>>);

impl WaitClock {
    /// Waits until the clock reaches `limit`.
    pub(crate) async fn reached(&self, limit: Duration) {
        let begun = Instant::now();
        let mut changes = self.0.subscribe();
        let before = changes.borrow().past;
        loop {
            let WaitedTime { past, since, .. } = *changes.borrow_and_update();
            let work_is_over = async {
                match since {
                    Some(_) => std::future::pending().await,
                    None => sleep_until(begun + limit + past.saturating_sub(before)).await,
                }
            };
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = work_is_over => return,
            }
        }
    }

    /// Stops the clock until the guard is dropped.
    #[must_use]
    pub fn stop(&self) -> StoppedWaitClock {
        self.0.send_modify(|waited| {
            waited.waits += 1;
            waited.since.get_or_insert_with(Instant::now);
        });
        StoppedWaitClock(self.clone())
    }

    /// Awaits a future with the clock stopped.
    pub(crate) async fn paused<F: Future>(&self, waiting: F) -> F::Output {
        let _stopped = self.stop();
        waiting.await
    }

    /// Returns the time spent waiting for people.
    pub(crate) fn waited(&self) -> Duration {
        let waited = self.0.borrow();
        waited.past + waited.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// Stops a clock until all its guards are dropped.
#[derive(Debug)]
pub struct StoppedWaitClock(WaitClock);

impl Drop for StoppedWaitClock {
    fn drop(&mut self) {
        self.0.0.send_modify(|waited| {
            waited.waits = waited.waits.saturating_sub(1);
            if waited.waits == 0
                && let Some(since) = waited.since.take()
            {
                waited.past += since.elapsed();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_for_people_is_no_work() {
        let (clock, begun) = (WaitClock::default(), Instant::now());
        let work = async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            // Two waits overlap.
            let first = clock.paused(tokio::time::sleep(Duration::from_hours(5)));
            let second = clock.paused(tokio::time::sleep(Duration::from_hours(3)));
            tokio::join!(first, second);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = clock.reached(Duration::from_secs(10)) => {}
            () = work => unreachable!("the work does not end"),
        }
        assert_eq!(begun.elapsed(), Duration::from_hours(5) + Duration::from_secs(10));
        assert_eq!(clock.waited(), Duration::from_hours(5));
    }
}
