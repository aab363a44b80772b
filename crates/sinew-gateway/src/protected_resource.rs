//! The gateway as an OAuth protected resource (RFC 9728): the providers that issue tokens for it,
//! and the challenge that refers clients to them. MCP hosts read it before people sign in.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use sinew_protocol::access::AccessRole;

use crate::access::SCOPE_PREFIX;
use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Path of the document for the whole gateway; the path of a part is appended.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Path of MCP.
pub(crate) const MCP_PATH: &str = "/mcp";
/// Roles that token scopes can grant.
const ROLES: [AccessRole; 3] = [AccessRole::Operator, AccessRole::Client, AccessRole::Admin];
/// Challenge for a request without credentials if no provider is configured.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"sinew\"");

/// Returns the scope that grants a role on everything.
pub(crate) fn scope_of(role: AccessRole) -> String {
    format!("{SCOPE_PREFIX}{}", role.as_str())
}

/// Returns the document for the part of the gateway that the path names.
pub(crate) fn respond(state: &GatewayState, request: &Request) -> Response {
    let issuers = state.authenticator.issuers();
    if issuers.is_empty() {
        return HttpProblem::not_found("no OpenID provider gives tokens for this gateway").into_response();
    }
    let part = request.uri().path().strip_prefix(METADATA_PATH).unwrap_or_default();
    // MCP hosts request all of these scopes, and need only those of a client.
    let most = if part == MCP_PATH { AccessRole::Client } else { AccessRole::Admin };
    let scopes: Vec<String> = ROLES.into_iter().filter(|role| *role <= most).map(scope_of).collect();
    let document = json!({
        "resource": format!("{}{part}", state.base_url(request.headers(), request.uri())),
        "authorization_servers": issuers,
        "bearer_methods_supported": ["header"],
        "scopes_supported": scopes,
    });
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "public, max-age=300")];
    (headers, document.to_string()).into_response()
}

/// Returns the challenge for a rejected request: the defect of its credentials (`error` of RFC
/// 6750), and the scope that a provider's token needs.
pub(crate) fn challenge(
    state: &GatewayState,
    headers: &HeaderMap,
    uri: &Uri,
    error: Option<&str>,
    needed: AccessRole,
) -> HeaderValue {
    let mut members = vec!["realm=\"sinew\"".to_owned()];
    members.extend(error.map(|error| format!("error=\"{error}\"")));
    if !state.authenticator.issuers().is_empty() {
        members.push(format!("scope=\"{}\"", scope_of(needed)));
        if uri.path() == MCP_PATH {
            let base = state.base_url(headers, uri);
            members.push(format!("resource_metadata=\"{base}{METADATA_PATH}{MCP_PATH}\""));
        }
    }
    let text = format!("Bearer {}", members.join(", "));
    HeaderValue::from_str(&text).unwrap_or(CHALLENGE)
}
