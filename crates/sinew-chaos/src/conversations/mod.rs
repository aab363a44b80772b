//! Conversations with a language model whose processes are killed: recorded turns are never requested
//! again, tools with side effects run at most once, and all conversations end.

mod clerk;
mod judge;
mod kill_plan;
mod ledger;
mod provider;
mod report;
mod script;
mod talks;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sinew_agent::CancellationToken;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::Fallible;
use crate::cluster::ChaosCluster;
use crate::points::Queue;
use crate::slot::{Living, Order, Role, Slot, Tally, What, die_by_the_list};
pub(crate) use clerk::serve_clerk;
use clerk::{CLERK, write_agent};
use judge::judge_conversations;
use kill_plan::KillPlan;
use ledger::{KillOrder, RequestLedger};
use provider::{provide, serve_tools};
use report::ConversationReport;
use script::{ACT, LOOK};
use talks::{OpenConversations, TalkEnd};

/// Number of processes of the agent.
const REPLICAS: usize = 2;
/// Number of shards of the mesh.
const SHARDS: u32 = 4;
/// Lease of executors.
const LEASE: Duration = Duration::from_secs(5);
/// Time limit for all cards to be published.
const CARD_TIMEOUT: Duration = Duration::from_mins(1);
/// Duration of a halt, longer than a task waits for its agent.
const HALT_TIME: Duration = Duration::from_secs(12);
/// Minimum kills of a run to require each kind of effect.
const MANY_KILLS: u32 = 100;

/// Arguments of `conversations`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConversationArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Number of conversations
    #[arg(long, default_value_t = 200)]
    conversations: u32,
    /// Number of kills of the agent with `kill -9`, each during a conversation
    #[arg(long, default_value_t = 500)]
    kills: u32,
    /// Number of halts of the agent with SIGSTOP, for longer than a task waits for its agent
    #[arg(long, default_value_t = 6)]
    halts: u32,
    /// Number of concurrent conversations
    #[arg(long, default_value_t = 64)]
    at_once: usize,
}

/// Arguments of `conversation-points`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConversationPointArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Number of crashes at each point
    #[arg(long, default_value_t = 10)]
    kills: u32,
    /// Skip crash points with this prefix
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Number of conversations to keep open
    #[arg(long, default_value_t = 48)]
    open: usize,
}

/// Common arguments of both kinds of runs.
#[derive(Clone, Debug, clap::Args)]
struct CommonArgs {
    /// Seed of the run; random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for data and logs, which is kept; a temporary folder by default
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Seconds after which open conversations count as lost
    #[arg(long, default_value_t = 1_800)]
    patience: u64,
}

/// Mesh, provider, tools and executor, without the agent.
struct ConversationRig {
    cluster: ChaosCluster,
    ledger: Arc<RequestLedger>,
    orders: mpsc::UnboundedReceiver<KillOrder>,
    tally: Arc<Tally>,
    _executor: Slot,
    _provider: StoppedOnDrop,
    _tools: JoinSet<Fallible<()>>,
}

/// Aborts a task on drop.
struct StoppedOnDrop(AbortHandle);

impl Drop for StoppedOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ConversationRig {
    async fn new(folder: Option<PathBuf>, plan: KillPlan, seed: u64) -> Fallible<Self> {
        let cluster = ChaosCluster::new(folder, SHARDS, false).await?;
        let (killer, orders) = mpsc::unbounded_channel();
        let ledger = Arc::new(RequestLedger::new(plan, seed, killer));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        write_agent(&cluster.place, &format!("http://{}/v1", listener.local_addr()?))?;
        let provider = tokio::spawn(provide(listener, Arc::clone(&ledger)));
        let tools = serve_tools(&cluster.place.connect("tools").await?, &ledger, &CancellationToken::new());
        let tally = Arc::new(Tally::default());
        let what = What::Executor { name: "executor".to_owned(), lease: LEASE, worn: usize::MAX, room: None };
        let executor = Slot::open(Role::new(cluster.place.clone(), what), Arc::clone(&tally));
        let provider = StoppedOnDrop(provider.abort_handle());
        Ok(Self { cluster, ledger, orders, tally, _executor: executor, _provider: provider, _tools: tools })
    }

    /// Returns a role for each process of the agent.
    fn clerks(&self) -> Vec<Role> {
        let role = |replica| Role::new(self.cluster.place.clone(), What::Clerk { replica });
        (0..REPLICAS).map(role).collect()
    }

    /// Waits until agent and tools have published their cards.
    async fn ready(&self) -> Fallible<()> {
        let cards = self.cluster.client.mesh().cards().follow();
        for name in [CLERK, LOOK, ACT] {
            timeout(CARD_TIMEOUT, cards.wait_for(name)).await.map_err(|_| format!("no card of {name}"))?;
        }
        Ok(())
    }

    fn talks(&self, at_once: usize, patience: u64) -> OpenConversations {
        let until = Instant::now() + Duration::from_secs(patience);
        OpenConversations::new(self.cluster.client.mesh().clone(), Arc::clone(&self.ledger), at_once, until)
    }

