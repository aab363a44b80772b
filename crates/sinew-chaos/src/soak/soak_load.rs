//! Load of a soak run: journeys and approvals at a steady rate, and deployments of new versions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sinew_engine::TerminalStatus;
use sinew_executor::client::{Client, ClientError};
use sinew_protocol::command::{ApproveCommand, Command};
use sinew_protocol::{ExecutionId, Token};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::Fallible;
use crate::workflows::{self, GATE, JOURNEY};

/// Every n-th execution waits for a person.
const ASKS_EVERY: u64 = 10;
/// Every n-th journey has an artifact.
const CARRIES_EVERY: u64 = 7;
/// Maximum attempts to deploy a version.
const DEPLOY_TRIES: u32 = 5;
/// Delay before the retry of a request that the mesh did not accept.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// Interval of checks for approvals.
const LOOK: Duration = Duration::from_secs(1);
/// Time limit of an execution.
const END_TIMEOUT: Duration = Duration::from_mins(2);
/// Time limit of a decision.
const DECISION: Duration = Duration::from_secs(20);

/// Results so far.
#[derive(Debug, Default)]
pub(crate) struct SoakTally {
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) approved: u64,
    pub(crate) deployed: u64,
    /// Executions without the expected output.
    pub(crate) wrong: Vec<String>,
    /// End of each journey since the first start, and its duration.
    pub(crate) journeys: Vec<(Duration, Duration)>,
}

/// The client of a soak run.
#[derive(Clone)]
pub(crate) struct SoakLoad {
    client: Client,
    seed: u64,
    began: Instant,
    tally: Arc<Mutex<SoakTally>>,
    revision: Arc<AtomicU64>,
}

impl SoakLoad {
    pub(crate) fn new(client: Client, seed: u64) -> Self {
        Self { client, seed, began: Instant::now(), tally: Arc::default(), revision: Arc::default() }
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, SoakTally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one execution of each kind, to initialise the mesh.
    pub(crate) async fn warm_up(&self) -> Fallible<()> {
        let approving = tokio::spawn(self.clone().approve());
        for nth in 0..ASKS_EVERY {
            self.clone().run(u64::MAX / 2 - nth).await?;
        }
        approving.abort();
        *self.tally() = SoakTally::default();
        Ok(())
    }

    /// Starts `rate` executions per second for `whole`, and waits for their ends.
    pub(crate) async fn start_evenly(self, rate: u64, whole: Duration) -> Fallible<()> {
        let began = Instant::now();
        let mut running = JoinSet::new();
        let mut ticks = interval(Duration::from_secs(1) / u32::try_from(rate.max(1))?);
        let mut nth = 0;
        while began.elapsed() < whole {
            ticks.tick().await;
            running.spawn(self.clone().run(nth));
            nth += 1;
            while let Some(done) = running.try_join_next() {
                done??;
            }
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Starts this execution and waits for its end.
    async fn run(self, nth: u64) -> Fallible<()> {
        let asks = nth.is_multiple_of(ASKS_EVERY);
        let workflow = if asks { GATE } else { JOURNEY };
        let input = if asks { json!("go") } else { workflows::input(nth, nth.is_multiple_of(CARRIES_EVERY)) };
        let key = format!("{}-{nth}", self.seed);
        let execution = self.client.execution_id(&key);
        let mut command = self.client.new_start_command(workflow, input);
        command.execution = execution.clone();
        command.idempotency_key = Some(key);
        let began = Instant::now();
        while let Err(error) = self.client.start(command.clone()).await {
            match error {
                ClientError::Mesh(_) => sleep(AGAIN).await,
                error => return Err(error.into()),
            }
        }
        self.tally().started += 1;
        let outcome = loop {
            match self.client.outcome(&execution, Some(END_TIMEOUT)).await {
                Err(ClientError::Mesh(_)) if began.elapsed() < END_TIMEOUT => sleep(AGAIN).await,
                asked => break asked?,
            }
        };
        let mut tally = self.tally();
        let defect = match &outcome {
            None => Some(format!("has not ended after {} s", END_TIMEOUT.as_secs())),
            Some(outcome) if outcome.status != TerminalStatus::Success => {
                Some(format!("ended as {:?}: {:?}", outcome.status, outcome.fault))
            }
            Some(_) if asks => None,
            Some(outcome) => {
                workflows::wrong(nth, outcome.output.as_ref().map_or(&Value::Null, |output| output))
            }
        };
        if outcome.is_some() {
            tally.ended += 1;
        }
        if let Some(defect) = defect {
            tally.wrong.push(format!("{execution} ({workflow}) {defect}"));
        }
        if !asks {
            tally.journeys.push((self.began.elapsed(), began.elapsed()));
        }
        Ok(())
    }

    /// Approves all requests until it is dropped.
    pub(crate) async fn approve(self) {
        let mut decided = BTreeSet::new();
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            let Ok(open) = self.client.open().await else { continue };
            let waiting: BTreeSet<ExecutionId> =
                open.into_iter().filter(|one| one.workflow == GATE).map(|one| one.execution).collect();
            decided.retain(|execution| waiting.contains(execution));
            for execution in waiting {
                if !decided.contains(&execution) && self.decide(&execution).await {
                    decided.insert(execution);
                }
            }
        }
    }

    /// Approves one execution. Returns false if it does not wait yet, or if the decision failed.
    async fn decide(&self, execution: &ExecutionId) -> bool {
        let id = Token::of(&format!("approve-{execution}-{}", rand::random::<u32>()));
        let command = Command::Approve(ApproveCommand {
            execution: execution.clone(),
            node: None,
            activation: None,
            data: Value::Null,
            comment: None,
            reject: false,
            member: None,
        });
        let is_taken = self.client.signal(&id, command, DECISION).await.is_ok_and(|verdict| verdict.accepted);
        self.tally().approved += u64::from(is_taken);
        is_taken
    }

    /// Deploys the next version of the journey.
    pub(crate) async fn deploy_next(&self) -> Fallible<()> {
        let revision = self.revision.fetch_add(1, Ordering::Relaxed) + 1;
        let mut tries = 1;
        // A busy machine must not abort a long run; deploying is idempotent.
        while let Err(error) = workflows::deploy_revision(self.client.mesh(), revision).await {
            if tries == DEPLOY_TRIES {
                return Err(error);
            }
            tries += 1;
            sleep(AGAIN).await;
        }
        self.tally().deployed += 1;
        Ok(())
    }

    /// Waits until no execution is open; false on timeout.
    pub(crate) async fn all_ended(&self, patience: Duration) -> bool {
        let nothing_open = async {
            while !self.client.open().await.is_ok_and(|open| open.is_empty()) {
                sleep(AGAIN).await;
            }
        };
        timeout(patience, nothing_open).await.is_ok()
    }
}
