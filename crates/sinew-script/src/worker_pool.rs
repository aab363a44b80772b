//! A few threads that evaluate for everybody, each with a worker process of its own.
//!
//! Waiting requests take turns by their owner: a workflow with a thousand slow scripts delays another workflow by one
//! script, not by a thousand. When too many requests wait, the owner with the most of them loses its newest one.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    error::{ScriptError, ScriptErrorKind},
    interpreter::{Interpreter, UnlimitedCpu},
    process::WorkerProcess,
    request::EvaluationRequest,
    worker::this_executable,
};

/// Most requests that wait for a worker.
const MAX_WAITING: usize = 10_000;
/// Longest wait for a worker.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Limit of running time above which a script does not share workers with short ones.
const LONG_DURATION: Duration = Duration::from_secs(1);
/// Stack of a thread that evaluates in this process.
const STACK_BYTES: usize = 16 << 20;

type EvaluationResult = Result<Value, ScriptError>;

/// A request that waits for a worker.
struct WaitingRequest {
    /// Builds the request when its turn comes, so that arguments do not fill the memory while they wait.
    build: Box<dyn FnOnce() -> Result<EvaluationRequest, ScriptError> + Send>,
    expires: Instant,
    /// Takes the result and the time that the evaluation took, without the wait for a worker.
    done: Box<dyn FnOnce(EvaluationResult, Duration) + Send>,
}

/// Requests in the order in which their owners take turns.
struct FairQueue {
    turns: VecDeque<u64>,
    requests: BTreeMap<u64, VecDeque<WaitingRequest>>,
    length: usize,
    /// Threads that take requests out.
    threads: usize,
}

struct WorkerPool {
    queue: Mutex<FairQueue>,
    filled: Condvar,
}

/// The executable that becomes a worker; without one, scripts are evaluated in this process.
static WORKER_PROGRAM: OnceLock<PathBuf> = OnceLock::new();
/// One pool for short scripts and one for long ones.
static SHORT_SCRIPTS: WorkerPool = WorkerPool::new();
static LONG_SCRIPTS: WorkerPool = WorkerPool::new();

/// Makes this process evaluate every script in worker processes, which are started from `program`: an executable whose
/// `main` begins with [`run_worker`](crate::run_worker). Call it once, before the first script is compiled.
///
/// A process that does not call this evaluates scripts itself: a script can then end it.
pub fn use_worker_program(program: impl Into<PathBuf>) {
    let _ = WORKER_PROGRAM.set(program.into());
}

/// Makes this process evaluate every script in worker processes, which are started from its own executable.
pub fn use_worker_processes() {
    use_worker_program(this_executable());
}

/// Evaluates a request and waits for the result.
pub(crate) fn evaluate(request: EvaluationRequest) -> EvaluationResult {
    // Texts take turns: one that is called over and over does not hold up the others.
    static OWNER_HASH: OnceLock<RandomState> = OnceLock::new();
    let owner = OWNER_HASH.get_or_init(RandomState::new).hash_one(&request.function.source);
    let (sender, receiver) = mpsc::sync_channel(1);
    let max_duration = request.function.limits.max_duration;
    submit(owner, max_duration, move || Ok(request), move |result, _| drop(sender.send(result)));
    receiver.recv().unwrap_or_else(|_| Err(unavailable("no worker took the script")))
}

/// Queues a request for its owner. `build` is called when a worker is free, `done` on the same thread with the result
/// and the time that the evaluation took. Without room, `done` of the owner with the most requests is called at once.
pub(crate) fn submit(
    owner: u64,
    max_duration: Duration,
    build: impl FnOnce() -> Result<EvaluationRequest, ScriptError> + Send + 'static,
    done: impl FnOnce(EvaluationResult, Duration) + Send + 'static,
) {
    let pool = if max_duration > LONG_DURATION { &LONG_SCRIPTS } else { &SHORT_SCRIPTS };
    let mut queue = pool.lock();
    pool.start_threads(&mut queue);
    if queue.threads == 0 {
        drop(queue);
        return done(Err(unavailable("no thread to run a script")), Duration::ZERO);
    }
    let expires = Instant::now() + MAX_WAIT;
    queue.push(owner, WaitingRequest { build: Box::new(build), expires, done: Box::new(done) });
    let refused = if queue.length > MAX_WAITING { queue.refuse(owner) } else { None };
    drop(queue);
    pool.filled.notify_one();
    if let Some(refused) = refused {
        (refused.done)(Err(unavailable("too many scripts wait for a worker")), Duration::ZERO);
    }
}

