//! Artifacts: named, versioned, immutable bytes.

mod folder;
mod index;
mod media;

pub use folder::{ArtifactFolder, ArtifactLimits};
pub use media::media_type;
use sinew_protocol::{ArtifactMeta, ArtifactRef};

use crate::error::ArtifactError;

/// Where a call finds and leaves artifacts.
pub trait Artifacts: Send + Sync {
    /// Stores bytes as the next version of `name`; without a media type the name's extension decides.
    fn put(&self, name: &str, bytes: &[u8], media_type: Option<&str>) -> Result<ArtifactRef, ArtifactError>;
    /// The bytes of a version, of the newest one if none is given.
    fn get(&self, name: &str, version: Option<u32>) -> Result<Vec<u8>, ArtifactError>;
    /// Everything stored, by name and version.
    fn list(&self) -> Result<Vec<ArtifactMeta>, ArtifactError>;
}
