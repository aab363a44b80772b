//! A2A's HTTP+JSON binding: paths and queries become the parameters of operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use sinew_protocol::a2a::{A2aError, CoreMethod, ErrorCode};
use sinew_protocol::jsonrpc::{A2A_JSON, raw};
use sinew_protocol::unique_keys::check_unique_keys;

use crate::a2a_request;
use crate::access::CallerIdentity;
use crate::http_error::RETRY_SECONDS;
use crate::operations::{Endpoint, OperationReply, short};
use crate::request_body::{BodyError, is_json, read_body};
use crate::sse::{self, EventEncoder};
use crate::state::GatewayState;

/// Domain of the reasons of A2A in `google.rpc.ErrorInfo`.
const A2A_DOMAIN: &str = "a2a-protocol.org";
/// Numeric and boolean parameters of `GET /tasks`.
const NUMBERS: [&str; 2] = ["pageSize", "historyLength"];
const FLAGS: [&str; 1] = ["includeArtifacts"];
/// Accepted query parameters.
const QUERY_PARAMETERS: [&str; 8] = [
    "contextId",
    "status",
    "pageSize",
    "pageToken",
    "historyLength",
    "statusTimestampAfter",
    "includeArtifacts",
    "tenant",
];

/// Answers one call of an operation. `path` contains the path parameters.
pub(crate) async fn serve(
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    endpoint: Endpoint,
    method: CoreMethod,
    path: BTreeMap<String, String>,
    request: Request,
) -> Response {
    let media_type = media_type(request.headers());
    match answer(&state, &caller, endpoint, method, path, request).await {
        Ok(OperationReply::Value(value)) => {
            a2a_request::with_a2a_headers(respond(StatusCode::OK, value.get().to_owned().into(), media_type))
        }
        Ok(OperationReply::Incomplete { value, unheard }) => {
            let response = respond(StatusCode::OK, value.get().to_owned().into(), media_type);
            a2a_request::with_unheard(a2a_request::with_a2a_headers(response), &unheard)
        }
        Ok(OperationReply::Stream(items)) => {
            a2a_request::with_a2a_headers(sse::respond(&state, items, RestEncoder))
        }
        Err(RestError { error, status }) => a2a_request::with_a2a_headers(refuse(
            &error,
            status.unwrap_or_else(|| status_of(&error)),
            media_type,
        )),
    }
}

/// An error, with its HTTP status if the status does not follow from the error.
struct RestError {
    error: A2aError,
    status: Option<StatusCode>,
}

impl From<A2aError> for RestError {
    fn from(error: A2aError) -> Self {
        Self { error, status: None }
    }
}

async fn answer(
    state: &GatewayState,
    caller: &CallerIdentity,
    endpoint: Endpoint,
    method: CoreMethod,
    mut path: BTreeMap<String, String>,
    request: Request,
) -> Result<OperationReply, RestError> {
    let (parts, body) = request.into_parts();
    a2a_request::check_version(&parts)?;
    path.remove("agent");
    let mut params = match method {
        CoreMethod::SendMessage
        | CoreMethod::SendStreamingMessage
        | CoreMethod::CreateTaskPushNotificationConfig
        | CoreMethod::CancelTask => {
            let body = read_body(&state.limits, body).await.map_err(|error| match error {
                BodyError::TooLarge(text) => RestError {
                    error: A2aError::new(ErrorCode::InvalidRequest, text),
                    status: Some(StatusCode::PAYLOAD_TOO_LARGE),
                },
                BodyError::Broken => RestError {
                    error: A2aError::new(ErrorCode::ParseError, "the request body is incomplete"),
                    status: Some(StatusCode::REQUEST_TIMEOUT),
                },
            })?;
            let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            body_params(&body, content_type, method)?
        }
        _ => query_params(parts.uri.query().unwrap_or_default())?,
    };
    // Path parameters override the body.
    for (name, value) in path {
        params.insert(name, Value::String(value));
    }
    Ok(a2a_request::perform(state, caller, &parts, endpoint, (method, &raw(&params))).await?)
}

/// Parses the body as parameters.
fn body_params(
    body: &Bytes,
    content_type: Option<&str>,
    method: CoreMethod,
) -> Result<Map<String, Value>, A2aError> {
    // A cancellation may have no body.
    if body.is_empty() && method == CoreMethod::CancelTask {
        return Ok(Map::new());
    }
    if !is_json(content_type) {
        let named = content_type.map_or_else(|| "no Content-Type".to_owned(), |text| short(text, 100));
        let text = format!("{named}: send {A2A_JSON} or application/json");
        return Err(A2aError::content_type_not_supported(text));
    }
    check_unique_keys(body).map_err(|error| A2aError::new(ErrorCode::ParseError, error.to_string()))?;
    match serde_json::from_slice(body) {
        Ok(Value::Object(params)) => Ok(params),
        Ok(_) => Err(A2aError::invalid_params("the body is not a JSON object")),
        Err(error) => Err(A2aError::new(
            ErrorCode::ParseError,
            format!("the body is not JSON: {}", short(&error.to_string(), 300)),
        )),
    }
}

