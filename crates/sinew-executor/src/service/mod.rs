//! The executor service: owns shards of a mesh, shares them with other executors and hands them
//! over.
//!
//! Any number of executors serve one mesh. Each sends heartbeats to the fleet's bucket and takes
//! its share of the shards; a shard whose owner misses its heartbeats is taken over. Ownership only
//! improves speed: the position in the journal protects against two owners, because one of them is
//! fenced.

mod agent_queues;
mod caller_check;
mod concurrency_limit;
mod direct;
mod dispatch;
mod effects;
mod intake;
mod kept_starts;
mod lost_results;
mod messages;
mod node_calls;
mod outbox;
mod output_check;
mod periodic_checks;
mod questions;
mod read_permits;
mod shard;
mod shard_end;
mod shard_keeper;
mod start_server;
mod store_publisher;
mod takeover_notes;
mod task_renewal;
mod timer_guard;
mod withdrawal;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dashmap::DashMap;
use futures_util::future::join_all;
use sinew_mesh::artifact::ArtifactStore;
use sinew_mesh::card::Cards;
use sinew_mesh::{Mesh, MeshError, is_granted};
use sinew_protocol::message::Vocabulary;
use sinew_protocol::{ResultKey, Token};
use sinew_shard::{DueTask, ShardConfig};
use sinew_source::SchemaCache;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

pub use crate::endpoint::{TaskEvent, count_task_events, task_events};
pub use crate::programs::{Adapters, CallPrograms, Programs, store_plan};
pub use sinew_shard::summary::{ended, words};

use crate::endpoint::{self, EndpointContext};
use crate::measures::execution_facts;
use agent_queues::{KnownQueues, QueueViews};
use concurrency_limit::ConcurrencyLimit;
use read_permits::ReadPermits;
use shard::NOTE_TIMEOUT;
use shard_keeper::ShardKeeper;
use takeover_notes::clear_own_note;

/// Default drain timeout; shorter than the time that supervisors wait before they kill.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Streams whose messages an executor reads or identifies by their positions.
const WATCHED_STREAMS: [&str; 3] = ["COMMANDS", "RESULTS", "TASKS"];

/// Settings of an executor.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Unique name in the fleet.
    pub id: String,
    /// Returns the adapter of a dialect.
    pub adapters: Adapters,
    /// Returns the workflow that calls an agent once, for agents that other agents call; without it
    /// they are called directly.
    pub calls: Option<CallPrograms>,
    /// Time without heartbeats after which an executor is considered dead. Only speed depends on
    /// it.
    pub lease: Duration,
    /// Time between two checks whether the caller of an execution still needs it; doubled after
    /// each check of an execution.
    pub caller_check_interval: Duration,
    /// Age after which a task without a result is stored again. `None`: the retention of tasks in
    /// the mesh.
    pub max_task_age: Option<Duration>,
    /// Limit for the duration of [`Service::drain`], even if the broker does not respond.
    pub drain_timeout: Duration,
    /// Vocabulary of the messages that it sends; `None` for that of the mesh.
    pub vocabulary: Option<Vocabulary>,
    /// Whether the tasks of workflows carry the result object of their dialect, which contains the
    /// outputs of all nodes.
    pub native_results: bool,
    /// Journals of shards with fewer bytes are never compacted.
    pub compaction_threshold_bytes: usize,
    /// Approximate memory in bytes for active executions if it owns every shard. Idle executions
    /// are kept as stored in the journal, and folded again on demand.
    pub memory_limit_bytes: usize,
}

impl ServiceOptions {
    /// Returns the default settings, with a unique name.
    pub fn new(adapters: Adapters) -> Self {
        Self {
            id: uuid::Uuid::now_v7().simple().to_string(),
            adapters,
            calls: None,
            lease: Duration::from_secs(4),
            caller_check_interval: Duration::from_secs(30),
            max_task_age: None,
            drain_timeout: DRAIN_TIMEOUT,
            vocabulary: None,
            native_results: false,
            compaction_threshold_bytes: 16 * 1024 * 1024,
            memory_limit_bytes: 384 * 1024 * 1024,
        }
    }
}

