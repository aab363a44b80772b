//! The clients that fetch cards: of the hosts that the operator named, and of strangers behind their redirects.

use sinew_agents::{ReachableAddresses, WebClient};

use crate::bridge_file::BridgeSettings;
use crate::error::BridgeError;
use crate::named_hosts::{NamedHosts, unusable};

/// Clients of outside hosts.
#[derive(Debug)]
pub(crate) struct OutsideHosts {
    /// For hosts that the operator named: with the bridge's identity, in private networks too.
    pub(crate) named: NamedHosts,
    /// For all others: without identity, and public addresses only. A card must not lead into a private network.
    pub(crate) strangers: WebClient,
}

impl OutsideHosts {
    /// The clients of a bridge. Fails if its certificate cannot be used.
    pub(crate) fn new(settings: &BridgeSettings) -> Result<Self, BridgeError> {
        let strangers = WebClient::new(ReachableAddresses::Public).map_err(|error| unusable(&error))?;
        Ok(Self { named: NamedHosts::open(settings.identity.clone())?, strangers })
    }
}
