//! The time of work without its waiting for people: limits of agents and of their calls are about work.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Time that some work has waited for people.
#[derive(Clone, Copy, Debug, Default)]
struct WaitedTime {
    past: Duration,
    since: Option<Instant>,
    /// Parts of the work that wait at this time.
    waits: u32,
}

/// A clock that is stopped while a person is waited for. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct WaitClock(Arc<watch::Sender<WaitedTime>>);

impl WaitClock {
    /// Waits until this time of work is over.
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

    /// Stops the clock until the answer is there.
    pub(crate) async fn paused<F: Future>(&self, waiting: F) -> F::Output {
        let _stopped = self.stop();
        waiting.await
    }

    /// Returns the time that was waited for people.
    pub(crate) fn waited(&self) -> Duration {
        let waited = self.0.borrow();
        waited.past + waited.since.map(|since| since.elapsed()).unwrap_or_default()
    }
}

/// A stopped clock. It runs again when all guards are dropped.
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
            // Two people are waited for at overlapping times.
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
