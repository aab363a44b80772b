//! The client: starts executions, cancels some, and records the replies.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sinew_executor::client::{Client, ClientError};
use sinew_mesh::HeaderMap;
use sinew_mesh::history::HistoryFilter;
use sinew_protocol::command::{CancelCommand, Command, StartCommand};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Token};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::Fallible;
use crate::allowance::now_ms;
use crate::other_client::OtherClient;
use crate::workflows::{self, FAILING, JOURNEY};

/// Delay before the retry of a request that the mesh did not accept.
const AGAIN: Duration = Duration::from_millis(500);
/// Timeout of one wait for the decision on a cancellation.
const DECISION: Duration = Duration::from_mins(1);
/// Required consecutive checks without open executions.
const CALM_LOOKS: u32 = 20;
/// Every n-th execution is of a failing workflow.
const FAILING_EVERY: u64 = 10;
/// Interval of checks for ended executions.
const LOOK: Duration = Duration::from_secs(1);

/// A start that the mesh accepted.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) execution: ExecutionId,
    pub(crate) value: u64,
    /// Whether a cancellation was requested.
    pub(crate) cancel: bool,
    /// Whether the workflow fails.
    pub(crate) fails: bool,
    /// Time of acceptance, in Unix milliseconds.
    pub(crate) at: u64,
}

/// A client that starts executions.
#[derive(Clone)]
pub(crate) struct Load {
    client: Client,
    accepted: Arc<Mutex<Vec<Accepted>>>,
    seed: u64,
    /// Every n-th execution has a large input.
    large: u64,
    /// Percentage of executions to cancel.
    cancel: u32,
    work: Duration,
    /// Program that makes each second start and cancellation.
    other_client: Option<Arc<OtherClient>>,
}

impl Load {
    /// Creates a load without executions.
    pub(crate) fn new(client: Client, seed: u64, large: u64, cancel: u32, work: Duration) -> Self {
        Self { client, accepted: Arc::default(), seed, large, cancel, work, other_client: None }
    }

    /// Uses a program of another version for each second start.
    pub(crate) fn with_other_client(mut self, client: Arc<OtherClient>) -> Self {
        self.other_client = Some(client);
        self
    }

    /// Returns the accepted starts.
    pub(crate) fn accepted(&self) -> Vec<Accepted> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts this execution, with retries, and cancels it if it is selected for that.
    async fn one(self, nth: u64) -> Fallible<()> {
        let mut random = StdRng::seed_from_u64(self.seed ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let cancel = random.random_range(0..100) < self.cancel;
        let after = random.random_range(Duration::ZERO..self.work * 8 + Duration::from_millis(1));
        let key = format!("{}-{nth}", self.seed);
        let large = self.large > 0 && nth.is_multiple_of(self.large);
        let execution = self.client.execution_id(&key);
        let input = workflows::input(nth, large);
        let other = self.other_client.as_ref().filter(|_| nth.is_multiple_of(2));
        let fails = other.is_none() && nth.is_multiple_of(FAILING_EVERY);
        let failing = fails.then_some(nth / FAILING_EVERY % 2);
        let workflow = failing.map_or(JOURNEY, |which| FAILING[which as usize]);
        if let Some(other) = other {
            other.start(&key, &input).await?;
        } else {
            let mut command = StartCommand::new(execution.clone(), workflow, input);
            command.idempotency_key = Some(key);
            while let Err(error) = self.client.start(command.clone()).await {
                match error {
                    ClientError::Mesh(_) => sleep(AGAIN).await,
                    error => return Err(error.into()),
                }
            }
        }
        let accepted = Accepted { execution: execution.clone(), value: nth, cancel, fails, at: now_ms() };
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).push(accepted);
        if cancel {
            sleep(after).await;
            if let Some(other) = other {
                other.cancel(&execution).await;
                return Ok(());
            }
            let id = Token::of(&format!("cancel-{nth}"));
            let command = Command::Cancel(CancelCommand { execution, reason: "chaos".to_owned() });
            // A refusal is correct: the execution has ended.
            while let Err(ClientError::Mesh(_) | ClientError::Undecided(_)) =
                self.client.signal(&id, command.clone(), DECISION).await
            {
                sleep(AGAIN).await;
            }
        }
        Ok(())
    }

    /// Starts `count` executions evenly over `over`.
    pub(crate) async fn evenly(&self, count: u64, over: Duration) -> Fallible<()> {
        let mut running = JoinSet::new();
        let mut tick =
            tokio::time::interval((over / u32::try_from(count.max(1))?).max(Duration::from_micros(1)));
        for nth in 0..count {
            tick.tick().await;
            running.spawn(self.clone().one(nth));
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Keeps about `open` executions open until `enough` returns true.
    pub(crate) async fn keep_open(&self, open: usize, enough: impl Fn() -> bool) -> Fallible<()> {
        let mut running = JoinSet::new();
        let shards = self.client.mesh().admin().layout().await?.shards.get();
        let mut nth = 0;
        while !enough() {
            let ended = self.ended().await.unwrap_or_default();
            let missing = (open + ended).saturating_sub(usize::try_from(nth)?);
            for _ in 0..missing {
                running.spawn(self.clone().one(nth));
                nth += 1;
            }
            // Malformed messages, to exercise the quarantine.
            for shard in 0..shards {
                let id = Token::of(&format!("garbage-{nth}-{shard}-{}", rand::rng().random::<u32>()));
                let mesh = self.client.mesh();
                let _ =
                    mesh.commands().send(Operation::Pause, shard, &id, HeaderMap::new(), "{".into()).await;
            }
            sleep(LOOK / 2).await;
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Returns the number of its executions in the history.
    pub(crate) async fn ended(&self) -> Fallible<usize> {
        let mut ended = 0;
        for workflow in FAILING.into_iter().chain([JOURNEY]) {
            let filter = HistoryFilter { workflow: Some(workflow.to_owned()), ..HistoryFilter::default() };
            ended += self.client.mesh().history().list(&filter, usize::MAX / 4).await?.len();
        }
        Ok(ended)
    }

    /// Waits until no execution is open for a while; false on timeout. Accepted starts may be lost.
    pub(crate) async fn none_open(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut calm = 0;
        while calm < CALM_LOOKS && Instant::now() < until {
            let is_calm = self.client.open().await.is_ok_and(|open| open.is_empty());
            calm = if is_calm { calm + 1 } else { 0 };
            sleep(LOOK / 4).await;
        }
        calm == CALM_LOOKS
    }

    /// Waits until all accepted executions are in the history and none is open; false on timeout.
    pub(crate) async fn all_ended(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let wanted = self.accepted().len();
            if self.ended().await.is_ok_and(|ended| ended >= wanted)
                && self.client.open().await.is_ok_and(|open| open.is_empty())
            {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(LOOK / 4).await;
        }
    }
}
