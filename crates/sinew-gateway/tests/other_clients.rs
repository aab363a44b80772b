//! What clients and frameworks of other vendors rely on.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_protocol::card::{Announcement, DELIVERY};

use crate::support::{EventSource, GatewayWorld, SINGLE, held, message, review, state};

/// Time in which a stream must end after a question.
const TURN: Duration = Duration::from_secs(20);

async fn open_stream(world: &GatewayWorld, method: &str, params: Value) -> EventSource {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    EventSource::of(world.request(Method::POST, "/a2a").json(&call).send().await.unwrap())
}

/// State in an event of a stream.
fn state_in(event: &Value) -> String {
    let result = &event["result"];
    let task = if result["task"].is_object() { &result["task"] } else { &result["statusUpdate"] };
    task["status"]["state"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_stream_ends_at_a_question_and_a_subscription_waits_for_the_answer() {
    let world = GatewayWorld::new(&[("review", &review())]).await;
    let sent = message("m1", json!([{"text": "look"}]));
    let stream = open_stream(&world, "SendStreamingMessage", sent).await;
    let events = tokio::time::timeout(TURN, stream.all()).await.expect("the stream ends at the question");
    let last = &events.last().unwrap().1;
    assert_eq!(state_in(last), "TASK_STATE_INPUT_REQUIRED", "{last}");
    let tasks = world.rpc("/a2a", "ListTasks", &json!({})).await;
    let id = tasks["result"]["tasks"][0]["id"].clone();

    // A subscription to the waiting task stays open until its end.
    let mut stream = open_stream(&world, "SubscribeToTask", json!({"id": id})).await;
    let (_, first) = stream.next().await.unwrap();
    assert_eq!(state_in(&first), "TASK_STATE_INPUT_REQUIRED", "{first}");
    let quiet = tokio::time::timeout(Duration::from_secs(3), stream.next()).await;
    assert!(quiet.is_err(), "the subscription ended, or told something: {quiet:?}");
    let mut answer = message("m2", json!([{"text": "yes"}]));
    answer["message"]["taskId"] = id;
    let decided = world.rpc("/a2a", "SendMessage", &answer).await;
    assert_eq!(state(&decided["result"]["task"]), "TASK_STATE_COMPLETED", "{decided}");
    let events = stream.all().await;
    assert_eq!(state_in(&events.last().unwrap().1), "TASK_STATE_COMPLETED", "{events:?}");
    world.end().await;
}

#[tokio::test]
async fn the_version_is_checked_before_the_method() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let old = json!({"message": {"messageId": "m", "role": "user", "kind": "message",
                                 "parts": [{"kind": "text", "text": "hi"}]}});
    for (version, method, params, expected) in [
        (None, "message/send", &json!({"message": {}}), Some(-32602)),
        (None, "tasks/list", &json!({}), Some(-32009)),
        (Some("0.3"), "SendMessage", &json!([]), Some(-32009)),
        (Some("1.1"), "SendMessage", &old, Some(-32009)),
        (Some("1.0"), "message/send", &old, Some(-32601)),
        (Some("1.0.1"), "ListTasks", &json!({}), None),
    ] {
        let call = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let mut request = world.http.post(format!("{}/agents/single", world.base)).json(&call);
        if let Some(version) = version {
            request = request.header("a2a-version", version);
        }
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["error"]["code"].as_i64(), expected, "{version:?} {method}: {answer}");
        assert_eq!(answer["id"], 7, "{answer}");
    }
    world.end().await;
}

/// A call of A2A 0.3: without a version, or with this one.
async fn old_call(
    world: &GatewayWorld,
    method: &str,
    params: Value,
    version: Option<&str>,
) -> reqwest::Response {
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let mut request = world.http.post(format!("{}/agents/single", world.base)).json(&call);
    if let Some(version) = version {
        request = request.header("a2a-version", version);
    }
    request.send().await.unwrap()
}

