//! What can go wrong between this process and the broker.

use sinew_protocol::Fault;

/// What went wrong on the mesh. Variants are added by the module that needs them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// The broker could not be reached, or did not answer in time. What was asked may have been done.
    #[error("the NATS server did not answer: {what}: {reason}")]
    Unreachable {
        /// What was being done.
        what: &'static str,
        /// What the client says.
        reason: String,
    },
    /// The broker refused.
    #[error("the NATS server refused: {what}: {reason}")]
    Refused {
        /// What was being done.
        what: &'static str,
        /// What the server says.
        reason: String,
    },
}

impl MeshError {
    /// The operator code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "SINEW-7010",
            Self::Refused { .. } => "SINEW-7011",
        }
    }
}

impl From<MeshError> for Fault {
    fn from(error: MeshError) -> Self {
        let retryable = matches!(error, MeshError::Unreachable { .. });
        Self::error(error.code(), error.to_string()).with_retryable(retryable)
    }
}
