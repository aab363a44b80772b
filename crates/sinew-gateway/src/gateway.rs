//! Starts a gateway on a mesh and stops it by draining.

use std::net::SocketAddr;
use std::sync::Arc;

use sinew_agents::{ReachableAddresses, WebClient};
use sinew_executor::client::Client;
use sinew_mesh::Mesh;
use sinew_operations::catalogue_records::CatalogueRecords;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::access::{Authenticator, CallerMeters};
use crate::allowed_origins::AllowedOrigins;
use crate::call_observer::CallObserver;
use crate::card_times::CardTimes;
use crate::error::GatewayError;
use crate::file_link::FileLinks;
use crate::gateway_service::GatewayService;
use crate::gateway_signer::GatewaySigner;
use crate::guard::MAX_GUESSES;
use crate::layout_cache::LayoutCache;
use crate::mcp::{DrainTokens, McpEndpoint, McpShared};
use crate::operations::A2aOperations;
use crate::options::{GatewayOptions, TransportSecurity};
use crate::push::PushDispatcher;
use crate::request_metrics::begin_counts;
use crate::state::{BODY_PLACE_BYTES, GatewayState};
use crate::tls::TlsListener;
use crate::traffic_meter::TrafficMeter;
use crate::webhook_triggers::WebhookTriggers;
use crate::{console_mount, routes, server};

/// A running gateway. Dropping it stops it immediately; [`Gateway::drain`] completes open requests.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    is_tls: bool,
    /// Address for clients, without a trailing slash.
    own_url: String,
    draining: CancellationToken,
    serving: Option<JoinHandle<()>>,
    /// Delivers push notifications while the gateway runs.
    pushes: Option<PushDispatcher>,
    _drain_timer: AbortOnDropHandle<()>,
}

impl Gateway {
    /// Starts a gateway for the mesh. Fails for an address that other machines can reach, unless
    /// callers need credentials and connections are protected.
    pub async fn start(mesh: Mesh, options: GatewayOptions) -> Result<Self, GatewayError> {
        check_protection(&options)?;
        let origins = AllowedOrigins::read(&options.cors_origins)
            .map_err(|reason| GatewayError::Setting { setting: "cors-origin", reason })?;
        let tls = match &options.transport {
            TransportSecurity::Tls(files) => Some(TlsListener::open(files.clone())?),
            _ => None,
        };
        let failed = |error| GatewayError::Listen { address: options.listen, error };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let authenticator = Arc::new(Authenticator::open(&mesh, &options.access).await?);
        let records = if authenticator.reads_records() {
            Some(GatewayRecords::open(&mesh, options.push_addresses).await?)
        } else {
            None
        };
        let client = Client::new(mesh, options.adapters).await?;
        client.cards().current().await?;
        let draining = CancellationToken::new();
        let outside = records.as_ref().map(|records| (records.web.clone(), Arc::clone(&records.signer)));
        let entries = CatalogueRecords::open(client.mesh()).await;
        let operations = A2aOperations::with_outside(client, &options, entries, outside);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let own_url = own_url(&options, scheme, address);
        let pushes = match &records {
            Some(GatewayRecords { web, signer, .. }) => Some(
                PushDispatcher::start(
                    operations.clone(),
                    Arc::clone(&authenticator),
                    web.clone(),
                    Arc::clone(signer),
                    &own_url,
                    draining.clone(),
                )
                .await?,
            ),
            None => None,
        };
        let (webhooks, signer) = records.map(|records| (records.webhooks, records.signer)).unzip();
        let (drain, drain_timer) = DrainTokens::of(&draining, options.limits.drain);
        let console = options.console.map(|_| format!("{own_url}{}", sinew_console::BASE));
        let links = signer.as_ref().map(|signer| FileLinks::new(Arc::clone(signer), &own_url));
        let tools = McpShared::new(operations.clone(), None, drain)
            .with_console(console)
            .with_links(links)
            .with_tools(options.mcp_tools.clone());
        let streams = Arc::new(Semaphore::new(options.limits.streams));
        let is_tls = tls.is_some();
        let state = Arc::new(GatewayState {
            mcp: McpEndpoint::new(tools, &options, Arc::clone(&streams)),
            operations,
            limits: options.limits,
            hosts: hosts_of(&options),
            origins,
            authenticator,
            webhooks,
            signer,
            meters: CallerMeters::new(options.access.limits, options.limits.streams),
            guess_places: Semaphore::new(MAX_GUESSES),
            is_tls,
            in_flight: Arc::new(Semaphore::new(options.limits.in_flight)),
            streams,
            file_permits: Arc::new(Semaphore::new(options.limits.files)),
            body_places: Arc::new(Semaphore::new(options.limits.large_bodies / BODY_PLACE_BYTES)),
            computations: Arc::new(Semaphore::new(options.limits.computations)),
            draining: draining.clone(),
            publisher: publisher_of(&options),
            public_url: options.public_url,
            grpc_on_cards: options.grpc_on_cards,
            traffic: TrafficMeter::default(),
            history: Arc::default(),
            calls: CallObserver::default(),
            layouts: LayoutCache::default(),
            card_times: CardTimes::default(),
            address,
        });
        let console = options.console.map(|mode| console_mount::console_of(&state, mode));
        let service =
            GatewayService::new(Arc::clone(&state), routes::router(&state, console), options.page_threads);
        begin_counts();
        let serving = Some(tokio::spawn(server::serve(state, listener, tls, service)));
        tracing::info!(%address, "the gateway is listening");
        Ok(Self { address, is_tls, own_url, draining, serving, pushes, _drain_timer: drain_timer })
    }

