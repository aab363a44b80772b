//! Child processes of a bench, and their CPU time and memory from the kernel.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// Timeout of a measurement.
const PATIENCE: Duration = Duration::from_mins(5);

/// A child process of this program, killed on drop.
pub(crate) struct BenchProcess {
    role: &'static str,
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl BenchProcess {
    /// Starts this program with these arguments, and redirects stderr to a file.
    pub(crate) fn start(role: &'static str, arguments: &[&str], log: &Path) -> Result<Self, Failure> {
        Self::start_with(role, arguments, None, log)
    }

    /// As [`BenchProcess::start`], with this number of threads.
    pub(crate) fn start_with(
        role: &'static str,
        arguments: &[&str],
        threads: Option<usize>,
        log: &Path,
    ) -> Result<Self, Failure> {
        let failed = |error: &io::Error| dead(role, &error.to_string());
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let log = fs::File::options().create(true).append(true).open(log).map_err(|error| failed(&error))?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(threads.map(|threads| ("TOKIO_WORKER_THREADS", threads.to_string())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&error))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(dead(role, "it has no pipes"));
        };
        Ok(Self { role, child, stdin, lines: BufReader::new(stdout).lines() })
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Writes one line of JSON and reads one.
    pub(crate) async fn ask<T: DeserializeOwned>(&mut self, order: &impl Serialize) -> Result<T, Failure> {
        let mut line = serde_json::to_string(order).unwrap_or_default();
        line.push('\n');
        self.stdin.write_all(line.as_bytes()).await.map_err(|error| dead(self.role, &error.to_string()))?;
        self.read().await
    }

    /// Reads one line of JSON; an object with a member `failed` reports a failure.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let role = self.role;
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line())
            .await
            .map_err(|_| dead(role, "it does not answer"))?
            .map_err(|error| dead(role, &error.to_string()))?
            .ok_or_else(|| dead(role, "it has ended"))?;
        let value: serde_json::Value =
            serde_json::from_str(&line).map_err(|error| dead(role, &error.to_string()))?;
        if let Some(reason) = value.get("failed").and_then(serde_json::Value::as_str) {
            return Err(dead(role, reason));
        }
        serde_json::from_value(value).map_err(|error| dead(role, &error.to_string()))
    }

    /// Kills the process with SIGKILL, and waits for its end.
    pub(crate) async fn kill9(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(|error| dead(self.role, &error.to_string()))
    }
}

fn dead(role: &str, reason: &str) -> Failure {
    Failure::new(
        FailureKind::Failed,
        code::BENCH_PROCESS_FAILED.as_str(),
        format!("the bench's process '{role}' failed: {reason}"),
    )
}

/// Returns an unused port.
pub(crate) fn free_port() -> Result<u16, Failure> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| dead("executor", &error.to_string()))
}

/// Returns a Prometheus counter of a process; 0 if it does not exist.
pub(crate) async fn counter(port: u16, name: &str) -> Result<f64, Failure> {
    let told = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await.map(|_| page)
    };
    let page = told.await.map_err(|error: io::Error| dead("executor", &error.to_string()))?;
    let lines = page.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    Ok(lines.sum())
}

/// Returns the CPU time of all threads of a process since its start, in microseconds.
pub(crate) fn cpu(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    // In nanoseconds: the clock ticks of `stat` are too coarse for a measurement.
    let ran = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    ran.sum::<f64>() / 1_000.0
}

/// Returns the resident memory of a process, in MiB.
pub(crate) fn resident(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() / 1_024.0
}
