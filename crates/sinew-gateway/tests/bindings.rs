//! One corpus of operations against both bindings: the same results, the same errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use sinew_agent::Agent;
use tokio::sync::Notify;

use crate::support::{GatewayWorld, PATIENCE, SINGLE, message, state};

/// A binding of A2A over HTTP.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Binding {
    JsonRpc,
    Rest,
}

impl GatewayWorld {
    /// Performs an operation: its result, or the code and reason of its error.
    async fn perform(
        &self,
        binding: Binding,
        endpoint: &str,
        method: &str,
        params: &Value,
    ) -> Result<Value, (i64, String)> {
        match binding {
            Binding::JsonRpc => {
                let mut answer = self.rpc(endpoint, method, params).await;
                if answer.get("error").is_none() {
                    return Ok(answer["result"].take());
                }
                let error = &answer["error"];
                assert!(!error["message"].as_str().unwrap().is_empty(), "{answer}");
                Err((error["code"].as_i64().unwrap(), reason_of(&error["data"])))
            }
            Binding::Rest => self.perform_rest(endpoint, method, params).await,
        }
    }

    async fn perform_rest(
        &self,
        endpoint: &str,
        method: &str,
        params: &Value,
    ) -> Result<Value, (i64, String)> {
        let id = params["id"].as_str().unwrap_or_default().to_owned();
        let (http, path, body) = match method {
            "SendMessage" => (Method::POST, "/message:send".to_owned(), Some(params.clone())),
            "GetTask" => (Method::GET, format!("/tasks/{id}"), None),
            "CancelTask" => (Method::POST, format!("/tasks/{id}:cancel"), Some(json!({}))),
            "SubscribeToTask" => (Method::POST, format!("/tasks/{id}:subscribe"), None),
            "ListTasks" => (Method::GET, "/tasks".to_owned(), None),
            "GetExtendedAgentCard" => (Method::GET, "/extendedAgentCard".to_owned(), None),
            other => panic!("{other}"),
        };
        let mut request = self.request(http.clone(), &format!("{endpoint}{path}"));
        if let Some(body) = body {
            request = request.json(&body);
        } else if http == Method::GET {
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let query = params.as_object().unwrap().iter().filter(|(name, _)| *name != "id");
            let query: Vec<String> = query.map(|(name, value)| format!("{name}={}", text(value))).collect();
            request = self.request(http, &format!("{endpoint}{path}?{}", query.join("&")));
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        assert_eq!(answer.headers()["content-type"], "application/json");
        let answer: Value = answer.json().await.unwrap();
        if status == 200 {
            return Ok(answer);
        }
        let error = &answer["error"];
        assert_eq!(error["code"], status.as_u16(), "{answer}");
        assert!(error["status"].is_string() && error["message"].is_string(), "{answer}");
        let reason = reason_of(&error["details"]);
        Err((code_of(&reason, status.as_u16()), reason))
    }
}

/// The reason of A2A's own detail, or of ours. REST names errors of JSON-RPC by a reason as well.
fn reason_of(details: &Value) -> String {
    let details = details.as_array().map(Vec::as_slice).unwrap_or_default();
    let of_rpc = ["PARSE_ERROR", "INVALID_REQUEST", "METHOD_NOT_FOUND", "INVALID_PARAMS", "INTERNAL_ERROR"];
    let mut details = details.iter().filter(|one| !of_rpc.iter().any(|reason| one["reason"] == *reason));
    let first = details.clone().next();
    let info = details.find(|one| one["domain"] == "a2a-protocol.org").or(first);
    info.and_then(|info| info["reason"].as_str()).unwrap_or_default().to_owned()
}

/// The JSON-RPC code that A2A gives to a reason. HTTP has no number of its own.
fn code_of(reason: &str, status: u16) -> i64 {
    let reasons = [
        ("TASK_NOT_FOUND", -32001, 404),
        ("TASK_NOT_CANCELABLE", -32002, 400),
        ("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003, 400),
        ("UNSUPPORTED_OPERATION", -32004, 400),
        ("CONTENT_TYPE_NOT_SUPPORTED", -32005, 400),
        ("EXTENDED_AGENT_CARD_NOT_CONFIGURED", -32007, 400),
    ];
    let found = reasons.iter().find(|(name, _, expected)| *name == reason && *expected == status);
    found.map_or(if status == 400 { -32602 } else { 0 }, |(_, code, _)| *code)
}

#[tokio::test]
async fn bindings_give_the_same_results() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    for (binding, endpoint) in [
        (Binding::JsonRpc, "/agents/single"),
        (Binding::Rest, "/agents/single"),
        (Binding::JsonRpc, "/a2a"),
        (Binding::Rest, "/a2a"),
        (Binding::JsonRpc, "/a2a/"),
        (Binding::Rest, "/a2a/test"),
    ] {
        let place = format!("{binding:?} {endpoint}");
        let id = format!("m-{}", place.replace(|c: char| !c.is_alphanumeric(), "-"));
        let mut params = message(&id, json!([{"data": {"value": "hello"}}]));
        params["message"]["contextId"] = json!(format!("context-{id}"));
        params["message"]["metadata"] = json!({"skill": "single"});
        params["configuration"] = json!({"historyLength": 0});
        let sent = world.perform(binding, endpoint, "SendMessage", &params).await.unwrap();
        let task = &sent["task"];
        assert_eq!(state(task), "TASK_STATE_COMPLETED", "{place}: {sent}");
        assert_eq!(task["contextId"], params["message"]["contextId"]);
        assert_eq!(task["artifacts"][0]["parts"][0]["data"], json!({"value": "hello"}), "{place}");
        // The same message is the same task.
        let again = world.perform(binding, endpoint, "SendMessage", &params).await.unwrap();
        assert_eq!(again["task"]["id"], task["id"]);
        let by_id = json!({"id": task["id"], "historyLength": 0});
        let got = world.perform(binding, endpoint, "GetTask", &by_id).await.unwrap();
        assert_eq!(got, *task, "{place}");
        // The binding to NATS knows the same task.
        assert_eq!(world.nats("single", "GetTask", &by_id).await, *task, "{place}");
        let by_context = json!({"contextId": task["contextId"]});
        let page = world.perform(binding, endpoint, "ListTasks", &by_context).await.unwrap();
        assert_eq!((&page["totalSize"], &page["nextPageToken"]), (&json!(1), &json!("")), "{page}");
        assert_eq!(page["tasks"][0]["id"], task["id"]);
        assert!(page["tasks"][0].get("artifacts").is_none(), "artifacts come only if they are asked for");
        let ended = json!({"id": task["id"]});
        let refused = world.perform(binding, endpoint, "CancelTask", &ended).await.unwrap_err();
        assert_eq!(refused, (-32002, "TASK_NOT_CANCELABLE".to_owned()), "{place}");
        let refused = world.perform(binding, endpoint, "SubscribeToTask", &ended).await.unwrap_err();
        assert_eq!(refused, (-32004, "UNSUPPORTED_OPERATION".to_owned()), "{place}");
    }
    world.end().await;
}

#[tokio::test]
async fn errors_name_the_task_as_its_client_does() {
    let world = GatewayWorld::new(&[]).await;
    world.serve_echo().await;
    let sent = world.rpc("/a2a", "SendMessage", &message("m", json!([{"data": {"value": "v"}}]))).await;
    let id = sent["result"]["task"]["id"].as_str().unwrap();
    assert!(id.starts_with("one."), "{sent}");
    let refused = world.rpc("/a2a", "CancelTask", &json!({"id": id})).await;
    let told = refused["error"]["message"].as_str().unwrap();
    assert!(told.contains(id), "{refused}");
    // The agent's own endpoint has the agent's own ids.
    let own = id.trim_start_matches("one.");
    let refused = world.rpc("/agents/one", "CancelTask", &json!({"id": own})).await;
    let told = refused["error"]["message"].as_str().unwrap();
    assert!(told.contains(own) && !told.contains(id), "{refused}");
    world.end().await;
}

#[tokio::test]
async fn bindings_give_the_same_errors() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let parts = || json!([{"data": {"value": "v"}}]);
    let with = |path: &str, value: Value| {
        let mut params = message("m", parts());
        *params.pointer_mut(path).unwrap() = value;
        params
    };
    let cases: Vec<(&str, Value, i64)> = vec![
        ("GetTask", json!({"id": "unknown"}), -32001),
        ("GetTask", json!({"id": "a".repeat(32)}), -32001),
        ("GetTask", json!({"id": "nobody.abc"}), -32001),
        ("CancelTask", json!({"id": "unknown"}), -32001),
        ("SubscribeToTask", json!({"id": "unknown"}), -32001),
        ("GetTask", json!({"id": "unknown", "historyLength": -1}), -32602),
        ("ListTasks", json!({"pageSize": 0}), -32602),
        ("ListTasks", json!({"pageSize": 101}), -32602),
        ("ListTasks", json!({"pageToken": "mine"}), -32602),
        ("ListTasks", json!({"status": "TASK_STATE_MERRY"}), -32602),
        ("ListTasks", json!({"statusTimestampAfter": "yesterday"}), -32602),
        ("ListTasks", json!({"tenant": "other"}), -32602),
        ("GetExtendedAgentCard", json!({}), -32007),
        ("SendMessage", json!({}), -32602),
        ("SendMessage", json!({"message": {}}), -32602),
        ("SendMessage", with("/message/parts", json!([])), -32602),
        ("SendMessage", with("/message/parts", json!([{"text": "a", "url": "b"}])), -32602),
        ("SendMessage", with("/message/parts", json!([{}])), -32602),
        ("SendMessage", with("/message/role", json!("ROLE_UNSPECIFIED")), -32602),
        ("SendMessage", with("/message/messageId", json!("")), -32602),
        ("SendMessage", with("/message/messageId", json!("x".repeat(600))), -32602),
        ("SendMessage", json!({"tenant": "other", "message": message("m", parts())["message"]}), -32602),
        (
            "SendMessage",
            json!({
                "message": message("m", parts())["message"],
                "configuration": {"acceptedOutputModes": ["image/png"]}
            }),
            -32005,
        ),
        (
            "SendMessage",
            json!({"message": {"messageId": "m", "taskId": "unknown", "role": "ROLE_USER", "parts": parts()}}),
            -32001,
        ),
    ];
    for (method, params, expected) in cases {
        for endpoint in ["/agents/single", "/a2a"] {
            let mut seen = Vec::new();
            for binding in [Binding::JsonRpc, Binding::Rest] {
                let Err((code, reason)) = world.perform(binding, endpoint, method, &params).await else {
                    panic!("{binding:?} {endpoint} {method} {params} was not refused");
                };
                assert_eq!(code, expected, "{binding:?} {endpoint} {method} {params} {reason}");
                seen.push(reason);
            }
            assert_eq!(seen[0], seen[1], "{endpoint} {method} {params}");
        }
    }
    // A message to the mesh that names no skill that is offered.
    for binding in [Binding::JsonRpc, Binding::Rest] {
        let mut params = message("m", parts());
        params["message"]["metadata"] = json!({"skill": "nobody"});
        let error = world.perform(binding, "/a2a", "SendMessage", &params).await.unwrap_err();
        assert_eq!(error, (-32602, "SINEW_9006".to_owned()));
    }
    assert_eq!(world.executions().await, 0, "nothing that was refused left a trace");
    world.end().await;
}