#[tokio::test]
async fn clients_of_a2a_0_3_are_answered_in_their_version() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let card = world.request(Method::GET, "/agents/single/.well-known/agent-card.json").send().await.unwrap();
    let card: Value = card.json().await.unwrap();
    let url = format!("{}/agents/single", world.base);
    assert_eq!((&card["url"], &card["protocolVersion"]), (&json!(url), &json!("0.3.0")), "{card}");
    assert_eq!(card["supportedInterfaces"][0]["url"], json!(url), "{card}");
    let sent = |id: &str| {
        json!({"message": {"kind": "message", "messageId": id, "role": "user",
                           "parts": [{"kind": "data", "data": {"value": "Ada"}}]},
               "configuration": {"blocking": true}})
    };
    let response = old_call(&world, "message/send", sent("m1"), None).await;
    assert_eq!(response.headers()["a2a-version"], "0.3");
    let answer: Value = response.json().await.unwrap();
    let task = &answer["result"];
    assert_eq!((&answer["id"], &task["kind"]), (&json!(7), &json!("task")), "{answer}");
    assert_eq!(task["status"]["state"], "completed", "{answer}");
    assert_eq!(
        task["artifacts"][0]["parts"][0],
        json!({"kind": "data", "data": {"value": "Ada"}}),
        "{answer}"
    );
    let read: Value =
        old_call(&world, "tasks/get", json!({"id": task["id"]}), Some("0.3.0")).await.json().await.unwrap();
    assert_eq!(read["result"]["status"]["state"], "completed", "{read}");
    let absent: Value =
        old_call(&world, "tasks/get", json!({"id": "none"}), Some("0.3")).await.json().await.unwrap();
    assert_eq!(absent["error"]["code"], -32001, "{absent}");
    let events = EventSource::of(old_call(&world, "message/stream", sent("m2"), None).await).all().await;
    assert_eq!(events[0].1["result"]["kind"], "task", "{events:?}");
    let last = &events.last().unwrap().1["result"];
    assert_eq!(last["status"]["state"], "completed", "{events:?}");
    assert!(last["kind"] == "task" || last["final"] == true, "{events:?}");
    world.end().await;
}

#[tokio::test]
async fn a_text_is_the_input_of_a_workflow_with_a_schema() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    for (id, text) in [("m1", "{\"value\": \"Ada\"}"), ("m2", "Ada")] {
        let sent = world.rpc("/agents/single", "SendMessage", &message(id, json!([{"text": text}]))).await;
        let task = &sent["result"]["task"];
        assert_eq!(state(task), "TASK_STATE_COMPLETED", "{text}: {sent}");
        assert_eq!(task["metadata"]["output"]["value"], "Ada", "{text}: {sent}");
    }
    world.end().await;
}

#[tokio::test]
async fn clients_that_read_texts_see_the_output_and_no_inner_data() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let sent = message("m1", json!([{"data": {"value": "Ada"}}]));
    let answer = world.rpc("/agents/single", "SendMessage", &sent).await;
    let task = &answer["result"]["task"];
    let texts: Vec<&str> = task["status"]["message"]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    assert_eq!(texts.len(), 2, "{answer}");
    assert_eq!(serde_json::from_str::<Value>(texts[1]).unwrap(), json!({"value": "Ada"}), "{answer}");
    // The outputs of all nodes are for readers of the execution.
    assert!(task["metadata"].get("native_result").is_none(), "{answer}");
    // A long output is in the artifact only.
    let sent = message("m2", json!([{"data": {"value": "x".repeat(20 << 10)}}]));
    let answer = world.rpc("/agents/single", "SendMessage", &sent).await;
    let parts = &answer["result"]["task"]["status"]["message"]["parts"];
    assert_eq!(parts.as_array().unwrap().len(), 1, "{parts}");
    world.end().await;
}

#[tokio::test]
async fn native_results_are_an_option_of_the_executor() {
    let mut world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    world.end_executor().await;
    world.begin_executor_with(|options| options.native_results = true).await;
    let sent = message("m1", json!([{"data": {"value": "Ada"}}]));
    let answer = world.rpc("/agents/single", "SendMessage", &sent).await;
    let native = &answer["result"]["task"]["metadata"]["native_result"];
    assert!(native.to_string().contains("Ada"), "{answer}");
    world.end().await;
}

/// Blocks of a stream without data are events without content for some clients.
#[tokio::test]
async fn every_block_of_a_stream_has_data() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage",
                      "params": message("m1", json!([{"data": {"value": "Ada"}}]))});
    let sent = world.request(Method::POST, "/agents/single").json(&call).send().await.unwrap();
    let stream = sent.text().await.unwrap();
    let mut blocks = stream.split_terminator("\n\n").filter(|block| !block.starts_with(':')).peekable();
    assert!(blocks.peek().is_some_and(|first| first.starts_with("retry: ")), "{stream}");
    assert!(blocks.all(|block| block.contains("\ndata: ") || block.starts_with("data: ")), "{stream}");
    world.end().await;
}

