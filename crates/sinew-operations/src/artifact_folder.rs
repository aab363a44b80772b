//! Folders of artifacts, and the file names under which people and programs open them.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sinew_agents::{ArtifactFolder, ArtifactMeta, Artifacts};

use crate::failure::{Failure, FailureKind};
use crate::private_folder::keep_state_private;

/// A folder for the artifacts of one execution or call.
pub struct KeptArtifacts {
    /// The folder.
    pub folder: PathBuf,
    /// Store to which agents write.
    pub artifacts: Arc<dyn Artifacts>,
}

impl KeptArtifacts {
    /// Opens the folder, and creates it if necessary.
    pub fn open(folder: PathBuf) -> Result<Self, Failure> {
        keep_state_private(&folder).map_err(|error| Failure::unreadable(&folder, &error))?;
        let artifacts = ArtifactFolder::open(&folder).map_err(|error| {
            let text = format!("cannot store artifacts in {}: {error}", folder.display());
            Failure::new(FailureKind::Failed, error.code(), text)
        })?;
        Ok(Self { folder, artifacts: Arc::new(artifacts) })
    }

    /// Lists the stored artifacts and copies the newest version of each to a file with its name.
    /// Removes an empty folder. Calls `warn` for artifacts that cannot be copied.
    pub fn finish(&self, warn: &dyn Fn(&str)) -> Vec<ArtifactMeta> {
        let stored = self.artifacts.list().unwrap_or_default();
        if stored.is_empty() {
            // `remove_dir` removes empty folders only.
            let index = self.folder.join("index.jsonl");
            if fs::metadata(&index).is_ok_and(|index| index.len() == 0) {
                let _ = fs::remove_file(index);
            }
            let _ = fs::remove_dir(self.folder.join("objects"));
            let _ = fs::remove_dir(&self.folder);
        } else if let Err(error) = unpack(self.artifacts.as_ref(), &stored, &self.folder) {
            warn(&format!("cannot write artifacts below {}: {error}", self.folder.display()));
        }
        stored
    }
}

/// Writes the newest version of each artifact to `files/` below the folder.
///
/// Names of artifacts are single path segments and safe file names; existing entries are replaced,
/// and links are not followed.
fn unpack(artifacts: &dyn Artifacts, stored: &[ArtifactMeta], folder: &Path) -> io::Result<()> {
    let files = folder.join("files");
    fs::create_dir_all(&files)?;
    for (n, meta) in stored.iter().enumerate() {
        let newest = stored.get(n + 1).is_none_or(|next| next.name != meta.name);
        if newest {
            let bytes = artifacts.get(meta.name.as_str(), Some(meta.version)).map_err(io::Error::other)?;
            let file = files.join(meta.name.as_str());
            match fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => fs::OpenOptions::new().write(true).create_new(true).open(&file)?.write_all(&bytes)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_stands_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let artifacts = ArtifactFolder::open(folder.path()).unwrap();
        for (name, text) in [("a.txt", "old"), ("a.txt", "new"), ("index.jsonl", "not the index")] {
            artifacts.put(name, text.as_bytes(), None).unwrap();
            unpack(&artifacts, &artifacts.list().unwrap(), folder.path()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join("files").join(name)).unwrap();
        assert_eq!((read("a.txt").as_str(), read("index.jsonl").as_str()), ("new", "not the index"));
        assert_eq!(artifacts.get("a.txt", Some(0)).unwrap(), b"old");
    }
}
