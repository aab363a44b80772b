//! A2A's JSON-RPC binding over HTTP.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_protocol::a2a::{A2aError, ErrorCode};
use sinew_protocol::jsonrpc::{Method, Refused, Request as RpcRequest, Response as RpcResponse, result};

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
    let (id, answer) = match RpcRequest::read_with_headers(&body, a2a_request::version_of(&parts), None) {
        Err(Refused { id, error }) => (id, Err(*error)),
        Ok(call) => (call.id.clone(), perform(&state, &caller, &parts, endpoint, &call).await),
    };
    match answer {
        Ok(OperationReply::Value(value)) => a2a_request::with_a2a_headers(respond(result(&id, &value))),
        Ok(OperationReply::Incomplete { value, unheard }) => {
            let response = a2a_request::with_a2a_headers(respond(result(&id, &value)));
            a2a_request::with_unheard(response, &unheard)
        }
        Ok(OperationReply::Stream(items)) => {
            a2a_request::with_a2a_headers(sse::respond(&state, items, RpcEncoder { id: id.clone() }))
        }
        Err(error) => {
            let status = a2a_request::caller_status(&error).unwrap_or(StatusCode::OK);
            a2a_request::with_a2a_headers(respond_with(status, RpcResponse::error(id, &error).to_bytes()))
        }
    }
}

async fn perform(
    state: &GatewayState,
    caller: &CallerIdentity,
    parts: &axum::http::request::Parts,
    endpoint: Result<Endpoint, A2aError>,
    call: &RpcRequest,
) -> Result<OperationReply, A2aError> {
    let Method::Core(method) = call.method else {
        return Err(A2aError::new(ErrorCode::MethodNotFound, "the card is at /.well-known/agent-card.json"));
    };
    let params: &RawValue = call.params()?;
    a2a_request::perform(state, caller, parts, endpoint?, (method, params)).await
}

/// Encodes events as JSON-RPC responses to the call that opened the stream.
struct RpcEncoder {
    id: Value,
}

impl EventEncoder for RpcEncoder {
    fn event(&self, body: &Bytes) -> Bytes {
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
