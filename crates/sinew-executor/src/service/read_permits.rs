//! Memory permits for stored values and records, because any caller may reference many large ones.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Shards whose turns read stored values at once.
const MAX_TURNS: usize = 2;
/// Stored values of direct answers that are in memory and not decided yet.
const MAX_ARRIVALS: usize = 2;
/// Records that are read at once; each is part of one message.
const MAX_SMALL_RECORDS: usize = 32;

/// Bytes of the largest record that counts as small: it is part of one message of a usual server.
pub(super) const SMALL_RECORD_BYTES: usize = 1 << 20;
/// Bytes in memory of stored values after which a turn reads no more of them.
pub(super) const MAX_TURN_BYTES: usize = 32 << 20;

/// Permits to read what is stored, shared by all shards of a process.
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
    /// Waits until the turn of a shard may read stored values. Keep the permit until the turn is decided.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphores are never closed.
        self.turns.acquire().await.ok()
    }

    /// Waits until the stored value of a direct answer may be read. Keep the permit until the answer is decided.
    pub(super) async fn arrival(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.arrivals).acquire_owned().await.ok()
    }

    /// Waits until a record may be read that is at most [`SMALL_RECORD_BYTES`] large.
    pub(super) async fn small_record(&self) -> Option<SemaphorePermit<'_>> {
        self.small_records.acquire().await.ok()
    }

    /// Waits until a record of any size may be read.
    pub(super) async fn large_record(&self) -> Option<SemaphorePermit<'_>> {
        self.large_records.acquire().await.ok()
    }
}

/// Returns about how many bytes a JSON text takes as a value: its characters, and 72 bytes for each value in it.
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
