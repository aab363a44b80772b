//! A2A operations of an external agent, over JSON-RPC or HTTP+JSON.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sinew_agents::{ResolvedSecrets, WebMethod, WebRequest, WebResponse};
use sinew_protocol::a2a::v0_3::{OLD_VERSION, modern_event, modern_result, old_request};
use sinew_protocol::a2a::{
    A2A_VERSION, A2aError, CoreMethod, ErrorCode, Message, SendMessageResponse, StreamResponse, Task,
    TaskListResponse,
};
use sinew_protocol::code::{self, Code};
use sinew_protocol::event_stream::EventReader;
use sinew_protocol::jsonrpc::{A2A_JSON, Method, Request, Response, fault_of};
use sinew_protocol::unique_keys::read_unique;
use tokio::time::timeout;

use crate::bridge_file::RemoteBinding;
use crate::credentials::Credentials;
use crate::error::{BridgeError, quoted};
use crate::outside_hosts::OutsideHosts;
use crate::remote_card::RemoteEndpoint;

/// Timeout of an operation that does not wait for the task.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response, in bytes.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// Maximum size of one stream, in bytes.
const MAX_STREAM_BYTES: usize = 64 << 20;
/// Maximum size of an event, in bytes.
const MAX_EVENT_BYTES: usize = 4 << 20;
/// Status of a request that was rejected because of a rate limit.
const TOO_MANY_REQUESTS: u16 = 429;
/// Errors of a Sinew gateway before any work, after which the message was not accepted.
const NOT_TAKEN: [Code; 4] =
    [code::AGENT_BUSY, code::GATEWAY_BUSY, code::GATEWAY_CALLER_LIMIT, code::NOBODY_ANSWERS];
/// Media type of errors outside A2A.
const PROBLEM_JSON: &str = "application/problem+json";
/// Maximum number of listed tasks of one context.
const LIST_PAGE: u32 = 100;

/// Failure of an operation that was not performed, or whose outcome is unknown.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// The agent refused the operation.
    Refused(A2aError),
    /// The service limits its callers and did not accept the request.
    Busy { retry_after_ms: Option<u64> },
    /// The request did not reach the service.
    Unsent(String),
    /// No response was received; the request may have been accepted.
    Lost(String),
    /// The response violates A2A.
    Wrong(String),
    /// The credentials cannot be read, or are rejected.
    Credentials(BridgeError),
}

impl CallFailure {
    /// Converts the failure to an error of the bridge.
    pub(crate) fn into_error(self, operation: &'static str) -> BridgeError {
        match self {
            Self::Refused(error) => {
                let retry_after_ms =
                    error.retry_after().and_then(|wait| u64::try_from(wait.as_millis()).ok());
                BridgeError::Refused {
                    operation,
                    reason: quoted(&format!("{} ({})", error.message, error.code)),
                    may_pass: error.code == ErrorCode::InternalError,
                    retry_after_ms,
                }
            }
            Self::Busy { retry_after_ms } => BridgeError::Refused {
                operation,
                reason: format!("status {TOO_MANY_REQUESTS}"),
                may_pass: true,
                retry_after_ms,
            },
            Self::Unsent(reason) | Self::Lost(reason) => BridgeError::Unreachable { reason: quoted(&reason) },
            Self::Wrong(reason) => BridgeError::Answer { operation, reason: quoted(&reason) },
            Self::Credentials(error) => error,
        }
    }

    /// Returns whether a message with this failure may have been accepted: no response was
    /// received, or the agent failed while it processed the message.
    pub(crate) fn leaves_fate_open(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Refused(error) => match error.code {
                ErrorCode::InternalError => {
                    let code = fault_of(error).code;
                    NOT_TAKEN.iter().all(|known| code != known.as_str())
                }
                // A proxy before the agent forwarded the message, and could not parse the response.
                ErrorCode::InvalidAgentResponse => true,
                _ => false,
            },
            Self::Busy { .. } | Self::Unsent(_) | Self::Wrong(_) | Self::Credentials(_) => false,
        }
    }

    /// Returns whether the same request may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Unsent(_) | Self::Lost(_) => true,
            Self::Refused(error) => error.code == ErrorCode::InternalError,
            Self::Wrong(_) | Self::Credentials(_) => false,
        }
    }

    fn wrong(error: &dyn std::fmt::Display) -> Self {
        Self::Wrong(error.to_string())
    }
}

/// Client for the operations of an external agent.
#[derive(Debug)]
pub(crate) struct RemoteClient {
    pub(crate) endpoint: RemoteEndpoint,
    hosts: Arc<OutsideHosts>,
    credentials: Arc<Credentials>,
}

