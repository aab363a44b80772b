//! Settings of a mesh that are the same in all its processes.

use std::num::NonZeroU32;
use std::time::Duration;

use sinew_protocol::Vocabulary;

/// Maximum number of shards of a mesh; more subjects and consumers bring no benefit.
pub const MOST_SHARDS: u32 = 1_024;

/// Settings that provisioning stored. The number of shards never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of shards.
    pub shards: NonZeroU32,
    /// Number of replicas of every stream.
    pub replicas: usize,
    /// Retention of closed executions and their data.
    pub retention: Duration,
    /// Maximum size of one stream in bytes; `None` for the limit of the account.
    pub storage_limit: Option<u64>,
    /// Whether a stream keeps events.
    pub keeps_events: bool,
    /// Whether single messages of journals and of the history can be deleted, which erasing data
    /// requires. False in meshes that an older version created.
    pub has_erasable_messages: bool,
    /// Vocabulary of the messages of executors and agents.
    pub vocabulary: Vocabulary,
    /// Maximum message size of the server, headers included, in bytes.
    pub max_payload: usize,
}
