//! A client of the REST API, within the process.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Extensions, Method, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded;

use crate::api_problem::ApiProblem;
use crate::console_error::ConsoleError;

/// Base path of the API.
pub(crate) const API_BASE: &str = "/api/v1";
/// Maximum size of a response. A record may be large; lists and descriptions are not.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Characters that a path segment keeps unescaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'@');

/// Handles one API request. The extensions are those of the page's request and identify the caller.
type AskApi = dyn Fn(&Extensions, Request) -> BoxFuture<'static, Response> + Send + Sync;

/// In-process access to the API, which a gateway passes to its console.
#[derive(Clone)]
pub struct ApiPort(Arc<AskApi>);

impl ApiPort {
    /// Creates a port from a function, which receives the extensions of the page's request and an
    /// API request.
    pub fn new(
        ask: impl Fn(&Extensions, Request) -> BoxFuture<'static, Response> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(ask))
    }
}

impl std::fmt::Debug for ApiPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiPort").finish_non_exhaustive()
    }
}

/// The API on behalf of the sender of one page request.
#[derive(Clone, Debug)]
pub(crate) struct ApiClient {
    port: ApiPort,
    caller: Extensions,
}

/// Address of an operation: a path below the base, and a query.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiPath {
    path: String,
    query: String,
}

impl ApiPath {
    /// Creates a path of segments, each of which may be any text.
    pub(crate) fn of(segments: &[&str]) -> Self {
        Self { path: join_segments(API_BASE, segments), query: String::new() }
    }

    /// Adds a parameter.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        append_pair(&mut self.query, name, value);
        self
    }

    /// Adds a parameter if it has a value.
    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<&str>) -> Self {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Path and query as in a request.
    pub(crate) fn address(&self) -> String {
        if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query) }
    }
}

/// Appends segments, each of which may be any text, to a base.
pub(crate) fn join_segments(base: &str, segments: &[&str]) -> String {
    segments.iter().fold(base.to_owned(), |path, segment| {
        // A segment of dots would be resolved as a relative path.
        let segment = match *segment {
            "." => "%2E".into(),
            ".." => "%2E%2E".into(),
            other => utf8_percent_encode(other, SEGMENT).to_string(),
        };
        format!("{path}/{segment}")
    })
}

/// Appends a parameter to a query.
pub(crate) fn append_pair(query: &mut String, name: &str, value: &str) {
    let pair = form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
    if !query.is_empty() {
        query.push('&');
    }
    query.push_str(&pair);
}

impl ApiClient {
    pub(crate) fn new(port: ApiPort, caller: Extensions) -> Self {
        Self { port, caller }
    }

    /// Reads a document.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &ApiPath) -> Result<T, ConsoleError> {
        read_document(&self.get_bytes(path).await?)
    }

    /// Reads bytes.
    pub(crate) async fn get_bytes(&self, path: &ApiPath) -> Result<Bytes, ConsoleError> {
        self.ask(Method::GET, path, "", Bytes::new()).await
    }

    /// Reads text.
    pub(crate) async fn get_text(&self, path: &ApiPath) -> Result<String, ConsoleError> {
        let bytes = self.get_bytes(path).await?;
        String::from_utf8(bytes.into()).map_err(|_| ConsoleError::Answer("not valid UTF-8".to_owned()))
    }

    /// Sends a document and reads the response document.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &ApiPath,
        body: &Value,
    ) -> Result<T, ConsoleError> {
        let body = Bytes::from(body.to_string());
        read_document(&self.ask(Method::POST, path, "application/json", body).await?)
    }

    /// Sends a file and reads the response document.
    pub(crate) async fn post_file<T: DeserializeOwned>(
        &self,
        path: &ApiPath,
        file: String,
    ) -> Result<T, ConsoleError> {
        read_document(&self.ask(Method::POST, path, "text/plain", file.into()).await?)
    }

    /// Deletes a resource, or previews its deletion.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &ApiPath) -> Result<T, ConsoleError> {
        read_document(&self.ask(Method::DELETE, path, "", Bytes::new()).await?)
    }

    async fn ask(
        &self,
        method: Method,
        path: &ApiPath,
        media_type: &str,
        body: Bytes,
    ) -> Result<Bytes, ConsoleError> {
        let request = Request::builder()
            .method(method)
            .uri(path.address())
            .header(header::CONTENT_TYPE, media_type)
            .body(Body::from(body))
            .map_err(|error| ConsoleError::Answer(error.to_string()))?;
        let response = (self.port.0)(&self.caller, request).await;
        let status = response.status();
        let bytes = to_bytes(response.into_body(), MAX_ANSWER_BYTES)
            .await
            .map_err(|_| ConsoleError::Answer("too large or incomplete".to_owned()))?;
        if status.is_success() {
            return Ok(bytes);
        }
        let mut problem: ApiProblem = read_document(&bytes)?;
        problem.status = status.as_u16();
        Err(ConsoleError::Refused(Box::new(problem)))
    }
}

fn read_document<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConsoleError> {
    serde_json::from_slice(bytes).map_err(|error| ConsoleError::Answer(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_stay_one_segment_and_one_value() {
        let check = |segments: &[&str], value: &str, expected: &str| {
            assert_eq!(ApiPath::of(segments).with("name", value).address(), expected);
        };
        check(&["executions", "@latest", "node"], "a", "/api/v1/executions/@latest/node?name=a");
        check(&["workflows", "a/../b?c#d"], "x&y=z", "/api/v1/workflows/a%2F..%2Fb%3Fc%23d?name=x%26y%3Dz");
        check(&["agents", ".."], "é\n", "/api/v1/agents/%2E%2E?name=%C3%A9%0A");
        assert_eq!(
            ApiPath::of(&["pulse"]).with_some("a", Some("")).with_some("b", None).address(),
            "/api/v1/pulse"
        );
    }
}
