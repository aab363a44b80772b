//! JSON-RPC 2.0 for A2A operations, for endpoints and their callers.
//!
//! The bytes are those of A2A's JSON-RPC binding over HTTP; `proto/a2a-nats-binding.md` specifies
//! the other parts of the binding.

#[cfg(test)]
mod tests;

use crate::a2a::v0_3::{OLD_VERSION, OldCall, old_method};
use crate::code;
use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::a2a::{
    A2A_ERROR_DOMAIN, A2A_VERSION, A2aError, CoreMethod, ErrorCode, JsonRpcError, JsonRpcErrorResponse,
    JsonRpcResponse, JsonRpcSuccessResponse, JsonRpcVersion,
};
use crate::fault::{Fault, FaultKind};
use crate::header;
use crate::message::BadMessage;
use crate::unique_keys::{BadJson, check_unique_keys};

/// Code of a fault for an A2A operation that the remote agent refused.
pub const REFUSED: &str = code::AGENT_REFUSED_A2A_OPERATION.as_str();
/// Media type of A2A's JSON, accepted in addition to [`header::JSON`].
pub const A2A_JSON: &str = "application/a2a+json";
/// Maximum length of an error message, in characters.
pub const MAX_MESSAGE: usize = 1_000;
/// Delay before a retry that [`temporary_error`] asks for.
const RETRY_AFTER_MS: u64 = 1_000;
/// Domain of Sinew's own codes in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "github.com/sinew-mesh/sinew";

/// Operation: the eleven of A2A, and [`Method::GetAgentCard`], which corresponds to the well-known
/// address of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Operation of A2A.
    Core(CoreMethod),
    /// Returns the public card.
    GetAgentCard,
}

impl Method {
    /// Returns all operations.
    pub fn all() -> impl Iterator<Item = Self> {
        CoreMethod::ALL.iter().copied().map(Self::Core).chain([Self::GetAgentCard])
    }

    /// Returns the name, in the body and as a token of the subject.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core(method) => method.wire_name(),
            Self::GetAgentCard => "GetAgentCard",
        }
    }

    /// Parses the name of an operation.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|method| method.as_str() == name)
    }
}

/// Decoded call. Its parameters remain raw JSON until they are deserialised directly into their
/// type.
#[derive(Clone, Debug)]
pub struct Request {
    /// Id that the response repeats; null if the call has none.
    pub id: Value,
    /// The operation.
    pub method: Method,
    params: Box<RawValue>,
}

/// Rejection of a call before its parameters are decoded, with the id if known.
#[derive(Debug)]
pub struct Refused {
    /// Id of the call, if it could be parsed.
    pub id: Value,
    /// Error of the response.
    pub error: Box<A2aError>,
}

/// Envelope in its wire form.
#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    jsonrpc: JsonRpcVersion,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    id: Value,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

impl Request {
    /// Creates a call of this operation.
    pub fn new(id: impl Into<Value>, method: Method, params: &impl Serialize) -> Self {
        Self { id: id.into(), method, params: raw(params) }
    }

    /// Parses a call.
    pub fn read(body: &[u8]) -> Result<Self, Refused> {
        Self::read_as(body, Method::parse)
    }

    /// Parses a call of the version that its header names. A call of A2A 0.3 is returned with its
    /// translation, which replaces its method and its parameters.
    pub fn read_versioned(body: &[u8], version: Option<&str>) -> Result<(Self, Option<OldCall>), Refused> {
        let is_old = without_patch(named_version(version)) == OLD_VERSION;
        let method = serde_json::from_slice::<Envelope<'_>>(body).ok().map(|envelope| envelope.method);
        if !is_old || method.is_none_or(|name| old_method(&name).is_none()) {
            return Self::read_with_headers(body, version, None).map(|call| (call, None));
        }
        let call = Self::read_as(body, |name| old_method(name).map(Method::Core))?;
        let Method::Core(method) = call.method else { return Ok((call, None)) };
        let old = call.params().map(|params| OldCall::new(method, params));
        let old = old.map_err(|error| Refused { id: call.id.clone(), error: Box::new(error) })?;
        Ok((call, Some(old)))
    }

    fn read_as(body: &[u8], parse: impl Fn(&str) -> Option<Method>) -> Result<Self, Refused> {
        let refused =
            |id: Value, code, message: String| Refused { id, error: Box::new(A2aError::new(code, message)) };
        let Envelope { jsonrpc: _, id, method, params } =
            serde_json::from_slice(body).map_err(|error| unread(body, &error))?;
        if !(id.is_string() || id.is_number() || id.is_null()) {
            let message = "the id is neither a text nor a number".to_owned();
            return Err(refused(Value::Null, ErrorCode::InvalidRequest, message));
        }
        // Readers differ in which of two fields they keep: one may check the first, and another use
        // the second.
        if let Err(error @ BadJson::DuplicateKey(_)) = check_unique_keys(body) {
            return Err(refused(id, ErrorCode::InvalidRequest, error.to_string()));
        }
        let method = parse(&method).ok_or_else(|| {
            let message = format!("no operation is named {:?}", short(&method, 64));
            refused(id.clone(), ErrorCode::MethodNotFound, message)
        })?;
        let params = match params {
            None => raw(&json!({})),
            Some(params) if params.get().starts_with('{') => params.to_owned(),
            Some(_) => {
                let message = "the parameters are not an object".to_owned();
                return Err(refused(id, ErrorCode::InvalidParams, message));
            }
        };
        Ok(Self { id, method, params })
    }

