//! The loops of this executor's shards, started, stopped and recorded as [`ShardManager`] decides.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sinew_mesh::MeshError;
use sinew_mesh::fleet::{ExecutorHeartbeat, Fleet, Snapshot};
use sinew_mesh::position::STREAM_BEHIND;
use sinew_protocol::code;
use sinew_shard::membership::{FleetView, LastHeartbeat};
use sinew_shard::{LoopEnd, ManagerAction, ShardManager};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error, info, warn};

use super::intake::Handle;
use super::shard;
use super::shard_end::End;
use super::{ServiceOptions, WATCHED_STREAMS};

/// Maximum interval for sending and polling heartbeats; a short lease reduces it.
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of remembered server processes.
const MAX_SERVERS: usize = 64;
/// Interval of checks for loops that have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The shards of this executor.
pub(super) struct ShardKeeper {
    shared: Handle,
    id: String,
    heartbeat_interval: Duration,
    fleet: Fleet,
    manager: ShardManager,
    loops: BTreeMap<u32, RunningShard>,
    began: Instant,
    heartbeats: u64,
    /// When each watched stream was created: milliseconds since 1970 UTC, 0 while a stream is
    /// missing.
    ages: BTreeMap<&'static str, u64>,
    /// Known server processes, newest last.
    servers: VecDeque<String>,
    owned: Arc<Mutex<Vec<u32>>>,
}

/// The loop of a shard.
struct RunningShard {
    stop: CancellationToken,
    work: AbortOnDropHandle<End>,
}

impl ShardKeeper {
    /// Returns the keeper of an executor without shards.
    pub(super) fn new(
        shared: Handle,
        options: &ServiceOptions,
        ages: BTreeMap<&'static str, u64>,
        owned: Arc<Mutex<Vec<u32>>>,
    ) -> Self {
        Self {
            id: options.id.clone(),
            // Poll at least five times per lease; otherwise a missed poll looks like a missed heartbeat.
            heartbeat_interval: MAX_HEARTBEAT_INTERVAL.min(options.lease / 5),
            fleet: shared.mesh.fleet(),
            manager: ShardManager::new(shared.owner.as_str(), shared.shards, options.lease),
            loops: BTreeMap::new(),
            began: Instant::now(),
            heartbeats: 0,
            ages,
            servers: VecDeque::from([shared.mesh.admin().server_process()]),
            owned,
            shared,
        }
    }

