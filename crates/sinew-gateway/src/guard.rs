//! Admits requests to the routes: checks host and origin, identifies the caller and limits open
//! requests.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt as _, Limited};
use sinew_console::{ConsoleCaller, ConsoleMode};
use sinew_mesh::log_limited;
use sinew_protocol::access::AccessRole;
use sinew_protocol::code;
use tower::Service as _;

use crate::access::{AccessRefusal, CallerIdentity, CallerPermit, MeterRefusal};
use crate::caller_stream::end_with_caller;
use crate::http_error::HttpProblem;
use crate::protected_resource::challenge;
use crate::request_permits::{RequestPermits, WeakRequestPermits};
use crate::sse::CountedStream;
use crate::state::GatewayState;

/// Names of the loopback interface.
const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Statuses of routes that reject a request because a limit is exceeded.
const EXCESS: [StatusCode; 3] =
    [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
/// Maximum size of a console form.
const MAX_FORM_BYTES: usize = 64 << 20;

/// Delay before a request with an unknown key is rejected.
const GUESS_PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of requests with unknown keys that are delayed concurrently.
pub(crate) const MAX_GUESSES: usize = 64;
/// Maximum body size that is read although the request is rejected, and the time limit.
const MAX_REFUSED_BYTES: usize = 64 << 10;
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

/// Passes a request to the routes with its caller, or rejects it.
pub(crate) async fn answer_allowed(
    state: &Arc<GatewayState>,
    mut routes: Router,
    request: Request,
) -> Response {
    if let Err(problem) = check_host(state, request.headers(), request.uri()) {
        log_limited!(info, path = %request.uri().path(), ?problem, "rejected a request");
        read_refused(request.version(), request.into_body()).await;
        return problem.into_response();
    }
    let Ok(in_flight) = Arc::clone(&state.in_flight).try_acquire_owned() else {
        log_limited!(info, path = request.uri().path(), "rejected a request: too many requests in progress");
        let text = "the gateway has reached its limit of concurrent requests; retry later";
        let problem = HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text);
        return problem.into_response();
    };
    let (mut parts, mut body) = request.into_parts();
    let caller = match state.authenticator.caller_of(&parts).await {
        Ok(caller) => caller,
        Err(refusal) => {
            read_refused(parts.version, body).await;
            if refusal == AccessRefusal::UnknownKey {
                // A caller that guesses keys waits, without holding a permit that others need.
                drop(in_flight);
                let _place = state.guess_places.acquire().await;
                tokio::time::sleep(GUESS_PAUSE).await;
            }
            return refuse_credentials(state, &refusal, &parts.headers, &parts.uri);
        }
    };
    let Some(caller) = caller else { return answer(&mut routes, Request::from_parts(parts, body)).await };
    let permit = match state.meters.enter(&caller) {
        Ok(permit) => permit,
        Err(refusal) => {
            read_refused(parts.version, body).await;
            return refuse_excess(&caller, parts.uri.path(), refusal);
        }
    };
    if let Some(most) = permit.body_bytes() {
        body = Body::new(Limited::new(body, usize::try_from(most).unwrap_or(usize::MAX)));
    }
    // Console forms contain exports and files; the API limits its own bodies.
    let is_page = parts.uri.path().starts_with(sinew_console::BASE);
    let taken = if is_page { state.take_body_places(&body, MAX_FORM_BYTES) } else { Ok(None) };
    let body_places = match taken {
        Ok(places) => places,
        Err(problem) => {
            let (path, caller) = (parts.uri.path(), caller.label());
            log_limited!(info, path, %caller, "rejected a request: too many large bodies");
            return problem.into_response();
        }
    };
    let places = RequestPermits::new(in_flight, permit, body_places);
    let mode = if caller.role == AccessRole::Operator { ConsoleMode::ReadOnly } else { ConsoleMode::Full };
    // Only a digest of a long name is known.
    let name = caller.token.name().unwrap_or_else(|| caller.token.to_string());
    parts.extensions.insert(ConsoleCaller { name, mode });
    parts.extensions.insert(caller.clone());
    parts.extensions.insert(places.caller().streams());
    parts.extensions.insert(WeakRequestPermits::of(&places));
    let uri = parts.uri.clone();
    let response = answer(&mut routes, Request::from_parts(parts, body)).await;
    if EXCESS.contains(&response.status()) {
        let status = response.status().as_u16();
        log_limited!(info, path = uri.path(), caller = %caller.label(), status, "rejected a request");
    }
    let response = end_with_caller(response, state, &caller);
    count_stream(response, places.caller()).unwrap_or_else(|| {
        log_limited!(info, path = uri.path(), caller = %caller.label(), "rejected a stream beyond the limit");
        let text = "this caller has reached its limit of open streams";
        HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, code::GATEWAY_CALLER_LIMIT, text).into_response()
    })
}

/// Reads a short body of a rejected request. HTTP/2 resets a stream whose body was not read after
/// the response, and clients such as curl 7.88 then lose the response.
pub(crate) async fn read_refused(version: Version, body: Body) {
    if version == Version::HTTP_2 {
        let read = Limited::new(body, MAX_REFUSED_BYTES).collect();
        let _ = tokio::time::timeout(REFUSED_TIMEOUT, read).await;
    }
}

