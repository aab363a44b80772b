//! The log of a task's activation: on the mesh, or in memory if the mesh stores none.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use sinew_mesh::steps::{StepLogId, StepStore};
use sinew_mesh::task::MAX_DELIVERIES;
use sinew_mesh::{MeshError, PutOutcome};
use sinew_protocol::{Fault, code};
use tokio::sync::watch;

use crate::failure::Failure;

/// Outcome of an append to a log of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// The record was stored at its position.
    Written,
    /// The position has another record.
    Taken,
}

/// The log of a task's activation: records in order, each written once. All attempts and deliveries
/// of the activation share it. A task outside any mesh has a log in memory.
///
/// Handlers use [`Steps`](crate::Steps). A log is for agents with their own records, which must not
/// use both.
#[derive(Clone, Debug)]
pub struct StepLog {
    place: LogStorage,
    taken_over: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
enum LogStorage {
    Mesh(StepStore, StepLogId),
    Memory(Arc<Mutex<Vec<Bytes>>>),
}

impl StepLog {
    pub(crate) fn on_mesh(store: StepStore, id: StepLogId) -> Self {
        Self { place: LogStorage::Mesh(store, id), taken_over: watch::Sender::new(false) }
    }

    pub(crate) fn in_memory() -> Self {
        Self { place: LogStorage::Memory(Arc::default()), taken_over: watch::Sender::new(false) }
    }

    /// Returns the records from a position (counted from 0), in order. Fails if the mesh cannot be
    /// read.
    pub async fn read(&self, from: u64) -> Result<Vec<Bytes>, Failure> {
        match &self.place {
            LogStorage::Mesh(store, id) => store.read(id, from).await.map_err(|error| unreadable(&error)),
            LogStorage::Memory(records) => {
                let records = records.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(records.iter().skip(usize::try_from(from).unwrap_or(usize::MAX)).cloned().collect())
            }
        }
    }

    /// Writes a record to a position, unless it has another one. The record expires after `keep` if
    /// that is shorter than the retention of steps on the mesh. Fails if the mesh cannot be
    /// written.
    pub async fn append(
        &self,
        place: u64,
        record: Bytes,
        keep: Option<Duration>,
    ) -> Result<AppendOutcome, Failure> {
        match &self.place {
            LogStorage::Mesh(store, id) => match store.append(id, place, record, keep).await {
                Ok(PutOutcome::New | PutOutcome::Same) => Ok(AppendOutcome::Written),
                Ok(PutOutcome::Taken) => Ok(AppendOutcome::Taken),
                Err(error) => Err(unreadable(&error)),
            },
            LogStorage::Memory(records) => {
                let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
                match usize::try_from(place).ok().and_then(|place| records.get(place)) {
                    Some(there) if *there == record => Ok(AppendOutcome::Written),
                    Some(_) => Ok(AppendOutcome::Taken),
                    None => {
                        records.push(record);
                        Ok(AppendOutcome::Written)
                    }
                }
            }
        }
    }

    /// Records that another process works on the task now. The result of this one is dropped.
    pub fn give_way(&self) {
        self.taken_over.send_replace(true);
    }

    /// Returns whether another process works on the task now.
    pub(crate) fn is_taken_over(&self) -> bool {
        *self.taken_over.borrow()
    }
}

/// Consecutive starts without later records after which a task counts as one that crashes its
/// process.
const MAX_IDLE_BEGINS: u32 = 5;

/// Progress of a task over its deliveries, according to its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepProgress {
    /// The last delivery that wrote more than its start.
    last_delivery: u64,
    /// Starts at the end of the log.
    idle_begins: u32,
}

impl StepProgress {
    /// Reads the starts in a log, whichever agent type wrote its other records.
    pub(crate) fn of(records: &[Bytes]) -> Self {
        #[derive(Deserialize)]
        struct RecordHead {
            #[serde(default)]
            kind: String,
            #[serde(default)]
            delivery: u64,
        }
        let (mut progress, mut delivery) = (Self::default(), 0);
        for record in records {
            match serde_json::from_slice::<RecordHead>(record) {
                Ok(head) if head.kind == "begin" => {
                    delivery = head.delivery;
                    progress.idle_begins += 1;
                }
                _ => {
                    progress.last_delivery = progress.last_delivery.max(delivery);
                    progress.idle_begins = 0;
                }
            }
        }
        progress
    }

    /// Returns whether a task with this number of deliveries should be retried.
    pub(crate) fn is_going_on(self, delivered: u64) -> bool {
        self.last_delivery > 0
            && delivered.saturating_sub(self.last_delivery) <= MAX_DELIVERIES
            && self.idle_begins < MAX_IDLE_BEGINS
    }
}

/// Failure of reading or writing a log. Retryable, because steps must not be lost due to an outage
/// of the broker.
pub(crate) fn unreadable(error: &MeshError) -> Failure {
    let is_final = matches!(
        error,
        MeshError::TooLarge { .. } | MeshError::TooManySteps { .. } | MeshError::Damaged { .. }
    );
    let text = format!("cannot store the steps of the task: {error}");
    Fault::error(code::STEPS_UNAVAILABLE.as_str(), text).with_retryable(!is_final).into()
}
