//! One exchange with a service outside: the request, the head of the answer, and its body in pieces.

use std::time::Duration;

use crate::error::AgentError;

/// Certificates of a client, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WebIdentity {
    /// Certificate of the client with its chain, and its key. `None` if the client shows none.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Authorities that servers are trusted by. `None` for those of the system.
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
    /// Reads.
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
    /// Headers, whose values are kept out of logs.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body; empty for none.
    pub body: Vec<u8>,
    /// Time for the connection and the head of the answer.
    pub timeout: Duration,
}

/// Reason why a request got no answer.
#[derive(Debug)]
pub struct WebFailure {
    /// The failure.
    pub error: AgentError,
    /// Whether the service cannot have seen the request.
    pub is_unsent: bool,
}

/// Answer of a service whose body is still to be read.
#[derive(Debug)]
pub struct WebResponse {
    host: String,
    response: reqwest::Response,
}

impl WebResponse {
    pub(crate) fn new(host: String, response: reqwest::Response) -> Self {
        Self { host, response }
    }

    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Value of a header; `None` if it is absent or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Waits for the next piece of the body; `None` at its end. Waits without limit.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, AgentError> {
        match self.response.chunk().await {
            Ok(chunk) => Ok(chunk.map(Vec::from)),
            Err(error) => Err(failed(&self.host, error, Duration::ZERO)),
        }
    }

    /// Reads the whole body. Fails if it has more than `max_bytes`. Waits without limit.
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

/// Sorts out what the HTTP client reports; its own texts name the URL, which may hold secrets.
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
