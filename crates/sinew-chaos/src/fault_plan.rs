//! Faults of a run with their times, which the seed determines.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::power_loss::WriteRefusal;

/// Number of faults of each kind.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct FaultCounts {
    /// Number of executors to kill with `kill -9`
    #[arg(long, default_value_t = 24)]
    pub(crate) executor_kills: u32,
    /// Number of agent processes to kill with `kill -9`
    #[arg(long, default_value_t = 10)]
    pub(crate) agent_kills: u32,
    /// Number of kills of a nats-server with `kill -9`
    #[arg(long, default_value_t = 3)]
    pub(crate) broker_kills: u32,
    /// Number of executors and agents to halt with SIGSTOP for longer than the lease
    #[arg(long, default_value_t = 6)]
    pub(crate) halts: u32,
    /// Number of halts of the journal's leader with SIGSTOP; requires --servers 3
    #[arg(long, default_value_t = 0)]
    pub(crate) leader_halts: u32,
    /// Number of kills of all nats-servers but one; requires --servers 3
    #[arg(long, default_value_t = 0)]
    pub(crate) quorum_losses: u32,
    /// Seconds until they are restarted
    #[arg(long, default_value_t = 60)]
    pub(crate) quorum_loss_seconds: u64,
    /// Number of kills of a nats-server that restarts with an empty disk; requires --servers 3
    #[arg(long, default_value_t = 0)]
    pub(crate) emptied_disks: u32,
    /// Number of rolling restarts of the nats-servers; requires --servers 3
    #[arg(long, default_value_t = 0)]
    pub(crate) rolling_restarts: u32,
    /// Number of power cuts of all nats-servers, which lose unsynced writes; requires /dev/fuse
    #[arg(long, default_value_t = 0)]
    pub(crate) power_cuts: u32,
    /// Number of times that the disk is full until the servers are restarted; requires /dev/fuse
    #[arg(long, default_value_t = 0)]
    pub(crate) full_disks: u32,
    /// Number of times that the disk is read-only until the servers are restarted; requires /dev/fuse
    #[arg(long, default_value_t = 0)]
    pub(crate) read_only_disks: u32,
}

/// A fault and its victim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    KillExecutor(usize, Duration),
    KillAgents(usize, Duration),
    KillServer(usize, Duration),
    HaltExecutor(usize, Duration),
    HaltAgents(usize, Duration),
    HaltLeader(Duration),
    LoseQuorum(Duration),
    EmptyDisk(usize, Duration),
    RestartAll,
    CutPower(Duration, u64),
    RefuseWrites(WriteRefusal, Duration),
}

/// Processes that can be victims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victims {
    pub(crate) executors: usize,
    pub(crate) agents: usize,
    pub(crate) servers: usize,
    /// Lease of executors.
    pub(crate) lease: Duration,
}

impl FaultCounts {
    /// Returns whether some faults require a cluster.
    pub(crate) const fn needs_cluster(&self) -> bool {
        self.leader_halts + self.quorum_losses + self.emptied_disks + self.rolling_restarts > 0
    }

    /// Returns whether some faults require a disk of this process.
    pub(crate) const fn needs_disk(&self) -> bool {
        self.power_cuts + self.full_disks + self.read_only_disks > 0
    }

    /// Returns faults with their times, evenly spread over the run.
    pub(crate) fn plan(&self, whole: Duration, victims: Victims, seed: u64) -> Vec<(Duration, Fault)> {
        let mut random = StdRng::seed_from_u64(seed);
        let Victims { executors, agents, servers, lease } = victims;
        let mut plan = Vec::new();
        // Each fault is at a random time of its slice between these fractions of the run.
        let mut spread = |count: u32, from: f64, to: f64, make: &mut dyn FnMut(&mut StdRng) -> Fault| {
            for nth in 0..count {
                let share = (f64::from(nth) + random.random_range(0.1..0.9)) / f64::from(count);
                let at = whole.mul_f64(from + (to - from) * share);
                plan.push((at, make(&mut random)));
            }
        };
        let while_down = |random: &mut StdRng| Duration::from_millis(random.random_range(100..1_500));
        spread(self.executor_kills, 0.03, 1.0, &mut |random| {
            Fault::KillExecutor(random.random_range(0..executors), while_down(random))
        });
        spread(self.agent_kills, 0.05, 1.0, &mut |random| {
            Fault::KillAgents(random.random_range(0..agents), while_down(random))
        });
        spread(self.broker_kills, 0.2, 0.9, &mut |random| {
            let nth = if servers == 1 { 0 } else { random.random_range(0..servers) };
            Fault::KillServer(nth, while_down(random))
        });
        spread(self.halts, 0.1, 0.9, &mut |random| {
            let halt = lease + Duration::from_millis(random.random_range(500..4_000));
            if random.random_bool(0.8) {
                Fault::HaltExecutor(random.random_range(0..executors), halt)
            } else {
                Fault::HaltAgents(random.random_range(0..agents), halt)
            }
        });
        // Longer than the election timeout of followers.
        let halted = |random: &mut StdRng| Duration::from_millis(random.random_range(8_000..15_000));
        spread(self.leader_halts, 0.1, 0.9, &mut |random| Fault::HaltLeader(halted(random)));
        let lost = Duration::from_secs(self.quorum_loss_seconds);
        spread(self.quorum_losses, 0.2, 0.6, &mut |_| Fault::LoseQuorum(lost));
        spread(self.emptied_disks, 0.1, 0.9, &mut |random| {
            Fault::EmptyDisk(random.random_range(0..servers), while_down(random))
        });
        spread(self.rolling_restarts, 0.1, 0.9, &mut |_| Fault::RestartAll);
        spread(self.power_cuts, 0.02, 0.95, &mut |random| {
            Fault::CutPower(Duration::from_millis(random.random_range(10..300)), random.random())
        });
        let refused = |random: &mut StdRng| Duration::from_millis(random.random_range(500..4_000));
        spread(self.full_disks, 0.1, 0.9, &mut |random| {
            Fault::RefuseWrites(WriteRefusal::Full, refused(random))
        });
        spread(self.read_only_disks, 0.1, 0.9, &mut |random| {
            Fault::RefuseWrites(WriteRefusal::ReadOnly, refused(random))
        });
        plan.sort_by_key(|(at, _)| *at);
        plan
    }
}
