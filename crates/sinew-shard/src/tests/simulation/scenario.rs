//! One history: a period with faults, then one without, in which all work has to complete.

use std::collections::BTreeMap;

use sinew_engine::Time;
use sinew_protocol::subject::Operation;

use super::agents::{SimulatedAgents, forge_result};
use super::clients::SimulatedClients;
use super::executor::{SimulatedExecutor, StepOutcome};
use super::hostile::HostileMesh;
use super::{ReachedCounts, SHARDS};

/// Minimum number of steps with faults, and additional steps that a seed may add.
const STORM_STEPS: (u64, u64) = (100, 200);
/// Maximum number of steps without faults until all work has completed.
const MAX_CALM_STEPS: u64 = 12_000;
/// Milliseconds after which another executor would have processed an execution that crashes
/// executors.
const QUIET_TIME: u64 = 15_000;

/// A mesh with executors, clients and agents.
struct Scenario {
    mesh: HostileMesh,
    executors: Vec<SimulatedExecutor>,
    /// Executors that were killed or have left, and when they restart.
    absent: BTreeMap<String, Time>,
    incarnations: u64,
    clients: SimulatedClients,
    agents: SimulatedAgents,
}

/// Runs the history of a seed; returns the outcomes. Panics if an invariant is violated.
pub(in crate::tests) fn run(seed: u64) -> ReachedCounts {
    let mut scenario = Scenario {
        mesh: HostileMesh::new(seed),
        executors: Vec::new(),
        absent: BTreeMap::new(),
        incarnations: 0,
        clients: SimulatedClients::default(),
        agents: SimulatedAgents::default(),
    };
    for nth in 0..=scenario.mesh.dice.roll(3) {
        scenario.begin(&format!("e{nth}"));
    }
    let steps = STORM_STEPS.0 + scenario.mesh.dice.roll(STORM_STEPS.1);
    for _ in 0..steps {
        scenario.storm();
    }
    scenario.calm();
    scenario.mesh.invariants.finished(&scenario.mesh.bus);
    scenario.mesh.invariants.into_reached()
}

impl Scenario {
    fn begin(&mut self, id: &str) {
        self.incarnations += 1;
        self.executors.push(SimulatedExecutor::new(id, self.incarnations));
    }

    /// Executes one step with faults.
    fn storm(&mut self) {
        let mesh = &mut self.mesh;
        match mesh.dice.roll(1_000) {
            0..700 => self.step_executor(),
            700..760 => {
                let pause = mesh.dice.roll(300);
                mesh.advance(pause);
            }
            760..850 => self.agents.work(mesh),
            850..885 => self.clients.start(mesh),
            885..930 => self.clients.command(mesh),
            930..950 => forge_result(mesh),
            950..972 => self.kill(),
            972..982 => self.stop(),
            982..988 => {
                let nth = mesh.dice.roll(self.executors.len() as u64 + 1) as usize;
                if let Some(executor) = self.executors.get_mut(nth) {
                    executor.leave();
                }
            }
            988..990 => {
                mesh.invariants.reread_streams(SHARDS);
                self.executors.iter_mut().for_each(SimulatedExecutor::reopen);
            }
            990..993 => {
                if let Some(id) = self.clients.started.last() {
                    mesh.killers.insert(id.clone());
                }
            }
            _ => {
                let pause = mesh.dice.roll(3_000);
                mesh.advance(pause);
            }
        }
    }

    /// Stops an executor temporarily, like SIGSTOP.
    fn stop(&mut self) {
        let nth = self.mesh.dice.roll(self.executors.len() as u64 + 1) as usize;
        let until = self.mesh.bus.now + 1_000 + self.mesh.dice.roll(4_000);
        if let Some(executor) = self.executors.get_mut(nth) {
            executor.stopped_until = until;
            self.mesh.invariants.reach("executors stopped");
        }
    }

    fn kill(&mut self) {
        if self.executors.is_empty() {
            return;
        }
        let nth = self.mesh.dice.roll(self.executors.len() as u64) as usize;
        let executor = self.executors.remove(nth);
        self.mesh.invariants.reach("kills");
        self.absent.insert(executor.id, self.mesh.bus.now + self.mesh.dice.roll(3_000));
    }

