//! `/mcp`: MCP over streamable HTTP.
//!
//! Clients of 2026-07-28 need no session. Those of earlier versions have a session at this gateway;
//! if it is lost, they start another one at any gateway, and their tasks still exist.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, Collected, Full};
use rmcp::model::{InitializeRequest, ProtocolVersion};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_protocol::Token;
use sinew_protocol::code;
use sinew_protocol::unique_keys::check_unique_keys;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::bad_params::refused_params;
use super::batch;
use super::handler::McpHandler;
use super::shared_state::McpShared;
use crate::access::CallerIdentity;
use crate::http_error::{HttpProblem, PROBLEM_JSON};
use crate::operations::short;
use crate::options::{GatewayLimits, GatewayOptions};
use crate::request_body::{BodyError, is_json, read_body};

/// Header with the session of an older client.
pub(super) const SESSION_HEADER: &str = "mcp-session-id";
/// Method that starts a session.
pub(super) const BEGIN_SESSION: &str = "initialize";
/// Additional lifetime of an idle session after the longest call.
const SESSION_RESERVE: Duration = Duration::from_mins(5);
/// Header with the protocol version.
pub(super) const VERSION_HEADER: &str = "mcp-protocol-version";
/// Header with the last event of a stream that a client has.
const LAST_EVENT_HEADER: &str = "last-event-id";
/// First version whose clients know priming events.
const PRIMING_SINCE: &str = "2025-11-25";
/// JSON-RPC error code for invalid JSON.
const PARSE_ERROR: i32 = -32_700;
/// JSON-RPC error code for JSON that is not a message.
const INVALID_REQUEST: i32 = -32_600;

/// A gateway's MCP endpoint.
pub(crate) struct McpEndpoint {
    service: StreamableHttpService<McpHandler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// Caller who started each session: the session id alone grants no access.
    owners: moka::sync::Cache<String, Token>,
    /// Sessions that are being started, so that concurrent requests count against the limit.
    beginning: Arc<Mutex<HashMap<Token, usize>>>,
    most_per_caller: usize,
    limits: GatewayLimits,
    /// Permits for the gateway's open streams.
    streams: Arc<Semaphore>,
    /// Cancelled when the gateway drains.
    idle: CancellationToken,
    _ended: DropGuard,
}

/// The method of a message; other members are not parsed here.
#[derive(Deserialize)]
struct MethodMember<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
}

impl McpEndpoint {
    /// Creates the endpoint. When the gateway drains, streams that wait for changes end, and calls
    /// continue.
    pub(crate) fn new(shared: McpShared, options: &GatewayOptions, streams: Arc<Semaphore>) -> Self {
        let idle = shared.drain.idle.clone();
        let (shared, limits) = (Arc::new(shared), &options.limits);
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(limits.blocking + SESSION_RESERVE);
        let sessions = Arc::new(sessions);
        // This token ends calls too, so it is cancelled only with the endpoint.
        let ended = CancellationToken::new();
        // The guard has checked Host and Origin against the names of this gateway.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_max_request_body_bytes(limits.body_bytes)
            .with_cancellation_token(ended.clone());
        let handler = move || Ok(McpHandler::new(Arc::clone(&shared)));
        let service = StreamableHttpService::new(handler, Arc::clone(&sessions), config);
        // An owner entry outlives its session, which ends earlier without requests.
        let owners =
            moka::sync::Cache::builder().time_to_idle(2 * (limits.blocking + SESSION_RESERVE)).build();
        // Without credentials, all clients are one caller.
        let most_per_caller =
            if options.access.is_required { limits.sessions_per_caller } else { limits.sessions };
        let beginning = Arc::default();
        Self {
            service,
            sessions,
            owners,
            beginning,
            most_per_caller,
            limits: *limits,
            streams,
            idle,
            _ended: ended.drop_guard(),
        }
    }

