//! Sends a request to an HTTP service.
//!
//! No redirects, no proxies from the environment, no cookies; only public addresses unless the file
//! allows others.

mod from_input;
mod request;
mod response_body;
mod retry;

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue, RETRY_AFTER};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::BuilderVerifierExt;
use serde_json::Value;

pub(crate) use retry::after as retry_after;

use request::Request;
pub(crate) use request::RequestTemplate;
use response_body::ContentType;

use super::address::{self, PublicOnly};
use super::{Limits, Output, RunnerSurroundings};
use crate::call::Call;
use crate::clean::{ResolvedSecrets, clean};
use crate::error::AgentError;
use crate::web_exchange::WebIdentity;
use sinew_protocol::unique_keys::read_unique;

/// Header by which a service recognises a repeated request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Maximum bytes of an error response in the fault.
const EXCERPT: usize = 512;

/// An http agent, ready to run.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) request: RequestTemplate,
    /// Whether the input describes the request, instead of the template.
    pub(crate) from_input: bool,
    /// Time limit of an attempt.
    pub(crate) timeout: Duration,
    /// Attempts after the first.
    pub(crate) retries: u32,
    pub(crate) max_output: u64,
    pub(crate) allow_private: bool,
    /// Created on the first call, because loading the system's certificates is slow.
    pub(crate) client: OnceLock<reqwest::Client>,
}

/// Error of an attempt, and whether and when to retry.
struct FailedAttempt {
    error: AgentError,
    again: bool,
    retry_after: Option<Duration>,
}

impl From<AgentError> for FailedAttempt {
    fn from(error: AgentError) -> Self {
        Self { error, again: false, retry_after: None }
    }
}

/// Adds an idempotency key to a request with side effects: the activation, which is the same for all
/// attempts and deliveries of a task or a model's call. Keeps a header of the file or the input.
fn mark_activation(request: &mut Request, call: &Call) {
    let activation = call.conversation.as_deref().or_else(|| call.context["activation"].as_str());
    let key = activation.filter(|key| !key.is_empty()).and_then(|key| HeaderValue::from_str(key).ok());
    if let Some(key) = key.filter(|_| !request.method.is_safe()) {
        request.headers.entry(IDEMPOTENCY_KEY).or_insert(key);
    }
}

impl Http {
    pub(crate) async fn run(
        &self,
        call: &Call,
        limits: &Limits,
        around: &RunnerSurroundings,
    ) -> Result<Output, AgentError> {
        let work = async {
            if self.from_input {
                return self.ask_described(call).await.map(Output::from);
            }
            let (mut request, secrets) = self.request.fill(call, around)?;
            mark_activation(&mut request, call);
            let output = self.attempts(&request, &secrets, call, limits).await?;
            Ok(Output { value: secrets.hide_in_value(&output.value), ..output })
        };
        tokio::select! {
            biased;
            error = limits.reached() => Err(error),
            result = work => result,
        }
    }

