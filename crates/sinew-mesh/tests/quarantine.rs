//! Quarantined messages: kept whole, listed, replayed and removed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::journal::AppendError;
use sinew_mesh::quarantine::SuspectMessage;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, Provision, PutOutcome};
use sinew_protocol::Token;
use sinew_protocol::journal::Positions;

use crate::started;

const START: Positions = Positions::at(0, 0);

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", "00-a-b-01");
    headers.insert("Nats-Msg-Id", "id");
    headers
}

fn suspect(name: &str, seq: u64, body: impl Into<Bytes>) -> SuspectMessage {
    let (name, body) = (name.to_owned(), body.into());
    SuspectMessage { stream: "COMMANDS", seq, time: 1_700_000_000_000 + seq, name, headers: headers(), body }
}

async fn list(mesh: &Mesh, limit: usize) -> Vec<u64> {
    mesh.quarantine().list(limit).await.unwrap().iter().map(|aside| aside.seq).collect()
}

#[tokio::test]
async fn a_message_is_kept_whole_with_the_reason_and_once() {
    let (_server, mesh) = started::mesh().await;
    assert!(mesh.quarantine().list(10).await.unwrap().is_empty());
    let reason = "SINEW-6033: line one\r\nline two: 100 % ümlaut \u{1b}[31m";
    for seq in [7, 9, 8, 7] {
        mesh.quarantine().put(suspect("test.v1.command.0.x", seq, "[1"), reason).await.unwrap();
    }
    mesh.quarantine().put(suspect("test.v1.command.0.x", 9, "[1"), "another reason").await.unwrap();
    assert_eq!(list(&mesh, 10).await, [7, 9, 8]);
    assert_eq!(list(&mesh, 2).await, [9, 8]);
    let aside = mesh.quarantine().get("COMMANDS", 9).await.unwrap();
    assert_eq!((aside.stream.as_str(), aside.seq, aside.time), ("COMMANDS", 9, 1_700_000_000_009));
    assert_eq!((aside.reason.as_str(), aside.subject.as_str()), (reason, "test.v1.command.0.x"));
    assert_eq!((&aside.body[..], aside.whole), (&b"[1"[..], true));
    assert_eq!(aside.headers.get("traceparent").unwrap().as_str(), "00-a-b-01");
    assert!(aside.aside > aside.time);
    let listed = mesh.quarantine().list(1).await.unwrap().remove(0);
    assert!(listed.body.is_empty() && listed.reason == reason);

    mesh.quarantine().remove("COMMANDS", 9).await.unwrap();
    assert_eq!(list(&mesh, 10).await, [7, 8]);
    for gone in [
        mesh.quarantine().remove("COMMANDS", 9).await.unwrap_err(),
        mesh.quarantine().get("COMMANDS", 9).await.unwrap_err(),
        mesh.quarantine().replay("TASKS", 7).await.unwrap_err(),
    ] {
        assert_eq!(gone.code(), "SINEW-7051");
    }
}

#[tokio::test]
async fn a_full_quarantine_loses_its_oldest_messages_and_holds_up_nobody() {
    const MESSAGES: u64 = 24;
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let mesh = started::connect(&server.url(), "tester").await;
    let limited = Provision { storage_limit: Some(512 * 1024), ..Provision::default() };
    mesh.admin().provision(&limited).await.unwrap();
    let began = std::time::Instant::now();
    for seq in 1..=MESSAGES {
        mesh.quarantine().put(suspect("test.v1.command.0.x", seq, vec![b'x'; 60_000]), "no").await.unwrap();
    }
    // Each would wait for room for ten seconds and more.
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
    let kept = list(&mesh, 100).await;
    assert_eq!(kept.last(), Some(&MESSAGES), "{kept:?}");
    assert!(
        kept.windows(2).all(|pair| pair[0] + 1 == pair[1]) && kept.len() >= 5,
        "only the oldest: {kept:?}"
    );
    // One that never fits is dropped, and said to be.
    let large = suspect("test.v1.command.0.x", 99, vec![b'x'; 600_000]);
    assert!(!mesh.quarantine().put_or_drop(large, "no").await.unwrap());
    assert_eq!(list(&mesh, 100).await, kept, "and drives out nothing");
}

