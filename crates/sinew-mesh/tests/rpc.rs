//! The direct door of agents, and what may be lost: status and words to whoever works on a task.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_mesh::async_nats::{self, HeaderMap};
use sinew_mesh::live::{Control, LARGEST_STATUS};
use sinew_mesh::micro::About;
use sinew_mesh::rpc::RpcServer;
use sinew_mesh::trace::TraceParent;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::{Subject, Token, header};
use tokio::time::timeout;

use crate::started;

const SOON: Duration = Duration::from_secs(20);

fn headers(of: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in of {
        headers.insert(*name, *value);
    }
    headers
}

/// Answers each call with who called what, until the server is told to stop.
async fn echo(mut server: RpcServer, replica: &'static str) -> usize {
    let mut calls = 0;
    while let Some(call) = server.next().await {
        calls += 1;
        let said = format!("{replica} {} {} {}", call.method, call.caller, call.headers.len());
        let headers = headers(&[("Nats-Rollup", "all"), (header::TRACE_PARENT, "x")]);
        let body = [said.as_bytes(), b" ", &call.body].concat();
        if call.method == "Stop" {
            server.stop().await.unwrap();
        }
        call.respond(headers, body.into()).await.unwrap();
    }
    calls
}

async fn call(mesh: &Mesh, agent: &str, method: &str) -> Result<String, MeshError> {
    let headers = headers(&[(header::ATTEMPT, "1"), ("Nats-Expected-Stream", "x")]);
    let reply = mesh.services().call_rpc(agent, method, headers, "hello".into(), SOON).await?;
    assert!(reply.headers.get("Nats-Rollup").is_none());
    Ok(String::from_utf8(reply.body.to_vec()).unwrap())
}

