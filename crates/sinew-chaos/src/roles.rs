//! The child processes: executors and agents, until they are killed or their parent ends.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_agent::{Agent, CancellationToken, Context, Delivery, Failure};
use sinew_executor::service::{Service, ServiceOptions};
use sinew_mesh::{Connect, Mesh};
use sinew_operations::mesh_operator;

use crate::allowance::now_ms;
use crate::{Fallible, workflows};

/// Agents with delivery and support of node requests. Half of them behave like old versions.
pub(crate) const AGENTS: [(&str, Delivery, bool); 4] = [
    ("alpha", Delivery::Queue, true),
    ("beta", Delivery::Queue, false),
    ("gamma", Delivery::Direct, true),
    ("delta", Delivery::Direct, false),
];

/// Memory budget for executions: a few per shard, so that most are evicted and reloaded on demand.
pub(crate) const SMALL_ROOM: usize = 1024 * 1024;

/// Interval at which children report their number of tasks.
const TELL_TASKS: Duration = Duration::from_secs(2);

/// Metrics that children report.
const WATCHED: [&str; 5] = [
    "sinew_takeovers_total",
    "sinew_fenced_total",
    "sinew_results_late_total",
    "sinew_results_foreign_total",
    "sinew_quarantined_total",
];

/// Arguments of all children.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MeshArgs {
    /// Address of the broker
    #[arg(long)]
    pub(crate) url: String,
    /// Namespace of the mesh
    #[arg(long)]
    pub(crate) namespace: String,
    /// Folder of ledger, counts and logs
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// Password of all users, if the broker has permissions
    #[arg(long)]
    pub(crate) password: Option<String>,
}

impl MeshArgs {
    /// Returns the path of the agents' ledger.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.join("ledger.jsonl")
    }

    /// Returns the folder of the children's counts.
    pub(crate) fn counts(&self) -> PathBuf {
        self.folder.join("counts.log")
    }

    /// Returns the file with the number of live tasks of each child.
    fn task_counts(&self) -> PathBuf {
        self.folder.join("tasks.log")
    }

    /// Connects as `caller`.
    pub(crate) async fn connect(&self, caller: &str) -> Fallible<Mesh> {
        let connect = Connect {
            url: Some(self.url.clone()),
            namespace: Some(self.namespace.clone()),
            caller: Some(caller.to_owned()),
            user: self.password.is_some().then(|| caller.to_owned()),
            password: self.password.clone(),
            ..Connect::default()
        };
        Ok(connect.open().await?)
    }
}

/// Opens a file to which many processes append lines.
fn appended(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// A line of the ledger: a request to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) agent: String,
    pub(crate) execution: String,
    pub(crate) task: String,
    pub(crate) activation: String,
    pub(crate) attempt: u32,
    pub(crate) process: u32,
    /// Time in Unix milliseconds; 0 in earlier versions.
    #[serde(default)]
    pub(crate) at: u64,
}

/// Runs an executor. Without `room`, it has the product's default memory budget.
pub(crate) async fn executor(
    place: &MeshArgs,
    id: String,
    lease: Duration,
    worn: usize,
    room: Option<usize>,
) -> Fallible<()> {
    prepare(place)?;
    let usual = ServiceOptions::new(workflows::adapters);
    let mut options = ServiceOptions {
        id: id.clone(),
        lease,
        compaction_threshold_bytes: worn,
        memory_limit_bytes: room.unwrap_or(usual.memory_limit_bytes),
        ..usual
    };
    options.calls = Some(mesh_operator::built_in_workflow);
    let _service = Service::start(place.connect(&id).await?, options).await?;
    std::future::pending().await
}

/// Runs all agents.
pub(crate) async fn agents(place: &MeshArgs, work: Duration) -> Fallible<()> {
    prepare(place)?;
    let ledger = Arc::new(appended(&place.ledger())?);
    let mut serving = tokio::task::JoinSet::new();
    for (name, delivery, node_requests) in AGENTS {
        let ledger = Arc::clone(&ledger);
        let agent = Agent::dynamic(name, None, None, move |input, context| {
            handle(input, context, Arc::clone(&ledger), work)
        });
        let mesh = place.connect(name).await?;
        // Low concurrency at queues, so that tasks are queued when their executions are cancelled.
        let places = if delivery == Delivery::Queue { 8 } else { 64 };
        let agent = agent.delivery(delivery).node_requests(node_requests).concurrency(places);
        serving.spawn(agent.serve(mesh, CancellationToken::new()));
    }
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    Ok(())
}

async fn handle(input: Value, context: Context, ledger: Arc<File>, work: Duration) -> Result<Value, Failure> {
    let line = Done {
        agent: context.agent().to_owned(),
        execution: context.execution().to_string(),
        task: context.task().to_string(),
        activation: context.activation().to_owned(),
        attempt: context.attempt(),
        process: std::process::id(),
        at: now_ms(),
    };
    let line = format!("{}\n", serde_json::to_string(&line).unwrap_or_default());
    let written = tokio::task::spawn_blocking(move || {
        (&*ledger).write_all(line.as_bytes())?;
        ledger.sync_data()
    });
    written.await.map_err(Failure::temporary_of)?.map_err(Failure::temporary_of)?;
    let most = u64::try_from(work.as_millis()).unwrap_or(u64::MAX);
    let while_at_work = Duration::from_millis(rand::rng().random_range(0..=most));
    tokio::select! {
        () = context.cancel().cancelled() => return Err(Failure::new("it was given up")),
        () = tokio::time::sleep(while_at_work) => {}
    }
    workflows::answer(&input, context.attempt()).ok_or_else(|| Failure::temporary("not this time"))
}

/// Converts errors to retryable failures.
trait TemporaryOf {
    fn temporary_of(error: impl std::fmt::Display) -> Self;
}

impl TemporaryOf for Failure {
    fn temporary_of(error: impl std::fmt::Display) -> Self {
        Self::temporary(error.to_string())
    }
}

/// Prepares a child process.
pub(crate) fn prepare(place: &MeshArgs) -> Fallible<()> {
    let log = std::env::var(sinew_protocol::env::LOG).unwrap_or_else(|_| "warn".to_owned());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).with_ansi(false).init();
    metrics::set_global_recorder(Counts(Arc::new(appended(&place.counts())?)))?;
    tokio::spawn(tell_tasks(appended(&place.task_counts())?));
    // Children end with their parent, however it ends.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    Ok(())
}

/// Periodically reports the number of live tasks of this process.
async fn tell_tasks(mut file: File) {
    let mut ticks = tokio::time::interval(TELL_TASKS);
    loop {
        ticks.tick().await;
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let _ = file.write_all(format!("{} {tasks}\n", std::process::id()).as_bytes());
    }
}

/// Returns the last reported number of live tasks by process id.
pub(crate) fn read_task_counts(place: &MeshArgs) -> BTreeMap<u32, u64> {
    let text = std::fs::read_to_string(place.task_counts()).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(process, tasks)| Some((process.parse().ok()?, tasks.parse().ok()?))).collect()
}

/// Writes watched metrics to a file immediately, because the process can be killed at any time.
struct Counts(Arc<File>);

struct Line {
    name: String,
    file: Arc<File>,
}

impl CounterFn for Line {
    fn increment(&self, value: u64) {
        let _ = (&*self.file).write_all(format!("{} {value}\n", self.name).as_bytes());
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if WATCHED.contains(&key.name()) {
            Counter::from_arc(Arc::new(Line { name: key.name().to_owned(), file: Arc::clone(&self.0) }))
        } else {
            Counter::noop()
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
