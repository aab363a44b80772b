//! Authentication: identifies the caller of a request.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use bytes::Bytes;
use rand::Rng as _;
use serde::{Deserialize, Serialize};
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::access::{AccessKey, KeyStanding, PresentedKey, read_record};
use sinew_protocol::subject::AccessKind;
use sinew_protocol::{Subject, Token};

use super::caller::CallerIdentity;
use super::ended_sessions::EndedSessions;
use super::key_set::KeySet;
use super::key_uses::KeyUses;
use super::oidc::{OidcProvider, TokenRefusal};
use super::oidc_sign_in::SignInRefusal;
use super::session::{
    BrowserSessions, SESSION_COOKIE, SESSION_LIFETIME, SessionOwner, VOUCHED_SESSION_LIFETIME, VouchedCaller,
};
use crate::error::GatewayError;
use crate::options::AccessOptions;

/// Header for a key, as an alternative to `Authorization`.
const KEY_HEADER: &str = "x-api-key";
/// Name of the secret that signs sessions.
const SESSION_SECRET: &str = "session";
/// Bytes of a shared secret.
const SECRET_BYTES: usize = 32;

/// DNS names in the certificate that the client of a connection proved to own.
#[derive(Clone, Debug)]
pub(crate) struct PeerNames(pub(crate) Arc<[String]>);

/// Reason why the credentials of a request are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessRefusal {
    #[error("the request has no credentials; send `Authorization: Bearer KEY`")]
    Missing,
    #[error("expected exactly one header `Authorization: Bearer KEY`")]
    Malformed,
    #[error("unknown key")]
    UnknownKey,
    #[error("the key has expired")]
    ExpiredKey,
    #[error("the key was revoked")]
    RevokedKey,
    #[error("no key is bound to a name in the client certificate")]
    UnknownCertificate,
    #[error("the token is rejected: {0}")]
    Token(#[from] TokenRefusal),
    #[error("the gateway cannot read the keys of the mesh; its user requires the role gateway")]
    NoKeys,
    #[error("the keys of the mesh are temporarily unavailable and this key may be new; retry")]
    UnreadKeys,
}

impl AccessRefusal {
    /// Returns the error code of RFC 6750. Returns `None` for a request without credentials, and if
    /// they cannot be checked.
    pub(crate) fn bearer_error(&self) -> Option<&'static str> {
        match self {
            Self::Malformed => Some("invalid_request"),
            Self::Token(TokenRefusal::Scope) => Some("insufficient_scope"),
            Self::Token(TokenRefusal::Provider)
            | Self::Missing
            | Self::UnknownCertificate
            | Self::NoKeys
            | Self::UnreadKeys => None,
            Self::UnknownKey | Self::ExpiredKey | Self::RevokedKey | Self::Token(_) => Some("invalid_token"),
        }
    }

    /// Returns whether the credentials are valid but grant no access here.
    pub(crate) fn lacks_scope(&self) -> bool {
        *self == Self::Token(TokenRefusal::Scope)
    }
}

/// Authenticates the callers of a gateway.
pub(crate) struct Authenticator {
    is_required: bool,
    own: CallerIdentity,
    /// `None`: the gateway's user may not read them, and requests need no keys.
    keys: Option<KeySet>,
    oidc: Vec<OidcProvider>,
    sessions: Option<BrowserSessions>,
    /// Sessions that ended before they expired; `None` without sessions.
    ended: Option<EndedSessions>,
    uses: KeyUses,
}

impl Authenticator {
    /// Opens the authenticator of a mesh. Fails if requests need credentials that cannot be
    /// checked.
    pub(crate) async fn open(mesh: &Mesh, options: &AccessOptions) -> Result<Self, GatewayError> {
        let own = CallerIdentity::own(mesh.caller().clone());
        let (keys, secret) = match Self::read(mesh).await {
            Ok((keys, secret)) => (Some(keys), Some(secret)),
            Err(error) if options.is_required => return Err(error.into()),
            Err(error) => {
                tracing::info!(%error, "cannot read the keys; requests with a key are rejected");
                (None, None)
            }
        };
        let ended = if secret.is_some() { Some(EndedSessions::open(mesh).await) } else { None };
        let oidc = options.oidc.iter().map(|one| OidcProvider::new(one.clone()));
        Ok(Self {
            is_required: options.is_required,
            own,
            keys,
            oidc: oidc.collect::<Result<_, _>>()?,
            sessions: secret.map(BrowserSessions::new),
            ended,
            uses: KeyUses::new(mesh),
        })
    }

