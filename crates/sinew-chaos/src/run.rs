//! The two kinds of runs: crashes at listed points, and random faults.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::allowance::{Allowances, PowerLosses};
use crate::brokers::{BrokerOptions, DiskChanges};
use crate::cluster::ChaosCluster;
use crate::fault_plan::{Fault, FaultCounts, Victims};
use crate::load::{Accepted, Load};
use crate::memory_limit::MemoryLimit;
use crate::other_client::OtherClient;
use crate::points::Queue;
use crate::power_loss::WriteRefusal;
use crate::report::{Faults, Report};
use crate::roles::SMALL_ROOM;
use crate::slot::{Living, Order, OtherBuild, Role, Slot, Tally, What, die_by_the_list};
use crate::verdict::judge;
use crate::{Common, Fallible, workflows};

/// Lease of executors in these runs.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// Time limit for all executions to end before the run counts as unfinished.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// Time limit for all executions to end after the last fault.
pub(crate) const BAR: Duration = Duration::from_secs(30);
/// The other client reads every n-th output.
const OTHER_READS: usize = 5;
/// Name of the stream with the journals of the mesh `chaos`.
const JOURNAL: &str = "chaos_JOURNAL";
/// Bytes of journal after which a shard is compacted during `points`.
const WORN: usize = 2 << 20;

/// Arguments of `points`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PointsArgs {
    #[command(flatten)]
    common: Common,
    /// Number of crashes at each point
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Skip crash points with this prefix
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Number of executions to keep open
    #[arg(long, default_value_t = 60)]
    open: usize,
}

/// Arguments of `run`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    common: Common,
    /// Duration of the faults, in seconds
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Number of executions to start
    #[arg(long, default_value_t = 1_050)]
    executions: u64,
    #[command(flatten)]
    counts: FaultCounts,
    /// A `sinew-chaos` of another version, which alternates with this one in executors and agents
    #[arg(long, value_name = "PROGRAM")]
    other_build: Option<PathBuf>,
    /// Acknowledge before sync in the brokers; a control, in which power cuts lose data
    #[arg(long)]
    without_sync: bool,
    /// A `sinew` of another version, which makes each second start and cancellation, and reads outputs
    #[arg(long, value_name = "PROGRAM")]
    other_client: Option<PathBuf>,
    /// Sync interval of the brokers, in seconds; a power cut may lose only later writes
    #[arg(long, conflicts_with = "without_sync")]
    sync_seconds: Option<u64>,
    /// Maximum message size of the servers, in bytes; one megabyte by default
    #[arg(long)]
    max_payload: Option<u32>,
    /// Memory limit of all executors together, in MiB, above which the kernel kills one; requires
    /// permission to create control groups
    #[arg(long)]
    executor_memory: Option<u64>,
    /// Do not require redeliveries, fences, takeovers and late results; for short runs
    #[arg(long)]
    short: bool,
}

/// Returns a role for each executor of the run.
pub(crate) fn executors(common: &Common, cluster: &ChaosCluster, worn: usize) -> Vec<Role> {
    let role = |nth| {
        let what =
            What::Executor { name: format!("executor-{nth}"), lease: LEASE, worn, room: Some(SMALL_ROOM) };
        Role::new(cluster.place.clone(), what)
    };
    (0..common.executors).map(role).collect()
}

/// Returns a role for each agent process of the run.
pub(crate) fn agents(common: &Common, cluster: &ChaosCluster) -> Vec<Role> {
    let work = Duration::from_millis(common.work_ms);
    let role = |nth| {
        let what = What::Agents { name: format!("agents-{nth}"), work };
        let mut place = cluster.place.clone();
        // The last process connects to one server, which announces the others.
        if let [.., last] = cluster.brokers.members()
            && nth + 1 == common.agents
        {
            place.url = last.url();
        }
        Role::new(place, what)
    };
    (0..common.agents).map(role).collect()
}

