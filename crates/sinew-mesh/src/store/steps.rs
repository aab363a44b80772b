//! The steps of agents: a log for each activation, in which every position accepts exactly one
//! record.
//!
//! A process that takes over a task reads the log of its activation and continues after it. It
//! appends on the condition that the position is empty, so the slower of two processes on one task
//! detects the other at its next record.

use std::time::Duration;

use async_nats::HeaderValue;
use async_nats::header::{HeaderMap, NATS_MESSAGE_TTL, NATS_STREAM};
use bytes::Bytes;
use futures_util::StreamExt as _;
use sinew_protocol::stream::{INLINE_LIMIT, STEPS, bucket};
use sinew_protocol::{ActivationKey, ExecutionId, Subject, Token, header};

use crate::store::object::digest_of;
use crate::store::sealed::{ObjectLocation, SealedObjects};
use crate::stream::send::PutOutcome;
use crate::stream::task::TaskExchange;
use crate::wire::undeliverable;
use crate::{Mesh, MeshError};

/// Maximum number of records in a log. A longer one is rejected, independent of its agent's limits.
pub const MAX_STEPS: u64 = 20_000;
/// Maximum size of a record, in bytes. A record that exceeds the message size is stored in the
/// artifact store.
pub const MAX_STEP_BYTES: usize = 32 << 20;
/// Records that are requested concurrently: initially, and at most.
const READ_AHEAD: (u64, u64) = (8, 64);
/// Shortest lifetime of a record that the server accepts.
const MIN_TTL: Duration = Duration::from_secs(1);

/// The log of one activation of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepLogId {
    /// The agent.
    pub agent: Token,
    /// The execution.
    pub execution: ExecutionId,
    /// The activation: the same for all of its attempts and deliveries.
    pub activation: ActivationKey,
}

impl StepLogId {
    fn subject(&self, place: u64) -> Subject {
        let Self { agent, execution, activation } = self.clone();
        Subject::Step { agent, execution, activation, place }
    }
}

/// The logs of steps of a mesh.
#[derive(Clone, Debug)]
pub struct StepStore {
    mesh: Mesh,
}

impl TaskExchange<'_> {
    /// Returns the steps of tasks.
    pub fn steps(self) -> StepStore {
        StepStore { mesh: self.mesh.clone() }
    }
}

impl StepStore {
    /// Returns the records of a log from a position, in order, up to the first empty position. A
    /// replica of the server may lag; then an append fails because its position is taken.
    pub async fn read(&self, log: &StepLogId, from: u64) -> Result<Vec<Bytes>, MeshError> {
        let (mut records, mut at, mut ahead) = (Vec::new(), from, READ_AHEAD.0);
        while at < MAX_STEPS {
            let places = at..(at + ahead).min(MAX_STEPS);
            let mut found = futures_util::stream::iter(places.clone().map(|place| self.record(log, place)))
                .buffered(READ_AHEAD.1 as usize);
            while let Some(record) = found.next().await {
                match record? {
                    Some(record) => records.push(record),
                    None => return Ok(records),
                }
            }
            (at, ahead) = (places.end, (2 * ahead).min(READ_AHEAD.1));
        }
        Ok(records)
    }

    /// Returns the number of records of a log, with few reads even for a long log.
    pub async fn count(&self, log: &StepLogId) -> Result<u64, MeshError> {
        // Positions below `taken` have records; the position before `bound` is empty.
        let (mut taken, mut bound) = (0, 1);
        while self.is_taken(log, bound - 1).await? {
            taken = bound;
            if bound >= MAX_STEPS {
                return Ok(MAX_STEPS);
            }
            bound = (2 * bound).min(MAX_STEPS);
        }
        while taken < bound - 1 {
            let middle = u64::midpoint(taken, bound - 1);
            if self.is_taken(log, middle).await? { taken = middle + 1 } else { bound = middle + 1 }
        }
        Ok(taken)
    }

    async fn is_taken(&self, log: &StepLogId, place: u64) -> Result<bool, MeshError> {
        let name = self.mesh.subject(&log.subject(place));
        let stream = bucket(self.mesh.namespace(), STEPS);
        Ok(self.mesh.stored(&stream, &name).await?.is_some())
    }

    /// Writes a record to a position, unless it is taken. The record expires after `keep` if that
    /// is shorter than the retention of steps on the mesh.
    pub async fn append(
        &self,
        log: &StepLogId,
        place: u64,
        record: Bytes,
        keep: Option<Duration>,
    ) -> Result<PutOutcome, MeshError> {
        const WHAT: &str = "a step";
        if record.len() > MAX_STEP_BYTES {
            let (size, limit) = (record.len() as u64, MAX_STEP_BYTES as u64);
            return Err(MeshError::TooLarge { what: WHAT, size, limit });
        }
        if place >= MAX_STEPS {
            return Err(MeshError::TooManySteps { limit: MAX_STEPS });
        }
        let (mut headers, mut body) = (HeaderMap::new(), record);
        if body.len() > INLINE_LIMIT {
            // Store the object first: a record must not reference a missing object.
            let id = object_id(log, &digest_of(&body).await);
            let object = self.objects().place(&log.execution, id);
            self.objects().put(&object, &body).await?;
            let reference = object.reference();
            headers.insert(header::OBJECT, reference.as_str());
            body = reference.into();
        }
        if let Some(keep) = keep {
            // Rounded up to seconds: the server accepts no fractions.
            let seconds = keep.max(MIN_TTL).as_millis().div_ceil(1_000);
            headers.insert(NATS_MESSAGE_TTL, HeaderValue::from(u64::try_from(seconds).unwrap_or(u64::MAX)));
        }
        let name = self.mesh.subject(&log.subject(place));
        let stream = bucket(self.mesh.namespace(), STEPS);
        self.mesh.put_once_ordered(&stream, &name, headers, body).await
    }

    async fn record(&self, log: &StepLogId, place: u64) -> Result<Option<Bytes>, MeshError> {
        let name = self.mesh.subject(&log.subject(place));
        let damaged = |reason: &str| MeshError::Damaged {
            what: "the step at",
            id: name.clone(),
            reason: reason.to_owned(),
        };
        let stream = bucket(self.mesh.namespace(), STEPS);
        let Some(message) = self.mesh.stored(&stream, &name).await? else { return Ok(None) };
        if undeliverable(&message.headers).is_some() {
            return Err(damaged("it cannot be parsed"));
        }
        // The server adds its own headers to those of a message that it was made to publish as a
        // reply.
        if message.headers.get_all(NATS_STREAM).count() > 1 {
            return Err(damaged("it was not written by its agent"));
        }
        if message.headers.get(header::OBJECT).is_none() {
            return Ok(Some(message.payload));
        }
        let object = ObjectLocation::named(&log.execution, &String::from_utf8_lossy(&message.payload))?;
        // Verify that the object belongs to this log and has these bytes, independent of the
        // message.
        let other = || damaged("the object that it names is a different one");
        if !object.id.starts_with(&object_id(log, "")) {
            return Err(other());
        }
        let record = self.objects().get_within(&object, MAX_STEP_BYTES).await?;
        if object_id(log, &record.sha256) != object.id {
            return Err(other());
        }
        Ok(Some(record.bytes))
    }

    fn objects(&self) -> SealedObjects {
        SealedObjects::new(&self.mesh, "step")
    }
}

/// Id of a large record among the stored objects; distinct from task ids, which contain no dot.
fn object_id(log: &StepLogId, sha256: &str) -> String {
    format!("{}.step.{}.{sha256}", log.execution, log.activation)
}
