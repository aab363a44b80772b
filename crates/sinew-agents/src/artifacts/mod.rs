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

/// Where a call finds and leaves artifacts.
pub trait Artifacts: Send + Sync {
    /// Stores bytes as the next version of `name`; without a media type the name's extension decides.
    fn put(&self, name: &str, bytes: &[u8], media_type: Option<&str>) -> Result<ArtifactRef, ArtifactError>;
    /// The bytes of a version, of the newest one if none is given.
    fn get(&self, name: &str, version: Option<u32>) -> Result<Vec<u8>, ArtifactError>;
    /// Everything stored, by name and version.
    fn list(&self) -> Result<Vec<ArtifactMeta>, ArtifactError>;
    /// Stores artifacts that only this process has where another one finds them, and returns those that are new there. A
    /// place that outlives the process has none.
    fn store(&self) -> BoxFuture<'_, Result<Vec<KeptArtifact>, ArtifactError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
    /// Takes over artifacts that another process stored, as the versions that they were.
    fn restore<'a>(&'a self, _: &'a [KeptArtifact]) -> BoxFuture<'a, Result<(), ArtifactError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// A place that keeps no artifacts: for conversations whose tools are stubs.
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
