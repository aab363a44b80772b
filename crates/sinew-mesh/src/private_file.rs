//! Files that only their owner can read.

use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file atomically; only its owner can read the new one.
pub fn write_private_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}
