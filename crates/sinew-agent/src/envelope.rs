//! JSON-RPC 2.0 around A2A's operations.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::operations::Refusal;

/// Where A2A's errors have their reasons.
const DOMAIN: &str = "a2a-protocol.org";

/// A request out of its envelope.
pub(crate) struct Opened {
    pub(crate) id: Option<Value>,
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
}

/// Opens a request. A body without a usable id is answered with a null one.
pub(crate) fn open(body: &[u8]) -> Result<Opened, (Option<Value>, Refusal)> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| (None, Refusal::Unparsable(crate::failure::short(&error.to_string(), 200))))?;
    let Value::Object(mut request) = value else {
        return Err((None, Refusal::NoRequest("a request is an object".to_owned())));
    };
    let id = request.remove("id").filter(|id| id.is_string() || id.is_number());
    let bad = |what: &str| (id.clone(), Refusal::NoRequest(what.to_owned()));
    if request.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(bad("jsonrpc: expected \"2.0\""));
    }
    let Some(Value::String(method)) = request.remove("method") else {
        return Err(bad("method: expected a text"));
    };
    let params = request.remove("params");
    if params.as_ref().is_some_and(|params| !params.is_object()) {
        return Err((id, Refusal::Parameters("params: expected an object".to_owned())));
    }
    Ok(Opened { id, method, params })
}

/// The answer with a result.
pub(crate) fn result(id: Option<Value>, result: Value) -> Bytes {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string().into()
}

/// The answer with an error.
pub(crate) fn refusal(id: Option<Value>, refusal: &Refusal) -> Bytes {
    let (code, reason, message) = refusal.words();
    let mut error = Map::new();
    error.insert("code".to_owned(), code.into());
    error.insert("message".to_owned(), message.into());
    let mut data = Vec::new();
    if let Some(reason) = reason {
        let kind = "type.googleapis.com/google.rpc.ErrorInfo";
        data.push(json!({"@type": kind, "reason": reason, "domain": DOMAIN}));
    }
    if let Refusal::Internal(fault) = refusal {
        data.push(json!({ "fault": fault }));
    }
    if !data.is_empty() {
        error.insert("data".to_owned(), data.into());
    }
    json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into()
}

impl Refusal {
    /// Code, A2A's reason, and words for a person.
    fn words(&self) -> (i32, Option<&'static str>, String) {
        match self {
            Self::TaskNotFound(id) => (-32001, Some("TASK_NOT_FOUND"), format!("there is no task {id:?}")),
            Self::NotCancelable(id) => {
                (-32002, Some("TASK_NOT_CANCELABLE"), format!("task {id:?} has ended already"))
            }
            Self::PushNotSupported => {
                let message = "there are no push notifications on a bus; watch the task's progress";
                (-32003, Some("PUSH_NOTIFICATION_NOT_SUPPORTED"), message.to_owned())
            }
            Self::Unsupported(message) => (-32004, Some("UNSUPPORTED_OPERATION"), message.clone()),
            Self::ContentType(found) => {
                (-32005, Some("CONTENT_TYPE_NOT_SUPPORTED"), format!("{found:?} is not read here, JSON is"))
            }
            Self::NoExtendedCard => {
                let message = "this agent has one card, the same for everybody";
                (-32007, Some("EXTENDED_AGENT_CARD_NOT_CONFIGURED"), message.to_owned())
            }
            Self::Version(found) => {
                (-32009, Some("VERSION_NOT_SUPPORTED"), format!("A2A {found:?} is not spoken here, 1.0 is"))
            }
            Self::Unparsable(message) => (-32700, None, format!("the body is no JSON: {message}")),
            Self::NoRequest(message) => (-32600, None, format!("the body is no request: {message}")),
            Self::NoMethod(method) => (-32601, None, format!("there is no operation {method:?}")),
            Self::Parameters(message) => (-32602, None, format!("the parameters cannot be read: {message}")),
            Self::Internal(fault) => (-32603, None, fault.to_string()),
        }
    }
}
