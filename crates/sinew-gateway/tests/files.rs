//! Files of tasks and of messages, over HTTP.

use std::time::Duration;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_agent::{Agent, Context};
use sinew_gateway::ReachableAddresses;
use sinew_mesh::Mesh;
use sinew_protocol::ExecutionId;
use sinew_protocol::id::artifact_group;
use sinew_protocol::stream::{ARTIFACTS, bucket};
use sinew_protocol::subject::below;

use crate::bindings_support::{BindingClient, TaskBinding};
use crate::support::{EventSource, GatewayWorld, SINGLE, message};

/// Bytes of a file that does not travel within a message.
const SIZE: usize = 200_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|nth| (nth % 251) as u8).collect()
}

/// An agent named `one` that writes a large file.
fn writer() -> Agent {
    Agent::dynamic("one", None, None, |input, context: Context| async move {
        context.artifacts().put("räport 1.bin", "application/x-report", content())?;
        Ok(input)
    })
}

/// Whether artifacts of an execution are stored.
async fn has_artifacts(mesh: &Mesh, execution: ExecutionId) -> bool {
    let stream = mesh.admin().jetstream().get_stream(bucket(mesh.namespace(), ARTIFACTS)).await.unwrap();
    let pieces = below(mesh.namespace(), &["artifact", artifact_group(&execution).as_str()]);
    stream.get_last_raw_message_by_subject(&pieces).await.is_ok()
}

/// The address of the large file of a task.
fn file_url(task: &Value) -> String {
    let parts = task["artifacts"].as_array().unwrap().iter().flat_map(|it| it["parts"].as_array().unwrap());
    let mut urls = parts.filter_map(|part| part["url"].as_str());
    urls.next().unwrap_or_else(|| panic!("no address: {task}")).to_owned()
}

#[tokio::test]
async fn large_artifacts_are_read_by_their_address() {
    let world = GatewayWorld::with(&[], |options| options.access.is_required = true).await;
    let (_, key) = world.key(|_| {}).await;
    let mut http = reqwest::header::HeaderMap::new();
    http.insert("authorization", format!("Bearer {key}").parse().unwrap());
    let keyed = reqwest::Client::builder().default_headers(http).build().unwrap();
    let own = world.connect("one").await;
    let cards = own.cards().follow();
    tokio::spawn(
        writer().grace(Duration::from_millis(100)).serve(own, sinew_agent::CancellationToken::new()),
    );
    cards.wait_for("one").await;
    let sent = message("m", json!([{"data": {"a": 1}}]));
    let url = format!("{}/agents/one/message:send", world.base);
    let answer = loop {
        let answer = keyed.post(&url).header("A2A-Version", "1.0").json(&sent).send().await.unwrap();
        if answer.status() == 200 {
            break answer.json::<Value>().await.unwrap();
        }
    };
    let link = file_url(&answer["task"]);
    assert!(link.starts_with(&format!("{}/files/", world.base)), "{link}");
    assert!(link.ends_with("/r%C3%A4port%201.bin"), "{link}");
    assert!(!answer.to_string().contains("artifact://"), "{answer}");

    // Without a key: the address proves itself.
    let whole = world.http.get(&link).send().await.unwrap();
    assert_eq!(whole.status(), 200);
    let headers = whole.headers().clone();
    assert_eq!(headers["content-type"], "application/x-report");
    assert_eq!(headers["content-disposition"], "attachment; filename*=UTF-8''r%C3%A4port%201%2Ebin");
    assert_eq!(
        (&headers["accept-ranges"], &headers["x-content-type-options"]),
        (&"bytes".parse().unwrap(), &"nosniff".parse().unwrap())
    );
    assert_eq!(whole.bytes().await.unwrap(), content());
    assert_eq!(headers["content-length"], SIZE.to_string());
    // A range means nothing to HEAD.
    let head = world.http.head(&link).header("range", "bytes=0-9").send().await.unwrap();
    assert_eq!(
        (head.status(), &head.headers()["content-length"]),
        (StatusCode::OK, &headers["content-length"])
    );
    let tag = headers["etag"].to_str().unwrap().to_owned();
    let asked = async |name: &str, value: &str, if_range: Option<&str>| {
        let mut request = world.http.get(&link).header(name, value);
        if let Some(tag) = if_range {
            request = request.header("if-range", tag);
        }
        let answer = request.send().await.unwrap();
        let range = answer.headers().get("content-range").map(|value| value.to_str().unwrap().to_owned());
        (answer.status(), range, answer.bytes().await.unwrap())
    };
    let (status, range, bytes) = asked("range", "bytes=100-199", None).await;
    assert_eq!((status, range.as_deref()), (StatusCode::PARTIAL_CONTENT, Some("bytes 100-199/200000")));
    assert_eq!(bytes, content()[100..200]);
    let (status, _, bytes) = asked("range", "bytes=-10", Some(&tag)).await;
    assert_eq!((status, &bytes[..]), (StatusCode::PARTIAL_CONTENT, &content()[SIZE - 10..]));
    assert_eq!(asked("range", "bytes=-10", Some("\"other\"")).await.0, StatusCode::OK);
    let (status, range, _) = asked("range", "bytes=200000-", None).await;
    assert_eq!((status, range.as_deref()), (StatusCode::RANGE_NOT_SATISFIABLE, Some("bytes */200000")));
    assert_eq!(asked("if-none-match", &tag, None).await.0, StatusCode::NOT_MODIFIED);

    // An address that was changed opens nothing, and does not say why.
    let (start, rest) = link.split_once("/files/").unwrap();
    let (token, name) = rest.split_once('/').unwrap();
    let (payload, signature) = token.split_once('.').unwrap();
    let mut grant: Value =
        serde_json::from_slice(&BASE64URL_NOPAD.decode(payload.as_bytes()).unwrap()).unwrap();
    grant["e"] = json!(u64::MAX);
    let later = BASE64URL_NOPAD.encode(grant.to_string().as_bytes());
    for token in [
        format!("{later}.{signature}"),
        format!("{payload}."),
        payload.to_owned(),
        "x".to_owned(),
        "..%2f..".to_owned(),
    ] {
        let answer = world.http.get(format!("{start}/files/{token}/{name}")).send().await.unwrap();
        assert_eq!(answer.status(), 404, "{token}");
        assert!(answer.text().await.unwrap().contains("SINEW-9003"));
    }
    world.end().await;
}

