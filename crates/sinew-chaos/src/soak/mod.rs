//! Steady work for hours: memory, streams, disk, tasks and latency stay where they were.

mod samples;
mod soak_load;
mod soak_report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sinew_mesh::Provision;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::brokers::BrokerOptions;
use crate::cluster::ChaosCluster;
use crate::slot::{Order, Role, Slot, Tally, What};
use crate::{Fallible, workflows};
use samples::{SoakSample, SoakSampler};
use soak_load::SoakLoad;
use soak_report::SoakReport;

/// Silence after which executors take another one for dead, as in the product.
const LEASE: Duration = Duration::from_secs(5);
/// The longest time an agent works.
const WORK: Duration = Duration::from_millis(200);
/// Agents that were killed are back after this time.
const DOWN: Duration = Duration::from_secs(1);
/// How long everything may take to end after the last start.
const PATIENCE: Duration = Duration::from_mins(2);
/// The shortest time that a mesh can be told to keep what has ended.
const MIN_RETENTION: Duration = Duration::from_mins(1);
/// Part of the run, at its end, that is compared with the time after the warm-up.
const COMPARED_PART: u32 = 8;
/// Part of the run that the warm-up may take.
const MAX_WARM_UP_PART: u32 = 4;

/// How to soak.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SoakArgs {
    /// Seed of the run; random when absent.
    #[arg(long)]
    seed: Option<u64>,
    /// Where everything is written and kept; a temporary folder when absent.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// How long executions are started.
    #[arg(long, default_value_t = 7200)]
    seconds: u64,
    /// Time before anything is compared; a quarter of the run, if that is less.
    #[arg(long, default_value_t = 900)]
    warm_up_seconds: u64,
    /// Executions started in each second.
    #[arg(long, default_value_t = 5)]
    rate: u64,
    /// How long the mesh keeps what has ended; an eighth of the run, if that is less, and at least 60.
    #[arg(long, default_value_t = 600)]
    retention_seconds: u64,
    /// Seconds between two deployments of a new version.
    #[arg(long, default_value_t = 60)]
    deploy_seconds: u64,
    /// Seconds between two kills of an agent process.
    #[arg(long, default_value_t = 120)]
    agent_kill_seconds: u64,
    /// Demand that what must happen happens, but not that memory and latency stay level: for runs too short for that.
    #[arg(long)]
    short: bool,
}

/// Processes that live as long as the run, with the name that the report gives them, and those that are killed.
struct SoakProcesses {
    cluster: ChaosCluster,
    steady: BTreeMap<&'static str, Slot>,
    killed: Slot,
    tally: Arc<Tally>,
}

impl SoakProcesses {
    async fn start(args: &SoakArgs, retention: Duration) -> Fallible<Self> {
        let cluster = ChaosCluster::with_brokers(args.folder.clone(), 6, BrokerOptions::one(false)).await?;
        let provision = Provision { retention: Some(retention), ..Provision::default() };
        cluster.client.mesh().admin().provision(&provision).await?;
        workflows::deploy_gate(cluster.client.mesh()).await?;
        let tally = Arc::<Tally>::default();
        let open = |what| Slot::open(Role::new(cluster.place.clone(), what), Arc::clone(&tally));
        let executor = |name: &str| {
            let worn =
                sinew_executor::service::ServiceOptions::new(workflows::adapters).compaction_threshold_bytes;
            open(What::Executor { name: name.to_owned(), lease: LEASE, worn, room: None })
        };
        let agents = |name: &str| open(What::Agents { name: name.to_owned(), work: WORK });
        let listen = free_address()?;
        let steady = BTreeMap::from([
            ("executor 1", executor("executor-1")),
            ("executor 2", executor("executor-2")),
            ("agents", agents("agents-steady")),
            ("gateway", open(What::Gateway { listen, is_guarded: false })),
        ]);
        let killed = agents("agents-killed");
        Ok(Self { cluster, steady, killed, tally })
    }

    /// Process of each name, as far as it runs.
    fn ids(&self) -> BTreeMap<&'static str, u32> {
        let steady = self.steady.iter().filter_map(|(name, slot)| Some((*name, slot.process_id()?)));
        let broker = self.cluster.brokers.members().first().and_then(sinew_mesh::server::Server::pid);
        steady.chain(broker.map(|id| ("broker", id))).collect()
    }
}

/// An address of this machine that is free at this moment.
fn free_address() -> Fallible<std::net::SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Works for hours.
pub(crate) async fn soak(args: SoakArgs) -> Fallible<bool> {
    let whole = Duration::from_secs(args.seconds);
    let warm_up = Duration::from_secs(args.warm_up_seconds).min(whole / MAX_WARM_UP_PART);
    let retention = Duration::from_secs(args.retention_seconds).min(whole / COMPARED_PART).max(MIN_RETENTION);
    let seed = args.seed.unwrap_or_else(rand::random);
    let processes = SoakProcesses::start(&args, retention).await?;
    let sampler = SoakSampler::new(&processes.cluster).await?;
    let load = SoakLoad::new(processes.cluster.client.clone(), seed);
    load.warm_up().await?;
    let idle = sampler.sample(Duration::ZERO, &processes.ids()).await?;

    let began = Instant::now();
    let starting = tokio::spawn(load.clone().start_evenly(args.rate, whole));
    let approving = tokio::spawn(load.clone().approve());
    let samples = watch(&args, whole, &processes, &sampler, &load).await?;
    starting.await??;
    let has_ended = load.all_ended(PATIENCE).await;
    approving.abort();
    // Tasks of tokio end with what they served; a sample too early would see the last of them.
    sleep(LEASE).await;
    let last = sampler.sample(began.elapsed(), &processes.ids()).await?;

    let mut report = SoakReport::new(seed, began.elapsed(), &load);
    report.agent_kills = processes.tally.kills.load(Ordering::Relaxed);
    report.ended_by_themselves = processes.tally.strays.load(Ordering::Relaxed);
    report.demand(has_ended, format!("not all had ended {} s after the last start", PATIENCE.as_secs()));
    report.compare(&samples, warm_up, whole / COMPARED_PART, !args.short);
    report.compare_tasks(&idle, &last);
    report.samples = thin_out(samples);
    report.write(args.json)
}

/// Takes samples, deploys and kills agents until the time is over.
async fn watch(
    args: &SoakArgs,
    whole: Duration,
    processes: &SoakProcesses,
    sampler: &SoakSampler,
    load: &SoakLoad,
) -> Fallible<Vec<SoakSample>> {
    let began = Instant::now();
    let every = |seconds: u64| {
        let period = Duration::from_secs(seconds.max(1));
        let mut ticks = interval_at(began + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    };
    let mut sampling = every((args.seconds / 720).clamp(1, 10));
    let (mut deploying, mut killing) = (every(args.deploy_seconds), every(args.agent_kill_seconds));
    let mut samples = Vec::new();
    while began.elapsed() < whole {
        tokio::select! {
            _ = sampling.tick() => samples.push(sampler.sample(began.elapsed(), &processes.ids()).await?),
            _ = deploying.tick() => load.deploy_next().await?,
            _ = killing.tick() => processes.killed.order(Order::Kill(DOWN)),
        }
    }
    Ok(samples)
}

/// As many samples as a person reads: one in so many.
fn thin_out(samples: Vec<SoakSample>) -> Vec<SoakSample> {
    let step = samples.len().div_ceil(60).max(1);
    samples.into_iter().step_by(step).collect()
}
