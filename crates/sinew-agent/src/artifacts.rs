//! The artifacts of one task: stored by the handler, kept until the result is published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use sinew_protocol::artifact::{ArtifactMeta, ArtifactName, ArtifactRef};
use sinew_protocol::{Fault, FaultKind};

use crate::failure::{ARTIFACTS, Failure};

/// Maximum bytes of artifacts of one task.
const MOST_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// Maximum number of artifacts of one task, including versions.
const MOST: usize = 200;

/// One version of one artifact.
#[derive(Clone, Debug)]
pub(crate) struct KeptVersion {
    pub(crate) meta: ArtifactMeta,
    pub(crate) bytes: Bytes,
}

/// The artifacts of a task. Versions count from 0; clones share them.
///
/// Other processes see them once the task's result is published: it contains small artifacts and
/// references larger ones in the mesh's object store.
#[derive(Clone, Debug, Default)]
pub struct Artifacts(Arc<Mutex<TaskArtifacts>>);

#[derive(Debug, Default)]
struct TaskArtifacts {
    kept: Vec<KeptVersion>,
    versions: BTreeMap<ArtifactName, u32>,
    bytes: usize,
    /// Versions that are also in the object store.
    stored: BTreeSet<(ArtifactName, u32)>,
}

impl Artifacts {
    /// Stores bytes as the next version of a name.
    pub fn put(
        &self,
        name: &str,
        media_type: impl Into<String>,
        bytes: impl Into<Bytes>,
    ) -> Result<ArtifactRef, Failure> {
        let name = ArtifactName::parse(name).map_err(Fault::from)?;
        let bytes = bytes.into();
        let mut all = self.shelf();
        if all.kept.len() >= MOST || all.bytes.saturating_add(bytes.len()) > MOST_BYTES {
            let message =
                format!("a task can store at most {MOST} artifacts with {MOST_BYTES} bytes in total");
            return Err(Fault::new(FaultKind::Invalid, ARTIFACTS, message).into());
        }
        let next = all.versions.entry(name.clone()).or_default();
        let version = *next;
        *next += 1;
        all.bytes += bytes.len();
        let meta = ArtifactMeta::of(name, version, media_type, &bytes);
        let reference = meta.reference();
        all.kept.push(KeptVersion { meta, bytes });
        Ok(reference)
    }

    /// Stores a value as JSON.
    pub fn put_json(&self, name: &str, value: &Value) -> Result<ArtifactRef, Failure> {
        self.put(name, "application/json", value.to_string())
    }

    /// Returns the bytes of a version that this task stored; by default of the newest.
    pub fn get(&self, name: &str, version: Option<u32>) -> Result<Bytes, Failure> {
        self.find(name, version).map(|kept| kept.bytes).ok_or_else(|| {
            let named = version.map_or_else(String::new, |version| format!(":v{version}"));
            let message = format!("this task has no artifact {:?}{named}", crate::failure::short(name, 255));
            Fault::new(FaultKind::Failure, ARTIFACTS, message).with_retryable(false).into()
        })
    }

    /// Lists the artifacts that this task stored so far, oldest first.
    pub fn list(&self) -> Vec<ArtifactMeta> {
        self.shelf().kept.iter().map(|kept| kept.meta.clone()).collect()
    }

    pub(crate) fn find(&self, name: &str, version: Option<u32>) -> Option<KeptVersion> {
        let all = self.shelf();
        let fits = |kept: &&KeptVersion| {
            kept.meta.name.as_str() == name && version.is_none_or(|version| kept.meta.version == version)
        };
        all.kept.iter().rev().find(fits).cloned()
    }

    /// Returns artifacts that other processes cannot read yet.
    pub(crate) fn not_stored(&self) -> Vec<KeptVersion> {
        let all = self.shelf();
        let is_new = |kept: &&KeptVersion| !all.stored.contains(&(kept.meta.name.clone(), kept.meta.version));
        all.kept.iter().filter(is_new).cloned().collect()
    }

    pub(crate) fn mark_stored(&self, meta: &ArtifactMeta) {
        self.shelf().stored.insert((meta.name.clone(), meta.version));
    }

    /// Adds a version that another process stored.
    pub(crate) fn restore(&self, meta: ArtifactMeta, bytes: Bytes) {
        let mut all = self.shelf();
        let place = (meta.name.clone(), meta.version);
        if all.kept.iter().any(|kept| (&kept.meta.name, kept.meta.version) == (&place.0, place.1)) {
            return;
        }
        let next = all.versions.entry(meta.name.clone()).or_default();
        *next = (*next).max(meta.version.saturating_add(1));
        all.bytes += bytes.len();
        all.stored.insert(place);
        all.kept.push(KeptVersion { meta, bytes });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shelf().kept.is_empty()
    }

    pub(crate) fn all(&self) -> Vec<KeptVersion> {
        self.shelf().kept.clone()
    }

    fn shelf(&self) -> std::sync::MutexGuard<'_, TaskArtifacts> {
        // Every change is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_count_by_name() {
        let artifacts = Artifacts::default();
        for (name, want) in [("a.txt", "a.txt:v0"), ("b.txt", "b.txt:v0"), ("a.txt", "a.txt:v1")] {
            let reference = artifacts.put(name, "text/plain", format!("{want} bytes")).unwrap();
            assert_eq!(reference.to_string(), want);
        }
        assert_eq!(artifacts.get("a.txt", None).unwrap(), "a.txt:v1 bytes");
        assert_eq!(artifacts.get("a.txt", Some(0)).unwrap(), "a.txt:v0 bytes");
        assert_eq!(artifacts.list().len(), 3);
        for (name, version) in [("a.txt", Some(2)), ("c.txt", None), ("../a.txt", None)] {
            let fault = artifacts.get(name, version).unwrap_err().into_fault();
            assert_eq!((fault.code.as_ref(), fault.retryable), (ARTIFACTS, false), "{name}");
        }
    }

    #[test]
    fn what_a_task_leaves_is_bounded() {
        let artifacts = Artifacts::default();
        assert_eq!(artifacts.put("../a", "text/plain", "x").unwrap_err().fault().code, "SINEW-5001");
        let large = Bytes::from(vec![0; MOST_BYTES]);
        artifacts.put("large", "application/octet-stream", large).unwrap();
        assert_eq!(artifacts.put("one-more", "text/plain", "x").unwrap_err().fault().code, ARTIFACTS);
        for n in 1..MOST {
            artifacts.put(&format!("{n}"), "text/plain", "").unwrap();
        }
        assert_eq!(artifacts.put("last", "text/plain", "").unwrap_err().fault().code, ARTIFACTS);
    }
}
