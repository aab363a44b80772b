//! The index of an artifact folder: an append-only file with one JSON line per version.
//!
//! A writer locks the file, reads new lines, then appends and syncs its own. A crash leaves at most
//! a partial last line without a line feed. Readers ignore it, and the next writer truncates it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use sinew_protocol::{ArtifactMeta, ArtifactName};

use crate::error::ArtifactError;

#[derive(Debug)]
pub(crate) struct Index {
    file: File,
    /// End of the last complete line read so far.
    end: u64,
    lines: usize,
    versions: BTreeMap<ArtifactName, Vec<ArtifactMeta>>,
    /// Bytes of all versions.
    pub(crate) total: u64,
}

impl Index {
    pub(crate) fn open(path: &std::path::Path) -> Result<Self, ArtifactError> {
        // Reading a FIFO would never end.
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            let error = std::io::Error::other("it is not a regular file");
            return Err(ArtifactError::io("open the index")(error));
        }
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(ArtifactError::io("open the index"))?;
        let mut index = Self { file, end: 0, lines: 0, versions: BTreeMap::new(), total: 0 };
        index.refresh()?;
        Ok(index)
    }

    /// Reads the complete lines appended since the previous read.
    pub(crate) fn refresh(&mut self) -> Result<(), ArtifactError> {
        let mut bytes = Vec::new();
        let read = |file: &mut File, bytes: &mut Vec<u8>| {
            file.seek(SeekFrom::Start(self.end))?;
            file.read_to_end(bytes)
        };
        read(&mut self.file, &mut bytes).map_err(ArtifactError::io("read the index"))?;
        for line in bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let meta = self.parse(line).ok_or(ArtifactError::Index { line: self.lines + 1 })?;
            self.total = self.total.saturating_add(meta.size);
            self.versions.entry(meta.name.clone()).or_default().push(meta);
            self.lines += 1;
            self.end += line.len() as u64;
        }
        Ok(())
    }

    /// Parses a line; `None` unless it is the next version of its artifact. Validates the hash,
    /// because it becomes a file name.
    fn parse(&self, line: &[u8]) -> Option<ArtifactMeta> {
        let meta: ArtifactMeta = serde_json::from_slice(line).ok()?;
        let hash =
            meta.sha256.len() == 64 && meta.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (hash && self.versions(&meta.name).len() == meta.version as usize).then_some(meta)
    }

    /// Runs `write` on the refreshed index while no other process or thread can append.
    pub(crate) fn locked<T>(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<T, ArtifactError>,
    ) -> Result<T, ArtifactError> {
        self.file.lock().map_err(ArtifactError::io("lock the index"))?;
        let result = self.refresh().and_then(|()| write(self));
        let unlocked = self.file.unlock().map_err(ArtifactError::io("unlock the index"));
        result.and_then(|value| unlocked.map(|()| value))
    }

    /// Appends one version. Call it only within [`Index::locked`].
    pub(crate) fn append(&mut self, meta: &ArtifactMeta) -> Result<(), ArtifactError> {
        let mut line =
            serde_json::to_vec(meta).map_err(|error| ArtifactError::io("write the index")(error.into()))?;
        line.push(b'\n');
        let mut write = || {
            // Truncate the partial line of a crashed writer; the new line must not continue it.
            if self.file.metadata()?.len() > self.end {
                self.file.set_len(self.end)?;
            }
            self.file.write_all(&line)?;
            self.file.sync_data()
        };
        write().map_err(ArtifactError::io("write the index"))?;
        self.refresh()
    }

    pub(crate) fn versions(&self, name: &ArtifactName) -> &[ArtifactMeta] {
        self.versions.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &ArtifactMeta> {
        self.versions.values().flatten()
    }
}
