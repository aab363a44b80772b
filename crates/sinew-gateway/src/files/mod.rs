//! Files of tasks over HTTP: artifacts that lie on the mesh have addresses of this gateway.
//!
//! An address of the mesh says where bytes lie and never who may read them. What leaves the gateway is an address of its own,
//! signed and with an end: whoever has it may read these bytes until then, without a key.

mod byte_range;
mod download;
mod file_link;
mod file_permits;

pub(crate) use download::{FileBytes, saved_as, serve};
pub(crate) use file_link::FileLinks;
pub(crate) use file_permits::take_place;
