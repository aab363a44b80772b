//! Pages of other origins whose scripts may call a gateway (CORS). None may unless the operator names its origin.
//!
//! Cookies are never shared with other origins: scripts there present a key or token of their own.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use url::Url;

use crate::guard::check_host;
use crate::state::GatewayState;

/// Methods of the routes of a gateway.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// Headers that clients of A2A, MCP and the REST API send.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, accept, a2a-version, a2a-extensions, if-none-match, idempotency-key, last-event-id, \
     mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, range, traceparent, tracestate",
);
/// Headers of answers that scripts may read.
const ANSWER_HEADERS: HeaderValue = HeaderValue::from_static(
    "a2a-version, a2a-extensions, content-range, etag, location, mcp-protocol-version, mcp-session-id, retry-after, \
     www-authenticate",
);
/// Seconds for which a browser need not ask again.
const PREFLIGHT_AGE: HeaderValue = HeaderValue::from_static("600");

/// Origins whose scripts may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllowedOrigins(Vec<String>);

impl AllowedOrigins {
    /// Reads origins, `https://app.example.com`. Fails for anything else: a wildcard would share answers with every page.
    pub(crate) fn read(origins: &[String]) -> Result<Self, String> {
        let read = origins.iter().map(|text| {
            let wrong = || {
                format!(
                    "{text:?} is not an origin: expected https://HOST or http://HOST, with a port if need be"
                )
            };
            let url = Url::parse(text).map_err(|_| wrong())?;
            let origin = url.origin().ascii_serialization();
            let is_web = matches!(url.scheme(), "http" | "https");
            if is_web && text.trim_end_matches('/').eq_ignore_ascii_case(&origin) {
                Ok(origin)
            } else {
                Err(wrong())
            }
        });
        read.collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The origin of a request, if its scripts may call.
    pub(crate) fn origin_of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let mut all = headers.get_all(header::ORIGIN).iter();
        let (origin, None) = (all.next()?, all.next()) else { return None };
        self.0.iter().any(|known| known.as_bytes() == origin.as_bytes()).then(|| origin.clone())
    }
}

/// Answers the questions of browsers, and marks answers for scripts of allowed origins.
pub(crate) async fn share_with_origins(
    State(state): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response {
    let origin = state.origins.origin_of(request.headers());
    let is_question = *request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &origin {
        // A browser asks without credentials.
        Some(_) if is_question => match check_host(&state, request.headers(), request.uri()) {
            Ok(()) => preflight(),
            Err(problem) => return problem.into_response(),
        },
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ANSWER_HEADERS);
    }
    response
}

fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_named_exactly() {
        for (text, expected) in [
            ("https://app.example.com", Some("https://app.example.com")),
            ("http://localhost:3000/", Some("http://localhost:3000")),
            ("HTTPS://App.example.com", Some("https://app.example.com")),
            ("https://app.example.com/path", None),
            ("https://user@app.example.com", None),
            ("app.example.com", None),
            ("*", None),
            ("null", None),
            ("file:///x", None),
        ] {
            let read = AllowedOrigins::read(&[text.to_owned()]).ok();
            assert_eq!(read, expected.map(|origin| AllowedOrigins(vec![origin.to_owned()])), "{text}");
        }
    }
}
