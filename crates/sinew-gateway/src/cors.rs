//! Cross-origin requests from browser scripts (CORS). Only origins that the operator names are
//! allowed.
//!
//! Cookies are never shared with other origins: scripts there present their own key or token.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::guard::check_host;
use crate::state::GatewayState;

/// Methods of a gateway's routes.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// Headers that A2A, MCP and REST clients send.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, accept, a2a-version, a2a-extensions, if-none-match, idempotency-key, last-event-id, \
     mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, range, traceparent, tracestate",
);
/// Response headers that scripts may read.
const ANSWER_HEADERS: HeaderValue = HeaderValue::from_static(
    "a2a-version, a2a-extensions, content-range, etag, location, mcp-protocol-version, mcp-session-id, retry-after, \
     www-authenticate",
);
/// Seconds for which a browser caches a preflight response.
const PREFLIGHT_AGE: HeaderValue = HeaderValue::from_static("600");

/// Origin of a request's script, on a gateway that allows cross-origin requests.
pub(crate) struct SharedOrigin {
    /// The origin if it may read the response.
    origin: Option<HeaderValue>,
}

impl SharedOrigin {
    /// Returns the origin of a request, or `None` on a gateway that allows no origin.
    pub(crate) fn of(state: &GatewayState, request: &Request) -> Option<Self> {
        let shares = !state.origins.is_empty();
        shares.then(|| Self { origin: state.origins.origin_of(request.headers()) })
    }

    /// Returns whether a request is a preflight, by which a browser checks whether a script may
    /// call.
    pub(crate) fn is_preflight(&self, request: &Request) -> bool {
        self.origin.is_some()
            && *request.method() == Method::OPTIONS
            && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Answers a preflight, which has no credentials.
    pub(crate) fn answer_preflight(self, state: &GatewayState, request: &Request) -> Response {
        match check_host(state, request.headers(), request.uri()) {
            Ok(()) => self.marked(preflight()),
            Err(problem) => problem.into_response(),
        }
    }

    /// Adds the CORS headers to a response.
    pub(crate) fn marked(self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = self.origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ANSWER_HEADERS);
        }
        response
    }
}

fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
