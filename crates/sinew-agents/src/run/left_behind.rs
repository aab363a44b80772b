//! Stores the files that a command wrote to its artifact folder as artifacts.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::artifacts::Artifacts;
use crate::error::ArtifactError;

/// Maximum number of files of a call.
const FILES: u64 = 1_000;
/// Maximum total bytes of the files of a call.
const BYTES: u64 = 64 * 1024 * 1024;

/// Stores each file of `folder` under its name, sorted by name. Refuses folders, links and devices:
/// skipping them would lose results, and following them would leak files.
pub(crate) fn store(
    folder: &Path,
    artifacts: &dyn Artifacts,
) -> Result<Vec<crate::ArtifactRef>, ArtifactError> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(ArtifactError::io("list files"))? {
        let name = entry.map_err(ArtifactError::io("list files"))?.file_name();
        let text =
            name.into_string().map_err(|raw| ArtifactError::NotAFile(raw.to_string_lossy().into_owned()))?;
        names.push(text);
        if names.len() as u64 > FILES {
            return Err(ArtifactError::Limit {
                what: "the number of files left by the command",
                limit: FILES,
            });
        }
    }
    names.sort();
    let mut left = BYTES;
    let mut stored = Vec::with_capacity(names.len());
    for name in names {
        let mut bytes = Vec::new();
        open(&folder.join(&name), &name)?
            .take(left + 1)
            .read_to_end(&mut bytes)
            .map_err(ArtifactError::io("read a file"))?;
        left = left.checked_sub(bytes.len() as u64).ok_or(ArtifactError::Limit {
            what: "the size of the files left by the command",
            limit: BYTES,
        })?;
        stored.push(artifacts.put(&name, &bytes, None)?);
    }
    Ok(stored)
}

/// Opens a file without following links and without blocking on pipes.
#[cfg(unix)]
fn open(path: &Path, name: &str) -> Result<File, ArtifactError> {
    use rustix::fs::{Mode, OFlags};
    let refused = || ArtifactError::NotAFile(name.escape_debug().to_string());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(descriptor) => File::from(descriptor),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => return Err(refused()),
        Err(error) => return Err(ArtifactError::io("read a file")(error.into())),
    };
    let plain = file.metadata().map_err(ArtifactError::io("read a file"))?.is_file();
    if plain { Ok(file) } else { Err(refused()) }
}

#[cfg(not(unix))]
fn open(path: &Path, name: &str) -> Result<File, ArtifactError> {
    let plain = path.symlink_metadata().map_err(ArtifactError::io("read a file"))?.is_file();
    if !plain {
        return Err(ArtifactError::NotAFile(name.escape_debug().to_string()));
    }
    File::open(path).map_err(ArtifactError::io("read a file"))
}