fn unavailable(message: &str) -> ScriptError {
    ScriptError::new(ScriptErrorKind::Unavailable, message)
}

impl FairQueue {
    const fn new() -> Self {
        Self { turns: VecDeque::new(), requests: BTreeMap::new(), length: 0, threads: 0 }
    }

    fn push(&mut self, owner: u64, request: WaitingRequest) {
        let own = self.requests.entry(owner).or_default();
        if own.is_empty() {
            self.turns.push_back(owner);
        }
        own.push_back(request);
        self.length += 1;
    }

    fn pop(&mut self) -> Option<WaitingRequest> {
        let owner = self.turns.pop_front()?;
        let own = self.requests.get_mut(&owner)?;
        let next = own.pop_front();
        if own.is_empty() {
            self.requests.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        self.length -= usize::from(next.is_some());
        next
    }

    /// Takes out the newest request of the owner with the most; among equals, of the owner that came last.
    fn refuse(&mut self, newcomer: u64) -> Option<WaitingRequest> {
        let most = self.requests.iter().max_by_key(|(owner, own)| (own.len(), **owner == newcomer));
        let owner = most.map(|(owner, _)| *owner)?;
        let own = self.requests.get_mut(&owner)?;
        let newest = own.pop_back();
        if own.is_empty() {
            self.requests.remove(&owner);
            self.turns.retain(|turn| *turn != owner);
        }
        self.length -= usize::from(newest.is_some());
        newest
    }
}

impl WorkerPool {
    const fn new() -> Self {
        Self { queue: Mutex::new(FairQueue::new()), filled: Condvar::new() }
    }

