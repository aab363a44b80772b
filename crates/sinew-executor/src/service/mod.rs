//! The executor service: shards of a mesh, owned, shared with other executors, and handed over.
//!
//! Any number of executors serve one mesh. Each beats in the fleet's bucket and takes its share of the shards; a shard
//! whose owner falls silent is taken over. Ownership is only for speed: what keeps two owners from doing harm is the
//! position in the journal, which one of them loses.

mod agent_line;
mod announce;
mod book;
mod caution;
mod command;
mod direct;
mod door;
mod effects;
mod gate;
mod identity;
mod intake;
mod messages;
mod node_calls;
mod observe;
mod open;
mod outbox;
mod output_check;
mod programs;
mod questions;
mod reader;
mod shard;
mod takeover;
mod view;

use sinew_protocol::code;
use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dashmap::DashMap;
use futures_util::future::join_all;
use sinew_mesh::artifact::ArtifactStore;
use sinew_mesh::card::Cards;
use sinew_mesh::fleet::{ExecutorHeartbeat, ExecutorWatch, Fleet};
use sinew_mesh::live::Control;
use sinew_mesh::position::STREAM_BEHIND;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::message::Vocabulary;
use sinew_protocol::{ExecutionId, ResultKey, TaskId, Token};
use sinew_source::SchemaCache;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error, info, warn};

pub use door::{TaskEvent, count_task_events, task_events};
pub use programs::{Adapters, Programs, store_plan};
pub(crate) use reader::Reader;
pub use view::{ended, words};

use caution::clear_own_note;
use gate::Gate;
use shard::{End, NOTE_TIMEOUT};

/// A command's body names something that cannot be used.
const BAD_COMMAND: &str = code::COMMAND_UNUSABLE.as_str();
/// A sub-workflow did not succeed and said no more about it.
const SUB_WORKFLOW_FAILED: &str = code::SUB_WORKFLOW_FAILED.as_str();
/// How often an executor says that it is there, and looks who else is, unless its lease asks for more.
const BEAT: Duration = Duration::from_secs(1);
/// How often an executor looks after its shards.
const LOOK: Duration = Duration::from_millis(100);
/// Between two tries to open a shard that could not be opened.
const REOPEN: Duration = Duration::from_millis(500);
/// How long a drain may take, unless options say otherwise; less than supervisors wait before they kill.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Streams whose messages an executor reads or relies on by their places.
const WATCHED_STREAMS: [&str; 3] = ["COMMANDS", "RESULTS", "TASKS"];

/// Settings of an executor.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Its name in the fleet; must be its own.
    pub id: String,
    /// Gives the adapter of a dialect.
    pub adapters: Adapters,
    /// Silence after which an executor is taken for dead. Only speed depends on it.
    pub lease: Duration,
    /// The longest time [`Service::drain`] takes, whether the broker answers or not.
    pub drain_timeout: Duration,
    /// The words of the messages it sends.
    pub vocabulary: Vocabulary,
    /// Bytes of a shard's journal below which nobody cares what in it is superfluous.
    pub worn: usize,
    /// Bytes of memory for open executions as they are worked on, about, if it owns every shard. The others are kept as
    /// they stand in the journal, and folded again when something comes in for them.
    pub room: usize,
}

