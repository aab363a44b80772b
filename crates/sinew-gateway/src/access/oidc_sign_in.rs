//! Sign-in of people with an OpenID provider: the authorization code flow with PKCE.
//!
//! The browser keeps the secrets of a sign-in in a cookie, so a sign-in can start at one gateway of
//! a mesh and complete at another. The provider's token must be acceptable as if a program had sent
//! it.

use std::time::Duration;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use rand::Rng as _;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sinew_agents::{WebMethod, WebRequest};
use url::{Url, form_urlencoded};

use super::caller::CallerIdentity;
use super::oidc::{OidcProvider, TokenRefusal};
use super::provider_documents::is_safe;
use crate::options::OidcClient;

/// Size of each secret of a sign-in.
const SECRET_BYTES: usize = 32;
/// Maximum size of the response that contains the tokens.
const MAX_TOKENS_BYTES: usize = 128 << 10;
/// Time limit for exchanging a code for tokens.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a provider's error text.
const MAX_REASON_CHARS: usize = 200;

/// Reason why a sign-in with a provider fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignInRefusal {
    #[error("the gateway has no OpenID provider for sign-in")]
    NoProvider,
    #[error("the sign-in was not started in this browser or has expired; start again")]
    NotBegunHere,
    #[error("the provider refused: {0}")]
    Refused(String),
    #[error("the provider is unreachable, or its response is invalid")]
    Unreachable,
    #[error("the provider issued no tokens for this sign-in (status {0})")]
    NoTokens(u16),
    #[error("the provider's token is not accepted by the gateway: {0}")]
    Token(#[from] TokenRefusal),
}

/// Secrets of one sign-in of a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VisitSecrets {
    /// Returned by the browser.
    state: String,
    /// Contained in the ID token.
    nonce: String,
    /// Proves to the provider that the client that started the sign-in exchanges the code.
    verifier: String,
}

impl VisitSecrets {
    fn new() -> Self {
        let secret = || BASE64URL_NOPAD.encode(&rand::rng().random::<[u8; SECRET_BYTES]>());
        Self { state: secret(), nonce: secret(), verifier: secret() }
    }

    /// Parses the value of a cookie, or returns `None` if [`Self::cookie`] did not create it.
    fn read(cookie: &str) -> Option<Self> {
        let parts: Vec<&str> = cookie.split('.').collect();
        let is_secret = |part: &&str| {
            BASE64URL_NOPAD.decode(part.as_bytes()).is_ok_and(|bytes| bytes.len() == SECRET_BYTES)
        };
        match parts.as_slice() {
            [state, nonce, verifier] if parts.iter().all(is_secret) => Some(Self {
                state: (*state).to_owned(),
                nonce: (*nonce).to_owned(),
                verifier: (*verifier).to_owned(),
            }),
            _ => None,
        }
    }

    fn cookie(&self) -> String {
        format!("{}.{}.{}", self.state, self.nonce, self.verifier)
    }

    /// Returns the digest of the verifier, which the provider keeps until the code is exchanged.
    fn challenge(&self) -> String {
        BASE64URL_NOPAD.encode(&Sha256::digest(self.verifier.as_bytes()))
    }
}

/// Parameters with which the provider redirects the browser back.
#[derive(Debug, Default)]
struct AuthorizationAnswer {
    state: String,
    code: String,
    error: String,
    /// Address of the responding provider (RFC 9207).
    iss: String,
}

impl AuthorizationAnswer {
    fn read(query: &str) -> Self {
        let mut answer = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let field = match name.as_ref() {
                "state" => &mut answer.state,
                "code" => &mut answer.code,
                "error" => &mut answer.error,
                "iss" => &mut answer.iss,
                _ => continue,
            };
            *field = value.into_owned();
        }
        answer
    }
}

/// Tokens that the provider returns for a code.
#[derive(Deserialize)]
struct ProviderTokens {
    access_token: String,
    id_token: Option<String>,
}

