//! Pool of threads that evaluate scripts, each with its own worker process.
//!
//! [`FairQueue`] assigns requests to threads: short scripts do not wait for long ones, and owners
//! take turns.

use std::{
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::{ScriptError, ScriptErrorKind},
    fair_queue::{EvaluationResult, FairQueue, QueueLane, WaitingRequest},
    interpreter::{Interpreter, UnlimitedCpu, thread_time},
    printed_text::PrintedText,
    process::WorkerProcess,
    request::EvaluationRequest,
    worker::this_executable,
};

/// Maximum wait for a worker.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Time limit above which a script does not share workers with short ones.
const LONG_DURATION: Duration = Duration::from_secs(1);
/// Stack size of a thread that evaluates in this process.
const STACK_BYTES: usize = 16 << 20;

/// Threads that share a queue.
#[derive(Default)]
struct WorkerPool {
    queue: Mutex<PoolQueue>,
    filled: Condvar,
}

/// Requests of a pool, and its threads.
#[derive(Default)]
struct PoolQueue {
    requests: FairQueue,
    /// Number of threads in each lane.
    threads: [usize; 3],
}

/// Executable of the workers; without one, scripts are evaluated in this process.
static WORKER_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Makes this process evaluate every script in worker processes, which are started from `program`:
/// an executable whose `main` first calls [`run_worker`](crate::run_worker). Call it once, before
/// the first script is compiled.
///
/// Without this call a process evaluates scripts itself, and a script can terminate it.
pub fn use_worker_program(program: impl Into<PathBuf>) {
    let _ = WORKER_PROGRAM.set(program.into());
}

/// Makes this process evaluate every script in worker processes, which are started from its own
/// executable.
pub fn use_worker_processes() {
    use_worker_program(this_executable());
}

/// Evaluates a request and waits for the result. `printed` receives the text that the script
/// prints.
pub(crate) fn evaluate(request: EvaluationRequest, printed: &PrintedText) -> EvaluationResult {
    // Sources take turns: repeated calls of one do not delay the others.
    static OWNER_HASH: OnceLock<RandomState> = OnceLock::new();
    let owner = OWNER_HASH.get_or_init(RandomState::new).hash_one(&request.function.source);
    let (sender, receiver) = mpsc::sync_channel(1);
    let waiting = WaitingRequest {
        max_duration: request.function.limits.max_duration,
        build: Box::new(move || Ok(request)),
        // The caller blocks, so there are at most as many of these as threads.
        held_bytes: 0,
        submitted: Instant::now(),
        printed: printed.clone(),
        done: Box::new(move |result, _| drop(sender.send(result))),
    };
    submit(owner, waiting);
    receiver.recv().unwrap_or_else(|_| Err(unavailable("no worker accepted the script")))
}

/// Queues a request for its owner. `build` is called when a worker is available, `done` on the same
/// thread. If the queue is full, `done` of the owner with the most waiting requests is called
/// immediately.
pub(crate) fn submit(owner: u64, request: WaitingRequest) {
    // One pool for short scripts and one for long ones.
    static POOLS: OnceLock<[Arc<WorkerPool>; 2]> = OnceLock::new();
    let pools = POOLS.get_or_init(Default::default);
    pools[usize::from(request.max_duration > LONG_DURATION)].submit(owner, request);
}

fn unavailable(message: &str) -> ScriptError {
    ScriptError::new(ScriptErrorKind::Unavailable, message)
}

impl WorkerPool {
    fn submit(self: &Arc<Self>, owner: u64, request: WaitingRequest) {
        let mut queue = self.lock();
        if !self.start_threads(&mut queue) {
            drop(queue);
            return (request.done)(Err(unavailable("cannot start a thread for scripts")), Duration::ZERO);
        }
        queue.requests.push(owner, request);
        let refused = queue.requests.refuse(owner);
        drop(queue);
        // Some threads may not take it.
        self.filled.notify_all();
        for refused in refused {
            (refused.done)(Err(unavailable("too many scripts wait for a worker")), Duration::ZERO);
        }
    }

    /// Starts the missing threads, which run as long as the process. Returns false if a lane has
    /// none.
    fn start_threads(self: &Arc<Self>, queue: &mut PoolQueue) -> bool {
        for (lane, threads) in QueueLane::ALL.into_iter().zip(&mut queue.threads) {
            while *threads < worker_count() {
                let thread = thread::Builder::new().name("sinew-script".to_owned()).stack_size(STACK_BYTES);
                let pool = Arc::clone(self);
                if thread.spawn(move || pool.serve(lane)).is_err() {
                    break; // tried again with the next request
                }
                *threads += 1;
            }
        }
        !queue.threads.contains(&0)
    }

