//! The A2A 1.0 types. Only this module imports `a2a-protocol-types`.
//!
//! The types parse enum names of A2A 0.3 and ignore unknown fields. Keep the raw bytes of a card to
//! verify its signature, because parsing drops unknown fields.

mod history;
pub mod v0_3;

pub use a2a_protocol_types::error::A2A_ERROR_DOMAIN;
pub use a2a_protocol_types::message::PartContent;
pub use a2a_protocol_types::method::Method as CoreMethod;
pub use a2a_protocol_types::params::{DeletePushConfigParams, GetPushConfigParams, ListPushConfigsParams};
pub use a2a_protocol_types::push::{AuthenticationInfo, TaskPushNotificationConfig};
pub use a2a_protocol_types::required::{check_message, check_push_config};
pub use a2a_protocol_types::{
    A2A_EXTENSIONS_HEADER, A2A_VERSION, A2A_VERSION_HEADER, A2aError, AgentCapabilities, AgentCard,
    AgentExtension, AgentInterface, AgentProvider, AgentSkill, Artifact, CancelTaskParams, ContextId,
    ErrorCode, JsonRpcError, JsonRpcErrorResponse, JsonRpcId, JsonRpcResponse, JsonRpcSuccessResponse,
    JsonRpcVersion, ListTasksParams, Message, MessageRole, MessageSendParams as SendMessageRequest, Part,
    SendMessageConfiguration, SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId,
    TaskIdParams, TaskListResponse, TaskQueryParams, TaskState, TaskStatus, TaskStatusUpdateEvent,
    parse_iso8601_to_unix_millis as parse_timestamp, unix_millis_to_iso8601 as format_timestamp,
};

pub use history::{MAX_HISTORY, MAX_HISTORY_BYTES, bound_history, trim_history};

use serde_json::Value;

/// Returns the JSON of a data part.
pub fn part_data(part: &Part) -> Option<&Value> {
    match &part.content {
        PartContent::Data(data) => Some(data),
        _ => None,
    }
}

/// Returns the kind of a part: `text`, `data` or `file` (bytes or an address).
pub fn part_kind(part: &Part) -> &'static str {
    match &part.content {
        PartContent::Text(_) => "text",
        PartContent::Data(_) => "data",
        _ => "file",
    }
}

/// Returns whether the state is terminal.
pub fn is_terminal(state: TaskState) -> bool {
    matches!(state, TaskState::Completed | TaskState::Failed | TaskState::Canceled | TaskState::Rejected)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_shapes_are_those_of_the_specification() {
        let wire = json!({
            "id": "t1",
            "contextId": "c1",
            "status": {
                "state": "TASK_STATE_COMPLETED",
                "message": {
                    "messageId": "m1",
                    "role": "ROLE_AGENT",
                    "parts": [
                        {"text": "done"},
                        {"data": {"n": 9_007_199_254_740_993_u64}, "mediaType": "application/json"},
                        {"url": "artifact://a/u/s/o.json?version=0", "filename": "o.json"},
                        {"raw": "YWJj"},
                    ],
                },
                "timestamp": "2026-11-21T09:00:00.000Z",
            },
            "artifacts": [{"artifactId": "a1", "parts": [{"text": "x"}]}],
        });
        let task: Task = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(&task).unwrap(), wire);
        assert!(is_terminal(task.status.state));
        let parts = &task.status.message.as_ref().unwrap().parts;
        assert_eq!(parts.iter().map(part_kind).collect::<Vec<_>>(), ["text", "data", "file", "file"]);
        assert_eq!(parts.iter().find_map(part_data), Some(&json!({"n": 9_007_199_254_740_993_u64})));
    }

    #[test]
    fn older_words_and_unknown_fields_are_read() {
        let wire = json!({"id": "t", "status": {"state": "input-required", "mood": "good"}, "kind": "task"});
        let task: Task = serde_json::from_value(wire).unwrap();
        assert!(!is_terminal(task.status.state));
        let two = json!({"text": "a", "url": "b"});
        assert!(serde_json::from_value::<Part>(two).is_err(), "a part holds one thing");
    }
}
