//! A gateway: started on a mesh, stopped by draining.

use std::net::SocketAddr;
use std::sync::Arc;

use sinew_executor::client::Client;
use sinew_mesh::Mesh;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::GatewayError;
use crate::mcp::{McpEndpoint, McpShared};
use crate::operations::A2aOperations;
use crate::options::GatewayOptions;
use crate::state::GatewayState;
use crate::{console_mount, routes, server};

/// A gateway that serves. Dropping it stops it at once; [`Gateway::drain`] lets requests end.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    draining: CancellationToken,
    serving: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Serves the mesh on an address of this machine. Fails for an address that other machines reach: there is no check of
    /// callers.
    pub async fn start(mesh: Mesh, options: GatewayOptions) -> Result<Self, GatewayError> {
        if !options.listen.ip().is_loopback() {
            return Err(GatewayError::Open { address: options.listen });
        }
        let failed = |error| GatewayError::Listen { address: options.listen, error };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let own_caller = mesh.caller().clone();
        let cards = mesh.cards().follow();
        let client = Client::new(mesh, options.adapters).await?;
        cards.ready().await;
        let draining = CancellationToken::new();
        let operations = A2aOperations::new(client, cards, &options);
        let tools = McpShared::new(operations.clone(), own_caller.clone());
        let streams = Arc::new(Semaphore::new(options.limits.streams));
        let state = Arc::new(GatewayState {
            mcp: McpEndpoint::new(tools, &options.limits, Arc::clone(&streams), &draining),
            operations,
            limits: options.limits,
            hosts: hosts_of(&options),
            own_caller,
            in_flight: Arc::new(Semaphore::new(options.limits.in_flight)),
            streams,
            draining: draining.clone(),
            public_url: options.public_url,
            address,
        });
        let console = options.console.map(|mode| console_mount::console_of(&state, mode));
        let router = routes::router(&state, console);
        let serving = Some(tokio::spawn(server::serve(state, listener, router)));
        tracing::info!(%address, "the gateway serves");
        Ok(Self { address, draining, serving })
    }

    /// Address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new connections, ends streams with a hint how to go on, and waits for what is being answered.
    pub async fn drain(mut self) {
        self.draining.cancel();
        if let Some(serving) = self.serving.take() {
            // A panic of the server was reported where it happened.
            let _ = serving.await;
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// The names that requests may have: those of the options, and the host of the public address.
fn hosts_of(options: &GatewayOptions) -> Vec<String> {
    let mut hosts = options.hosts.clone();
    let public = options.public_url.as_deref().and_then(|url| url.parse::<axum::http::Uri>().ok());
    hosts.extend(public.as_ref().and_then(|uri| uri.host()).map(str::to_owned));
    hosts
}
