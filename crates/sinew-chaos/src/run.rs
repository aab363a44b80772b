//! The two kinds of runs: deaths by the list, and faults at random.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::load::Load;
use crate::points::Queue;
use crate::report::{Faults, Report};
use crate::roles::SMALL_ROOM;
use crate::site::Site;
use crate::slot::{Living, Order, Role, Slot, Tally, What, die_by_the_list};
use crate::verdict::judge;
use crate::{Common, Fallible};

/// Silence after which executors take another one for dead, in these runs.
const LEASE: Duration = Duration::from_secs(3);
/// How long everything may take to end before the run is called unfinished.
const PATIENCE: Duration = Duration::from_mins(2);
/// All must have ended so long after the last fault.
const BAR: Duration = Duration::from_secs(30);
/// Bytes of journal after which a shard is compacted while `points` run.
const WORN: usize = 2 << 20;

/// How to kill at named places.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PointsArgs {
    #[command(flatten)]
    common: Common,
    /// Deaths at each place.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Leave out places that begin like this.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Executions that are kept open meanwhile.
    #[arg(long, default_value_t = 60)]
    open: usize,
}

/// How to kill at random.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    common: Common,
    /// How long faults happen.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Executions that are started meanwhile.
    #[arg(long, default_value_t = 1_050)]
    executions: u64,
    /// Executors killed with `kill -9`.
    #[arg(long, default_value_t = 24)]
    executor_kills: u32,
    /// Agent processes killed with `kill -9`.
    #[arg(long, default_value_t = 10)]
    agent_kills: u32,
    /// Times that the broker is killed with `kill -9`.
    #[arg(long, default_value_t = 3)]
    broker_kills: u32,
    /// Executors and agents halted with SIGSTOP, for longer than the lease.
    #[arg(long, default_value_t = 6)]
    halts: u32,
    /// Do not ask that redeliveries, fences, takeovers and late results were seen: for runs too short for all of them.
    #[arg(long)]
    short: bool,
}

/// A role per executor of the run.
fn executors(common: &Common, site: &Site, worn: usize) -> Vec<Role> {
    let role = |nth| {
        let what =
            What::Executor { name: format!("executor-{nth}"), lease: LEASE, worn, room: Some(SMALL_ROOM) };
        Role { place: site.place.clone(), what }
    };
    (0..common.executors).map(role).collect()
}

/// A role per agent process of the run.
fn agents(common: &Common, site: &Site) -> Vec<Role> {
    let work = Duration::from_millis(common.work_ms);
    let role = |nth| {
        let what = What::Agents { name: format!("agents-{nth}"), work };
        Role { place: site.place.clone(), what }
    };
    (0..common.agents).map(role).collect()
}

