//! The time of a conversation without its waiting for people: an agent's own limit is about work.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::error::AgentError;

/// Time that a conversation has waited for people.
#[derive(Clone, Copy, Debug, Default)]
struct WaitedTime {
    past: Duration,
    since: Option<Instant>,
}

/// A clock that stands still while a person is asked.
#[derive(Debug, Default)]
pub(super) struct WaitClock(watch::Sender<WaitedTime>);

impl WaitClock {
    /// Waits until this time of work is over, and says so.
    pub(super) async fn reached(&self, limit: Duration) -> AgentError {
        let begun = Instant::now();
        let mut changes = self.0.subscribe();
        loop {
            let WaitedTime { past, since } = *changes.borrow_and_update();
            let work_is_over = async {
                match since {
                    Some(_) => std::future::pending().await,
                    None => sleep_until(begun + limit + past).await,
                }
            };
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = work_is_over => return AgentError::TimedOut(limit),
            }
        }
    }

    /// Stands still until the answer is there.
    pub(super) async fn paused<F: Future>(&self, waiting: F) -> F::Output {
        let begun = Instant::now();
        self.0.send_modify(|waited| waited.since = Some(begun));
        let output = waiting.await;
        self.0.send_modify(|waited| {
            waited.since = None;
            waited.past += begun.elapsed();
        });
        output
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
            clock.paused(tokio::time::sleep(Duration::from_hours(5))).await;
            std::future::pending::<()>().await;
        };
        let error = tokio::select! {
            error = clock.reached(Duration::from_secs(10)) => error,
            () = work => unreachable!("the work does not end"),
        };
        assert!(matches!(error, AgentError::TimedOut(limit) if limit == Duration::from_secs(10)));
        assert_eq!(begun.elapsed(), Duration::from_hours(5) + Duration::from_secs(10));
    }
}
