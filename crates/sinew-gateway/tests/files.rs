//! Files of tasks and of messages, over HTTP.

use std::time::Duration;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_agent::{Agent, Context};

use crate::bindings_support::{BindingClient, TaskBinding};
use crate::support::{GatewayWorld, SINGLE, message};

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
    let workflow =
        SINGLE.replace("properties: {value: {type: string}}, required: [value]", "required: [files]");
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
    for (nth, bad) in [
        json!([{"raw": "not base64!", "filename": "a"}]),
        json!([{"raw": "AAEC", "filename": "../secret"}]),
        json!([{"raw": "AAEC"}, {"data": [1]}]),
        json!([{"raw": "AAEC"}, {"data": {"files": 1}}]),
    ]
    .into_iter()
    .enumerate()
    {
        let sent = message(&format!("bad-{nth}"), bad.clone());
        let answer =
            world.request(Method::POST, "/agents/single/message:send").json(&sent).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{bad}");
    }
    assert_eq!(world.executions().await, 1);
    world.end().await;
}