#[tokio::test]
async fn a_command_that_is_sent_again_takes_the_place_of_the_one_that_was_set_aside() {
    let (_server, mesh) = started::mesh().await;
    let subject = started::command(0, 1);
    mesh.tasks().put_once(&subject, headers(), "early".into()).await.unwrap();
    let mut inbox = mesh.commands().inbox(0, START).await.unwrap();
    let received = inbox.next().await.unwrap();
    mesh.quarantine().put(&received, "came before its time").await.unwrap();
    assert!(inbox.try_next().unwrap().is_none());

    for _ in 0..2 {
        assert_eq!(mesh.quarantine().replay("COMMANDS", 1).await.unwrap(), PutOutcome::New, "and once more");
        let again = inbox.next().await.unwrap();
        assert_eq!((again.subject.as_ref(), &again.body[..]), (Some(&subject), &b"early"[..]));
        assert_eq!(again.headers.get("traceparent").unwrap().as_str(), "00-a-b-01");
        assert!(again.headers.get("Sinew-Reason").is_none() && again.headers.get("Sinew-Subject").is_none());
        // The next time it is another message that has the subject: it is left alone.
        if again.seq == 2 {
            break;
        }
    }
    assert_eq!(mesh.quarantine().replay("COMMANDS", 1).await.unwrap(), PutOutcome::Same);
    assert!(inbox.try_next().unwrap().is_none());
    assert_eq!(list(&mesh, 10).await, [1], "until it is removed");
}

#[tokio::test]
async fn a_task_that_is_sent_again_is_delivered_again() {
    let (_server, mesh) = started::mesh().await;
    mesh.tasks().put_once(&started::task("a", 1), headers(), "poison".into()).await.unwrap();
    let mut queue = mesh.tasks().queue(&Token::of("a"), 1);
    let delivery = queue.next().await;
    mesh.quarantine().put(&delivery, "kills whoever works on it").await.unwrap();
    delivery.term("set aside").await.unwrap();
    drop(delivery);
    assert_eq!(mesh.quarantine().replay("TASKS", 1).await.unwrap(), PutOutcome::New);
    let again = queue.next().await;
    assert_eq!((&again.body[..], again.delivered()), (&b"poison"[..], 1));
}

#[tokio::test]
async fn a_message_goes_nowhere_but_where_it_came_from() {
    let (_server, mesh) = started::mesh().await;
    let subjects = [
        "test.v1.task.agent.e.t",
        "other.v1.command.0.start.c.i",
        "test.v1.command",
        "test.v1.command.",
        "test.v1.command.>",
        "test.v1.command.a b",
        "test.v1.command.0..x",
        "$JS.API.STREAM.DELETE.test_JOURNAL",
        "",
    ];
    for (seq, subject) in (1..).zip(subjects) {
        mesh.quarantine().put(suspect(subject, seq, "?"), "no matter").await.unwrap();
        let error = mesh.quarantine().replay("COMMANDS", seq).await.unwrap_err();
        assert_eq!(error.code(), "SINEW-7032", "{subject}");
    }
    // Only write-once streams take replayed messages; a journal never does.
    let mut of_journal = suspect("test.v1.journal.0", 1, "?");
    of_journal.stream = "JOURNAL";
    mesh.quarantine().put(of_journal, "no matter").await.unwrap();
    assert_eq!(mesh.quarantine().replay("JOURNAL", 1).await.unwrap_err().code(), "SINEW-7032");
    let mut journal = mesh.journal(0);
    journal.replay(|_| Err(AppendError::Fenced { shard: 0 })).await.unwrap();
}

#[tokio::test]
async fn a_message_of_the_largest_size_is_set_aside_too() {
    let (_server, mesh) = started::mesh().await;
    let mut large = suspect("test.v1.command.0.x", 1, vec![b'x'; mesh.client().max_payload()]);
    large.headers = HeaderMap::new();
    mesh.quarantine().put(large, "large").await.unwrap();
    let aside = mesh.quarantine().get("COMMANDS", 1).await.unwrap();
    assert!(!aside.whole && aside.body.len() > mesh.client().max_payload() - 1_000);
    assert_eq!((aside.reason.as_str(), aside.subject.as_str()), ("large", "test.v1.command.0.x"));
    assert_eq!(mesh.quarantine().replay("COMMANDS", 1).await.unwrap_err().code(), "SINEW-7052");
    let mut headers = suspect("test.v1.command.0.x", 2, "?");
    headers.headers.insert("long", "x".repeat(mesh.client().max_payload() - 200));
    mesh.quarantine().put(headers, "long headers").await.unwrap();
    assert_eq!(mesh.quarantine().get("COMMANDS", 2).await.unwrap().body, "?");
}
