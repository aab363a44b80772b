//! Membership of executors: which are alive, and which shards each should own.
//!
//! Ownership only affects speed and the distribution of shards. Two owners of a shard do no harm,
//! because the position in its journal fences one of them.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use crate::bug::seeded_bug;

/// Owners of shards, with the revision for a claim. Shards that were never owned are absent.
pub type ShardOwners = BTreeMap<u32, (Option<String>, u64)>;

/// Content of the executors' bucket at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetView {
    /// Last heartbeat of each executor.
    pub members: BTreeMap<String, LastHeartbeat>,
    /// Owners of shards.
    pub owners: ShardOwners,
}

/// The last heartbeat of an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastHeartbeat {
    /// Changes with every heartbeat.
    pub revision: u64,
    /// Time without heartbeats before the bucket's newest heartbeat, by the broker's clock.
    pub silent: Duration,
}

/// Distinguishes live executors from dead ones by their heartbeats.
///
/// It does not compare clocks: time without heartbeats is measured on this process's monotonic
/// clock, and for a new executor on the broker's. Heartbeats that were not polled do not count as
/// missed: after an outage of the broker, the first executor that reconnects must not consider the
/// others dead.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    lease: Duration,
    heard: HashMap<String, SeenMember>,
    /// Time of the last poll of the bucket.
    polled: Option<Duration>,
}

/// Last observed heartbeat of an executor.
#[derive(Clone, Copy, Debug)]
struct SeenMember {
    revision: u64,
    /// Time at which this process first saw the revision.
    at: Duration,
    /// Time without heartbeats at that moment.
    before: Duration,
    /// Whether it was considered live at the last poll.
    lived: bool,
}

impl LeaseWatch {
    /// Creates a watch that considers an executor dead after this time without heartbeats. Poll
    /// much more frequently than that.
    pub fn new(lease: Duration) -> Self {
        Self { lease, heard: HashMap::new(), polled: None }
    }

    /// Returns the live executors. `now` is monotonic time since any fixed moment.
    pub fn living(&mut self, now: Duration, members: &BTreeMap<String, LastHeartbeat>) -> Vec<String> {
        let was_blind =
            self.polled.replace(now).is_some_and(|polled| now.saturating_sub(polled) >= self.lease / 2);
        self.heard.retain(|id, _| members.contains_key(id));
        let mut living = Vec::new();
        for (id, member) in members {
            let first =
                SeenMember { revision: member.revision, at: now, before: member.silent, lived: false };
            let heard = self.heard.entry(id.clone()).or_insert(first);
            if heard.revision != member.revision || (was_blind && heard.lived) {
                *heard = SeenMember { before: Duration::ZERO, ..first };
            }
            heard.lived = heard.before.saturating_add(now.saturating_sub(heard.at)) < self.lease;
            if heard.lived {
                living.push(id.clone());
            }
        }
        living
    }

    /// Returns when the first lease of a live executor expires without another heartbeat; `None` if
    /// no executor is live.
    pub fn next_end(&self) -> Option<Duration> {
        let end = |heard: &SeenMember| heard.at + self.lease.saturating_sub(heard.before);
        self.heard.values().filter(|heard| heard.lived).map(end).min()
    }
}

/// Changes that an executor should make to its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardShare {
    /// Shards that it owns and keeps. A shard without a running loop was owned by an earlier
    /// process of the same name, so its loop must start.
    pub keep: Vec<u32>,
    /// Shards to claim, with the revision for the claim.
    pub claim: Vec<(u32, u64)>,
    /// Shards to hand over.
    pub release: Vec<u32>,
}

/// Returns the even share of one live executor, moving as few shards as possible.
///
/// Executors with the same view compute the same shares, so that claims rarely collide; in a
/// collision, one loses.
pub fn rebalance(owners: &ShardOwners, living: &[String], me: &str, shards: NonZeroU32) -> ShardShare {
    let mut lists: BTreeMap<&str, Vec<u32>> = living.iter().map(|id| (id.as_str(), Vec::new())).collect();
    let mut free = Vec::new();
    for shard in 0..shards.get() {
        let owner = owners.get(&shard).and_then(|(owner, _)| owner.as_deref());
        match owner.and_then(|owner| lists.get_mut(owner)) {
            Some(list) if !(seeded_bug!(LivingOwnersShardClaimed) && owner != Some(me)) => list.push(shard),
            _ => free.push(shard),
        }
    }
    if !lists.contains_key(me) {
        return ShardShare::default();
    }
    // Executors with the most shards get the remainder, so that no shard moves unnecessarily.
    let (least, odd) = (shards.get() as usize / lists.len(), shards.get() as usize % lists.len());
    let mut order: Vec<(&str, usize)> = lists.iter().map(|(id, list)| (*id, list.len())).collect();
    order.sort_by(|(a, many), (b, more)| more.cmp(many).then(a.cmp(b)));
    let mut free = free.into_iter();
    for (place, (id, has)) in order.into_iter().enumerate() {
        let quota = least + usize::from(place < odd);
        let taken: Vec<u32> = free.by_ref().take(quota.saturating_sub(has)).collect();
        if id == me {
            let revision = |shard: u32| owners.get(&shard).map_or(0, |(_, revision)| *revision);
            let claim = taken.into_iter().map(|shard| (shard, revision(shard))).collect();
            let mut keep = lists.remove(me).unwrap_or_default();
            let release = keep.split_off(quota.min(keep.len()));
            return ShardShare { keep, claim, release };
        }
    }
    ShardShare::default()
}
