//! Turns the files a command left in its artifact folder into artifacts.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::artifacts::Artifacts;
use crate::error::ArtifactError;

/// Most files one call may leave.
const FILES: u64 = 1_000;
/// Most bytes one call may leave.
const BYTES: u64 = 64 * 1024 * 1024;

/// Stores every file of `folder` under its own name, in the order of names. Folders, links and devices are refused:
/// leaving them out silently would lose an answer, following them would leak files.
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

/// Opens without following a link and without waiting for the other end of a pipe.
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
