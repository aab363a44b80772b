//! A mesh in one thread: executors over a hostile bus, with clients, agents and forgers.
//!
//! One seed determines one history. Executors take their steps in an order that depends on the
//! seed, and each step writes at most once, so that a process can be killed between any two writes.
//! The bus loses, duplicates, delays and reorders messages. A history ends with a period without
//! faults, in which all accepted work has to complete. Every write is checked against a model: see
//! [`invariants`].

mod agents;
mod bus;
mod clients;
mod dice;
mod executor;
mod hostile;
mod invariants;
mod model;
mod opening;
mod outbox;
mod scenario;
mod shard_loop;

use std::collections::BTreeMap;
use std::time::Duration;

use sinew_protocol::ExecutionId;

pub(super) use scenario::run;

/// Shards of the mesh.
const SHARDS: u32 = 2;
/// Lease of the executors.
const LEASE: Duration = Duration::from_secs(2);

/// How often histories reached each outcome, so that a simulation without activity fails.
pub(super) type ReachedCounts = BTreeMap<&'static str, u64>;

/// Returns the shard of an execution.
fn shard_of(execution: &ExecutionId) -> u32 {
    execution.shard(SHARDS.try_into().unwrap())
}