    /// Answers one request.
    pub(crate) async fn serve(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let caller = CallerIdentity::of(&parts.extensions).map(|caller| caller.label().clone());
        let session = parts.headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok());
        if session.is_some_and(|session| self.owners.get(session) != caller) {
            return no_session();
        }
        let ending = session.filter(|_| parts.method == Method::DELETE).map(str::to_owned);
        if let Some(ending) = &ending
            && !self.sessions.sessions.read().await.contains_key(ending.as_str())
        {
            return no_session();
        }
        let body = match read_body(&self.limits, body).await {
            Ok(body) => body,
            Err(BodyError::TooLarge(text)) => return malformed(StatusCode::PAYLOAD_TOO_LARGE, text),
            Err(BodyError::Broken) => {
                return malformed(StatusCode::REQUEST_TIMEOUT, "the request body is incomplete");
            }
        };
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let mut place = None;
        if parts.method == Method::POST && is_json(content_type) {
            if let Err(error) = check_unique_keys(&body) {
                return not_json(&error.to_string());
            }
            if !parts.headers.contains_key(SESSION_HEADER) && begins_session(&body) {
                if let Some(refused) = refused_beginning(&parts.headers, &body) {
                    return refused;
                }
                match self.place_of_session(caller.as_ref()).await {
                    Ok(taken) => place = taken,
                    Err(refused) => return *refused,
                }
            }
        }
        let is_first = session.is_none();
        let knows_priming = knows_priming(&parts.headers);
        let sent = body.clone();
        // A session's standalone stream only waits for changes; an id with a slash belongs to the
        // stream of a call.
        let last_event = parts.headers.get(LAST_EVENT_HEADER).map(HeaderValue::as_bytes);
        let is_idle = parts.method == Method::GET && !last_event.is_some_and(|id| id.contains(&b'/'));
        // Acquired before the work starts, because any response may be a stream.
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else {
            return busy("the gateway has reached its limit of open streams; retry later");
        };
        if let Some(messages) = batch::messages(&parts, &body) {
            return match messages {
                Ok(messages) => batch::answer(&self.service, &parts, messages, permit).await,
                Err(text) => json_rpc_error(&Value::Null, INVALID_REQUEST, text),
            };
        }
        let answer = self.service.handle(axum::http::Request::from_parts(parts, Full::new(body))).await;
        let (parts, body) = answer.into_parts();
        let begun = parts.headers.get(SESSION_HEADER).and_then(|value| value.to_str().ok());
        if let (Some(begun), Some(caller), true) = (begun, caller, is_first) {
            let owned = || self.owners.insert(begun.to_owned(), caller);
            match place {
                Some(place) => place.give_back(owned),
                None => owned(),
            }
        }
        if let Some(ending) = ending.filter(|_| parts.status.is_success()) {
            self.owners.invalidate(&ending);
            return StatusCode::NO_CONTENT.into_response();
        }
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        if content_type.is_none() && !parts.status.is_success() {
            return reworded_refusal(&sent, parts, Body::new(body)).await;
        }
        if !content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream")) {
            return Response::from_parts(parts, Body::new(body));
        }
        let body = body.map_frame(move |frame| {
            // A stream counts until its body is dropped.
            let _held = &permit;
            frame
        });
        let ended = is_idle.then(|| self.idle.clone());
        stream_of(parts, Body::new(body), knows_priming, ended)
    }

    /// Reserves a session for a caller, or rejects it if the limit is reached.
    async fn place_of_session(&self, caller: Option<&Token>) -> Result<Option<SessionPermit>, Box<Response>> {
        let open = self.sessions.sessions.read().await;
        if open.len() >= self.limits.sessions {
            let text = "the gateway has reached its limit of open sessions; retry later";
            return Err(Box::new(busy(text)));
        }
        let Some(caller) = caller else { return Ok(None) };
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let of_caller =
            |(session, owner): &(Arc<String>, Token)| owner == caller && open.contains_key(session.as_str());
        let held = self.owners.iter().filter(of_caller).count();
        let begun = beginning.entry(caller.clone()).or_default();
        if held + *begun >= self.most_per_caller {
            let text = "this caller has reached its limit of open sessions; end one, or use no session (MCP 2026-07-28)";
            let problem = HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, code::GATEWAY_CALLER_LIMIT, text);
            return Err(Box::new(problem.into_response()));
        }
        *begun += 1;
        Ok(Some(SessionPermit {
            beginning: Arc::clone(&self.beginning),
            caller: caller.clone(),
            is_held: true,
        }))
    }
}

/// Converts a plain-text error of `rmcp` to the gateway's format. `sent` is the body of the
/// request.
async fn reworded_refusal(sent: &Bytes, parts: Parts, refusal: Body) -> Response {
    let text = refusal.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let reason = parts.status.canonical_reason().unwrap_or_default();
    // The error for a media type begins with the status text, unlike that for a message.
    if parts.status == StatusCode::UNSUPPORTED_MEDIA_TYPE && !text.starts_with(reason) {
        let id = serde_json::from_slice::<IdMember>(sent).ok().map(|member| member.id);
        let id = id.filter(|id| id.is_string() || id.is_number()).unwrap_or_default();
        let text = "the body is not a single JSON-RPC 2.0 message, or a member has the wrong type";
        return json_rpc_error(&id, INVALID_REQUEST, text);
    }
    let detail = text.strip_prefix(reason).map_or(&*text, |rest| rest.trim_start_matches(": "));
    let detail = if detail.is_empty() { reason } else { detail };
    let code = match parts.status {
        StatusCode::NOT_FOUND => return no_session(),
        StatusCode::METHOD_NOT_ALLOWED => code::GATEWAY_PATH_UNKNOWN,
        status if status.is_server_error() => code::NO_ANSWER_ON_MESH,
        _ => code::GATEWAY_MESSAGE_MALFORMED,
    };
    let mut response = HttpProblem::new(parts.status, code, short(detail, 300)).into_response();
    if let Some(allowed) = parts.headers.get(header::ALLOW) {
        response.headers_mut().insert(header::ALLOW, allowed.clone());
    }
    response
}

/// The id of a message; other members are not parsed here.
#[derive(Deserialize)]
struct IdMember {
    #[serde(default)]
    id: Value,
}

