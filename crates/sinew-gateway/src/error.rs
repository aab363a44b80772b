//! Errors that prevent a gateway from starting.

use std::net::SocketAddr;

use sinew_executor::client::ClientError;
use sinew_mesh::MeshError;
use sinew_protocol::code;

/// Reason why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The mesh reported an error.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The client of the mesh reported an error.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The gateway cannot listen on the address.
    #[error("the gateway cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Reason given by the system.
        error: std::io::Error,
    },
    /// The MCP handshake over standard input and output failed.
    #[error("the MCP handshake with the client failed: {reason}")]
    Handshake {
        /// Reason given by the MCP library.
        reason: String,
    },
    /// Other machines could connect without credentials or without encryption.
    #[error("{address} is reachable from other machines, and the gateway {lacks}")]
    Open {
        /// The address.
        address: SocketAddr,
        /// Protection that is missing.
        lacks: &'static str,
    },
    /// The certificate or key is invalid.
    #[error("cannot set up TLS: {reason}")]
    Tls {
        /// File, and its defect.
        reason: String,
    },
    /// A setting is invalid.
    #[error("{setting}: {reason}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// Defect of the setting.
        reason: String,
    },
    /// An OpenID provider is unusable.
    #[error("the OpenID provider {issuer} cannot be used: {reason}")]
    Provider {
        /// Address of the provider.
        issuer: String,
        /// Reason why it is unusable.
        reason: String,
    },
}

impl GatewayError {
    /// Returns the error code.
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
