//! A mesh with external programs: clients that follow streams of a gateway, webhooks, and an external
//! agent of a bridge. Gateway, bridge, executors and broker are killed; external programs are not, and
//! count what they receive.

mod gateway_points;
mod http_server;
mod outside_agent;
mod outside_report;
mod push_receiver;
mod stream_client;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sinew_agent::CancellationToken;
use sinew_agents::{ReachableAddresses, WebClient};
use sinew_bridge::{Bridge, BridgeSettings};
use sinew_gateway::{Gateway, GatewayOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::Fallible;
use crate::cluster::ChaosCluster;
use crate::roles::{MeshArgs, prepare};
use crate::slot::{Order, Role, Slot, Tally, What};
use crate::workflows;
pub(crate) use gateway_points::{GatewayPointArgs, gateway_points};
use outside_agent::{OUTSIDE, OutsideWork, serve_outside};
use outside_report::{GatewayReport, KillCounts};
use push_receiver::{PushLedger, receive_pushes};
use stream_client::{FollowedStream, StreamClient};

/// Name of the streamed workflow.
const PAIR: &str = "pair";
/// Two sequential tasks of the external agent.
const PAIR_FILE: &str = r#"
workflow:
  description: Two outside tasks
  nodes:
    - {id: first, type: agent, agent_name: outside, input: {text: "{{workflow.input.text}}"}}
    - {id: second, type: agent, agent_name: outside, depends_on: [first], input: {text: "{{first.output.text}}"}}
  output_mapping: {text: "{{second.output.text}}"}
"#;
/// Number of executors.
const EXECUTORS: usize = 2;
/// Number of shards.
const SHARDS: u32 = 4;
/// Lease of executors.
const LEASE: Duration = Duration::from_secs(3);
/// Time limit for cards to be published.
const CARD_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum downtime of a process.
const MAX_DOWN: Duration = Duration::from_millis(1_500);

/// Arguments of `gateway`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GatewayArgs {
    /// Seed of the run; random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for data and logs, which is kept; a temporary folder by default
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Number of concurrent streams
    #[arg(long, default_value_t = 200)]
    streams: u32,
    /// Number of streams with a webhook
    #[arg(long, default_value_t = 50)]
    pushes: u32,
    /// Duration of the faults, in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Number of kills of the gateway
    #[arg(long, default_value_t = 10)]
    gateway_kills: u32,
    /// Number of kills of the bridge
    #[arg(long, default_value_t = 10)]
    bridge_kills: u32,
    /// Number of kills of executors
    #[arg(long, default_value_t = 6)]
    executor_kills: u32,
    /// Number of kills of the broker
    #[arg(long, default_value_t = 3)]
    broker_kills: u32,
    /// Maximum duration of an external task, in milliseconds
    #[arg(long, default_value_t = 8_000)]
    work_ms: u64,
    /// Seconds after the last fault in which all executions must end
    #[arg(long, default_value_t = 240)]
    patience: u64,
}

/// A process to kill.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Gateway,
    Bridge,
    Executor(usize),
    Broker,
}

/// Serves the gateway until it is killed; a guarded one requires keys.
pub(crate) async fn serve_gateway(place: &MeshArgs, listen: SocketAddr, is_guarded: bool) -> Fallible<()> {
    prepare(place)?;
    let mut options = GatewayOptions::new(workflows::adapters);
    options.listen = listen;
    options.access.is_required = is_guarded;
    // The webhook receivers of this run are local.
    options.push_addresses = ReachableAddresses::All;
    let _gateway = Gateway::start(place.connect("gateway").await?, options).await?;
    std::future::pending().await
}

/// Serves the bridge until it is killed.
pub(crate) async fn serve_bridge(place: &MeshArgs, card: &str) -> Fallible<()> {
    prepare(place)?;
    let stop = CancellationToken::new();
    let bridge = Bridge::open(BridgeSettings::of_address(card)?, &stop).await?.ok_or("stopped")?;
    let mesh = place.connect(bridge.name()).await?;
    Ok(bridge.serve(mesh, stop).await?)
}

/// Returns the times of kills.
fn plan(args: &GatewayArgs, random: &mut StdRng) -> Vec<(Duration, Victim, Duration)> {
    let whole = Duration::from_secs(args.seconds);
    let mut plan = Vec::new();
    let mut spread = |count: u32, victim: &mut dyn FnMut(&mut StdRng) -> Victim| {
        for nth in 0..count {
            let share = (f64::from(nth) + random.random_range(0.1..0.9)) / f64::from(count);
            let down = random.random_range(Duration::from_millis(50)..MAX_DOWN);
            plan.push((whole.mul_f64(0.05 + 0.9 * share), victim(random), down));
        }
    };
    spread(args.gateway_kills, &mut |_| Victim::Gateway);
    spread(args.bridge_kills, &mut |_| Victim::Bridge);
    spread(args.executor_kills, &mut |random| Victim::Executor(random.random_range(0..EXECUTORS)));
    spread(args.broker_kills, &mut |_| Victim::Broker);
    plan.sort_by_key(|(at, _, _)| *at);
    plan
}