/// Applies a shared memory limit to roles.
fn within(mut roles: Vec<Role>, limit: Option<&Arc<MemoryLimit>>) -> Vec<Role> {
    for role in &mut roles {
        role.memory = limit.cloned();
    }
    roles
}

/// Alternates two builds in each role; initially, each second process is of the other build.
fn of_two_builds(mut roles: Vec<Role>, program: &Path, lives: &Arc<AtomicU64>) -> Vec<Role> {
    for (nth, role) in roles.iter_mut().enumerate() {
        let (program, lives) = (program.to_owned(), Arc::clone(lives));
        role.other_build = Some(OtherBuild { program, is_first: nth % 2 == 0, lives });
    }
    roles
}

/// Crashes processes the same number of times at each point.
pub(crate) async fn points(args: PointsArgs) -> Fallible<bool> {
    if !cfg!(feature = "crash-points") {
        return Err("this was built without places to die at: use --features crash-points".into());
    }
    let common = args.common;
    let seed = common.seed.unwrap_or_else(rand::random);
    let began = Instant::now();
    let brokers = BrokerOptions { servers: common.servers, ..BrokerOptions::one(false) };
    let cluster = ChaosCluster::with_brokers(common.folder.clone(), common.shards, brokers).await?;
    let queues = [
        Queue::of_executors(args.kills, &args.without, seed),
        Queue::of_agents(args.kills, &args.without, seed),
    ]
    .map(Arc::new);
    let asked: usize = queues.iter().map(|queue| queue.left()).sum();
    let work = Duration::from_millis(common.work_ms);
    let load = Load::new(cluster.client.clone(), seed, 4, 0, work);
    let mut dying = JoinSet::new();
    for role in executors(&common, &cluster, WORN) {
        dying.spawn(die_by_the_list(role, Arc::clone(&queues[0])));
    }
    for role in agents(&common, &cluster) {
        dying.spawn(die_by_the_list(role, Arc::clone(&queues[1])));
    }
    let over = |queues: &[Arc<Queue>; 2]| queues.iter().all(|queue| queue.is_done());
    load.keep_open(args.open, || over(&queues)).await?;
    // Live processes complete the remaining work; they end when this vector is dropped.
    let mut alive: Vec<Living> = Vec::new();
    while let Some(done) = dying.join_next().await {
        alive.push(done??);
    }
    let last = Instant::now();
    let finished = load.all_ended(PATIENCE).await;
    let ended = last.elapsed();
    let verdict = judge(&cluster.client, &cluster.place, &load.accepted(), &Allowances::default()).await?;
    drop(alive);
    let deaths = queues.iter().flat_map(|queue| queue.died()).fold(
        std::collections::BTreeMap::<String, u64>::new(),
        |mut all, (point, deaths)| {
            *all.entry(point).or_default() += deaths;
            all
        },
    );
    let mut report = Report::new("points", seed, began.elapsed(), verdict);
    report.demand(finished, format!("not all had ended {} s after the last death", PATIENCE.as_secs()));
    let died: u64 = deaths.values().sum();
    report.demand(usize::try_from(died)? == asked, format!("{died} of {asked} deaths"));
    for missed in queues.iter().flat_map(|queue| queue.failed()) {
        report.demand(false, missed);
    }
    report.all_ended_after_ms = millis(ended);
    report.deaths = deaths;
    report.write(common.json)
}

/// Injected faults of the servers.
#[derive(Debug, Default)]
pub(crate) struct BrokerFaults {
    kills: u64,
    leader_halts: u64,
    quorum_losses: u64,
    emptied_disks: u64,
    rolling_restarts: u64,
    power_cuts: u64,
    full_disks: u64,
    read_only_disks: u64,
    /// Times of power cuts, in Unix milliseconds.
    cuts: Vec<u64>,
}

