//! A cluster of nats-servers as children of this process: streams with three copies on one machine, for tests of what a
//! cluster promises and for `sinew dev --servers 3`.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream;
use futures_util::future::try_join_all;
use rand::Rng as _;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::error::MeshError;
use crate::server::{ClusterMember, PORTS, Server, ServerOptions};

/// Time for the members to agree who leads them; elections take seconds, on a busy machine more.
const AGREED_WITHIN: Duration = Duration::from_mins(1);
/// How often it is asked whether they have.
const LOOK: Duration = Duration::from_millis(50);
/// How long one question may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// How many ports are tried.
const PORT_TRIES: usize = 100;
/// Name of the cluster.
const CLUSTER: &str = "sinew";

/// Servers of this machine that keep copies of the same streams, killed on drop.
#[derive(Debug)]
pub struct ServerCluster {
    members: Vec<Server>,
    _temporary: Option<TempDir>,
}

impl ServerCluster {
    /// Starts so many servers and waits until they take requests for streams together. Each keeps its data in a folder of
    /// its own below `store`; the first listens at `port`. `member` is set here.
    pub async fn start(options: ServerOptions, count: usize) -> Result<Self, MeshError> {
        let temporary = match options.store {
            Some(_) => None,
            None => Some(
                tempfile::Builder::new()
                    .prefix("sinew-cluster-")
                    .tempdir()
                    .map_err(|error| failed(format!("cannot make a temporary folder: {error}")))?,
            ),
        };
        let below: PathBuf =
            temporary.as_ref().map_or_else(|| options.store.clone().unwrap_or_default(), |t| t.path().into());
        let routes = free_ports(count)?;
        let starting = routes.iter().enumerate().map(|(nth, &route)| {
            let name = format!("{CLUSTER}-{}", nth + 1);
            Server::start(ServerOptions {
                store: Some(below.join(&name)),
                port: options.port.filter(|_| nth == 0),
                member: Some(ClusterMember {
                    cluster: CLUSTER.to_owned(),
                    name,
                    port: route,
                    routes: routes.clone(),
                }),
                ..options.clone()
            })
        });
        let cluster = Self { members: try_join_all(starting).await?, _temporary: temporary };
        cluster.agreed().await?;
        Ok(cluster)
    }

    /// The members, in the order of their names.
    pub fn members(&self) -> &[Server] {
        &self.members
    }

    /// The members, to be killed, halted and started again.
    pub fn members_mut(&mut self) -> &mut [Server] {
        &mut self.members
    }

    /// The addresses of all members, separated by commas.
    pub fn url(&self) -> String {
        self.members.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// The place of the member that leads a stream now; `None` while none does.
    pub async fn leader_of(&self, context: &jetstream::Context, stream: &str) -> Option<usize> {
        let info = context.get_stream(stream).await.ok()?.cached_info().clone();
        let leader = info.cluster?.leader?;
        self.members.iter().position(|member| member.name() == leader)
    }

    /// Stops all members: each finishes what it writes. The stores stay.
    pub async fn stop(&mut self) -> Result<(), MeshError> {
        try_join_all(self.members.iter_mut().map(Server::stop)).await.map(drop)
    }

    /// Waits until most of the running members agree on a leader, which is when requests for streams are answered.
    async fn agreed(&self) -> Result<(), MeshError> {
        let until = Instant::now() + AGREED_WITHIN;
        loop {
            let asked = async {
                let client = async_nats::ConnectOptions::new()
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
                    return Err(failed(format!("the members do not agree on a leader: {reason}")));
                }
                Err(_) => sleep(LOOK).await,
            }
        }
    }
}

/// So many ports that are free, each once.
fn free_ports(count: usize) -> Result<Vec<u16>, MeshError> {
    // Held until all are found, so that none is found twice.
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
