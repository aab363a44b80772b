//! The note that a running `sinew dev` leaves in its folder, so that commands in that folder find its mesh.
//!
//! The note names a port of this machine and nothing else: a folder that comes from others cannot send commands elsewhere.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::private_folder::keep_state_private;

/// The note, in the folder that `sinew dev` was started in.
const DEV_FILE: &str = ".sinew/dev.json";
/// Bytes of a note.
const MAX_DEV_FILE_BYTES: u64 = 4096;
/// Time for the server to take a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// The mesh of a `sinew dev` that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningDev {
    port: u16,
    /// Name of the mesh.
    pub namespace: String,
}

impl RunningDev {
    /// Returns the mesh of the `sinew dev` that runs in the current folder; none if its server does not answer.
    pub fn find() -> Option<Self> {
        let bytes = sinew_files::read_file(Path::new(DEV_FILE), MAX_DEV_FILE_BYTES).ok()?;
        let note: Self = serde_json::from_slice(&bytes).ok()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, note.port));
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok().then_some(note)
    }

    /// Address of the server.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

/// A note that goes with its `sinew dev`.
#[derive(Debug)]
pub struct DevNote(PathBuf);

impl DevNote {
    /// Leaves a note. A folder that cannot be written to gets none.
    pub fn write(port: u16, namespace: &str) -> Option<Self> {
        let note = RunningDev { port, namespace: namespace.to_owned() };
        let path = PathBuf::from(DEV_FILE);
        keep_state_private(&path).ok()?;
        std::fs::write(&path, serde_json::to_vec(&note).ok()?).ok()?;
        Some(Self(path))
    }
}

impl Drop for DevNote {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
