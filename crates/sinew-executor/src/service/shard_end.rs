//! Reasons why the loop of a shard ends.

use sinew_mesh::{AppendError, MeshError};

/// Why a shard's loop ended.
#[derive(Debug)]
pub(super) enum End {
    /// It was drained.
    Drained,
    /// Another executor owns the shard.
    Fenced,
    /// The broker was unavailable.
    Lost(MeshError),
}

impl From<MeshError> for End {
    fn from(error: MeshError) -> Self {
        Self::Lost(error)
    }
}

impl From<AppendError> for End {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Fenced { .. } => Self::Fenced,
            AppendError::Mesh(error) => Self::Lost(error),
        }
    }
}