    fn step_executor(&mut self) {
        let now = self.mesh.bus.now;
        if let Some((id, _)) =
            self.absent.iter().find(|(_, at)| **at <= now).map(|(id, at)| (id.clone(), *at))
        {
            self.absent.remove(&id);
            self.begin(&id);
        }
        if self.executors.is_empty() {
            return self.mesh.advance(100);
        }
        let nth = self.mesh.dice.roll(self.executors.len() as u64) as usize;
        if self.executors[nth].stopped_until > now {
            return;
        }
        let (what, pause) = match self.executors[nth].step(&mut self.mesh) {
            StepOutcome::Alive => return,
            StepOutcome::Died => ("killed by work", 300),
            StepOutcome::Left => ("left", 500),
        };
        self.mesh.invariants.reach(what);
        let executor = self.executors.remove(nth);
        self.absent.insert(executor.id, now + pause);
    }

    /// Executes steps without faults until no work remains.
    fn calm(&mut self) {
        self.mesh.is_stormy = false;
        self.executors.iter_mut().for_each(|executor| executor.stopped_until = 0);
        for step in 0..MAX_CALM_STEPS {
            match step % 4 {
                0 => self.agents.work(&mut self.mesh),
                1 if self.mesh.dice.chance(30) => self.mesh.advance(100),
                _ => self.step_executor(),
            }
            if step % 64 == 0 && self.check_calm(step) {
                return;
            }
        }
        let owners: Vec<_> = self.executors.iter().map(|executor| executor.describe(&self.mesh)).collect();
        let open = self.mesh.invariants.model.open();
        let open: Vec<String> = open.values().map(|one| one.describe()).collect();
        let recorded = &self.mesh.bus.owners;
        panic!("I1: after {MAX_CALM_STEPS} calm steps {open:#?} are open: {owners:#?}, {recorded:?}");
    }

    /// Answers people's questions and resumes held executions; returns true if everything is done.
    fn check_calm(&mut self, step: u64) -> bool {
        let model = &self.mesh.invariants.model;
        // Crashing executions are detected within a number of crashes; then the defect is fixed.
        if step > MAX_CALM_STEPS / 2 && !self.mesh.killers.is_empty() {
            for killer in std::mem::take(&mut self.mesh.killers) {
                let is_set_aside = model.is_held(&killer) || !model.is_open(&killer);
                // A resumed execution that only waits is not processed.
                let now = self.mesh.bus.now;
                let is_quiet = self.mesh.last_kills.get(&killer).is_none_or(|last| now - last > QUIET_TIME);
                let name = || model.executions[&killer].describe();
                assert!(is_set_aside || is_quiet, "I22: {} still ends executors", name());
            }
        }
        let open = model.open();
        if open.is_empty() {
            return self.is_quiet();
        }
        let is_mended = self.mesh.killers.is_empty();
        let mut wanted = Vec::new();
        for (id, one) in open {
            if one.stored.hold.is_some() {
                wanted.extend(is_mended.then(|| (Operation::Resume, id.clone())));
            } else if one.needs_a_person() {
                let operation = if one.is_paused { Operation::Resume } else { Operation::Approve };
                wanted.push((operation, id.clone()));
            }
        }
        for (operation, id) in wanted {
            self.clients.give(&mut self.mesh, "ada", operation, &id);
        }
        false
    }

    /// Returns true if every input is read, every shard has one owner, and no message is pending.
    fn is_quiet(&self) -> bool {
        (0..SHARDS).all(|shard| {
            let mut loops = self.executors.iter().filter(|one| one.open_loop(shard).is_some());
            let (Some(owner), None) = (loops.next(), loops.next()) else { return false };
            let recorded = self.mesh.bus.owners.get(&shard).and_then(|(owner, _)| owner.as_deref());
            let is_idle = owner.open_loop(shard).is_some_and(|open| open.is_idle(&self.mesh));
            recorded == Some(owner.id.as_str()) && is_idle
        })
    }
}