    async fn attempts(
        &self,
        request: &Request,
        secrets: &ResolvedSecrets,
        call: &Call,
        limits: &Limits,
    ) -> Result<Output, AgentError> {
        let mut attempt = 1;
        loop {
            let miss = match self.attempt(request, secrets, (call, attempt)).await {
                Ok(output) => return Ok(output),
                Err(miss) => miss,
            };
            let wait = retry::wait(attempt, miss.retry_after);
            let pointless = wait > retry::LONGEST || limits.left().is_some_and(|left| wait >= left);
            if !miss.again || attempt > self.retries || pointless {
                return Err(miss.error);
            }
            let message =
                format!("attempt {attempt} failed ({}), retrying in {:.1} s", miss.error, wait.as_secs_f64());
            // Fails if the receiver was dropped.
            let _unheard = call.progress.send(serde_json::json!({ "message": message }));
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// Sends the request that the input describes. The agent returns any response, whatever its status.
    async fn ask_described(&self, call: &Call) -> Result<Value, AgentError> {
        let (mut request, secrets) = (from_input::request_of(&call.input)?, ResolvedSecrets::default());
        mark_activation(&mut request, call);
        let asked = async {
            let (host, response) = self.send(&request, &secrets).await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let bytes = self.body(&host, response, &secrets).await?;
            let parsed = if ContentType::of(&headers).is_json() { read_unique(&bytes).ok() } else { None };
            let body = parsed.unwrap_or_else(|| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
            Ok::<_, FailedAttempt>(from_input::answer(status, &headers, &body))
        };
        asked.await.map_err(|miss| miss.error)
    }

    /// Sends a request once. Returns the host and its response, whatever its status.
    async fn send(
        &self,
        request: &Request,
        secrets: &ResolvedSecrets,
    ) -> Result<(String, reqwest::Response), FailedAttempt> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        check_literal_address(&request.url, self.allow_private)?;
        let mut builder = self
            .client()?
            .request(request.method.clone(), request.url.clone())
            .headers(request.headers.clone())
            .timeout(self.timeout);
        if let Some(body) = &request.body {
            builder = builder.body(body.clone());
        }
        let response = builder.send().await.map_err(|error| self.transport(&host, error, secrets))?;
        Ok((host, response))
    }

    async fn attempt(
        &self,
        request: &Request,
        secrets: &ResolvedSecrets,
        (call, attempt): (&Call, u32),
    ) -> Result<Output, FailedAttempt> {
        let (host, response) = self.respond(request, secrets, attempt).await?;
        let (status, content_type) = (response.status().as_u16(), ContentType::of(response.headers()));
        let body = self.body(&host, response, secrets).await?;
        Ok(response_body::output_of(&host, (status, &content_type), body, call.artifacts.as_ref())?)
    }

    /// Sends a request once. Returns the host and its response if the status is a success.
    async fn respond(
        &self,
        request: &Request,
        secrets: &ResolvedSecrets,
        attempt: u32,
    ) -> Result<(String, reqwest::Response), FailedAttempt> {
        let (host, response) = self.send(request, secrets).await?;
        let status = response.status();
        if status.is_success() {
            return Ok((host, response));
        }
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| retry::after(value, SystemTime::now()));
        let excerpt = clean(&beginning(response).await, secrets);
        let (status, busy) = (status.as_u16(), status.as_u16() == 429 || status.is_server_error());
        let error = if busy {
            AgentError::Unavailable { host, status, attempts: attempt, retry_after, excerpt }
        } else {
            let excerpt =
                if (300..400).contains(&status) { "redirects are not followed".to_owned() } else { excerpt };
            AgentError::Status { host, status, excerpt }
        };
        Err(FailedAttempt { error, again: busy, retry_after })
    }

    async fn body(
        &self,
        host: &str,
        mut response: reqwest::Response,
        secrets: &ResolvedSecrets,
    ) -> Result<Vec<u8>, FailedAttempt> {
        let limit = self.max_output;
        let too_large = || FailedAttempt::from(AgentError::TooLarge { limit });
        if response.content_length().is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| self.transport(host, error, secrets))?
        {
            if (body.len() + chunk.len()) as u64 > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Converts an error of the HTTP client. Its message contains the URL, which contains input data.
    fn transport(&self, host: &str, error: reqwest::Error, secrets: &ResolvedSecrets) -> FailedAttempt {
        let error = error.without_url();
        let first: &(dyn Error + 'static) = &error;
        let causes: Vec<_> = std::iter::successors(Some(first), |cause| (*cause).source()).collect();
        if let Some(refused) = causes.iter().find_map(|cause| cause.downcast_ref::<AgentError>()) {
            return refused.clone().into();
        }
        if error.is_timeout() {
            return FailedAttempt {
                error: AgentError::TimedOut(self.timeout),
                again: false,
                retry_after: None,
            };
        }
        let unsent = error.is_connect();
        let reason = causes.iter().map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let reason = clean(reason.as_bytes(), secrets);
        FailedAttempt {
            error: AgentError::Transport { host: host.to_owned(), reason },
            again: unsent,
            retry_after: None,
        }
    }

    fn client(&self) -> Result<&reqwest::Client, AgentError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = http_client(self.allow_private)?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// Creates a client without redirects and proxies that connects only to public addresses, unless
/// `allow_private` is set.
pub(crate) fn http_client(allow_private: bool) -> Result<reqwest::Client, AgentError> {
    client_with_tls(allow_private, tls().map_err(|error| AgentError::Host(error.to_string()))?)
}

/// As [`http_client`], with certificates. Fails if they cannot be read.
pub(crate) fn http_client_with_identity(
    allow_private: bool,
    identity: &WebIdentity,
) -> Result<reqwest::Client, AgentError> {
    if identity == &WebIdentity::default() {
        return http_client(allow_private);
    }
    client_with_tls(allow_private, tls_with_identity(identity).map_err(AgentError::Host)?)
}

fn client_with_tls(allow_private: bool, tls: rustls::ClientConfig) -> Result<reqwest::Client, AgentError> {
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("sinew/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .tls_backend_preconfigured(tls);
    if !allow_private {
        builder = builder.dns_resolver(Arc::new(PublicOnly));
    }
    builder.build().map_err(|error| AgentError::Host(error.to_string()))
}

fn tls_with_identity(identity: &WebIdentity) -> Result<rustls::ClientConfig, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| text(&error))?;
    let trusting = match &identity.authorities {
        None => builder.with_platform_verifier().map_err(|error| text(&error))?,
        Some(pem) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| format!("the authorities: {error}"))?;
                roots.add(certificate).map_err(|error| format!("the authorities: {error}"))?;
            }
            if roots.is_empty() {
                return Err("the authorities: the file has no certificate".to_owned());
            }
            builder.with_root_certificates(roots)
        }
    };
    let Some((certificate, key)) = &identity.certificate else { return Ok(trusting.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| format!("the certificate: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key: {error}"))?;
    trusting.with_client_auth_cert(chain, key).map_err(|error| format!("the certificate: {error}"))
}

/// Checks a host that is an IP address, because the resolver does not see it.
pub(crate) fn check_literal_address(url: &Url, allow_private: bool) -> Result<(), AgentError> {
    let host = url.host_str().unwrap_or_default();
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(found) if !allow_private => address::check(host, [found]),
        _ => Ok(()),
    }
}