/// Kills at every place, the same number of times.
pub(crate) async fn points(args: PointsArgs) -> Fallible<bool> {
    if !cfg!(feature = "crash-points") {
        return Err("this was built without places to die at: use --features crash-points".into());
    }
    let common = args.common;
    let seed = common.seed.unwrap_or_else(rand::random);
    let began = Instant::now();
    let site = Site::new(common.folder.clone(), common.shards, false).await?;
    let queues = [
        Queue::of_executors(args.kills, &args.without, seed),
        Queue::of_agents(args.kills, &args.without, seed),
    ]
    .map(Arc::new);
    let asked: usize = queues.iter().map(|queue| queue.left()).sum();
    let work = Duration::from_millis(common.work_ms);
    let load = Load::new(site.client.clone(), seed, 4, 0, work);
    let mut dying = JoinSet::new();
    for role in executors(&common, &site, WORN) {
        dying.spawn(die_by_the_list(role, Arc::clone(&queues[0])));
    }
    for role in agents(&common, &site) {
        dying.spawn(die_by_the_list(role, Arc::clone(&queues[1])));
    }
    let over = |queues: &[Arc<Queue>; 2]| queues.iter().all(|queue| queue.is_done());
    load.keep_open(args.open, || over(&queues)).await?;
    // Processes that live finish the remaining work; they end with this vector.
    let mut alive: Vec<Living> = Vec::new();
    while let Some(done) = dying.join_next().await {
        alive.push(done??);
    }
    let last = Instant::now();
    let finished = load.all_ended(PATIENCE).await;
    let ended = last.elapsed();
    let verdict = judge(&site.client, &site.place, &load.accepted()).await?;
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

/// Fault and its victim.
#[derive(Clone, Copy, Debug)]
enum Fault {
    KillExecutor(usize, Duration),
    KillAgents(usize, Duration),
    KillBroker(Duration),
    HaltExecutor(usize, Duration),
    HaltAgents(usize, Duration),
}

/// Faults with their times, from the seed alone.
fn plan(args: &RunArgs, seed: u64) -> Vec<(Duration, Fault)> {
    let mut random = StdRng::seed_from_u64(seed);
    let whole = Duration::from_secs(args.seconds);
    let executors = args.common.executors.max(1) as usize;
    let agents = args.common.agents.max(1) as usize;
    let mut plan = Vec::new();
    // Spread evenly, each somewhere in its own part of the time, which begins and ends at these shares of the whole.
    let mut spread = |count: u32, from: f64, to: f64, make: &mut dyn FnMut(&mut StdRng) -> Fault| {
        for nth in 0..count {
            let share = (f64::from(nth) + random.random_range(0.1..0.9)) / f64::from(count);
            let at = whole.mul_f64(from + (to - from) * share);
            plan.push((at, make(&mut random)));
        }
    };
    let while_down = |random: &mut StdRng| Duration::from_millis(random.random_range(100..1_500));
    spread(args.executor_kills, 0.03, 1.0, &mut |random| {
        Fault::KillExecutor(random.random_range(0..executors), while_down(random))
    });
    spread(args.agent_kills, 0.05, 1.0, &mut |random| {
        Fault::KillAgents(random.random_range(0..agents), while_down(random))
    });
    spread(args.broker_kills, 0.2, 0.9, &mut |random| Fault::KillBroker(while_down(random)));
    spread(args.halts, 0.1, 0.9, &mut |random| {
        let halt = LEASE + Duration::from_millis(random.random_range(500..4_000));
        if random.random_bool(0.8) {
            Fault::HaltExecutor(random.random_range(0..executors), halt)
        } else {
            Fault::HaltAgents(random.random_range(0..agents), halt)
        }
    });
    plan.sort_by_key(|(at, _)| *at);
    plan
}

/// Kills at random.
pub(crate) async fn run(args: RunArgs) -> Fallible<bool> {
    let common = &args.common;
    let seed = common.seed.unwrap_or_else(rand::random);
    let mut site = Site::new(common.folder.clone(), common.shards, true).await?;
    let tallies: [Arc<Tally>; 2] = Default::default();
    let open = |roles: Vec<Role>, tally: &Arc<Tally>| -> Vec<Slot> {
        roles.into_iter().map(|role| Slot::open(role, Arc::clone(tally))).collect()
    };
    let executors = open(executors(common, &site, usize::MAX), &tallies[0]);
    let agents = open(agents(common, &site), &tallies[1]);
    let load = Load::new(site.client.clone(), seed, 10, 5, Duration::from_millis(common.work_ms));
    let began = Instant::now();
    let starting = {
        let (load, count, over) = (load.clone(), args.executions, Duration::from_secs(args.seconds));
        tokio::spawn(async move { load.evenly(count, over).await })
    };
    let (mut broker_kills, mut last_agent) = (0, began);
    for (at, fault) in plan(&args, seed) {
        sleep_until(began + at).await;
        match fault {
            Fault::KillExecutor(nth, down) => executors[nth].order(Order::Kill(down)),
            Fault::HaltExecutor(nth, halt) => executors[nth].order(Order::Halt(halt)),
            Fault::KillAgents(nth, down) => {
                agents[nth].order(Order::Kill(down));
                last_agent = Instant::now();
            }
            Fault::HaltAgents(nth, halt) => agents[nth].order(Order::Halt(halt)),
            Fault::KillBroker(down) => {
                site.server.kill9().await?;
                broker_kills += 1;
                sleep(down).await;
                site.server.restart().await?;
            }
        }
    }
    for slot in executors.iter().chain(&agents) {
        slot.idle().await;
    }
    let last = Instant::now();
    starting.await??;
    let finished = load.all_ended(PATIENCE).await;
    let ended = last.elapsed();
    let verdict = judge(&site.client, &site.place, &load.accepted()).await?;
    let count = |tally: &Tally| {
        (
            tally.kills.load(Ordering::Relaxed),
            tally.halts.load(Ordering::Relaxed),
            tally.strays.load(Ordering::Relaxed),
        )
    };
    let ((executor_kills, executor_halts, a), (agent_kills, agent_halts, b)) =
        (count(&tallies[0]), count(&tallies[1]));
    let mut report = Report::new("run", seed, began.elapsed(), verdict);
    report.faults = Some(Faults {
        executor_kills,
        agent_kills,
        broker_kills,
        halts: executor_halts + agent_halts,
        ended_by_themselves: a + b,
    });
    report.all_ended_after_ms = millis(ended);
    report.all_ended_after_last_agent_kill_ms =
        Some(millis(last_agent.elapsed().min(ended + (last - last_agent))));
    report.demand(finished, format!("not all had ended {} s after the last fault", PATIENCE.as_secs()));
    report.demand(executor_kills >= args.executor_kills.into(), "too few executors were killed");
    report.demand(agent_kills >= args.agent_kills.into(), "too few agents were killed");
    report.demand(broker_kills >= u64::from(args.broker_kills), "too few brokers were killed");
    report.demand(executor_halts + agent_halts >= args.halts.into(), "too few processes were halted");
    if !args.short {
        report.demand(ended <= BAR, format!("all had ended {} s after the last fault only", ended.as_secs()));
        demand_effects(&mut report);
    }
    report.write(common.json)
}

/// Demands that each kind of effect that faults have was seen at least once.
fn demand_effects(report: &mut Report) {
    let seen = &report.verdict;
    let idle = [
        (seen.redeliveries, "no task was delivered again"),
        (seen.takeovers, "no shard was taken over"),
        (seen.fenced, "nobody was fenced"),
        (seen.late, "no result was late"),
    ];
    for (_, missing) in idle.into_iter().filter(|(count, _)| *count == 0) {
        report.demand(false, missing);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