    async fn read(mesh: &Mesh) -> Result<(KeySet, Vec<u8>), MeshError> {
        let keys = KeySet::open(mesh).await?;
        Ok((keys, shared_secret(mesh, SESSION_SECRET).await?))
    }

    /// Returns whether keys and other records of gateways can be read.
    pub(crate) fn reads_records(&self) -> bool {
        self.keys.is_some()
    }

    /// Returns whether requests need credentials.
    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    /// Returns the addresses of the OpenID providers whose tokens are accepted.
    pub(crate) fn issuers(&self) -> Vec<String> {
        self.oidc.iter().map(|provider| provider.issuer().to_owned()).collect()
    }

    /// Returns the caller of a request, or `None` if required credentials are missing. Records the use
    /// of its key.
    pub(crate) async fn caller_of(&self, parts: &Parts) -> Result<Option<CallerIdentity>, AccessRefusal> {
        let caller = self.identified(parts).await?;
        if let Some(id) = caller.as_ref().and_then(|caller| caller.key.as_ref()) {
            self.uses.note(id, now_ms());
        }
        Ok(caller)
    }

    async fn identified(&self, parts: &Parts) -> Result<Option<CallerIdentity>, AccessRefusal> {
        if let Some(presented) = presented(&parts.headers)? {
            return match PresentedKey::parse(presented) {
                Some(key) => self.find_owner(&key).await.map(Some),
                None => self.owner_of_token(presented).await.map(Some),
            };
        }
        if takes_session(parts)
            && let Some(caller) = self.caller_of_session(&parts.headers)
        {
            return Ok(Some(caller));
        }
        if let Some(PeerNames(names)) = parts.extensions.get::<PeerNames>() {
            let keys = self.keys.as_ref().ok_or(AccessRefusal::NoKeys)?;
            let key = keys.find_by_certificate(names, now_ms()).await;
            let key = key.map_err(|_| AccessRefusal::UnreadKeys)?.ok_or(AccessRefusal::UnknownCertificate)?;
            return valid(&key).map(Some);
        }
        Ok((!self.is_required).then(|| self.own.clone()))
    }

    /// Returns whether an admitted caller still has access: its key is valid, and its token has not
    /// expired.
    pub(crate) fn still_opens(&self, caller: &CallerIdentity) -> bool {
        let has_ended = caller.until_ms.is_some_and(|until| now_ms() >= until);
        let is_valid =
            |id| self.keys.as_ref()?.get(id).map(|key| key.standing(now_ms()) == KeyStanding::Valid);
        !has_ended && caller.key.as_ref().is_none_or(|id| is_valid(id) == Some(true))
    }

    /// Returns whether a key was revoked.
    pub(crate) fn has_revoked(&self, id: &Token) -> bool {
        let key = self.keys.as_ref().and_then(|keys| keys.get(id));
        key.is_some_and(|key| key.standing(now_ms()) == KeyStanding::Revoked)
    }

    /// Like [`Authenticator::owner_of`], but also finds a key that was created while the view of
    /// keys could not be updated.
    async fn find_owner(&self, presented: &PresentedKey) -> Result<CallerIdentity, AccessRefusal> {
        let keys = self.keys.as_ref().ok_or(AccessRefusal::NoKeys)?;
        keys.find(&presented.id).await.map_err(|_| AccessRefusal::UnreadKeys)?;
        self.owner_of(presented)
    }

    fn owner_of(&self, presented: &PresentedKey) -> Result<CallerIdentity, AccessRefusal> {
        let keys = self.keys.as_ref().ok_or(AccessRefusal::NoKeys)?;
        let key = keys.get(&presented.id).filter(|key| key.proves(&presented.secret));
        // Only its owner learns that a key has expired.
        valid(&*key.ok_or(AccessRefusal::UnknownKey)?)
    }

    async fn owner_of_token(&self, token: &str) -> Result<CallerIdentity, AccessRefusal> {
        let mut refusal = AccessRefusal::UnknownKey;
        for provider in &self.oidc {
            match provider.caller_of(token).await {
                Ok(caller) => return Ok(caller),
                Err(TokenRefusal::NotAToken) => {}
                // Another provider accepted the token, which lacks only a scope.
                Err(_) if refusal.lacks_scope() => {}
                Err(reason) => refusal = reason.into(),
            }
        }
        Err(refusal)
    }