/// Returns whether a header belongs to the connection, so that files cannot set it.
pub(crate) fn is_connection_header(name: &str) -> bool {
    request::OURS.contains(&name)
}

/// Fetches a text that a workflow references, with one GET from a public address: no redirects, at
/// most ten seconds and one mebibyte.
pub async fn fetch(url: &str) -> Result<Vec<u8>, AgentError> {
    let bad = |problem: String| AgentError::WebAddress { problem };
    let url = Url::parse(url).map_err(|error| bad(format!("is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("has neither http nor https".to_owned()));
    }
    let http = Http {
        request: RequestTemplate::get(),
        from_input: false,
        timeout: Duration::from_secs(10),
        retries: 0,
        max_output: 1 << 20,
        allow_private: false,
        client: OnceLock::new(),
    };
    let (request, secrets) = (Request::get(url), ResolvedSecrets::default());
    let read = async {
        let (host, response) = http.respond(&request, &secrets, 1).await?;
        http.body(&host, response, &secrets).await
    };
    read.await.map_err(|miss| miss.error)
}

/// Returns TLS with ring and the system's certificates, independent of a process-wide default.
fn tls() -> Result<rustls::ClientConfig, rustls::Error> {
    static TLS: OnceLock<rustls::ClientConfig> = OnceLock::new();
    if let Some(config) = TLS.get() {
        return Ok(config.clone());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = || {
        rustls::ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()
    };
    let config = match builder()?.with_platform_verifier() {
        Ok(verified) => verified.with_no_client_auth(),
        Err(error) => {
            // Plain HTTP works without certificates; all TLS servers are then untrusted.
            tracing::warn!(%error, "no trusted certificates found, https requests will fail");
            builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
        }
    };
    Ok(TLS.get_or_init(|| config).clone())
}

async fn beginning(mut response: reqwest::Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < EXCERPT {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    bytes.truncate(EXCERPT);
    bytes
}
