//! Files that an agent file references: instructions, scripts, skills, models.

use std::path::{Path, PathBuf};

use sinew_files::{read_file, read_text_file};

/// Reason why a file that a posted agent file references is not read.
const NOTHING_BESIDE: &str = "an uploaded file cannot reference other files";

/// Location of the files that an agent file references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedFiles {
    /// On disk, relative to the folder of the agent file.
    OnDisk,
    /// Unavailable: a client sent the agent file and must not make this process read others.
    Absent,
}

impl NamedFiles {
    pub(crate) fn read(self, path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
        match self {
            Self::OnDisk => read_file(path, max_bytes).map_err(|error| error.to_string()),
            Self::Absent => Err(NOTHING_BESIDE.to_owned()),
        }
    }

    pub(crate) fn read_text(self, path: &Path, max_bytes: u64) -> Result<String, String> {
        match self {
            Self::OnDisk => read_text_file(path, max_bytes).map_err(|error| error.to_string()),
            Self::Absent => Err(NOTHING_BESIDE.to_owned()),
        }
    }

    /// Returns the folder of an agent file as an absolute path, because programs run in it. A posted
    /// file has none.
    pub(crate) fn folder_of(self, path: &Path) -> PathBuf {
        if self == Self::Absent {
            return PathBuf::new();
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
    }
}
