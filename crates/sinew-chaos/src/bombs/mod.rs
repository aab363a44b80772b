//! Bombs during normal executions: they must not delay others, grow processes, or leave work.

mod catalogue;
mod processes;
mod report;
mod targets;
mod thrower;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sinew_engine::TerminalStatus;
use sinew_executor::client::Client;
use sinew_mesh::Mesh;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::cluster::ChaosCluster;
use crate::slot::{Role, Slot, Tally, What};
use crate::target_group::TargetGroup;
use crate::{Fallible, workflows};
use catalogue::BOMB_PLACES;
use processes::{ProcessWatch, processor_times};
use report::{BombReport, InnocentReport, LatencySummary};
pub(crate) use targets::targets;
use thrower::BomberProcess;
pub(crate) use thrower::{ThrowArgs, throw_bombs};

/// Lease of executors.
const LEASE: Duration = Duration::from_secs(5);
/// Minimum bytes of a shard's journal for compaction, as in the product.
const WORN_BYTES: usize = 16 * 1024 * 1024;
/// Maximum memory of a process, in MiB.
const MAX_PROCESS_MIB: u64 = 512;
/// Maximum ratio of p99 durations of normal executions with and without bombs, per kind and in total.
const MAX_P99_RATIO: f64 = 2.0;
/// Maximum time after the last bomb for which a core is busy.
const MAX_BUSY_TIME: Duration = Duration::from_secs(5);
/// Interval in which the processor time of processes is compared.
const BUSY_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit of a normal execution, and of a bomb.
const END_TIMEOUT: Duration = Duration::from_mins(1);
/// Executions of each kind before measurements, so that workers run and workflows have records.
const WARM_UPS: usize = 8;

/// Arguments of `bombs`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BombArgs {
    /// Seed of the bombs; random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for data and logs, which is kept; a temporary folder by default
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Number of executor processes
    #[arg(long, default_value_t = 2)]
    executors: u32,
    /// Number of shards of the mesh
    #[arg(long, default_value_t = 4)]
    shards: u32,
    #[command(flatten)]
    throw: ThrowArgs,
    /// Duration of measurements before the first bomb, and again after the last, in seconds
    #[arg(long, default_value_t = 30)]
    quiet_seconds: u64,
    /// Number of normal executions to start per second
    #[arg(long, default_value_t = 24.0)]
    rate: f64,
    /// Check only memory and ends, not durations; for short runs, or on a busy machine
    #[arg(long)]
    short: bool,
}

/// A normal workflow: its name, input, and expected output.
struct Innocent {
    name: &'static str,
    input: fn(u64) -> Value,
    is_right: fn(u64, &Value) -> bool,
}

const INNOCENTS: [Innocent; 3] = [
    Innocent {
        name: "plain",
        input: |nth| json!({ "value": nth }),
        is_right: |nth, output| output["value"] == json!(nth),
    },
    Innocent {
        name: "script",
        input: |nth| json!({ "n": nth }),
        is_right: |nth, output| output["twice"] == json!(nth * 2),
    },
    Innocent {
        name: "pattern",
        input: |nth| json!({ "value": nth }),
        is_right: |_, output| output["results"]["a"]["status"] == "success",
    },
];

const PLAIN_FILE: &str = r#"{"workflow": {"description": "One agent", "nodes": [
    {"id": "a", "type": "agent", "agent_name": "echo", "when": "{{workflow.input.value}} >= 0",
        "input": {"value": "{{workflow.input.value}}"}}],
    "output_mapping": {"value": "{{a.output.value}}"}}}"#;

/// Deploys the normal workflows.
async fn deploy_innocents(mesh: &Mesh) -> Fallible<()> {
    let script = catalogue::team_script("lambda d: {'twice': d['value']['n'] * 2}").to_string();
    let pattern = catalogue::sweny_pattern("pattern", "^a+!$").to_string();
    for (name, text) in [("plain", PLAIN_FILE), ("script", &script), ("pattern", &pattern)] {
        workflows::deploy_text(mesh, name, text, &default_agents("texts")).await?;
    }
    Ok(())
}

/// Returns agents for nodes without an agent.
fn default_agents(agent: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("work".to_owned(), agent.to_owned())])
}