impl std::fmt::Debug for ServiceOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceOptions")
            .field("id", &self.id)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// State that all shards of an executor share.
struct Shared {
    mesh: Mesh,
    owner: Token,
    shards: NonZeroU32,
    key: ResultKey,
    programs: Programs,
    cards: Cards,
    artifacts: ArtifactStore,
    schemas: SchemaCache,
    vocabulary: Vocabulary,
    native_results: bool,
    compaction_threshold_bytes: usize,
    /// Bytes that folded executions of one shard may take.
    memory_limit_bytes: usize,
    caller_check_interval: Duration,
    max_task_age: Duration,
    /// Whether tasks can be sent to node endpoints.
    may_send_nodes: bool,
    /// Whether start requests can be received.
    may_serve_starts: bool,
    queues: KnownQueues,
    queue_views: QueueViews,
    /// Concurrency limits of agents that are called directly.
    limits: DashMap<String, Arc<ConcurrencyLimit>>,
    /// Distinguishes this process from an earlier one with the same name.
    process: String,
    /// Memory permits for stored values.
    reads: ReadPermits,
    /// Held by the shard that processes a suspect.
    suspect_work: Arc<tokio::sync::Mutex<()>>,
}

impl Shared {
    /// Returns the concurrency limit of an agent that is called directly.
    fn limit(&self, agent: &str) -> Arc<ConcurrencyLimit> {
        if let Some(limit) = self.limits.get(agent) {
            return Arc::clone(&limit);
        }
        Arc::clone(&self.limits.entry(agent.to_owned()).or_insert_with(|| Arc::new(ConcurrencyLimit::new())))
    }

    /// Returns whether a task is in its agent's queue and was not delivered to a process. False if
    /// unknown.
    async fn is_queued(&self, task: &DueTask) -> bool {
        let agent = Token::of(&task.agent);
        let queued = async {
            let place = self.mesh.tasks().task_place(&agent, &task.execution, &task.task).await?;
            let Some(place) = place else { return Ok::<_, MeshError>(false) };
            Ok(!self.queue_views.is_given_out(&self.mesh, &agent, place).await?)
        };
        queued.await.unwrap_or_else(|error| {
            debug!(task = %task.task, %error, "cannot determine whether a process accepted the task");
            false
        })
    }

    /// Returns the parts that the endpoints of workflows need.
    fn endpoint_context(&self) -> Arc<EndpointContext> {
        Arc::new(EndpointContext {
            mesh: self.mesh.clone(),
            shards: self.shards,
            key: self.key.clone(),
            programs: self.programs.clone(),
            cards: self.cards.clone(),
            artifacts: self.artifacts.clone(),
            vocabulary: self.vocabulary,
            native_results: self.native_results,
        })
    }

