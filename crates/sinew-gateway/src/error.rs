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
    #[error("the MCP handshake with the client failed: {reason}")]
    Handshake {
        /// Reason given by the library.
        reason: String,
    },
    /// Other machines could call, and their callers or connections would not be protected.
    #[error("{address} is reachable from other machines, and the gateway {lacks}")]
    Open {
        /// The address.
        address: SocketAddr,
        /// Protection that is missing.
        lacks: &'static str,
    },
    /// Certificate or key cannot be used.
    #[error("cannot set up TLS: {reason}")]
    Tls {
        /// File, and what is wrong with it.
        reason: String,
    },
    /// A setting cannot be used.
    #[error("{setting}: {reason}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Defect of the setting.
        reason: String,
    },
    /// An OpenID provider cannot be used.
    #[error("the OpenID provider {issuer} cannot be used: {reason}")]
    Provider {
        /// Address of the provider.
        issuer: String,
        /// Reason why it cannot be used.
        reason: String,
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
            Self::Tls { .. } | Self::Provider { .. } | Self::Setting { .. } => {
                code::GATEWAY_SETTING_UNUSABLE.as_str()
            }
            Self::Open { .. } => code::GATEWAY_WITHOUT_CREDENTIALS.as_str(),
        }
    }
}
