//! Fails on systems without FUSE.

use std::path::Path;

use super::WriteRefusal;
use crate::Fallible;

/// A mounted disk, not supported on this system.
#[derive(Debug)]
pub(crate) struct MountedDisk;

impl MountedDisk {
    pub(crate) fn mount(_: &Path) -> Fallible<Self> {
        Err("power cuts need Linux with /dev/fuse".into())
    }

    pub(crate) fn cut_power(&self, _: u64) {}

    pub(crate) fn keep_all(&self) {}

    pub(crate) fn refuse_writes(&self, _: Option<WriteRefusal>) {}

    pub(crate) fn refused(&self) -> u64 {
        0
    }

    pub(crate) fn forgotten(&self) -> u64 {
        0
    }
}
