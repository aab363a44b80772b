//! Credentials of a bridge: from the environment or files, read at each use so that rotation takes
//! effect.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

use data_encoding::BASE64;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use sinew_agents::{ResolvedSecrets, WebClient, WebMethod, WebRequest};
use sinew_files::read_text_file;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::BridgeError;

/// Maximum size of a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 64 << 10;
/// Maximum size of a token response, in bytes.
const MAX_TOKEN_ANSWER: usize = 64 << 10;
/// Timeout of a token request.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(15);
/// Time before its expiry at which a token is renewed.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30);
/// Lifetime of a token whose response has none.
const DEFAULT_TOKEN_LIFE: Duration = Duration::from_mins(5);
/// Maximum number of values that are redacted in responses: those of the newest secrets and tokens.
const MAX_REMEMBERED: usize = 32;
/// Maximum accepted lifetime of a token.
const MAX_TOKEN_LIFE: Duration = Duration::from_hours(24);

/// Source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretSource {
    /// An environment variable.
    Variable(String),
    /// A file; a final line break is ignored.
    File(PathBuf),
}

impl SecretSource {
    pub(crate) fn read(&self) -> Result<String, BridgeError> {
        let unusable = |reason: String| BridgeError::Credentials { reason };
        let text = match self {
            Self::Variable(name) => {
                std::env::var(name).map_err(|_| unusable(format!("the variable {name} is not set")))?
            }
            Self::File(path) => read_text_file(path, MAX_SECRET_BYTES)
                .map_err(|error| unusable(format!("cannot read {}: {error}", path.display())))?,
        };
        let secret = text.trim_end_matches(['\r', '\n']);
        if secret.is_empty() || secret.chars().any(char::is_control) {
            return Err(unusable("a secret is empty or contains control characters".to_owned()));
        }
        Ok(secret.to_owned())
    }
}

/// Kinds of credentials, except certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialKind {
    /// A header with a key.
    ApiKey { header: String, value: SecretSource },
    /// A static token.
    Bearer(SecretSource),
    /// Tokens of an OAuth2 token endpoint, by client credentials.
    ClientCredentials {
        token_url: String,
        client_id: SecretSource,
        client_secret: SecretSource,
        scopes: Vec<String>,
    },
}

/// Credentials with the last fetched token.
#[derive(Debug)]
pub(crate) struct Credentials {
    kind: Option<CredentialKind>,
    token: Mutex<Option<FetchedToken>>,
    /// Sent values, newest last.
    sent: std::sync::Mutex<VecDeque<String>>,
}

#[derive(Clone, Debug)]
struct FetchedToken {
    text: String,
    until: Instant,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<u64>,
}

impl Credentials {
    pub(crate) fn new(kind: Option<CredentialKind>) -> Self {
        Self { kind, token: Mutex::default(), sent: std::sync::Mutex::default() }
    }

    /// Returns the sent values, which must be redacted in responses.
    pub(crate) fn secrets(&self) -> ResolvedSecrets {
        let mut secrets = ResolvedSecrets::default();
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter().for_each(|value| secrets.add(value));
        secrets
    }

    fn remember(&self, value: &str) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.iter().any(|known| known == value) {
            return;
        }
        if sent.len() == MAX_REMEMBERED {
            sent.pop_front();
        }
        sent.push_back(value.to_owned());
    }

    /// Returns the header to send; `None` without credentials.
    pub(crate) async fn header(&self, web: &WebClient) -> Result<Option<(String, String)>, BridgeError> {
        let bearer = "authorization".to_owned();
        let (header, scheme, value) = match &self.kind {
            None => return Ok(None),
            Some(CredentialKind::ApiKey { header, value }) => (header.clone(), "", value.read()?),
            Some(CredentialKind::Bearer(value)) => (bearer, "Bearer ", value.read()?),
            Some(CredentialKind::ClientCredentials { .. }) => (bearer, "Bearer ", self.token(web).await?),
        };
        self.remember(&value);
        Ok(Some((header, format!("{scheme}{value}"))))
    }

    /// Discards a rejected token. Returns whether another one can be fetched.
    pub(crate) async fn forget_token(&self) -> bool {
        self.token.lock().await.take().is_some()
    }

    async fn token(&self, web: &WebClient) -> Result<String, BridgeError> {
        let mut held = self.token.lock().await;
        if let Some(token) = held.as_ref().filter(|token| token.until > Instant::now()) {
            return Ok(token.text.clone());
        }
        let token = self.fetch_token(web).await?;
        let text = token.text.clone();
        *held = Some(token);
        Ok(text)
    }

    async fn fetch_token(&self, web: &WebClient) -> Result<FetchedToken, BridgeError> {
        let Some(CredentialKind::ClientCredentials { token_url, client_id, client_secret, scopes }) =
            &self.kind
        else {
            return Err(BridgeError::Credentials { reason: "no token endpoint is configured".to_owned() });
        };
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let secret = client_secret.read()?;
        self.remember(&secret);
        let pair = format!("{}:{}", encode(&client_id.read()?), encode(&secret));
        let pair = BASE64.encode(pair.as_bytes());
        self.remember(&pair);
        let authorization = format!("Basic {pair}");
        let mut form = "grant_type=client_credentials".to_owned();
        if !scopes.is_empty() {
            form.push_str("&scope=");
            form.push_str(&encode(&scopes.join(" ")));
        }
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
            ("accept", "application/json"),
        ];
        let request = WebRequest {
            method: WebMethod::Post,
            address: token_url,
            headers: &headers,
            body: form.into_bytes(),
            timeout: TOKEN_TIMEOUT,
        };
        let failed =
            |reason: String| BridgeError::Credentials { reason: format!("the token endpoint: {reason}") };
        let response = web.open(request).await.map_err(|failure| failed(failure.error.to_string()))?;
        let status = response.status();
        let body = tokio::time::timeout(TOKEN_TIMEOUT, response.body(MAX_TOKEN_ANSWER));
        let body = body.await.map_err(|_| failed("no response in time".to_owned()))?;
        let body = body.map_err(|error| failed(error.to_string()))?;
        if status != 200 {
            return Err(failed(format!("status {status}")));
        }
        // The parser's message may quote the token.
        let answer: TokenAnswer = serde_json::from_slice(&body)
            .map_err(|_| failed("its response has no access_token".to_owned()))?;
        let is_bearer = answer.token_type.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
        if !is_bearer || answer.access_token.is_empty() || answer.access_token.chars().any(char::is_control) {
            return Err(failed("its token is not a bearer token".to_owned()));
        }
        let life = answer.expires_in.map_or(DEFAULT_TOKEN_LIFE, Duration::from_secs).min(MAX_TOKEN_LIFE);
        // A token with a lifetime below the margin is used once.
        let until = Instant::now() + life.saturating_sub(RENEWAL_MARGIN);
        Ok(FetchedToken { text: answer.access_token, until })
    }
}