    /// Parses a call and then checks its headers. A JSON body of an unsupported version is rejected for
    /// its version: its method and its envelope may be those of another version (A2A 3.6.2).
    pub fn read_with_headers(
        body: &[u8],
        version: Option<&str>,
        content_type: Option<&str>,
    ) -> Result<Self, Refused> {
        let headers = check_headers(version, content_type).map_err(Box::new);
        match Self::read(body) {
            Ok(request) => match headers {
                Ok(()) => Ok(request),
                Err(error) => Err(Refused { id: request.id, error }),
            },
            Err(refused) if refused.error.code == ErrorCode::ParseError => Err(refused),
            Err(Refused { id, error }) => Err(Refused { id, error: headers.err().unwrap_or(error) }),
        }
    }

    /// Deserialises the parameters; without parameters, from an empty object.
    pub fn params<'de, T: Deserialize<'de>>(&'de self) -> Result<T, A2aError> {
        serde_json::from_str(self.params.get())
            .map_err(|e| A2aError::invalid_params(short(&e.to_string(), 300)))
    }

    /// Encodes the call.
    pub fn to_bytes(&self) -> Bytes {
        to_bytes(&Envelope {
            jsonrpc: JsonRpcVersion,
            id: self.id.clone(),
            method: self.method.as_str().into(),
            params: Some(&self.params),
        })
    }
}

/// Returns the rejection of an invalid envelope, with its id if that can be parsed.
fn unread(body: &[u8], error: &serde_json::Error) -> Refused {
    let refused = |id, code, message: String| Refused { id, error: Box::new(A2aError::new(code, message)) };
    match serde_json::from_slice::<Value>(body) {
        Err(error) => refused(
            Value::Null,
            ErrorCode::ParseError,
            format!("the body is not JSON: {}", short(&error.to_string(), 300)),
        ),
        Ok(Value::Array(_)) => {
            let message = "batches are not read: send one call per message".to_owned();
            refused(Value::Null, ErrorCode::InvalidRequest, message)
        }
        Ok(json) => {
            let id =
                json.get("id").filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_default();
            refused(id, ErrorCode::InvalidRequest, short(&error.to_string(), 300))
        }
    }
}

/// Encodes the result of a call directly, without an intermediate JSON tree.
pub fn result(id: &Value, result: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct Success<'a, T> {
        jsonrpc: JsonRpcVersion,
        id: &'a Value,
        result: &'a T,
    }
    to_bytes(&Success { jsonrpc: JsonRpcVersion, id, result })
}

/// Response to a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Response(JsonRpcResponse<Value>);

impl Response {
    /// Creates a response with a result.
    pub fn ok(id: Value, result: Value) -> Self {
        Self(JsonRpcResponse::Success(JsonRpcSuccessResponse::new(some(id), result)))
    }

    /// Creates a response with an error and its typed details.
    pub fn error(id: Value, error: &A2aError) -> Self {
        let own = error.data.clone().filter(|data| !data.is_null());
        let details = own.unwrap_or_else(|| error.error_info_data(None));
        let error = JsonRpcError {
            code: error.code.as_i32(),
            message: short(&error.message, MAX_MESSAGE),
            data: Some(details).filter(|data| !data.is_null()),
        };
        Self(JsonRpcResponse::Error(JsonRpcErrorResponse::new(some(id), error)))
    }

    /// Parses a response: exactly one of a result and an error.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        serde_json::from_slice(body).map_err(|e| BadMessage::Bytes(short(&e.to_string(), 300)))
    }

    /// Returns the id of the call.
    pub fn id(&self) -> Option<&Value> {
        match &self.0 {
            JsonRpcResponse::Success(success) => success.id.as_ref(),
            JsonRpcResponse::Error(error) => error.id.as_ref(),
        }
    }

    /// Returns the result or the error. Codes unknown to A2A become internal errors.
    pub fn into_result(self) -> Result<Value, A2aError> {
        match self.0 {
            JsonRpcResponse::Success(success) => Ok(success.result),
            JsonRpcResponse::Error(response) => {
                let JsonRpcError { code, message, data } = response.error;
                let message = short(&message, MAX_MESSAGE);
                let mut error = match ErrorCode::try_from(code) {
                    Ok(code) => A2aError::new(code, message),
                    Err(unknown) => A2aError::internal(format!("error {unknown}: {message}")),
                };
                error.data = data;
                Err(error.with_retry_info_from_details())
            }
        }
    }

    /// Encodes the response.
    pub fn to_bytes(&self) -> Bytes {
        to_bytes(self)
    }
}

