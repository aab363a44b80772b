//! State shared by all requests of a gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use sinew_mesh::history_index::HistoryIndex;
use sinew_protocol::code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::access::{Authenticator, CallerIdentity, CallerMeters};
use crate::allowed_origins::AllowedOrigins;
use crate::call_observer::CallObserver;
use crate::card_times::CardTimes;
use crate::gateway_signer::GatewaySigner;
use crate::http_error::HttpProblem;
use crate::layout_cache::LayoutCache;
use crate::mcp::McpEndpoint;
use crate::operations::A2aOperations;
use crate::options::{GatewayLimits, GrpcAddressForm};
use crate::traffic_meter::TrafficMeter;
use crate::webhook_triggers::WebhookTriggers;

/// Size of a body that one permit covers.
pub(crate) const BODY_PLACE_BYTES: usize = 64 << 10;

/// State shared by all requests.
pub(crate) struct GatewayState {
    pub(crate) operations: A2aOperations,
    pub(crate) mcp: McpEndpoint,
    pub(crate) limits: GatewayLimits,
    /// Host names of this gateway in requests, besides those of the loopback interface.
    pub(crate) hosts: Vec<String>,
    /// Origins whose scripts may call.
    pub(crate) origins: AllowedOrigins,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) meters: CallerMeters,
    /// Webhook triggers; `None` if the gateway's user may not read them.
    pub(crate) webhooks: Option<WebhookTriggers>,
    /// Key of the mesh's gateways; `None` if the gateway's user may not read it.
    pub(crate) signer: Option<Arc<GatewaySigner>>,
    /// Whether the gateway itself terminates TLS.
    pub(crate) is_tls: bool,
    pub(crate) in_flight: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    /// Permits for delayed rejections of unknown keys.
    pub(crate) guess_places: Semaphore,
    /// Permits for files that are read from the mesh and held until their clients received them.
    pub(crate) file_permits: Arc<Semaphore>,
    /// Permits for bodies larger than usual requests, one per [`BODY_PLACE_BYTES`].
    pub(crate) body_places: Arc<Semaphore>,
    /// Permits for CPU-bound work.
    pub(crate) computations: Arc<Semaphore>,
    pub(crate) draining: CancellationToken,
    /// Domain of the entries in catalogues; `None` for a gateway without a public name.
    pub(crate) publisher: Option<String>,
    pub(crate) public_url: Option<String>,
    /// Form of the gRPC interface on cards; `None` if cards do not list it.
    pub(crate) grpc_on_cards: Option<GrpcAddressForm>,
    /// Traffic statistics.
    pub(crate) traffic: TrafficMeter,
    /// Closed executions that lists have read.
    pub(crate) history: Arc<HistoryIndex>,
    /// Calls of recent executions.
    pub(crate) calls: CallObserver,
    /// Layouts of recent large drawings.
    pub(crate) layouts: LayoutCache,
    pub(crate) card_times: CardTimes,
    pub(crate) address: SocketAddr,
}

impl GatewayState {
    /// Returns the operations, limited to what a caller may see.
    pub(crate) fn operations_of(&self, caller: &CallerIdentity) -> A2aOperations {
        self.operations.limited_to(caller)
    }

    /// Acquires the permits of a body larger than usual requests, so that many concurrent bodies
    /// cannot exhaust the memory. A body without a declared length counts as the largest. Returns
    /// `None` for a usual body.
    pub(crate) fn take_body_places(
        &self,
        body: &Body,
        most_bytes: usize,
    ) -> Result<Option<OwnedSemaphorePermit>, HttpProblem> {
        let told = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = told.unwrap_or(most_bytes).min(most_bytes);
        if bytes <= self.limits.body_bytes {
            return Ok(None);
        }
        let places = u32::try_from(bytes.div_ceil(BODY_PLACE_BYTES)).unwrap_or(u32::MAX);
        Arc::clone(&self.body_places).try_acquire_many_owned(places).map(Some).map_err(|_| {
            let text = "the gateway has reached its limit of concurrent large bodies; retry later";
            HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text)
        })
    }

    /// Returns the gateway's address as the client of this request uses it, without a trailing
    /// slash.
    pub(crate) fn base_url(&self, headers: &HeaderMap, uri: &Uri) -> String {
        if let Some(url) = &self.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        // The guard admits only host names of this gateway.
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| uri.authority().map(Authority::as_str));
        let scheme = if self.is_tls { "https" } else { "http" };
        host.map_or_else(|| format!("{scheme}://{}", self.address), |host| format!("{scheme}://{host}"))
    }
}