/// The answering side may publish to subjects that the caller may not.
#[tokio::test]
async fn nobody_answers_to_a_subject_of_the_mesh_or_of_the_server() {
    let (_server, mesh) = started::mesh().await;
    let (mut door, mut queries) =
        (mesh.services().serve_rpc("a").await.unwrap(), mesh.services().serve_queries(0).await.unwrap());
    let client = mesh.client();
    let send = |subject: &'static str, reply: &'static str, body: &'static str| {
        client.publish_with_reply(subject, reply, body.into())
    };
    for reply in
        ["test.v1.journal.0", "test.v1.command.0.start.b.k", "$KV.test_FLEET.result_key", "$JS.API.INFO"]
    {
        send("test.v1.rpc.a.SendMessage.b", reply, "").await.unwrap();
        send("test.v1.query.0", reply, r#"{"list":{}}"#).await.unwrap();
        // Garbage is answered as well.
        send("test.v1.query.0", reply, "garbage").await.unwrap();
    }
    send("test.v1.rpc.a.Last.b", "_INBOX.x", "").await.unwrap();
    send("test.v1.query.0", "_INBOX.x", r#"{"status":{}}"#).await.unwrap();
    let (call, asked) = tokio::join!(door.next(), queries.next());
    assert_eq!(call.unwrap().method, "Last");
    assert_eq!(asked.unwrap().query, sinew_mesh::query::Query::Status {});
    let journal = mesh.admin().jetstream().get_stream("test_JOURNAL").await.unwrap();
    assert_eq!(journal.cached_info().state.messages, 0);
}

#[tokio::test]
async fn calls_reach_one_replica_and_say_who_calls() {
    let (server, mesh) = started::mesh().await;
    let agent = "order reviewer.>";
    let error = call(&mesh, agent, "SendMessage").await.unwrap_err();
    assert!(matches!(error, MeshError::NobodyAnswers { .. }) && error.is_no_responders(), "{error}");

    let mut replicas = Vec::new();
    for replica in ["one", "two"] {
        replicas.push(tokio::spawn(echo(mesh.services().serve_rpc(agent).await.unwrap(), replica)));
    }
    let other = started::connect(&server.url(), "an other").await;
    let mut served = BTreeSet::new();
    for _ in 0..50 {
        let said = call(&other, agent, "SendMessage").await.unwrap();
        let (replica, rest) = said.split_once(' ').unwrap();
        // One header is left: a command to the server does not reach the agent.
        assert_eq!(rest, format!("SendMessage {} 1 hello", Token::of("an other")));
        served.insert(replica.to_owned());
    }
    assert_eq!(served.len(), 2, "one replica got everything");
    // Another agent's door is not this one.
    assert!(call(&other, "order reviewer", "SendMessage").await.unwrap_err().is_no_responders());
    // Each replica answers the call that ends it; then nobody is there.
    for _ in 0..2 {
        call(&other, agent, "Stop").await.unwrap();
    }
    let calls = futures_util::future::join_all(replicas).await;
    assert_eq!(calls.into_iter().map(Result::unwrap).sum::<usize>(), 52);
    assert!(call(&other, agent, "SendMessage").await.unwrap_err().is_no_responders());
}

#[tokio::test]
async fn calls_without_an_answer_and_calls_that_are_too_large_are_told_apart() {
    let (_server, mesh) = started::mesh().await;
    let mut door = mesh.services().serve_rpc("slow").await.unwrap();
    let wait = Duration::from_millis(200);
    let error = mesh
        .services()
        .call_rpc("slow", "SendMessage", HeaderMap::new(), "x".into(), wait)
        .await
        .unwrap_err();
    assert_eq!((error.code(), error.is_no_responders()), ("SINEW-7055", false), "{error}");
    let large = Bytes::from(vec![0; 2 << 20]);
    let error = mesh
        .services()
        .call_rpc("slow", "SendMessage", HeaderMap::new(), large.clone(), wait)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "SINEW-7053", "{error}");
    let call = door.next().await.unwrap();
    assert_eq!((call.method.as_str(), &call.body[..]), ("SendMessage", &b"x"[..]));
    assert_eq!(call.respond(HeaderMap::new(), large).await.unwrap_err().code(), "SINEW-7053");
    // A message that is not a call never reaches the handler.
    let subject = mesh.subject(&Subject::Rpc {
        agent: Token::of("slow"),
        method: Token::of("GetTask"),
        caller: Token::of("me"),
    });
    mesh.client().publish(subject.clone(), "nobody waits".into()).await.unwrap();
    mesh.client().publish_with_reply(format!("{subject}.more"), "r", "x".into()).await.unwrap();
    mesh.client().publish_with_reply(subject, "r", "good".into()).await.unwrap();
    assert_eq!(door.next().await.unwrap().body, "good");
}

#[tokio::test]
async fn status_reaches_who_watches() {
    let (_server, mesh) = started::mesh().await;
    let ((first, task, _), (second, other, _)) = (started::ids(1), started::ids(2));
    let mut one = mesh.tasks().watch_progress(Some(&first), Some(&task)).await.unwrap();
    let mut whole = mesh.tasks().watch_progress(Some(&second), None).await.unwrap();
    let mut all = mesh.tasks().watch_progress(None, None).await.unwrap();
    let mut sent = HeaderMap::new();
    let trace = TraceParent::fresh();
    trace.put(&mut sent);
    for (execution, task, body) in [(&first, &task, "a"), (&second, &other, "b"), (&second, &task, "c")] {
        mesh.tasks().report_progress(execution, task, sent.clone(), body.into()).await.unwrap();
    }
    let status = one.next().await.unwrap();
    assert_eq!((&status.execution, &status.task, &status.body[..]), (&first, &task, &b"a"[..]));
    assert_eq!(TraceParent::of(&status.headers), Some(trace));
    assert_eq!(whole.next().await.unwrap().body, "b");
    assert_eq!(whole.next().await.unwrap().body, "c");
    for body in ["a", "b", "c"] {
        assert_eq!(all.next().await.unwrap().body, body);
    }
    let large = Bytes::from(vec![0; LARGEST_STATUS + 1]);
    let error =
        mesh.tasks().report_progress(&first, &task, HeaderMap::new(), large.clone()).await.unwrap_err();
    assert_eq!(error.code(), "SINEW-7053");
    // From others it is passed over.
    let subject = mesh.subject(&Subject::Progress { execution: first.clone(), task: task.clone() });
    mesh.client().publish(subject, large).await.unwrap();
    mesh.tasks().report_progress(&first, &task, HeaderMap::new(), "after".into()).await.unwrap();
    assert_eq!(one.next().await.unwrap().body, "after");
}

