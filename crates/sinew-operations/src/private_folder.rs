//! Folders that only the user can read, because they contain inputs and outputs of executions.

use std::io;
use std::path::Path;

/// Sinew's folder in the current folder.
const STATE_FOLDER: &str = ".sinew";

/// Creates a folder and its parents, readable only by the user. An existing folder is unchanged.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Makes Sinew's folder private before a file is written below it, even if an older version created
/// it for everybody. Other paths are unchanged.
pub fn keep_state_private(path: &Path) -> io::Result<()> {
    if !path.starts_with(STATE_FOLDER) {
        return Ok(());
    }
    let folder = Path::new(STATE_FOLDER);
    make_private_folder(folder)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mut rights = std::fs::metadata(folder)?.permissions();
        if rights.mode() & 0o077 != 0 {
            rights.set_mode(0o700);
            std::fs::set_permissions(folder, rights)?;
        }
    }
    Ok(())
}