    fn lock(&self) -> MutexGuard<'_, PoolQueue> {
        // Every critical section moves whole requests, so the queue is consistent even if the lock
        // is poisoned.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evaluates requests in sequence.
    fn serve(&self, lane: QueueLane) {
        let mut evaluator = Evaluator::new(lane);
        loop {
            let mut queue = self.lock();
            let (owner, next) = loop {
                match queue.requests.pop(lane) {
                    Some(next) => break next,
                    None => queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            if next.submitted.elapsed() > MAX_WAIT {
                (next.done)(Err(unavailable("no worker was free to run a script")), Duration::ZERO);
                continue;
            }
            let started = Instant::now();
            let result = (next.build)().and_then(|request| {
                let (result, cost) = evaluator.evaluate(&request, &next.printed);
                self.lock().requests.record(owner, next.max_duration, cost);
                result
            });
            // Requests of the owner may have moved to the lane of a waiting thread.
            self.filled.notify_all();
            (next.done)(result, started.elapsed());
            evaluator.warm_up();
        }
    }
}

/// Returns the number of workers of each lane.
fn worker_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 4)))
}

/// Evaluates requests for one thread of a pool.
enum Evaluator {
    /// In a worker process, which is replaced after a request that terminated it.
    Process { program: PathBuf, lane: QueueLane, worker: Option<WorkerProcess> },
    /// In this process.
    Here(Interpreter),
}

impl Evaluator {
    fn new(lane: QueueLane) -> Self {
        match WORKER_PROGRAM.get() {
            Some(program) => Self::Process { program: program.clone(), lane, worker: None },
            None => Self::Here(Interpreter::default()),
        }
    }

    /// Evaluates a request, and retries once if something other than the script may have terminated
    /// the worker. Also returns the processor time: the maximum for a request that terminated its
    /// worker.
    fn evaluate(
        &mut self,
        request: &EvaluationRequest,
        printed: &PrintedText,
    ) -> (EvaluationResult, Duration) {
        let (program, lane, worker) = match self {
            Self::Process { program, lane, worker } => (program, *lane, worker),
            Self::Here(interpreter) => {
                let before = thread_time();
                let result = interpreter.evaluate(request, &UnlimitedCpu);
                printed.append(&interpreter.take_printed());
                return (result, thread_time().saturating_sub(before));
            }
        };
        let mut is_repeated = false;
        loop {
            let started = match worker.take().and_then(WorkerProcess::if_alive) {
                Some(process) => Ok(process),
                None => WorkerProcess::start(program, lane),
            };
            let mut process = match started {
                Ok(process) => process,
                Err(error) => {
                    return (
                        Err(unavailable(&format!("cannot start a script worker: {error}"))),
                        Duration::ZERO,
                    );
                }
            };
            match process.exchange(request) {
                Ok(response) => {
                    printed.append(&response.printed);
                    if !response.retires {
                        *worker = Some(process);
                    }
                    return (response.result, Duration::from_micros(response.cpu_micros));
                }
                Err(failure) => {
                    let failure = process.end(&failure, request);
                    if is_repeated || !failure.may_be_outside {
                        return (Err(failure.error), Duration::MAX);
                    }
                    is_repeated = true;
                }
            }
        }
    }