#[tokio::test]
async fn artifacts_of_the_api_have_ranges_and_names() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve(writer()).await;
    let sent = message("m", json!([{"data": {"value": "v"}}]));
    let answer = world.request(Method::POST, "/agents/single/message:send").json(&sent).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    let execution = answer["task"]["id"].as_str().unwrap();
    let path = format!("/api/v1/executions/{execution}/artifact?name=r%C3%A4port%201.bin");
    let part = world.request(Method::GET, &path).header("range", "bytes=5-7").send().await.unwrap();
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    let headers = part.headers().clone();
    let told = ["content-disposition", "content-range", "content-length", "accept-ranges"]
        .map(|name| headers[name].to_str().unwrap());
    let expected = ["attachment; filename*=UTF-8''r%C3%A4port%201%2Ebin", "bytes 5-7/200000", "3", "bytes"];
    assert_eq!(told, expected);
    assert_eq!(part.bytes().await.unwrap(), content()[5..8]);
    let whole = world.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(whole.bytes().await.unwrap(), content());
    world.end().await;
}

#[tokio::test]
async fn every_binding_names_files_by_an_address_that_opens() {
    let world = GatewayWorld::new(&[]).await;
    world.serve(writer()).await;
    for client in BindingClient::all(&world).await {
        let id = format!("by-{:?}", client.binding());
        let sent = client.call("one", "SendMessage", &message(&id, json!([{"data": {}}]))).await.unwrap();
        let link = file_url(&sent["task"]);
        if client.binding() == TaskBinding::Nats {
            assert!(link.starts_with("artifact://"), "{link}");
            continue;
        }
        let answer = world.http.get(&link).send().await.unwrap();
        assert_eq!((answer.status(), answer.bytes().await.unwrap().len()), (StatusCode::OK, SIZE), "{id}");
    }
    world.end().await;
}

