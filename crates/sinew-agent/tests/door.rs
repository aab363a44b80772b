//! The A2A door: all operations, all refusals, streams, and who may see what.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::similar_names,
    clippy::cast_possible_truncation,
    reason = "a test says what is wrong by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_agent::{Agent, Context};
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::live::ProgressFeed;
use sinew_protocol::{ExecutionId, header};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use common::{PATIENCE, call, call_as, connect, message, serve};

use crate::common;

/// An agent that waits for a permit before it answers, and says first that it waits.
fn gated(gate: &Arc<Semaphore>, calls: &Arc<AtomicUsize>) -> Agent {
    let (gate, calls) = (Arc::clone(gate), Arc::clone(calls));
    Agent::dynamic("gated", None, None, move |input: Value, context: Context| {
        calls.fetch_add(1, Ordering::SeqCst);
        let gate = Arc::clone(&gate);
        async move {
            context.progress(json!({"waiting": true}));
            context.progress("for a permit");
            tokio::select! {
                permit = gate.acquire() => permit?.forget(),
                () = context.cancel().cancelled() => {}
            }
            Ok(input)
        }
    })
}

/// The events of a stream up to its end, each with its number.
async fn events(feed: &mut ProgressFeed) -> Vec<(u64, Value, Option<String>)> {
    let mut events = Vec::new();
    loop {
        let event = timeout(PATIENCE, feed.next()).await.expect("the stream ends").unwrap();
        let text = |name: &str| event.headers.get(name).map(|value| value.as_str().to_owned());
        let seq = text(header::A2A_SEQ).unwrap().parse().unwrap();
        events.push((seq, serde_json::from_slice(&event.body).unwrap(), text(header::A2A_END)));
        if events.last().unwrap().2.is_some() {
            return events;
        }
    }
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

#[tokio::test]
async fn a_message_becomes_a_task_once() {
    let (server, mesh) = common::mesh().await;
    let (gate, calls) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let served = serve(&server, &mesh, gated(&gate, &calls)).await;
    let ada = connect(&server.url(), "ada").await;
    let mut at_once = message("m1", "hi");
    at_once["configuration"] = json!({"returnImmediately": true});
    let (said, _) = call(&ada, "gated", "SendMessage", at_once).await;
    let id = said["task"]["id"].as_str().unwrap().to_owned();
    assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state(&said["task"])), "{said}");
    // The same message again waits for the same task.
    let same = tokio::spawn({
        let ada = ada.clone();
        async move { call(&ada, "gated", "SendMessage", message("m1", "hi")).await }
    });
    gate.add_permits(1);
    let (said, _) = same.await.unwrap();
    assert_eq!(
        (said["task"]["id"].as_str(), state(&said["task"])),
        (Some(id.as_str()), "TASK_STATE_COMPLETED")
    );
    assert_eq!(said["task"]["artifacts"][0]["parts"][0]["data"], json!({"text": "hi"}));
    assert_eq!(said["task"]["artifacts"][0]["metadata"]["version"], 0);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let (task, _) = call(&ada, "gated", "GetTask", json!({"id": id})).await;
    assert_eq!(task, said["task"]);
    // Another caller's message of that id is another task.
    gate.add_permits(1);
    let bob = connect(&server.url(), "bob").await;
    let (other, _) = call(&bob, "gated", "SendMessage", message("m1", "hi")).await;
    assert_ne!(other["task"]["id"], id.as_str());
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    served.stop().await;
}

#[tokio::test]
async fn callers_see_their_own_tasks_only() {
    let (server, mesh) = common::mesh().await;
    let (gate, calls) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let served = serve(&server, &mesh, gated(&gate, &calls)).await;
    let (ada, eve) = (connect(&server.url(), "ada").await, connect(&server.url(), "eve").await);
    let mut at_once = message("m1", "hi");
    at_once["configuration"] = json!({"returnImmediately": true});
    let (said, _) = call(&ada, "gated", "SendMessage", at_once).await;
    let id = said["task"]["id"].clone();
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let (theirs, _) = call(&eve, "gated", method, json!({"id": id})).await;
        let (absent, _) = call(&eve, "gated", method, json!({"id": "no-such-task"})).await;
        assert_eq!(theirs["code"], -32001, "{method}: {theirs}");
        let same =
            |text: &Value| text["message"].as_str().unwrap().replace(id.as_str().unwrap(), "no-such-task");
        assert_eq!(same(&theirs), same(&absent), "{method}: nobody can tell the two apart");
    }
    let (page, _) = call(&eve, "gated", "ListTasks", json!({})).await;
    assert_eq!((page["totalSize"].as_u64(), page["tasks"].as_array().unwrap().len()), (Some(0), 0));
    let (task, _) = call(&ada, "gated", "CancelTask", json!({"id": id})).await;
    assert_eq!(state(&task), "TASK_STATE_CANCELED");
    let (again, _) = call(&ada, "gated", "CancelTask", json!({"id": id})).await;
    assert_eq!(again["code"], -32002);
    served.stop().await;
}

