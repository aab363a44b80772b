//! Where a handler is polled: inline while it is quick, in a separate task once it has blocked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as PollContext, Poll};
use std::time::{Duration, Instant};

use sinew_protocol::Fault;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::handler::{HandlerCall, HandlerOutput};

/// Maximum duration of a quick poll.
const MAX_POLL_TIME: Duration = Duration::from_millis(1);
/// Consecutive quick polls after which a slow handler counts as quick: on a busy machine any poll
/// may be interrupted.
const POLLS_OF_TRUST: u32 = 256;

/// Recent poll durations of a handler.
#[derive(Debug)]
pub(crate) struct HandlerPace {
    /// Quick polls that are required before the handler counts as quick.
    distrust: AtomicU32,
}

/// A new handler counts as slow: the first call may block, and with it the heartbeats of its task.
impl Default for HandlerPace {
    fn default() -> Self {
        Self { distrust: AtomicU32::new(POLLS_OF_TRUST) }
    }
}

impl HandlerPace {
    /// Returns whether a poll of the handler may block other work.
    pub(crate) fn is_slow(&self) -> bool {
        self.distrust.load(Ordering::Relaxed) > 0
    }

    /// Polls with `poll` and records its duration.
    pub(crate) fn timed<T>(&self, poll: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let polled = poll();
        self.observe(began.elapsed());
        polled
    }

    fn observe(&self, took: Duration) {
        if took > MAX_POLL_TIME {
            self.distrust.store(POLLS_OF_TRUST, Ordering::Relaxed);
        } else if self.is_slow() {
            let _ =
                self.distrust.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        }
    }
}

/// A handler call in a separate task, which blocks no thread of other tasks while the handler is
/// slow.
pub(crate) struct PacedCall {
    call: HandlerCall,
    pace: Arc<HandlerPace>,
}

impl PacedCall {
    pub(crate) fn new(call: HandlerCall, pace: &Arc<HandlerPace>) -> Self {
        Self { call, pace: Arc::clone(pace) }
    }
}

impl Future for PacedCall {
    type Output = Result<HandlerOutput, Fault>;

    fn poll(self: Pin<&mut Self>, cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        let Self { call, pace } = self.get_mut();
        let mut poll = || pace.timed(|| call.as_mut().poll(cx));
        // A blocking worker thread may be the one that drives the sockets, and keeps the last task
        // that it woke: then the runtime stops although other threads are idle. So its work is
        // first moved to another thread, unless the runtime has only one.
        if pace.is_slow() && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
            tokio::task::block_in_place(poll)
        } else {
            poll()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_poll_is_forgiven_after_many_quick_ones() {
        let pace = HandlerPace::default();
        for _ in 0..POLLS_OF_TRUST {
            assert!(pace.is_slow(), "an unknown handler may block");
            pace.observe(Duration::ZERO);
        }
        assert!(!pace.is_slow());
        pace.observe(MAX_POLL_TIME);
        assert!(!pace.is_slow(), "that long is quick");
        pace.observe(MAX_POLL_TIME * 2);
        for _ in 0..POLLS_OF_TRUST {
            assert!(pace.is_slow());
            pace.observe(Duration::ZERO);
        }
        assert!(!pace.is_slow());
        pace.observe(Duration::ZERO);
        assert!(!pace.is_slow());
    }

    /// Hangs without `block_in_place`: the handler blocks the thread that drives the other tasks.
    #[test]
    fn a_slow_handler_leaves_its_thread_to_others() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.unwrap().block_on(async {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let pace = Arc::new(HandlerPace::default());
            pace.observe(MAX_POLL_TIME * 2);
            let call: HandlerCall = Box::pin(async move {
                released.recv().unwrap();
                Ok(HandlerOutput::Text("released".to_owned()))
            });
            let blocked = tokio::spawn(PacedCall::new(call, &pace));
            // The only worker thread runs this task after the blocking one.
            tokio::spawn(async move { release.send(()).unwrap() }).await.unwrap();
            assert!(matches!(blocked.await.unwrap(), Ok(HandlerOutput::Text(text)) if text == "released"));
        });
    }
}