impl ServiceOptions {
    /// The usual settings, with a name of its own.
    pub fn new(adapters: Adapters) -> Self {
        Self {
            id: uuid::Uuid::now_v7().simple().to_string(),
            adapters,
            lease: Duration::from_secs(5),
            drain_timeout: DRAIN_TIMEOUT,
            vocabulary: Vocabulary::default(),
            worn: 16 * 1024 * 1024,
            room: 512 * 1024 * 1024,
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
    worn: usize,
    /// Bytes that folded executions of one shard may take.
    room: usize,
    /// Whether tasks may go to node endpoints.
    may_send_nodes: bool,
    /// Agents whose queue is known to exist.
    queues: Mutex<HashSet<String>>,
    /// The ways to agents that are called directly.
    gates: DashMap<String, Arc<Gate>>,
    /// Tells this process from the one that had its name before.
    process: String,
    /// Held by the shard that has a suspect in hand.
    suspect_work: Arc<tokio::sync::Mutex<()>>,
}

impl Shared {
    /// Makes sure that an agent's queue exists, once: agents may not make their own.
    async fn ensure_queue(&self, agent: &str) {
        if self.queues.lock().is_ok_and(|queues| queues.contains(agent)) {
            return;
        }
        match self.mesh.make_agent_queue(&Token::of(agent)).await {
            Ok(()) => {
                if let Ok(mut queues) = self.queues.lock() {
                    queues.insert(agent.to_owned());
                }
            }
            // The task is stored all the same; the next one tries again.
            Err(error) => debug!(agent, %error, "the agent's queue could not be made"),
        }
    }

    /// The way to an agent that is called directly.
    fn gate(&self, agent: &str) -> Arc<Gate> {
        if let Some(gate) = self.gates.get(agent) {
            return Arc::clone(&gate);
        }
        Arc::clone(&self.gates.entry(agent.to_owned()).or_insert_with(|| Arc::new(Gate::new())))
    }

    /// Tells an agent that a task is given up. Nobody may be listening, and the task may never have been taken.
    async fn cancel_task(&self, agent: &str, execution: &ExecutionId, task: &TaskId) {
        if let Err(error) =
            self.mesh.control(agent, task, &Control::Cancel { execution: execution.clone() }).await
        {
            debug!(agent, %task, %error, "the agent could not be told");
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
    /// The workflows' doors and cards.
    doors: JoinHandle<()>,
    owned: Arc<Mutex<Vec<u32>>>,
    id: String,
    drain_timeout: Duration,
}

impl Service {
    /// Joins the fleet of a provisioned mesh.
    pub async fn start(mesh: Mesh, options: ServiceOptions) -> Result<Self, MeshError> {
        mesh.verify().await?;
        let layout = mesh.layout().await?;
        // Before any shard is opened: a stream that is made anew from now on is noticed.
        let mut ages = BTreeMap::new();
        for kind in WATCHED_STREAMS {
            ages.extend(mesh.stream_age(kind).await?.map(|age| (kind, age.created)));
        }
        let key = mesh.result_key().await?;
        let may_send_nodes = mesh.may_send_nodes().await.unwrap_or_else(|error| {
            debug!(%error, "the rights of the connection cannot be read");
            false
        });
        if !may_send_nodes {
            warn!(
                "tasks are sent through A2A alone: run `sinew mesh permissions` again to let executors publish to node endpoints"
            );
        }
        let (cards, workflows) = (mesh.cards(), mesh.workflows());
        workflows.ready().await;
        let shared = Arc::new(Shared {
            owner: Token::of(&options.id),
            shards: layout.shards,
            key,
            programs: Programs::new(mesh.clone(), options.adapters, workflows),
            cards,
            artifacts: mesh.artifacts(),
            schemas: SchemaCache::default(),
            vocabulary: options.vocabulary,
            worn: options.worn,
            room: options.room / layout.shards.get() as usize,
            may_send_nodes,
            queues: Mutex::default(),
            gates: DashMap::new(),
            process: uuid::Uuid::now_v7().simple().to_string(),
            suspect_work: Arc::default(),
            mesh,
        });
        let stop = CancellationToken::new();
        let owned = Arc::new(Mutex::new(Vec::new()));
        info!(executor = %options.id, namespace = shared.mesh.namespace(), shards = layout.shards, "executor started");
        let (id, drain_timeout) = (options.id.clone(), options.drain_timeout);
        let doors = announce::serve(Arc::clone(&shared), Arc::clone(&owned), stop.clone());
        let doors = tokio::spawn(doors);
        let keeper = Keeper {
            fleet: shared.mesh.fleet(),
            watch: ExecutorWatch::new(options.lease),
            shared: Arc::clone(&shared),
            options,
            shards: BTreeMap::new(),
            beats: 0,
            ages,
            owned: Arc::clone(&owned),
        };
        let work = tokio::spawn(keeper.work(stop.clone()));
        Ok(Self { shared, stop, work, doors, owned, id, drain_timeout })
    }

    /// Its name in the fleet.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The shards it owns now.
    pub fn shards(&self) -> Vec<u32> {
        self.owned.lock().map(|owned| owned.clone()).unwrap_or_default()
    }

    /// Hands its shards over and leaves. Gives up after [`ServiceOptions::drain_timeout`], for instance while the broker
    /// is away: other executors take the shards once the lease is over, and nothing is lost.
    pub async fn drain(self) {
        self.stop.cancel();
        let (doors, work) = (AbortOnDropHandle::new(self.doors), AbortOnDropHandle::new(self.work));
        let ended = async {
            for work in [doors, work] {
                if let Err(error) = work.await {
                    warn!(%error, "the executor did not end in peace");
                }
            }
        };
        let reserve = NOTE_TIMEOUT.min(self.drain_timeout / 4);
        if tokio::time::timeout(self.drain_timeout.saturating_sub(reserve), ended).await.is_err() {
            warn!("the shards did not end in time; they are left to other executors");
            let shards = self.owned.lock().map(|owned| owned.clone()).unwrap_or_default();
            let clear = shards.into_iter().map(|shard| clear_own_note(&self.shared, shard));
            let _ = tokio::time::timeout(reserve, join_all(clear)).await;
        }
    }
}

/// Keeps an executor's share of the shards.
struct Keeper {
    shared: Arc<Shared>,
    options: ServiceOptions,
    fleet: Fleet,
    watch: ExecutorWatch,
    shards: BTreeMap<u32, Owned>,
    beats: u64,
    /// When each watched stream was made: milliseconds since 1970 UTC, 0 while a stream is missing.
    ages: BTreeMap<&'static str, u64>,
    owned: Arc<Mutex<Vec<u32>>>,
}

/// A shard in this executor's hands.
struct Owned {
    stop: CancellationToken,
    /// The record named another owner, so it is not this one's to release.
    robbed: bool,
    /// It is stopped only to be opened again, with positions in streams that were made anew.
    restarts: bool,
    work: AbortOnDropHandle<End>,
}

impl Keeper {
    async fn work(mut self, stop: CancellationToken) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut beat = tokio::time::Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = look.tick() => {}
            }
            self.reap().await;
            if tokio::time::Instant::now() >= beat {
                // Poll at least five times per lease; otherwise a missed poll looks like a missed heartbeat.
                beat = tokio::time::Instant::now() + BEAT.min(self.options.lease / 5);
                if let Err(error) = self.share().await {
                    debug!(%error, "the fleet cannot be seen");
                }
                if let Err(error) = self.watch_streams().await {
                    debug!(%error, "the streams cannot be seen");
                }
            }
            self.publish();
        }
        for owned in self.shards.values_mut() {
            owned.restarts = false;
            owned.stop.cancel();
        }
        while !self.shards.is_empty() {
            self.reap().await;
            look.tick().await;
        }
        if let Err(error) = self.fleet.leave(&self.options.id).await {
            debug!(%error, "the fleet could not be left");
        }
        self.publish();
    }

    /// Says that it is there, and takes or gives shards so that all have the same.
    async fn share(&mut self) -> Result<(), MeshError> {
        self.beats += 1;
        let beat = ExecutorHeartbeat {
            shards: self.shards.keys().copied().collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            place: format!("process {}", std::process::id()),
            nth: self.beats,
        };
        self.fleet.beat(&self.options.id, &beat).await?;
        let seen = self.fleet.look().await?;
        let living = self.watch.living(&seen);
        let me = self.shared.owner.as_str();
        let share = sinew_mesh::fleet::share(&seen.owners, &living, me, self.shared.shards);
        for shard in share.release {
            if let Some(owned) = self.shards.get(&shard) {
                owned.stop.cancel();
            }
        }
        // An executor that was taken for dead continues to write until it loses a race. A busy one wins all races and keeps the
        // new owner out, so the record decides which of the two stops.
        for (shard, owned) in &mut self.shards {
            let owner = seen.owners.get(shard).and_then(|(owner, _)| owner.as_deref());
            if owner.is_some_and(|owner| owner != me) {
                warn!(shard, owner, "the shard was given to another executor");
                owned.robbed = true;
                owned.stop.cancel();
            }
        }
        // An executor that was restarted under its own name finds shards that are recorded as its.
        for shard in share.keep {
            if !self.shards.contains_key(&shard) {
                self.open(shard, Duration::ZERO, false);
            }
        }
        for (shard, revision) in share.claim {
            // One may be at work without being recorded, after the one who was has given up.
            let here = self.shards.get(&shard);
            if here.is_some_and(|owned| owned.stop.is_cancelled()) {
                continue;
            }
            let new = here.is_none();
            if self.fleet.claim(shard, self.shared.owner.as_str(), revision).await? && new {
                self.open(shard, Duration::ZERO, false);
            }
        }
        Ok(())
    }

    /// Restarts all shards if somebody deleted a stream and made it anew: sequences begin at one again, and tasks that
    /// were stored have to be sent again.
    async fn watch_streams(&mut self) -> Result<(), MeshError> {
        // All are looked at before one is stored: otherwise an error at the second would hide what the first has shown.
        let mut ages = Vec::new();
        for kind in WATCHED_STREAMS {
            ages.push((kind, self.shared.mesh.stream_age(kind).await?));
        }
        let mut anew = false;
        for (kind, age) in ages {
            let Some(age) = age else {
                if self.ages.insert(kind, 0) != Some(0) {
                    error!(
                        stream = kind,
                        code = code::MESH_SET_UP_WRONG.as_str(),
                        "a stream of the mesh is missing"
                    );
                }
                continue;
            };
            let before = self.ages.insert(kind, age.created);
            if before.is_some_and(|before| before != age.created) {
                error!(
                    stream = kind,
                    code = STREAM_BEHIND,
                    "the stream was made anew; shards are opened again"
                );
                anew = true;
            }
        }
        if anew {
            if let Ok(mut queues) = self.shared.queues.lock() {
                queues.clear();
            }
            for owned in self.shards.values_mut().filter(|owned| !owned.stop.is_cancelled()) {
                owned.restarts = true;
                owned.stop.cancel();
            }
        }
        Ok(())
    }

    /// Opens a shard after a while. `died` says that the loop before ended in a panic.
    fn open(&mut self, shard: u32, after: Duration, died: bool) {
        let stop = CancellationToken::new();
        let work = shard::run(Arc::clone(&self.shared), shard, after, died, stop.clone());
        let work = AbortOnDropHandle::new(tokio::spawn(work));
        self.shards.insert(shard, Owned { stop, robbed: false, restarts: false, work });
    }

    /// Looks after shards whose loop has ended.
    async fn reap(&mut self) {
        let ended: Vec<u32> = self
            .shards
            .iter()
            .filter(|(_, owned)| owned.work.is_finished())
            .map(|(shard, _)| *shard)
            .collect();
        for shard in ended {
            let Some(owned) = self.shards.remove(&shard) else { continue };
            let leaving = owned.stop.is_cancelled() && !owned.restarts;
            if owned.robbed {
                // The record is another's, or by now this one's again: then the shard is opened anew.
                continue;
            }
            match owned.work.await {
                Ok(End::Drained) if !leaving => self.open(shard, Duration::ZERO, false),
                Ok(End::Drained) => self.release(shard).await,
                Ok(End::Fenced) => {
                    metrics::counter!("sinew_fenced_total").increment(1);
                    warn!(shard, "another executor has written to the shard");
                    if self.still_mine(shard).await {
                        self.reopen(shard, leaving, false).await;
                    }
                }
                Ok(End::Lost(error)) => {
                    warn!(shard, %error, code = error.code(), "the shard was lost");
                    self.reopen(shard, leaving, false).await;
                }
                Err(error) => {
                    warn!(shard, %error, "the shard's loop died");
                    self.reopen(shard, leaving, true).await;
                }
            }
        }
    }

    async fn reopen(&mut self, shard: u32, leaving: bool, died: bool) {
        if leaving {
            self.release(shard).await;
        } else {
            self.open(shard, REOPEN, died);
        }
    }

    async fn release(&self, shard: u32) {
        if let Err(error) = self.fleet.release(shard, self.shared.owner.as_str()).await {
            debug!(shard, %error, "the shard could not be released; its lease will end");
        }
    }

    async fn still_mine(&self, shard: u32) -> bool {
        matches!(self.fleet.owner(shard).await, Ok(Some(owner)) if owner == self.shared.owner.as_str())
    }

    fn publish(&self) {
        metrics::gauge!("sinew_shards_owned").set(self.shards.len() as f64);
        if let Ok(mut owned) = self.owned.lock() {
            *owned = self.shards.keys().copied().collect();
        }
    }
}