/// Response to a message that requested a stream.
pub(crate) enum SendAnswer {
    /// First event, and the following ones.
    Stream(StreamResponse, Box<RemoteEvents>),
    /// Single response.
    Whole(SendMessageResponse),
}

impl RemoteClient {
    pub(crate) fn new(
        endpoint: RemoteEndpoint,
        hosts: Arc<OutsideHosts>,
        credentials: Arc<Credentials>,
    ) -> Self {
        Self { endpoint, hosts, credentials }
    }

    /// Returns the values that must be redacted in responses.
    pub(crate) fn secrets(&self) -> ResolvedSecrets {
        self.credentials.secrets()
    }

    /// Sends a message. Returns as soon as there is a task, or a message instead of one.
    pub(crate) async fn send(&self, message: &Message) -> Result<SendAnswer, CallFailure> {
        let configuration = json!({"returnImmediately": true, "acceptedOutputModes": []});
        let params = json!({"message": message, "configuration": configuration});
        if !self.endpoint.streams {
            return self.value(CoreMethod::SendMessage, params).await.map(SendAnswer::Whole);
        }
        match self.exchange(CoreMethod::SendStreamingMessage, params).await? {
            RemoteAnswer::Events(mut events) => match events.next(ANSWER_TIMEOUT).await? {
                Some(first) => Ok(SendAnswer::Stream(first, events)),
                None => Err(CallFailure::Lost("the stream ended before its first event".to_owned())),
            },
            // The agent does not stream despite its card.
            RemoteAnswer::Value(value) => read(value).map(SendAnswer::Whole),
        }
    }

    /// Returns the current task.
    pub(crate) async fn task(&self, id: &str, history: u32) -> Result<Task, CallFailure> {
        self.value(CoreMethod::GetTask, json!({"id": id, "historyLength": history})).await
    }

    /// Subscribes to the events of a task, starting with a snapshot.
    pub(crate) async fn subscribe(&self, id: &str) -> Result<Box<RemoteEvents>, CallFailure> {
        match self.exchange(CoreMethod::SubscribeToTask, json!({"id": id})).await? {
            RemoteAnswer::Events(events) => Ok(events),
            RemoteAnswer::Value(_) => Err(CallFailure::Wrong("the response is not a stream".to_owned())),
        }
    }

    /// Returns the newest tasks of a context, with their messages.
    pub(crate) async fn tasks_of(&self, context: &str) -> Result<Vec<Task>, CallFailure> {
        let params = json!({"contextId": context, "pageSize": LIST_PAGE, "historyLength": LIST_PAGE});
        let list: TaskListResponse = self.value(CoreMethod::ListTasks, params).await?;
        Ok(list.tasks)
    }

    /// Cancels a task.
    pub(crate) async fn cancel(&self, id: &str) -> Result<(), CallFailure> {
        self.value::<Value>(CoreMethod::CancelTask, json!({"id": id})).await.map(drop)
    }

    /// Reads a file of the agent, which must be on a configured host.
    pub(crate) async fn file(&self, address: &str, max_bytes: usize) -> Result<Vec<u8>, CallFailure> {
        let response = self.open(WebMethod::Get, address, Vec::new()).await?;
        match response.status() {
            200 => within(response.body(max_bytes)).await,
            status => Err(CallFailure::Lost(format!("status {status}"))),
        }
    }

    async fn value<T: DeserializeOwned>(&self, method: CoreMethod, params: Value) -> Result<T, CallFailure> {
        match self.exchange(method, params).await? {
            RemoteAnswer::Value(value) => read(value),
            RemoteAnswer::Events(_) => Err(CallFailure::Wrong("the response is a stream".to_owned())),
        }
    }

