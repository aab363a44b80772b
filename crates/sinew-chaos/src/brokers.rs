//! The nats-servers of a run, one or a cluster, and their faults.

use std::path::PathBuf;
use std::time::Duration;

use sinew_mesh::async_nats::{self, jetstream};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::server_group::ServerGroup;
use tokio::time::{Instant, sleep};

use crate::Fallible;
use crate::allowance::now_ms;
use crate::power_loss::{MountedDisk, WriteRefusal};

/// Time limit for a restarted server to catch up on all streams, long enough to refill an empty disk.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(90);
/// Interval of checks whether it has caught up.
const LOOK: Duration = Duration::from_millis(200);

/// One server, or several with replicas of the same streams.
#[derive(Debug)]
pub(crate) struct Brokers {
    // Dropped first: servers end before their disk is unmounted.
    group: ServerGroup,
    disk: Option<MountedDisk>,
}

/// Lost and refused changes of the servers' disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DiskChanges {
    /// Lost in power cuts, in whole or in part.
    pub(crate) forgotten: u64,
    /// Refused while the disk was full or read-only.
    pub(crate) refused: u64,
}

/// Options of brokers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BrokerOptions {
    /// Number of servers, each with a replica of each stream.
    pub(crate) servers: usize,
    /// Whether each write is synced before it is acknowledged.
    pub(crate) sync_always: bool,
    /// Sync interval otherwise; `None` for the server's default of two minutes.
    pub(crate) sync_interval: Option<Duration>,
    /// Whether the data is on a disk of this process, which can lose power and refuse writes.
    pub(crate) can_lose_power: bool,
    /// Maximum message size in bytes; `None` for the server's default of one megabyte.
    pub(crate) max_payload: Option<u32>,
}

impl BrokerOptions {
    /// Returns the options of one server.
    pub(crate) const fn one(sync_always: bool) -> Self {
        Self { servers: 1, sync_always, sync_interval: None, can_lose_power: false, max_payload: None }
    }
}

impl Brokers {
    /// Starts the servers on a new store. `rights` is configuration with permissions.
    pub(crate) async fn start(
        store: PathBuf,
        options: BrokerOptions,
        rights: Option<String>,
    ) -> Fallible<Self> {
        let disk = options.can_lose_power.then(|| MountedDisk::mount(&store)).transpose()?;
        let server = ServerOptions {
            store: Some(store),
            sync_always: options.sync_always,
            sync_interval: options.sync_interval,
            config_extra: rights.or_else(|| options.max_payload.map(|bytes| format!("max_payload: {bytes}"))),
            ..ServerOptions::default()
        };
        Ok(Self { group: ServerGroup::start(server, Some(options.servers)).await?, disk })
    }

    /// Cuts the power of all servers for `down`. Returns the time of the cut, in Unix milliseconds.
    pub(crate) async fn cut_power(&mut self, down: Duration, seed: u64) -> Fallible<u64> {
        let disk = self.disk.as_ref().ok_or("the disk of the brokers keeps everything")?;
        for server in self.group.members_mut() {
            server.kill9().await?;
        }
        disk.cut_power(seed);
        let at = now_ms();
        sleep(down).await;
        for server in self.group.members_mut() {
            server.restart().await?;
        }
        Ok(at)
    }

    /// Makes the disk refuse all changes for this time, then restarts the servers, because a server
    /// does not write to a stream again whose disk was full.
    pub(crate) async fn refuse_writes(&mut self, reason: WriteRefusal, time: Duration) -> Fallible<()> {
        let disk = self.disk.as_ref().ok_or("the disk of the brokers takes everything")?;
        disk.refuse_writes(Some(reason));
        sleep(time).await;
        disk.refuse_writes(None);
        for server in self.group.members_mut() {
            server.restart().await?;
        }
        Ok(())
    }

    /// Syncs all writes, as an operating system does periodically.
    pub(crate) fn keep_all(&self) {
        if let Some(disk) = &self.disk {
            disk.keep_all();
        }
    }

