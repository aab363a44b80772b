//! Tokens of an OpenID provider: JWTs with caller and rights, signed with published keys.

use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};
use sinew_agents::{ReachableAddresses, WebClient};
use sinew_protocol::Token;
use sinew_protocol::access::{AccessRole, MAX_GROUPS, OIDC_CALLER_PREFIX, check_group_name};
use tokio::sync::{Semaphore, SemaphorePermit};
use url::Url;

use super::caller::CallerIdentity;
use super::provider_documents::{MissingKey, ProviderDescription, ProviderDocuments, is_safe};
use super::ring_verifier::{ALGORITHMS, install};
use crate::error::GatewayError;
use crate::options::{OidcClient, OidcOptions};

/// Maximum size of a token.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Maximum number of concurrent code exchanges, so that a flood of sign-ins does not reach the
/// provider.
const MAX_EXCHANGES: usize = 8;
/// Prefix of scopes that grant rights: `sinew:client`, `sinew:client:orders-*`.
pub(crate) const SCOPE_PREFIX: &str = "sinew:";

/// Reason why a token is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefusal {
    /// The text is not a token.
    #[error("it is not a token")]
    NotAToken,
    /// Its signature algorithm is not supported.
    #[error("it is not signed with a public-key algorithm")]
    Algorithm,
    /// Its key does not belong to the provider.
    #[error("its key does not belong to the provider")]
    UnknownKey,
    /// Its signature is invalid.
    #[error("its signature is invalid")]
    Signature,
    /// It has expired, or is not valid yet.
    #[error("it has expired, or is not valid yet")]
    Time,
    /// It was issued for another service, or by another provider.
    #[error("its audience or issuer does not match")]
    Audience,
    /// A claim is missing or has a wrong type.
    #[error("its claim {0} is missing or invalid")]
    Claim(String),
    /// It has no scope of this service.
    #[error("it has none of the scopes sinew:operator, sinew:client and sinew:admin")]
    Scope,
    /// The provider's keys are unavailable.
    #[error("cannot read the keys of the provider")]
    Provider,
}

/// A provider, with its most recently fetched keys.
pub(super) struct OidcProvider {
    options: OidcOptions,
    issuer: Url,
    http: WebClient,
    documents: Arc<ProviderDocuments>,
    /// Permits for code exchanges, because anybody can send a code.
    exchanges: Semaphore,
}

impl OidcProvider {
    /// Creates a provider. Its keys are fetched when the first token arrives.
    pub(super) fn new(options: OidcOptions) -> Result<Self, GatewayError> {
        install();
        let bad = |reason: String| GatewayError::Provider { issuer: options.issuer.clone(), reason };
        let issuer = Url::parse(&options.issuer).map_err(|error| bad(error.to_string()))?;
        if !is_safe(&issuer) {
            return Err(bad("expected an address with https".to_owned()));
        }
        // The operator chose the provider, which may be in a private network.
        let http = WebClient::new(ReachableAddresses::All).map_err(|error| bad(error.to_string()))?;
        let documents = Arc::new(ProviderDocuments::new(&options, issuer.clone(), http.clone()));
        Ok(Self { options, issuer, http, documents, exchanges: Semaphore::new(MAX_EXCHANGES) })
    }

    /// Returns the provider's address.
    pub(super) fn issuer(&self) -> &str {
        &self.options.issuer
    }

    /// Returns the audience that tokens must have.
    pub(super) fn audience(&self) -> &str {
        &self.options.audience
    }

    /// Returns the provider's host, by which people recognize it.
    pub(super) fn host(&self) -> &str {
        self.issuer.host_str().unwrap_or_default()
    }

    /// Returns the gateway as a client of the provider, or `None` if people do not sign in with it.
    pub(super) fn client(&self) -> Option<&OidcClient> {
        self.options.client.as_ref()
    }