#[tokio::test]
async fn files_of_messages_are_artifacts() {
    let workflow = SINGLE.replace(
        "properties: {value: {type: string}}, required: [value]",
        "properties: {n: {type: integer}}, required: [files]",
    );
    let workflow = workflow.replace(
        "input: {value: \"{{workflow.input.value}}\"}",
        "input: {value: \"{{workflow.input.files}}\"}",
    );
    let world = GatewayWorld::new(&[("single", &workflow)]).await;
    world
        .serve(Agent::dynamic("one", None, None, |input, context: Context| async move {
            let file = &input["value"][0];
            let bytes = context.fetch(file["url"].as_str().unwrap_or_default()).await?;
            Ok(json!({"value": {"name": file["name"], "type": file["media_type"], "size": bytes.len()}}))
        }))
        .await;
    let raw = BASE64.encode(&content());
    let sent = message(
        "m",
        json!([{"text": "read this"}, {"raw": raw, "filename": "a.bin", "mediaType": "image/x-a"}]),
    );
    let answer = world.request(Method::POST, "/agents/single/message:send").json(&sent).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    let output = &answer["task"]["artifacts"][0]["parts"][0]["data"]["value"];
    assert_eq!(output, &json!({"name": "a.bin", "type": "image/x-a", "size": SIZE}), "{answer}");
    let kept = |id: &str| has_artifacts(&world.mesh, ExecutionId::of("test", "gateway", id));
    assert!(kept("m").await);
    // The file is among the artifacts of the execution, too.
    let execution = ExecutionId::of("test", "gateway", "m");
    let of_execution = |what: &str| format!("/api/v1/executions/{execution}/{what}");
    let listed = world.request(Method::GET, &of_execution("artifacts")).send().await.unwrap();
    let listed: Value = listed.json().await.unwrap();
    let file = &listed[0];
    assert_eq!(
        (&file["name"], &file["node"], &file["attempt"], &file["size"]),
        (&json!("a.bin"), &json!("input"), &json!(0), &json!(SIZE)),
        "{listed}"
    );
    let got = world.request(Method::GET, &of_execution("artifact?name=a.bin")).send().await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), content());
    let large = BASE64.encode("x".repeat(SIZE).as_bytes());
    let long = "x".repeat((1 << 20) - 2_000);
    for (nth, bad) in [
        json!([{"raw": "not base64!", "filename": "a"}]),
        json!([{"raw": "AAEC"}, {"raw": "not base64!"}]),
        json!([{"raw": "AAEC", "filename": "../secret"}]),
        json!([{"raw": "AAEC"}, {"raw": "AAEC", "mediaType": "a\u{e9}"}]),
        json!([{"raw": "AAEC"}, {"data": [1]}]),
        json!([{"raw": "AAEC"}, {"data": {"files": 1}}]),
        // Only the schema of the workflow speaks against these.
        json!([{"raw": "AAEC"}, {"data": {"n": "no number"}}]),
        json!([{"raw": "e30", "mediaType": "application/json"}]),
        // Only their size, or that they are not JSON.
        json!([{"raw": "AAEC"}, {"text": long}]),
        json!([{"raw": large, "mediaType": "application/json"}]),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("bad-{nth}");
        let sent = message(&id, bad.clone());
        let answer =
            world.request(Method::POST, "/agents/single/message:send").json(&sent).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        let shown = &bad.to_string()[..bad.to_string().len().min(200)];
        assert_eq!(status, 400, "{shown}: {text}");
        assert!(!kept(&id).await, "a refused message leaves nothing: {shown}");
    }
    let mut long_context = message("bad-context", json!([{"raw": "AAEC"}, {"data": {"n": 1}}]));
    long_context["message"]["contextId"] = "c".repeat(300).into();
    let sent = world.request(Method::POST, "/agents/single/message:send").json(&long_context).send().await;
    assert_eq!((sent.unwrap().status(), kept("bad-context").await), (StatusCode::BAD_REQUEST, false));
    // Starts of the REST API leave nothing either.
    let start = json!({"workflow": "single", "id": "started", "input": {"n": 1}, "files": [{"name": "a", "base64": "AAEC"}]});
    for (member, value) in [
        ("input", json!({"n": "no number"})),
        ("labels", json!({"team": "x".repeat(300)})),
        ("session", json!("s".repeat(300))),
        ("files", json!([{"name": "a", "base64": "AAEC"}, {"name": "b", "base64": "!"}])),
        (
            "files",
            json!([{"name": "a", "base64": "AAEC"}, {"name": "b", "base64": "AAEC", "media_type": "\u{e9}"}]),
        ),
    ] {
        let mut bad = start.clone();
        bad[member] = value;
        let answer = world.request(Method::POST, "/api/v1/executions").json(&bad).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{member}: {}", answer.text().await.unwrap());
        assert!(!has_artifacts(&world.mesh, ExecutionId::parse("started").unwrap()).await, "{member}");
    }
    assert_eq!(world.executions().await, 1);
    // A gateway that sends as many files as it may sends no artifact of the API either.
    let full = world.gateway(|options| {
        (options.limits.files, options.limits.file_wait) = (0, Duration::from_millis(10));
    });
    let full = full.await;
    let execution = answer["task"]["id"].as_str().unwrap();
    let path = format!("/api/v1/executions/{execution}/artifact?name=a.bin");
    let busy = world.http.get(format!("http://{}{path}", full.address())).send().await.unwrap();
    assert_eq!(busy.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(busy.text().await.unwrap().contains("SINEW-9005"));
    full.drain().await;
    // An agent gets large files by their address: none is stored for a message with a file that cannot be read.
    let sent = message("bad-agent", json!([{"raw": raw}, {"raw": "!".repeat(SIZE)}]));
    let answer = world.request(Method::POST, "/agents/one/message:send").json(&sent).send().await.unwrap();
    assert_eq!((answer.status(), kept("bad-agent").await), (StatusCode::BAD_REQUEST, false));
    world.end().await;
}