    /// Starts a session of a key's owner and returns the value of its cookie, or `None` if the key
    /// is rejected.
    pub(crate) fn begin_session(&self, key: &str) -> Option<String> {
        let key = PresentedKey::parse(key.trim())?;
        self.owner_of(&key).ok()?;
        self.sessions.as_ref()?.begin(&SessionOwner::Key(key.id), after(SESSION_LIFETIME))
    }

    /// Ends the session of a cookie at all gateways. Returns whether that succeeded.
    pub(crate) async fn end_session(&self, cookie: &str) -> bool {
        let owner = self.sessions.as_ref().and_then(|sessions| sessions.owner_of(cookie, now_ms()));
        let (Some((_, until)), Some(ended)) = (owner, &self.ended) else { return true };
        let done = ended.end(cookie, until, now_ms()).await;
        done.inspect_err(|error| tracing::warn!(%error, "cannot end a session")).is_ok()
    }

    /// Returns the provider for console sign-in.
    fn sign_in_provider(&self) -> Result<&OidcProvider, SignInRefusal> {
        self.oidc.iter().find(|provider| provider.client().is_some()).ok_or(SignInRefusal::NoProvider)
    }

    /// Returns the host of the provider for sign-in, or `None` if only keys are accepted.
    pub(crate) fn sign_in_host(&self) -> Option<&str> {
        self.sign_in_provider().ok().map(OidcProvider::host)
    }

    /// Starts a sign-in at the provider, which redirects the browser to `redirect` afterwards.
    /// Returns the address of the provider's page and the cookie of the sign-in.
    pub(crate) async fn begin_visit(&self, redirect: &str) -> Result<(String, String), SignInRefusal> {
        self.sign_in_provider()?.begin_visit(redirect).await
    }

    /// Completes a sign-in and returns the session cookie's value for the authenticated caller.
    pub(crate) async fn end_visit(
        &self,
        redirect: &str,
        cookie: &str,
        query: &str,
    ) -> Result<String, SignInRefusal> {
        let provider = self.sign_in_provider()?;
        let caller = provider.end_visit(redirect, cookie, query).await?;
        let owner = SessionOwner::Vouched(VouchedCaller {
            issuer: provider.issuer().to_owned(),
            caller: caller.token,
            role: caller.role,
            patterns: caller.patterns.to_vec(),
            groups: caller.groups.to_vec(),
        });
        let session = self
            .sessions
            .as_ref()
            .and_then(|sessions| sessions.begin(&owner, after(VOUCHED_SESSION_LIFETIME)));
        session.ok_or(SignInRefusal::NoProvider)
    }

    fn caller_of_session(&self, headers: &HeaderMap) -> Option<CallerIdentity> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut named =
            cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let (_, cookie) = named.find(|(name, _)| *name == SESSION_COOKIE)?;
        let (owner, until) = self.sessions.as_ref()?.owner_of(cookie, now_ms())?;
        if self.ended.as_ref().is_some_and(|ended| ended.has(cookie, until)) {
            return None;
        }
        let caller = match owner {
            SessionOwner::Key(id) => valid(&*self.keys.as_ref()?.get(&id)?).ok()?,
            // Callers of a provider that this gateway no longer trusts have no access.
            SessionOwner::Vouched(one) => self
                .oidc
                .iter()
                .any(|provider| provider.issuer() == one.issuer)
                .then(|| CallerIdentity::vouched(one.caller, one.role, one.patterns, one.groups))?,
        };
        Some(CallerIdentity { until_ms: Some(until), ..caller })
    }
}

/// Returns the credential that a request presents.
fn presented(headers: &HeaderMap) -> Result<Option<&str>, AccessRefusal> {
    let named = [header::AUTHORIZATION.as_str(), KEY_HEADER];
    let mut all =
        named.iter().flat_map(|name| headers.get_all(*name).iter().map(move |value| (*name, value)));
    let Some((name, value)) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(AccessRefusal::Malformed);
    }
    let text = value.to_str().map_err(|_| AccessRefusal::Malformed)?.trim();
    if name == KEY_HEADER {
        return Ok(Some(text));
    }
    match text.split_once(' ') {
        Some((scheme, proof)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(proof.trim())),
        _ => Err(AccessRefusal::Malformed),
    }
}

