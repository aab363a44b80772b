//! The environment of the executors, with the faults between them and the bus.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sinew_engine::Time;
use sinew_protocol::ExecutionId;

use super::bus::Bus;
use super::dice::Dice;
use super::invariants::Invariants;
use crate::manager::LoopEnd;
use crate::state::PendingCommit;
use crate::takeover_note::WorkItem;

/// Reason why a loop stops in the middle of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// The loop ends, and the executor continues.
    LoopEnds(LoopEnd),
    /// The process crashes on the work that it processes.
    ProcessDies,
}

/// Delivery of a message to the bus, as seen by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Stored, and acknowledged.
    Acknowledged,
    /// Stored, but the acknowledgement was lost.
    AnswerLost,
    /// Not stored.
    Lost,
}

/// An append in progress whose sender has aborted.
struct LateAppend {
    at: Time,
    shard: u32,
    commit: PendingCommit,
}

/// The bus, its faults, and the observer of all writes.
pub(super) struct HostileMesh {
    pub(super) bus: Bus,
    pub(super) invariants: Invariants,
    pub(super) dice: Dice,
    /// Whether faults occur.
    pub(super) is_stormy: bool,
    /// Executions that crash every process that processes them.
    pub(super) killers: BTreeSet<ExecutionId>,
    /// When each of them last crashed a process.
    pub(super) last_kills: BTreeMap<ExecutionId, Time>,
    late_appends: Vec<LateAppend>,
}

impl HostileMesh {
    pub(super) fn new(seed: u64) -> Self {
        let mut bus = Bus::default();
        bus.now = 1_000;
        Self {
            bus,
            invariants: Invariants::default(),
            dice: Dice::new(seed),
            is_stormy: true,
            killers: BTreeSet::new(),
            last_kills: BTreeMap::new(),
            late_appends: Vec::new(),
        }
    }

    /// Advances the time. Appends in progress arrive.
    pub(super) fn advance(&mut self, milliseconds: Time) {
        self.bus.now += milliseconds;
        let now = self.bus.now;
        let arrived: Vec<LateAppend> = self.late_appends.extract_if(.., |late| late.at <= now).collect();
        for LateAppend { shard, commit, .. } in arrived {
            let stored = self.store(shard, &commit);
            self.invariants.reach(if stored.is_some() {
                "late appends stored"
            } else {
                "late appends fenced"
            });
        }
    }

    /// Appends a commit. Its sender may get no response: then it was stored, will be stored, or
    /// never is.
    pub(super) fn append(&mut self, shard: u32, commit: &PendingCommit) -> Result<u64, Interrupt> {
        let lost = Err(Interrupt::LoopEnds(LoopEnd::Lost));
        if self.is_stormy && self.dice.chance(2) {
            self.store(shard, commit);
            self.invariants.reach("appends without answer");
            return lost;
        }
        if self.is_stormy && self.dice.chance(2) {
            let at = self.bus.now + self.dice.roll(2_000);
            self.late_appends.push(LateAppend { at, shard, commit: commit.clone() });
            return lost;
        }
        self.store(shard, commit).ok_or(Interrupt::LoopEnds(LoopEnd::Fenced))
    }

    fn store(&mut self, shard: u32, commit: &PendingCommit) -> Option<u64> {
        let stored = self.bus.append(shard, commit.after, commit.body.clone());
        match stored {
            Some(_) => self.invariants.committed(&self.bus, shard, &commit.body),
            None => self.invariants.reach("appends fenced"),
        }
        stored
    }

    /// Stores a takeover note; an owner with an older revision loses its shard.
    pub(super) fn put_note(&mut self, shard: u32, body: Bytes, revision: &mut u64) -> Result<(), Interrupt> {
        let stored = self.bus.put_note(shard, body, *revision);
        *revision = stored.ok_or(Interrupt::LoopEnds(LoopEnd::Fenced))?;
        Ok(())
    }

    /// Decides the delivery of a message that is sent until it is acknowledged.
    pub(super) fn deliver(&mut self) -> Delivery {
        match self.dice.roll(100) {
            0..8 if self.is_stormy => Delivery::Lost,
            8..16 if self.is_stormy => Delivery::AnswerLost,
            _ => Delivery::Acknowledged,
        }
    }

    /// Crashes the process if one of these work items does so.
    pub(super) fn touch<'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a WorkItem>,
    ) -> Result<(), Interrupt> {
        let executions = items.into_iter().filter_map(|item| match item {
            WorkItem::Execution(execution) => self.killers.get(execution),
            WorkItem::Message { .. } => None,
        });
        let mut at_work = executions.filter(|killer| !self.invariants.model.is_held(killer));
        let Some(killer) = at_work.next().cloned() else { return Ok(()) };
        self.last_kills.insert(killer, self.bus.now);
        Err(Interrupt::ProcessDies)
    }
}
