//! Folders that only the user can read: inputs and outputs of executions are in them.

use std::io;
use std::path::Path;

/// Folder of Sinew in the folder that commands are called in.
const STATE_FOLDER: &str = ".sinew";

/// Makes a folder, with those above it, that only the user can read. One that exists stays as it is.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Makes the folder of Sinew private before something is written below it, also if an older version made it for everybody. A path
/// elsewhere is the user's own business.
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
