//! The session of a caller with an agent: records of earlier tasks of one A2A context, stored among
//! the agent's steps.
//!
//! The start of a log cannot be deleted alone, because logs are read from their start. So a session
//! has a log for each quarter of its retention, and a record lives a quarter longer than the
//! retention: the log of a period is complete while any of its records is needed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sinew_mesh::PutOutcome;
use sinew_mesh::steps::{StepLogId, StepStore};
use sinew_protocol::artifact::sha256;
use sinew_protocol::{ActivationKey, ExecutionId, Token};

use crate::failure::Failure;
use crate::peers::Peers;
use crate::step_log::unreadable;

/// Number of periods of a session's retention.
const PERIODS: u32 = 4;
/// Consecutive appends that may lose against other writers.
const MAX_APPEND_TRIES: u32 = 64;

/// The session of a caller with an agent. Its id is derived from both and the A2A context, so
/// guessing a context does not give access to the session of another caller.
#[derive(Clone)]
pub struct SessionLog {
    store: StepStore,
    peers: Peers,
    agent: Token,
    execution: ExecutionId,
}

impl SessionLog {
    pub(crate) fn new(store: StepStore, peers: &Peers, agent: &str, owner: &str, context: &str) -> Self {
        let agent = Token::of(agent);
        let parts: Vec<String> =
            [agent.as_str(), owner, context].iter().map(|part| format!("{}:{part}", part.len())).collect();
        let execution = ExecutionId::of(peers.namespace(), "session", &sha256(parts.concat().as_bytes()));
        Self { store, peers: peers.clone(), agent, execution }
    }

    fn log(&self, period: u32, keep: Duration) -> StepLogId {
        // Another retention means other periods, hence another log.
        let path = [("keep", u32::try_from(keep.as_secs()).unwrap_or(u32::MAX))];
        let activation = ActivationKey::of(&self.execution, "session", &path, period);
        StepLogId { agent: self.agent.clone(), execution: self.execution.clone(), activation }
    }

    /// Returns the retention of the session: no record outlives the steps of the mesh.
    async fn bounded(&self, keep: Duration) -> Result<Duration, Failure> {
        let retention = self.peers.retention().await.map_err(|error| unreadable(&error))?;
        let longest = retention * PERIODS / (PERIODS + 1);
        Ok(keep.min(longest).max(Duration::from_secs(u64::from(PERIODS))))
    }

    /// Returns the last `count` records, oldest first. Fails if the mesh cannot be read.
    pub async fn last(&self, count: usize, keep: Duration) -> Result<Vec<Bytes>, Failure> {
        let keep = self.bounded(keep).await?;
        let now = period_of(SystemTime::now(), keep);
        let mut records: Vec<Bytes> = Vec::new();
        for period in (now.saturating_sub(PERIODS)..=now).rev() {
            let missing = count.saturating_sub(records.len()) as u64;
            if missing == 0 {
                break;
            }
            let log = self.log(period, keep);
            let places = self.store.count(&log).await.map_err(|error| unreadable(&error))?;
            if places > 0 {
                let from = places.saturating_sub(missing);
                let mut older = self.store.read(&log, from).await.map_err(|error| unreadable(&error))?;
                older.append(&mut records);
                records = older;
            }
        }
        Ok(records.split_off(records.len().saturating_sub(count)))
    }

    /// Appends a record. If two tasks end at once, both records are kept. Fails if the mesh cannot
    /// be written.
    pub async fn append(&self, record: Bytes, keep: Duration) -> Result<(), Failure> {
        let keep = self.bounded(keep).await?;
        let log = self.log(period_of(SystemTime::now(), keep), keep);
        let mut place = self.store.count(&log).await.map_err(|error| unreadable(&error))?;
        for _ in 0..MAX_APPEND_TRIES {
            let put = self.store.append(&log, place, record.clone(), Some(keep + keep / PERIODS)).await;
            match put.map_err(|error| unreadable(&error))? {
                PutOutcome::New | PutOutcome::Same => return Ok(()),
                PutOutcome::Taken => place += 1,
            }
        }
        let text = "other tasks of the session wrote first at every attempt";
        Err(sinew_protocol::Fault::error(sinew_protocol::code::STEPS_UNAVAILABLE.as_str(), text).into())
    }
}

impl std::fmt::Debug for SessionLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionLog").field("execution", &self.execution).finish_non_exhaustive()
    }
}

fn period_of(time: SystemTime, keep: Duration) -> u32 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    u32::try_from(since / (keep / PERIODS).as_secs().max(1)).unwrap_or(u32::MAX)
}