    async fn exchange(&self, method: CoreMethod, mut params: Value) -> Result<RemoteAnswer, CallFailure> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        let (http, address, body) = match self.endpoint.binding {
            RemoteBinding::JsonRpc if self.endpoint.is_old => {
                let (name, params) = old_request(method, params).ok_or_else(|| {
                    let text = format!("A2A 0.3 has no operation {}", method.wire_name());
                    CallFailure::Refused(A2aError::new(ErrorCode::MethodNotFound, text))
                })?;
                let body = json!({ "jsonrpc": "2.0", "id": id, "method": name, "params": params });
                (WebMethod::Post, self.endpoint.address.clone(), body.to_string().into_bytes())
            }
            RemoteBinding::JsonRpc => {
                if let (Some(tenant), Some(members)) = (&self.endpoint.tenant, params.as_object_mut()) {
                    members.insert("tenant".to_owned(), json!(tenant));
                }
                let body = Request::new(id.as_str(), Method::Core(method), &params).to_bytes();
                (WebMethod::Post, self.endpoint.address.clone(), body.to_vec())
            }
            RemoteBinding::HttpJson => self.paths(method, &params),
        };
        let mut response = self.open(http, &address, body.clone()).await?;
        // A token may have been revoked early; an unauthorised request was not performed.
        if matches!(response.status(), 401) && self.credentials.forget_token().await {
            response = self.open(http, &address, body).await?;
        }
        Ok(match self.answer(response, id).await? {
            RemoteAnswer::Value(value) if self.endpoint.is_old => {
                RemoteAnswer::Value(modern_result(method, value))
            }
            answer => answer,
        })
    }

    /// Returns method, address and body of an operation over HTTP+JSON.
    fn paths(&self, method: CoreMethod, params: &Value) -> (WebMethod, String, Vec<u8>) {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let text = |name: &str| params.get(name).and_then(Value::as_str).map(encode).unwrap_or_default();
        let mut base = self.endpoint.address.clone();
        if let Some(tenant) = &self.endpoint.tenant {
            base = format!("{base}/{}", encode(tenant));
        }
        let (http, path) = match method {
            CoreMethod::SendMessage => (WebMethod::Post, "/message:send".to_owned()),
            CoreMethod::SendStreamingMessage => (WebMethod::Post, "/message:stream".to_owned()),
            CoreMethod::CancelTask => (WebMethod::Post, format!("/tasks/{}:cancel", text("id"))),
            CoreMethod::SubscribeToTask => (WebMethod::Post, format!("/tasks/{}:subscribe", text("id"))),
            CoreMethod::ListTasks => (
                WebMethod::Get,
                format!(
                    "/tasks?contextId={}&pageSize={LIST_PAGE}&historyLength={LIST_PAGE}",
                    text("contextId")
                ),
            ),
            _ => {
                let history = params.get("historyLength").and_then(Value::as_u64).unwrap_or_default();
                (WebMethod::Get, format!("/tasks/{}?historyLength={history}", text("id")))
            }
        };
        let body = match (http, method) {
            (WebMethod::Get, _) => Vec::new(),
            (WebMethod::Post, CoreMethod::CancelTask | CoreMethod::SubscribeToTask) => b"{}".to_vec(),
            (WebMethod::Post, _) => params.to_string().into_bytes(),
        };
        (http, format!("{base}{path}"), body)
    }

    async fn open(
        &self,
        method: WebMethod,
        address: &str,
        body: Vec<u8>,
    ) -> Result<WebResponse, CallFailure> {
        let web = self.hosts.named.client();
        let authorization = self.credentials.header(&web).await.map_err(CallFailure::Credentials)?;
        let content_type = match self.endpoint.binding {
            RemoteBinding::JsonRpc => "application/json",
            RemoteBinding::HttpJson => A2A_JSON,
        };
        let accept = format!("{A2A_JSON}, application/json, text/event-stream");
        let version = if self.endpoint.is_old { OLD_VERSION } else { A2A_VERSION };
        let mut headers = vec![("a2a-version", version), ("accept", accept.as_str())];
        if method == WebMethod::Post {
            headers.push(("content-type", content_type));
        }
        headers.extend(authorization.as_ref().map(|(name, value)| (name.as_str(), value.as_str())));
        let request = WebRequest { method, address, headers: &headers, body, timeout: ANSWER_TIMEOUT };
        web.open(request).await.map_err(|failure| {
            let reason = failure.error.to_string();
            if failure.is_unsent { CallFailure::Unsent(reason) } else { CallFailure::Lost(reason) }
        })
    }

    async fn answer(&self, response: WebResponse, id: String) -> Result<RemoteAnswer, CallFailure> {
        let status = response.status();
        let media_type = response.header("content-type").unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_rpc = self.endpoint.binding == RemoteBinding::JsonRpc;
        let secrets = self.secrets();
        if status == 200 && media_type == "text/event-stream" {
            let id = is_rpc.then_some(id);
            let is_old = self.endpoint.is_old;
            return Ok(RemoteAnswer::Events(Box::new(RemoteEvents::new(response, id, is_old, secrets))));
        }
        let retry_after = response.header("retry-after").and_then(|text| text.trim().parse::<u64>().ok());
        let retry_after_ms = retry_after.map(|seconds| seconds.saturating_mul(1_000));
        match status {
            300..=399 => return Err(CallFailure::Wrong("redirects are not followed".to_owned())),
            401 | 403 => {
                let reason = format!("status {status}");
                return Err(CallFailure::Credentials(BridgeError::Credentials { reason }));
            }
            TOO_MANY_REQUESTS => return Err(CallFailure::Busy { retry_after_ms }),
            _ => {}
        }
        let is_good = (200..300).contains(&status);
        let body = match within(response.body(MAX_ANSWER_BYTES)).await {
            Err(CallFailure::Wrong(_)) if !is_good => return Err(unread_status(status)),
            body => body?,
        };
        if media_type == PROBLEM_JSON && is_early_refusal(&body) {
            return Err(CallFailure::Busy { retry_after_ms });
        }
        if is_rpc {
            return match rpc_result(&body, &id, &secrets) {
                Err(CallFailure::Wrong(_)) if !is_good => Err(unread_status(status)),
                result => result.map(RemoteAnswer::Value),
            };
        }
        if is_good {
            return path_result(&body, &secrets).map(RemoteAnswer::Value);
        }
        match path_result(&body, &secrets).ok().and_then(|body| path_error(&body, status)) {
            Some(error) => Err(CallFailure::Refused(error)),
            None => Err(unread_status(status)),
        }
    }
}

