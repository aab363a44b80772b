//! Detects changes of workflow and agent files, for programs that deploy and serve them again.
//!
//! Files are polled instead of watched: a poll costs a few calls per file, works on every file
//! system (container and virtual machine mounts report no changes), and detects files that an
//! editor replaces, which is complicated with a file system watcher.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of files; a folder with more is not a folder of workflows.
const MAX_FILES: usize = 5_000;
/// Maximum depth of folders.
const MAX_DEPTH: usize = 8;

/// Modification times and sizes of files, by which changes are detected.
type FileStamps = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// Changed files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// Workflow files.
    Workflows,
    /// Agent files.
    Agents,
}

/// Polled workflow and agent files.
pub struct FileWatch {
    workflows: WatchedPaths,
    agents: WatchedPaths,
}

/// Files and folders with their state at the last poll.
struct WatchedPaths {
    paths: Vec<PathBuf>,
    seen: FileStamps,
}

impl FileWatch {
    /// Polls these files and folders from now on. They need not exist.
    pub fn of(workflows: Vec<PathBuf>, agents: Vec<PathBuf>) -> Self {
        Self { workflows: WatchedPaths::of(workflows), agents: WatchedPaths::of(agents) }
    }

    /// Waits for the next change. Cancel-safe.
    pub async fn next(&mut self) -> FileChange {
        loop {
            if self.workflows.has_changed() {
                return FileChange::Workflows;
            }
            if self.agents.has_changed() {
                return FileChange::Agents;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl WatchedPaths {
    fn of(paths: Vec<PathBuf>) -> Self {
        Self { seen: stamps(&paths), paths }
    }

    fn has_changed(&mut self) -> bool {
        let now = stamps(&self.paths);
        let has_changed = now != self.seen;
        self.seen = now;
        has_changed
    }
}

/// Returns the state of all files: a workflow may read any file in its folder.
fn stamps(paths: &[PathBuf]) -> FileStamps {
    let mut found = FileStamps::new();
    for path in paths {
        look(path, MAX_DEPTH, &mut found);
        // Included files are in the file's folder.
        if !path.is_dir() {
            let folder = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
            look(folder, 2, &mut found);
        }
    }
    found
}

fn look(path: &Path, depth: usize, found: &mut FileStamps) {
    let Ok(about) = path.metadata() else { return };
    if about.is_file() {
        if found.len() < MAX_FILES {
            found.insert(path.to_owned(), (about.modified().ok(), about.len()));
        }
        return;
    }
    let Some(depth) = depth.checked_sub(1) else { return };
    for entry in path.read_dir().into_iter().flatten().flatten() {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        // Links to folders are not followed, which prevents cycles.
        let linked = entry.file_type().is_ok_and(|kind| kind.is_symlink()) && entry.path().is_dir();
        if !hidden && !linked {
            look(&entry.path(), depth, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    type Change = fn(&Path);

    #[test]
    fn changes_of_files_are_seen_and_nothing_else() {
        let changes: [(&str, bool, Change); 7] = [
            ("a file is written", true, |at| fs::write(at.join("a.yaml"), "longer").unwrap()),
            ("a file beside it is written", true, |at| fs::write(at.join("b.py"), "longer").unwrap()),
            ("a file is new", true, |at| fs::write(at.join("c.yaml"), "").unwrap()),
            ("a file is gone", true, |at| fs::remove_file(at.join("a.yaml")).unwrap()),
            ("a file is replaced", true, |at| {
                fs::write(at.join(".new"), "other").unwrap();
                fs::rename(at.join(".new"), at.join("a.yaml")).unwrap();
            }),
            ("a hidden file is written", false, |at| fs::write(at.join(".hidden"), "x").unwrap()),
            ("nothing", false, |_| {}),
        ];
        for (what, seen, change) in changes {
            for named in ["", "a.yaml"] {
                let folder = tempfile::tempdir().unwrap();
                let at = folder.path();
                fs::write(at.join("a.yaml"), "a").unwrap();
                fs::write(at.join("b.py"), "b").unwrap();
                let paths = [at.join(named)];
                let before = stamps(&paths);
                change(at);
                assert_eq!(stamps(&paths) != before, seen, "{what}, {named:?} is named");
            }
        }
    }
}