impl OidcProvider {
    /// Starts a sign-in and returns the address of the provider's page and the browser's cookie.
    pub(super) async fn begin_visit(&self, redirect: &str) -> Result<(String, String), SignInRefusal> {
        let client = self.client().ok_or(SignInRefusal::NoProvider)?;
        let mut address = endpoint(&self.description().await?.authorization_endpoint)?;
        let secrets = VisitSecrets::new();
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", redirect)
            .append_pair("scope", &client.scopes)
            .append_pair("state", &secrets.state)
            .append_pair("nonce", &secrets.nonce)
            .append_pair("code_challenge", &secrets.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok((address.into(), secrets.cookie()))
    }

    /// Completes a sign-in and returns the caller that the provider authenticated.
    pub(super) async fn end_visit(
        &self,
        redirect: &str,
        cookie: &str,
        query: &str,
    ) -> Result<CallerIdentity, SignInRefusal> {
        let client = self.client().ok_or(SignInRefusal::NoProvider)?;
        let secrets = VisitSecrets::read(cookie).ok_or(SignInRefusal::NotBegunHere)?;
        let answer = AuthorizationAnswer::read(query);
        // The response is from another provider, whose code would be sent to this one.
        let is_other = !answer.iss.is_empty() && answer.iss != self.issuer();
        if answer.state != secrets.state || is_other {
            return Err(SignInRefusal::NotBegunHere);
        }
        if !answer.error.is_empty() || answer.code.is_empty() {
            let reason = sinew_documents::words::one_line(&answer.error, MAX_REASON_CHARS);
            return Err(SignInRefusal::Refused(reason));
        }
        let tokens = self.exchange(client, redirect, &answer.code, &secrets.verifier).await?;
        self.caller_of_tokens(&tokens, &secrets.nonce).await
    }

    /// Returns the caller of the access token, or of the ID token if the access token is not for
    /// this gateway.
    async fn caller_of_tokens(
        &self,
        tokens: &ProviderTokens,
        nonce: &str,
    ) -> Result<CallerIdentity, SignInRefusal> {
        let caller = self.caller_of(&tokens.access_token).await;
        let Some(token) = &tokens.id_token else { return Ok(caller?) };
        // An ID token of another sign-in shows that the code was injected, even if the access token
        // is valid.
        let client = self.client().map_or("", |client| client.id.as_str());
        let own = self.claims_for(token, &[client, self.audience()]).await?;
        if own.get("nonce").and_then(Value::as_str) != Some(nonce) {
            return Err(SignInRefusal::NotBegunHere);
        }
        match caller {
            Ok(caller) => Ok(caller),
            Err(_) => Ok(self.identity(&self.claims_of(token).await?)?),
        }
    }

    async fn exchange(
        &self,
        client: &OidcClient,
        redirect: &str,
        code: &str,
        verifier: &str,
    ) -> Result<ProviderTokens, SignInRefusal> {
        let address = endpoint(&self.description().await?.token_endpoint)?;
        let proof = client.secret.as_deref().map(|secret| basic_credentials(&client.id, secret));
        let mut headers =
            vec![("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json")];
        headers.extend(proof.as_deref().map(|proof| ("authorization", proof)));
        let public_id = client.secret.is_none().then_some(("client_id", client.id.as_str()));
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect)
            .append_pair("code_verifier", verifier)
            .extend_pairs(public_id)
            .finish();
        let request = WebRequest {
            method: WebMethod::Post,
            address: address.as_str(),
            headers: &headers,
            body: body.into_bytes(),
            timeout: EXCHANGE_TIMEOUT,
        };
        let exchange = async {
            let _place = self.exchange_place().await;
            let response = self.http().open(request).await.map_err(|_| SignInRefusal::Unreachable)?;
            if response.status() != 200 {
                return Err(SignInRefusal::NoTokens(response.status()));
            }
            response.body(MAX_TOKENS_BYTES).await.map_err(|_| SignInRefusal::Unreachable)
        };
        let body = tokio::time::timeout(EXCHANGE_TIMEOUT, exchange).await;
        let body = body.map_err(|_| SignInRefusal::Unreachable)??;
        serde_json::from_slice(&body).map_err(|_| SignInRefusal::Unreachable)
    }
}

/// Parses an address of the provider that cannot be tampered with in transit.
fn endpoint(text: &str) -> Result<Url, SignInRefusal> {
    Url::parse(text).ok().filter(is_safe).ok_or(SignInRefusal::Unreachable)
}

/// Returns the `Authorization` value of a confidential client (RFC 6749, 2.3.1).
fn basic_credentials(id: &str, secret: &str) -> String {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    format!("Basic {}", BASE64.encode(format!("{}:{}", encode(id), encode(secret)).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_visit_are_read_whole() {
        let secrets = VisitSecrets::new();
        let cookie = secrets.cookie();
        assert_eq!(VisitSecrets::read(&cookie), Some(secrets.clone()));
        assert_ne!(secrets, VisitSecrets::new());
        for broken in ["", "..", &cookie[1..], &format!("{cookie}.a"), &cookie.replace('.', "~")] {
            assert_eq!(VisitSecrets::read(broken), None, "{broken}");
        }
        // Example pair of RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let known = VisitSecrets { verifier, ..secrets };
        assert_eq!(known.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn credentials_are_encoded_before_they_are_joined() {
        assert_eq!(basic_credentials("a:b", "c d"), format!("Basic {}", BASE64.encode(b"a%3Ab:c+d")));
    }
}