/// Returns whether a session is sufficient for this request: console pages, whose forms have their
/// own protection, and reads, which change nothing.
fn takes_session(parts: &Parts) -> bool {
    let path = parts.uri.path();
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    path == "/"
        || path == sinew_console::BASE
        || path.strip_prefix(sinew_console::BASE).is_some_and(|rest| rest.starts_with('/'))
        || (reads && path.starts_with("/api/v1/"))
}

fn valid(key: &AccessKey) -> Result<CallerIdentity, AccessRefusal> {
    match key.standing(now_ms()) {
        KeyStanding::Valid => Ok(CallerIdentity::of_key(key)),
        KeyStanding::Expired => Err(AccessRefusal::ExpiredKey),
        KeyStanding::Revoked => Err(AccessRefusal::RevokedKey),
    }
}

/// Returns the time after this duration, in milliseconds since 1970 UTC.
fn after(span: Duration) -> u64 {
    now_ms().saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Milliseconds since 1970 UTC.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A secret shared by all gateways of a mesh, as it is stored.
#[derive(Serialize, Deserialize)]
struct SecretRecord {
    secret: String,
}

/// Returns the secret with this name that all gateways of the mesh share. The first gateway that
/// needs it creates it.
pub(crate) async fn shared_secret(mesh: &Mesh, name: &str) -> Result<Vec<u8>, MeshError> {
    let subject = Subject::Access { kind: AccessKind::Secret, id: Token::of(name) };
    let malformed = |reason: String| MeshError::Malformed { what: "a secret of the gateways", reason };
    loop {
        if let Some(stored) =
            mesh.records().access().get(&subject).await?.filter(|stored| !stored.body.is_empty())
        {
            let record: SecretRecord =
                read_record(&stored.body).map_err(|error| malformed(error.to_string()))?;
            let secret = data_encoding::HEXLOWER.decode(record.secret.as_bytes());
            return secret.map_err(|error| malformed(error.to_string()));
        }
        let secret: [u8; SECRET_BYTES] = rand::rng().random();
        let record = SecretRecord { secret: data_encoding::HEXLOWER.encode(&secret) };
        let body = serde_json::to_vec(&record).map_err(|error| malformed(error.to_string()))?;
        // If two gateways create it concurrently, the second reads the secret of the first.
        if mesh.records().access().put(&subject, Bytes::from(body), Some(0)).await?.is_some() {
            return Ok(secret.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue, Request};

    use super::*;

    #[test]
    fn one_proof_is_read() {
        let check = |pairs: &[(&'static str, &'static str)],
                     expected: Result<Option<&str>, AccessRefusal>| {
            let pairs = pairs.iter();
            let headers: HeaderMap = pairs
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            assert_eq!(presented(&headers), expected, "{headers:?}");
        };
        check(&[], Ok(None));
        check(&[("authorization", "Bearer abc")], Ok(Some("abc")));
        check(&[("authorization", "bearer  abc ")], Ok(Some("abc")));
        check(&[("x-api-key", "abc")], Ok(Some("abc")));
        check(&[("authorization", "Basic abc")], Err(AccessRefusal::Malformed));
        check(&[("authorization", "abc")], Err(AccessRefusal::Malformed));
        check(&[("authorization", "")], Err(AccessRefusal::Malformed));
        check(&[("x-api-key", "a"), ("x-api-key", "b")], Err(AccessRefusal::Malformed));
        check(&[("x-api-key", "a"), ("authorization", "Bearer a")], Err(AccessRefusal::Malformed));
    }

    #[test]
    fn sessions_open_pages_and_reading_only() {
        let check = |method: Method, path: &str, expected: bool| {
            let (parts, ()) = Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
            assert_eq!(takes_session(&parts), expected, "{path}");
        };
        check(Method::GET, "/", true);
        check(Method::GET, "/console", true);
        check(Method::POST, "/console/executions/a/cancel", true);
        check(Method::GET, "/api/v1/executions", true);
        check(Method::POST, "/api/v1/executions", false);
        check(Method::DELETE, "/api/v1/workflows/a", false);
        check(Method::GET, "/consolez", false);
        check(Method::POST, "/a2a", false);
        check(Method::GET, "/a2a/tasks", false);
    }
}
