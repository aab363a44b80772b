//! The shards of one executor: which loops run, why a loop stops, and what happens after it ends.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::bug::seeded_bug;
use crate::membership::{FleetView, LeaseWatch, ShardShare, rebalance};

/// Delay before a shard that failed to open or was lost is opened again.
pub const REOPEN_PAUSE: Duration = Duration::from_millis(500);

/// Reason why a shard's loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    /// It was stopped, and completed its handover.
    Drained,
    /// Another executor has written to the journal.
    Fenced,
    /// The broker was unusable.
    Lost,
    /// It panicked.
    Died,
}

/// An action of the shell on its shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerAction {
    /// Start the loop of a shard.
    Open {
        /// The shard.
        shard: u32,
        /// Delay before it opens.
        pause: Duration,
        /// Whether the previous loop panicked.
        died: bool,
    },
    /// Stop the loop of a shard; [`ShardManager::handle_end`] receives its end.
    Stop(u32),
    /// Try to record this executor as the owner; [`ShardManager::handle_claimed`] receives the
    /// result.
    Claim {
        /// The shard.
        shard: u32,
        /// Expected revision of the record.
        revision: u64,
    },
    /// Release the shard in the record, if this executor still owns it.
    Release(u32),
    /// Read the owner in the record; [`ShardManager::handle_owner`] receives the result.
    ReadOwner(u32),
}

/// The loop of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ShardLoop {
    /// Whether it was requested to stop.
    is_stopping: bool,
    /// The record names another owner, so this executor must not release the shard.
    is_reassigned: bool,
    /// It stops only to be reopened, with positions in recreated streams.
    restarts: bool,
}

/// The shards of one executor.
#[derive(Clone, Debug)]
pub struct ShardManager {
    owner: String,
    shards: NonZeroU32,
    watch: LeaseWatch,
    loops: BTreeMap<u32, ShardLoop>,
    /// Ended loops whose record is being read, with whether the executor intended to leave the
    /// shard.
    unsure: BTreeMap<u32, bool>,
}

impl ShardManager {
    /// Creates the manager of an executor without shards.
    pub fn new(owner: impl Into<String>, shards: NonZeroU32, lease: Duration) -> Self {
        let (loops, unsure) = (BTreeMap::new(), BTreeMap::new());
        Self { owner: owner.into(), shards, watch: LeaseWatch::new(lease), loops, unsure }
    }

    /// Returns the shards with a running loop.
    pub fn shards(&self) -> impl Iterator<Item = u32> {
        self.loops.keys().copied()
    }

    /// Handles a poll of the bucket: claims or releases shards so that all executors have the same
    /// number. `now` is monotonic.
    pub fn handle_fleet(&mut self, now: Duration, view: &FleetView) -> Vec<ManagerAction> {
        let living = self.watch.living(now, &view.members);
        let ShardShare { keep, claim, release } = rebalance(&view.owners, &living, &self.owner, self.shards);
        let mut actions = Vec::new();
        for shard in release {
            if self.loops.contains_key(&shard) || self.unsure.contains_key(&shard) {
                self.stop(shard, &mut actions);
            } else if !seeded_bug!(UnservedShardKept) {
                // A process of the same name owns the record: without a loop that ends, nothing
                // else would release it.
                self.release(shard, &mut actions);
            }
        }
        // An executor that was considered dead writes until it loses a race. A busy one wins all
        // races and keeps the new owner out, so the record decides which of them stops.
        for (shard, (owner, _)) in &view.owners {
            if owner.as_ref().is_some_and(|owner| *owner != self.owner)
                && let Some(one) = self.loops.get_mut(shard)
            {
                one.is_reassigned = !seeded_bug!(StolenShardReleased);
                self.stop(*shard, &mut actions);
            }
        }
        // An executor that restarted under its own name finds shards recorded for it.
        for shard in keep {
            if !self.loops.contains_key(&shard) && !self.unsure.contains_key(&shard) {
                self.open(shard, Duration::ZERO, false, &mut actions);
            }
        }
        for (shard, revision) in claim {
            // A loop may run without being recorded, after the recorded owner released the shard.
            if self.loops.get(&shard).is_none_or(|one| !one.is_stopping) {
                actions.push(ManagerAction::Claim { shard, revision });
            }
        }
        actions
    }

