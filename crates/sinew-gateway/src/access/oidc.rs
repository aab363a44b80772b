//! Tokens of an OpenID provider: JWTs that name caller and rights, signed with keys that the provider publishes.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};
use sinew_agents::{ReachableAddresses, WebClient};
use sinew_protocol::Token;
use sinew_protocol::access::{AccessRole, OIDC_CALLER_PREFIX};
use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit};
use url::Url;

use super::caller::CallerIdentity;
use super::ring_verifier::{ALGORITHMS, install};
use crate::error::GatewayError;
use crate::options::{OidcClient, OidcOptions};

/// Bytes of a token.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Bytes of a document of the provider.
const MAX_DOCUMENT_BYTES: usize = 512 << 10;
/// How long a document of the provider may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Age after which keys are fetched again when a token comes.
const MAX_KEY_AGE: Duration = Duration::from_mins(10);
/// Shortest time between two fetches: a flood of tokens with unknown keys must not become one of fetches.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// Codes of sign-ins that are exchanged at once: a flood of them must not reach the provider.
const MAX_EXCHANGES: usize = 8;
/// Scopes that give rights begin with this: `sinew:client`, `sinew:client:orders-*`.
const SCOPE_PREFIX: &str = "sinew:";

/// Reason why a token does not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefusal {
    /// The text is not a token.
    #[error("it is not a token")]
    NotAToken,
    /// Its signature is by an algorithm that is not taken.
    #[error("it is not signed by an algorithm with a public key")]
    Algorithm,
    /// Its key is not among those of the provider.
    #[error("its key is not one of the provider's")]
    UnknownKey,
    /// Its signature does not fit.
    #[error("its signature does not fit")]
    Signature,
    /// Its time is over, or has not begun.
    #[error("it has expired, or is not valid yet")]
    Time,
    /// It was made for another service, or by another provider.
    #[error("its audience or issuer is another one")]
    Audience,
    /// It lacks a claim, or has one of a wrong type.
    #[error("it lacks the claim {0}, or has it in another form")]
    Claim(String),
    /// It has no scope of this service.
    #[error("it has no scope sinew:operator, sinew:client or sinew:admin")]
    Scope,
    /// The keys of the provider cannot be had.
    #[error("the keys of the provider cannot be read")]
    Provider,
}

/// A provider as it described itself last.
#[derive(Clone)]
struct FetchedProvider {
    keys: Arc<JwkSet>,
    description: Arc<ProviderDescription>,
    at: Instant,
}

/// A provider, with its keys as they were fetched last.
pub(super) struct OidcProvider {
    options: OidcOptions,
    issuer: Url,
    http: WebClient,
    fetched: RwLock<Option<FetchedProvider>>,
    /// Time of the last fetch, failed ones counted. Held while a fetch goes on.
    last_fetch: tokio::sync::Mutex<Option<Instant>>,
    /// Places of codes that are exchanged: anybody can come back with a code.
    exchanges: Semaphore,
}

/// Description that a provider publishes of itself.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct ProviderDescription {
    issuer: String,
    jwks_uri: String,
    /// Page on which people sign in.
    #[serde(default)]
    pub(super) authorization_endpoint: String,
    /// Address that gives tokens for the code of a sign-in.
    #[serde(default)]
    pub(super) token_endpoint: String,
}

impl OidcProvider {
    /// A provider. Its keys are fetched when the first token comes.
    pub(super) fn new(options: OidcOptions) -> Result<Self, GatewayError> {
        install();
        let bad = |reason: String| GatewayError::Provider { issuer: options.issuer.clone(), reason };
        let issuer = Url::parse(&options.issuer).map_err(|error| bad(error.to_string()))?;
        if !is_safe(&issuer) {
            return Err(bad("expected an address with https".to_owned()));
        }
        // The operator chose the provider, which may stand in a private network.
        let http = WebClient::new(ReachableAddresses::All).map_err(|error| bad(error.to_string()))?;
        Ok(Self {
            options,
            issuer,
            http,
            fetched: RwLock::default(),
            last_fetch: tokio::sync::Mutex::default(),
            exchanges: Semaphore::new(MAX_EXCHANGES),
        })
    }

    /// Address of the provider.
    pub(super) fn issuer(&self) -> &str {
        &self.options.issuer
    }

    /// Host of the provider, by which people know it.
    pub(super) fn host(&self) -> &str {
        self.issuer.host_str().unwrap_or_default()
    }

    /// The gateway as a client of the provider; `None` if people do not sign in through it.
    pub(super) fn client(&self) -> Option<&OidcClient> {
        self.options.client.as_ref()
    }