#[tokio::test]
async fn tasks_of_agents_are_found_through_the_mesh() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let mut ids = Vec::new();
    for (number, skill) in ["one", "single", "one", "single", "one"].into_iter().enumerate() {
        let mut params = message(&format!("m{number}"), json!([{"data": {"value": "v"}}]));
        params["metadata"] = json!({"skill": skill});
        let sent = world.rpc("/a2a", "SendMessage", &params).await;
        let task = &sent["result"]["task"];
        assert_eq!(state(task), "TASK_STATE_COMPLETED", "{sent}");
        let id = task["id"].as_str().unwrap().to_owned();
        assert_eq!(id.starts_with("one."), skill == "one", "{id}");
        let got = world.rpc("/a2a", "GetTask", &json!({"id": id})).await;
        assert_eq!(got["result"]["id"], json!(id), "{got}");
        ids.push(id);
    }
    // Pages of two, until the token is empty: each task once.
    let (mut listed, mut token) = (Vec::new(), String::new());
    loop {
        let page = world.rpc("/a2a", "ListTasks", &json!({"pageSize": 2, "pageToken": token})).await;
        let page = &page["result"];
        assert_eq!(page["totalSize"], 5, "{page}");
        let tasks = page["tasks"].as_array().unwrap();
        assert!(tasks.len() <= 2);
        listed.extend(tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    ids.sort_unstable();
    assert_eq!(sorted, ids, "{listed:?}");
    world.end().await;
}

#[tokio::test]
async fn the_task_of_an_agent_that_says_nothing_is_looked_for() {
    let short = Duration::from_millis(200);
    let world = GatewayWorld::with(&[], |options| options.limits.agent_silence = short).await;
    let (go_on, calls) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (waits, counted) = (Arc::clone(&go_on), Arc::clone(&calls));
    let agent = Agent::dynamic("one", None, None, move |input, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let waits = Arc::clone(&waits);
        async move {
            waits.notified().await;
            Ok(input)
        }
    });
    world.serve(agent).await;
    let mut traffic = world.mesh.client().subscribe(">").await.unwrap();
    world.mesh.client().flush().await.unwrap();
    let looked_for = async {
        while let Some(message) = traffic.next().await {
            if String::from_utf8_lossy(&message.payload).contains("GetTask") {
                break;
            }
        }
        go_on.notify_one();
    };
    let params = message("silent", json!([{"data": {"value": "v"}}]));
    let both = async { tokio::join!(world.rpc("/agents/one", "SendMessage", &params), looked_for) };
    let (answer, ()) = tokio::time::timeout(PATIENCE, both).await.unwrap();
    assert_eq!(state(&answer["result"]["task"]), "TASK_STATE_COMPLETED", "{answer}");
    assert_eq!(calls.load(Ordering::Relaxed), 1, "it is not asked to do the work again");
    world.end().await;
}
