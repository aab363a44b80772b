//! HTTP requests to external addresses that do not come from agents: webhooks, documents of providers.
//!
//! As for `run: http:` agents: no redirects, no proxies from the environment, no cookies, and only
//! public addresses unless the operator allows others. The connection uses the checked address.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};

use crate::error::AgentError;
use crate::run::{check_literal_address, http_client, http_client_with_identity};
use crate::web_exchange::{WebFailure, WebIdentity, WebMethod, WebRequest, WebResponse, failed};

/// Addresses to which a client can connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachableAddresses {
    /// Addresses of the public internet.
    Public,
    /// Also addresses of this machine and of private networks.
    All,
}

/// A client of external services.
#[derive(Clone, Debug)]
pub struct WebClient {
    client: reqwest::Client,
    allow_private: bool,
}

/// Response of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAnswer {
    /// HTTP status.
    pub status: u16,
    /// Body, up to the limit of the request.
    pub body: Vec<u8>,
}

impl WebClient {
    /// Creates a client for these addresses. Fails if TLS cannot be set up.
    pub fn new(addresses: ReachableAddresses) -> Result<Self, AgentError> {
        let allow_private = addresses == ReachableAddresses::All;
        Ok(Self { client: http_client(allow_private)?, allow_private })
    }

    /// Creates a client with certificates. Fails if they cannot be read, or TLS cannot be set up.
    pub fn with_identity(addresses: ReachableAddresses, identity: &WebIdentity) -> Result<Self, AgentError> {
        let allow_private = addresses == ReachableAddresses::All;
        Ok(Self { client: http_client_with_identity(allow_private, identity)?, allow_private })
    }

    /// Validates an address. Fails if it is not HTTP or its host is not allowed. Host names are checked
    /// again on resolution.
    pub fn check(&self, address: &str) -> Result<(), AgentError> {
        self.parse(address).map(drop)
    }

    fn parse(&self, address: &str) -> Result<Url, AgentError> {
        let bad = |problem: String| AgentError::WebAddress { problem };
        let url = Url::parse(address).map_err(|error| bad(format!("is not a URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad("has neither http nor https".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("contains a user or a password".to_owned()));
        }
        check_literal_address(&url, self.allow_private)?;
        Ok(url)
    }

    /// Fetches a document of at most `max_bytes` within `timeout`. Fails unless the status is 200.
    pub async fn get(
        &self,
        address: &str,
        max_bytes: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, AgentError> {
        let answer = self.ask(WebMethod::Get, address, &[], Vec::new(), (max_bytes, timeout)).await?;
        if answer.status != 200 {
            let reason = format!("status {}", answer.status);
            return Err(AgentError::Response { host: "the service".to_owned(), reason });
        }
        Ok(answer.body)
    }

    /// Posts a body with these headers, and waits at most `timeout`. Returns a redirect as a response.
    pub async fn post(
        &self,
        address: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<WebAnswer, AgentError> {
        self.ask(WebMethod::Post, address, headers, body, (0, timeout)).await
    }

    async fn ask(
        &self,
        method: WebMethod,
        address: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
        (max_bytes, timeout): (usize, Duration),
    ) -> Result<WebAnswer, AgentError> {
        let request = WebRequest { method, address, headers, body, timeout };
        let exchange = async {
            let response = self.open(request).await.map_err(|failure| failure.error)?;
            let status = response.status();
            let body = if max_bytes > 0 { response.body(max_bytes).await? } else { Vec::new() };
            Ok(WebAnswer { status, body })
        };
        tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(AgentError::TimedOut(timeout)))
    }

    /// Sends a request and waits for the response headers within the request's timeout. The caller
    /// reads the body and limits its size and time.
    pub async fn open(&self, request: WebRequest<'_>) -> Result<WebResponse, WebFailure> {
        let unsent = |error: AgentError| WebFailure { error, is_unsent: true };
        let url = self.parse(request.address).map_err(unsent)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let headers = header_map(&host, request.headers).map_err(unsent)?;
        let method = match request.method {
            WebMethod::Get => Method::GET,
            WebMethod::Post => Method::POST,
        };
        let asked = self.client.request(method, url).headers(headers).body(request.body).send();
        let response = match tokio::time::timeout(request.timeout, asked).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let is_unsent = error.is_connect() || error.is_builder();
                return Err(WebFailure { error: failed(&host, error, request.timeout), is_unsent });
            }
            Err(_) => {
                let error = AgentError::TimedOut(request.timeout);
                return Err(WebFailure { error, is_unsent: false });
            }
        };
        Ok(WebResponse::new(host, response))
    }
}

fn header_map(host: &str, headers: &[(&str, &str)]) -> Result<HeaderMap, AgentError> {
    let mut named = HeaderMap::new();
    for (name, value) in headers {
        let bad = || AgentError::Response {
            host: host.to_owned(),
            reason: format!("header {name} cannot be sent"),
        };
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        // Values can be secrets and must not appear in logs of the HTTP library.
        value.set_sensitive(true);
        named.append(HeaderName::try_from(*name).map_err(|_| bad())?, value);
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_of_this_machine_are_refused_unless_allowed() {
        let public = WebClient::new(ReachableAddresses::Public).unwrap();
        let refused = [
            "http://127.0.0.1:1/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://169.254.169.254/latest",
            "http://0x7f000001/",
            "http://2130706433/",
            "http://017700000001/",
            "ftp://example.com/",
            "http://user:pw@example.com/",
            "no address",
        ];
        for address in refused {
            assert!(public.check(address).is_err(), "{address}");
        }
        assert!(public.check("https://example.com/hook").is_ok());
        let named =
            public.post("http://localhost:1/", &[], Vec::new(), Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(named.code(), "SINEW-5030", "{named}");
        let all = WebClient::new(ReachableAddresses::All).unwrap();
        assert!(all.check("http://127.0.0.1:1/").is_ok());
        let header =
            all.post("http://127.0.0.1:1/", &[("x", "a\r\nb: c")], Vec::new(), Duration::from_secs(5)).await;
        assert!(matches!(header, Err(AgentError::Response { .. })), "{header:?}");
    }
}
