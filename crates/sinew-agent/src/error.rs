//! Errors of serving an agent.

use sinew_mesh::MeshError;
use sinew_source::SchemaError;

/// Reason why an agent cannot be served, or has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The name is invalid.
    #[error("{0:?} cannot name an agent: expected 1 to 255 bytes without control characters")]
    Name(String),
    /// A schema is unusable.
    #[error("the {which} schema of agent {agent:?} cannot be used: {reason}")]
    Schema {
        /// The agent.
        agent: String,
        /// `input` or `output`.
        which: &'static str,
        /// Defect of the schema.
        reason: SchemaError,
    },
    /// A file is not a valid agent; contains all its defects.
    #[cfg(feature = "files")]
    #[error("{0}")]
    File(String),
    /// The agent has functions, but calls no language model.
    #[cfg(feature = "files")]
    #[error(
        "agent {0:?} does not call a language model, so the functions of the program would never be called"
    )]
    NoModel(String),
    /// The mesh failed.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// Signal handlers cannot be installed.
    #[error("cannot install the signal handlers: {0}")]
    Signals(#[from] std::io::Error),
}

impl AgentError {
    /// The operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name(_) | Self::Schema { .. } | Self::Signals(_) => crate::failure::BAD_AGENT,
            #[cfg(feature = "files")]
            Self::File(_) | Self::NoModel(_) => crate::failure::BAD_AGENT,
            Self::Mesh(error) => error.code(),
        }
    }
}