/// Response of an agent.
enum RemoteAnswer {
    Value(Value),
    Events(Box<RemoteEvents>),
}

/// Handles a status without an A2A error: a client error means that the request was not accepted,
/// after a server error it may have been. A proxy also returns 503 if the connection to the agent
/// breaks after it forwarded the request.
fn unread_status(status: u16) -> CallFailure {
    if status < 500 {
        CallFailure::Refused(A2aError::new(ErrorCode::InvalidRequest, format!("status {status}")))
    } else {
        CallFailure::Lost(format!("status {status}"))
    }
}

/// Returns whether a problem document of a Sinew gateway reports that no work was done.
fn is_early_refusal(body: &[u8]) -> bool {
    let problem = read_unique::<Value>(body).unwrap_or_default();
    let code = problem.get("code").and_then(Value::as_str).unwrap_or_default();
    NOT_TAKEN.iter().any(|known| code == known.as_str())
}

/// Parses an A2A error over HTTP+JSON: `{"error": {code, status, message, details}}`.
fn path_error(body: &Value, status: u16) -> Option<A2aError> {
    let error = body.get("error").filter(|error| error.is_object())?;
    let is_of_server = status >= 500;
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let details = error.get("details").and_then(Value::as_array);
    let reason = details.into_iter().flatten().find_map(|detail| detail.get("reason")?.as_str());
    let status = error.get("status").and_then(Value::as_str).unwrap_or_default();
    let code = match (reason.unwrap_or_default(), status) {
        ("TASK_NOT_FOUND", _) => ErrorCode::TaskNotFound,
        ("TASK_NOT_CANCELABLE", _) => ErrorCode::TaskNotCancelable,
        ("UNSUPPORTED_OPERATION", _) => ErrorCode::UnsupportedOperation,
        ("CONTENT_TYPE_NOT_SUPPORTED", _) => ErrorCode::ContentTypeNotSupported,
        ("VERSION_NOT_SUPPORTED", _) => ErrorCode::VersionNotSupported,
        ("EXTENSION_SUPPORT_REQUIRED", _) => ErrorCode::ExtensionSupportRequired,
        (_, "INVALID_ARGUMENT") => ErrorCode::InvalidParams,
        (_, "NOT_FOUND") => ErrorCode::TaskNotFound,
        ("INVALID_AGENT_RESPONSE", _) => ErrorCode::InvalidAgentResponse,
        (_, "INTERNAL" | "UNAVAILABLE" | "UNKNOWN") => ErrorCode::InternalError,
        _ if is_of_server => ErrorCode::InternalError,
        _ => ErrorCode::InvalidRequest,
    };
    let mut error = A2aError::new(code, message);
    error.data = details.map(|details| Value::Array(details.clone()));
    Some(error.with_retry_info_from_details())
}

/// Redacts the secrets of the bridge in a response: external agents and proxies may echo requests.
fn without_secrets(value: &Value, secrets: &ResolvedSecrets) -> Value {
    let mut hidden = secrets.hide_in_value(value);
    hide_in_parts(&mut hidden, secrets);
    hidden
}

