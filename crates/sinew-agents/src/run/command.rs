//! Runs a command: an argument vector without a shell, JSON on stdin, JSON on stdout.
//!
//! The program runs in its own process group under a supervisor task. However the call ends (answer,
//! timeout, cancellation, drop), the supervisor terminates the whole group before it returns.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use sinew_source::HostReferences;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::group_watch::WatchedGroup;
use super::task_folder::TaskFolder;
use super::{Limits, RunnerSurroundings, left_behind};
use crate::call::Call;
use crate::clean::{ResolvedSecrets, clean};
use crate::error::AgentError;
use crate::template::{Environment, Template, plain};
use sinew_protocol::unique_keys::read_unique;

/// JSON pointers to the workflow's request within the agent's request, and to its MCP servers.
const REQUEST: &str = "/context/request";
const MCP_SERVERS: &str = "/context/request/mcp";
/// Environment variables that each program inherits.
pub(super) const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];
/// Bytes of standard error kept for the fault.
const STDERR_TAIL: usize = 4 * 1024;
/// Maximum bytes of a line of standard error that is forwarded as progress.
const LINE: u64 = 1024;
/// Maximum lines of standard error that are forwarded as progress while the program runs.
const PROGRESS_LINES: usize = 256;
/// Maximum last lines that are forwarded when the program has ended, because they show the cause.
const LAST_LINES: usize = 100;
/// How long a pipe can stay open after the program's group has ended.
const DRAIN: Duration = Duration::from_secs(1);

/// A command agent, ready to run.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) env: Vec<(String, Template)>,
    /// Whether to write the whole request instead of only the input.
    pub(crate) whole_request: bool,
    /// Variables that MCP servers of the request can reference.
    pub(crate) references: HostReferences,
    pub(crate) timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    pub(crate) max_output: u64,
}

impl Command {
    pub(crate) async fn run(
        &self,
        call: &Call,
        limits: &Limits,
        RunnerSurroundings { environment }: &RunnerSurroundings,
    ) -> Result<super::Output, AgentError> {
        let mut secrets = ResolvedSecrets::default();
        let stdin = self.stdin(call, environment.as_ref(), &mut secrets)?;
        let folder = TaskFolder::create().map_err(|error| AgentError::Host(error.to_string()))?;
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).env_clear();
        for name in INHERITED {
            if let Some(value) = environment(name) {
                command.env(name, value);
            }
        }
        for (name, template) in &self.env {
            command.env(name, variable(name, template, call, environment.as_ref(), &mut secrets)?);
        }
        command.env(sinew_protocol::env::ARTIFACTS, folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn().map_err(|error| AgentError::Start {
            program: self.program.clone(),
            reason: error.to_string(),
        })?;

        let abandoned = CancellationToken::new();
        let _on_drop = abandoned.clone().drop_guard();
        let supervisor = ProgramSupervisor {
            group: ProcessGroup::of(&child),
            child,
            abandoned,
            limits: limits.at_most(self.timeout),
            grace: self.grace,
            max_output: self.max_output,
            secrets,
            progress: call.progress.clone(),
            reader: None,
        };
        let value = tokio::spawn(supervisor.run(stdin))
            .await
            .map_err(|error| AgentError::Host(error.to_string()))??;
        let artifacts = store(folder.path().to_owned(), call).await?;
        Ok(super::Output { artifacts, ..super::Output::from(value) })
    }

    /// Returns the content of the program's standard input.
    fn stdin(
        &self,
        call: &Call,
        environment: &Environment,
        secrets: &mut ResolvedSecrets,
    ) -> Result<Vec<u8>, AgentError> {
        let mut text = if self.whole_request {
            let mut request = call.request();
            if !self.references.is_empty()
                && request.pointer(MCP_SERVERS).is_some_and(Value::is_object)
                && let Some(asked) = request.pointer_mut(REQUEST)
            {
                let servers =
                    self.references.servers_of(asked, environment, &mut |secret| secrets.add(secret))?;
                asked["mcp"] = Value::Object(servers);
            }
            request.to_string()
        } else {
            call.input.to_string()
        };
        text.push('\n');
        Ok(text.into_bytes())
    }
}

fn variable(
    name: &str,
    template: &Template,
    call: &Call,
    environment: &Environment,
    secrets: &mut ResolvedSecrets,
) -> Result<String, AgentError> {
    let instruction = call.instruction_value();
    let text = template
        .fill(&call.scope(instruction.as_ref()), plain, |variable| secrets.read(environment, variable))
        .and_then(|text| {
            let fits = !text.contains('\0');
            fits.then_some(text)
                .ok_or_else(|| "an environment variable cannot contain a NUL byte".to_owned().into())
        });
    text.map_err(|error| error.at(format!("env '{name}'")))
}

async fn store(folder: PathBuf, call: &Call) -> Result<Vec<crate::ArtifactRef>, AgentError> {
    let artifacts = call.artifacts.clone();
    let task = tokio::task::spawn_blocking(move || left_behind::store(&folder as &Path, artifacts.as_ref()));
    Ok(task.await.map_err(|error| AgentError::Host(error.to_string()))??)
}

/// Owns the running program until its group has ended.
struct ProgramSupervisor {
    // Dropped first, so that the group is killed if the runtime shuts down.
    group: ProcessGroup,
    child: Child,
    abandoned: CancellationToken,
    limits: Limits,
    grace: Duration,
    max_output: u64,
    secrets: ResolvedSecrets,
    progress: tokio::sync::mpsc::UnboundedSender<Value>,
    /// Reader of standard error, once it has started.
    reader: Option<AbortOnDropHandle<()>>,
}

