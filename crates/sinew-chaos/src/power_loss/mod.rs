//! A disk that loses unsynced writes, in whole or in part, in a power cut, as page cache and disk cache
//! do. It can also be full, or read-only.

mod disk_file;
mod forgetful_disk;
#[cfg(target_os = "linux")]
mod mounted_disk;
#[cfg(not(target_os = "linux"))]
#[path = "no_mounted_disk.rs"]
mod mounted_disk;

pub(crate) use mounted_disk::MountedDisk;

/// Reason why a disk refuses changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRefusal {
    /// The disk is full.
    Full,
    /// The disk is read-only, as a file system with errors.
    ReadOnly,
}