/// Redacts secrets that span several parts of one message or artifact.
fn hide_in_parts(value: &mut Value, secrets: &ResolvedSecrets) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| hide_in_parts(item, secrets)),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                match member {
                    Value::Array(parts) if name == "parts" && parts.len() > 1 => {
                        let mut texts: Vec<&mut String> = parts
                            .iter_mut()
                            .filter_map(|part| match part.get_mut("text")? {
                                Value::String(text) => Some(text),
                                _ => None,
                            })
                            .collect();
                        let mut pieces: Vec<String> = texts.iter().map(|text| (**text).clone()).collect();
                        secrets.hide_in_pieces(&mut pieces);
                        texts.iter_mut().zip(pieces).for_each(|(text, piece)| **text = piece);
                    }
                    member => hide_in_parts(member, secrets),
                }
            }
        }
        _ => {}
    }
}

fn path_result(body: &[u8], secrets: &ResolvedSecrets) -> Result<Value, CallFailure> {
    let value = read_unique::<Value>(body).map_err(|error| unreadable(&error, secrets))?;
    Ok(without_secrets(&value, secrets))
}

/// The parser's message may quote the body.
fn unreadable(error: &dyn std::fmt::Display, secrets: &ResolvedSecrets) -> CallFailure {
    CallFailure::Wrong(secrets.hide(&error.to_string()))
}

fn rpc_result(body: &[u8], id: &str, secrets: &ResolvedSecrets) -> Result<Value, CallFailure> {
    // Readers differ in which of two duplicate fields they keep.
    read_unique::<Value>(body).map_err(|error| unreadable(&error, secrets))?;
    let response = Response::read(body).map_err(|error| unreadable(&error, secrets))?;
    if let Some(found) = response.id().filter(|found| found.as_str() != Some(id)) {
        let reason = format!("it belongs to request {found}, not to this one");
        return Err(CallFailure::Wrong(secrets.hide(&reason)));
    }
    match response.into_result() {
        Ok(value) => Ok(without_secrets(&value, secrets)),
        Err(mut error) => {
            error.message = secrets.hide(&error.message);
            error.data = error.data.map(|data| secrets.hide_in_value(&data));
            Err(CallFailure::Refused(error))
        }
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, CallFailure> {
    serde_json::from_value(value).map_err(|error| CallFailure::wrong(&error))
}

async fn within<T>(
    reading: impl Future<Output = Result<T, sinew_agents::AgentError>>,
) -> Result<T, CallFailure> {
    match timeout(ANSWER_TIMEOUT, reading).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error @ sinew_agents::AgentError::Response { .. })) => Err(CallFailure::wrong(&error)),
        Ok(Err(error)) => Err(CallFailure::Lost(error.to_string())),
        Err(_) => Err(CallFailure::Lost("the response did not arrive in time".to_owned())),
    }
}

/// Stream of events of a task.
pub(crate) struct RemoteEvents {
    response: WebResponse,
    reader: EventReader,
    waiting: std::collections::VecDeque<Vec<u8>>,
    /// Id of the JSON-RPC request, which every event repeats.
    id: Option<String>,
    /// Whether the events are those of A2A 0.3.
    is_old: bool,
    bytes: usize,
    /// Values that must be redacted in events.
    secrets: ResolvedSecrets,
}

impl RemoteEvents {
    fn new(response: WebResponse, id: Option<String>, is_old: bool, secrets: ResolvedSecrets) -> Self {
        let waiting = std::collections::VecDeque::new();
        Self { response, reader: EventReader::new(MAX_EVENT_BYTES), waiting, id, is_old, bytes: 0, secrets }
    }

    /// Returns the next event; `None` if the stream has ended, or sent nothing for `patience`.
    pub(crate) async fn next(&mut self, patience: Duration) -> Result<Option<StreamResponse>, CallFailure> {
        loop {
            if let Some(data) = self.waiting.pop_front() {
                let value = match &self.id {
                    Some(id) => rpc_result(&data, id, &self.secrets)?,
                    None => path_result(&data, &self.secrets)?,
                };
                return read(if self.is_old { modern_event(value) } else { value }).map(Some);
            }
            let Ok(chunk) = timeout(patience, self.response.chunk()).await else { return Ok(None) };
            let Some(chunk) = chunk.map_err(|error| CallFailure::Lost(error.to_string()))? else {
                return Ok(None);
            };
            self.bytes += chunk.len();
            if self.bytes > MAX_STREAM_BYTES {
                return Err(CallFailure::Wrong(format!("a stream has more than {MAX_STREAM_BYTES} bytes")));
            }
            let events = self.reader.push(&chunk).map_err(|error| CallFailure::wrong(&error))?;
            self.waiting.extend(events);
        }
    }
}
