//! Work of a soak run: journeys and questions to people at a steady rate, decisions, and new versions of the workflow.

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

/// One in so many executions asks a person.
const ASKS_EVERY: u64 = 10;
/// One in so many journeys carries an artifact.
const CARRIES_EVERY: u64 = 7;
/// Tries to deploy one version.
const DEPLOY_TRIES: u32 = 5;
/// Before something is asked again that the mesh did not take.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// How often somebody looks for questions.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time of one execution.
const END_TIMEOUT: Duration = Duration::from_mins(2);
/// How long a decision is waited for.
const DECISION: Duration = Duration::from_secs(20);

/// Results so far.
#[derive(Debug, Default)]
pub(crate) struct SoakTally {
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) approved: u64,
    pub(crate) deployed: u64,
    /// Executions without the output that they should have.
    pub(crate) wrong: Vec<String>,
    /// When each journey ended, counted from the first, and how long it had taken.
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

    /// One execution of each kind, which loads what the first one loads.
    pub(crate) async fn warm_up(&self) -> Fallible<()> {
        let approving = tokio::spawn(self.clone().approve());
        for nth in 0..ASKS_EVERY {
            self.clone().run(u64::MAX / 2 - nth).await?;
        }
        approving.abort();
        *self.tally() = SoakTally::default();
        Ok(())
    }

    /// Starts so many in each second, until the time is over, and waits for their ends.
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

    /// Answers every question with yes, for ever.
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

    /// Says yes to one question; false when it was not asked yet, or the decision did not arrive.
    async fn decide(&self, execution: &ExecutionId) -> bool {
        let id = Token::of(&format!("approve-{execution}-{}", rand::random::<u32>()));
        let command = Command::Approve(ApproveCommand {
            execution: execution.clone(),
            node: None,
            activation: None,
            data: Value::Null,
            comment: None,
            reject: false,
        });
        let is_taken = self.client.signal(&id, command, DECISION).await.is_ok_and(|verdict| verdict.accepted);
        self.tally().approved += u64::from(is_taken);
        is_taken
    }

    /// Deploys the next version of the journey.
    pub(crate) async fn deploy_next(&self) -> Fallible<()> {
        let revision = self.revision.fetch_add(1, Ordering::Relaxed) + 1;
        let mut tries = 1;
        // A machine that is busy for seconds must not end hours of work; deploying again is harmless.
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

    /// Waits until nothing is open; false if that takes too long.
    pub(crate) async fn all_ended(&self, patience: Duration) -> bool {
        let nothing_open = async {
            while !self.client.open().await.is_ok_and(|open| open.is_empty()) {
                sleep(AGAIN).await;
            }
        };
        timeout(patience, nothing_open).await.is_ok()
    }
}
