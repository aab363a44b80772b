//! Crashes of gateway and bridge at each named crash point, with open streams and webhooks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sinew_agents::{ReachableAddresses, WebClient};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::outside_agent::{OUTSIDE, OutsideWork, serve_outside};
use super::outside_report::{GatewayReport, KillCounts};
use super::push_receiver::{PushLedger, receive_pushes};
use super::stream_client::{FollowedStream, StreamClient};
use super::{CARD_TIMEOUT, EXECUTORS, LEASE, PAIR, PAIR_FILE, SHARDS, free_address};
use crate::Fallible;
use crate::cluster::ChaosCluster;
use crate::points::Queue;
use crate::slot::{Living, Role, Slot, Tally, What, die_by_the_list};
use crate::workflows;

/// Arguments of `gateway-points`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GatewayPointArgs {
    /// Seed of the run; random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for data and logs, which is kept; a temporary folder by default
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Number of crashes at each point
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Skip crash points with this prefix
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Number of streams to keep open; each second one has a webhook
    #[arg(long, default_value_t = 24)]
    open: u32,
    /// Maximum duration of an external task, in milliseconds
    #[arg(long, default_value_t = 500)]
    work_ms: u64,
    /// Seconds after which open streams count as lost
    #[arg(long, default_value_t = 1_800)]
    patience: u64,
}

/// External programs, and the processes that are not killed.
struct PointRig {
    cluster: ChaosCluster,
    work: Arc<OutsideWork>,
    pushed: Arc<PushLedger>,
    base: String,
    hooks: String,
    web: WebClient,
    until: Instant,
}

impl PointRig {
    /// Follows one stream to its end.
    fn follow(&self, nth: u32) -> impl Future<Output = (u32, FollowedStream)> + Send + 'static + use<> {
        let hook = has_hook(nth).then(|| format!("{}/{nth}", self.hooks));
        let (web, base, until) = (self.web.clone(), self.base.clone(), self.until);
        async move { (nth, StreamClient { web, base, nth, hook }.follow(until).await) }
    }

    async fn judge(
        &self,
        seed: u64,
        began: Instant,
        streams: &BTreeMap<u32, FollowedStream>,
        queues: &[Arc<Queue>; 2],
    ) -> GatewayReport {
        let hooked = streams.iter().filter(|(nth, _)| has_hook(**nth));
        let expected: BTreeMap<u32, u64> = hooked.map(|(nth, stream)| (*nth, stream.last)).collect();
        self.pushed.all_arrived(&expected, self.until).await;
        let [gateways, bridges] = queues.each_ref().map(|queue| queue.died().values().sum::<u64>());
        let counts = KillCounts { gateway: gateways, bridge: bridges, executor: 0, broker: 0 };
        let mut report = GatewayReport::new("gateway-points", seed, began.elapsed(), counts);
        report.deaths = queues.iter().flat_map(|queue| queue.died()).collect();
        report.judge_streams(streams);
        report.judge_pushes(streams, &expected, &self.pushed);
        // If a bridge crashes after recording that it will send a message, the delivery is unknown.
        let most_unknown = usize::try_from(bridges).unwrap_or(usize::MAX);
        report.judge_messages(&self.work.messages(), most_unknown);
        for missed in queues.iter().flat_map(|queue| queue.failed()) {
            report.demand(false, missed);
        }
        report
    }
}

fn has_hook(nth: u32) -> bool {
    nth.is_multiple_of(2)
}

/// Crashes gateway and bridge the same number of times at each point.
pub(crate) async fn gateway_points(args: GatewayPointArgs) -> Fallible<bool> {
    if !cfg!(feature = "crash-points") {
        return Err("this was built without places to die at: use --features crash-points".into());
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    let mut random = StdRng::seed_from_u64(seed);
    let began = Instant::now();
    let cluster = ChaosCluster::new(args.folder.clone(), SHARDS, false).await?;
    workflows::deploy_text(cluster.client.mesh(), PAIR, PAIR_FILE, &BTreeMap::new()).await?;
    let work = Arc::new(OutsideWork::new(Duration::from_millis(args.work_ms), random.random()));
    let pushed = Arc::new(PushLedger::default());
    let (outside, _agent) = serve_outside(Arc::clone(&work)).await?;
    let (hooks, _hooks) = receive_pushes(Arc::clone(&pushed)).await?;
    let listen = free_address()?;
    let queues = [
        Queue::of_gateways(args.kills, &args.without, seed),
        Queue::of_bridges(args.kills, &args.without, seed),
    ]
    .map(Arc::new);
    let asked: usize = queues.iter().map(|queue| queue.left()).sum();
    let tally = Arc::<Tally>::default();
    let executor = |nth| {
        let name = format!("executor-{nth}");
        let what = What::Executor { name, lease: LEASE, worn: usize::MAX, room: None };
        Slot::open(Role::new(cluster.place.clone(), what), Arc::clone(&tally))
    };
    let executors: Vec<Slot> = (0..EXECUTORS).map(executor).collect();
    let mut dying = JoinSet::new();
    for (what, queue) in [
        (What::Gateway { listen, is_guarded: false }, &queues[0]),
        (What::Bridge { card: outside.clone() }, &queues[1]),
    ] {
        dying.spawn(die_by_the_list(Role::new(cluster.place.clone(), what), Arc::clone(queue)));
    }
    let cards = cluster.client.mesh().cards().follow();
    for name in [OUTSIDE, PAIR] {
        timeout(CARD_TIMEOUT, cards.wait_for(name)).await.map_err(|_| format!("no card of {name}"))?;
    }
    drop(cards);
    let rig = PointRig {
        cluster,
        work,
        pushed,
        base: format!("http://{listen}/agents/{PAIR}"),
        hooks,
        web: WebClient::new(ReachableAddresses::All)?,
        until: began + Duration::from_secs(args.patience),
    };
    let (mut following, mut begun) = (JoinSet::new(), args.open);
    (0..begun).for_each(|nth| drop(following.spawn(rig.follow(nth))));
    let (mut streams, mut alive) = (BTreeMap::new(), Vec::<Living>::new());
    while let Some(followed) = following.join_next().await {
        let (nth, stream) = followed?;
        streams.insert(nth, stream);
        if !queues.iter().all(|queue| queue.is_done()) && Instant::now() < rig.until {
            following.spawn(rig.follow(begun));
            begun += 1;
        }
        // Live processes complete the remaining streams.
        while let Some(done) = dying.try_join_next() {
            alive.push(done??);
        }
    }
    let mut report = rig.judge(seed, began, &streams, &queues).await;
    let died: u64 = report.deaths.values().sum();
    report.demand(usize::try_from(died)? == asked, format!("{died} of {asked} deaths"));
    drop((alive, executors, rig.cluster));
    report.write(args.json)
}
