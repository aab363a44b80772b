//! Pages of other origins whose scripts may call a gateway (CORS). None may unless the operator names its origin.
//!
//! Cookies are never shared with other origins: scripts there present a key or token of their own.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

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
