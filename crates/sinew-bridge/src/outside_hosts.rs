//! HTTP clients that fetch cards: from configured hosts, and from other hosts after redirects.

use sinew_agents::{ReachableAddresses, WebClient};

use crate::bridge_file::BridgeSettings;
use crate::error::BridgeError;
use crate::named_hosts::{NamedHosts, unusable};

/// HTTP clients of a bridge.
#[derive(Debug)]
pub(crate) struct OutsideHosts {
    /// For configured hosts: with the bridge's identity, in private networks too.
    pub(crate) named: NamedHosts,
    /// For all other hosts: without identity, and public addresses only, because a card must not
    /// give access to a private network.
    pub(crate) strangers: WebClient,
}

impl OutsideHosts {
    /// Creates the clients of a bridge. Fails if its certificate cannot be used.
    pub(crate) fn new(settings: &BridgeSettings) -> Result<Self, BridgeError> {
        let strangers = WebClient::new(ReachableAddresses::Public).map_err(|error| unusable(&error))?;
        Ok(Self { named: NamedHosts::open(settings.identity.clone())?, strangers })
    }
}
