//! A limit on the total memory of processes, with a control group.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Fallible;

/// A control group of this run.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    folder: PathBuf,
    /// Name of the file that counts kills.
    events: &'static str,
}

impl MemoryLimit {
    /// Creates a group with a limit in mebibytes, with version 1 or 2 of control groups.
    pub(crate) fn of_mebibytes(limit: u64) -> Fallible<Self> {
        let (top, limit_file, events) = if Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control")
        } else {
            ("/sys/fs/cgroup", "memory.max", "memory.events")
        };
        let folder = Path::new(top).join(format!("sinew-chaos-{}", std::process::id()));
        let limited = fs::create_dir(&folder)
            .and_then(|()| fs::write(folder.join(limit_file), (limit << 20).to_string()));
        limited.map_err(|error| format!("memory limits need the right to make control groups: {error}"))?;
        Ok(Self { folder, events })
    }

    /// Adds a process to the group.
    pub(crate) fn admit(&self, process: u32) -> Fallible<()> {
        Ok(fs::write(self.folder.join("cgroup.procs"), process.to_string())?)
    }

    /// Returns how often the kernel killed a process of the group.
    pub(crate) fn kills(&self) -> u64 {
        let events = fs::read_to_string(self.folder.join(self.events)).unwrap_or_default();
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Fails if a process of the group has not ended yet; an empty group remains then.
        let _ = fs::remove_dir(&self.folder);
    }
}