#[tokio::test]
async fn a_stream_has_numbers_without_gaps_and_an_end() {
    let (server, mesh) = common::mesh().await;
    let (gate, calls) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let served = serve(&server, &mesh, gated(&gate, &calls)).await;
    let ada = connect(&server.url(), "ada").await;
    // Where the stream will be follows from namespace, caller and message: a caller listens before it asks.
    let execution = ExecutionId::of("test", "ada", "m1");
    let mut feed = ada.tasks().watch_progress(Some(&execution), None).await.unwrap();
    let (said, _) = call(&ada, "gated", "SendStreamingMessage", message("m1", "hi")).await;
    let id = said["task"]["id"].clone();
    let listening = ada.tasks().watch_progress(Some(&execution), None).await.unwrap();
    let (snapshot, seq) = call(&ada, "gated", "SubscribeToTask", json!({"id": id})).await;
    assert_eq!(snapshot["task"]["id"], id);
    drop(listening);
    assert!(seq.unwrap() <= 3, "the task waits for a permit");
    gate.add_permits(1);
    let events = events(&mut feed).await;
    assert_eq!(events.iter().map(|event| event.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    let parts = |at: usize| events[at].1["statusUpdate"]["status"]["message"]["parts"].clone();
    assert_eq!(events[0].1["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(
        (parts(1), parts(2)),
        (json!([{"data": {"waiting": true}}]), json!([{"text": "for a permit"}]))
    );
    assert_eq!(events[3].1["artifactUpdate"]["artifact"]["parts"][0]["data"], json!({"text": "hi"}));
    assert_eq!(events[4].1["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(events[4].2.as_deref(), Some("completed"));
    assert!(events.iter().all(|event| {
        let inner = event.1.as_object().unwrap().values().next().unwrap();
        inner["taskId"] == id && event.1.as_object().unwrap().len() == 1
    }));
    let (over, _) = call(&ada, "gated", "SubscribeToTask", json!({"id": id})).await;
    assert_eq!(over["code"], -32004, "there is nothing to hear of what has ended");
    served.stop().await;
}

#[tokio::test]
async fn tasks_are_listed_newest_first_page_by_page() {
    let (server, mesh) = common::mesh().await;
    let (gate, calls) = (Arc::new(Semaphore::new(100)), Arc::new(AtomicUsize::new(0)));
    let served = serve(&server, &mesh, gated(&gate, &calls)).await;
    let ada = connect(&server.url(), "ada").await;
    let mut sent = Vec::new();
    for n in 0..7 {
        let mut message = message(&format!("m{n}"), "hi");
        message["message"]["contextId"] = if n < 3 { json!("a") } else { json!("b") };
        let (said, _) = call(&ada, "gated", "SendMessage", message).await;
        sent.push(said["task"].clone());
    }
    let list = async |params: Value| call(&ada, "gated", "ListTasks", params).await.0;
    let mut seen = Vec::new();
    let mut token = String::new();
    for size in [3, 3, 1] {
        let page = list(json!({"pageSize": 3, "pageToken": token})).await;
        assert_eq!((page["totalSize"].as_u64(), page["pageSize"].as_u64()), (Some(7), Some(3)));
        assert_eq!(page["tasks"].as_array().unwrap().len(), size);
        seen.extend(page["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
    }
    assert_eq!(token, "");
    let mut by_time: Vec<_> = sent
        .iter()
        .map(|task| (task["status"]["timestamp"].as_str().unwrap(), task["id"].as_str().unwrap()))
        .collect();
    by_time.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(seen, by_time.iter().map(|(_, id)| json!(id)).collect::<Vec<_>>());
    let count = async |params: Value| list(params).await["totalSize"].as_u64();
    assert_eq!(count(json!({"contextId": "a"})).await, Some(3));
    assert_eq!(count(json!({"status": "TASK_STATE_COMPLETED"})).await, Some(7));
    assert_eq!(count(json!({"status": "TASK_STATE_WORKING"})).await, Some(0));
    let oldest = by_time.last().unwrap().0;
    assert_eq!(count(json!({"statusTimestampAfter": oldest})).await, Some(7));
    assert_eq!(count(json!({"statusTimestampAfter": "2999-01-01T00:00:00Z"})).await, Some(0));
    let plain = list(json!({})).await;
    assert!(plain["tasks"].as_array().unwrap().iter().all(|task| task.get("artifacts").is_none()));
    let full = list(json!({"includeArtifacts": true})).await;
    assert!(full["tasks"].as_array().unwrap().iter().all(|task| task["artifacts"].is_array()));
    for bad in [
        json!({"pageSize": 0}),
        json!({"pageSize": 101}),
        json!({"pageToken": "x"}),
        json!({"statusTimestampAfter": "soon"}),
    ] {
        assert_eq!(list(bad.clone()).await["code"], -32602, "{bad}");
    }
    served.stop().await;
}

#[tokio::test]
async fn what_is_not_understood_is_refused_with_its_code() {
    let (server, mesh) = common::mesh().await;
    let (gate, calls) = (Arc::new(Semaphore::new(100)), Arc::new(AtomicUsize::new(0)));
    let served = serve(&server, &mesh, gated(&gate, &calls)).await;
    let request = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
    };
    let send = request("SendMessage", message("m", "hi"));
    let push = |method: &'static str| {
        (method, "1.0", "application/json", request(method, json!({"taskId": "x"})), -32003)
    };
    let mut with_push = message("m", "hi");
    with_push["configuration"] = json!({"taskPushNotificationConfig": {"url": "http://x"}});
    let mut to_nobody = message("m", "hi");
    to_nobody["message"]["taskId"] = json!("no-such-task");
    let mut forged = message("m", "hi");
    forged["metadata"] =
        json!({"sinew": {"activation": "a", "attempt": 1, "result_subject": "test.v1.card.gated"}});
    let mut broken = forged.clone();
    broken["metadata"]["sinew"]["attempt"] = json!("one");
    // Subject's method, version, media type, body, code.
    let cases = [
        ("SendMessage", "1.0", "text/plain", send.clone(), -32005),
        ("SendMessage", "0.3", "application/json", send.clone(), -32009),
        ("SendMessage", "", "application/json", send.clone(), -32009),
        ("SendMessage", "1.0", "application/json", "{".to_owned(), -32700),
        ("SendMessage", "1.0", "application/json", "[]".to_owned(), -32600),
        ("SendMessage", "1.0", "application/json", json!({"method": "SendMessage"}).to_string(), -32600),
        ("SendMessage", "1.0", "application/json", request("SendMessage", json!({})), -32602),
        (
            "SendMessage",
            "1.0",
            "application/json",
            request("SendMessage", json!({"message": {"messageId": "", "role": "ROLE_USER", "parts": []}})),
            -32602,
        ),
        ("SendMessage", "1.0", "application/json", request("SendMessage", with_push), -32003),
        ("SendMessage", "1.0", "application/json", request("SendMessage", to_nobody), -32001),
        ("SendMessage", "1.0", "application/json", request("SendMessage", forged), -32602),
        ("SendMessage", "1.0", "application/json", request("SendMessage", broken), -32602),
        // Permissions are given by subject: another operation may not hide in the body.
        ("GetTask", "1.0", "application/json", send.clone(), -32600),
        ("SendMessage", "1.0", "application/json", request("message/send", json!({})), -32601),
        ("Destroy", "1.0", "application/json", request("Destroy", json!({})), -32601),
        ("GetTask", "1.0", "application/json", request("GetTask", json!({})), -32602),
        (
            "GetExtendedAgentCard",
            "1.0",
            "application/json",
            request("GetExtendedAgentCard", json!({})),
            -32007,
        ),
        push("CreateTaskPushNotificationConfig"),
        push("GetTaskPushNotificationConfig"),
        push("ListTaskPushNotificationConfigs"),
        push("DeleteTaskPushNotificationConfig"),
    ];
    for (method, version, media_type, body, code) in cases {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, media_type);
        if !version.is_empty() {
            headers.insert(header::A2A_VERSION, version);
        }
        let (error, _) = call_as(&mesh, "gated", method, headers, body.clone()).await;
        assert_eq!(error["code"], code, "{method} {version} {media_type} {body}: {error}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0, "nothing of that reached the handler");
    let (card, _) = call(&mesh, "gated", "GetAgentCard", json!({})).await;
    assert_eq!(card["name"], "gated");
    served.stop().await;
}

/// An agent is not told that a caller has gone.
#[tokio::test]
async fn callers_that_went_away_do_not_keep_others_out() {
    const CALLS: usize = 5_000;
    let (server, mesh) = common::mesh().await;
    let (gate, calls) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let served = serve(&server, &mesh, gated(&gate, &calls)).await;
    let ada = connect(&server.url(), "ada").await;
    let client = ada.client();
    let mut answers = client.subscribe("gone.*").await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(header::A2A_VERSION, "1.0");
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("m1", "hi")});
    for nth in 0..CALLS {
        let (subject, reply) = ("test.v1.rpc.gated.SendMessage.ada", format!("gone.{nth}"));
        let sent = client.publish_with_reply_and_headers(
            subject,
            reply,
            headers.clone(),
            request.to_string().into(),
        );
        sent.await.unwrap();
    }
    // The calls that have waited longest are answered with the task as it is.
    let first = timeout(PATIENCE, answers.next()).await.expect("a call is answered").unwrap();
    let said: Value = serde_json::from_slice(&first.payload).unwrap();
    let task = &said["result"]["task"];
    assert_eq!((first.subject.as_str(), state(task)), ("gone.0", "TASK_STATE_WORKING"), "{said}");
    let (said, _) = call(&ada, "gated", "GetTask", json!({"id": task["id"]})).await;
    assert_eq!(state(&said), "TASK_STATE_WORKING", "{said}");
    gate.add_permits(1);
    let (said, _) = call(&ada, "gated", "SendMessage", message("m1", "hi")).await;
    assert_eq!((state(&said["task"]), calls.load(Ordering::SeqCst)), ("TASK_STATE_COMPLETED", 1), "{said}");
    served.stop().await;
}
