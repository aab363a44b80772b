//! Errors for invalid parameters of a method.
//!
//! `rmcp` parses such a request as one of an unknown method, and would respond that the method does
//! not exist.

#![expect(deprecated, reason = "clients of today set the level of logs")]

use rmcp::model::{
    CallToolRequestParams, CancelTaskParams, CompleteRequestParams, ErrorCode, ErrorData,
    GetPromptRequestParams, GetTaskParams, InitializeRequestParams, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionsListenRequestParams, UnsubscribeRequestParams, UpdateTaskParams,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sinew_protocol::code;

use super::tool_result::coded_error;
use crate::operations::short;

/// Methods removed in MCP 2026-07-28.
const REMOVED_METHODS: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// Returns the error for a request of this method whose parameters `rmcp` could not parse, or
/// `None` for a method that this version of the protocol does not define.
pub(super) fn refused_params(
    version: Option<&ProtocolVersion>,
    method: &str,
    params: Option<&Value>,
) -> Option<ErrorData> {
    let is_new = version.is_some_and(|it| it.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    if is_new && REMOVED_METHODS.contains(&method) {
        return None;
    }
    let reason = match method {
        "initialize" => reason::<InitializeRequestParams>(params),
        "tools/call" => reason::<CallToolRequestParams>(params),
        "prompts/get" => reason::<GetPromptRequestParams>(params),
        "resources/read" => reason::<ReadResourceRequestParams>(params),
        "resources/subscribe" => reason::<SubscribeRequestParams>(params),
        "resources/unsubscribe" => reason::<UnsubscribeRequestParams>(params),
        "subscriptions/listen" => reason::<SubscriptionsListenRequestParams>(params),
        "completion/complete" => reason::<CompleteRequestParams>(params),
        "logging/setLevel" => reason::<SetLevelRequestParams>(params),
        "tasks/get" => reason::<GetTaskParams>(params),
        "tasks/update" => reason::<UpdateTaskParams>(params),
        "tasks/cancel" => reason::<CancelTaskParams>(params),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            reason::<PaginatedRequestParams>(params)
        }
        "ping" | "server/discover" => None,
        _ => return None,
    };
    let reason = reason.unwrap_or_else(|| "they do not match this method".to_owned());
    let text = format!("params of {method}: {}", short(&reason, 300));
    Some(coded_error(ErrorCode::INVALID_PARAMS, code::GATEWAY_MESSAGE_MALFORMED.as_str(), &text, false))
}

/// Returns why parameters do not match this type, or `None` if they match.
fn reason<P: DeserializeOwned>(params: Option<&Value>) -> Option<String> {
    let params = params.cloned().unwrap_or_else(|| json!({}));
    serde_json::from_value::<P>(params).err().map(|error| error.to_string())
}
