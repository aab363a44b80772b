//! Documents that an OpenID provider publishes: its description and its keys, fetched on demand and
//! cached while the provider is unreachable.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{Jwk, JwkSet};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sinew_agents::WebClient;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use url::Url;

use crate::options::OidcOptions;

/// Maximum size of a provider's document.
const MAX_DOCUMENT_BYTES: usize = 512 << 10;
/// Minimum interval between fetches, so that a flood of tokens with unknown keys does not reach the
/// provider.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of requests that wait for a fetch; each holds a permit of the gateway. Further
/// requests are rejected.
const MAX_WAITING: usize = 64;
/// How long a request waits for newer documents if older ones are available.
const REFRESH_WAIT: Duration = Duration::from_secs(1);

/// Reason why no key is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingKey {
    /// The provider has no such key.
    Unknown,
    /// The provider did not answer.
    Unreachable,
}

/// A provider's published description.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ProviderDescription {
    issuer: String,
    jwks_uri: String,
    /// Page where people sign in.
    #[serde(default)]
    pub(super) authorization_endpoint: String,
    /// Address that exchanges a sign-in's code for tokens.
    #[serde(default)]
    pub(super) token_endpoint: String,
}

/// A provider's most recent description.
#[derive(Clone)]
struct FetchedProvider {
    keys: Arc<JwkSet>,
    description: Arc<ProviderDescription>,
    at: Instant,
}

/// A provider's most recently fetched documents.
pub(super) struct ProviderDocuments {
    /// Address of the provider, as in its documents and tokens.
    name: String,
    issuer: Url,
    http: WebClient,
    answer_timeout: Duration,
    max_age: Duration,
    fetched: RwLock<Option<FetchedProvider>>,
    /// Time of the last fetch, successful or not. Locked while a fetch is in progress.
    last_fetch: Arc<Mutex<Option<Instant>>>,
    /// Permits for requests that wait for a fetch, because anybody can send a token with an unknown
    /// key.
    waiting: Semaphore,
}

impl ProviderDocuments {
    /// Creates the documents of a provider, with nothing fetched yet.
    pub(super) fn new(options: &OidcOptions, issuer: Url, http: WebClient) -> Self {
        Self {
            name: options.issuer.clone(),
            issuer,
            http,
            answer_timeout: options.answer_timeout,
            max_age: options.max_key_age,
            fetched: RwLock::default(),
            last_fetch: Arc::default(),
            waiting: Semaphore::new(MAX_WAITING),
        }
    }

    /// Returns the provider's description, outdated only while the provider is slow or unreachable.
    /// Returns `None` if it was never fetched.
    pub(super) async fn description(self: &Arc<Self>) -> Option<Arc<ProviderDescription>> {
        match self.known() {
            None => drop(self.fetch(None).await),
            Some(known) if known.at.elapsed() >= self.max_age => self.refresh(known.at).await,
            Some(_) => {}
        }
        self.known().map(|known| known.description)
    }

    /// Returns the key with this id. Fetches the keys if it is unknown or the keys are old.
    pub(super) async fn key(self: &Arc<Self>, kid: Option<&str>) -> Result<Jwk, MissingKey> {
        let known = self.known();
        let seen = known.as_ref().map(|known| known.at);
        let is_fetched = match (known.as_ref().and_then(|known| pick(&known.keys, kid)), seen) {
            (Some(key), Some(at)) if at.elapsed() < self.max_age => return Ok(key),
            (Some(_), Some(at)) => {
                self.refresh(at).await;
                true
            }
            _ => self.fetch(seen).await,
        };
        // Cached keys remain valid while the provider is unreachable.
        let known = self.known().ok_or(MissingKey::Unreachable)?;
        let missing = if is_fetched { MissingKey::Unknown } else { MissingKey::Unreachable };
        pick(&known.keys, kid).ok_or(missing)
    }