/// Returns an error if the headers of a call require something that this binding does not support.
pub fn check_headers(version: Option<&str>, content_type: Option<&str>) -> Result<(), A2aError> {
    let media_type = content_type.unwrap_or(header::JSON);
    let bare = media_type.split(';').next().unwrap_or_default().trim();
    if ![header::JSON, A2A_JSON].iter().any(|known| bare.eq_ignore_ascii_case(known)) {
        let message = format!("{:?} is not read here: send {}", short(media_type, 100), header::JSON);
        return Err(A2aError::content_type_not_supported(message));
    }
    let version = named_version(version);
    if without_patch(version) != A2A_VERSION {
        let message = format!(
            "A2A {} is not supported; send {}: {A2A_VERSION}",
            short(version, 20),
            header::A2A_VERSION
        );
        return Err(A2aError::version_not_supported(message));
    }
    Ok(())
}

/// Returns the version of a call: A2A treats a missing or empty version as 0.3 (section 3.6.2).
fn named_version(version: Option<&str>) -> &str {
    version.map(str::trim).filter(|version| !version.is_empty()).unwrap_or(OLD_VERSION)
}

/// Returns the major and minor number of a version: patch numbers do not count in the negotiation
/// (A2A 3.6).
fn without_patch(version: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match version.rsplit_once('.') {
        Some((rest, patch)) if rest.contains('.') && is_number(patch) => rest,
        _ => version,
    }
}

/// Converts a fault to the error of an operation. The typed details contain its code and whether it
/// is retryable.
pub fn error_of(fault: &Fault) -> A2aError {
    let code = match fault.kind {
        FaultKind::Invalid => ErrorCode::InvalidParams,
        _ => ErrorCode::InternalError,
    };
    let kind = serde_json::to_value(fault.kind).unwrap_or_default();
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": fault.code.to_ascii_uppercase().replace('-', "_"),
        "domain": DOMAIN,
        // The metadata of ErrorInfo is a map of strings.
        "metadata": {"code": fault.code, "kind": kind, "retryable": fault.retryable.to_string()},
    })];
    if let Some(ms) = fault.retry_after_ms {
        let seconds = ms.div_ceil(1_000).max(1);
        details.push(
            json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")}),
        );
    }
    let mut error = A2aError::new(code, short(&fault.message, MAX_MESSAGE));
    error.data = Some(Value::Array(details));
    error.with_retry_info_from_details()
}

/// Returns the error of an operation that is expected to succeed after a short delay, which the error
/// names.
pub fn temporary_error(code: &'static str, text: impl Into<String>) -> A2aError {
    error_of(&Fault::error(code, text).with_retryable(true).with_retry_after_ms(RETRY_AFTER_MS))
}

/// Converts the error of an operation to a fault, with the code and retryability that [`error_of`]
/// wrote, if present.
pub fn fault_of(error: &A2aError) -> Fault {
    let details = error.data.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let info = |domain: &str| details.iter().find(|detail| detail["domain"] == domain);
    let message = short(&error.message, MAX_MESSAGE);
    let mut fault = if let Some(ours) = info(DOMAIN).and_then(|info| info.get("metadata")) {
        let word = |key: &str| ours.get(key).and_then(Value::as_str);
        let code =
            word("code").filter(|code| crate::code::page(code).is_some()).unwrap_or(REFUSED).to_owned();
        let kind =
            ours.get("kind").and_then(|kind| FaultKind::deserialize(kind).ok()).unwrap_or(FaultKind::Error);
        Fault::new(kind, code, message).with_retryable(word("retryable") == Some("true"))
    } else {
        let reason = info(A2A_ERROR_DOMAIN).and_then(|info| info["reason"].as_str());
        let reason = reason.or(error.code.a2a_reason()).unwrap_or_else(|| error.code.default_message());
        // Only an internal error of the agent may disappear on a retry.
        let again = error.code == ErrorCode::InternalError;
        Fault::error(REFUSED, format!("{message} ({})", short(reason, 64))).with_retryable(again)
    };
    if let Some(delay) = error.retry_after() {
        fault.retry_after_ms = u64::try_from(delay.as_millis()).ok();
    }
    fault
}

fn some(id: Value) -> Option<Value> {
    Some(id).filter(|id| !id.is_null())
}

/// Serialises a value as raw JSON. Plain data with string keys can always be serialised.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn to_bytes(message: &impl Serialize) -> Bytes {
    // Serialising plain data with string keys cannot fail.
    serde_json::to_vec(message).unwrap_or_default().into()
}

fn short(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}