/// Returns an unused local address, because the gateway must restart at the same one.
pub(crate) fn free_address() -> Fallible<SocketAddr> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Kills processes around a gateway, and counts what external programs receive.
pub(crate) async fn gateway(args: GatewayArgs) -> Fallible<bool> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let mut random = StdRng::seed_from_u64(seed);
    let plan = plan(&args, &mut random);
    let began = Instant::now();
    let mut cluster = ChaosCluster::new(args.folder.clone(), SHARDS, true).await?;
    workflows::deploy_text(cluster.client.mesh(), PAIR, PAIR_FILE, &BTreeMap::new()).await?;
    let work = Arc::new(OutsideWork::new(Duration::from_millis(args.work_ms), random.random()));
    let pushed = Arc::new(PushLedger::default());
    let (outside, _agent) = serve_outside(Arc::clone(&work)).await?;
    let (hooks, _hooks) = receive_pushes(Arc::clone(&pushed)).await?;
    let listen = free_address()?;
    let tallies: [Arc<Tally>; 3] = Default::default();
    let open = |what: What, tally: usize| {
        Slot::open(Role::new(cluster.place.clone(), what), Arc::clone(&tallies[tally]))
    };
    let gateway = open(What::Gateway { listen, is_guarded: false }, 0);
    let bridge = open(What::Bridge { card: outside.clone() }, 1);
    let executors: Vec<Slot> = (0..EXECUTORS)
        .map(|nth| {
            let name = format!("executor-{nth}");
            open(What::Executor { name, lease: LEASE, worn: usize::MAX, room: None }, 2)
        })
        .collect();
    let cards = cluster.client.mesh().cards().follow();
    for name in [OUTSIDE, PAIR] {
        timeout(CARD_TIMEOUT, cards.wait_for(name)).await.map_err(|_| format!("no card of {name}"))?;
    }
    drop(cards);
    let web = WebClient::new(ReachableAddresses::All)?;
    let until = Instant::now() + Duration::from_secs(args.seconds + args.patience);
    let mut following = JoinSet::new();
    for nth in 0..args.streams {
        let hook = (nth < args.pushes).then(|| format!("{hooks}/{nth}"));
        let base = format!("http://{listen}/agents/{PAIR}");
        let client = StreamClient { web: web.clone(), base, nth, hook };
        following.spawn(async move { (nth, client.follow(until).await) });
    }
    let (faults_began, mut broker_kills) = (Instant::now(), 0);
    for (at, victim, down) in plan {
        sleep_until(faults_began + at).await;
        match victim {
            Victim::Gateway => gateway.order(Order::Kill(down)),
            Victim::Bridge => bridge.order(Order::Kill(down)),
            Victim::Executor(nth) => executors[nth].order(Order::Kill(down)),
            Victim::Broker => {
                cluster.brokers.kill(0, down).await?;
                broker_kills += 1;
            }
        }
    }
    // A kill that is ordered while the process is down hits the next one.
    join_all(executors.iter().chain([&gateway, &bridge]).map(Slot::idle)).await;
    let mut streams: BTreeMap<u32, FollowedStream> = BTreeMap::new();
    while let Some(followed) = following.join_next().await {
        let (nth, stream) = followed?;
        streams.insert(nth, stream);
    }
    let expected: BTreeMap<u32, u64> = streams
        .iter()
        .filter(|(nth, _)| **nth < args.pushes)
        .map(|(nth, stream)| (*nth, stream.last))
        .collect();
    pushed.all_arrived(&expected, until).await;
    let kills = |tally: &Tally| tally.kills.load(Ordering::Relaxed);
    let counts = KillCounts {
        gateway: kills(&tallies[0]),
        bridge: kills(&tallies[1]),
        executor: kills(&tallies[2]),
        broker: broker_kills,
    };
    let mut report = GatewayReport::new("gateway", seed, began.elapsed(), counts);
    report.judge_streams(&streams);
    report.judge_pushes(&streams, &expected, &pushed);
    report.judge_messages(&work.messages(), streams.len() / 10);
    demand_kills(&mut report, counts, &args);
    drop((gateway, bridge, executors));
    report.write(args.json)
}

/// Checks that the run had the requested number of kills.
fn demand_kills(report: &mut GatewayReport, counts: KillCounts, args: &GatewayArgs) {
    let demands = [
        ("gateways", counts.gateway, args.gateway_kills),
        ("bridges", counts.bridge, args.bridge_kills),
        ("executors", counts.executor, args.executor_kills),
        ("brokers", counts.broker, args.broker_kills),
    ];
    for (what, killed, wanted) in demands {
        report.demand(killed >= u64::from(wanted), format!("{killed} of {wanted} {what} were killed"));
    }
}
