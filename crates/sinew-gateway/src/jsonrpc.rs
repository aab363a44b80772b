//! A2A's JSON-RPC binding over HTTP.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_protocol::a2a::v0_3::{OLD_VERSION, OldCall, old_event};
use sinew_protocol::a2a::{A2A_VERSION, A2aError, ErrorCode};
use sinew_protocol::jsonrpc::{Method, Refused, Request as RpcRequest, Response as RpcResponse, raw, result};

use crate::a2a_request;
use crate::access::CallerIdentity;
use crate::operations::{Endpoint, OperationReply};
use crate::request_body::{BodyError, is_json, read_body};
use crate::sse::{self, EventEncoder};
use crate::state::GatewayState;

/// Answers one JSON-RPC call.
pub(crate) async fn serve(
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    endpoint: Result<Endpoint, A2aError>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    // A body of another media type is not parsed, so no id is available for the response.
    if !is_json(content_type) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let body = match read_body(&state.limits, body).await {
        Ok(body) => body,
        Err(BodyError::TooLarge(text)) => {
            let error = A2aError::new(ErrorCode::InvalidRequest, text);
            return respond_with(
                StatusCode::PAYLOAD_TOO_LARGE,
                RpcResponse::error(Value::Null, &error).to_bytes(),
            );
        }
        Err(BodyError::Broken) => {
            let error = A2aError::new(ErrorCode::ParseError, "the request body is incomplete");
            return respond_with(
                StatusCode::REQUEST_TIMEOUT,
                RpcResponse::error(Value::Null, &error).to_bytes(),
            );
        }
    };
    let (id, old, answer) = match RpcRequest::read_versioned(&body, a2a_request::version_of(&parts)) {
        Err(Refused { id, error }) => (id, None, Err(*error)),
        Ok((call, old)) => {
            let answer = perform(&state, &caller, &parts, endpoint, (&call, old.as_ref())).await;
            (call.id, old, answer)
        }
    };
    let encoder = RpcEncoder { id, is_old: old.is_some() };
    let response = match answer {
        Ok(OperationReply::Value(value)) => respond(encoder.result(old.as_ref(), &value)),
        Ok(OperationReply::Incomplete { value, unheard }) => {
            a2a_request::with_unheard(respond(encoder.result(old.as_ref(), &value)), &unheard)
        }
        Ok(OperationReply::Stream(items)) => sse::respond(&state, items, encoder),
        Err(error) => {
            let status = a2a_request::caller_status(&error).unwrap_or(StatusCode::OK);
            respond_with(status, encoder.failure(&error))
        }
    };
    a2a_request::with_version(response, if old.is_some() { OLD_VERSION } else { A2A_VERSION })
}

async fn perform(
    state: &GatewayState,
    caller: &CallerIdentity,
    parts: &axum::http::request::Parts,
    endpoint: Result<Endpoint, A2aError>,
    (call, old): (&RpcRequest, Option<&OldCall>),
) -> Result<OperationReply, A2aError> {
    if let Some(old) = old {
        return a2a_request::perform(state, caller, parts, endpoint?, (old.method, &raw(&old.params))).await;
    }
    let Method::Core(method) = call.method else {
        return Err(A2aError::new(ErrorCode::MethodNotFound, "the card is at /.well-known/agent-card.json"));
    };
    let params: &RawValue = call.params()?;
    a2a_request::perform(state, caller, parts, endpoint?, (method, params)).await
}

/// Encodes results and events as JSON-RPC responses to a call.
struct RpcEncoder {
    id: Value,
    /// Whether the call is one of A2A 0.3.
    is_old: bool,
}

impl RpcEncoder {
    /// Encodes the result of a call, for a call of A2A 0.3 in its form.
    fn result(&self, old: Option<&OldCall>, value: &RawValue) -> Bytes {
        let Some(old) = old else { return result(&self.id, &value) };
        let shown = serde_json::from_str(value.get()).map_err(|error| A2aError::internal(error.to_string()));
        match shown.and_then(|value| old.result(value)) {
            Ok(value) => result(&self.id, &value),
            Err(error) => self.failure(&error),
        }
    }
}

impl EventEncoder for RpcEncoder {
    fn event(&self, body: &Bytes) -> Bytes {
        if self.is_old {
            let event = serde_json::from_slice(body).map(old_event);
            return result(&self.id, &event.unwrap_or_default());
        }
        match serde_json::from_slice::<&RawValue>(body) {
            Ok(event) => result(&self.id, &event),
            Err(_) => self.failure(&A2aError::internal("an event cannot be read")),
        }
    }

    fn failure(&self, error: &A2aError) -> Bytes {
        RpcResponse::error(self.id.clone(), error).to_bytes()
    }
}

fn respond(body: Bytes) -> Response {
    respond_with(StatusCode::OK, body)
}

fn respond_with(status: StatusCode, body: Bytes) -> Response {
    let json = HeaderValue::from_static("application/json");
    let mut response = (status, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