    /// Waits for a place to exchange a code.
    pub(super) async fn exchange_place(&self) -> Option<SemaphorePermit<'_>> {
        self.exchanges.acquire().await.ok()
    }

    /// Client of HTTP for the provider.
    pub(super) fn http(&self) -> &WebClient {
        &self.http
    }

    /// The caller that a token names.
    pub(super) async fn caller_of(&self, token: &str) -> Result<CallerIdentity, TokenRefusal> {
        self.identity(&self.claims_of(token).await?)
    }

    /// Claims of a token that opens.
    pub(super) async fn claims_of(&self, token: &str) -> Result<Map<String, Value>, TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES || token.bytes().filter(|byte| *byte == b'.').count() != 2 {
            return Err(TokenRefusal::NotAToken);
        }
        let header = decode_header(token).map_err(|error| match error.kind() {
            // An algorithm that the library does not know, `none` among them, is an unknown variant.
            ErrorKind::Json(_) => TokenRefusal::Algorithm,
            _ => TokenRefusal::NotAToken,
        })?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(TokenRefusal::Algorithm);
        }
        let key = self.key(header.kid.as_deref()).await?;
        self.checked_claims(token, &key, header.alg)
    }

    /// The description of the provider, at most [`MAX_KEY_AGE`] old unless the provider is away.
    pub(super) async fn description(&self) -> Result<Arc<ProviderDescription>, TokenRefusal> {
        let known = self.known();
        if known.as_ref().is_none_or(|known| known.at.elapsed() >= MAX_KEY_AGE) {
            self.fetch(known.map(|known| known.at)).await;
        }
        self.known().map(|known| known.description).ok_or(TokenRefusal::Provider)
    }

    /// The key of this id. Keys are fetched if it is not among those that are known, or those are old.
    async fn key(&self, kid: Option<&str>) -> Result<Jwk, TokenRefusal> {
        let known = self.known();
        let seen = known.as_ref().map(|known| known.at);
        let is_fetched = match known.as_ref().and_then(|known| pick(&known.keys, kid)) {
            Some(key) if seen.is_some_and(|at| at.elapsed() < MAX_KEY_AGE) => return Ok(key),
            // One request fetches keys that are old. The others take the old one meanwhile: the provider may be slow, or away.
            Some(key) => match self.last_fetch.try_lock() {
                Ok(last) => self.fetch_once(last, seen).await,
                Err(_) => return Ok(key),
            },
            None => self.fetch(seen).await,
        };
        // Keys that were fetched before hold while the provider is away.
        let known = self.known().ok_or(TokenRefusal::Provider)?;
        pick(&known.keys, kid).ok_or(if is_fetched {
            TokenRefusal::UnknownKey
        } else {
            TokenRefusal::Provider
        })
    }

    fn known(&self) -> Option<FetchedProvider> {
        self.fetched.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches description and keys, unless somebody did while this waited or a moment ago. Whether they are those of the provider.
    async fn fetch(&self, seen: Option<Instant>) -> bool {
        self.fetch_once(self.last_fetch.lock().await, seen).await
    }

    async fn fetch_once(&self, mut last: MutexGuard<'_, Option<Instant>>, seen: Option<Instant>) -> bool {
        if self.known().map(|known| known.at) != seen {
            return true;
        }
        if last.is_some_and(|last| last.elapsed() < MIN_FETCH_INTERVAL) {
            return seen.is_some();
        }
        let read = self.read_provider().await;
        // Requests that waited meanwhile must not ask a provider that is away once more, each for itself.
        *last = Some(Instant::now());
        match read {
            Ok((description, keys)) => {
                let (description, keys) = (Arc::new(description), Arc::new(keys));
                let fetched = FetchedProvider { keys, description, at: Instant::now() };
                *self.fetched.write().unwrap_or_else(PoisonError::into_inner) = Some(fetched);
                true
            }
            Err(reason) => {
                tracing::warn!(issuer = self.options.issuer, reason, "the keys of a provider cannot be read");
                false
            }
        }
    }

    async fn read_provider(&self) -> Result<(ProviderDescription, JwkSet), String> {
        let path = format!("{}/.well-known/openid-configuration", self.issuer.path().trim_end_matches('/'));
        let mut address = self.issuer.clone();
        address.set_path(&path);
        let description: ProviderDescription = self.read_document(address).await?;
        if description.issuer != self.options.issuer {
            return Err("its description names another issuer".to_owned());
        }
        let address = Url::parse(&description.jwks_uri).map_err(|error| error.to_string())?;
        if !is_safe(&address) {
            return Err("the address of its keys has no https".to_owned());
        }
        Ok((description, self.read_document(address).await?))
    }

    async fn read_document<T: serde::de::DeserializeOwned>(&self, address: Url) -> Result<T, String> {
        let body = self.http.get(address.as_str(), MAX_DOCUMENT_BYTES, FETCH_TIMEOUT).await;
        let body = body.map_err(|error| error.to_string())?;
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    }

    fn checked_claims(
        &self,
        token: &str,
        key: &Jwk,
        algorithm: Algorithm,
    ) -> Result<Map<String, Value>, TokenRefusal> {
        // A key that names its algorithm is used for no other.
        let is_named =
            key.common.key_algorithm.is_none_or(|named| Algorithm::try_from(named) == Ok(algorithm));
        if !is_named || key.common.public_key_use == Some(PublicKeyUse::Encryption) {
            return Err(TokenRefusal::Algorithm);
        }
        let key = DecodingKey::from_jwk(key).map_err(|_| TokenRefusal::UnknownKey)?;
        let mut rules = Validation::new(algorithm);
        rules.set_audience(&[&self.options.audience]);
        rules.set_issuer(&[&self.options.issuer]);
        rules.set_required_spec_claims(&["exp", "aud", "iss"]);
        rules.validate_nbf = true;
        rules.leeway = self.options.clock_skew.as_secs();
        let decoded = decode::<Map<String, Value>>(token, &key, &rules);
        decoded.map(|token| token.claims).map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => TokenRefusal::Signature,
            ErrorKind::ExpiredSignature | ErrorKind::ImmatureSignature => TokenRefusal::Time,
            ErrorKind::InvalidAudience | ErrorKind::InvalidIssuer => TokenRefusal::Audience,
            ErrorKind::MissingRequiredClaim(claim) => TokenRefusal::Claim(claim.clone()),
            ErrorKind::InvalidAlgorithm => TokenRefusal::Algorithm,
            _ => TokenRefusal::NotAToken,
        })
    }

    /// The caller whose token has these claims.
    pub(super) fn identity(&self, claims: &Map<String, Value>) -> Result<CallerIdentity, TokenRefusal> {
        let missing = |claim: &str| TokenRefusal::Claim(claim.to_owned());
        let named = claims.get(&self.options.caller_claim).and_then(Value::as_str);
        let caller =
            named.filter(|name| !name.is_empty()).ok_or_else(|| missing(&self.options.caller_claim))?;
        let scopes: Vec<&str> = match claims.get(&self.options.scope_claim) {
            Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            _ => return Err(missing(&self.options.scope_claim)),
        };
        let (role, patterns) = rights_of(&scopes).ok_or(TokenRefusal::Scope)?;
        let token = Token::of(&format!("{OIDC_CALLER_PREFIX}{caller}"));
        let end = claims.get("exp").and_then(Value::as_u64);
        let until_ms =
            end.map(|end| end.saturating_add(self.options.clock_skew.as_secs()).saturating_mul(1000));
        Ok(CallerIdentity { until_ms, ..CallerIdentity::vouched(token, role, patterns) })
    }
}

