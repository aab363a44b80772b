//! Settings of a mesh that are the same in all its processes.

use std::num::NonZeroU32;
use std::time::Duration;

/// The most shards a mesh may have; more subjects and consumers than that help nobody.
pub const MOST_SHARDS: u32 = 1_024;

/// Settings that provisioning stored. The number of shards never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The number of shards.
    pub shards: NonZeroU32,
    /// How many servers hold a copy of every stream.
    pub replicas: usize,
    /// How long closed executions and what belongs to them are kept.
    pub retention: Duration,
    /// The most bytes that one stream may hold; none for as much as the account allows.
    pub storage_limit: Option<u64>,
    /// Whether a stream keeps events.
    pub keeps_events: bool,
    /// Whether single messages of journals and of the history can be deleted, which erasing data needs. False in meshes that
    /// an older version made.
    pub has_erasable_messages: bool,
    /// The largest message the server takes, headers included, in bytes.
    pub max_payload: usize,
}
