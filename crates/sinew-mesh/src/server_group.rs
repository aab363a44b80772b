//! nats-servers as children of this process: one, or a cluster with replicated streams, for `sinew
//! dev --servers 3` and for tests of cluster guarantees.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::jetstream;
use futures_util::future::try_join_all;
use rand::Rng as _;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::error::MeshError;
use crate::server::{ClusterMember, PORTS, SERVER_USER, STREAMS, Server, ServerOptions};

/// Timeout of the leader election; elections take seconds, longer on a busy machine.
const AGREED_WITHIN: Duration = Duration::from_mins(1);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);
/// Timeout of one request.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of ports to try.
const PORT_TRIES: usize = 100;
/// Maximum number of members.
const MOST_MEMBERS: usize = 64;
/// Name of the cluster.
const CLUSTER: &str = "sinew";

/// One nats-server, or a local cluster with replicated streams; killed on drop.
#[derive(Debug)]
pub struct ServerGroup {
    members: Vec<Server>,
    store: PathBuf,
    _temporary: Option<TempDir>,
}

impl ServerGroup {
    /// Starts this number of servers and waits until they accept stream requests; by default, the
    /// number that the store was created for. A single server keeps its data in the store itself,
    /// several keep theirs in subfolders; the first listens on `port`. `member` is set here. A
    /// store that was created for another number is rejected.
    pub async fn start(options: ServerOptions, count: Option<usize>) -> Result<Self, MeshError> {
        let temporary = match options.store {
            Some(_) => None,
            None => Some(
                tempfile::Builder::new()
                    .prefix("sinew-nats-")
                    .tempdir()
                    .map_err(|error| failed(format!("cannot create a temporary folder: {error}")))?,
            ),
        };
        let password = options.password.clone();
        let store =
            temporary.as_ref().map_or_else(|| options.store.clone().unwrap_or_default(), |t| t.path().into());
        let count = count_for(&store, count)?;
        let routes = free_ports(count)?;
        let starting = routes.iter().enumerate().map(|(nth, &route)| {
            let name = member_name(nth);
            let member = ClusterMember {
                cluster: CLUSTER.to_owned(),
                name: name.clone(),
                port: route,
                routes: routes.clone(),
            };
            Server::start(ServerOptions {
                store: Some(if count == 1 { store.clone() } else { store.join(name) }),
                port: options.port.filter(|_| nth == 0),
                member: (count > 1).then_some(member),
                ..options.clone()
            })
        });
        let members = try_join_all(starting).await?;
        let group = Self { members, store, _temporary: temporary };
        group.agreed(password).await?;
        Ok(group)
    }

    /// Returns the folder with the data of all members.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Returns the port of the first member.
    pub fn port(&self) -> u16 {
        self.members.first().map_or(0, Server::port)
    }

    /// Returns the members, ordered by name.
    pub fn members(&self) -> &[Server] {
        &self.members
    }

    /// Returns the members, for killing, pausing and restarting them.
    pub fn members_mut(&mut self) -> &mut [Server] {
        &mut self.members
    }

    /// Returns the addresses of all members, separated by commas.
    pub fn url(&self) -> String {
        self.members.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// Returns the index of the member that leads a stream; `None` without a leader.
    pub async fn leader_of(&self, context: &jetstream::Context, stream: &str) -> Option<usize> {
        let info = context.get_stream(stream).await.ok()?.cached_info().clone();
        let leader = info.cluster?.leader?;
        self.members.iter().position(|member| member.name() == leader)
    }

    /// Stops all members gracefully. The stores remain.
    pub async fn stop(&mut self) -> Result<(), MeshError> {
        try_join_all(self.members.iter_mut().map(Server::stop)).await.map(drop)
    }

    /// Waits until a majority of the running members agrees on a leader, which stream requests
    /// require.
    async fn agreed(&self, password: Option<String>) -> Result<(), MeshError> {
        let until = Instant::now() + AGREED_WITHIN;
        let login = password.map_or_else(async_nats::ConnectOptions::new, |password| {
            async_nats::ConnectOptions::with_user_and_password(SERVER_USER.to_owned(), password)
        });
        loop {
            let asked = async {
                let client = login
                    .clone()
                    .request_timeout(Some(ANSWERED_WITHIN))
                    .connect(self.members.iter().map(Server::url).collect::<Vec<_>>())
                    .await
                    .map_err(|error| error.to_string())?;
                let answer = client
                    .request("$JS.API.STREAM.NAMES", "{}".into())
                    .await
                    .map_err(|error| error.to_string())?;
                let text = String::from_utf8_lossy(&answer.payload).into_owned();
                if text.contains("\"error\"") { Err(text) } else { Ok(()) }
            };
            match asked.await {
                Ok(()) => return Ok(()),
                Err(reason) if Instant::now() > until => {
                    return Err(failed(format!("the members cannot elect a leader: {reason}")));
                }
                Err(_) => sleep(LOOK).await,
            }
        }
    }
}

/// Name of a member and of its folder.
fn member_name(nth: usize) -> String {
    format!("{CLUSTER}-{}", nth + 1)
}

/// Number of servers for a store.
fn count_for(store: &Path, wanted: Option<usize>) -> Result<usize, MeshError> {
    let folders = (0..MOST_MEMBERS).take_while(|nth| store.join(member_name(*nth)).is_dir()).count();
    let made_for = match folders {
        0 => store.join(STREAMS).is_dir().then_some(1),
        folders => Some(folders),
    };
    match (wanted, made_for) {
        (Some(wanted), Some(made_for)) if wanted != made_for => Err(failed(format!(
            "{} was created for {made_for} server(s), not for {wanted}; use another folder",
            store.display()
        ))),
        (wanted, made_for) => Ok(wanted.or(made_for).unwrap_or(1).max(1)),
    }
}

/// Returns distinct free ports.
fn free_ports(count: usize) -> Result<Vec<u16>, MeshError> {
    // Hold each port until all are found, so that none is found twice.
    let mut held = Vec::new();
    for _ in 0..PORT_TRIES {
        if held.len() == count {
            break;
        }
        let port = rand::rng().random_range(PORTS);
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|listener| (port, listener)));
    }
    if held.len() < count {
        return Err(failed("no free ports for the members".to_owned()));
    }
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

fn failed(reason: String) -> MeshError {
    MeshError::ServerFailed { reason }
}
