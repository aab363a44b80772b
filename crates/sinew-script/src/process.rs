//! Parent side of a worker process: start, request, exit.

use std::{
    io::{self, Read, Write},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::Path,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
};

use crate::{
    error::{ScriptError, ScriptErrorKind},
    fair_queue::QueueLane,
    request::{EvaluationRequest, EvaluationResponse, MAX_REQUEST_BYTES, encode_frame, read_frame},
    worker::{CPU_USED_UP_EXIT, WORKER_ARGUMENT},
};

/// Wall time of a worker beyond four times the limit of a script. Until then only the worker's own
/// limit of processor time applies, so that a busy machine fails no script.
const WALL_GRACE: Duration = Duration::from_secs(4);
/// Size of a response beyond the maximum result, in bytes: an error with its snippet, and a result
/// that JSON encodes longer.
const MAX_RESPONSE_EXTRA_BYTES: usize = 1 << 20;
/// Maximum size of a worker's stderr that is read, in bytes.
const MAX_STDERR_BYTES: u64 = 4 << 10;

/// Signal of a kill, which the system sends when memory is exhausted.
const SIGKILL: i32 = 9;

/// Failure of an exchange with a worker.
pub(crate) struct WorkerFailure {
    pub(crate) error: ScriptError,
    /// Whether the cause may be something other than the script, so that another worker may
    /// succeed.
    pub(crate) may_be_outside: bool,
}

/// Worker process that handles one request at a time.
pub(crate) struct WorkerProcess {
    child: Child,
    requests: ChildStdin,
    responses: ChildStdout,
    last_words: ChildStderr,
}

impl WorkerProcess {
    /// Starts a worker without environment, in the root directory, and outside the terminal's
    /// process group, so that an interrupt of the parent does not stop an evaluation.
    pub(crate) fn start(program: &Path, lane: QueueLane) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg(WORKER_ARGUMENT)
            .arg(lane.name())
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(requests), Some(responses), Some(last_words)) = pipes else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        fcntl_setfl(&requests, fcntl_getfl(&requests)? | OFlags::NONBLOCK)?;
        fcntl_setfl(&responses, fcntl_getfl(&responses)? | OFlags::NONBLOCK)?;
        fcntl_setfl(&last_words, fcntl_getfl(&last_words)? | OFlags::NONBLOCK)?;
        Ok(Self { child, requests, responses, last_words })
    }

    /// Returns the worker, unless it exited while idle.
    pub(crate) fn if_alive(mut self) -> Option<Self> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    /// Sends a request and waits for the response. After a failure the worker cannot be used again:
    /// [`WorkerProcess::end`] returns the reason.
    pub(crate) fn exchange(&mut self, request: &EvaluationRequest) -> io::Result<EvaluationResponse> {
        let limits = &request.function.limits;
        let deadline = Instant::now() + limits.max_duration * 4 + WALL_GRACE;
        let frame = encode_frame(request)?;
        if frame.len() > MAX_REQUEST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        BeforeDeadline { pipe: &mut self.requests, deadline }.write_all(&frame)?;
        let max_bytes = limits.max_result * 2 + MAX_RESPONSE_EXTRA_BYTES;
        read_frame(BeforeDeadline { pipe: &mut self.responses, deadline }, max_bytes)
    }

    /// Stops the worker and returns the reason why the exchange with it failed.
    pub(crate) fn end(mut self, failure: &io::Error, request: &EvaluationRequest) -> WorkerFailure {
        let timed_out = failure.kind() == io::ErrorKind::TimedOut;
        if failure.kind() == io::ErrorKind::FileTooLarge {
            let error = ScriptError::new(ScriptErrorKind::Value, "the argument or the result is too large");
            return WorkerFailure { error, may_be_outside: false };
        }
        // The pipe closes before the process exits; an early kill would hide the worker's own exit
        // code.
        let status = if timed_out { None } else { self.wait_for_exit() };
        let limit = request.function.limits.max_duration;
        let mut words = String::new();
        let _ = (&mut self.last_words).take(MAX_STDERR_BYTES).read_to_string(&mut words);
        let used_up = status.is_some_and(|status| status.code() == Some(CPU_USED_UP_EXIT));
        let signal = status.and_then(|status| status.signal());
        let mut may_be_outside = false;
        let error = if timed_out || used_up {
            let message = format!("script ran longer than {} ms", limit.as_millis());
            ScriptError::new(ScriptErrorKind::Timeout, message)
        } else if words.contains("memory allocation of") || words.contains("out of memory") {
            ScriptError::new(ScriptErrorKind::Memory, "script used all memory of its worker")
        } else if words.contains("overflowed its stack") {
            ScriptError::new(ScriptErrorKind::WorkerEnded, "script used all stack of its worker")
        } else {
            // This process has not killed the worker yet. A broken pipe on a request means that the
            // worker exited before.
            may_be_outside = signal == Some(SIGKILL) || failure.kind() == io::ErrorKind::BrokenPipe;
            let message = match signal {
                Some(signal) => format!("script ended its worker (signal {signal})"),
                None => "script ended its worker".to_owned(),
            };
            ScriptError::new(ScriptErrorKind::WorkerEnded, message)
        };
        WorkerFailure { error, may_be_outside }
    }

    /// Waits briefly for the exit of a process whose pipe is closed.
    fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        for _ in 0..200 {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(status)) => return Some(status),
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // A child that is neither killed nor waited for remains a zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Non-blocking pipe, read and written until a deadline.
struct BeforeDeadline<'a, P> {
    pipe: &'a mut P,
    deadline: Instant,
}

impl<P: std::os::fd::AsFd> BeforeDeadline<'_, P> {
    fn wait_for(&self, events: PollFlags) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&*self.pipe, events)], Some(&timeout)) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<P: Read + std::os::fd::AsFd> Read for BeforeDeadline<'_, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait_for(PollFlags::IN)?;
            match self.pipe.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

impl<P: Write + std::os::fd::AsFd> Write for BeforeDeadline<'_, P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.pipe.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for(PollFlags::OUT)?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