    /// Starts the threads that are missing; they last as long as the process.
    fn start_threads(&'static self, queue: &mut FairQueue) {
        while queue.threads < worker_count() {
            let thread = thread::Builder::new().name("sinew-script".to_owned()).stack_size(STACK_BYTES);
            if thread.spawn(move || self.serve()).is_err() {
                return; // tried again with the next request
            }
            queue.threads += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue> {
        // Every critical section moves whole requests, so the queue behind a poisoned lock is sound.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evaluates one request after another.
    fn serve(&self) {
        let mut evaluator = Evaluator::new();
        loop {
            let mut queue = self.lock();
            let next = loop {
                match queue.pop() {
                    Some(next) => break next,
                    None => queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            if next.expires < Instant::now() {
                (next.done)(Err(unavailable("no worker was free to run a script")), Duration::ZERO);
                continue;
            }
            let started = Instant::now();
            let result = (next.build)().and_then(|request| evaluator.evaluate(&request));
            (next.done)(result, started.elapsed());
            evaluator.warm_up();
        }
    }
}

/// Workers of each pool.
fn worker_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| thread::available_parallelism().map_or(4, |count| count.get().clamp(4, 8)))
}

/// Evaluates requests for one thread of a pool.
enum Evaluator {
    /// In a worker process, which is replaced after a request it did not survive.
    Process { program: PathBuf, worker: Option<WorkerProcess> },
    /// In this process.
    Here(Interpreter),
}

impl Evaluator {
    fn new() -> Self {
        match WORKER_PROGRAM.get() {
            Some(program) => Self::Process { program: program.clone(), worker: None },
            None => Self::Here(Interpreter::default()),
        }
    }

    /// Evaluates a request; once more if something outside may have ended the worker.
    fn evaluate(&mut self, request: &EvaluationRequest) -> EvaluationResult {
        let (program, worker) = match self {
            Self::Process { program, worker } => (program, worker),
            Self::Here(interpreter) => return interpreter.evaluate(request, &UnlimitedCpu),
        };
        let mut is_repeated = false;
        loop {
            let mut process = match worker.take().and_then(WorkerProcess::if_alive) {
                Some(process) => process,
                None => WorkerProcess::start(program)
                    .map_err(|error| unavailable(&format!("no worker for scripts: {error}")))?,
            };
            match process.exchange(request) {
                Ok(response) => {
                    if !response.retires {
                        *worker = Some(process);
                    }
                    return response.result;
                }
                Err(failure) => {
                    let failure = process.end(&failure, request);
                    if is_repeated || !failure.may_be_outside {
                        return Err(failure.error);
                    }
                    is_repeated = true;
                }
            }
        }
    }

    /// Replaces a worker that has ended, so that the next request need not wait for its start.
    fn warm_up(&mut self) {
        if let Self::Process { program, worker: worker @ None } = self {
            *worker = WorkerProcess::start(program).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::limits::Limits;
    use crate::request::{EvaluationAction, FunctionText};

    type Order = Arc<Mutex<Vec<&'static str>>>;

    fn request() -> EvaluationRequest {
        let text = FunctionText { source: "lambda d: d".to_owned(), limits: Limits::function() };
        EvaluationRequest { function: Arc::new(text), action: EvaluationAction::Compile }
    }

    fn queue_of(requests: &[(u64, &'static str)]) -> (FairQueue, Order) {
        let mut queue = FairQueue::new();
        let order = Order::default();
        for &(owner, name) in requests {
            let order = Arc::clone(&order);
            let done = Box::new(move |_: EvaluationResult, _| order.lock().unwrap().push(name));
            let build = Box::new(|| Ok(request()));
            queue.push(owner, WaitingRequest { build, expires: Instant::now(), done });
        }
        (queue, order)
    }

    fn done(request: WaitingRequest) {
        (request.done)(Ok(Value::Null), Duration::ZERO);
    }

    #[test]
    fn owners_take_turns_however_much_one_of_them_asks_for() {
        let (mut queue, order) =
            queue_of(&[(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")]);
        while let Some(next) = queue.pop() {
            done(next);
        }
        assert_eq!(*order.lock().unwrap(), ["a1", "b1", "c1", "a2", "b2", "a3"]);
        assert_eq!((queue.length, queue.turns.len(), queue.requests.len()), (0, 0, 0));
    }

    #[test]
    fn the_owner_with_the_most_requests_loses_its_newest() {
        let (mut queue, order) = queue_of(&[(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1")]);
        for _ in 0..3 {
            done(queue.refuse(3).unwrap());
        }
        assert_eq!(*order.lock().unwrap(), ["a3", "a2", "c1"], "the last one is the newcomer among equals");
        while let Some(next) = queue.pop() {
            done(next);
        }
        assert_eq!(order.lock().unwrap()[3..], ["a1", "b1"]);
        assert_eq!((queue.length, queue.turns.len(), queue.requests.len()), (0, 0, 0));
    }

    #[test]
    fn the_time_of_an_evaluation_is_without_its_wait() {
        let (sender, receiver) = mpsc::channel();
        let slow = FunctionText {
            source: "def f(d):\n    while True: pass".to_owned(),
            limits: Limits { max_duration: Duration::from_millis(300), ..Limits::function() },
        };
        let slow = Arc::new(slow);
        let started = Instant::now();
        for _ in 0..worker_count() * 3 {
            let function = Arc::clone(&slow);
            let build = || Ok(EvaluationRequest { function, action: EvaluationAction::Call(Value::Null) });
            submit(1, Duration::ZERO, build, |_, _| ());
        }
        submit(1, Duration::ZERO, || Ok(request()), move |_, took| sender.send(took).unwrap());
        let took = receiver.recv().unwrap();
        assert!(took < started.elapsed() / 2, "{took:?} of {:?}", started.elapsed());
    }

    /// Evaluates with a worker that kills itself as often as `deaths` says, then answers 7. Returns the result and the
    /// number of workers that were started.
    fn evaluate_with_deaths(deaths: usize) -> (EvaluationResult, usize) {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = std::env::temp_dir().join(format!("sinew-script-{}-{deaths}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (program, starts) = (folder.join("worker"), folder.join("starts"));
        let shown = starts.display();
        // The answer has 35 bytes: octal 43.
        let script = format!(
            "#!/bin/sh\necho >> '{shown}'\nhead -c 4 > /dev/null\n[ $(wc -l < '{shown}') -gt {deaths} ] || kill -9 $$\n\
             printf '\\043\\000\\000\\000{{\"result\":{{\"Ok\":7}},\"retires\":false}}'\nsleep 1\n"
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let result = Evaluator::Process { program, worker: None }.evaluate(&request());
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
