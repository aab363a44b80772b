//! Messages that are stored once, whatever happens to the connection, and events.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::{Mesh, OutgoingMessage, PutOutcome};
use sinew_protocol::subject::Operation;
use sinew_protocol::{Subject, Token};

use crate::started;

fn none() -> HeaderMap {
    HeaderMap::new()
}

fn event(kind: &str) -> Subject {
    let (execution, ..) = started::ids(0);
    Subject::Event { workflow: Token::of("w"), execution, kind: Token::of(kind) }
}

async fn put(mesh: &Mesh, subject: &Subject, body: &'static str) -> Result<PutOutcome, &'static str> {
    mesh.tasks().put_once(subject, none(), body.into()).await.map_err(|error| error.code())
}

#[tokio::test]
async fn a_subject_takes_one_body() {
    let (_server, mesh) = started::mesh().await;
    let quarantine = Subject::Quarantine { stream: Token::of("TASKS"), seq: 3 };
    for subject in [started::command(0, 1), started::task("a", 1), started::result(0, 1), quarantine] {
        assert_eq!(put(&mesh, &subject, "one").await, Ok(PutOutcome::New), "{subject:?}");
        assert_eq!(put(&mesh, &subject, "one").await, Ok(PutOutcome::Same), "{subject:?}");
        assert_eq!(put(&mesh, &subject, "two").await, Ok(PutOutcome::Taken), "{subject:?}");
    }
    // A message id that somebody used for another message keeps nobody out.
    let mut headers = none();
    headers.insert("Nats-Msg-Id", "id");
    let jetstream = mesh.admin().jetstream();
    let stranger = jetstream.publish_with_headers("test.v1.task.x.y", headers.clone(), "".into());
    stranger.await.unwrap().await.unwrap();
    for n in [2, 3] {
        let put = mesh.tasks().put_once(&started::task("a", n), headers.clone(), "one".into()).await.unwrap();
        assert_eq!(put, PutOutcome::New);
    }
    let (_, task, _) = started::ids(0);
    let core = Subject::Control { agent: Token::of("a"), task };
    assert_eq!(put(&mesh, &core, "one").await, Err("SINEW-7032"), "nothing keeps it");
}

#[tokio::test]
async fn a_mesh_that_was_not_made_refuses_at_once() {
    let (server, _mesh) = started::mesh().await;
    let client = sinew_mesh::async_nats::connect(server.url()).await.unwrap();
    let other = Mesh::new(client, "other", "tester");
    let began = Instant::now();
    assert_eq!(put(&other, &started::task("a", 1), "one").await, Err("SINEW-7011"));
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn of_many_who_write_at_once_one_wins() {
    let (_server, mesh) = started::mesh().await;
    for n in 0..20 {
        let subject = started::result(0, n);
        let bodies: Vec<Bytes> = (0..32).map(|n| if n % 2 == 0 { "even" } else { "odd" }.into()).collect();
        let puts = bodies.iter().map(|body| mesh.tasks().put_once(&subject, none(), body.clone()));
        let puts = futures_util::future::join_all(puts).await;
        let puts: Vec<PutOutcome> = puts.into_iter().map(Result::unwrap).collect();
        let winner = puts.iter().position(|put| *put == PutOutcome::New).unwrap();
        for (nth, put) in puts.iter().enumerate() {
            let expected = match nth {
                nth if nth == winner => PutOutcome::New,
                nth if nth % 2 == winner % 2 => PutOutcome::Same,
                _ => PutOutcome::Taken,
            };
            assert_eq!(*put, expected, "{nth} of {puts:?}");
        }
    }
    assert_eq!(started::messages(&mesh, "RESULTS").await, 20);
}

#[tokio::test]
async fn many_are_stored_at_once_and_the_outcomes_keep_their_order() {
    let (_server, mesh) = started::mesh().await;
    // More than the client lets be under way, and a third of them twice.
    let parcels = |body: &'static str| -> Vec<OutgoingMessage> {
        (0..7_000)
            .map(|n| OutgoingMessage { subject: started::task("a", n), headers: none(), body: body.into() })
            .collect()
    };
    let third: Vec<OutgoingMessage> = parcels("one").into_iter().step_by(3).collect();
    assert!(mesh.tasks().put_all(third).await.iter().all(|put| matches!(put, Ok(PutOutcome::New))));
    let puts = mesh.tasks().put_all(parcels("one")).await;
    for (n, put) in puts.into_iter().enumerate() {
        assert_eq!(put.unwrap(), if n % 3 == 0 { PutOutcome::Same } else { PutOutcome::New }, "{n}");
    }
    assert_eq!(started::messages(&mesh, "TASKS").await, 7_000);
    assert!(mesh.tasks().put_all(Vec::new()).await.is_empty());
}

#[tokio::test]
async fn what_is_larger_than_the_server_takes_is_refused_before_it_is_sent() {
    let (_server, mesh) = started::mesh().await;
    let limit = mesh.client().max_payload();
    let whole = Bytes::from(vec![b'x'; limit + 1]);
    let mut headers = none();
    headers.insert("traceparent", "x".repeat(1_000));
    let subject = started::result(0, 1);
    let before = mesh.client().statistics();
    let sent = before.out_messages.load(std::sync::atomic::Ordering::SeqCst);
    let mut body = limit + 1;
    let put = loop {
        match mesh.tasks().put_once(&subject, headers.clone(), whole.slice(..body)).await {
            Ok(put) => break put,
            Err(error) => assert_eq!(error.code(), "SINEW-7053", "{body}"),
        }
        assert_eq!(before.out_messages.load(std::sync::atomic::Ordering::SeqCst), sent, "{body} was sent");
        body -= 1;
    };
    assert_eq!(put, PutOutcome::New);
    assert!((limit - 1_300..limit - 1_000).contains(&body), "{body}: headers count");
    let large = mesh.events().publish(&event("a"), none(), whole).await;
    assert_eq!(large.unwrap_err().code(), "SINEW-7053");
}

#[tokio::test]
async fn an_agent_writes_results_of_its_mesh_and_nothing_else() {
    let (_server, mesh) = started::mesh().await;
    let name = mesh.subject(&started::result(0, 1));
    assert_eq!(mesh.tasks().put_result(&name, none(), "{}".into()).await.unwrap(), PutOutcome::New);
    let long = "x".repeat(10_000);
    for subject in [
        &mesh.subject(&started::command(0, 1)),
        &mesh.subject(&Subject::Journal { shard: 0 }),
        &name.replacen("test.", "other.", 1),
        &format!("{name}.more"),
        &name[..name.len() - 27],
        "$JS.API.STREAM.DELETE.test_JOURNAL",
        "a b",
        "",
        &long,
    ] {
        let error = mesh.tasks().put_result(subject, none(), "{}".into()).await.unwrap_err();
        assert_eq!(error.code(), "SINEW-7032", "{subject}");
        assert!(error.to_string().len() < 300);
    }
}

#[tokio::test]
async fn a_command_carries_its_caller() {
    let (_server, mesh) = started::mesh().await;
    let id = Token::of("k");
    let put = mesh.commands().send(Operation::Cancel, 3, &id, none(), "{}".into()).await.unwrap();
    assert_eq!(put, PutOutcome::New);
    let stream = mesh.admin().jetstream().get_stream("test_COMMANDS").await.unwrap();
    let stored = stream.get_raw_message(1).await.unwrap();
    assert_eq!(stored.subject.as_str(), "test.v1.command.3.cancel.tester.k");
}

#[tokio::test]
async fn events_are_told_without_commands_to_the_server() {
    let (_server, mesh) = started::mesh().await;
    let mut heard = mesh.client().subscribe("test.v1.event.>").await.unwrap();
    let mut headers = none();
    headers.insert("Nats-Rollup", "all");
    headers.insert("Nats-TTL", "1");
    headers.insert("traceparent", "00-a-b-01");
    for kind in ["started", "ended"] {
        mesh.events().publish(&event(kind), headers.clone(), "{}".into()).await.unwrap();
        let headers = heard.next().await.unwrap().headers.unwrap();
        assert_eq!(headers.iter().count(), 1, "{headers:?}");
    }
    let error = mesh.events().publish(&started::task("a", 1), none(), "{}".into()).await.unwrap_err();
    assert_eq!(error.code(), "SINEW-7032");
}

/// A put over a wire that loses one direction, and is then cut.
async fn lost(stored: bool) -> PutOutcome {
    let (server, direct) = started::mesh().await;
    let wire = started::Wire::to(&server).await;
    let mesh = started::connect(&wire.url, "executor").await;
    let mut seen = direct.client().subscribe("test.v1.task.>").await.unwrap();
    // An answer on the same connection: the subscription was read before it.
    assert_eq!(started::messages(&direct, "TASKS").await, 0);
    let began = Instant::now();
    if stored {
        wire.deafen();
    } else {
        wire.mute();
    }
    let put = tokio::spawn(async move { put(&mesh, &started::task("a", 1), "one").await });
    if stored {
        seen.next().await.unwrap();
    }
    wire.swallowed().await;
    wire.cut();
    let put = put.await.unwrap().unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "the lost connection is noticed, not the time that passes"
    );
    assert_eq!(started::messages(&direct, "TASKS").await, 1);
    put
}

#[tokio::test]
async fn a_put_whose_acknowledgement_is_lost_is_read_back() {
    assert_eq!(lost(true).await, PutOutcome::Same);
}

#[tokio::test]
async fn a_put_that_never_arrived_is_sent_again() {
    assert_eq!(lost(false).await, PutOutcome::New);
}

#[tokio::test]
async fn puts_outlive_a_server_that_is_killed() {
    let (mut server, mesh) = started::mesh().await;
    let parcels: Vec<OutgoingMessage> = (0..4_000)
        .map(|n| OutgoingMessage { subject: started::task("a", n), headers: none(), body: "one".into() })
        .collect();
    let mut heard = mesh.client().subscribe("test.v1.task.>").await.unwrap();
    let writer = mesh.clone();
    let puts = tokio::spawn(async move { writer.tasks().put_all(parcels).await });
    for _ in 0..1_000 {
        heard.next().await.unwrap();
    }
    server.kill9().await.unwrap();
    server.restart().await.unwrap();
    let puts = puts.await.unwrap();
    assert!(puts.iter().all(|put| matches!(put, Ok(PutOutcome::New | PutOutcome::Same))), "{puts:?}");
    assert_eq!(started::messages(&mesh, "TASKS").await, 4_000);
}
