//! Membership of executors: which are alive, and which shards each should own.
//!
//! Ownership only affects speed and the distribution of shards. Two owners of a shard do no harm,
//! because the position in its journal fences one of them.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use crate::bug::seeded_bug;

/// Owners of shards, with the revision that a claim must name. A shard that was never owned is not in it.
pub type ShardOwners = BTreeMap<u32, (Option<String>, u64)>;

/// The executors' bucket at one moment.
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
    /// How long the executor had been silent at the newest heartbeat in the bucket, by the broker's clock.
    pub silent: Duration,
}

/// Tells living executors from dead ones by their heartbeats.
///
/// Compares no two clocks: silence is measured on this process's monotonic clock, and for an executor that is seen for the
/// first time on the broker's. Heartbeats that nobody polled were not missed: after an outage of the broker, the first
/// executor that comes back must not take the others for dead.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    lease: Duration,
    heard: HashMap<String, SeenMember>,
    /// When the bucket was polled last.
    polled: Option<Duration>,
}

/// When an executor was heard.
#[derive(Clone, Copy, Debug)]
struct SeenMember {
    revision: u64,
    /// When this revision was first seen here.
    at: Duration,
    /// How long it had been silent then.
    before: Duration,
    /// Whether it was taken for alive at the last poll.
    lived: bool,
}

impl LeaseWatch {
    /// Returns a watch that takes an executor for dead after so much silence. Poll much more often than that.
    pub fn new(lease: Duration) -> Self {
        Self { lease, heard: HashMap::new(), polled: None }
    }

    /// Returns the executors that live. `now` is monotonic time since any fixed moment.
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

    /// Returns when the first lease ends of those that live, unless they are heard before; `None` if none lives.
    pub fn next_end(&self) -> Option<Duration> {
        let end = |heard: &SeenMember| heard.at + self.lease.saturating_sub(heard.before);
        self.heard.values().filter(|heard| heard.lived).map(end).min()
    }
}

/// Changes that an executor should make to its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardShare {
    /// Shards that it owns and keeps. One that it does not work on is left from a process of the same name: its loop
    /// must begin.
    pub keep: Vec<u32>,
    /// Shards to take, with the revision that the claim names.
    pub claim: Vec<(u32, u64)>,
    /// Shards to hand over.
    pub release: Vec<u32>,
}

/// Returns the even share of one living executor, with as few shards moved as can be.
///
/// All executors that see the same come to the same shares, so that claims rarely meet; when two meet, one loses.
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
    // Executors with the most shards keep the remainder, so that no shard moves without need.
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