/// Calls the routes.
async fn answer(routes: &mut Router, request: Request) -> Response {
    match routes.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Counts a stream against its caller's limit until it ends. Returns `None` if the limit is
/// reached.
fn count_stream(response: Response, permit: &CallerPermit) -> Option<Response> {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let is_events = content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    if !is_events || response.extensions().get::<CountedStream>().is_some() {
        return Some(response);
    }
    let place = permit.streams().enter()?;
    let (parts, body) = response.into_parts();
    let body = body.map_frame(move |frame| {
        // Held until the body is dropped.
        let _place = &place;
        frame
    });
    Some(Response::from_parts(parts, Body::new(body)))
}

/// Rejects a request whose credentials are missing or invalid.
pub(crate) fn refuse_credentials(
    state: &GatewayState,
    refusal: &AccessRefusal,
    headers: &HeaderMap,
    uri: &Uri,
) -> Response {
    log_limited!(info, path = uri.path(), %refusal, "rejected a request");
    let (status, code) = match refusal {
        AccessRefusal::NoKeys => (StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_CALLER_UNKNOWN),
        AccessRefusal::UnreadKeys => (StatusCode::SERVICE_UNAVAILABLE, code::NATS_DID_NOT_ANSWER),
        refusal if refusal.lacks_scope() => (StatusCode::FORBIDDEN, code::GATEWAY_CALLER_NOT_ALLOWED),
        _ => (StatusCode::UNAUTHORIZED, code::GATEWAY_CALLER_UNKNOWN),
    };
    let challenge = challenge(state, headers, uri, refusal.bearer_error(), AccessRole::Client);
    let mut response = HttpProblem::new(status, code, refusal.to_string()).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// Rejects a request that requires another role.
pub(crate) fn refuse_role(
    state: &GatewayState,
    caller: &CallerIdentity,
    headers: &HeaderMap,
    uri: &Uri,
    needed: AccessRole,
) -> Response {
    let path = uri.path();
    log_limited!(info, path, caller = %caller.label(), role = caller.role.as_str(), "rejected a request");
    let text = format!("this requires a key with the role {}", needed.as_str());
    let problem = HttpProblem::new(StatusCode::FORBIDDEN, code::GATEWAY_CALLER_NOT_ALLOWED, text);
    let mut response = problem.into_response();
    // The owner of a key cannot request another role; the owner of a token can.
    if caller.key.is_none() && !state.authenticator.issuers().is_empty() {
        let challenge = challenge(state, headers, uri, Some("insufficient_scope"), needed);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Rejects a request that exceeds its caller's limits.
fn refuse_excess(caller: &CallerIdentity, path: &str, refusal: MeterRefusal) -> Response {
    log_limited!(info, path, caller = %caller.label(), ?refusal, "rejected a request");
    let (text, seconds) = match refusal {
        MeterRefusal::Rate(wait) => ("this caller exceeds its request rate limit", wait.as_secs() + 1),
        MeterRefusal::InFlight => ("this caller has reached its limit of concurrent requests", 1),
    };
    let problem = HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, code::GATEWAY_CALLER_LIMIT, text);
    ([(header::RETRY_AFTER, seconds.to_string())], problem).into_response()
}

/// Rejects host names that are not this gateway's: a foreign page could otherwise make a browser
/// send requests here (DNS rebinding).
pub(crate) fn check_host(state: &GatewayState, headers: &HeaderMap, uri: &Uri) -> Result<(), HttpProblem> {
    let named = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let target = uri.authority().map(Authority::as_str);
    let address = named.or(target);
    let host = address.and_then(host_of);
    // Readers would disagree about which of two different host names applies.
    let disagree = named.zip(target).is_some_and(|(named, target)| !named.eq_ignore_ascii_case(target));
    let is_ours = |host: &str| {
        LOOPBACK_HOSTS.contains(&host) || state.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host))
    };
    let refused =
        |text: &str| Err(HttpProblem::new(StatusCode::FORBIDDEN, code::GATEWAY_HOST_NOT_ALLOWED, text));
    if disagree || headers.get_all(header::HOST).iter().count() > 1 || !host.as_deref().is_some_and(is_ours) {
        return refused("the Host of the request is not a name of this gateway; add it with `--host NAME`");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    if state.origins.origin_of(headers).is_some() {
        return Ok(());
    }
    // A page on another port or scheme of the same host has another origin.
    let scheme = if state.is_tls { "https" } else { "http" };
    let own = [state.public_url.clone(), address.map(|address| format!("{scheme}://{address}"))];
    let named = origin.to_str().ok().and_then(origin_of);
    // A proxy in front of a configured host name terminates TLS.
    let hosts = state.hosts.iter().map(|host| format!("https://{host}"));
    let own = own.into_iter().flatten().chain(hosts).find(|own| origin_of(own) == named);
    if named.is_some() && own.is_some() {
        return Ok(());
    }
    refused("the Origin of the request is not allowed; add it with `--host NAME` or `--cors-origin ORIGIN`")
}

/// Returns the origin of an address (scheme, host and port), or `None` if it has no host.
fn origin_of(address: &str) -> Option<String> {
    let url = url::Url::parse(address).ok().filter(url::Url::has_host)?;
    Some(url.origin().ascii_serialization())
}

/// Returns the host of an authority in lower case, without port and brackets.
fn host_of(authority: &str) -> Option<String> {
    let authority: Authority = authority.parse().ok()?;
    if authority.as_str().contains('@') {
        return None;
    }
    let rest = authority.as_str().strip_prefix(authority.host())?;
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if !rest.is_empty() && !rest.strip_prefix(':').is_some_and(is_port) {
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
        check("127.0.0.1:23511.evil.com", None);
        check("localhost:70000", None);
        check("localhost:", None);
        check("localhost:+80", None);
        check("a b", None);
        check("", None);
    }
}