/// The role and patterns of scopes: `sinew:ROLE` for everything, `sinew:ROLE:PATTERN` for a part. The highest role counts, with
/// its own patterns only.
fn rights_of(scopes: &[&str]) -> Option<(AccessRole, Vec<String>)> {
    let named = scopes.iter().filter_map(|scope| {
        let (role, pattern) = match scope.strip_prefix(SCOPE_PREFIX)?.split_once(':') {
            Some((role, pattern)) => (role, pattern),
            None => (scope.strip_prefix(SCOPE_PREFIX)?, "*"),
        };
        Some((AccessRole::parse(role)?, pattern.to_owned())).filter(|(_, pattern)| !pattern.is_empty())
    });
    let named: Vec<(AccessRole, String)> = named.collect();
    let role = named.iter().map(|(role, _)| *role).max()?;
    Some((role, named.into_iter().filter(|(one, _)| *one == role).map(|(_, pattern)| pattern).collect()))
}

/// The key of this id; without an id the only key.
fn pick(keys: &JwkSet, kid: Option<&str>) -> Option<Jwk> {
    match (kid, keys.keys.as_slice()) {
        (Some(kid), _) => keys.find(kid).cloned(),
        (None, [only]) => Some(only.clone()),
        (None, _) => None,
    }
}

/// Whether nobody on the way can replace what is read there.
pub(super) fn is_safe(address: &Url) -> bool {
    let is_own = matches!(address.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    address.scheme() == "https" || (address.scheme() == "http" && is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_rights() {
        let check = |scopes: &[&str], expected: Option<(AccessRole, &[&str])>| {
            let expected = expected
                .map(|(role, patterns)| (role, patterns.iter().map(|one| (*one).to_owned()).collect()));
            assert_eq!(rights_of(scopes), expected, "{scopes:?}");
        };
        check(&["sinew:operator"], Some((AccessRole::Operator, &["*"])));
        check(
            &["openid", "sinew:client:orders-*", "sinew:client:bills"],
            Some((AccessRole::Client, &["orders-*", "bills"])),
        );
        check(&["sinew:operator", "sinew:client:orders"], Some((AccessRole::Client, &["orders"])));
        for none in [&[][..], &["openid"], &["sinew:"], &["sinew:root"], &["client"], &["sinew:client:"]] {
            check(none, None);
        }
    }

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