/// Sends bombs during normal executions, and checks both.
pub(crate) async fn bombs(args: BombArgs) -> Fallible<bool> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let cluster = ChaosCluster::new(args.folder.clone(), args.shards, false).await?;
    let watch = ProcessWatch::start();
    let tally = Arc::new(Tally::default());
    let _slots = open_slots(&args, &cluster, &tally);
    let innocent = Client::new(cluster.place.connect("innocent").await?, workflows::adapters).await?;
    deploy_innocents(innocent.mesh()).await?;
    let cards = innocent.mesh().cards().follow();
    for agent in TargetGroup::ALL.into_iter().flat_map(TargetGroup::agents) {
        timeout(END_TIMEOUT, cards.wait_for(agent)).await.map_err(|_| format!("no card of {agent}"))?;
    }
    let notes = File::create(cluster.place.folder.join("innocents.tsv"))?;
    let mut load = InnocentLoad { client: innocent, next: 0, problems: Vec::new(), notes };
    load.warm_up().await;
    let quiet_phase = Duration::from_secs(args.quiet_seconds);
    let before = load.during(sleep(quiet_phase), args.rate).await.1;
    let mut bomber = BomberProcess::start(&cluster.place, seed, &args.throw)?;
    let (thrown, bombed) = load.during(bomber.thrown(), args.rate).await;
    let last = Instant::now();
    thrown?;
    let quiet_after = time_to_quiet(last).await;
    let ends = bomber.ends().await?;
    // After all bombs, normal executions must end as before.
    load.warm_up().await;
    let after = load.during(sleep(quiet_phase), args.rate).await.1;
    let mut report = BombReport {
        kind: "bombs",
        seed,
        good: true,
        profile: if cfg!(debug_assertions) { "dev" } else { "release" },
        bombs: args.throw.bombs,
        ends,
        innocents: BTreeMap::new(),
        all_innocents: InnocentReport::default(),
        peak_memory_mib: watch.peaks().into_iter().map(|(kind, kib)| (kind, kib / 1024)).collect(),
        quiet_after_ms: quiet_after.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        ended_by_themselves: tally.strays.load(Ordering::Relaxed),
        problems: Vec::new(),
    };
    let compare = |select: &dyn Fn(&Times) -> Vec<Duration>| {
        let of = |times| LatencySummary::of(select(times));
        InnocentReport { quiet: of(&before).calmer(of(&after)), bombed: of(&bombed) }
    };
    report.all_innocents = compare(&|times| times.values().flatten().copied().collect());
    for Innocent { name, .. } in &INNOCENTS {
        let of_kind = compare(&|times| times.get(name).cloned().unwrap_or_default());
        report.innocents.insert((*name).to_owned(), of_kind);
    }
    judge(&mut report, &args, load.problems);
    let text = if args.json { serde_json::to_string_pretty(&report)? } else { report.table() };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(report.good)
}

fn open_slots(args: &BombArgs, cluster: &ChaosCluster, tally: &Arc<Tally>) -> Vec<Slot> {
    let executor =
        |nth| What::Executor { name: format!("executor-{nth}"), lease: LEASE, worn: WORN_BYTES, room: None };
    let targets = TargetGroup::ALL.map(|group| What::Targets { group });
    let roles = (0..args.executors).map(executor).chain(targets);
    roles.map(|what| Slot::open(Role::new(cluster.place.clone(), what), Arc::clone(tally))).collect()
}

/// Checks the limits of a bomb run.
fn judge(report: &mut BombReport, args: &BombArgs, innocent_problems: Vec<String>) {
    for problem in innocent_problems {
        report.demand(false, problem);
    }
    let ended: usize = report.ends.values().flat_map(BTreeMap::values).sum();
    report.demand(ended == args.throw.bombs, format!("{ended} of {} bombs have ended", args.throw.bombs));
    report.demand(report.ends.len() == BOMB_PLACES.len().min(args.throw.bombs), "a place had no bomb");
    let strays = report.ended_by_themselves;
    report.demand(strays == 0, format!("{strays} processes ended by themselves"));
    for (kind, mib) in report.peak_memory_mib.clone() {
        report.demand(mib <= MAX_PROCESS_MIB, format!("{kind}: {mib} MiB, more than {MAX_PROCESS_MIB}"));
    }
    let measured =
        report.innocents.values().all(|innocent| innocent.quiet.count > 0 && innocent.bombed.count > 0);
    report.demand(measured, "an innocent workflow was not measured");
    report.demand(report.peak_memory_mib.len() == 4, "a kind of process was not seen");
    if args.short {
        return;
    }
    let all = report.all_innocents;
    for (kind, innocent) in report.innocents.clone().into_iter().chain([("of all kinds".to_owned(), all)]) {
        let ratio = innocent.p99_ratio();
        report.demand(ratio <= MAX_P99_RATIO, format!("innocent {kind}: p99 takes {ratio:.2} times as long"));
    }
    let is_quiet = report.quiet_after_ms.is_some();
    report.demand(is_quiet, format!("a core is busy {} s after the last bomb", MAX_BUSY_TIME.as_secs()));
}

