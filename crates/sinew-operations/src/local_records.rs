//! Records of executions that ran in one process, in `.sinew/executions`: written at their end,
//! read by the commands of `sinew execution`, and pruned by age, number and size. Artifacts next to
//! a record are never pruned.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sinew_execution::Execution;
use sinew_inspection::record::{Record, RecordSource};
use sinew_protocol::code;

use crate::export_file;
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::SEVERAL;
use crate::private_folder::keep_state_private;

/// Folder of all local executions.
pub const EXECUTIONS_FOLDER: &str = ".sinew/executions";
/// File name of the record in its execution's folder.
const RECORD_FILE: &str = "record.json";
/// Maximum number of stored records.
const MAX_RECORDS: usize = 200;
/// Maximum size of all stored records.
const MAX_RECORDS_BYTES: u64 = 256 << 20;
/// Maximum age of a stored record.
const MAX_RECORD_AGE: Duration = Duration::from_hours(30 * 24);

/// A record on disk.
#[derive(Clone, Debug)]
struct StoredRecord {
    id: String,
    path: PathBuf,
    modified: SystemTime,
    bytes: u64,
}

/// Writes the record of an execution to its folder, and prunes records that exceed the limits.
pub fn keep(execution: &Execution) -> Result<(), Failure> {
    let folder = Path::new(EXECUTIONS_FOLDER).join(execution.id().as_str());
    keep_state_private(&folder).and_then(|()| std::fs::create_dir_all(&folder)).map_err(|error| {
        Failure::new(
            FailureKind::Failed,
            code::FILE_CANNOT_BE_WRITTEN.as_str(),
            format!("cannot write {}: {error}", folder.display()),
        )
    })?;
    export_file::write(&Record::local(execution), &folder.join(RECORD_FILE))?;
    prune(list(Path::new(EXECUTIONS_FOLDER)), SystemTime::now());
    Ok(())
}

/// Returns up to `limit` newest records. Unreadable records are omitted.
pub fn newest(limit: usize) -> Vec<Record> {
    list(Path::new(EXECUTIONS_FOLDER)).iter().take(limit).filter_map(|one| read(one).ok()).collect()
}

/// Returns the record of the execution that a text identifies: by its id, a prefix of it, or
/// `@latest`.
pub fn find(text: &str) -> Result<Option<Record>, Failure> {
    let all = list(Path::new(EXECUTIONS_FOLDER));
    let mut named = all.iter().filter(|one| text == "@latest" || one.id.starts_with(text));
    let Some(first) = named.next() else { return Ok(None) };
    if text != "@latest" && first.id != text && named.next().is_some() {
        let text = format!("'{text}' matches several executions of this folder");
        return Err(Failure::new(FailureKind::Usage, SEVERAL, text).hint("use a longer prefix"));
    }
    read(first).map(Some)
}

fn read(stored: &StoredRecord) -> Result<Record, Failure> {
    Ok(export_file::read(&stored.path)?.read_from(RecordSource::Folder))
}

/// Returns all records below a folder, newest first.
fn list(folder: &Path) -> Vec<StoredRecord> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut found: Vec<StoredRecord> = entries
        .filter_map(|entry| {
            let path = entry.path().join(RECORD_FILE);
            let about = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some(StoredRecord {
                id: entry.file_name().into_string().ok()?,
                modified: about.modified().ok()?,
                bytes: about.len(),
                path,
            })
        })
        .collect();
    found.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| b.id.cmp(&a.id)));
    found
}

/// Removes records that exceed the limits. The newest is always kept.
fn prune(newest_first: Vec<StoredRecord>, now: SystemTime) {
    let mut bytes = 0;
    for (n, one) in newest_first.into_iter().enumerate() {
        bytes += one.bytes;
        let age = now.duration_since(one.modified).unwrap_or_default();
        if n > 0 && (n >= MAX_RECORDS || bytes > MAX_RECORDS_BYTES || age > MAX_RECORD_AGE) {
            let _ = std::fs::remove_file(&one.path);
            // A folder that contains artifacts is kept.
            let _ = one.path.parent().map(std::fs::remove_dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_surplus_records_go_and_artifacts_stay() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        for (id, days) in [("new", 0), ("young", 2), ("old", 31), ("old-with-files", 32)] {
            let at = folder.path().join(id);
            std::fs::create_dir(&at).unwrap();
            let file = std::fs::File::create(at.join(RECORD_FILE)).unwrap();
            file.set_modified(now - Duration::from_hours(days * 24)).unwrap();
        }
        std::fs::create_dir(folder.path().join("old-with-files/files")).unwrap();
        prune(list(folder.path()), now);
        let left: Vec<String> = list(folder.path()).into_iter().map(|one| one.id).collect();
        assert_eq!(left, ["new", "young"]);
        assert!(!folder.path().join("old").exists() && folder.path().join("old-with-files/files").exists());
        let large = |n: u64| StoredRecord {
            id: n.to_string(),
            path: folder.path().join("young").join(RECORD_FILE),
            modified: now,
            bytes: MAX_RECORDS_BYTES,
        };
        prune(vec![large(0)], now);
        assert_eq!(list(folder.path()).len(), 2);
        prune(vec![large(0), large(1)], now);
        assert_eq!(list(folder.path()).len(), 1);
    }
}
