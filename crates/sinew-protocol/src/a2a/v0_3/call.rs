//! Requests of A2A 0.3 and their results (specification 0.3.0, section 7).

use serde_json::{Map, Value, json};

use super::{Direction, modern_event, old_event};
use crate::a2a::{A2aError, CoreMethod, ErrorCode};

/// Operations of the JSON-RPC binding of A2A 0.3, by their names there.
const METHODS: [(&str, CoreMethod); 10] = [
    ("message/send", CoreMethod::SendMessage),
    ("message/stream", CoreMethod::SendStreamingMessage),
    ("tasks/get", CoreMethod::GetTask),
    ("tasks/cancel", CoreMethod::CancelTask),
    ("tasks/resubscribe", CoreMethod::SubscribeToTask),
    ("tasks/pushNotificationConfig/set", CoreMethod::CreateTaskPushNotificationConfig),
    ("tasks/pushNotificationConfig/get", CoreMethod::GetTaskPushNotificationConfig),
    ("tasks/pushNotificationConfig/list", CoreMethod::ListTaskPushNotificationConfigs),
    ("tasks/pushNotificationConfig/delete", CoreMethod::DeleteTaskPushNotificationConfig),
    ("agent/getAuthenticatedExtendedCard", CoreMethod::GetExtendedAgentCard),
];

/// Returns the operation that a method of A2A 0.3 requests.
pub(crate) fn old_method(name: &str) -> Option<CoreMethod> {
    METHODS.into_iter().find(|(old, _)| *old == name).map(|(_, method)| method)
}

/// A request of A2A 0.3 as an operation of A2A 1.0.
#[derive(Clone, Debug, PartialEq)]
pub struct OldCall {
    /// The operation.
    pub method: CoreMethod,
    /// Its parameters in A2A 1.0.
    pub params: Value,
    /// The operation that the client requested, which determines the form of the result.
    requested: CoreMethod,
}

impl OldCall {
    /// Translates the parameters of a request of A2A 0.3.
    pub fn new(requested: CoreMethod, mut params: Value) -> Self {
        let mut method = requested;
        if let Some(members) = params.as_object_mut() {
            match requested {
                CoreMethod::SendMessage | CoreMethod::SendStreamingMessage => modern_message_params(members),
                CoreMethod::CreateTaskPushNotificationConfig => modern_push_config(members),
                CoreMethod::GetTaskPushNotificationConfig
                | CoreMethod::ListTaskPushNotificationConfigs
                | CoreMethod::DeleteTaskPushNotificationConfig => {
                    rename(members, "id", "taskId");
                    rename(members, "pushNotificationConfigId", "id");
                    // Without the id of a config, the first one of the task is meant.
                    if requested == CoreMethod::GetTaskPushNotificationConfig && !members.contains_key("id") {
                        method = CoreMethod::ListTaskPushNotificationConfigs;
                    }
                }
                _ => {}
            }
        }
        Self { method, params, requested }
    }

    /// Translates the result of the operation to A2A 0.3. Fails if the requested config does not
    /// exist.
    pub fn result(&self, mut result: Value) -> Result<Value, A2aError> {
        Ok(match self.method {
            CoreMethod::SendMessage => old_event(result),
            CoreMethod::GetTask | CoreMethod::CancelTask => {
                Direction::Old.task(&mut result);
                result
            }
            CoreMethod::CreateTaskPushNotificationConfig | CoreMethod::GetTaskPushNotificationConfig => {
                old_push_config(result)
            }
            CoreMethod::ListTaskPushNotificationConfigs => {
                let configs = result.get_mut("configs").map(Value::take);
                let configs = configs.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
                let mut configs = configs.into_iter().map(old_push_config);
                if self.requested == CoreMethod::GetTaskPushNotificationConfig {
                    let absent =
                        || A2aError::new(ErrorCode::TaskNotFound, "the task has no push notification config");
                    return configs.next().ok_or_else(absent);
                }
                configs.collect()
            }
            CoreMethod::DeleteTaskPushNotificationConfig => Value::Null,
            CoreMethod::GetExtendedAgentCard => {
                super::add_old_members(&mut result);
                result
            }
            _ => result,
        })
    }
}

