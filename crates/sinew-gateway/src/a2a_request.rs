//! Request handling shared by all A2A bindings: versions, callers and response headers.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::value::RawValue;
use sinew_mesh::trace::TraceParent;
use sinew_protocol::a2a::{A2A_VERSION, A2aError, CoreMethod};
use sinew_protocol::jsonrpc::{check_headers, fault_of, raw, temporary_error};
use sinew_protocol::origin::EntryPoint;
use sinew_protocol::{Token, code, header as mesh_header};
use tokio::sync::OwnedSemaphorePermit;

use crate::access::{CallerIdentity, CallerStreams};
use crate::cards;
use crate::file_link::FileLinks;
use crate::operations::{Endpoint, OperationCall, OperationReply, short};
use crate::search_skill;
use crate::state::GatewayState;

/// Maximum number of extensions that one request may list.
const MAX_EXTENSIONS: usize = 32;

/// Response header with the agents whose tasks are missing from a list.
pub(crate) const UNHEARD_HEADER: &str = "sinew-unheard-agents";

/// Rejects an unsupported A2A version, given in a header or in the query.
pub(crate) fn check_version(parts: &Parts) -> Result<(), A2aError> {
    check_headers(version_of(parts), None)
}

/// Returns the A2A version that a request names, in a header or in the query.
pub(crate) fn version_of(parts: &Parts) -> Option<&str> {
    let named = parts.headers.get(mesh_header::A2A_VERSION).and_then(|value| value.to_str().ok());
    let queried = parts.uri.query().into_iter().flat_map(|query| query.split('&')).find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.eq_ignore_ascii_case(mesh_header::A2A_VERSION).then_some(value)
    });
    named.or(queried)
}

/// Builds an operation call from the head of its request.
fn operation_call(caller: &CallerIdentity, parts: &Parts, endpoint: Endpoint) -> OperationCall {
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    // A2A 0.3 has the prefix X.
    let named = [mesh_header::A2A_EXTENSIONS, "x-a2a-extensions"];
    let extensions = named.into_iter().flat_map(|name| parts.headers.get_all(name));
    let extensions = extensions.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let extensions = extensions.map(str::trim).filter(|uri| !uri.is_empty()).take(MAX_EXTENSIONS);
    OperationCall {
        caller: caller.token.clone(),
        groups: Arc::clone(&caller.groups),
        role: caller.role,
        key: caller.key.clone(),
        via: EntryPoint::A2a,
        endpoint,
        extensions: extensions.map(|uri| short(uri, 300)).collect(),
        trace: text(mesh_header::TRACE_PARENT)
            .and_then(|text| text.parse::<TraceParent>().ok())
            .map_or_else(TraceParent::fresh, TraceParent::child),
        last_event: text("last-event-id").and_then(|text| text.trim().parse().ok()),
        // Other bindings and methods of A2A 1.0 reject calls of that version.
        is_old: version_of(parts).is_none_or(|version| check_headers(Some(version), None).is_err()),
    }
}

/// Performs an operation for a caller.
pub(crate) async fn perform(
    state: &GatewayState,
    caller: &CallerIdentity,
    parts: &Parts,
    endpoint: Endpoint,
    (method, params): (CoreMethod, &RawValue),
) -> Result<OperationReply, A2aError> {
    let operations = state.operations_of(caller);
    let call = operation_call(caller, parts, endpoint);
    // Where the public card is reduced, this operation returns the card that the caller may see.
    if method == CoreMethod::GetExtendedAgentCard && state.authenticator.is_required() {
        operations.check_tenant(params)?;
        let card =
            cards::card_of(state, &operations, &call.endpoint, &state.base_url(&parts.headers, &parts.uri));
        let card = card.ok_or_else(|| A2aError::internal("the agent is no longer available"))?;
        return Ok(OperationReply::Value(raw(&card)));
    }
    let base = state.base_url(&parts.headers, &parts.uri);
    if let Some(found) = search_skill::answer(state, &operations, &call, (method, params), &base)? {
        return Ok(found);
    }
    // A rejected stream must not change anything, so its permits are acquired first.
    let places = stream_places(state, parts, method)?;
    let reply = operations.perform(&call, method, params).await?;
    let links = state
        .signer
        .as_ref()
        .map(|signer| FileLinks::new(Arc::clone(signer), &state.base_url(&parts.headers, &parts.uri)));
    let linked = |value| match &links {
        Some(links) => links.in_value(value),
        None => value,
    };
    Ok(match reply {
        OperationReply::Value(value) => OperationReply::Value(linked(value)),
        OperationReply::Incomplete { value, unheard } => {
            OperationReply::Incomplete { value: linked(value), unheard }
        }
        OperationReply::Stream(items) => {
            let items = items.holding(places);
            OperationReply::Stream(match links {
                Some(links) => items.mapped(Box::new(move |body| links.in_event(body))),
                None => items,
            })
        }
    })
}

/// Acquires the permits of a stream, from the gateway and from its caller. Returns `None` for an
/// operation without a stream.
fn stream_places(
    state: &GatewayState,
    parts: &Parts,
    method: CoreMethod,
) -> Result<Vec<OwnedSemaphorePermit>, A2aError> {
    if !matches!(method, CoreMethod::SendStreamingMessage | CoreMethod::SubscribeToTask) {
        return Ok(Vec::new());
    }
    let mut places = vec![Arc::clone(&state.streams).try_acquire_owned().map_err(|_| too_many_streams())?];
    if let Some(streams) = parts.extensions.get::<CallerStreams>() {
        places.push(streams.enter().ok_or_else(too_many_of_caller)?);
    }
    Ok(places)
}

/// Adds the headers that every A2A response has.
pub(crate) fn with_a2a_headers(response: Response) -> Response {
    with_version(response, A2A_VERSION)
}

/// Names the A2A version of a response.
pub(crate) fn with_version(mut response: Response, version: &'static str) -> Response {
    response.headers_mut().insert("a2a-version", HeaderValue::from_static(version));
    response
}

/// Names the agents that did not answer in time, so that their tasks are missing: as in subjects of
/// the mesh, separated by commas. A2A has no member for it.
pub(crate) fn with_unheard(mut response: Response, agents: &[String]) -> Response {
    if let Ok(value) = HeaderValue::from_str(&unheard_names(agents)) {
        response.headers_mut().insert(UNHEARD_HEADER, value);
    }
    response
}

/// Formats the names of agents that did not answer for the header.
pub(crate) fn unheard_names(agents: &[String]) -> String {
    let named = agents.iter().take(MAX_EXTENSIONS).map(|name| Token::of(name).to_string());
    named.collect::<Vec<_>>().join(", ")
}

/// Returns the HTTP status of an error that concerns the caller (forbidden or limited), otherwise
/// `None`.
pub(crate) fn caller_status(error: &A2aError) -> Option<StatusCode> {
    let code = fault_of(error).code;
    if code == code::GATEWAY_CALLER_NOT_ALLOWED.as_str() {
        return Some(StatusCode::FORBIDDEN);
    }
    (code == code::GATEWAY_CALLER_LIMIT.as_str()).then_some(StatusCode::TOO_MANY_REQUESTS)
}

fn too_many_of_caller() -> A2aError {
    let text = "this caller has reached its limit of open streams";
    temporary_error(code::GATEWAY_CALLER_LIMIT.as_str(), text)
}

fn too_many_streams() -> A2aError {
    let text = "the gateway has reached its limit of open streams";
    temporary_error(code::GATEWAY_BUSY.as_str(), text)
}
