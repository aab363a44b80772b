//! `--timeout`, counted from the start of the process, so that it covers connecting, storing and waiting.

use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::quantity::parse_duration;
use sinew_protocol::code;

/// A command did not finish within its `--timeout`.
const TIMEOUT_RAN_OUT: &str = code::TIMEOUT_RAN_OUT.as_str();

/// Time at which the process started.
static PROCESS_START: OnceLock<Instant> = OnceLock::new();

/// Records the start of the process. Only the first call counts.
pub(crate) fn note_process_start() {
    PROCESS_START.get_or_init(Instant::now);
}

/// Deadline of a command; `None` without `--timeout`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadline(Option<Instant>);

/// The deadline of a command has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadlinePassed;

impl Deadline {
    /// Reads the value of `--timeout`, counted from the start of the process.
    pub(crate) fn from_flag(timeout: Option<&str>) -> Result<Self, Failure> {
        let Some(millis) = timeout.map(parse_duration).transpose()? else { return Ok(Self(None)) };
        let start = *PROCESS_START.get_or_init(Instant::now);
        // A time beyond the range of the clock is no deadline.
        Ok(Self(start.checked_add(Duration::from_millis(millis))))
    }

    /// Returns the remaining time; `None` without a deadline.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }

    /// Waits until the deadline; forever if there is none.
    pub(crate) async fn passed(&self) {
        match self.0 {
            Some(end) => tokio::time::sleep_until(end.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Waits for work until the deadline. The work is boxed: the future of a connection is large.
    pub(crate) fn bound<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, DeadlinePassed>> {
        let (deadline, work) = (*self, Box::pin(work));
        async move {
            tokio::select! { biased;
                done = work => Ok(done),
                () = deadline.passed() => Err(DeadlinePassed),
            }
        }
    }

    /// Like [`Self::bound`], for work that may fail. `doing` completes "--timeout ran out while …".
    pub(crate) fn within<T>(
        &self,
        doing: &str,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> impl Future<Output = Result<T, Failure>> {
        let (doing, bounded) = (doing.to_owned(), self.bound(work));
        async move { bounded.await.unwrap_or_else(|DeadlinePassed| Err(ran_out(&doing))) }
    }
}

/// Returns the failure of a command that stopped waiting.
pub(crate) fn ran_out(doing: &str) -> Failure {
    Failure::new(FailureKind::TimedOut, TIMEOUT_RAN_OUT, format!("--timeout ran out while {doing}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_time_is_that_of_the_process() {
        let none = Deadline::from_flag(None).unwrap();
        assert!(none.left().is_none());
        let long = Deadline::from_flag(Some("1h")).unwrap();
        assert!(long.left().unwrap() > Duration::from_mins(59) && long.bound(async { 1 }).await.is_ok());
        // Later calls in this process do not move its start.
        let before = long.left();
        note_process_start();
        assert!(Deadline::from_flag(Some("1h")).unwrap().left() <= before);
        let over = Deadline::from_flag(Some("0")).unwrap();
        assert_eq!(over.left(), Some(Duration::ZERO));
        let stuck = over.within("waiting", std::future::pending::<Result<(), Failure>>()).await.unwrap_err();
        assert_eq!((stuck.kind, stuck.code), (FailureKind::TimedOut, TIMEOUT_RAN_OUT));
        assert!(Deadline::from_flag(Some("soon")).is_err());
    }
}
