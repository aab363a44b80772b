//! Why an agent cannot be served.

use sinew_mesh::MeshError;
use sinew_source::SchemaError;

/// Why an agent cannot be served, or stopped being served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A name that nobody could call.
    #[error("{0:?} cannot name an agent: expected 1 to 255 bytes without control characters")]
    Name(String),
    /// A schema that checks nothing.
    #[error("the {which} schema of agent {agent:?} cannot be used: {reason}")]
    Schema {
        /// The agent.
        agent: String,
        /// `input` or `output`.
        which: &'static str,
        /// Defect of the schema.
        reason: SchemaError,
    },
    /// The mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The process cannot listen for signals.
    #[error("the process cannot listen for signals: {0}")]
    Signals(#[from] std::io::Error),
}

impl AgentError {
    /// The operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name(_) | Self::Schema { .. } | Self::Signals(_) => crate::failure::BAD_AGENT,
            Self::Mesh(error) => error.code(),
        }
    }
}
