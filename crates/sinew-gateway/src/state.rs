//! State that all requests of a gateway share.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, header};
use sinew_protocol::Token;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::mcp::McpEndpoint;
use crate::operations::A2aOperations;
use crate::options::GatewayLimits;

/// State that all requests share.
pub(crate) struct GatewayState {
    pub(crate) operations: A2aOperations,
    pub(crate) mcp: McpEndpoint,
    pub(crate) limits: GatewayLimits,
    /// Names of this gateway in requests, beside those of the loopback interface.
    pub(crate) hosts: Vec<String>,
    /// Caller of requests without credentials: the gateway's own user.
    pub(crate) own_caller: Token,
    pub(crate) in_flight: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) draining: CancellationToken,
    pub(crate) public_url: Option<String>,
    pub(crate) address: SocketAddr,
}

impl GatewayState {
    /// The address that the client of this request uses, without a slash at its end.
    pub(crate) fn base_url(&self, headers: &HeaderMap) -> String {
        if let Some(url) = &self.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        // The guard let only names of this gateway through.
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        host.map_or_else(|| format!("http://{}", self.address), |host| format!("http://{host}"))
    }
}