/// Translates a request of A2A 1.0 to the name and parameters of A2A 0.3. `None` for an operation
/// that a client of A2A 0.3 cannot call.
pub fn old_request(method: CoreMethod, mut params: Value) -> Option<(&'static str, Value)> {
    let (name, _) = METHODS.into_iter().find(|(_, known)| *known == method)?;
    let members = params.as_object_mut().filter(|_| !name.starts_with("tasks/pushNotificationConfig/"))?;
    if let Some(message) = members.get_mut("message") {
        Direction::Old.message(message);
    }
    if let Some(configuration) = members.get_mut("configuration").and_then(Value::as_object_mut) {
        let at_once = configuration.shift_remove("returnImmediately").and_then(|value| value.as_bool());
        configuration.insert("blocking".to_owned(), json!(at_once != Some(true)));
    }
    Some((name, params))
}

/// Translates the result of an operation of A2A 0.3 to A2A 1.0.
pub fn modern_result(method: CoreMethod, mut result: Value) -> Value {
    match method {
        CoreMethod::SendMessage => modern_event(result),
        CoreMethod::GetTask | CoreMethod::CancelTask => {
            Direction::Modern.task(&mut result);
            result
        }
        _ => result,
    }
}

fn modern_message_params(members: &mut Map<String, Value>) {
    if let Some(message) = members.get_mut("message") {
        Direction::Modern.message(message);
    }
    // Clients of 0.3 send absent members as null.
    members.retain(|_, value| !value.is_null());
    let Some(configuration) = members.get_mut("configuration").and_then(Value::as_object_mut) else { return };
    if let Some(blocking) = configuration.shift_remove("blocking").and_then(|value| value.as_bool()) {
        configuration.insert("returnImmediately".to_owned(), json!(!blocking));
    }
    if let Some(mut config) = configuration.shift_remove("pushNotificationConfig").filter(|it| !it.is_null())
    {
        modern_authentication(&mut config);
        configuration.insert("taskPushNotificationConfig".to_owned(), config);
    }
    configuration.retain(|_, value| !value.is_null());
}

/// Moves the members of the config next to the id of the task.
fn modern_push_config(members: &mut Map<String, Value>) {
    if let Some(mut config) = members.shift_remove("pushNotificationConfig") {
        modern_authentication(&mut config);
        members.extend(config.as_object_mut().map(std::mem::take).unwrap_or_default());
    }
}

fn modern_authentication(config: &mut Value) {
    let Some(given) = config.get_mut("authentication").and_then(Value::as_object_mut) else { return };
    // A2A 1.0 has one scheme.
    if let Some(Value::Array(schemes)) = given.shift_remove("schemes") {
        given.extend(schemes.into_iter().next().map(|scheme| ("scheme".to_owned(), scheme)));
    }
}

fn old_push_config(mut config: Value) -> Value {
    let Some(members) = config.as_object_mut() else { return config };
    let task = members.shift_remove("taskId").unwrap_or_default();
    members.shift_remove("tenant");
    if let Some(given) = members.get_mut("authentication").and_then(Value::as_object_mut) {
        let scheme = given.shift_remove("scheme");
        given.insert("schemes".to_owned(), scheme.into_iter().collect());
    }
    json!({ "taskId": task, "pushNotificationConfig": config })
}