    /// Keeps the shards until `stop`, then hands them over.
    pub(super) async fn work(mut self, stop: CancellationToken) {
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut heartbeat = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = poll.tick() => {}
            }
            self.join_finished().await;
            if Instant::now() >= heartbeat {
                heartbeat = Instant::now() + self.heartbeat_interval;
                if let Err(error) = self.rebalance().await {
                    debug!(%error, "cannot read the fleet");
                }
                if let Some(end) = self.manager.next_poll() {
                    heartbeat = heartbeat.min(self.began + end);
                }
                if let Err(error) = self.watch_streams().await {
                    debug!(%error, "cannot read the state of the streams");
                }
            }
            self.publish();
        }
        let actions = self.manager.leave();
        self.perform(actions).await;
        while !self.loops.is_empty() {
            self.join_finished().await;
            poll.tick().await;
        }
        if let Err(error) = self.fleet.leave(&self.id).await {
            debug!(%error, "cannot remove this executor from the fleet");
        }
        self.publish();
    }

    /// Sends a heartbeat, and takes or releases shards so that all executors have the same number.
    async fn rebalance(&mut self) -> Result<(), MeshError> {
        self.heartbeats += 1;
        let beat = ExecutorHeartbeat {
            shards: self.manager.shards().collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            place: format!("process {}", std::process::id()),
            nth: self.heartbeats,
        };
        self.fleet.beat(&self.id, &beat).await?;
        let view = view_of(self.fleet.look().await?);
        for (shard, (owner, _)) in &view.owners {
            if owner.as_deref().is_some_and(|owner| owner != self.shared.owner.as_str())
                && self.loops.contains_key(shard)
            {
                warn!(shard, owner, "the shard was assigned to another executor");
            }
        }
        let before: Vec<u32> = self.loops.keys().copied().collect();
        let actions = self.manager.handle_fleet(self.began.elapsed(), &view);
        self.perform(actions).await;
        self.log_takeovers(&before, &view);
        Ok(())
    }

    /// Logs the shards that this executor has taken over, by their last owner.
    fn log_takeovers(&self, before: &[u32], view: &FleetView) {
        let mut taken = BTreeMap::<&str, Vec<u32>>::new();
        for shard in self.loops.keys().filter(|shard| !before.contains(shard)) {
            let owner = view.owners.get(shard).and_then(|(owner, _)| owner.as_deref());
            if let Some(owner) = owner.filter(|owner| *owner != self.shared.owner.as_str()) {
                taken.entry(owner).or_default().push(*shard);
            }
        }
        for (from, shards) in taken {
            info!(from, ?shards, "took over the shards of an executor that stopped");
        }
    }

    /// Performs these actions, and those that follow from them.
    async fn perform(&mut self, mut actions: Vec<ManagerAction>) {
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                actions.extend(self.perform_one(action).await);
            }
        }
    }

    async fn perform_one(&mut self, action: ManagerAction) -> Vec<ManagerAction> {
        let owner = self.shared.owner.as_str();
        match action {
            ManagerAction::Open { shard, pause, died } => {
                let stop = CancellationToken::new();
                let work = shard::run(Arc::clone(&self.shared), shard, pause, died, stop.clone());
                let work = AbortOnDropHandle::new(tokio::spawn(work));
                self.loops.insert(shard, RunningShard { stop, work });
            }
            ManagerAction::Stop(shard) => {
                if let Some(running) = self.loops.get(&shard) {
                    running.stop.cancel();
                }
            }
            ManagerAction::Claim { shard, revision } => {
                let won = self.fleet.claim(shard, owner, revision).await.unwrap_or_else(|error| {
                    debug!(shard, %error, "cannot claim the shard");
                    false
                });
                return self.manager.handle_claimed(shard, won);
            }
            ManagerAction::Release(shard) => {
                if let Err(error) = self.fleet.release(shard, owner).await {
                    debug!(shard, %error, "cannot release the shard; its lease will expire");
                }
            }
            ManagerAction::ReadOwner(shard) => {
                let owner = self.fleet.owner(shard).await.ok().flatten();
                return self.manager.handle_owner(shard, owner.as_deref());
            }
        }
        Vec::new()
    }

    /// Reopens all shards if a stream was deleted and recreated: sequences restart at one, and
    /// stored tasks must be sent again. Likewise after a server restart, which may lose unsynced
    /// data: acknowledged tasks and commands are sent again, under the same ids.
    async fn watch_streams(&mut self) -> Result<(), MeshError> {
        // Read all before storing one: otherwise an error at the second would hide the result of
        // the first.
        let mut ages = Vec::new();
        for kind in WATCHED_STREAMS {
            ages.push((kind, self.shared.mesh.commands().stream_age(kind).await?));
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
                error!(stream = kind, code = STREAM_BEHIND, "the stream was recreated; reopening shards");
                anew = true;
            }
        }
        let server = self.shared.mesh.admin().server_process();
        if !self.servers.contains(&server) {
            debug!("the NATS server restarted; reopening shards");
            self.servers.push_back(server);
            if self.servers.len() > MAX_SERVERS {
                self.servers.pop_front();
            }
            anew = true;
        }
        if anew {
            self.shared.queues.clear();
            let actions = self.manager.handle_new_stream();
            self.perform(actions).await;
        }
        Ok(())
    }

    /// Handles shards whose loop has ended.
    async fn join_finished(&mut self) {
        let is_finished = |(_, running): &(&u32, &RunningShard)| running.work.is_finished();
        let ended: Vec<u32> = self.loops.iter().filter(is_finished).map(|(shard, _)| *shard).collect();
        for shard in ended {
            let Some(running) = self.loops.remove(&shard) else { continue };
            let end = match running.work.await {
                Ok(End::Drained) => LoopEnd::Drained,
                Ok(End::Fenced) => {
                    metrics::counter!("sinew_fenced_total").increment(1);
                    warn!(shard, "another executor wrote to the shard");
                    LoopEnd::Fenced
                }
                Ok(End::Lost(error)) => {
                    warn!(shard, %error, code = error.code(), "lost the shard");
                    LoopEnd::Lost
                }
                Err(error) => {
                    warn!(shard, %error, "the shard's loop ended unexpectedly");
                    LoopEnd::Died
                }
            };
            let actions = self.manager.handle_end(shard, end);
            self.perform(actions).await;
        }
    }

    fn publish(&self) {
        metrics::gauge!("sinew_shards_owned").set(self.loops.len() as f64);
        if let Ok(mut owned) = self.owned.lock() {
            *owned = self.loops.keys().copied().collect();
        }
    }
}

/// Converts the content of the bucket for the membership rules.
fn view_of(snapshot: Snapshot) -> FleetView {
    let heartbeat = |member: sinew_mesh::fleet::Member| LastHeartbeat {
        revision: member.revision,
        silent: member.silent,
    };
    let members = snapshot.members.into_iter().map(|(id, member)| (id, heartbeat(member))).collect();
    FleetView { members, owners: snapshot.owners }
}
