//! The door: which hosts and origins a request may name, how many requests are open, and the caller of each.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sinew_protocol::code;

use crate::caller::CallerIdentity;
use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Names of the loopback interface.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Lets a request through, with its caller, or refuses it.
pub(crate) async fn check_request(
    State(state): State<Arc<GatewayState>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Err(problem) = check_host(&state, request.headers(), request.uri()) {
        tracing::info!(path = %request.uri().path(), ?problem, "a request was refused");
        return problem.into_response();
    }
    let Ok(_permit) = Arc::clone(&state.in_flight).try_acquire_owned() else {
        let text = "the gateway answers as many requests as it may; try again in a moment";
        let problem = HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text);
        return ([(header::RETRY_AFTER, "1")], problem).into_response();
    };
    request.extensions_mut().insert(CallerIdentity { token: state.own_caller.clone() });
    next.run(request).await
}

/// Refuses names that are not of this gateway: a page elsewhere could have a browser send requests here (DNS rebinding).
fn check_host(state: &GatewayState, headers: &HeaderMap, uri: &Uri) -> Result<(), HttpProblem> {
    let named = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let host = named.or_else(|| uri.authority().map(Authority::as_str)).and_then(host_of);
    let is_ours = |host: &str| {
        LOOPBACK_HOSTS.contains(&host) || state.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host))
    };
    let refused =
        |text: &str| Err(HttpProblem::new(StatusCode::FORBIDDEN, code::GATEWAY_HOST_NOT_ALLOWED, text));
    if headers.get_all(header::HOST).iter().count() > 1 || !host.as_deref().is_some_and(is_ours) {
        return refused("the Host of the request is not a name of this gateway; `--host NAME` adds one");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
    let origin = origin.as_ref().and_then(Uri::authority).map(Authority::as_str).and_then(host_of);
    if origin.as_deref().is_some_and(is_ours) {
        return Ok(());
    }
    refused("the Origin of the request is not a name of this gateway; `--host NAME` adds one")
}

/// The host of an authority, in lower case, without port and brackets.
fn host_of(authority: &str) -> Option<String> {
    let authority: Authority = authority.parse().ok()?;
    if authority.as_str().contains('@') {
        return None;
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    Some(host.to_ascii_lowercase()).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_without_their_port() {
        let check = |authority: &str, expected: Option<&str>| {
            assert_eq!(host_of(authority).as_deref(), expected, "{authority}");
        };
        check("localhost:8234", Some("localhost"));
        check("LocalHost", Some("localhost"));
        check("[::1]:80", Some("::1"));
        check("127.0.0.1", Some("127.0.0.1"));
        check("localhost@evil.example", None);
        check("a b", None);
        check("", None);
    }
}