    /// Returns the lost and refused changes of the disk so far.
    pub(crate) fn disk_changes(&self) -> DiskChanges {
        let Some(disk) = &self.disk else { return DiskChanges::default() };
        DiskChanges { forgotten: disk.forgotten(), refused: disk.refused() }
    }

    pub(crate) fn members(&self) -> &[Server] {
        self.group.members()
    }

    /// Returns the addresses of all servers, separated by commas.
    pub(crate) fn url(&self) -> String {
        self.group.url()
    }

    /// Kills one server, and restarts it after `down`.
    pub(crate) async fn kill(&mut self, nth: usize, down: Duration) -> Fallible<()> {
        let server = &mut self.group.members_mut()[nth];
        server.kill9().await?;
        sleep(down).await;
        Ok(server.restart().await?)
    }

    /// Halts the leader of a stream, as soon as it has one.
    pub(crate) async fn halt_leader(&self, stream: &str, halt: Duration) -> Fallible<()> {
        let context = context(self.members()).await?;
        let until = Instant::now() + CAUGHT_UP_WITHIN;
        let leader = loop {
            match self.group.leader_of(&context, stream).await {
                Some(leader) => break &self.members()[leader],
                None if Instant::now() > until => return Err(format!("nobody leads {stream}").into()),
                None => sleep(LOOK).await,
            }
        };
        leader.pause().await?;
        sleep(halt).await;
        Ok(leader.resume()?)
    }

    /// Kills all servers but the first, and restarts them after `down`.
    pub(crate) async fn lose_quorum(&mut self, down: Duration) -> Fallible<()> {
        let dying = &mut self.group.members_mut()[1..];
        for server in &mut *dying {
            server.kill9().await?;
        }
        sleep(down).await;
        for server in dying {
            server.restart().await?;
        }
        Ok(())
    }

    /// Kills one server and empties its disk once the others are in sync. Waits until it has caught up.
    pub(crate) async fn empty_disk(&mut self, nth: usize, down: Duration) -> Fallible<()> {
        self.caught_up().await?;
        let server = &mut self.group.members_mut()[nth];
        server.empty_disk().await?;
        sleep(down).await;
        server.restart().await?;
        self.caught_up().await
    }

    /// Restarts the servers one after the other, as an upgrade does; waits for each to catch up.
    pub(crate) async fn restart_all(&mut self) -> Fallible<()> {
        for nth in 0..self.members().len() {
            self.group.members_mut()[nth].restart().await?;
            self.caught_up().await?;
        }
        Ok(())
    }

    /// Waits until all replicas of all streams are current.
    async fn caught_up(&self) -> Fallible<()> {
        let until = Instant::now() + CAUGHT_UP_WITHIN;
        let context = context(self.members()).await?;
        loop {
            let behind = behind(&context).await;
            match behind {
                Ok(streams) if streams.is_empty() => return Ok(()),
                Ok(streams) if Instant::now() > until => {
                    return Err(format!("copies are behind: {}", streams.join(", ")).into());
                }
                Err(error) if Instant::now() > until => return Err(error),
                _ => sleep(LOOK).await,
            }
        }
    }
}

/// Returns streams with a lagging replica or without a leader.
async fn behind(context: &jetstream::Context) -> Fallible<Vec<String>> {
    use futures_util::TryStreamExt as _;
    let streams: Vec<_> = context.streams().try_collect().await?;
    let is_behind = |info: &jetstream::stream::Info| match &info.cluster {
        Some(cluster) => {
            cluster.leader.is_none()
                || cluster.replicas.len() + 1 < info.config.num_replicas
                || cluster.replicas.iter().any(|copy| copy.offline || !copy.current)
        }
        None => true,
    };
    Ok(streams.into_iter().filter(is_behind).map(|info| info.config.name).collect())
}

async fn context(servers: &[Server]) -> Fallible<jetstream::Context> {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    Ok(jetstream::new(async_nats::connect(urls).await?))
}
