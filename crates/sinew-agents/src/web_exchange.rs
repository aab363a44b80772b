//! One exchange with an external service: the request, the response headers, and the body in chunks.

use std::time::Duration;

use crate::error::AgentError;

/// Client certificates and trusted authorities, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WebIdentity {
    /// Certificate chain and key of the client; `None` for no client certificate.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Certificate authorities to trust; `None` for those of the system.
    pub authorities: Option<Vec<u8>>,
}

impl std::fmt::Debug for WebIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebIdentity")
            .field("has_certificate", &self.certificate.is_some())
            .finish_non_exhaustive()
    }
}

/// Method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebMethod {
    /// Reads a resource.
    Get,
    /// Sends a body.
    Post,
}

/// A request to a service.
#[derive(Debug)]
pub struct WebRequest<'a> {
    /// Method.
    pub method: WebMethod,
    /// URL.
    pub address: &'a str,
    /// Headers; their values are not logged.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body; empty for none.
    pub body: Vec<u8>,
    /// Time limit for the connection and the response headers.
    pub timeout: Duration,
}

/// Reason why a request received no response.
#[derive(Debug)]
pub struct WebFailure {
    /// Error of the request.
    pub error: AgentError,
    /// Whether the service cannot have received the request.
    pub is_unsent: bool,
}

/// Response of a service whose body is not read yet.
#[derive(Debug)]
pub struct WebResponse {
    host: String,
    response: reqwest::Response,
}

impl WebResponse {
    pub(crate) fn new(host: String, response: reqwest::Response) -> Self {
        Self { host, response }
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the value of a header; `None` if it is absent or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Waits, without a timeout, for the next chunk of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, AgentError> {
        match self.response.chunk().await {
            Ok(chunk) => Ok(chunk.map(Vec::from)),
            Err(error) => Err(failed(&self.host, error, Duration::ZERO)),
        }
    }

    /// Reads the whole body, without a timeout. Fails if it exceeds `max_bytes`.
    pub async fn body(mut self, max_bytes: usize) -> Result<Vec<u8>, AgentError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > max_bytes {
                let reason = format!("more than {max_bytes} bytes");
                return Err(AgentError::Response { host: self.host, reason });
            }
        }
        Ok(body)
    }
}

/// Converts an error of the HTTP client. Its message contains the URL, which may contain secrets.
pub(crate) fn failed(host: &str, error: reqwest::Error, timeout: Duration) -> AgentError {
    let error = error.without_url();
    let first: &(dyn std::error::Error + 'static) = &error;
    let mut causes = std::iter::successors(Some(first), |cause| (*cause).source());
    if let Some(refused) = causes.find_map(|cause| cause.downcast_ref::<AgentError>()) {
        return refused.clone();
    }
    if error.is_timeout() {
        return AgentError::TimedOut(timeout);
    }
    let reason = if error.is_connect() { "the connection failed" } else { "the exchange broke off" };
    AgentError::Transport { host: host.to_owned(), reason: reason.to_owned() }
}
