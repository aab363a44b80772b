//! The artifact folder of an embedded run: `index.jsonl` and `objects/<sha256>`.
//!
//! A name never becomes part of a path: object files are named by the hash of their bytes, and
//! names are stored in the index.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sinew_protocol::{ArtifactMeta, ArtifactName, ArtifactRef};

use super::index::Index;
use super::{Artifacts, media};
use crate::error::ArtifactError;

/// Size limits of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactLimits {
    /// Maximum bytes of one artifact.
    pub each: u64,
    /// Maximum bytes of all versions of all artifacts.
    pub total: u64,
}

impl Default for ArtifactLimits {
    fn default() -> Self {
        Self { each: 64 * 1024 * 1024, total: 1024 * 1024 * 1024 }
    }
}

/// Artifacts in a folder. Threads and processes can use one folder concurrently.
#[derive(Debug)]
pub struct ArtifactFolder {
    objects: PathBuf,
    limits: ArtifactLimits,
    index: Mutex<Index>,
}

impl ArtifactFolder {
    /// Opens or creates the folder with default limits.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, ArtifactError> {
        Self::with_limits(folder, ArtifactLimits::default())
    }

    /// Opens or creates the folder.
    pub fn with_limits(folder: impl AsRef<Path>, limits: ArtifactLimits) -> Result<Self, ArtifactError> {
        let objects = folder.as_ref().join("objects");
        std::fs::create_dir_all(&objects).map_err(ArtifactError::io("create folders"))?;
        let index = Index::open(&folder.as_ref().join("index.jsonl"))?;
        Ok(Self { objects, limits, index: Mutex::new(index) })
    }

    /// Returns the metadata of a version, or of the newest version if `version` is `None`.
    pub fn meta(&self, name: &str, version: Option<u32>) -> Result<ArtifactMeta, ArtifactError> {
        let checked = ArtifactName::parse(name)?;
        let mut index = self.index();
        index.refresh()?;
        let versions = index.versions(&checked);
        let found = match version {
            Some(version) => versions.get(version as usize),
            None => versions.last(),
        };
        found.cloned().ok_or_else(|| ArtifactError::Missing { name: name.to_owned(), version })
    }

    /// Locks the index. A poisoned lock is safe to reuse, because the file is the source of truth.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an object atomically unless it exists.
    fn write(&self, sha256: &str, bytes: &[u8]) -> Result<(), ArtifactError> {
        let path = self.objects.join(sha256);
        if path.exists() {
            return Ok(());
        }
        let write = || {
            let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.objects)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            sync_folder(&self.objects)
        };
        write().map_err(ArtifactError::io("write an object"))
    }
}

/// Makes a rename durable on platforms that can sync folders.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) { std::fs::File::open(folder)?.sync_all() } else { Ok(()) }
}

impl Artifacts for ArtifactFolder {
    fn put(&self, name: &str, bytes: &[u8], media_type: Option<&str>) -> Result<ArtifactRef, ArtifactError> {
        let name = ArtifactName::parse(name)?;
        if bytes.len() as u64 > self.limits.each {
            return Err(ArtifactError::Limit { what: "the size of an artifact", limit: self.limits.each });
        }
        let media_type = media_type.unwrap_or_else(|| media::media_type(name.as_str()));
        let mut meta = ArtifactMeta::of(name, 0, media_type, bytes);
        self.index().locked(|index| {
            if index.total.saturating_add(meta.size) > self.limits.total {
                return Err(ArtifactError::Limit {
                    what: "the size of the artifact folder",
                    limit: self.limits.total,
                });
            }
            meta.version = u32::try_from(index.versions(&meta.name).len()).unwrap_or(u32::MAX);
            // Bytes first, so that each line of the index has its object.
            self.write(&meta.sha256, bytes)?;
            index.append(&meta)?;
            Ok(meta.reference())
        })
    }

    fn get(&self, name: &str, version: Option<u32>) -> Result<Vec<u8>, ArtifactError> {
        let meta = self.meta(name, version)?;
        let bytes = sinew_files::read_file(&self.objects.join(&meta.sha256), meta.size.max(self.limits.each))
            .map_err(|error| ArtifactError::io("read an object")(std::io::Error::other(error)))?;
        meta.verify(&bytes)?;
        Ok(bytes)
    }

    fn list(&self) -> Result<Vec<ArtifactMeta>, ArtifactError> {
        let mut index = self.index();
        index.refresh()?;
        Ok(index.all().cloned().collect())
    }
}
