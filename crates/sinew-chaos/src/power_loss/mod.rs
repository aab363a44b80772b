//! A disk that loses power: what was not synced is forgotten, in whole or in part, as a page cache and a disk's own memory do.

mod disk_file;
mod forgetful_disk;
#[cfg(target_os = "linux")]
mod mounted_disk;
#[cfg(not(target_os = "linux"))]
#[path = "no_mounted_disk.rs"]
mod mounted_disk;

pub(crate) use mounted_disk::MountedDisk;