    /// Replaces a terminated worker, so that the next request does not wait for its start.
    fn warm_up(&mut self) {
        if let Self::Process { program, lane, worker: worker @ None } = self {
            *worker = WorkerProcess::start(program, *lane).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::limits::Limits;
    use crate::request::{EvaluationAction, FunctionText};

    fn request_of(source: &str, limits: Limits, action: EvaluationAction) -> EvaluationRequest {
        EvaluationRequest { function: Arc::new(FunctionText { source: source.to_owned(), limits }), action }
    }

    fn request() -> EvaluationRequest {
        request_of("lambda d: d", Limits::function(), EvaluationAction::Compile)
    }

    fn waiting(
        build: impl FnOnce() -> Result<EvaluationRequest, ScriptError> + Send + 'static,
        done: impl FnOnce(EvaluationResult, Duration) + Send + 'static,
    ) -> WaitingRequest {
        WaitingRequest {
            build: Box::new(build),
            held_bytes: 0,
            max_duration: Limits::function().max_duration,
            submitted: Instant::now(),
            printed: PrintedText::default(),
            done: Box::new(done),
        }
    }

    #[test]
    fn the_time_of_an_evaluation_is_without_its_wait() {
        let (sender, receiver) = mpsc::channel();
        let limits = Limits { max_duration: Duration::from_millis(300), ..Limits::function() };
        let endless = "def f(d):\n    while True: pass";
        let pool = Arc::new(WorkerPool::default());
        let started = Instant::now();
        for _ in 0..worker_count() * 6 {
            let slow = request_of(endless, limits.clone(), EvaluationAction::Call(Value::Null));
            pool.submit(1, waiting(|| Ok(slow), |_, _| ()));
        }
        pool.submit(1, waiting(|| Ok(request()), move |_, took| sender.send(took).unwrap()));
        let took = receiver.recv().unwrap();
        assert!(took < started.elapsed() / 2, "{took:?} of {:?}", started.elapsed());
    }

    /// A script with a good record waits for none of the endless scripts, regardless of their
    /// number.
    #[test]
    fn long_scripts_of_any_number_do_not_delay_a_short_one() {
        let pool = Arc::new(WorkerPool::default());
        let innocent = |pool: &Arc<WorkerPool>| {
            let (sender, receiver) = mpsc::channel();
            pool.submit(0, waiting(|| Ok(request()), move |result, _| sender.send(result).unwrap()));
            receiver.recv().unwrap()
        };
        for _ in 0..3 {
            innocent(&pool).unwrap();
        }
        // Each of these occupies its thread until this test releases it.
        let (begun, begins) = mpsc::channel();
        let (let_go, goes_on) = mpsc::channel::<()>();
        let goes_on = Arc::new(Mutex::new(goes_on));
        let cost = Limits::function().max_duration;
        for owner in 1..=200 {
            if owner % 2 == 0 {
                pool.lock().requests.record(owner, cost, cost);
            }
            let (begun, goes_on) = (begun.clone(), Arc::clone(&goes_on));
            let build = move || {
                let _ = begun.send(());
                let _ = goes_on.lock().unwrap().recv();
                Ok(request())
            };
            pool.submit(owner, waiting(build, |_, _| ()));
        }
        for _ in 0..worker_count() * 2 {
            begins.recv().unwrap();
        }
        for _ in 0..20 {
            innocent(&pool).unwrap();
        }
        assert!(begins.try_recv().is_err(), "a long script has the thread of short ones");
        drop(let_go);
    }

    /// Evaluates with a worker that kills itself `deaths` times and then returns 7. Returns the
    /// result and the number of started workers.
    fn evaluate_with_deaths(deaths: usize) -> (EvaluationResult, usize) {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = std::env::temp_dir().join(format!("sinew-script-{}-{deaths}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (program, starts) = (folder.join("worker"), folder.join("starts"));
        let shown = starts.display();
        // The response has 50 bytes: octal 62.
        let script = format!(
            "#!/bin/sh\necho >> '{shown}'\nhead -c 4 > /dev/null\n[ $(wc -l < '{shown}') -gt {deaths} ] || kill -9 $$\n\
             printf '\\062\\000\\000\\000{{\"result\":{{\"Ok\":7}},\"cpu_micros\":9,\"retires\":false}}'\nsleep 1\n"
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (result, cost) = Evaluator::Process { program, lane: QueueLane::Quick, worker: None }
            .evaluate(&request(), &PrintedText::default());
        assert_eq!(cost, if result.is_ok() { Duration::from_micros(9) } else { Duration::MAX });
        let count = std::fs::read_to_string(&starts).unwrap_or_default().lines().count();
        let _ = std::fs::remove_dir_all(&folder);
        (result, count)
    }

    #[test]
    fn a_worker_that_was_killed_from_outside_is_replaced_once() {
        assert_eq!(evaluate_with_deaths(0), (Ok(Value::from(7)), 1));
        assert_eq!(evaluate_with_deaths(1), (Ok(Value::from(7)), 2));
        let (result, starts) = evaluate_with_deaths(9);
        assert_eq!((result.unwrap_err().kind, starts), (ScriptErrorKind::WorkerEnded, 2));
    }
}