impl ProgramSupervisor {
    async fn run(mut self, stdin: Vec<u8>) -> Result<Value, AgentError> {
        let (abandoned, limits) = (self.abandoned.clone(), self.limits.clone());
        let result = tokio::select! {
            biased;
            error = limits.reached() => Err(error),
            () = abandoned.cancelled() => Err(AgentError::Cancelled),
            result = self.talk(stdin) => result,
        };
        let reader = self.reader.take();
        self.end().await;
        if let Some(reader) = reader {
            // A descendant of the program may keep the pipe open.
            let _late = tokio::time::timeout(DRAIN, reader).await;
        }
        result
    }

    /// Writes the input, reads the output and evaluates the exit status.
    async fn talk(&mut self, input: Vec<u8>) -> Result<Value, AgentError> {
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take())
        else {
            return Err(AgentError::Host("the program has no pipes".to_owned()));
        };
        let feed = async move {
            // A program does not have to read its input.
            let _unread = stdin.write_all(&input).await;
        };
        let (secrets, progress) = (self.secrets.clone(), self.progress.clone());
        let (said, tail) = tokio::sync::oneshot::channel();
        // Standard error is read to its end even if the program is terminated.
        self.reader = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let _unheard = said.send(read_tail(stderr, &secrets, &progress).await);
        })));
        let io = async {
            let output = read_all(stdout, self.max_output);
            let tail = async { Ok(tail.await.unwrap_or_default()) };
            let input = async {
                feed.await;
                Ok(())
            };
            tokio::try_join!(output, tail, input)
        };
        tokio::pin!(io);
        let (status, read) = tokio::select! {
            status = self.child.wait() => (status, None),
            // An output above the limit ends the call while the program still runs.
            read = &mut io => {
                let read = read?;
                (self.child.wait().await, Some(read))
            }
        };
        let status = status.map_err(|error| AgentError::Host(error.to_string()))?;
        self.group.kill();
        let (output, tail, ()) = match read {
            Some(read) => read,
            None => tokio::time::timeout(DRAIN, io).await.map_err(|_| {
                AgentError::Host("a process the command left behind keeps its output open".to_owned())
            })??,
        };
        let stderr = clean(&tail, &self.secrets);
        if !status.success() {
            return Err(AgentError::Command { how: describe(status), stderr });
        }
        let value = read_unique(&output).map_err(|error| AgentError::NotJson {
            reason: if output.trim_ascii().is_empty() { "it is empty".to_owned() } else { error.to_string() },
            stderr,
        })?;
        Ok(self.secrets.hide_in_value(&value))
    }

    /// Sends SIGTERM to the group and, after the grace period, SIGKILL to the remaining processes.
    async fn end(mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.group.terminate();
            let _late = tokio::time::timeout(self.grace, self.child.wait()).await;
        }
        self.group.kill();
        let _reaped = self.child.wait().await;
        self.group.alive = false;
    }
}

/// The program's process group, whose id is the program's process id.
pub(super) struct ProcessGroup {
    pid: Option<u32>,
    alive: bool,
    /// Kills the group if this process is killed.
    _watch: Option<WatchedGroup>,
}

impl ProcessGroup {
    /// Returns the group of a program that was started as its leader.
    pub(super) fn of(child: &Child) -> Self {
        Self { pid: child.id(), alive: true, _watch: child.id().map(WatchedGroup::new) }
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = self.pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // The group may have ended already.
            let _gone = rustix::process::kill_process_group(pid, signal);
        }
    }

    #[cfg(unix)]
    fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    #[cfg(unix)]
    fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    // Other platforms have no groups; `kill_on_drop` ends only the program.
    #[cfg(not(unix))]
    fn terminate(&self) {}

    #[cfg(not(unix))]
    fn kill(&self) {}
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.alive {
            self.kill();
        }
    }
}

async fn read_all(stdout: ChildStdout, limit: u64) -> Result<Vec<u8>, AgentError> {
    let mut bytes = Vec::new();
    stdout
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .await
        .map_err(|error| AgentError::Host(error.to_string()))?;
    // Returning closes the pipe, so the program gets SIGPIPE instead of blocking.
    if bytes.len() as u64 > limit { Err(AgentError::TooLarge { limit }) } else { Ok(bytes) }
}

/// Forwards the first lines as progress immediately and the last ones at the end. Returns the tail.
async fn read_tail(
    stderr: impl AsyncRead + Unpin,
    secrets: &ResolvedSecrets,
    progress: &tokio::sync::mpsc::UnboundedSender<Value>,
) -> Vec<u8> {
    let say = |text: String| {
        if !text.is_empty() {
            // Fails if the receiver was dropped.
            let _unheard = progress.send(serde_json::json!({ "message": text }));
        }
    };
    let (mut reader, mut tail, mut line, mut lines) = (BufReader::new(stderr), Vec::new(), Vec::new(), 0);
    let mut last: VecDeque<Vec<u8>> = VecDeque::new();
    let mut left_out = 0_u64;
    loop {
        line.clear();
        match (&mut reader).take(LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        tail.extend_from_slice(&line);
        let surplus = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..surplus);
        if lines < PROGRESS_LINES {
            lines += 1;
            say(clean(&line, secrets));
            continue;
        }
        last.push_back(line.clone());
        if last.len() > LAST_LINES {
            last.pop_front();
            left_out += 1;
        }
    }
    if left_out > 0 {
        say(format!("({left_out} lines of standard error are not stored)"));
    }
    for line in &last {
        say(clean(line, secrets));
    }
    tail
}

fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("was killed by signal {signal}");
    }
    status.code().map_or_else(
        || "ended without an exit code".to_owned(),
        |code| format!("ended with exit code {code}"),
    )
}
