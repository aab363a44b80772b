//! A mesh in one thread: executors over a hostile bus, with clients, agents and forgers.
//!
//! One seed is one history. Executors take their steps in an order that the seed decides, and each step writes at most
//! once, so that a process can be killed between any two writes. The bus loses, doubles, delays and reorders. A history
//! ends with a time without faults, in which everything that was accepted has to end. Every write is checked against a
//! model: see [`invariants`].

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

/// How often histories came to something, so that a simulation in which nothing happens fails.
pub(super) type ReachedCounts = BTreeMap<&'static str, u64>;

/// Returns the shard of an execution.
fn shard_of(execution: &ExecutionId) -> u32 {
    execution.shard(SHARDS.try_into().unwrap())
}