    /// Returns the latest time for the next poll of the bucket, so that a dead executor's shards
    /// are claimed as soon as its lease has expired; `None` if no executor was seen. On the clock
    /// of [`ShardManager::handle_fleet`].
    pub fn next_poll(&self) -> Option<Duration> {
        self.watch.next_end()
    }

    /// Handles the result of a claim.
    pub fn handle_claimed(&mut self, shard: u32, won: bool) -> Vec<ManagerAction> {
        let mut actions = Vec::new();
        if won && !self.loops.contains_key(&shard) {
            self.unsure.remove(&shard);
            self.open(shard, Duration::ZERO, false, &mut actions);
        }
        actions
    }

    /// Stops all loops to reopen the shards: a stream was recreated, so its sequences restart at
    /// one, and stored tasks have to be sent again.
    pub fn handle_new_stream(&mut self) -> Vec<ManagerAction> {
        let mut actions = Vec::new();
        for (shard, one) in &mut self.loops {
            if !one.is_stopping {
                (one.restarts, one.is_stopping) = (true, true);
                actions.push(ManagerAction::Stop(*shard));
            }
        }
        actions
    }

    /// Stops all loops permanently. The executor leaves once [`ShardManager::shards`] is empty.
    pub fn leave(&mut self) -> Vec<ManagerAction> {
        let mut actions = Vec::new();
        for (shard, one) in &mut self.loops {
            (one.restarts, one.is_stopping) = (false, true);
            actions.push(ManagerAction::Stop(*shard));
        }
        actions
    }

    /// Handles the end of a loop.
    pub fn handle_end(&mut self, shard: u32, end: LoopEnd) -> Vec<ManagerAction> {
        let mut actions = Vec::new();
        let Some(one) = self.loops.remove(&shard) else { return actions };
        let is_leaving = one.is_stopping && !one.restarts;
        if one.is_reassigned {
            // Another executor owns the record, or this one again: then the shard is reopened.
            return actions;
        }
        match end {
            LoopEnd::Drained | LoopEnd::Lost | LoopEnd::Died if is_leaving => {
                self.release(shard, &mut actions);
            }
            LoopEnd::Drained => self.open(shard, Duration::ZERO, false, &mut actions),
            LoopEnd::Fenced => {
                self.unsure.insert(shard, is_leaving);
                actions.push(ManagerAction::ReadOwner(shard));
            }
            LoopEnd::Lost => self.open(shard, REOPEN_PAUSE, false, &mut actions),
            LoopEnd::Died => self.open(shard, REOPEN_PAUSE, true, &mut actions),
        }
        actions
    }

    /// Handles the recorded owner of a shard whose loop was fenced; `None` if there is none or the
    /// record is unreadable.
    pub fn handle_owner(&mut self, shard: u32, owner: Option<&str>) -> Vec<ManagerAction> {
        let mut actions = Vec::new();
        let Some(is_leaving) = self.unsure.remove(&shard) else { return actions };
        if owner == Some(self.owner.as_str()) {
            if is_leaving {
                self.release(shard, &mut actions);
            } else {
                self.open(shard, REOPEN_PAUSE, false, &mut actions);
            }
        }
        actions
    }

    fn open(&mut self, shard: u32, pause: Duration, died: bool, actions: &mut Vec<ManagerAction>) {
        self.loops.insert(shard, ShardLoop::default());
        actions.push(ManagerAction::Open { shard, pause, died });
    }

    fn stop(&mut self, shard: u32, actions: &mut Vec<ManagerAction>) {
        if let Some(one) = self.loops.get_mut(&shard) {
            one.is_stopping = true;
            actions.push(ManagerAction::Stop(shard));
        }
    }

    #[expect(clippy::unused_self, reason = "beside open and stop")]
    fn release(&self, shard: u32, actions: &mut Vec<ManagerAction>) {
        if !seeded_bug!(LeavingKeepsShards) {
            actions.push(ManagerAction::Release(shard));
        }
    }
}
