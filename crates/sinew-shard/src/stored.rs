//! An execution in encoded form, as the journal stores it.

use std::sync::Arc;

use bytes::Bytes;
use sinew_protocol::journal::{ExecutionHold, ExecutionMeta, ExecutionRecord, Verdict};

/// Facts of an execution as stored in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredExecution {
    /// Constant properties, shared with messages of the execution.
    pub meta: Arc<ExecutionMeta>,
    /// Encoded rounds.
    pub rounds: RoundLog,
    /// Verdicts on commands.
    pub verdicts: Vec<Verdict>,
    /// Sequence of the oldest journal message with a part of the execution; 0 before one is stored.
    pub first: u64,
    /// Reason why the execution is held; `None` if it is not.
    pub hold: Option<ExecutionHold>,
}

impl StoredExecution {
    /// Returns an execution without rounds.
    pub fn new(meta: ExecutionMeta) -> Self {
        let (rounds, verdicts) = (RoundLog::default(), Vec::new());
        Self { meta: Arc::new(meta), rounds, verdicts, first: 0, hold: None }
    }

    /// Returns the execution of a record, without a journal message.
    pub fn of_record(record: ExecutionRecord) -> Self {
        let mut stored = Self { verdicts: record.commands, hold: record.hold, ..Self::new(record.meta) };
        record.rounds.iter().for_each(|round| stored.rounds.push(round));
        stored
    }

    /// Returns the execution in its archived and displayed form.
    pub fn record(&self) -> ExecutionRecord {
        ExecutionRecord {
            meta: ExecutionMeta::clone(&self.meta),
            rounds: self.rounds.to_rounds(),
            commands: self.verdicts.clone(),
            hold: self.hold.clone(),
        }
    }
}

/// Encoded rounds in one allocation, because they are most of an idle execution's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundLog {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl RoundLog {
    /// Appends an encoded round.
    pub fn push(&mut self, round: &[u8]) {
        self.bytes.extend_from_slice(round);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Frees the memory reserved for more rounds.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Returns the encoded rounds in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start as usize..*end as usize])
    }

    /// Returns copies of the encoded rounds.
    pub fn to_rounds(&self) -> Vec<Bytes> {
        self.iter().map(Bytes::copy_from_slice).collect()
    }

    /// Returns the number of rounds.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the total size of the rounds in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}