    async fn report(
        &self,
        kind: &'static str,
        seed: u64,
        began: Instant,
        ends: &[(u32, TalkEnd)],
    ) -> Fallible<ConversationReport> {
        let verdict = judge_conversations(&self.cluster.client, &self.ledger, ends).await?;
        let count = |number: &std::sync::atomic::AtomicU64| number.load(Ordering::Relaxed);
        let mut report = ConversationReport {
            kind,
            seed,
            good: true,
            seconds: began.elapsed().as_secs(),
            kills: count(&self.tally.kills),
            halts: count(&self.tally.halts),
            ended_by_themselves: count(&self.tally.strays),
            moments: self.ledger.state().plan.moments(),
            deaths: std::collections::BTreeMap::new(),
            verdict,
            problems: Vec::new(),
        };
        report.demand_ends();
        Ok(report)
    }
}

/// Kills processes of the agent at random moments of its conversations.
pub(crate) async fn conversations(args: ConversationArgs) -> Fallible<bool> {
    let seed = args.common.seed.unwrap_or_else(rand::random);
    let mut random = StdRng::seed_from_u64(seed);
    let plan = KillPlan::new(args.conversations, args.kills, &mut random);
    let began = Instant::now();
    let mut around = ConversationRig::new(args.common.folder.clone(), plan, random.random()).await?;
    let clerks: Vec<Slot> =
        around.clerks().into_iter().map(|role| Slot::open(role, Arc::clone(&around.tally))).collect();
    around.ready().await?;
    let mut talks = around.talks(args.at_once, args.common.patience);
    for _ in 0..args.conversations {
        talks.begin();
    }
    let mut ends = Vec::new();
    let mut halts_left = args.halts;
    loop {
        tokio::select! {
            end = talks.next_end() => {
                let Some(end) = end? else { break };
                ends.push(end);
                // Owed kills need additional conversations.
                let are_all_over = ends.len() == talks.begun() as usize;
                if are_all_over && talks.begun() < 2 * args.conversations {
                    (0..around.ledger.state().plan.owed()).for_each(|_| talks.begin());
                }
                // Distribute halts over the ends of conversations.
                let share = ends.len() * args.halts as usize / args.conversations.max(1) as usize;
                if args.halts - halts_left < u32::try_from(share)? {
                    halts_left -= 1;
                    clerks[random.random_range(0..REPLICAS)].order(Order::Halt(HALT_TIME));
                }
            }
            Some(KillOrder { process, after }) = around.orders.recv() => {
                sleep(after).await;
                clerks[process.replica].order(Order::Kill(random.random_range(Duration::ZERO..Duration::from_millis(100))));
            }
        }
    }
    let mut report = around.report("conversations", seed, began, &ends).await?;
    let (kills, taken_up) = (report.kills, report.verdict.taken_up);
    report.demand(kills == u64::from(args.kills), format!("{kills} of {} kills", args.kills));
    // The last halt may be ordered too late to happen.
    let halts = (args.halts - halts_left).saturating_sub(1);
    report.demand(report.halts >= u64::from(halts), "a process was not halted");
    report.demand(taken_up >= args.kills as usize / 2, "few kills met a conversation");
    if args.kills >= MANY_KILLS {
        report.demand(report.verdict.repeated_asks > 0, "no model call was lost");
        report.demand(report.verdict.unknown_calls > 0, "no call that acts was interrupted");
        report.demand(report.moments.len() == 4, "a moment had no kill");
    }
    drop(clerks);
    report.write(args.common.json)
}

/// Crashes processes of the agent the same number of times at each point.
pub(crate) async fn conversation_points(args: ConversationPointArgs) -> Fallible<bool> {
    if !cfg!(feature = "crash-points") {
        return Err("this was built without places to die at: use --features crash-points".into());
    }
    let seed = args.common.seed.unwrap_or_else(rand::random);
    let began = Instant::now();
    let around = ConversationRig::new(args.common.folder.clone(), KillPlan::default(), seed).await?;
    let queue = Arc::new(Queue::of_conversations(args.kills, &args.without, seed));
    let asked = queue.left();
    let mut dying = JoinSet::new();
    for role in around.clerks() {
        dying.spawn(die_by_the_list(role, Arc::clone(&queue)));
    }
    around.ready().await?;
    let mut talks = around.talks(args.open, args.common.patience);
    for _ in 0..args.open {
        talks.begin();
    }
    let (mut ends, mut alive) = (Vec::new(), Vec::<Living>::new());
    while let Some(end) = talks.next_end().await? {
        ends.push(end);
        if !queue.is_done() {
            talks.begin();
        }
        // Live processes complete the remaining conversations.
        while let Some(done) = dying.try_join_next() {
            alive.push(done??);
        }
    }
    let mut report = around.report("conversation-points", seed, began, &ends).await?;
    report.deaths = queue.died();
    let died: u64 = report.deaths.values().sum();
    report.kills = died;
    report.demand(usize::try_from(died)? == asked, format!("{died} of {asked} deaths"));
    for missed in queue.failed() {
        report.demand(false, missed);
    }
    report.demand(talks.begun() as usize >= args.open, "too few conversations were held");
    drop(alive);
    report.write(args.common.json)
}