/// Parses a query as parameters. Names that A2A does not define are ignored.
fn query_params(query: &str) -> Result<Map<String, Value>, A2aError> {
    let mut params = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            let decoded = percent_decode_str(&text).decode_utf8().map(std::borrow::Cow::into_owned);
            decoded.map_err(|_| A2aError::invalid_params("the query is not UTF-8"))
        };
        let (name, value) = (decode(name)?, decode(value)?);
        if !QUERY_PARAMETERS.contains(&name.as_str()) {
            continue;
        }
        let bad = |expected: &str| A2aError::invalid_params(format!("{name}: expected {expected}"));
        let value = if NUMBERS.contains(&name.as_str()) {
            json!(value.parse::<u32>().map_err(|_| bad("a number"))?)
        } else if FLAGS.contains(&name.as_str()) {
            json!(value.parse::<bool>().map_err(|_| bad("true or false"))?)
        } else {
            Value::String(value)
        };
        if params.insert(name.clone(), value).is_some() {
            return Err(A2aError::invalid_params(format!("{name}: given twice")));
        }
    }
    Ok(params)
}

/// Encodes events unchanged.
struct RestEncoder;

impl EventEncoder for RestEncoder {
    fn event(&self, body: &Bytes) -> Bytes {
        body.clone()
    }

    fn failure(&self, error: &A2aError) -> Bytes {
        // Plain data with string keys always serializes.
        serde_json::to_vec(&error_body(error, status_of(error))).unwrap_or_default().into()
    }
}

/// Formats the error as `google.rpc.Status` in JSON.
pub(crate) fn error_body(error: &A2aError, status: StatusCode) -> Value {
    let own = error.data.clone().filter(Value::is_array).unwrap_or_else(|| error.error_info_data(None));
    let mut details = own.as_array().cloned().unwrap_or_default();
    // Clients read the reason of the first ErrorInfo only, and know those of A2A.
    if !details.first().is_some_and(|first| first["domain"] == A2A_DOMAIN) {
        let reason = error.code.a2a_reason().unwrap_or_else(|| reason_of(error.code));
        let info = "type.googleapis.com/google.rpc.ErrorInfo";
        details.insert(0, json!({"@type": info, "reason": reason, "domain": A2A_DOMAIN}));
    }
    json!({"error": {
        "code": status.as_u16(),
        "status": word_of(error, status),
        "message": short(&error.message, 1_000),
        "details": details,
    }})
}

/// Returns the reason of an error that A2A takes from JSON-RPC.
fn reason_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::ParseError => "PARSE_ERROR",
        ErrorCode::InvalidRequest => "INVALID_REQUEST",
        ErrorCode::MethodNotFound => "METHOD_NOT_FOUND",
        ErrorCode::InvalidParams => "INVALID_PARAMS",
        _ => "INTERNAL_ERROR",
    }
}

/// Returns the name of the `google.rpc.Code`.
fn word_of(error: &A2aError, status: StatusCode) -> &'static str {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
        StatusCode::REQUEST_TIMEOUT => "DEADLINE_EXCEEDED",
        StatusCode::PAYLOAD_TOO_LARGE => "OUT_OF_RANGE",
        _ => error.code.grpc_status(),
    }
}

/// Returns the HTTP status of an error: A2A's, and 503 for transient errors.
pub(crate) fn status_of(error: &A2aError) -> StatusCode {
    if let Some(status) = a2a_request::caller_status(error) {
        return status;
    }
    let is_temporary =
        error.code == ErrorCode::InternalError && sinew_protocol::jsonrpc::fault_of(error).retryable;
    if is_temporary {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn refuse(error: &A2aError, status: StatusCode, media_type: &'static str) -> Response {
    let body = serde_json::to_vec(&error_body(error, status)).unwrap_or_default();
    let mut response = respond(status, body.into(), media_type);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_SECONDS);
    }
    response
}

fn respond(status: StatusCode, body: Bytes, media_type: &'static str) -> Response {
    let mut response = (status, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Returns the media type of a response: A2A's own if the client accepts it, otherwise plain JSON.
fn media_type(headers: &HeaderMap) -> &'static str {
    let named = [header::ACCEPT, header::CONTENT_TYPE];
    let mut named =
        named.iter().flat_map(|name| headers.get_all(name)).filter_map(|value| value.to_str().ok());
    if named.any(|value| value.to_ascii_lowercase().contains(A2A_JSON)) {
        A2A_JSON
    } else {
        "application/json"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_become_parameters() {
        let check = |query: &str, expected: Value| {
            assert_eq!(Value::Object(query_params(query).unwrap()), expected, "{query}");
        };
        check("", json!({}));
        check("pageSize=5&includeArtifacts=true&other=1", json!({"pageSize": 5, "includeArtifacts": true}));
        check("contextId=a%20b+c&A2A-Version=1.0", json!({"contextId": "a b c"}));
        for query in
            ["pageSize=x", "pageSize=-1", "includeArtifacts=1", "contextId=a&contextId=b", "status=%ff"]
        {
            assert!(query_params(query).is_err(), "{query}");
        }
    }
}