/// A file that an agent makes inside a workflow reaches the clients of the workflow.
#[tokio::test]
async fn files_of_a_workflow_open_for_its_clients() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve(writer()).await;
    let sent = message("m", json!([{"data": {"value": "v"}}]));
    let answer = world.rpc("/agents/single", "SendMessage", &sent).await;
    let task = &answer["result"]["task"];
    let artifacts = task["artifacts"].as_array().unwrap();
    let file = artifacts.iter().find(|artifact| artifact["name"] == "räport 1.bin").unwrap();
    let link = file["parts"][0]["url"].as_str().unwrap();
    assert!(link.starts_with(&world.base), "{link}");
    assert!(!answer.to_string().contains("artifact://"), "{answer}");
    let opened = world.http.get(link).send().await.unwrap();
    assert_eq!(opened.bytes().await.unwrap(), content());
    // The result is the last artifact, in a stream too.
    let result = &artifacts.last().unwrap()["parts"][0]["data"];
    assert!(artifacts.len() == 2 && result.is_object(), "{answer}");
    let params = message("m2", json!([{"data": {"value": "v"}}]));
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "SendStreamingMessage", "params": params});
    let stream = world.request(Method::POST, "/agents/single").json(&call).send().await.unwrap();
    let events = EventSource::of(stream).all().await;
    let shown = events.iter().map(|event| &event.1["result"]["artifactUpdate"]["artifact"]);
    let shown: Vec<&Value> = shown.filter(|artifact| !artifact.is_null()).collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert_eq!(&shown[1]["parts"][0]["data"], result, "{shown:?}");
    // A result of MCP has a link as well.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "single", "arguments": {"value": "v"}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}});
    let request = world.request(Method::POST, "/mcp").json(&call);
    let request = request.header("accept", "application/json, text/event-stream");
    let request = request.header("mcp-protocol-version", "2026-07-28");
    let request = request.header("mcp-method", "tools/call").header("mcp-name", "single");
    let told = request.send().await.unwrap().text().await.unwrap();
    assert!(told.contains("resource_link") && told.contains("/files/"), "{told}");
    assert!(!told.contains("artifact://"), "{told}");
    world.end().await;
}

#[tokio::test]
async fn files_of_a_message_to_a_workflow_may_be_addresses() {
    let workflow = SINGLE.replace(
        "properties: {value: {type: string}}, required: [value]",
        "properties: {n: {type: integer}}, required: [files]",
    );
    let workflow = workflow.replace(
        "input: {value: \"{{workflow.input.value}}\"}",
        "input: {value: \"{{workflow.input.files}}\"}",
    );
    let mut world = GatewayWorld::new(&[("single", &workflow)]).await;
    world
        .serve(Agent::dynamic("one", None, None, |input, context: Context| async move {
            let file = &input["value"][0];
            let bytes = context.fetch(file["url"].as_str().unwrap_or_default()).await?;
            Ok(json!({"value": {"name": file["name"], "size": bytes.len()}}))
        }))
        .await;
    let router = axum::Router::new().fallback(async || "a,b\n1,2\n");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/t/r%C3%A4port.csv", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let sent = |id: &str| message(id, json!([{"data": {"n": 1}}, {"url": address, "mediaType": "text/csv"}]));
    // The rule for addresses is that of webhooks.
    let refused = world.rpc("/agents/single", "SendMessage", &sent("m1")).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("is not public"), "{refused}");
    drop(world.take_gateway());
    let gateway = world.gateway(|options| options.push_addresses = ReachableAddresses::All).await;
    world.base = gateway.base_url();
    world.put_gateway(gateway);
    let answer = world.rpc("/agents/single", "SendMessage", &sent("m2")).await;
    let value = &answer["result"]["task"]["metadata"]["output"]["value"];
    assert_eq!(value, &json!({"name": "räport.csv", "size": 8}), "{answer}");
    world.end().await;
}
