//! Artifacts: named, versioned, immutable bytes.

mod folder;
mod index;
mod media;

pub use folder::{ArtifactFolder, ArtifactLimits};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
pub(crate) use media::extension;
pub use media::media_type;
use sinew_model::KeptArtifact;
use sinew_protocol::{ArtifactMeta, ArtifactRef};

use crate::error::ArtifactError;
use sinew_protocol::artifact::ArtifactName;

/// The artifact store of a call.
pub trait Artifacts: Send + Sync {
    /// Stores bytes as the next version of `name`. The default media type is that of the extension.
    fn put(&self, name: &str, bytes: &[u8], media_type: Option<&str>) -> Result<ArtifactRef, ArtifactError>;
    /// Returns the bytes of a version, or of the newest version if `version` is `None`.
    fn get(&self, name: &str, version: Option<u32>) -> Result<Vec<u8>, ArtifactError>;
    /// Returns the metadata of all artifacts, sorted by name and version.
    fn list(&self) -> Result<Vec<ArtifactMeta>, ArtifactError>;
    /// Copies artifacts that only this process has to shared storage, and returns the new ones.
    /// A store that outlives the process has none.
    fn store(&self) -> BoxFuture<'_, Result<Vec<KeptArtifact>, ArtifactError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
    /// Restores artifacts that another process stored, with their version numbers.
    fn restore<'a>(&'a self, _: &'a [KeptArtifact]) -> BoxFuture<'a, Result<(), ArtifactError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// A store without artifacts, for conversations whose tools are stubs.
pub(crate) struct NoArtifacts;

impl Artifacts for NoArtifacts {
    fn put(&self, name: &str, _: &[u8], _: Option<&str>) -> Result<ArtifactRef, ArtifactError> {
        Ok(ArtifactRef { name: ArtifactName::parse(name)?, version: Some(0) })
    }

    fn get(&self, name: &str, version: Option<u32>) -> Result<Vec<u8>, ArtifactError> {
        Err(ArtifactError::Missing { name: name.to_owned(), version })
    }

    fn list(&self) -> Result<Vec<ArtifactMeta>, ArtifactError> {
        Ok(Vec::new())
    }
}