/// The processes of a run, and their faults.
pub(crate) struct RunProcesses {
    pub(crate) cluster: ChaosCluster,
    pub(crate) executors: Vec<Slot>,
    pub(crate) agents: Vec<Slot>,
    pub(crate) done: BrokerFaults,
    pub(crate) last_agent_kill: Instant,
}

impl RunProcesses {
    /// Injects a fault. Those of servers are over when this returns.
    pub(crate) async fn meet(&mut self, fault: Fault) -> Fallible<()> {
        let brokers = &mut self.cluster.brokers;
        match fault {
            Fault::KillExecutor(nth, down) => self.executors[nth].order(Order::Kill(down)),
            Fault::HaltExecutor(nth, halt) => self.executors[nth].order(Order::Halt(halt)),
            Fault::KillAgents(nth, down) => {
                self.agents[nth].order(Order::Kill(down));
                self.last_agent_kill = Instant::now();
            }
            Fault::HaltAgents(nth, halt) => self.agents[nth].order(Order::Halt(halt)),
            Fault::KillServer(nth, down) => {
                brokers.kill(nth, down).await?;
                self.done.kills += 1;
            }
            Fault::HaltLeader(halt) => {
                brokers.halt_leader(JOURNAL, halt).await?;
                self.done.leader_halts += 1;
            }
            Fault::LoseQuorum(down) => {
                brokers.lose_quorum(down).await?;
                self.done.quorum_losses += 1;
            }
            Fault::EmptyDisk(nth, down) => {
                brokers.empty_disk(nth, down).await?;
                self.done.emptied_disks += 1;
            }
            Fault::CutPower(down, seed) => {
                self.done.cuts.push(brokers.cut_power(down, seed).await?);
                self.done.power_cuts += 1;
            }
            Fault::RefuseWrites(reason, time) => {
                brokers.refuse_writes(reason, time).await?;
                match reason {
                    WriteRefusal::Full => self.done.full_disks += 1,
                    WriteRefusal::ReadOnly => self.done.read_only_disks += 1,
                }
            }
            Fault::RestartAll => {
                brokers.restart_all().await?;
                self.done.rolling_restarts += 1;
            }
        }
        Ok(())
    }

    /// Injects all faults at their times. Periodically syncs the disk of brokers with delayed sync, as
    /// operating systems do, and at least once between two power cuts.
    pub(crate) async fn meet_all(
        &mut self,
        plan: Vec<(Duration, Fault)>,
        began: Instant,
        write_back: Option<Duration>,
    ) -> Fallible<()> {
        let mut next_write_back = write_back.map(|every| Instant::now() + every);
        for (at, fault) in plan {
            while let Some((next, every)) =
                next_write_back.zip(write_back).filter(|(next, _)| *next < began + at)
            {
                sleep_until(next).await;
                self.cluster.brokers.keep_all();
                next_write_back = Some(Instant::now() + every);
            }
            sleep_until(began + at).await;
            self.meet(fault).await?;
            if let (Fault::CutPower(..), Some(every)) = (fault, write_back) {
                sleep(every).await;
                self.cluster.brokers.keep_all();
                next_write_back = Some(Instant::now() + every);
            }
        }
        self.idle().await;
        Ok(())
    }

    /// Waits until all ordered faults are over.
    pub(crate) async fn idle(&self) {
        for slot in self.executors.iter().chain(&self.agents) {
            slot.idle().await;
        }
    }
}

