//! The address and password of a running `sinew dev`, kept in its folder so that commands and agents find its mesh.
//!
//! `.sinew/dev.json` is for Sinew, `.sinew/dev.env` is for shells and agents in other languages. Only the user who started
//! `sinew dev` can read them. The note has a port of this machine, not an address: a note in a third-party folder cannot
//! send commands elsewhere.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sinew_files::FileReadError;
use sinew_mesh::private_file::write_private_file;
use sinew_mesh::server::SERVER_USER;
use sinew_protocol::env;

use crate::failure::Failure;
use crate::private_folder::keep_state_private;

/// The note, below the folder in which `sinew dev` was started.
const DEV_FILE: &str = ".sinew/dev.json";
/// The same as variables, below that folder.
const ENV_FILE: &str = ".sinew/dev.env";
/// File with the password, in the data folder.
const PASSWORD_FILE: &str = "password";
/// Maximum size of a note, and of a password.
const MAX_FILE_BYTES: u64 = 4096;
/// Port of a NATS server whose address has none.
const DEFAULT_PORT: &str = "4222";
/// Time limit for connecting to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// The mesh of a running `sinew dev`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningDev {
    /// Ports of the servers.
    ports: Vec<u16>,
    /// Name of the mesh.
    pub namespace: String,
    /// Password of [`RunningDev::user`].
    pub password: String,
}

impl fmt::Debug for RunningDev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningDev").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl RunningDev {
    /// Returns the mesh of the `sinew dev` started in a folder, or `None` if its server does not
    /// respond.
    pub fn find(folder: &Path) -> Option<Self> {
        let bytes = sinew_files::read_file(&folder.join(DEV_FILE), MAX_FILE_BYTES).ok()?;
        let note: Self = serde_json::from_slice(&bytes).ok()?;
        let answers = |port: &u16| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
            TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()
        };
        note.ports.iter().any(answers).then_some(note)
    }

    /// Returns the addresses of the servers, separated by commas.
    pub fn url(&self) -> String {
        let urls: Vec<String> = self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        urls.join(",")
    }

    /// Returns the user of the server.
    pub fn user(&self) -> &'static str {
        SERVER_USER
    }

    /// Returns whether all these comma-separated addresses belong to the servers, without their own
    /// credentials.
    pub fn has_addresses(&self, urls: &str) -> bool {
        urls.split(',').all(|url| {
            let host = url.trim().trim_start_matches("nats://").trim_end_matches('/');
            let (name, port) = host.split_once(':').unwrap_or((host, DEFAULT_PORT));
            let is_local = matches!(name, "127.0.0.1" | "localhost");
            is_local && port.parse().is_ok_and(|port: u16| self.ports.contains(&port))
        })
    }
}

/// Returns the password of a server with this store: random, and the same at each start. Without a
/// store it is new.
pub fn server_password(store: Option<&Path>) -> Result<String, Failure> {
    let new = || format!("{:032x}", rand::random::<u128>());
    let Some(store) = store else { return Ok(new()) };
    let path = store.join(PASSWORD_FILE);
    match sinew_files::read_text_file(&path, MAX_FILE_BYTES) {
        Ok(password) if is_password(&password) => return Ok(password),
        Err(FileReadError::Io(error)) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Failure::unreadable(&path, &error));
        }
        _ => {}
    }
    let password = new();
    std::fs::create_dir_all(store).map_err(|error| Failure::unreadable(store, &error))?;
    write_private_file(&path, password.as_bytes()).map_err(|error| Failure::unreadable(&path, &error))?;
    Ok(password)
}

/// Returns whether [`server_password`] could have created the text, which is part of the server's
/// configuration.
fn is_password(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The note of this process, removed on drop.
#[derive(Debug)]
pub struct DevNote;

impl DevNote {
    /// Writes the note to the current folder. Returns `None` if the folder is not writable.
    pub fn write(ports: Vec<u16>, namespace: &str, password: &str) -> Option<Self> {
        let note = RunningDev { ports, namespace: namespace.to_owned(), password: password.to_owned() };
        keep_state_private(Path::new(DEV_FILE)).ok()?;
        // Removes the files if one of them cannot be written.
        let written = Self;
        write_private_file(Path::new(DEV_FILE), &serde_json::to_vec(&note).ok()?).ok()?;
        let variables = [
            (env::NATS_URL, note.url().as_str()),
            (env::NATS_USER, note.user()),
            (env::NATS_PASSWORD, password),
            (env::NAMESPACE, namespace),
        ]
        .map(|(name, value)| format!("{name}={value}\n"));
        write_private_file(Path::new(ENV_FILE), variables.concat().as_bytes()).ok()?;
        Some(written)
    }

    /// Returns the file with the variables that connect an agent or a tool to the mesh.
    pub fn env_file(&self) -> PathBuf {
        PathBuf::from(ENV_FILE)
    }
}

impl Drop for DevNote {
    fn drop(&mut self) {
        for file in [DEV_FILE, ENV_FILE] {
            let _ = std::fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_of_a_store_is_kept_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let first = server_password(Some(&store)).unwrap();
        assert!(is_password(&first));
        assert_eq!(server_password(Some(&store)).unwrap(), first);
        assert_ne!(server_password(None).unwrap(), first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(store.join(PASSWORD_FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        // A text that is not a password never reaches the server's configuration.
        std::fs::write(store.join(PASSWORD_FILE), "\" } system_account: \"X").unwrap();
        assert!(is_password(&server_password(Some(&store)).unwrap()));
    }

    #[test]
    fn password_goes_to_its_own_server_only() {
        let dev = RunningDev { ports: vec![4333, 4334], namespace: "sinew".into(), password: "p".into() };
        for (urls, expected) in [
            ("nats://127.0.0.1:4333", true),
            ("localhost:4333", true),
            ("nats://127.0.0.1:4333,nats://127.0.0.1:4334", true),
            ("nats://127.0.0.1:4333,nats://example.com:4222", false),
            ("localhost", false),
            ("nats://127.0.0.1:43330", false),
            ("nats://example.com:4333", false),
            ("nats://me:secret@127.0.0.1:4333", false),
            ("nats://127.0.0.1:4333.example.com", false),
        ] {
            assert_eq!(dev.has_addresses(urls), expected, "{urls}");
        }
        let usual = RunningDev { ports: vec![4222], ..dev };
        assert!(usual.has_addresses("localhost") && usual.has_addresses("nats://127.0.0.1"));
    }
}
