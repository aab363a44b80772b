//! Threads with large stacks that run scripts, with a deadline for the one who waits.
//!
//! The interpreter recurses on the native stack and cannot interrupt one long native operation. So anything
//! that is not plainly harmless runs here. A worker that misses its deadline is given up and replaced; it
//! ends by itself when its operation does.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

const STACK: usize = 8 << 20;
/// Most workers given up at one time; beyond it waiting callers get the timeout instead of a new thread.
const MAX_LOST: usize = 16;
/// Longest wait for a free worker.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Why a job brought no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It missed its deadline, or no worker became free.
    Late,
    /// It panicked.
    Panicked,
    /// No worker could be started.
    NoThread,
}

type Job = Box<dyn FnOnce() -> Next + Send>;

/// What a worker does after a job.
enum Next {
    Continue,
    Leave,
}

struct Pool {
    jobs: Sender<Job>,
    queue: Arc<Mutex<Receiver<Job>>>,
}

struct Slot<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Queued,
    Running(Instant),
    Done(Option<T>),
    Abandoned { replaced: bool },
}

static LOST: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` on a worker and waits for it, at most `limit` from the moment it starts.
pub(crate) fn run<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Lost> {
    let pool = pool().ok_or(Lost::NoThread)?;
    let slot = Arc::new(Slot { state: Mutex::new(State::Queued), changed: Condvar::new() });
    let job = {
        let slot = Arc::clone(&slot);
        Box::new(move || slot.work(work))
    };
    pool.jobs.send(job).map_err(|_| Lost::NoThread)?;
    slot.wait(pool, limit)
}

impl<T> Slot<T> {
    fn work(&self, work: impl FnOnce() -> T) -> Next {
        {
            let mut state = lock(&self.state);
            if matches!(*state, State::Abandoned { .. }) {
                return Next::Continue;
            }
            *state = State::Running(Instant::now());
        }
        self.changed.notify_one();
        let result = catch_unwind(AssertUnwindSafe(work)).ok();
        let mut state = lock(&self.state);
        if let State::Abandoned { replaced } = *state {
            LOST.fetch_sub(1, Ordering::Relaxed);
            return if replaced { Next::Leave } else { Next::Continue };
        }
        *state = State::Done(result);
        drop(state);
        self.changed.notify_one();
        Next::Continue
    }

    fn wait(&self, pool: &Pool, limit: Duration) -> Result<T, Lost> {
        let queued = Instant::now();
        let mut state = lock(&self.state);
        loop {
            let deadline = match &mut *state {
                State::Done(result) => return result.take().ok_or(Lost::Panicked),
                State::Running(since) => *since + limit,
                State::Queued | State::Abandoned { .. } => queued + MAX_WAIT,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let running = matches!(*state, State::Running(_));
                let replaced =
                    running && LOST.fetch_add(1, Ordering::Relaxed) < MAX_LOST && pool.add_worker();
                *state = State::Abandoned { replaced };
                return Err(Lost::Late);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Pool {
    fn add_worker(&self) -> bool {
        let queue = Arc::clone(&self.queue);
        let worker = move || {
            loop {
                let job = lock(&queue).recv();
                match job.map(|job| job()) {
                    Ok(Next::Continue) => {}
                    Ok(Next::Leave) | Err(_) => return,
                }
            }
        };
        thread::Builder::new().name("sinew-script".to_owned()).stack_size(STACK).spawn(worker).is_ok()
    }
}

fn pool() -> Option<&'static Pool> {
    static POOL: OnceLock<Option<Pool>> = OnceLock::new();
    POOL.get_or_init(|| {
        let (jobs, queue) = channel();
        let pool = Pool { jobs, queue: Arc::new(Mutex::new(queue)) };
        let workers = thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4));
        let started = (0..workers).filter(|_| pool.add_worker()).count();
        (started > 0).then_some(pool)
    })
    .as_ref()
}

/// A poisoned lock still guards sound data here: every critical section is a plain assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_back_a_panic_is_caught_and_a_late_job_is_given_up() {
        let limit = Duration::from_secs(5);
        assert_eq!(run(limit, || 7), Ok(7));
        assert_eq!(run(limit, || -> u8 { panic!("on purpose") }), Err(Lost::Panicked));
        // Every worker is blocked until the test lets go, yet later jobs still get through.
        let (release, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..6 {
            let gate = Arc::clone(&gate);
            let late = run(Duration::from_millis(5), move || lock(&gate).recv().is_err());
            assert_eq!(late, Err(Lost::Late));
        }
        assert_eq!(run(limit, || 8), Ok(8));
        drop(release);
    }
}
