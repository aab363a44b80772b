//! Folders for the files of running commands: private to the user, and removed even after a crash.
//!
//! All folders of a process are in one parent folder, whose lock file the process holds. The system
//! releases the lock when the process exits or crashes. The next process that runs a command removes
//! parent folders whose lock is free.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use tempfile::{Builder, TempDir};

/// Prefix of the name of a parent folder.
const PARENT_PREFIX: &str = "sinew-tasks-";
/// Prefix of the name of a parent folder before it is locked.
const UNLOCKED_PREFIX: &str = "sinew-new-";
/// The lock file in a parent folder.
const LOCK_NAME: &str = ".lock";

/// Folder of one task; removed on drop.
#[derive(Debug)]
pub(crate) struct TaskFolder {
    // Dropped first, because the parent must be empty when it is removed.
    folder: TempDir,
    _parent: Arc<ParentFolder>,
}

impl TaskFolder {
    /// Creates an empty folder that only this user can access.
    pub(crate) fn create() -> io::Result<Self> {
        let parent = ParentFolder::of_process(&std::env::temp_dir())?;
        let folder = private(Builder::new().prefix("task-")).tempdir_in(&parent.path)?;
        Ok(Self { folder, _parent: parent })
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of crashed processes of this user.
pub fn remove_stale_task_folders() {
    remove_stale(&std::env::temp_dir());
}

/// The folder of all task folders of this process, removed with the last of them.
#[derive(Debug)]
struct ParentFolder {
    path: PathBuf,
    lock: File,
}

impl ParentFolder {
    /// Returns the parent folder of this process; creates it if it does not exist or was removed.
    fn of_process(temporary: &Path) -> io::Result<Arc<Self>> {
        static CURRENT: Mutex<Weak<ParentFolder>> = Mutex::new(Weak::new());
        static CLEANED: Once = Once::new();
        CLEANED.call_once(|| remove_stale(temporary));
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parent) = current.upgrade().filter(|parent| parent.path.is_dir()) {
            return Ok(parent);
        }
        let parent = Arc::new(Self::create(temporary)?);
        *current = Arc::downgrade(&parent);
        Ok(parent)
    }

    /// Creates a locked folder. Renames it after locking, so that no process removes it as stale.
    fn create(temporary: &Path) -> io::Result<Self> {
        let unlocked = private(Builder::new().prefix(UNLOCKED_PREFIX)).tempdir_in(temporary)?;
        let lock = OpenOptions::new().write(true).create_new(true).open(unlocked.path().join(LOCK_NAME))?;
        lock.lock()?;
        let name = unlocked.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = temporary.join(name.replacen(UNLOCKED_PREFIX, PARENT_PREFIX, 1));
        std::fs::rename(unlocked.path(), &path)?;
        // The folder was renamed, so nothing remains under the old name.
        let _ = unlocked.keep();
        Ok(Self { path, lock })
    }
}

impl Drop for ParentFolder {
    fn drop(&mut self) {
        // Hold the lock until the folder is removed.
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::debug!(%error, "a folder of tasks was not removed");
        }
        let _ = self.lock.unlock();
    }
}

/// Restricts permissions to this user.
fn private<'a, 'b>(builder: &'a mut Builder<'b, 'b>) -> &'a mut Builder<'b, 'b> {
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
    builder
}

/// Removes parent folders whose process has ended.
fn remove_stale(temporary: &Path) {
    let Ok(entries) = std::fs::read_dir(temporary) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PARENT_PREFIX);
        if ours && is_own_folder(&entry.path()) && is_abandoned(&entry.path()) {
            let folder = entry.path();
            match std::fs::remove_dir_all(&folder) {
                Ok(()) => {
                    tracing::info!(folder = %folder.display(), "a folder of a killed process was removed");
                }
                Err(error) => tracing::debug!(%error, "a folder of a killed process was not removed"),
            }
        }
    }
}

/// Returns whether this is a folder of this user, and not a link: the temporary folder is shared
/// with other users.
fn is_own_folder(path: &Path) -> bool {
    let Ok(found) = path.symlink_metadata() else { return false };
    #[cfg(unix)]
    let own = std::os::unix::fs::MetadataExt::uid(&found) == rustix::process::geteuid().as_raw();
    #[cfg(not(unix))]
    let own = true;
    found.is_dir() && own
}

/// Returns whether no process holds the lock of a parent folder.
fn is_abandoned(parent: &Path) -> bool {
    match OpenOptions::new().write(true).open(parent.join(LOCK_NAME)) {
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock | TryLockError::Error(_))),
        // Without a lock file, a removal of the folder was interrupted.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_living_stay_and_those_of_the_dead_go() {
        let temporary = tempfile::tempdir().unwrap();
        let living = ParentFolder::create(temporary.path()).unwrap();
        let dead = ParentFolder::create(temporary.path()).unwrap();
        let dead_path = dead.path.clone();
        std::fs::create_dir(dead_path.join("task-1")).unwrap();
        std::fs::write(dead_path.join("task-1/secret.txt"), "secret").unwrap();
        // As after a kill: the lock is released, and the folder remains.
        let held = dead.lock.try_clone().unwrap();
        std::mem::forget(dead);
        held.unlock().unwrap();
        // All other entries of the shared folder remain, whatever their names.
        std::fs::write(temporary.path().join("sinew-tasks-file"), "").unwrap();
        std::fs::create_dir(temporary.path().join("other")).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(temporary.path().join("other"), temporary.path().join("sinew-tasks-link"))
            .unwrap();
        remove_stale(temporary.path());
        assert!(!dead_path.exists(), "left behind by a killed process");
        assert!(living.path.is_dir());
        for name in ["sinew-tasks-file", "other"] {
            assert!(temporary.path().join(name).exists(), "{name}");
        }
        assert_eq!(temporary.path().join("sinew-tasks-link").is_symlink(), cfg!(unix));
        let path = living.path.clone();
        drop(living);
        assert!(!path.exists());
    }
}
