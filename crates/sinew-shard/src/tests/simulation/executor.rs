//! Executors of the simulation: this crate's rules, driven as by the executor's shell.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sinew_engine::Time;

use super::hostile::{HostileMesh, Interrupt};
use super::opening::{OpeningLoop, SuspectPosition, leave_place};
use super::shard_loop::ShardLoop;
use super::{LEASE, SHARDS};
use crate::manager::{LoopEnd, ManagerAction, ShardManager};

/// Milliseconds between heartbeats.
const HEARTBEAT_INTERVAL: Time = 400;

/// Effect of a step on the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// It continues.
    Alive,
    /// The step crashed it.
    Died,
    /// It has left.
    Left,
}

/// One executor.
pub(super) struct SimulatedExecutor {
    pub(super) id: String,
    /// Distinguishes it from an earlier process with the same name.
    process: String,
    manager: ShardManager,
    loops: BTreeMap<u32, LoopStage>,
    stops: BTreeMap<u32, bool>,
    actions: VecDeque<ManagerAction>,
    next_heartbeat: Time,
    /// Time until which it is suspended, as after SIGSTOP.
    pub(super) stopped_until: Time,
    is_told_to_leave: bool,
    is_leaving: bool,
    place: SuspectPosition,
}

enum LoopStage {
    Waits { until: Time, died: bool },
    Opens(Box<OpeningLoop>),
    Runs(Box<ShardLoop>),
}

impl SimulatedExecutor {
    pub(super) fn new(id: &str, incarnation: u64) -> Self {
        Self {
            id: id.to_owned(),
            process: format!("{id}-{incarnation}"),
            manager: ShardManager::new(id, SHARDS.try_into().unwrap(), LEASE),
            loops: BTreeMap::new(),
            stops: BTreeMap::new(),
            actions: VecDeque::new(),
            next_heartbeat: 0,
            stopped_until: 0,
            is_told_to_leave: false,
            is_leaving: false,
            place: None,
        }
    }

    /// Returns the open loop of a shard.
    pub(super) fn open_loop(&self, shard: u32) -> Option<&ShardLoop> {
        match self.loops.get(&shard) {
            Some(LoopStage::Runs(running)) => Some(running),
            _ => None,
        }
    }

    /// Describes the state of the executor.
    pub(super) fn describe(&self, mesh: &HostileMesh) -> String {
        let stage = |(shard, stage): (&u32, &LoopStage)| match stage {
            LoopStage::Waits { .. } => format!("{shard} waits"),
            LoopStage::Opens(_) => format!("{shard} opens"),
            LoopStage::Runs(running) => format!("{shard} runs: {}", running.describe(mesh)),
        };
        let loops: Vec<String> = self.loops.iter().map(stage).collect();
        let (id, leaves, place) = (&self.id, self.is_leaving, &self.place);
        format!("{id} leaving {leaves}, alone {place:?}: {loops:?} {:?}", self.manager)
    }

    /// Starts to leave after all steps in progress, like the executor's shell.
    pub(super) fn leave(&mut self) {
        self.is_told_to_leave = true;
    }

    /// Reopens all shards because a stream was recreated.
    pub(super) fn reopen(&mut self) {
        if !self.is_leaving {
            self.actions.extend(self.manager.handle_new_stream());
        }
    }

    /// Executes one step.
    pub(super) fn step(&mut self, mesh: &mut HostileMesh) -> StepOutcome {
        if let Some(action) = self.actions.pop_front() {
            self.perform(mesh, &action);
            return StepOutcome::Alive;
        }
        if self.is_told_to_leave && !self.is_leaving {
            self.is_leaving = true;
            self.actions.extend(self.manager.leave());
            return StepOutcome::Alive;
        }
        if self.is_leaving && self.loops.is_empty() {
            mesh.bus.heartbeats.remove(&self.id);
            return StepOutcome::Left;
        }
        if mesh.bus.now >= self.next_heartbeat && !self.is_leaving {
            self.heartbeat(mesh);
            return StepOutcome::Alive;
        }
        let shards: Vec<u32> = self.loops.keys().copied().collect();
        if shards.is_empty() {
            return StepOutcome::Alive;
        }
        let shard = mesh.dice.pick(&shards);
        let Some(stage) = self.loops.remove(&shard) else { return StepOutcome::Alive };
        match self.step_loop(mesh, shard, stage) {
            Ok(stage) => drop(self.loops.insert(shard, stage)),
            Err(Interrupt::ProcessDies) => return StepOutcome::Died,
            Err(Interrupt::LoopEnds(end)) => {
                self.stops.remove(&shard);
                leave_place(&mut self.place, shard);
                self.actions.extend(self.manager.handle_end(shard, end));
            }
        }
        StepOutcome::Alive
    }

    fn heartbeat(&mut self, mesh: &mut HostileMesh) {
        self.next_heartbeat = mesh.bus.now + HEARTBEAT_INTERVAL;
        mesh.bus.heartbeat(&self.id);
        let actions = self.manager.handle_fleet(Duration::from_millis(mesh.bus.now), &mesh.bus.fleet());
        for action in &actions {
            if let ManagerAction::Claim { shard, revision } = action {
                mesh.invariants.claimed(&mesh.bus, *shard, &self.id, *revision);
            }
        }
        self.actions.extend(actions);
    }

    fn perform(&mut self, mesh: &mut HostileMesh, action: &ManagerAction) {
        match *action {
            ManagerAction::Open { shard, pause, died } => {
                let until = mesh.bus.now + pause.as_millis() as Time;
                self.loops.insert(shard, LoopStage::Waits { until, died });
                self.stops.insert(shard, false);
            }
            ManagerAction::Stop(shard) => drop(self.stops.insert(shard, true)),
            ManagerAction::Claim { shard, revision } => {
                let won = mesh.bus.claim(shard, &self.id, revision);
                self.actions.extend(self.manager.handle_claimed(shard, won));
            }
            ManagerAction::Release(shard) => mesh.bus.release(shard, &self.id),
            ManagerAction::ReadOwner(shard) => {
                let owner = mesh.bus.owners.get(&shard).and_then(|(owner, _)| owner.clone());
                self.actions.extend(self.manager.handle_owner(shard, owner.as_deref()));
            }
        }
    }

    fn step_loop(
        &mut self,
        mesh: &mut HostileMesh,
        shard: u32,
        stage: LoopStage,
    ) -> Result<LoopStage, Interrupt> {
        let is_stopped = self.stops.get(&shard).copied().unwrap_or_default();
        match stage {
            LoopStage::Waits { .. } | LoopStage::Opens(_) if is_stopped => {
                Err(Interrupt::LoopEnds(LoopEnd::Drained))
            }
            LoopStage::Waits { until, died } if mesh.bus.now < until => Ok(LoopStage::Waits { until, died }),
            LoopStage::Waits { died, .. } => {
                let opening = OpeningLoop::new(mesh, &self.id, &self.process, shard, died);
                Ok(LoopStage::Opens(Box::new(opening)))
            }
            LoopStage::Opens(mut opening) => {
                let is_open = opening.step(mesh, &mut self.place, shard)?;
                Ok(if is_open {
                    LoopStage::Runs(Box::new(opening.finish(mesh)))
                } else {
                    LoopStage::Opens(opening)
                })
            }
            LoopStage::Runs(mut running) => {
                running.step(mesh, &mut self.place, is_stopped)?;
                Ok(LoopStage::Runs(running))
            }
        }
    }
}