    /// Returns the constant properties of a shard that this executor owns.
    fn shard_config(&self, shard: u32) -> ShardConfig {
        ShardConfig {
            shard,
            shards: self.shards,
            namespace: self.mesh.namespace().to_owned(),
            owner: self.owner.clone(),
            key: self.key.clone(),
            compaction_threshold_bytes: self.compaction_threshold_bytes,
            memory_limit_bytes: self.memory_limit_bytes,
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// A running executor.
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    stop: CancellationToken,
    work: JoinHandle<()>,
    /// Endpoints and cards of workflows.
    endpoints: JoinHandle<()>,
    owned: Arc<Mutex<Vec<u32>>>,
    id: String,
    drain_timeout: Duration,
}

impl Service {
    /// Joins the fleet of a provisioned mesh.
    pub async fn start(mesh: Mesh, options: ServiceOptions) -> Result<Self, MeshError> {
        execution_facts::start_counters();
        mesh.admin().verify().await?;
        let layout = mesh.admin().layout().await?;
        // Before any shard is opened, so that a stream that is recreated from now on is noticed.
        let mut ages = BTreeMap::new();
        for kind in WATCHED_STREAMS {
            ages.extend(mesh.commands().stream_age(kind).await?.map(|age| (kind, age.created)));
        }
        let key = mesh.admin().result_key().await?;
        mesh.share_object_secret(key.object_secret());
        let may_send_nodes = is_granted(mesh.services().may_send_nodes().await)?;
        if !may_send_nodes {
            warn!(
                "tasks are sent through A2A only; run `sinew mesh permissions` again to let executors publish to node endpoints"
            );
        }
        let may_serve_starts = is_granted(mesh.services().may_serve_starts().await)?;
        if !may_serve_starts {
            warn!(
                "starts are read from the command stream only; run `sinew mesh permissions` again to let executors receive requests"
            );
        }
        let (cards, workflows) = (mesh.cards().follow(), mesh.workflows().follow());
        workflows.ready().await;
        let shared = Arc::new(Shared {
            owner: Token::of(&options.id),
            shards: layout.shards,
            key,
            programs: Programs::new(mesh.clone(), options.adapters, workflows).with_calls(options.calls),
            cards,
            artifacts: mesh.artifacts(),
            schemas: SchemaCache::default(),
            vocabulary: options.vocabulary.unwrap_or(layout.vocabulary),
            native_results: options.native_results,
            compaction_threshold_bytes: options.compaction_threshold_bytes,
            memory_limit_bytes: options.memory_limit_bytes / layout.shards.get() as usize,
            caller_check_interval: options.caller_check_interval,
            max_task_age: options.max_task_age.unwrap_or(layout.retention),
            may_send_nodes,
            may_serve_starts,
            queues: KnownQueues::default(),
            queue_views: QueueViews::default(),
            limits: DashMap::new(),
            process: uuid::Uuid::now_v7().simple().to_string(),
            reads: ReadPermits::default(),
            suspect_work: Arc::default(),
            mesh,
        });
        let stop = CancellationToken::new();
        let owned = Arc::new(Mutex::new(Vec::new()));
        info!(executor = %options.id, namespace = shared.mesh.namespace(), shards = layout.shards, "executor started");
        let (id, drain_timeout) = (options.id.clone(), options.drain_timeout);
        let endpoints = endpoint::serve(shared.endpoint_context(), Arc::clone(&owned), stop.clone());
        let endpoints = tokio::spawn(endpoints);
        let keeper = ShardKeeper::new(Arc::clone(&shared), &options, ages, Arc::clone(&owned));
        let work = tokio::spawn(keeper.work(stop.clone()));
        Ok(Self { shared, stop, work, endpoints, owned, id, drain_timeout })
    }

    /// Returns its name in the fleet.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the shards that it currently owns.
    pub fn shards(&self) -> Vec<u32> {
        self.owned.lock().map(|owned| owned.clone()).unwrap_or_default()
    }

    /// Hands its shards over and leaves. Aborts after [`ServiceOptions::drain_timeout`], for
    /// instance while the broker is unreachable: other executors take the shards over when the
    /// lease expires, and no data is lost.
    pub async fn drain(self) {
        self.stop.cancel();
        let (endpoints, work) = (AbortOnDropHandle::new(self.endpoints), AbortOnDropHandle::new(self.work));
        let ended = async {
            for work in [endpoints, work] {
                if let Err(error) = work.await {
                    warn!(%error, "the executor did not shut down gracefully");
                }
            }
        };
        let reserve = NOTE_TIMEOUT.min(self.drain_timeout / 4);
        if tokio::time::timeout(self.drain_timeout.saturating_sub(reserve), ended).await.is_err() {
            warn!("the shards did not close in time; other executors take them over");
            let shards = self.owned.lock().map(|owned| owned.clone()).unwrap_or_default();
            let clear = shards.into_iter().map(|shard| clear_own_note(&self.shared, shard));
            let _ = tokio::time::timeout(reserve, join_all(clear)).await;
        }
    }
}
