//! The index of an artifact folder: one JSON line per version, only ever appended to.
//!
//! Writers hold a lock on the file, read what others appended, then append and sync their own line. A crash leaves at
//! most a torn last line without a line feed; readers do not see it and the next writer cuts it off.

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
        // A FIFO in its place would be read without an end.
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

    /// Reads the complete lines that were appended since the last time.
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

    /// The next version of its artifact, if the line is one. The hash becomes a file name, so it is looked at closely.
    fn parse(&self, line: &[u8]) -> Option<ArtifactMeta> {
        let meta: ArtifactMeta = serde_json::from_slice(line).ok()?;
        let hash =
            meta.sha256.len() == 64 && meta.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (hash && self.versions(&meta.name).len() == meta.version as usize).then_some(meta)
    }

    /// Runs `write` while no other process or thread can append, on an index that is up to date.
    pub(crate) fn locked<T>(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<T, ArtifactError>,
    ) -> Result<T, ArtifactError> {
        self.file.lock().map_err(ArtifactError::io("lock the index"))?;
        let result = self.refresh().and_then(|()| write(self));
        let unlocked = self.file.unlock().map_err(ArtifactError::io("unlock the index"));
        result.and_then(|value| unlocked.map(|()| value))
    }

    /// Appends one version; only within [`Index::locked`].
    pub(crate) fn append(&mut self, meta: &ArtifactMeta) -> Result<(), ArtifactError> {
        let mut line =
            serde_json::to_vec(meta).map_err(|error| ArtifactError::io("write the index")(error.into()))?;
        line.push(b'\n');
        let mut write = || {
            // A torn line of a writer that died must not become the beginning of ours.
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
