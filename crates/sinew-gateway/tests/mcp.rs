//! Tools, resources and questions, over every transport and lifecycle of MCP.

use std::time::Duration;

use reqwest::Method;
use rmcp::ClientLifecycleMode;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, NumberOrString, ProgressToken,
    ReadResourceRequestParams, RequestMetaObject, ResourceContents, ServerNotification, SubscriptionFilter,
};
use rmcp::service::ServiceError;
use serde_json::{Value, json};
use sinew_agent::Agent;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::mcp_support::{Road, TestClient, all_roads, call, newest, task_of, text};
use crate::support::{GatewayWorld, PATIENCE, SINGLE, held, review};

/// The code and the data of a refusal.
fn refusal(error: ServiceError) -> (i32, Value) {
    let ServiceError::McpError(error) = error else { panic!("not an error of the protocol: {error}") };
    (error.code.0, error.data.unwrap_or_default())
}

#[tokio::test]
async fn workflows_and_agents_are_tools() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    for (road, lifecycle) in all_roads() {
        let client = TestClient::plain().connect(&world, road, lifecycle).await;
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["one", "single"], "{road:?}");
        let single = &tools[1];
        assert_eq!(single.description.as_deref(), Some("One agent"));
        assert_eq!(single.input_schema["required"], json!(["value"]));
        // An agent and a workflow are called alike.
        for tool in ["one", "single"] {
            let result = client.call_tool(call(tool, json!({"value": "hello"}))).await.unwrap();
            assert_eq!((result.is_error, text(&result)), (Some(false), r#"{"value":"hello"}"#), "{road:?}");
            assert_eq!(result.structured_content, Some(json!({"value": "hello"})), "{tool}");
        }
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn wrong_calls_are_refused_with_a_code() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    for (road, lifecycle) in all_roads() {
        let client = TestClient::plain().connect(&world, road, lifecycle).await;
        // The model reads a refusal of arguments, and the host one of the call.
        let wrong = client.call_tool(call("single", json!({"value": 7}))).await.unwrap();
        assert_eq!(wrong.is_error, Some(true));
        assert!(text(&wrong).starts_with("SINEW-"), "{road:?}: {}", text(&wrong));
        let before = world.task_count().await;
        for name in ["unknown", "../single", "", "single\r\nx"] {
            let refused = client.call_tool_once(CallToolRequestParams::new(name)).await.unwrap_err();
            let (code, data) = refusal(refused);
            assert_eq!((code, &data["code"]), (-32602, &json!("SINEW-9006")), "{road:?} {name}");
        }
        for uri in ["file:///etc/passwd", "sinew://tasks/nothing", "sinew://tasks/one.nothing"] {
            let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap_err();
            assert_eq!(refusal(read).1["code"], "SINEW-9008", "{road:?} {uri}");
        }
        assert_eq!(world.task_count().await, before, "nothing was stored");
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn progress_is_told_and_the_task_is_a_resource() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    for (road, lifecycle) in all_roads() {
        let (client, mut told) = TestClient::new(ClientCapabilities::default());
        let client = client.connect(&world, road, lifecycle).await;
        let mut request = call("single", json!({"value": "hello"}));
        let token = ProgressToken(NumberOrString::String("p".into()));
        request.meta = Some(RequestMetaObject::with_progress_token(token));
        let result = client.call_tool(request).await.unwrap();
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.ends_with("a: done")) {
            lines.push(tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap());
        }
        assert!(lines.iter().any(|line| line.ends_with("a: begun")), "{lines:?}");
        let numbers: Vec<f64> =
            lines.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{lines:?}");
        let task = task_of(&result);
        let uri = format!("sinew://tasks/{task}");
        let listed = client.list_all_resources().await.unwrap();
        assert!(listed.iter().any(|resource| resource.uri == uri), "{listed:?}");
        let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
        let ResourceContents::TextResourceContents { text, .. } = &read.contents[0] else {
            panic!("{read:?}")
        };
        let read: Value = serde_json::from_str(text).unwrap();
        assert_eq!((&read["id"], &read["status"]["state"]), (&json!(task), &json!("TASK_STATE_COMPLETED")));
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn questions_go_to_the_user_of_the_client() {
    let world = GatewayWorld::new(&[("review", &review())]).await;
    for (road, lifecycle) in all_roads() {
        let client = TestClient::answering(json!({"approved": true, "comment": "fine"}));
        let client = client.connect(&world, road, lifecycle.clone()).await;
        let result = client.call_tool(call("review", json!({"text": "look"}))).await.unwrap();
        assert_eq!(result.is_error, Some(false), "{road:?}: {result:?}");
        client.cancel().await.unwrap();
        let client = TestClient::answering(json!({"approved": false, "comment": "too dear"}));
        let client = client.connect(&world, road, lifecycle.clone()).await;
        let result = client.call_tool(call("review", json!({"text": "look"}))).await.unwrap();
        let shown = format!("{result:?}");
        assert!(shown.contains("false") || shown.contains("eject"), "{road:?}: {shown}");
        client.cancel().await.unwrap();
        let client = TestClient::answering(json!({"approved": false}));
        let client = client.connect(&world, road, lifecycle).await;
        let result = client.call_tool(call("review", json!({"text": "look"}))).await;
        let shown = format!("{result:?}");
        let is_undecided = shown.contains("needs a comment") || shown.contains("sinew approval");
        assert!(is_undecided, "a rejection without a reason counts, {road:?}: {shown}");
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn a_client_without_a_user_is_told_who_is_waited_for() {
    let world = GatewayWorld::new(&[("review", &review())]).await;
    let declines = TestClient { form: None, ..TestClient::answering(json!({})) };
    for (road, lifecycle) in all_roads() {
        for client in [TestClient::plain(), declines.clone()] {
            let client = client.connect(&world, road, lifecycle.clone()).await;
            let result = client.call_tool(call("review", json!({"text": "look"}))).await.unwrap();
            let task = task_of(&result);
            let command = format!("`sinew approval approve {task} --node h`");
            assert!(text(&result).contains("Is this right?"), "{}", text(&result));
            assert!(text(&result).contains(&command), "{}", text(&result));
            client.cancel().await.unwrap();
        }
    }
    world.end().await;
}

#[tokio::test]
async fn the_same_message_id_is_the_same_task() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let mut tasks = Vec::new();
    for (road, lifecycle) in all_roads() {
        let client = TestClient::plain().connect(&world, road, lifecycle).await;
        let mut request = call("single", json!({"value": "hello"}));
        let mut meta = RequestMetaObject::new();
        meta.0.0.insert("io.github.sinew-mesh/message-id".to_owned(), json!("order-17"));
        request.meta = Some(meta);
        tasks.push(task_of(&client.call_tool(request).await.unwrap()));
        client.cancel().await.unwrap();
    }
    assert!(tasks.iter().all(|task| *task == tasks[0]), "{tasks:?}");
    assert_eq!(world.task_count().await, 1);
    world.end().await;
}

#[tokio::test]
async fn a_list_of_tools_follows_the_mesh() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let client = TestClient::plain();
    let changed = std::sync::Arc::clone(&client.tools_changed);
    let old = client.connect(&world, Road::Http, rmcp::ClientLifecycleMode::Initialize).await;
    let new = TestClient::plain().connect(&world, Road::Http, newest()).await;
    let mut subscription =
        new.listen(SubscriptionFilter::builder().tools_list_changed().build()).await.unwrap();
    // A session hears of changes once its stream is open, so the agent comes until it was heard of.
    world.serve(Agent::dynamic("two", None, None, |input, _| async { Ok(input) })).await;
    let told = tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(told, ServerNotification::ToolListChangedNotification(_)), "{told:?}");
    tokio::time::timeout(PATIENCE, changed.notified()).await.unwrap();
    for client in [&old, &new] {
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["single", "two"]);
    }
    world.end().await;
}

#[tokio::test]
async fn only_a_word_cancels_a_task() {
    let (world, begun, go_on) = held(&[("single", SINGLE)]).await;
    for (road, lifecycle) in all_roads() {
        let is_newest_http = matches!(road, Road::Http) && lifecycle == newest();
        let client = TestClient::plain().connect(&world, road, lifecycle).await;
        let request = rmcp::model::ClientRequest::CallToolRequest(rmcp::model::CallToolRequest::new(call(
            "single",
            json!({"value": "hello"}),
        )));
        let options = rmcp::service::PeerRequestOptions::no_options();
        let before = world.task_count().await;
        let handle = client.send_cancellable_request(request, options).await.unwrap();
        tokio::time::timeout(PATIENCE, begun.notified()).await.unwrap();
        handle.cancel(Some("not needed".to_owned())).await.unwrap();
        if is_newest_http {
            // There the word would be the end of the stream, which a broken connection says as well. Handlers of
            // cancelled tasks still wait, so all are told to go on.
            go_on.notify_waiters();
            world.newest_task_is("TASK_STATE_COMPLETED").await;
        } else {
            world.newest_task_is("TASK_STATE_CANCELED").await;
        }
        assert_eq!(world.task_count().await, before + 1);
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_nothing() {
    let (world, begun, go_on) = held(&[("single", SINGLE)]).await;
    for (road, lifecycle) in all_roads() {
        let client = TestClient::plain().connect(&world, road, lifecycle).await;
        let peer = client.peer().clone();
        let calling = tokio::spawn(async move {
            let _ = peer.call_tool_once(call("single", json!({"value": "hello"}))).await;
        });
        tokio::time::timeout(PATIENCE, begun.notified()).await.unwrap();
        calling.abort();
        client.cancel().await.unwrap();
        go_on.notify_one();
        world.newest_task_is("TASK_STATE_COMPLETED").await;
    }
    world.end().await;
}

/// A call with or without progress, and the lifecycle of its client.
fn calls_over_http() -> [(ClientLifecycleMode, bool); 4] {
    let old = ClientLifecycleMode::Initialize;
    [(newest(), false), (newest(), true), (old.clone(), false), (old, true)]
}

/// Calls `single` at a gateway of its own, and drains the gateway while the call is open.
async fn drained_during_call(
    world: &GatewayWorld,
    begun: &Notify,
    (lifecycle, has_progress): (ClientLifecycleMode, bool),
    limit: Duration,
) -> (JoinHandle<Result<CallToolResult, ServiceError>>, JoinHandle<()>) {
    let gateway = world.gateway(|options| options.limits.drain = limit).await;
    let address = gateway.address();
    let client = TestClient::plain().connect_to(&gateway.base_url(), lifecycle).await;
    let mut request = call("single", json!({"value": "hello"}));
    if has_progress {
        let token = ProgressToken(NumberOrString::String("p".into()));
        request.meta = Some(RequestMetaObject::with_progress_token(token));
    }
    let calling = tokio::spawn(async move { client.call_tool(request).await });
    tokio::time::timeout(PATIENCE, begun.notified()).await.unwrap();
    let draining = tokio::spawn(gateway.drain());
    // It takes no new connections from the moment on that it drains.
    while tokio::net::TcpStream::connect(address).await.is_ok() {}
    (calling, draining)
}

#[tokio::test]
async fn a_gateway_that_stops_answers_the_calls_that_it_has_begun() {
    let (world, begun, go_on) = held(&[("single", SINGLE)]).await;
    for kind in calls_over_http() {
        // A standalone stream of the client that did not end would keep the gateway for all this time.
        let (calling, draining) = drained_during_call(&world, &begun, kind.clone(), 10 * PATIENCE).await;
        go_on.notify_one();
        let result = calling.await.unwrap().unwrap();
        assert_eq!(text(&result), r#"{"value":"hello"}"#, "{kind:?}");
        tokio::time::timeout(PATIENCE, draining).await.unwrap().unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn calls_that_outlast_the_drain_name_their_task() {
    let (world, begun, go_on) = held(&[("single", SINGLE)]).await;
    for kind in calls_over_http() {
        let (calling, draining) =
            drained_during_call(&world, &begun, kind.clone(), Duration::from_secs(2)).await;
        let (code, data) = refusal(calling.await.unwrap().unwrap_err());
        assert_eq!((code, &data["retryable"]), (-32603, &json!(true)), "{kind:?}: {data}");
        draining.await.unwrap();
        go_on.notify_one();
        world.newest_task_is("TASK_STATE_COMPLETED").await;
        assert_eq!(world.newest_task().await["id"], data["io.github.sinew-mesh/task"], "{kind:?}");
        // The same message at another gateway is the same task.
        let client = TestClient::plain().connect(&world, Road::Http, newest()).await;
        let mut again = call("single", json!({"value": "hello"}));
        let mut meta = RequestMetaObject::default();
        let message_id = "io.github.sinew-mesh/message-id";
        meta.0.0.insert(message_id.to_owned(), data[message_id].clone());
        again.meta = Some(meta);
        let result = client.call_tool(again).await.unwrap();
        assert_eq!(json!(task_of(&result)), data["io.github.sinew-mesh/task"], "{kind:?}");
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn requests_that_mcp_does_not_allow_are_told_why() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let mcp = format!("{}/mcp", world.base);
    let post = |body: &str| {
        let request = world.http.post(&mcp).body(body.to_owned()).header("content-type", "application/json");
        request.header("accept", "application/json, text/event-stream")
    };
    let check = async |request: reqwest::RequestBuilder, status: u16, number: i32| {
        let answer = request.send().await.unwrap();
        let (told, kind) = (answer.status().as_u16(), answer.headers()["content-type"].clone());
        let answer: Value = answer.json().await.unwrap();
        assert_eq!((told, &answer["error"]["code"]), (status, &json!(number)), "{answer}");
        assert_eq!(
            (kind, &answer["error"]["data"]["code"]),
            ("application/json".parse().unwrap(), &json!("SINEW-9010"))
        );
    };
    for body in ["[]", "5", r#"{"a": 1}"#, r#"{"jsonrpc": "2.0", "id": 1, "method": 5}"#] {
        check(post(body), 400, -32600).await;
    }
    check(post(r#"{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}"#), 400, -32602).await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let newest = |method: &str, name: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let request = post(&body).header("mcp-protocol-version", "2026-07-28");
        request.header("mcp-method", method).header("mcp-name", name)
    };
    check(newest("tools/call", "5", json!({"name": 5})), 200, -32602).await;
    check(newest("tools/call", "single", json!({"name": "single", "arguments": "x"})), 200, -32602).await;
    check(newest("resources/read", "x", json!({})), 200, -32602).await;
    // Methods that the newest version has no more do not exist, whatever their parameters are.
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let answer = newest(method, "", json!({})).send().await.unwrap();
        let status = answer.status();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!((status.as_u16(), &answer["error"]["code"]), (404, &json!(-32601)), "{method}: {answer}");
    }
    // Refusals before a message is read are those of the gateway.
    let list = r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}"#;
    let refused = async |request: reqwest::RequestBuilder, status: u16, code: &str, detail: &str| {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/json", "{detail}");
        assert_eq!(answer.status(), status, "{detail}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["error"]["data"]["code"], code);
        assert!(answer["error"]["message"].as_str().unwrap().contains(detail), "{answer}");
    };
    refused(post(list), 400, "SINEW-9010", "Session ID is required").await;
    refused(post(list).header("mcp-protocol-version", "1999-01-01"), 400, "SINEW-9010", "1999-01-01").await;
    refused(post(list).header("mcp-session-id", "gone"), 404, "SINEW-9003", "session not found").await;
    let narrow = world.http.post(&mcp).body(list).header("content-type", "application/json");
    refused(narrow.header("accept", "text/html"), 406, "SINEW-9010", "Client must accept").await;
    world.end().await;
}

#[tokio::test]
async fn bodies_and_names_of_others_are_refused() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        options.limits.body_bytes = 4_096;
        options.limits.sessions = 0;
    })
    .await;
    let post = |body: String| {
        let request = world.http.post(format!("{}/mcp", world.base)).body(body);
        let request = request.header("content-type", "application/json");
        request.header("accept", "application/json, text/event-stream")
    };
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}});
    let check = async |request: reqwest::RequestBuilder, status: u16, expected: &str| {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), status, "{expected}");
        let body = answer.text().await.unwrap();
        assert!(body.contains(expected), "{expected}: {body}");
    };
    check(post("{".to_owned()), 400, "SINEW-9010").await;
    check(post(r#"{"id": 1, "id": 2}"#.to_owned()), 400, "SINEW-9010").await;
    check(post(format!("{}1{}", "[".repeat(1_000), "]".repeat(1_000))), 400, "SINEW-9010").await;
    check(post("x".repeat(5_000)), 413, "SINEW-9010").await;
    check(post(begin.to_string()), 503, "SINEW-9005").await;
    check(post(begin.to_string()).header("origin", "http://evil.example"), 403, "SINEW-9004").await;
    check(post(begin.to_string()).header("host", "evil.example"), 403, "SINEW-9004").await;
    check(post(begin.to_string()).header("mcp-session-id", "guessed"), 404, "").await;
    let put = world.http.request(Method::PUT, format!("{}/mcp", world.base));
    check(put, 405, "SINEW-9003").await;
    world.end().await;
}

#[tokio::test]
async fn a_session_is_open_to_the_caller_who_began_it() {
    let world = GatewayWorld::with(&[], |options| {
        options.access.is_required = true;
        options.limits.sessions_per_caller = 3;
    })
    .await;
    let (_, own) = world.key(|new| new.name = "ann".to_owned()).await;
    let (_, other) = world.key(|new| new.name = "bob".to_owned()).await;
    let request = |method: Method, key: &str| {
        let request = world.http.request(method, format!("{}/mcp", world.base)).bearer_auth(key);
        request.header("accept", "application/json, text/event-stream")
    };
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}});
    let begun = request(Method::POST, &own).json(&begin).send().await.unwrap();
    assert_eq!(begun.status(), 200);
    let session = begun.headers()["mcp-session-id"].clone();
    let end = async |key: &str| {
        let ended =
            request(Method::DELETE, key).header("mcp-session-id", session.clone()).send().await.unwrap();
        ended.status()
    };
    assert_eq!(end(&other).await, 404);
    assert_eq!(end(&own).await, 204);
    assert_eq!(end(&own).await, 404, "a session ends once");
    // One caller does not use up the sessions of all, not by many requests at once either.
    let begin_one = async |key: &str| {
        let answer = request(Method::POST, key).json(&begin).send().await.unwrap();
        answer.status().as_u16()
    };
    let mut many = futures_util::future::join_all((0..8).map(|_| begin_one(&own))).await;
    many.sort_unstable();
    assert_eq!(many, [200, 200, 200, 429, 429, 429, 429, 429]);
    assert_eq!((begin_one(&own).await, begin_one(&other).await), (429, 200));
    world.end().await;
}
