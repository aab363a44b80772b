//! Memory permits for stored values and records, because any caller may reference many large ones.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Shards whose turns read stored values concurrently.
const MAX_TURNS: usize = 2;
/// Stored values of direct replies in memory that are not decided yet.
const MAX_ARRIVALS: usize = 2;
/// Records that are read concurrently; each is part of one message.
const MAX_SMALL_RECORDS: usize = 32;

/// Maximum size of a small record, which is part of one message of a usual server.
pub(super) const SMALL_RECORD_BYTES: usize = 1 << 20;
/// Memory of stored values from which a turn reads no more of them.
pub(super) const MAX_TURN_BYTES: usize = 32 << 20;

/// Permits for reading stored data, shared by all shards of a process.
pub(super) struct ReadPermits {
    turns: Semaphore,
    arrivals: Arc<Semaphore>,
    small_records: Semaphore,
    large_records: Semaphore,
}

impl Default for ReadPermits {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(MAX_TURNS),
            arrivals: Arc::new(Semaphore::new(MAX_ARRIVALS)),
            small_records: Semaphore::new(MAX_SMALL_RECORDS),
            large_records: Semaphore::new(1),
        }
    }
}

impl ReadPermits {
    /// Waits until the turn of a shard may read stored values. Hold the permit until the turn is
    /// decided.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphores are never closed.
        self.turns.acquire().await.ok()
    }

    /// Waits until the stored value of a direct reply may be read. Hold the permit until the reply
    /// is decided.
    pub(super) async fn arrival(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.arrivals).acquire_owned().await.ok()
    }

    /// Waits until a record of at most [`SMALL_RECORD_BYTES`] may be read.
    pub(super) async fn small_record(&self) -> Option<SemaphorePermit<'_>> {
        self.small_records.acquire().await.ok()
    }

    /// Waits until a record of any size may be read.
    pub(super) async fn large_record(&self) -> Option<SemaphorePermit<'_>> {
        self.large_records.acquire().await.ok()
    }
}

/// Estimates the memory of a JSON text as a value: its characters, and 72 bytes for each value in
/// it.
pub(super) fn memory_of(json: &[u8]) -> usize {
    let values = json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    json.len() + 72 * values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_many_parts_weighs_more_than_its_text() {
        assert_eq!(memory_of(b"\"text\""), 6);
        assert_eq!(memory_of(b"[1,2,3]"), 7 + 3 * 72);
        assert_eq!(memory_of(br#"{"a":{}}"#), 8 + 2 * 72);
    }
}
