//! JSON-RPC 2.0 for A2A operations, for endpoints and their callers.
//!
//! The bytes are those of A2A's JSON-RPC binding over HTTP; `proto/a2a-nats-binding.md` specifies
//! the other parts of the binding.

#[cfg(test)]
mod tests;

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

/// The code of a fault that is another side's refusal of an A2A operation.
pub const REFUSED: &str = code::AGENT_REFUSED_A2A_OPERATION.as_str();
/// The media type that A2A names for its JSON, read beside [`header::JSON`].
pub const A2A_JSON: &str = "application/a2a+json";
/// The longest message of an error, in characters.
pub const MAX_MESSAGE: usize = 1_000;
/// Domain of Sinew's own codes in `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "github.com/sinew-mesh/sinew";

/// An operation: A2A's eleven, and [`Method::GetAgentCard`], which stands for the well-known address of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// One of A2A's.
    Core(CoreMethod),
    /// The public card.
    GetAgentCard,
}

impl Method {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        CoreMethod::ALL.iter().copied().map(Self::Core).chain([Self::GetAgentCard])
    }

    /// The name, in the body and as a token of the subject.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Core(method) => method.wire_name(),
            Self::GetAgentCard => "GetAgentCard",
        }
    }

    /// The operation of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|method| method.as_str() == name)
    }
}

/// A call out of its envelope. Its parameters stay text until they are read as their type: no tree lies in between.
#[derive(Clone, Debug)]
pub struct Request {
    /// Id that the response repeats; null for a call without one.
    pub id: Value,
    /// The operation.
    pub method: Method,
    params: Box<RawValue>,
}

/// Why a call is refused before anybody looks at its parameters, with what is known of its id.
#[derive(Debug)]
pub struct Refused {
    /// The call's id, if it could be read.
    pub id: Value,
    /// Error to answer with.
    pub error: Box<A2aError>,
}

/// The envelope as it stands on the wire.
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
    /// A call of this operation.
    pub fn new(id: impl Into<Value>, method: Method, params: &impl Serialize) -> Self {
        Self { id: id.into(), method, params: raw(params) }
    }

    /// Reads a call.
    pub fn read(body: &[u8]) -> Result<Self, Refused> {
        let refused =
            |id: Value, code, message: String| Refused { id, error: Box::new(A2aError::new(code, message)) };
        let Envelope { jsonrpc: _, id, method, params } =
            serde_json::from_slice(body).map_err(|error| unread(body, &error))?;
        if !(id.is_string() || id.is_number() || id.is_null()) {
            let message = "the id is neither a text nor a number".to_owned();
            return Err(refused(Value::Null, ErrorCode::InvalidRequest, message));
        }
        // Readers differ in which of two members they keep: one may check the first, and another use the second.
        if let Err(error @ BadJson::DuplicateKey(_)) = check_unique_keys(body) {
            return Err(refused(id, ErrorCode::InvalidRequest, error.to_string()));
        }
        let method = Method::parse(&method).ok_or_else(|| {
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

    /// The parameters as their type; an empty object when there are none.
    pub fn params<'de, T: Deserialize<'de>>(&'de self) -> Result<T, A2aError> {
        serde_json::from_str(self.params.get())
            .map_err(|e| A2aError::invalid_params(short(&e.to_string(), 300)))
    }

    /// The call as bytes.
    pub fn to_bytes(&self) -> Bytes {
        to_bytes(&Envelope {
            jsonrpc: JsonRpcVersion,
            id: self.id.clone(),
            method: self.method.as_str().into(),
            params: Some(&self.params),
        })
    }
}

/// Why a body is not an envelope, with what can still be read of its id.
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

/// The bytes of a call's result, which is written once and not made a tree of first.
pub fn result(id: &Value, result: &impl Serialize) -> Bytes {
    #[derive(Serialize)]
    struct Success<'a, T> {
        jsonrpc: JsonRpcVersion,
        id: &'a Value,
        result: &'a T,
    }
    to_bytes(&Success { jsonrpc: JsonRpcVersion, id, result })
}

/// The answer to a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Response(JsonRpcResponse<Value>);

impl Response {
    /// A result.
    pub fn ok(id: Value, result: Value) -> Self {
        Self(JsonRpcResponse::Success(JsonRpcSuccessResponse::new(some(id), result)))
    }

    /// A refusal, with its typed details.
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

    /// Reads an answer: exactly one of a result and an error.
    pub fn read(body: &[u8]) -> Result<Self, BadMessage> {
        serde_json::from_slice(body).map_err(|e| BadMessage::Bytes(short(&e.to_string(), 300)))
    }

    /// The id of the call that it answers.
    pub fn id(&self) -> Option<&Value> {
        match &self.0 {
            JsonRpcResponse::Success(success) => success.id.as_ref(),
            JsonRpcResponse::Error(error) => error.id.as_ref(),
        }
    }

    /// The result, or why there is none. Codes that A2A does not know become internal errors.
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

    /// The answer as bytes.
    pub fn to_bytes(&self) -> Bytes {
        to_bytes(self)
    }
}

/// Refuses a call whose headers ask for what this binding does not speak.
pub fn check_headers(version: Option<&str>, content_type: Option<&str>) -> Result<(), A2aError> {
    let media_type = content_type.unwrap_or(header::JSON);
    let bare = media_type.split(';').next().unwrap_or_default().trim();
    if ![header::JSON, A2A_JSON].iter().any(|known| bare.eq_ignore_ascii_case(known)) {
        let message = format!("{:?} is not read here: send {}", short(media_type, 100), header::JSON);
        return Err(A2aError::content_type_not_supported(message));
    }
    // A2A reads a missing or empty version as 0.3.
    let version = version.map(str::trim).filter(|version| !version.is_empty()).unwrap_or("0.3");
    if version != A2A_VERSION {
        let message = format!(
            "A2A {} is not spoken here: send {}: {A2A_VERSION}",
            short(version, 20),
            header::A2A_VERSION
        );
        return Err(A2aError::version_not_supported(message));
    }
    Ok(())
}

/// A fault of ours as the error of an operation. Its code and whether to try again travel as typed details.
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
        // ErrorInfo's metadata is a map of texts.
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

/// The error of an operation as a fault: our own code and retryability where [`error_of`] wrote them.
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
        // Only a fault of the agent's own may be gone the next time.
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

/// A value as text. Plain data with text keys can always be written.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn to_bytes(message: &impl Serialize) -> Bytes {
    // Serialising plain data with text keys cannot fail.
    serde_json::to_vec(message).unwrap_or_default().into()
}

fn short(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}