/// Injects random faults.
pub(crate) async fn run(args: RunArgs) -> Fallible<bool> {
    let (common, counts) = (&args.common, args.counts);
    if counts.needs_cluster() && common.servers < 3 {
        return Err(
            "halted leaders, lost quorums, emptied disks and rolling restarts need --servers 3".into()
        );
    }
    let seed = common.seed.unwrap_or_else(rand::random);
    let brokers = BrokerOptions {
        servers: common.servers,
        sync_always: !args.without_sync && args.sync_seconds.is_none(),
        sync_interval: args.sync_seconds.map(Duration::from_secs),
        can_lose_power: counts.needs_disk(),
        max_payload: args.max_payload,
    };
    let cluster = ChaosCluster::with_brokers(common.folder.clone(), common.shards, brokers).await?;
    let tallies: [Arc<Tally>; 2] = Default::default();
    let open = |roles: Vec<Role>, tally: &Arc<Tally>| -> Vec<Slot> {
        roles.into_iter().map(|role| Slot::open(role, Arc::clone(tally))).collect()
    };
    let (client, place) = (cluster.client.clone(), cluster.place.clone());
    let mut load = Load::new(client.clone(), seed, 10, 5, Duration::from_millis(common.work_ms));
    let other_client =
        args.other_client.clone().map(|program| Arc::new(OtherClient::new(program, place.clone())));
    if let Some(other) = &other_client {
        load = load.with_other_client(Arc::clone(other));
    }
    let began = Instant::now();
    let other_lives = Arc::<AtomicU64>::default();
    let take_turns = |roles: Vec<Role>| match &args.other_build {
        Some(program) => of_two_builds(roles, program, &other_lives),
        None => roles,
    };
    let memory = args.executor_memory.map(MemoryLimit::of_mebibytes).transpose()?.map(Arc::new);
    let mut processes = RunProcesses {
        executors: open(
            within(take_turns(executors(common, &cluster, usize::MAX)), memory.as_ref()),
            &tallies[0],
        ),
        agents: open(take_turns(agents(common, &cluster)), &tallies[1]),
        cluster,
        done: BrokerFaults::default(),
        last_agent_kill: began,
    };
    let whole = Duration::from_secs(args.seconds);
    let write_back = args.sync_seconds.map(Duration::from_secs);
    let starting = {
        let (load, count) = (load.clone(), args.executions);
        tokio::spawn(async move { load.evenly(count, whole).await })
    };
    processes.meet_all(counts.plan(whole, victims(common), seed), began, write_back).await?;
    let last = Instant::now();
    starting.await??;
    let finished = match args.sync_seconds {
        None => load.all_ended(PATIENCE).await,
        Some(_) => load.none_open(PATIENCE).await,
    };
    let ended = last.elapsed();
    let losses = args.sync_seconds.map(|seconds| PowerLosses {
        cuts: std::mem::take(&mut processes.done.cuts),
        window_ms: 2 * 1_000 * seconds,
    });
    let allowed = Allowances { ghost: None, losses };
    let verdict = judge(&client, &place, &load.accepted(), &allowed).await?;
    let mut report = Report::new("run", seed, began.elapsed(), verdict);
    report.all_ended_after_ms = millis(ended);
    let last_agent = processes.last_agent_kill;
    report.all_ended_after_last_agent_kill_ms =
        Some(millis(last_agent.elapsed().min(ended + (last - last_agent))));
    report.demand(finished, format!("not all had ended {} s after the last fault", PATIENCE.as_secs()));
    let disk = processes.cluster.brokers.disk_changes();
    demand_faults(&mut report, counts, &tallies, &processes.done, disk);
    report.other_build_lives = args.other_build.is_some().then(|| other_lives.load(Ordering::Relaxed));
    if let Some(other) = &other_client {
        read_by_other(&mut report, other, &load.accepted()).await;
    }
    report.demand(report.other_build_lives != Some(0), "no process was of the other build");
    demand_room(&mut report, counts, disk, memory.as_deref());
    if !args.short {
        report.demand(ended <= BAR, format!("all had ended {} s after the last fault only", ended.as_secs()));
        demand_effects(&mut report, counts.halts > 0);
    }
    report.write(common.json)
}

/// Reads outputs of accepted executions with the other client, and compares them.
async fn read_by_other(report: &mut Report, other: &OtherClient, accepted: &[Accepted]) {
    for one in accepted.iter().filter(|one| !one.cancel && !one.fails).step_by(OTHER_READS) {
        let finding = match other.result(&one.execution).await {
            Ok(output) => workflows::wrong(one.value, &output),
            Err(error) => Some(error.to_string()),
        };
        report.demand(finding.is_none(), format!("the other client reads: {}", finding.unwrap_or_default()));
    }
    report.other_client = Some((other.starts(), other.reads()));
    report.demand(other.starts() > 0 && other.reads() > 0, "the other client did nothing");
}