#[tokio::test]
async fn a_workflow_refuses_files_that_nobody_stored() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    for file in [json!({"raw": "YWJj", "filename": "a"}), json!({"url": "https://example.com/a"})] {
        let sent = message("m1", json!([{"data": {"value": "Ada"}}, file]));
        let error = world.nats_answer("single", "SendMessage", &sent).await["error"].take();
        assert!(error["message"].as_str().unwrap().contains("message.parts[1]"), "{file}: {error}");
    }
    assert_eq!(world.executions().await, 0);
    world.end().await;
}

#[tokio::test]
async fn data_up_to_the_limit_of_the_gateway_is_an_input() {
    let limit = |options: &mut sinew_gateway::GatewayOptions| options.limits.body_bytes = 8 << 20;
    let world = GatewayWorld::with(&[("single", SINGLE)], limit).await;
    world.serve_echo().await;
    let value = "x".repeat(3 << 20);
    for (id, part) in [
        ("m1", json!({"data": {"value": value}})),
        ("m1", json!({"data": {"value": value}})),
        ("m2", json!({"text": value})),
        ("m3", json!({"text": json!({"value": value}).to_string()})),
    ] {
        let sent = message(id, json!([part]));
        let answer = world.rpc("/agents/single", "SendMessage", &sent).await;
        let task = &answer["result"]["task"];
        assert_eq!(state(task), "TASK_STATE_COMPLETED", "{}", &answer.to_string()[..600]);
    }
    assert_eq!(world.executions().await, 3);
    world.end().await;
}

#[tokio::test]
async fn errors_have_the_form_that_clients_of_each_protocol_read() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| options.limits.body_bytes = 4_096).await;
    // JSON-RPC: an unknown agent is an error of the call.
    let call = json!({"jsonrpc": "2.0", "id": "x", "method": "SendMessage",
                      "params": message("m", json!([{"text": "hi"}]))});
    let answer = world.request(Method::POST, "/agents/nosuch").json(&call).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let answer: Value = answer.json().await.unwrap();
    let told = answer["error"]["message"].as_str().unwrap();
    assert!(answer["id"] == "x" && told.contains("nosuch"), "{answer}");
    // REST: the first detail is A2A's.
    let answer =
        world.request(Method::POST, "/agents/single/message:send").json(&json!({})).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let answer: Value = answer.json().await.unwrap();
    let first = &answer["error"]["details"][0];
    assert_eq!(
        (&first["domain"], &first["reason"]),
        (&json!("a2a-protocol.org"), &json!("INVALID_PARAMS")),
        "{answer}"
    );
    // MCP: a message that is too large.
    let large =
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"x": "x".repeat(8_192)}}});
    let answer = world.request(Method::POST, "/mcp").json(&large).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let answer: Value = answer.json().await.unwrap();
    assert!(answer["jsonrpc"] == "2.0" && answer["error"]["message"].is_string(), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn a_client_of_mcp_that_disconnects_cancels_its_call() {
    let (world, begun, _release) = held(&[("single", SINGLE)]).await;
    for (id, expected) in [(None, "TASK_STATE_CANCELED"), (Some("mine"), "TASK_STATE_WORKING")] {
        let mut meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}});
        if let Some(id) = id {
            meta["io.github.sinew-mesh/message-id"] = json!(id);
        }
        let params = json!({"name": "single", "arguments": {"value": "v"}, "_meta": meta});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let request = world.request(Method::POST, "/mcp").json(&call);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("mcp-protocol-version", "2026-07-28");
        let sent = request.header("mcp-method", "tools/call").header("mcp-name", "single").send();
        let calling = tokio::spawn(sent);
        begun.notified().await;
        calling.abort();
        let cancelled = world.newest_task_is("TASK_STATE_CANCELED");
        let limit = if id.is_some() { Duration::from_secs(3) } else { TURN };
        let is_cancelled = tokio::time::timeout(limit, cancelled).await.is_ok();
        assert_eq!(is_cancelled, expected == "TASK_STATE_CANCELED", "{id:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn priming_events_are_for_clients_that_know_them() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    for (version, primes) in [("2025-06-18", false), ("2025-03-26", false), ("2025-11-25", true)] {
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
        let accept = "application/json, text/event-stream";
        let begun = world.http.post(format!("{}/mcp", world.base)).header("accept", accept);
        let begun = begun.json(&initialize).send().await.unwrap();
        let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let told = begun.text().await.unwrap();
        assert!(primes || !told.contains("data:\n\n"), "{version}: {told:?}");
        let post = |body: Value| {
            let request = world.http.post(format!("{}/mcp", world.base)).header("accept", accept);
            request.header("mcp-session-id", &session).header("mcp-protocol-version", version).json(&body)
        };
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert!(post(ready).send().await.unwrap().status().is_success());
        let listed = post(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).send().await.unwrap();
        let told = listed.text().await.unwrap();
        let is_primed = told.lines().any(|line| line == "data:" || line == "data: ");
        assert!(told.contains("single"), "{version}: {told}");
        assert!(primes || !is_primed, "{version}: {told:?}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_session_of_mcp_2025_03_26_sends_batches() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let post = |session: Option<&str>, body: &Value| {
        let request = world.http.post(format!("{}/mcp", world.base)).json(body);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        };
        request.send()
    };
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let begun = post(None, &initialize).await.unwrap();
    let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let told = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    assert_eq!(post(Some(&session), &told).await.unwrap().status(), StatusCode::ACCEPTED);
    let call = |id: &str, value: &str| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
               "params": {"name": "single", "arguments": {"value": value}}})
    };
    let batch = json!([call("a", "x"), {"jsonrpc": "2.0", "id": "p", "method": "ping"}, call("b", "y")]);
    let messages = async |batch: &Value| -> Vec<Value> {
        let text = post(Some(&session), batch).await.unwrap().text().await.unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    };
    let events = messages(&batch).await;
    let answers = events.iter().filter(|event| event.get("id").is_some());
    let mut values: Vec<String> = answers
        .map(|answer| format!("{} {}", answer["id"], answer["result"]["structuredContent"]["value"]))
        .collect();
    values.sort();
    assert_eq!(values, ["\"a\" \"x\"", "\"b\" \"y\"", "\"p\" null"], "{events:?}");
    for wrong in [json!([]), json!([initialize])] {
        let refused = post(Some(&session), &wrong).await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{wrong}");
    }
    // The session survives them, and a body that is too large.
    let large = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x".repeat(5 << 20)}}]);
    assert_eq!(post(Some(&session), &large).await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    let events = messages(&json!([call("c", "z")])).await;
    assert!(events.iter().any(|event| event["id"] == "c" && event["result"].is_object()), "{events:?}");
    world.end().await;
}

