//! A disk that loses power: what was not synced is forgotten, in whole or in part, as a page cache and a disk's own memory do.
//! It can also be full, or read only.

mod disk_file;
mod forgetful_disk;
#[cfg(target_os = "linux")]
mod mounted_disk;
#[cfg(not(target_os = "linux"))]
#[path = "no_mounted_disk.rs"]
mod mounted_disk;

pub(crate) use mounted_disk::MountedDisk;

/// Reason for which a disk takes no changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRefusal {
    /// It has no room.
    Full,
    /// It can only be read, as a file system with errors.
    ReadOnly,
}