#[tokio::test]
async fn words_reach_every_replica_of_the_agent_and_no_other() {
    let (_server, mesh) = started::mesh().await;
    let (execution, task, _) = started::ids(1);
    let mut replicas =
        [mesh.tasks().controls("a b").await.unwrap(), mesh.tasks().controls("a b").await.unwrap()];
    let mut other = mesh.tasks().controls("other").await.unwrap();
    let cancel = Control::Cancel { execution };
    let subject = mesh.subject(&Subject::Control { agent: Token::of("a b"), task: task.clone() });
    for garbage in ["", "{}", r#"{"obey":{}}"#, r#"{"cancel":{"execution":"a.b"}}"#] {
        mesh.client().publish(subject.clone(), garbage.into()).await.unwrap();
    }
    mesh.tasks().control("a b", &task, &cancel).await.unwrap();
    for replica in &mut replicas {
        let word = replica.next().await.unwrap();
        assert_eq!((&word.task, &word.control), (&task, &cancel));
    }
    mesh.tasks().control("other", &task, &cancel).await.unwrap();
    assert_eq!(other.next().await.unwrap().task, task);
}

/// A flood of questions comes once to a process with many agents, not once for each of them.
#[tokio::test]
async fn services_of_one_connection_hear_a_question_once() {
    let (server, mesh) = started::mesh().await;
    let asking = async_nats::connect(server.url()).await.unwrap();
    let mut listed = Vec::new();
    for name in ["one", "two", "three"] {
        let about = || About { version: "1.2.3".to_owned(), data: json!({ "n": 3 }), ..About::default() };
        listed.push(mesh.services().list_agent(name, about).await.unwrap());
    }
    let ask = async |subject: &str, count: usize| -> Vec<Value> {
        let inbox = asking.new_inbox();
        let mut answers = asking.subscribe(inbox.clone()).await.unwrap();
        asking.publish_with_reply(subject.to_owned(), inbox, "".into()).await.unwrap();
        let mut said = Vec::new();
        while said.len() < count {
            let answer = timeout(SOON, answers.next()).await.unwrap().unwrap();
            said.push(serde_json::from_slice(&answer.payload).unwrap());
        }
        said.sort_by_key(|answer: &Value| answer["name"].to_string());
        said
    };
    // An answer to this connection says that its subscriptions are made.
    let made = async || drop(mesh.client().request("nobody", "".into()).await);
    made().await;
    let names = |said: &[Value]| said.iter().map(|answer| answer["name"].clone()).collect::<Vec<_>>();
    let heard = mesh.client().statistics();
    let heard = || heard.in_messages.load(Ordering::Relaxed);
    let before = heard();
    assert_eq!(names(&ask("$SRV.PING", 3).await), ["one", "three", "two"]);
    assert_eq!(heard() - before, 1);
    let told = ask("$SRV.STATS.two", 1).await;
    assert_eq!((&told[0]["version"], &told[0]["endpoints"][0]["data"]["n"]), (&json!("1.2.3"), &json!(3)));
    let subject = format!("$SRV.INFO.two.{}", told[0]["id"].as_str().unwrap());
    assert_eq!(ask(&subject, 1).await[0]["endpoints"][0]["subject"], "test.v1.rpc.two.*.*");
    // A service that is left is not told of any more; the last one takes the subscriptions with it.
    listed.pop();
    assert_eq!(names(&ask("$SRV.INFO", 2).await), ["one", "two"]);
    listed.clear();
    let nobody = async {
        let ask = || timeout(Duration::from_millis(100), asking.request("$SRV.PING", "".into()));
        while !matches!(ask().await, Ok(Err(_))) {}
    };
    timeout(SOON, nobody).await.unwrap();
    listed.push(mesh.services().list_agent("four", About::default).await.unwrap());
    made().await;
    assert_eq!(names(&ask("$SRV.PING", 1).await), ["four"]);
}