/// Reservation of a session that its caller is starting.
struct SessionPermit {
    beginning: Arc<Mutex<HashMap<Token, usize>>>,
    caller: Token,
    is_held: bool,
}

impl SessionPermit {
    /// Releases the reservation under the lock, after the session itself counts.
    fn give_back(mut self, counts: impl FnOnce()) {
        let beginning = Arc::clone(&self.beginning);
        let mut beginning = beginning.lock().unwrap_or_else(PoisonError::into_inner);
        counts();
        release(&mut beginning, &self.caller);
        self.is_held = false;
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        if self.is_held {
            release(&mut self.beginning.lock().unwrap_or_else(PoisonError::into_inner), &self.caller);
        }
    }
}

fn release(beginning: &mut HashMap<Token, usize>, caller: &Token) {
    if let Some(count) = beginning.get_mut(caller) {
        *count -= 1;
        if *count == 0 {
            beginning.remove(caller);
        }
    }
}

fn begins_session(body: &Bytes) -> bool {
    let method = serde_json::from_slice::<MethodMember<'_>>(body).ok().and_then(|member| member.method);
    method.as_deref() == Some(BEGIN_SESSION)
}

/// Rejects an `initialize` request with invalid parameters: `rmcp` would report a missing session
/// instead.
fn refused_beginning(headers: &HeaderMap, body: &Bytes) -> Option<Response> {
    let version = headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok());
    let version = version.and_then(|version| serde_json::from_value::<ProtocolVersion>(version.into()).ok());
    let message = serde_json::from_slice::<Value>(body).ok()?;
    serde_json::from_value::<InitializeRequest>(message.clone()).err()?;
    let refused = refused_params(version.as_ref(), BEGIN_SESSION, message.get("params"))?;
    Some(json_rpc_error(&message["id"], refused.code.0, &refused.message))
}

/// Returns a response with a stream, without priming events for clients that do not know them. A stream
/// that only waits for changes ends with `ended`.
fn stream_of(parts: Parts, body: Body, knows_priming: bool, ended: Option<CancellationToken>) -> Response {
    if ended.is_none() && knows_priming {
        return Response::from_parts(parts, body);
    }
    let frames = body.into_data_stream().filter(move |frame| {
        let is_kept = knows_priming || !frame.as_ref().is_ok_and(|frame| is_priming(frame));
        std::future::ready(is_kept)
    });
    match ended {
        None => Response::from_parts(parts, Body::from_stream(frames)),
        Some(ended) => {
            Response::from_parts(parts, Body::from_stream(frames.take_until(ended.cancelled_owned())))
        }
    }
}

fn busy(text: &str) -> Response {
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text).into_response()
}

fn malformed(status: StatusCode, text: &str) -> Response {
    HttpProblem::new(status, code::GATEWAY_MESSAGE_MALFORMED, text).into_response()
}

/// Converts a rejection before a message was read to a JSON-RPC error: clients of MCP show nothing of
/// another body. Status and headers stay.
pub(crate) async fn as_json_rpc(response: Response) -> Response {
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|name| name == PROBLEM_JSON);
    if !is_problem {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let problem = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let problem: Value = serde_json::from_slice(&problem).unwrap_or_default();
    let message = problem["detail"].as_str().unwrap_or_else(|| parts.status.as_str());
    let message = match problem["hint"].as_str() {
        Some(hint) => format!("{message}; {hint}"),
        None => message.to_owned(),
    };
    let error = json!({"code": INVALID_REQUEST, "message": message, "data": {"code": problem["code"]}});
    let body = json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(body))
}

/// Returns whether a frame of a stream is a priming event: an id without data, from which a client
/// resumes. Clients before 2025-11-25 take it for a message.
pub(super) fn is_priming(frame: &[u8]) -> bool {
    let lines = || frame.split(|byte| *byte == b'\n');
    let has_data =
        |line: &[u8]| line.strip_prefix(b"data:").is_some_and(|data| !data.trim_ascii().is_empty());
    lines().any(|line| line.starts_with(b"id:")) && !lines().any(has_data)
}

/// Returns whether a client knows priming events, by the version that its request names.
fn knows_priming(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION_HEADER).and_then(|version| version.to_str().ok());
    version.is_some_and(|version| version >= PRIMING_SINCE)
}

fn no_session() -> Response {
    HttpProblem::not_found("session not found; start a new one").into_response()
}

fn not_json(reason: &str) -> Response {
    json_rpc_error(&Value::Null, PARSE_ERROR, &format!("the body is not JSON: {}", short(reason, 300)))
}

/// Builds a JSON-RPC error with status 400.
fn json_rpc_error(id: &Value, number: i32, message: &str) -> Response {
    let data = json!({"code": code::GATEWAY_MESSAGE_MALFORMED.as_str()});
    let error = json!({"code": number, "message": message, "data": data});
    let body = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
    let mut response = (StatusCode::BAD_REQUEST, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl std::fmt::Debug for McpEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpEndpoint").field("limits", &self.limits).finish_non_exhaustive()
    }
}
