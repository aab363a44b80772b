//! Errors that keep a gateway from starting.

use std::net::SocketAddr;

use sinew_executor::client::ClientError;
use sinew_mesh::MeshError;
use sinew_protocol::code;

/// Reason why a gateway does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The client of the mesh.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The address cannot be listened on.
    #[error("the gateway cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Reason given by the system.
        error: std::io::Error,
    },
    /// The first messages of a client of MCP over pipes.
    #[error("the client did not begin as MCP demands: {reason}")]
    Handshake {
        /// Reason given by the library.
        reason: String,
    },
    /// Every machine of the network could call, and nobody would ask who calls.
    #[error(
        "{address} is reachable from other machines, and the gateway asks its callers for no credentials"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
}

impl GatewayError {
    /// The operator code.
    pub fn code(&self) -> &str {
        match self {
            Self::Mesh(error) => error.code(),
            Self::Client(error) => error.code(),
            Self::Listen { .. } => code::GATEWAY_CANNOT_LISTEN.as_str(),
            Self::Handshake { .. } => code::GATEWAY_MESSAGE_MALFORMED.as_str(),
            Self::Open { .. } => code::GATEWAY_WITHOUT_CREDENTIALS.as_str(),
        }
    }
}