fn rename(members: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = members.shift_remove(from) {
        members.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_become_operations() {
        let message = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
        let modern = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        let push = json!({"url": "https://x.example/", "token": "t",
                          "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "c"}});
        let modern_push = json!({"url": "https://x.example/", "token": "t",
                                 "authentication": {"credentials": "c", "scheme": "Bearer"}});
        for (name, params, method, expected) in [
            (
                "message/send",
                json!({"message": message, "configuration": {"blocking": false, "historyLength": 3,
                       "pushNotificationConfig": push, "acceptedOutputModes": null}}),
                CoreMethod::SendMessage,
                json!({"message": modern, "configuration": {"returnImmediately": true, "historyLength": 3,
                       "taskPushNotificationConfig": modern_push}}),
            ),
            (
                "message/stream",
                json!({"message": message}),
                CoreMethod::SendStreamingMessage,
                json!({"message": modern}),
            ),
            (
                "tasks/get",
                json!({"id": "t", "historyLength": 1}),
                CoreMethod::GetTask,
                json!({"id": "t", "historyLength": 1}),
            ),
            ("tasks/resubscribe", json!({"id": "t"}), CoreMethod::SubscribeToTask, json!({"id": "t"})),
            (
                "tasks/pushNotificationConfig/set",
                json!({"taskId": "t", "pushNotificationConfig": {"id": "p", "url": "https://x.example/"}}),
                CoreMethod::CreateTaskPushNotificationConfig,
                json!({"taskId": "t", "id": "p", "url": "https://x.example/"}),
            ),
            (
                "tasks/pushNotificationConfig/get",
                json!({"id": "t", "pushNotificationConfigId": "p"}),
                CoreMethod::GetTaskPushNotificationConfig,
                json!({"taskId": "t", "id": "p"}),
            ),
            (
                "tasks/pushNotificationConfig/get",
                json!({"id": "t"}),
                CoreMethod::ListTaskPushNotificationConfigs,
                json!({"taskId": "t"}),
            ),
        ] {
            let call = OldCall::new(old_method(name).unwrap(), params);
            assert_eq!((call.method, call.params), (method, expected), "{name}");
        }
        assert_eq!(old_method("tasks/list"), None);
        let wrong = OldCall::new(CoreMethod::SendMessage, json!({"message": 7}));
        assert_eq!(wrong.params, json!({"message": 7}), "the reader of the operation rejects it");
    }

    #[test]
    fn results_have_the_form_of_the_request() {
        let config = json!({"id": "p", "taskId": "t", "url": "u", "authentication": {"scheme": "Bearer"}});
        let old = json!({"taskId": "t", "pushNotificationConfig": {"id": "p", "url": "u",
                         "authentication": {"schemes": ["Bearer"]}}});
        let list = json!({"configs": [config], "nextPageToken": ""});
        for (name, params, result, expected) in [
            (
                "tasks/get",
                json!({"id": "t"}),
                json!({"id": "t", "status": {"state": "TASK_STATE_WORKING"}}),
                Ok(json!({"id": "t", "status": {"state": "working"}, "kind": "task"})),
            ),
            (
                "message/send",
                json!({}),
                json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": []}}),
                Ok(json!({"messageId": "m", "role": "agent", "parts": [], "kind": "message"})),
            ),
            ("tasks/pushNotificationConfig/set", json!({}), config.clone(), Ok(old.clone())),
            ("tasks/pushNotificationConfig/get", json!({"id": "t"}), list.clone(), Ok(old.clone())),
            ("tasks/pushNotificationConfig/get", json!({"id": "t"}), json!({"configs": []}), Err(-32001)),
            ("tasks/pushNotificationConfig/list", json!({"id": "t"}), list.clone(), Ok(json!([old]))),
            ("tasks/pushNotificationConfig/delete", json!({"id": "t"}), json!({}), Ok(Value::Null)),
        ] {
            let call = OldCall::new(old_method(name).unwrap(), params);
            let shown = call.result(result).map_err(|error| error.code.as_i32());
            assert_eq!(shown, expected, "{name}");
        }
    }

    #[test]
    fn operations_become_requests() {
        let params = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
                            "configuration": {"returnImmediately": true, "acceptedOutputModes": []}});
        let (name, old) = old_request(CoreMethod::SendStreamingMessage, params).unwrap();
        let message = json!({"messageId": "m", "role": "user", "parts": [{"text": "hi", "kind": "text"}], "kind": "message"});
        let configuration = json!({"acceptedOutputModes": [], "blocking": false});
        assert_eq!(
            (name, old),
            ("message/stream", json!({"message": message, "configuration": configuration}))
        );
        assert_eq!(old_request(CoreMethod::ListTasks, json!({})), None);
        let task = json!({"kind": "task", "id": "t", "status": {"state": "completed"}});
        let modern = json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}});
        assert_eq!(modern_result(CoreMethod::GetTask, task.clone()), modern);
        assert_eq!(modern_result(CoreMethod::SendMessage, task), json!({"task": modern}));
    }
}