    /// Returns the address on which the gateway listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the gateway's address on its own machine, without a trailing slash.
    pub fn base_url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the address for clients, without a trailing slash: the public one, otherwise one
    /// with an allowed host name.
    pub fn own_url(&self) -> &str {
        &self.own_url
    }

    /// Accepts no new connections, ends streams with a hint how to resume, and completes open
    /// requests.
    pub async fn drain(mut self) {
        self.draining.cancel();
        if let Some(serving) = self.serving.take() {
            // A panic of the server was already reported.
            let _ = serving.await;
        }
        if let Some(pushes) = self.pushes.take() {
            pushes.end().await;
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

/// Records of the mesh that a gateway reads, besides keys.
struct GatewayRecords {
    webhooks: WebhookTriggers,
    signer: Arc<GatewaySigner>,
    /// Client for webhooks of callers.
    web: WebClient,
}

impl GatewayRecords {
    async fn open(mesh: &Mesh, addresses: ReachableAddresses) -> Result<Self, GatewayError> {
        Ok(Self {
            webhooks: WebhookTriggers::open(mesh).await?,
            signer: Arc::new(GatewaySigner::open(mesh).await?),
            web: WebClient::new(addresses)
                .map_err(|error| GatewayError::Tls { reason: error.to_string() })?,
        })
    }
}

/// Rejects an address that other machines can reach if callers are not authenticated or connections
/// can be intercepted.
fn check_protection(options: &GatewayOptions) -> Result<(), GatewayError> {
    let open = |lacks| Err(GatewayError::Open { address: options.listen, lacks });
    if options.listen.ip().is_loopback() {
        return Ok(());
    }
    if !options.access.is_required {
        return open("does not require credentials");
    }
    if matches!(options.transport, TransportSecurity::Plain) {
        return open("does not use TLS, so credentials could be intercepted");
    }
    Ok(())
}

/// Returns the domain of the gateway's entries in catalogues: the given one, otherwise the host of the
/// public address, otherwise `localhost` for a gateway that only this machine can reach.
fn publisher_of(options: &GatewayOptions) -> Option<String> {
    let public = || {
        let url: url::Url = options.public_url.as_deref()?.parse().ok()?;
        Some(url.host_str()?.to_owned())
    };
    let local = || options.listen.ip().is_loopback().then(|| "localhost".to_owned());
    options.publisher.clone().or_else(public).or_else(local)
}

/// Returns the gateway's address for clients, without a trailing slash: the public one; otherwise
/// one with an allowed host name, unless the gateway listens on loopback only; otherwise the listen
/// address.
fn own_url(options: &GatewayOptions, scheme: &str, address: SocketAddr) -> String {
    if let Some(url) = &options.public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let port = address.port();
    match (options.hosts.first(), address.ip()) {
        (Some(host), ip) if !ip.is_loopback() => format!("{scheme}://{host}:{port}"),
        // Requests to an unspecified address are rejected.
        (None, ip) if ip.is_unspecified() => format!("{scheme}://localhost:{port}"),
        _ => format!("{scheme}://{address}"),
    }
}

/// Returns the host names that requests may use: those of the options, and the host of the public
/// address.
fn hosts_of(options: &GatewayOptions) -> Vec<String> {
    let mut hosts = options.hosts.clone();
    let public = options.public_url.as_deref().and_then(|url| url.parse::<axum::http::Uri>().ok());
    hosts.extend(public.as_ref().and_then(|uri| uri.host()).map(str::to_owned));
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_an_address_that_they_can_use() {
        let check = |public: Option<&str>, hosts: &[&str], listens: &str, expected: &str| {
            let mut options = GatewayOptions::new(|_| None);
            options.public_url = public.map(str::to_owned);
            options.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            assert_eq!(own_url(&options, "https", listens.parse().unwrap()), expected);
        };
        check(Some("https://a.example/"), &["b.example"], "0.0.0.0:8234", "https://a.example");
        check(None, &["b.example"], "0.0.0.0:8234", "https://b.example:8234");
        check(None, &["b.example"], "[::]:8234", "https://b.example:8234");
        check(None, &["b.example"], "127.0.0.1:8234", "https://127.0.0.1:8234");
        check(None, &["b.example"], "10.0.0.7:8234", "https://b.example:8234");
        check(None, &[], "10.0.0.7:8234", "https://10.0.0.7:8234");
        check(None, &[], "0.0.0.0:8234", "https://localhost:8234");
    }
}
