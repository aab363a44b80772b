//! The log of a conversation: append-only, with one winning writer for each position.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sinew_model::StepRecord;
use sinew_protocol::Fault;

/// Outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAppend {
    /// The record is stored at its position.
    Stored,
    /// Another record is stored at the position.
    Taken,
}

/// The log of one conversation.
pub trait Steps: Send + Sync {
    /// Returns all records, in order. Fails if the log cannot be read.
    fn read(&self) -> BoxFuture<'_, Result<Vec<StepRecord>, Fault>>;
    /// Writes a record to a position, from 0, unless another record is stored there.
    fn append(&self, place: u64, record: StepRecord) -> BoxFuture<'_, Result<StepAppend, Fault>>;
    /// Returns whether the log is stored outside this process, so that it survives the process.
    fn is_shared(&self) -> bool {
        false
    }
    /// Notes that another process took over the conversation, so that this answer is discarded.
    fn give_way(&self) {}
}

/// A log in memory, for conversations of one process.
#[derive(Debug, Default)]
pub struct MemorySteps(Mutex<Vec<StepRecord>>);

impl MemorySteps {
    /// Creates a log with initial records.
    pub fn with(records: Vec<StepRecord>) -> Self {
        Self(Mutex::new(records))
    }
}

impl Steps for MemorySteps {
    fn read(&self) -> BoxFuture<'_, Result<Vec<StepRecord>, Fault>> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        std::future::ready(Ok(records)).boxed()
    }

    fn append(&self, place: u64, record: StepRecord) -> BoxFuture<'_, Result<StepAppend, Fault>> {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = match usize::try_from(place).ok().and_then(|place| records.get(place)) {
            Some(there) if *there == record => StepAppend::Stored,
            Some(_) => StepAppend::Taken,
            None => {
                records.push(record);
                StepAppend::Stored
            }
        };
        drop(records);
        std::future::ready(Ok(stored)).boxed()
    }
}