    fn known(&self) -> Option<FetchedProvider> {
        self.fetched.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets one request start a fetch of outdated documents and wait briefly. Other requests use
    /// the old documents, because the provider may be slow or unreachable.
    async fn refresh(self: &Arc<Self>, seen: Instant) {
        let Ok(last) = Arc::clone(&self.last_fetch).try_lock_owned() else { return };
        let documents = Arc::clone(self);
        let fetching = tokio::spawn(async move { documents.fetch_once(last, Some(seen)).await });
        // A slower fetch continues.
        let _ = tokio::time::timeout(REFRESH_WAIT, fetching).await;
    }

    /// Fetches the documents unless another request did so just now. Returns whether they are the
    /// provider's.
    async fn fetch(self: &Arc<Self>, seen: Option<Instant>) -> bool {
        let Ok(_place) = self.waiting.try_acquire() else { return false };
        let last = Arc::clone(&self.last_fetch).lock_owned().await;
        // The fetch continues and counts if its client disconnects, so that clients that disconnect
        // cause no more fetches than clients that wait.
        let documents = Arc::clone(self);
        tokio::spawn(async move { documents.fetch_once(last, seen).await }).await.unwrap_or(false)
    }

    async fn fetch_once(&self, mut last: OwnedMutexGuard<Option<Instant>>, seen: Option<Instant>) -> bool {
        if self.known().map(|known| known.at) != seen {
            return true;
        }
        if last.is_some_and(|last| last.elapsed() < MIN_FETCH_INTERVAL) {
            return seen.is_some();
        }
        let read = self.read_provider().await;
        // Waiting requests must not each query an unreachable provider again.
        *last = Some(Instant::now());
        match read {
            Ok((description, keys)) => {
                let (description, keys) = (Arc::new(description), Arc::new(keys));
                let fetched = FetchedProvider { keys, description, at: Instant::now() };
                *self.fetched.write().unwrap_or_else(PoisonError::into_inner) = Some(fetched);
                true
            }
            Err(reason) => {
                tracing::warn!(issuer = self.name, reason, "cannot read the keys of a provider");
                false
            }
        }
    }

    async fn read_provider(&self) -> Result<(ProviderDescription, JwkSet), String> {
        let path = format!("{}/.well-known/openid-configuration", self.issuer.path().trim_end_matches('/'));
        let mut address = self.issuer.clone();
        address.set_path(&path);
        let description: ProviderDescription = self.read_document(address).await?;
        if description.issuer != self.name {
            return Err("its description names another issuer".to_owned());
        }
        let address = Url::parse(&description.jwks_uri).map_err(|error| error.to_string())?;
        if !is_safe(&address) {
            return Err("the address of its keys does not use https".to_owned());
        }
        Ok((description, self.read_document(address).await?))
    }

    async fn read_document<T: DeserializeOwned>(&self, address: Url) -> Result<T, String> {
        let body = self.http.get(address.as_str(), MAX_DOCUMENT_BYTES, self.answer_timeout).await;
        let body = body.map_err(|error| error.to_string())?;
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    }
}

/// Returns the key with this id; without an id, the only key.
fn pick(keys: &JwkSet, kid: Option<&str>) -> Option<Jwk> {
    match (kid, keys.keys.as_slice()) {
        (Some(kid), _) => keys.find(kid).cloned(),
        (None, [only]) => Some(only.clone()),
        (None, _) => None,
    }
}

/// Returns whether documents read from this address cannot be tampered with in transit.
pub(super) fn is_safe(address: &Url) -> bool {
    let is_own = matches!(address.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    address.scheme() == "https" || (address.scheme() == "http" && is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_where_nobody_can_replace_them() {
        let check = |address: &str, expected: bool| {
            assert_eq!(is_safe(&Url::parse(address).unwrap()), expected, "{address}");
        };
        check("https://login.example.com/a", true);
        check("http://127.0.0.1:9/a", true);
        check("http://[::1]:9", true);
        check("http://login.example.com", false);
        check("http://127.0.0.1.example.com", false);
        check("file:///etc/passwd", false);
    }
}