/// An execution of an agent without an endpoint is a task of the agent, whatever started it.
#[tokio::test]
async fn executions_of_queue_only_agents_are_tasks() {
    let world = GatewayWorld::new(&[]).await;
    let card = Announcement { name: "queued".to_owned(), ..Announcement::default() }.card("test");
    let mut card = serde_json::to_value(card).unwrap();
    let extensions = card["capabilities"]["extensions"].as_array_mut().unwrap();
    extensions.retain(|one| one["uri"] != DELIVERY);
    extensions.push(json!({"uri": DELIVERY, "params": {"delivery": "queue", "endpoint": false}}));
    world.mesh.cards().announce(&serde_json::from_value(card).unwrap()).await.unwrap();
    world.wait_for_card("queued").await;
    let start = json!({"agent": "queued", "input": {"n": 1}});
    let started = world.request(Method::POST, "/api/v1/executions").json(&start).send().await.unwrap();
    let status = started.status();
    let started: Value = started.json().await.unwrap();
    assert!(status.is_success(), "{started}");
    let id = &started["execution"];
    for endpoint in ["/agents/queued", "/a2a"] {
        let read = world.rpc(endpoint, "GetTask", &json!({"id": id})).await;
        assert_eq!(state(&read["result"]), "TASK_STATE_WORKING", "{endpoint}: {read}");
        let list = world.rpc(endpoint, "ListTasks", &json!({})).await;
        assert_eq!(&list["result"]["tasks"][0]["id"], id, "{endpoint}: {list}");
    }
    let cancelled = world.rpc("/agents/queued", "CancelTask", &json!({"id": id})).await;
    assert_eq!(state(&cancelled["result"]), "TASK_STATE_CANCELED", "{cancelled}");
    world.end().await;
}