pub(crate) fn victims(common: &Common) -> Victims {
    Victims {
        executors: common.executors.max(1) as usize,
        agents: common.agents.max(1) as usize,
        servers: common.servers.max(1),
        lease: LEASE,
    }
}

/// Reports the injected faults, and checks that they are the requested ones.
pub(crate) fn demand_faults(
    report: &mut Report,
    asked: FaultCounts,
    tallies: &[Arc<Tally>; 2],
    servers: &BrokerFaults,
    disk: DiskChanges,
) {
    let [executors, agents] = tallies;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let faults = Faults {
        executor_kills: count(&executors.kills),
        agent_kills: count(&agents.kills),
        broker_kills: servers.kills,
        halts: count(&executors.halts) + count(&agents.halts),
        leader_halts: servers.leader_halts,
        quorum_losses: servers.quorum_losses,
        emptied_disks: servers.emptied_disks,
        rolling_restarts: servers.rolling_restarts,
        power_cuts: servers.power_cuts,
        forgotten_changes: disk.forgotten,
        full_disks: servers.full_disks,
        read_only_disks: servers.read_only_disks,
        refused_changes: disk.refused,
        memory_kills: 0,
        ended_by_themselves: count(&executors.strays) + count(&agents.strays),
    };
    let demands = [
        ("executors were killed", faults.executor_kills, asked.executor_kills),
        ("agents were killed", faults.agent_kills, asked.agent_kills),
        ("servers were killed", faults.broker_kills, asked.broker_kills),
        ("processes were halted", faults.halts, asked.halts),
        ("leaders were halted", faults.leader_halts, asked.leader_halts),
        ("quorums were lost", faults.quorum_losses, asked.quorum_losses),
        ("disks were emptied", faults.emptied_disks, asked.emptied_disks),
        ("power was cut", faults.power_cuts, asked.power_cuts),
        ("disks were full", faults.full_disks, asked.full_disks),
        ("disks could only be read", faults.read_only_disks, asked.read_only_disks),
        ("rolling restarts happened", faults.rolling_restarts, asked.rolling_restarts),
    ];
    for (words, happened, wanted) in demands {
        report.demand(happened >= wanted.into(), format!("{happened} of {wanted}: {words}"));
    }
    report.faults = Some(faults);
}

/// Checks that faults of disk and memory had an effect.
fn demand_room(report: &mut Report, asked: FaultCounts, disk: DiskChanges, memory: Option<&MemoryLimit>) {
    report.demand(asked.power_cuts == 0 || disk.forgotten > 0, "the disk has forgotten nothing");
    let refusals = asked.full_disks + asked.read_only_disks;
    report.demand(refusals == 0 || disk.refused > 0, "the disk has refused nothing");
    let Some(kills) = memory.map(MemoryLimit::kills) else { return };
    report.demand(kills > 0, "no executor wanted more memory than there was");
    if let Some(faults) = &mut report.faults {
        faults.memory_kills = kills;
    }
}

/// Checks that each kind of effect occurred. Only processes that survive a halt are fenced.
fn demand_effects(report: &mut Report, has_halts: bool) {
    let seen = &report.verdict;
    let idle = [
        (seen.redeliveries, "no task was delivered again"),
        (seen.takeovers, "no shard was taken over"),
        (seen.late, "no result was late"),
    ];
    let idle = idle.into_iter().chain(has_halts.then_some((seen.fenced, "nobody was fenced")));
    let missing: Vec<&str> = idle.filter(|(count, _)| *count == 0).map(|(_, missing)| missing).collect();
    for missing in missing {
        report.demand(false, missing);
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
