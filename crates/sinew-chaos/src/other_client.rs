//! Uses a `sinew` of another version as a client that starts, cancels and reads executions.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use sinew_protocol::ExecutionId;
use tokio::process::Command;
use tokio::time::sleep;

use crate::Fallible;
use crate::roles::MeshArgs;
use crate::workflows::JOURNEY;

/// Maximum attempts of a start, because servers and executors are killed meanwhile.
const TRIES: u32 = 60;
/// Delay before the retry of a start.
const AGAIN: Duration = Duration::from_millis(500);
/// Exit code of a usage error, which is not retried.
const WRONG_USE: i32 = 2;

/// The program, and the location of the mesh.
#[derive(Debug)]
pub(crate) struct OtherClient {
    program: PathBuf,
    place: MeshArgs,
    starts: AtomicU64,
    reads: AtomicU64,
}

impl OtherClient {
    pub(crate) const fn new(program: PathBuf, place: MeshArgs) -> Self {
        Self { program, place, starts: AtomicU64::new(0), reads: AtomicU64::new(0) }
    }

    /// Returns the number of its starts.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Returns the number of outputs that it read.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    async fn call(&self, args: &[&str]) -> Fallible<Output> {
        let mut command = Command::new(&self.program);
        command.args(args).args(["--nats", &self.place.url, "--namespace", &self.place.namespace]);
        command.args(["--as", "chaos"]).current_dir(&self.place.folder);
        command.stdin(Stdio::null()).kill_on_drop(true);
        Ok(command.output().await?)
    }

    /// Starts an execution under this key, with retries.
    pub(crate) async fn start(&self, key: &str, input: &Value) -> Fallible<()> {
        let input = input.to_string();
        let mut said = String::new();
        for _ in 0..TRIES {
            let args = ["run", JOURNEY, "--mesh", "--detach", "--idempotency-key", key, "-i", &input];
            let ended = self.call(&args).await?;
            if ended.status.success() {
                self.starts.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            said = String::from_utf8_lossy(&ended.stderr).into_owned();
            if ended.status.code() == Some(WRONG_USE) {
                break;
            }
            sleep(AGAIN).await;
        }
        Err(format!("the other client starts nothing: {said}").into())
    }

    /// Cancels an execution; a closed execution refuses this.
    pub(crate) async fn cancel(&self, execution: &ExecutionId) {
        let _ = self.call(&["execution", "cancel", execution.as_ref(), "--yes"]).await;
    }

    /// Returns the output of an execution that succeeded.
    pub(crate) async fn result(&self, execution: &ExecutionId) -> Fallible<Value> {
        let ended = self.call(&["execution", "result", execution.as_ref(), "-o", "json"]).await?;
        if !ended.status.success() {
            return Err(format!("{execution}: {}", String::from_utf8_lossy(&ended.stderr)).into());
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(serde_json::from_slice(&ended.stdout)?)
    }
}
