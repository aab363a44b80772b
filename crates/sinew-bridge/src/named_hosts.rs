//! HTTP client for configured hosts, with certificates from files that may be replaced at any time.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sinew_agents::{ReachableAddresses, WebClient, WebIdentity};
use sinew_files::read_file;

use crate::error::BridgeError;

/// Maximum size of a file of certificates or keys, in bytes.
const MAX_PEM_BYTES: u64 = 256 << 10;

/// Files of the certificates that a bridge presents and trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdentityFiles {
    /// Certificate with its chain, and its key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    /// Authorities of trusted servers; `None` for those of the system.
    pub(crate) authorities: Option<PathBuf>,
}

impl IdentityFiles {
    /// Reads the current certificates.
    pub(crate) fn read(&self) -> Result<WebIdentity, BridgeError> {
        let pem = |setting: &'static str, path: &Path| {
            read_file(path, MAX_PEM_BYTES).map_err(|error| {
                let reason = error.to_string();
                BridgeError::Setting { setting, reason }
            })
        };
        let certificate = match &self.certificate {
            None => None,
            Some((certificate, key)) => Some((pem("certificate", certificate)?, pem("certificate", key)?)),
        };
        let authorities = self.authorities.as_deref().map(|path| pem("authorities", path)).transpose()?;
        Ok(WebIdentity { certificate, authorities })
    }

    fn is_empty(&self) -> bool {
        self == &Self::default()
    }
}

/// HTTP client for configured hosts. Changed certificate files take effect with the next request.
#[derive(Debug)]
pub(crate) struct NamedHosts {
    files: IdentityFiles,
    held: Mutex<HeldClient>,
}

/// Client with the certificates that it was created from.
#[derive(Debug)]
struct HeldClient {
    client: WebClient,
    identity: WebIdentity,
    /// Unusable certificates, so that each is logged only once.
    refused: Option<WebIdentity>,
}

impl NamedHosts {
    /// Reads the files. Fails if their certificates cannot be used.
    pub(crate) fn open(files: IdentityFiles) -> Result<Self, BridgeError> {
        let identity = files.read()?;
        let client = client_of(&identity)?;
        Ok(Self { files, held: Mutex::new(HeldClient { client, identity, refused: None }) })
    }

    /// Returns a client with the current certificates. A certificate and its key may be replaced
    /// one after the other: until they match, the old ones are used.
    pub(crate) fn client(&self) -> WebClient {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if self.files.is_empty() {
            return held.client.clone();
        }
        match self.files.read() {
            Err(error) => tracing::warn!(%error, code = error.code(), "cannot read the certificates"),
            Ok(identity) if identity == held.identity || held.refused.as_ref() == Some(&identity) => {}
            Ok(identity) => match client_of(&identity) {
                Ok(client) => {
                    tracing::info!("reloaded the certificates");
                    *held = HeldClient { client, identity, refused: None };
                }
                Err(error) => {
                    tracing::warn!(%error, code = error.code(), "cannot use the new certificates; the previous ones remain in use");
                    held.refused = Some(identity);
                }
            },
        }
        held.client.clone()
    }
}

fn client_of(identity: &WebIdentity) -> Result<WebClient, BridgeError> {
    WebClient::with_identity(ReachableAddresses::All, identity).map_err(|error| unusable(&error))
}

/// Returns the error for unusable certificates.
pub(crate) fn unusable(error: &dyn std::fmt::Display) -> BridgeError {
    BridgeError::Setting { setting: "certificate", reason: error.to_string() }
}
