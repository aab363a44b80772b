//! A steady load for hours, during which memory, streams, disk, tasks and latency must stay level.

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

/// Lease of executors, as in the product.
const LEASE: Duration = Duration::from_secs(5);
/// Maximum duration of a task.
const WORK: Duration = Duration::from_millis(200);
/// Downtime of killed agents.
const DOWN: Duration = Duration::from_secs(1);
/// Time limit for all executions to end after the last start.
const PATIENCE: Duration = Duration::from_mins(2);
/// Minimum retention of a mesh.
const MIN_RETENTION: Duration = Duration::from_mins(1);
/// Divisor of the run for the compared periods at the end and after the warm-up.
const COMPARED_PART: u32 = 8;
/// Divisor of the run for the maximum warm-up.
const MAX_WARM_UP_PART: u32 = 4;

/// Arguments of `soak`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SoakArgs {
    /// Seed of the run; random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for data and logs, which is kept; a temporary folder by default
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Duration of the load, in seconds
    #[arg(long, default_value_t = 7200)]
    seconds: u64,
    /// Warm-up before comparisons, in seconds; at most a quarter of the run
    #[arg(long, default_value_t = 900)]
    warm_up_seconds: u64,
    /// Number of executions to start per second
    #[arg(long, default_value_t = 5)]
    rate: u64,
    /// Retention of the mesh, in seconds; at most an eighth of the run, and at least 60
    #[arg(long, default_value_t = 600)]
    retention_seconds: u64,
    /// Seconds between deployments of new versions
    #[arg(long, default_value_t = 60)]
    deploy_seconds: u64,
    /// Seconds between kills of an agent process
    #[arg(long, default_value_t = 120)]
    agent_kill_seconds: u64,
    /// Do not require that memory and latency stay level; for short runs
    #[arg(long)]
    short: bool,
}

/// Processes that live as long as the run, with their names in the report, and those that are killed.
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

    /// Returns the running processes by name.
    fn ids(&self) -> BTreeMap<&'static str, u32> {
        let steady = self.steady.iter().filter_map(|(name, slot)| Some((*name, slot.process_id()?)));
        let broker = self.cluster.brokers.members().first().and_then(sinew_mesh::server::Server::pid);
        steady.chain(broker.map(|id| ("broker", id))).collect()
    }
}

/// Returns an unused local address.
fn free_address() -> Fallible<std::net::SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Runs a soak test.
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
    // Tasks of tokio end after their work; an earlier sample would count the last of them.
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

/// Takes samples, deploys, and kills agents until the end of the run.
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

/// Reduces samples to a readable number.
fn thin_out(samples: Vec<SoakSample>) -> Vec<SoakSample> {
    let step = samples.len().div_ceil(60).max(1);
    samples.into_iter().step_by(step).collect()
}
