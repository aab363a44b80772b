//! Client of executions: starts them through the command stream, and waits for their last event.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sinew_engine::TerminalStatus;
use sinew_executor::client::Client;
use sinew_mesh::Mesh;
use sinew_mesh::query::{Answer, Query};
use sinew_operations::mesh_operator::adapter;
use sinew_protocol::Subject;
use sinew_protocol::command::{CancelCommand, Command, StartCommand};
use sinew_protocol::{ExecutionId, Token};
use tokio::sync::oneshot;

use crate::child::{BenchProcessError, TEXT, broken};
use crate::order::MeasuredTime;

/// Timeout of an execution, sufficient for busy machines.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time to wait for the last event of an execution before reading its record.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(20);

type WaitingReplies = Arc<Mutex<HashMap<String, oneshot::Sender<bool>>>>;

/// A client that starts executions and waits for their ends.
pub(crate) struct ExecutionLoad {
    client: Client,
    waiting: WaitingReplies,
    /// Number of executions started by [`ExecutionLoad::open`].
    started: AtomicUsize,
}

impl ExecutionLoad {
    pub(crate) async fn new(mesh: Mesh) -> Result<Self, BenchProcessError> {
        let ends = format!("{}.v1.event.*.*.workflow_execution_result", mesh.namespace());
        let mut ends = mesh.client().subscribe(ends).await.map_err(broken)?;
        mesh.client().flush().await.map_err(broken)?;
        let waiting = WaitingReplies::default();
        let (told, namespace) = (Arc::clone(&waiting), mesh.namespace().to_owned());
        tokio::spawn(async move {
            while let Some(event) = ends.next().await {
                let Some(Subject::Event { execution, .. }) = Subject::parse(&namespace, &event.subject)
                else {
                    continue;
                };
                let waiter = told.lock().unwrap_or_else(PoisonError::into_inner).remove(execution.as_str());
                if let Some(waiter) = waiter {
                    let good = memchr(&event.payload, b"\"success\"");
                    let _ = waiter.send(good);
                }
            }
        });
        let client = Client::new(mesh, adapter).await.map_err(broken)?;
        Ok(Self { client, waiting, started: AtomicUsize::new(0) })
    }

    /// Runs executions until all have ended.
    pub(crate) async fn run(
        &self,
        workflow: &str,
        items: usize,
        count: usize,
        at_once: usize,
    ) -> Result<MeasuredTime, BenchProcessError> {
        let began = Instant::now();
        let each: Vec<f64> = futures_util::stream::iter((0..count).map(|_| self.one(workflow, items)))
            .buffer_unordered(at_once)
            .try_collect()
            .await?;
        Ok(MeasuredTime::of(began.elapsed().as_secs_f64(), each))
    }

    async fn one(&self, workflow: &str, items: usize) -> Result<f64, BenchProcessError> {
        let began = Instant::now();
        let command = self.command(workflow, items);
        let (sender, mut end) = oneshot::channel();
        let key = command.execution.as_str().to_owned();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(key, sender);
        let execution = command.execution.clone();
        self.client.start(command).await.map_err(broken)?;
        loop {
            let good = match tokio::time::timeout(ASK_AFTER, &mut end).await {
                Ok(told) => told.unwrap_or_default(),
                // An owner that loses its shard loses unpublished events, so read the record.
                Err(_) => match self.client.execution(&execution).await.map_err(broken)? {
                    Some((_, folded)) if folded.state().ended => folded
                        .state()
                        .outcome
                        .as_ref()
                        .is_some_and(|outcome| outcome.status == TerminalStatus::Success),
                    Some((_, folded)) if began.elapsed() > PATIENCE => {
                        let waits = sinew_executor::service::words(&sinew_engine::waiting(folded.state()));
                        let waits = waits.unwrap_or_else(|| "nothing".to_owned());
                        return Err(BenchProcessError(format!(
                            "execution {execution} has not ended within {PATIENCE:?}: it waits for {waits}"
                        )));
                    }
                    None if began.elapsed() > PATIENCE => {
                        return Err(BenchProcessError(format!(
                            "no executor started execution {execution} within {PATIENCE:?}"
                        )));
                    }
                    _ => continue,
                },
            };
            return if good {
                Ok(began.elapsed().as_secs_f64() * 1e6)
            } else {
                Err(BenchProcessError(format!("execution {execution} did not succeed")))
            };
        }
    }

