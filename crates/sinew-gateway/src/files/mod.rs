//! Task files over HTTP: artifacts stored on the mesh get addresses of this gateway.
//!
//! An address of the mesh identifies bytes but grants no access. Clients get an address of the
//! gateway instead, which is signed and expires: its holder can read these bytes until then without
//! a key.

mod byte_range;
mod download;
mod file_permits;

pub(crate) use download::{FileBytes, saved_as, serve};
pub(crate) use file_permits::take_place;
