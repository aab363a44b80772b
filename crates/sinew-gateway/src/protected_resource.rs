//! The gateway as a resource that OAuth protects (RFC 9728): which providers give tokens for it, and the challenge that leads
//! clients there. Hosts of MCP look for it before people sign in.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Path of the document about the whole gateway; the path of a part of it follows.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Path of MCP.
pub(crate) const MCP_PATH: &str = "/mcp";
/// Challenge where no provider gives tokens.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"sinew\"");

/// Answers with the document about the part of the gateway that the path names.
pub(crate) fn respond(state: &GatewayState, request: &Request) -> Response {
    let issuers = state.gate.issuers();
    if issuers.is_empty() {
        return HttpProblem::not_found("no OpenID provider gives tokens for this gateway").into_response();
    }
    let part = request.uri().path().strip_prefix(METADATA_PATH).unwrap_or_default();
    let document = json!({
        "resource": format!("{}{part}", state.base_url(request.headers(), request.uri())),
        "authorization_servers": issuers,
        "bearer_methods_supported": ["header"],
    });
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "public, max-age=300")];
    (headers, document.to_string()).into_response()
}

/// The challenge of a request without credentials that open.
pub(crate) fn challenge(state: &GatewayState, headers: &HeaderMap, uri: &Uri) -> HeaderValue {
    if uri.path() != MCP_PATH || state.gate.issuers().is_empty() {
        return CHALLENGE;
    }
    let base = state.base_url(headers, uri);
    let text = format!("Bearer realm=\"sinew\", resource_metadata=\"{base}{METADATA_PATH}{MCP_PATH}\"");
    HeaderValue::from_str(&text).unwrap_or(CHALLENGE)
}