    /// Waits for a permit to exchange a code.
    pub(super) async fn exchange_place(&self) -> Option<SemaphorePermit<'_>> {
        self.exchanges.acquire().await.ok()
    }

    /// Returns the HTTP client for the provider.
    pub(super) fn http(&self) -> &WebClient {
        &self.http
    }

    /// Returns the caller that a token names.
    pub(super) async fn caller_of(&self, token: &str) -> Result<CallerIdentity, TokenRefusal> {
        self.identity(&self.claims_of(token).await?)
    }

    /// Returns the claims of a valid token.
    pub(super) async fn claims_of(&self, token: &str) -> Result<Map<String, Value>, TokenRefusal> {
        self.claims_for(token, &[&self.options.audience]).await
    }

    /// Returns the claims of a token for one of these audiences.
    pub(super) async fn claims_for(
        &self,
        token: &str,
        audiences: &[&str],
    ) -> Result<Map<String, Value>, TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES || token.bytes().filter(|byte| *byte == b'.').count() != 2 {
            return Err(TokenRefusal::NotAToken);
        }
        let header = decode_header(token).map_err(|error| match error.kind() {
            // An algorithm that the library does not know, such as `none`, is an unknown variant.
            ErrorKind::Json(_) => TokenRefusal::Algorithm,
            _ => TokenRefusal::NotAToken,
        })?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(TokenRefusal::Algorithm);
        }
        // No critical extension is supported, so the token must be rejected (RFC 7515, 4.1.11).
        if names_critical(token) {
            return Err(TokenRefusal::Algorithm);
        }
        let key = self.documents.key(header.kid.as_deref()).await.map_err(|missing| match missing {
            MissingKey::Unknown => TokenRefusal::UnknownKey,
            MissingKey::Unreachable => TokenRefusal::Provider,
        })?;
        self.checked_claims(token, &key, header.alg, audiences)
    }

    /// Returns the provider's most recently fetched description.
    pub(super) async fn description(&self) -> Result<Arc<ProviderDescription>, TokenRefusal> {
        self.documents.description().await.ok_or(TokenRefusal::Provider)
    }

    fn checked_claims(
        &self,
        token: &str,
        key: &Jwk,
        algorithm: Algorithm,
        audiences: &[&str],
    ) -> Result<Map<String, Value>, TokenRefusal> {
        // A key that names its algorithm is used for that algorithm only.
        let is_named =
            key.common.key_algorithm.is_none_or(|named| Algorithm::try_from(named) == Ok(algorithm));
        if !is_named || key.common.public_key_use == Some(PublicKeyUse::Encryption) {
            return Err(TokenRefusal::Algorithm);
        }
        let key = DecodingKey::from_jwk(key).map_err(|_| TokenRefusal::UnknownKey)?;
        let mut rules = Validation::new(algorithm);
        rules.set_audience(audiences);
        rules.set_issuer(&[&self.options.issuer]);
        rules.set_required_spec_claims(&["exp", "aud", "iss"]);
        rules.validate_nbf = true;
        rules.leeway = self.options.clock_skew.as_secs();
        let decoded = decode::<Map<String, Value>>(token, &key, &rules);
        let claims = decoded.map(|token| token.claims).map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => TokenRefusal::Signature,
            ErrorKind::ExpiredSignature | ErrorKind::ImmatureSignature => TokenRefusal::Time,
            ErrorKind::InvalidAudience | ErrorKind::InvalidIssuer => TokenRefusal::Audience,
            ErrorKind::MissingRequiredClaim(claim) => TokenRefusal::Claim(claim.clone()),
            ErrorKind::InvalidAlgorithm => TokenRefusal::Algorithm,
            _ => TokenRefusal::NotAToken,
        })?;
        // The library also accepts a list that contains the issuer.
        if !claims.get("iss").is_some_and(Value::is_string) {
            return Err(TokenRefusal::Audience);
        }
        Ok(claims)
    }

    /// Returns the caller whose token has these claims.
    pub(super) fn identity(&self, claims: &Map<String, Value>) -> Result<CallerIdentity, TokenRefusal> {
        let missing = |claim: &str| TokenRefusal::Claim(claim.to_owned());
        let named = claims.get(&self.options.caller_claim).and_then(Value::as_str);
        let caller =
            named.filter(|name| !name.is_empty()).ok_or_else(|| missing(&self.options.caller_claim))?;
        let scopes: Vec<&str> = match claims.get(&self.options.scope_claim) {
            Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
            None | Some(Value::Null) => Vec::new(),
            Some(_) => return Err(missing(&self.options.scope_claim)),
        };
        // A group whose name cannot be one of a question is of no use.
        let groups = claims.get(&self.options.groups_claim).and_then(Value::as_array).into_iter().flatten();
        let groups = groups.filter_map(Value::as_str).filter(|group| check_group_name(group).is_ok());
        let groups = groups.take(MAX_GROUPS).map(str::to_owned).collect();
        let (role, patterns) = rights_of(&scopes).ok_or(TokenRefusal::Scope)?;
        let token = Token::of(&format!("{OIDC_CALLER_PREFIX}{caller}"));
        let end = claims.get("exp").and_then(Value::as_u64);
        let until_ms =
            end.map(|end| end.saturating_add(self.options.clock_skew.as_secs()).saturating_mul(1000));
        Ok(CallerIdentity { until_ms, ..CallerIdentity::vouched(token, role, patterns, groups) })
    }
}

/// Returns whether the header of a token names critical extensions.
fn names_critical(token: &str) -> bool {
    let header = token.split('.').next().unwrap_or_default();
    let header = data_encoding::BASE64URL_NOPAD.decode(header.as_bytes()).unwrap_or_default();
    serde_json::from_slice::<Map<String, Value>>(&header).is_ok_and(|header| header.contains_key("crit"))
}

/// Returns the role and patterns of scopes: `sinew:ROLE` for everything, `sinew:ROLE:PATTERN` for a
/// part. The highest role applies, with its own patterns only.
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
}
