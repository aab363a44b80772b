//! Reads files from user-supplied paths: workflows, includes, inputs, artifacts, agent files,
//! credentials.
//!
//! Layer: opens every path that comes from a command line, a context or another file. A file is
//! read up to the limit of its reader, so a file that grows, or reports no size (`/proc`), needs no
//! more memory than that. FIFOs, sockets, devices and folders are rejected without blocking: they
//! are checked before they are opened, opened in non-blocking mode, and checked again.
//!
//! It never decides which paths may be read, parses nothing, and writes nothing.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use sinew_codes as code;

/// Reason why a file was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileReadError {
    /// The system returned an error: the file does not exist, may not be read, or the disk failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The path is not a regular file.
    #[error("it is {kind}, not a regular file")]
    NotRegular {
        /// Kind of the file, with its article.
        kind: &'static str,
    },
    /// The content exceeds the limit.
    #[error("it is larger than {max_bytes} bytes")]
    TooLarge {
        /// Limit in bytes.
        max_bytes: u64,
    },
    /// The content is not UTF-8.
    #[error("it is not valid UTF-8")]
    NotText,
}

impl FileReadError {
    /// Returns the operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io(_) => code::FILE_CANNOT_BE_READ.as_str(),
            Self::NotRegular { .. } => code::NOT_REGULAR_FILE.as_str(),
            Self::TooLarge { .. } => code::FILE_TOO_LARGE.as_str(),
            Self::NotText => code::TEXT_NOT_VALID_UTF_8.as_str(),
        }
    }

    /// Returns the kind of the system's error, or [`io::ErrorKind::Other`].
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io(error) => error.kind(),
            _ => io::ErrorKind::Other,
        }
    }
}

/// Reads a regular file of at most `max_bytes` bytes.
pub fn read_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>, FileReadError> {
    read_to_limit(open_file(path)?, max_bytes)
}

/// Reads a regular file of at most `max_bytes` bytes as UTF-8 text.
pub fn read_text_file(path: &Path, max_bytes: u64) -> Result<String, FileReadError> {
    String::from_utf8(read_file(path, max_bytes)?).map_err(|_| FileReadError::NotText)
}

/// Reads at most `max_bytes` bytes of standard input.
pub fn read_stdin(max_bytes: u64) -> Result<Vec<u8>, FileReadError> {
    read_to_limit(io::stdin().lock(), max_bytes)
}

/// Returns whether a path refers to standard input: `-`, or one of the system's names for it.
pub fn is_stdin(path: &Path) -> bool {
    ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| path == Path::new(name))
}

/// Opens a regular file for reading. Does not block: a FIFO without a writer is rejected.
pub fn open_file(path: &Path) -> Result<File, FileReadError> {
    // Opening some devices has side effects, so the path is checked first, and then the opened
    // file.
    check_regular(&std::fs::metadata(path)?)?;
    let file = open_without_waiting(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

fn read_to_limit(from: impl Read, max_bytes: u64) -> Result<Vec<u8>, FileReadError> {
    let mut bytes = Vec::new();
    from.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(FileReadError::TooLarge { max_bytes });
    }
    Ok(bytes)
}

fn check_regular(metadata: &Metadata) -> Result<(), FileReadError> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(FileReadError::NotRegular { kind: kind_of(metadata.file_type()) })
}

#[cfg(unix)]
fn open_without_waiting(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(not(unix))]
fn open_without_waiting(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

#[cfg(unix)]
fn kind_of(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => "something else",
    }
}

#[cfg(not(unix))]
fn kind_of(kind: FileType) -> &'static str {
    if kind.is_dir() { "a folder" } else { "something else" }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("five"), "12345").unwrap();
        std::fs::write(at("bytes"), b"\xff").unwrap();
        std::os::unix::fs::symlink(at("five"), at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), mode).unwrap();
        let cases = [
            (at("five"), 5, Ok("12345")),
            (at("link"), 5, Ok("12345")),
            (at("five"), 4, Err("SINEW-1006 it is larger than 4 bytes")),
            (at("bytes"), 5, Err("SINEW-1001 it is not valid UTF-8")),
            (at("fifo"), 5, Err("SINEW-1019 it is a FIFO, not a regular file")),
            (at("socket"), 5, Err("SINEW-1019 it is a socket, not a regular file")),
            (at("zero"), 5, Err("SINEW-1019 it is a device, not a regular file")),
            ("/dev/null".into(), 5, Err("SINEW-1019 it is a device, not a regular file")),
            (folder.path().to_owned(), 5, Err("SINEW-1019 it is a folder, not a regular file")),
            (at("none"), 5, Err("SINEW-8002 No such file or directory (os error 2)")),
            // Reports a size of 0 but contains more.
            ("/proc/self/status".into(), 9, Err("SINEW-1006 it is larger than 9 bytes")),
        ];
        for (path, max_bytes, expected) in cases {
            let got = read_text_file(&path, max_bytes).map_err(|error| format!("{} {error}", error.code()));
            assert_eq!(got, expected.map(str::to_owned).map_err(str::to_owned), "{}", path.display());
        }
    }

    #[test]
    fn standard_input_has_several_names() {
        for (path, expected) in
            [("-", true), ("/dev/stdin", true), ("/dev/fd/0", true), ("./-", false), ("/dev/zero", false)]
        {
            assert_eq!(is_stdin(Path::new(path)), expected, "{path}");
        }
    }
}
