//! State that all requests of a gateway share.

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

/// Bytes of a large body that take a place.
pub(crate) const BODY_PLACE_BYTES: usize = 64 << 10;

/// State that all requests share.
pub(crate) struct GatewayState {
    pub(crate) operations: A2aOperations,
    pub(crate) mcp: McpEndpoint,
    pub(crate) limits: GatewayLimits,
    /// Names of this gateway in requests, beside those of the loopback interface.
    pub(crate) hosts: Vec<String>,
    /// Origins whose scripts may call.
    pub(crate) origins: AllowedOrigins,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) meters: CallerMeters,
    /// Webhook triggers; `None` where the gateway's user may not read them.
    pub(crate) webhooks: Option<WebhookTriggers>,
    /// Key of the gateways of the mesh; `None` where the gateway's user may not read it.
    pub(crate) signer: Option<Arc<GatewaySigner>>,
    /// Whether clients speak TLS to the gateway itself.
    pub(crate) is_tls: bool,
    pub(crate) in_flight: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    /// Places of refusals of unknown keys, which take a while each.
    pub(crate) guess_places: Semaphore,
    /// Places of files that are read from the mesh, and held until their clients have them.
    pub(crate) file_permits: Arc<Semaphore>,
    /// Places of bodies that are larger than those of usual requests, one for each [`BODY_PLACE_BYTES`].
    pub(crate) body_places: Arc<Semaphore>,
    /// Places of work that takes a processor for long.
    pub(crate) computations: Arc<Semaphore>,
    pub(crate) draining: CancellationToken,
    pub(crate) public_url: Option<String>,
    /// Form of the gRPC interface on cards; `None` if they do not name it.
    pub(crate) grpc_on_cards: Option<GrpcAddressForm>,
    /// Figures of the traffic.
    pub(crate) traffic: TrafficMeter,
    /// Closed executions, as far as lists have read them.
    pub(crate) history: Arc<HistoryIndex>,
    /// Calls of the latest executions.
    pub(crate) calls: CallObserver,
    /// Layouts of the last large drawings.
    pub(crate) layouts: LayoutCache,
    pub(crate) card_times: CardTimes,
    pub(crate) address: SocketAddr,
}

impl GatewayState {
    /// The operations on what a caller may see.
    pub(crate) fn operations_of(&self, caller: &CallerIdentity) -> A2aOperations {
        self.operations.limited_to(caller)
    }

    /// The places of a body that is larger than those of usual requests: many of them at once must not fill the memory. A body
    /// that does not tell its length counts as the largest one. `None` for a usual body.
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

    /// The address that the client of this request uses, without a slash at its end.
    pub(crate) fn base_url(&self, headers: &HeaderMap, uri: &Uri) -> String {
        if let Some(url) = &self.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        // The guard let only names of this gateway through.
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| uri.authority().map(Authority::as_str));
        let scheme = if self.is_tls { "https" } else { "http" };
        host.map_or_else(|| format!("{scheme}://{}", self.address), |host| format!("{scheme}://{host}"))
    }
}