/// Waits until no process has a busy core; `None` on timeout.
async fn time_to_quiet(since: Instant) -> Option<Duration> {
    let mut before = processor_times();
    loop {
        let began = since.elapsed();
        sleep(BUSY_INTERVAL).await;
        let now = processor_times();
        let used = |(process, time): (&u32, &Duration)| {
            time.saturating_sub(before.get(process).copied().unwrap_or_default())
        };
        let busiest = now.iter().map(used).max().unwrap_or_default();
        if busiest < BUSY_INTERVAL / 2 {
            return Some(began);
        }
        if since.elapsed() > MAX_BUSY_TIME {
            return None;
        }
        before = now;
    }
}

/// Durations of executions by workflow.
type Times = BTreeMap<&'static str, Vec<Duration>>;

/// Normal executions, started at a steady rate.
struct InnocentLoad {
    client: Client,
    next: u64,
    problems: Vec<String>,
    /// Start (Unix milliseconds), workflow and milliseconds of each execution, to compare with logs.
    notes: File,
}

impl InnocentLoad {
    fn note(&self, started: Duration, name: &str, time: Duration) -> std::io::Result<()> {
        writeln!(&self.notes, "{}\t{name}\t{:.1}", started.as_millis(), time.as_secs_f64() * 1000.0)
    }

    /// Runs some executions of each kind sequentially.
    async fn warm_up(&mut self) {
        for _ in 0..WARM_UPS {
            for innocent in &INNOCENTS {
                self.next += 1;
                self.problems.extend(self.client.clone().innocent(innocent, self.next).await.err());
            }
        }
    }

    /// Starts executions until `something` completes. Returns its value, and the durations.
    async fn during<T>(&mut self, something: impl Future<Output = T>, rate: f64) -> (T, Times) {
        let mut running = JoinSet::new();
        let mut tick = interval(Duration::from_secs_f64(1.0 / rate.max(0.1)));
        let mut something = std::pin::pin!(something);
        let value = loop {
            tokio::select! {
                biased;
                value = &mut something => break value,
                _ = tick.tick() => {
                    self.next += 1;
                    let (client, nth) = (self.client.clone(), self.next);
                    let innocent = &INNOCENTS[usize::try_from(nth).unwrap_or_default() % INNOCENTS.len()];
                    running.spawn(async move {
                        let started = SystemTime::now();
                        (started, innocent.name, client.innocent(innocent, nth).await)
                    });
                }
            }
        };
        let mut times = Times::new();
        for (started, name, ended) in running.join_all().await {
            match ended {
                Ok(time) => {
                    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
                    self.problems.extend(self.note(started, name, time).err().map(|error| error.to_string()));
                    times.entry(name).or_default().push(time);
                }
                Err(problem) => self.problems.push(problem),
            }
        }
        (value, times)
    }
}

/// Starts normal executions.
trait StartInnocent {
    /// Runs one execution. Returns the time until the client received its end.
    async fn innocent(self, innocent: &Innocent, nth: u64) -> Result<Duration, String>;
}

impl StartInnocent for Client {
    async fn innocent(self, innocent: &Innocent, nth: u64) -> Result<Duration, String> {
        let problem = |what: String| format!("innocent {} {nth}: {what}", innocent.name);
        let began = Instant::now();
        let command = self.start_command(nth.to_string(), innocent.name, (innocent.input)(nth));
        let execution = command.execution.clone();
        self.start(command).await.map_err(|error| problem(error.to_string()))?;
        let outcome = self.outcome(&execution, Some(END_TIMEOUT)).await;
        let outcome = outcome.map_err(|error| problem(error.to_string()))?;
        let outcome = outcome.ok_or_else(|| problem("has not ended".to_owned()))?;
        let output = outcome.output.as_deref().cloned().unwrap_or_default();
        if outcome.status != TerminalStatus::Success || !(innocent.is_right)(nth, &output) {
            return Err(problem(format!("{:?} with {output:.300} {:?}", outcome.status, outcome.fault)));
        }
        Ok(began.elapsed())
    }
}