    fn command(&self, workflow: &str, items: usize) -> StartCommand {
        let list: Vec<Value> = (0..items).map(|item| json!(item)).collect();
        self.client.new_start_command(workflow, json!({"text": TEXT, "items": list}))
    }

    pub(crate) fn mesh(&self) -> &Mesh {
        self.client.mesh()
    }

    /// Cancels an execution. Returns after its owner has accepted the command.
    pub(crate) async fn cancel(&self, execution: &ExecutionId) -> Result<(), BenchProcessError> {
        let command = CancelCommand { execution: execution.clone(), reason: String::new() };
        let id = Token::of(&uuid::Uuid::now_v7().simple().to_string());
        self.client.signal(&id, Command::Cancel(command), PATIENCE).await.map(drop).map_err(broken)
    }

    /// Starts executions that stay open up to `total`, and waits until their owners have exactly these.
    pub(crate) async fn open(
        &self,
        workflow: &str,
        total: usize,
        each: usize,
    ) -> Result<MeasuredTime, BenchProcessError> {
        let began = Instant::now();
        let missing = total.saturating_sub(self.started.swap(total, Ordering::Relaxed));
        let starts = (0..missing)
            .map(|_| async { self.client.start(self.command(workflow, 0)).await.map(drop).map_err(broken) });
        futures_util::stream::iter(starts).buffer_unordered(256).try_collect::<Vec<()>>().await?;
        loop {
            // The count includes ended executions that are being closed.
            let (open, _) = self.opened().await?;
            if open == total * each {
                break;
            }
            if began.elapsed() > PATIENCE {
                return Err(BenchProcessError(format!("{open} executions are open, not {}", total * each)));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(MeasuredTime { seconds: began.elapsed().as_secs_f64(), number: total, ..MeasuredTime::default() })
    }

    /// Waits until each shard has an owner that responds.
    pub(crate) async fn owned(&self) -> Result<MeasuredTime, BenchProcessError> {
        let began = Instant::now();
        loop {
            if let Ok((number, _)) = self.opened().await {
                return Ok(MeasuredTime {
                    seconds: began.elapsed().as_secs_f64(),
                    number,
                    ..MeasuredTime::default()
                });
            }
            if began.elapsed() > PATIENCE {
                return Err(BenchProcessError("not every shard has an owner".to_owned()));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Returns the number of executors with shards; `number` is the minimum shards of an executor.
    pub(crate) async fn owners(&self) -> Result<MeasuredTime, BenchProcessError> {
        let (_, owners) = self.opened().await?;
        let fewest = owners.values().min().copied().unwrap_or_default();
        Ok(MeasuredTime { seconds: owners.len() as f64, number: fewest, ..MeasuredTime::default() })
    }

    /// Returns the open executions of all shards, and the number of shards of each owner.
    async fn opened(&self) -> Result<(usize, HashMap<String, usize>), BenchProcessError> {
        let mesh = self.client.mesh();
        let shards = mesh.admin().layout().await.map_err(broken)?.shards.get();
        let asked = (0..shards).map(|shard| mesh.services().ask_shard(shard, &Query::Status {}));
        let mut open = 0;
        let mut owners = HashMap::new();
        for answer in futures_util::future::try_join_all(asked).await.map_err(broken)? {
            let Answer::Status(status) = answer else {
                return Err(BenchProcessError("no status".to_owned()));
            };
            open += status["executions"].as_u64().unwrap_or_default() as usize;
            *owners.entry(status["owner"].to_string()).or_insert(0) += 1;
        }
        Ok((open, owners))
    }
}

fn memchr(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}
