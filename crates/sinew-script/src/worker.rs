//! Worker: a process that evaluates scripts for its parent process.
//!
//! An evaluation may exhaust the memory, overflow the stack or run a single operation that the
//! interpreter cannot interrupt. In a separate process it terminates only that process.

use std::{
    fs,
    io::{self, stdin, stdout},
    process::{Command, ExitCode, exit},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, Rlimit, setrlimit},
};

use serde_json::Value;

use crate::{
    error::{ScriptError, ScriptErrorKind},
    fair_queue::QueueLane,
    interpreter::{COMPILE_TIMEOUT, CpuBudget, Interpreter, process_time},
    request::{EvaluationRequest, EvaluationResponse, MAX_REQUEST_BYTES, read_frame, write_frame},
    worker_cores::WorkerCores,
};

/// First argument of a process that becomes a worker; the second is the name of its lane.
pub(crate) const WORKER_ARGUMENT: &str = "__script-worker";
/// First argument of a worker whose limits are set; the second is the name of its lane.
const LIMITED_ARGUMENT: &str = "__script-worker-limited";
/// Exit code of a worker that aborted its evaluation because it exceeded the processor time.
pub(crate) const CPU_USED_UP_EXIT: i32 = 77;

/// Maximum size of a worker's heap and stacks, in bytes.
const MAX_DATA_BYTES: u64 = 256 << 20;
/// Resident memory above which a worker exits after its response, in bytes.
const RETIRE_BYTES: u64 = 96 << 20;
/// Maximum processor time of an orphaned worker; a last resort.
const MAX_CPU_SECONDS: u64 = 600;
/// Processor time after which a worker exits after its response, well before the last resort.
const RETIRE_CPU: Duration = Duration::from_mins(5);
/// Stack size of the evaluating thread, on which the interpreter recurses.
const STACK_BYTES: usize = 16 << 20;
/// Interval at which a worker checks the processor time of an evaluation.
const CPU_POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Processor time after which an evaluation leaves a core free.
const LONG_CPU: Duration = Duration::from_millis(10);

/// Runs a worker if the process was started as one; call this first in `main`. Returns `None`
/// otherwise.
///
/// A worker reads requests from stdin until its parent exits.
pub fn run_worker() -> Option<ExitCode> {
    let argument = std::env::args_os().nth(1)?;
    let lane = || std::env::args().nth(2).and_then(|name| QueueLane::of(&name)).unwrap_or(QueueLane::Unknown);
    let ended = match argument.to_str()? {
        WORKER_ARGUMENT => limit_and_restart(lane()),
        LIMITED_ARGUMENT => serve_requests(lane()),
        _ => return None,
    };
    Some(if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sets the limits of this process and restarts it, so that they apply from its first allocation:
/// an allocator with reserved memory would not be limited.
fn limit_and_restart(lane: QueueLane) -> io::Result<()> {
    use std::os::unix::process::CommandExt as _;

    // When memory is exhausted, the kernel kills a worker and not its parent. Systems without this
    // file have no such setting.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let _ = rustix::process::nice(niceness(lane));
    for (resource, limit) in [
        (Resource::Data, MAX_DATA_BYTES),
        (Resource::Cpu, MAX_CPU_SECONDS),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ] {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Err(Command::new(this_executable()).arg(LIMITED_ARGUMENT).arg(lane.name()).exec())
}

/// Returns the niceness of a lane's workers: scripts yield to the process that they work for, and
/// long ones to short ones.
fn niceness(lane: QueueLane) -> i32 {
    match lane {
        QueueLane::Quick => 5,
        QueueLane::Unknown => 10,
        QueueLane::Slow => 15,
    }
}

/// Returns the executable of this process. On Linux it is found even if its file was replaced.
pub(crate) fn this_executable() -> std::path::PathBuf {
    let link = "/proc/self/exe";
    if cfg!(target_os = "linux") && fs::exists(link).unwrap_or(false) {
        return link.into();
    }
    std::env::current_exe().unwrap_or_default()
}

/// Processor time at which the current evaluation is aborted, in microseconds; 0 if nothing runs.
#[derive(Default)]
struct CpuDeadline(AtomicU64);

impl CpuBudget for CpuDeadline {
    fn allow(&self, time: Duration) {
        self.0.store(micros(process_time() + time), Ordering::SeqCst);
    }
}

impl CpuDeadline {
    fn clear(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    fn is_over(&self) -> bool {
        let deadline = self.0.load(Ordering::SeqCst);
        deadline != 0 && micros(process_time()) > deadline
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Reads requests and monitors the evaluation of each; exits with the parent.
fn serve_requests(lane: QueueLane) -> io::Result<()> {
    // Only the three standard files are open, and one more while the process reads its own size.
    setrlimit(Resource::Nofile, Rlimit { current: Some(8), maximum: Some(8) })?;
    // The parent reads stderr only after the worker has exited: panic messages would fill the pipe
    // before.
    std::panic::set_hook(Box::new(|_| {}));
    let deadline = Arc::new(CpuDeadline::default());
    let (requests, queue) = channel();
    let cores = Arc::new(WorkerCores::default());
    let (budget, own_cores) = (Arc::clone(&deadline), Arc::clone(&cores));
    // Scripts of unknown owners may be long: only owners with a record of short ones may use all
    // cores.
    let is_restricted = lane != QueueLane::Quick;
    let evaluate = move || {
        own_cores.enter();
        own_cores.leave_one(is_restricted);
        evaluate_requests(&queue, &budget);
    };
    thread::Builder::new().stack_size(STACK_BYTES).spawn(evaluate)?;
    let mut began = Duration::ZERO;
    loop {
        let parent = stdin();
        let wait = deadline.is_set().then_some(&CPU_POLL_INTERVAL);
        // The parent sends nothing during an evaluation, so a readable stdin means that the parent
        // has exited.
        if poll(&mut [PollFd::new(&parent, PollFlags::IN)], wait)? > 0 {
            let request = match read_frame::<EvaluationRequest>(parent.lock(), MAX_REQUEST_BYTES) {
                Ok(request) => request,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            // Before the evaluation starts, because it sets and clears its own deadline.
            deadline.allow(COMPILE_TIMEOUT);
            began = process_time();
            cores.leave_one(is_restricted);
            requests.send(request).map_err(io::Error::other)?;
        } else if deadline.is_over() {
            exit(CPU_USED_UP_EXIT);
        } else if deadline.is_set() && process_time().saturating_sub(began) > LONG_CPU {
            cores.leave_one(true);
        }
    }
}

fn evaluate_requests(queue: &Receiver<EvaluationRequest>, budget: &CpuDeadline) {
    let mut interpreter = Interpreter::default();
    while let Ok(request) = queue.recv() {
        let before = process_time();
        let result = interpreter.evaluate(&request, budget);
        let cpu_micros = micros(process_time().saturating_sub(before));
        budget.clear();
        let retires =
            resident_bytes() > RETIRE_BYTES || process_time() > RETIRE_CPU || has_failed_interpreter(&result);
        let printed = interpreter.take_printed();
        let response = EvaluationResponse { result, printed, cpu_micros, retires };
        if write_frame(stdout().lock(), &response).is_err() || retires {
            exit(0);
        }
    }
}

/// Returns whether the interpreter failed, after which this process is unreliable.
fn has_failed_interpreter(result: &Result<Value, ScriptError>) -> bool {
    matches!(result, Err(error) if error.kind == ScriptErrorKind::Internal)
}

/// Returns the resident memory of this process in bytes; 0 if it cannot be read.
fn resident_bytes() -> u64 {
    let read = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = read.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_retires_after_a_failure_of_the_interpreter_only() {
        let error = |kind| Err(ScriptError::new(kind, "test"));
        assert!(has_failed_interpreter(&error(ScriptErrorKind::Internal)));
        assert!(!has_failed_interpreter(&error(ScriptErrorKind::Runtime)));
        assert!(!has_failed_interpreter(&Ok(Value::Null)));
    }
}
