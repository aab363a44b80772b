//! A shard's inbox: each input once and in order, whatever is killed, deleted or forged.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on")]

use std::collections::BTreeMap;

use futures_util::{FutureExt as _, StreamExt as _};
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::server::Server;
use sinew_mesh::{Inbox, Mesh, OutgoingMessage, Source};
use sinew_protocol::Subject;
use sinew_protocol::journal::Positions;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::started;

const START: Positions = Positions::at(0, 0);

async fn put(mesh: &Mesh, subjects: impl IntoIterator<Item = Subject>) {
    let parcel = |subject| OutgoingMessage { subject, headers: HeaderMap::new(), body: "{}".into() };
    for put in mesh.tasks().put_all(subjects.into_iter().map(parcel).collect()).await {
        put.unwrap();
    }
}

/// Reads until this many have come, and checks that each stream is in order and nothing comes twice.
async fn read(inbox: &mut Inbox, seen: &mut BTreeMap<Source, Vec<u64>>, until: usize) {
    while seen.values().map(Vec::len).sum::<usize>() < until {
        let received = inbox.next().await.unwrap();
        let before = seen.entry(received.source).or_default();
        assert!(before.last().is_none_or(|last| *last < received.seq), "{} after {before:?}", received.seq);
        before.push(received.seq);
    }
}

async fn delete_consumers(mesh: &Mesh) -> usize {
    let mut deleted = 0;
    for kind in ["COMMANDS", "RESULTS"] {
        let stream = mesh.admin().jetstream().get_stream(format!("test_{kind}")).await.unwrap();
        let names: Vec<String> = stream.consumer_names().map(Result::unwrap).collect().await;
        for name in names {
            stream.delete_consumer(&name).await.unwrap();
            deleted += 1;
        }
    }
    deleted
}

#[tokio::test]
async fn commands_and_results_of_one_shard_come_in_order_with_what_their_subjects_say() {
    let (_server, mesh) = started::mesh().await;
    let garbage =
        mesh.admin().jetstream().publish("test.v1.command.2.destroy.x.y", "?".into()).await.unwrap();
    garbage.await.unwrap();
    put(&mesh, [started::command(2, 1), started::command(3, 2), started::result(2, 3)]).await;
    put(&mesh, [started::command(2, 4), started::result(1, 5), started::result(2, 6)]).await;

    let mut inbox = mesh.commands().inbox(2, START).await.unwrap();
    let mut all = BTreeMap::<Source, Vec<_>>::new();
    for _ in 0..5 {
        let received = inbox.next().await.unwrap();
        assert_eq!(
            received.subject.as_ref().map_or(received.name.clone(), |s| mesh.subject(s)),
            received.name
        );
        assert!(received.time > 1_700_000_000_000);
        all.entry(received.source).or_default().push((received.seq, received.subject));
    }
    let (command, result) = (started::command, started::result);
    let commands = vec![(1, None), (2, Some(command(2, 1))), (4, Some(command(2, 4)))];
    assert_eq!(all[&Source::Commands], commands);
    assert_eq!(all[&Source::Results], [(1, Some(result(2, 3))), (3, Some(result(2, 6)))]);
    assert!(inbox.try_next().unwrap().is_none());

    // A new owner continues behind the positions in the journal.
    let mut inbox = mesh.commands().inbox(2, Positions::at(2, 1)).await.unwrap();
    let mut seqs = [inbox.next().await.unwrap().seq, inbox.next().await.unwrap().seq];
    seqs.sort_unstable();
    assert_eq!(seqs, [3, 4]);
    assert!(inbox.next().now_or_never().is_none());
}

#[tokio::test]
async fn neither_side_waits_for_the_other_to_be_empty() {
    let (_server, mesh) = started::mesh().await;
    put(&mesh, (0..300).map(|n| started::command(0, n))).await;
    put(&mesh, (0..300).map(|n| started::result(0, n))).await;
    let mut inbox = mesh.commands().inbox(0, START).await.unwrap();
    let mut first = Vec::new();
    for _ in 0..400 {
        first.push(inbox.next().await.unwrap().source);
    }
    let results = first.iter().filter(|source| **source == Source::Results).count();
    assert!((100..=300).contains(&results), "{results} of 400");
}

#[tokio::test]
async fn a_killed_server_and_deleted_consumers_cause_no_gap_and_nothing_twice() {
    let (mut server, mesh) = started::mesh().await;
    let mut inbox = mesh.commands().inbox(0, START).await.unwrap();
    let mut seen = BTreeMap::new();
    for round in 0..6 {
        let (from, to) = (round * 1_500, (round + 1) * 1_500);
        put(&mesh, (from..to).map(|n| started::result(0, n))).await;
        put(&mesh, (from..from + 100).map(|n| started::command(0, n))).await;
        // Half of it is read, and some of the rest has come already and lies in memory.
        read(&mut inbox, &mut seen, round * 1_600 + 800).await;
        if round % 2 == 0 {
            assert!(delete_consumers(&mesh).await >= 1);
        } else {
            server.kill9().await.unwrap();
            server.restart().await.unwrap();
        }
        read(&mut inbox, &mut seen, (round + 1) * 1_600).await;
    }
    assert_eq!(seen[&Source::Results], (1..=9_000).collect::<Vec<u64>>());
    assert_eq!(seen[&Source::Commands], (1..=600).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_consumer_that_is_lost_before_its_first_message_does_not_begin_at_the_start() {
    let (_server, mesh) = started::mesh().await;
    put(&mesh, (0..50).map(|n| started::command(0, n))).await;
    let mut inbox = mesh.commands().inbox(0, Positions::at(50, 0)).await.unwrap();
    assert!(inbox.try_next().unwrap().is_none());
    assert_eq!(delete_consumers(&mesh).await, 2);
    put(&mesh, [started::command(0, 50)]).await;
    assert_eq!(inbox.next().await.unwrap().seq, 51);
}

#[tokio::test]
async fn giving_up_a_read_loses_nothing() {
    let (_server, mesh) = started::mesh().await;
    let mut inbox = mesh.commands().inbox(0, START).await.unwrap();
    let writer = mesh.clone();
    let writer = tokio::spawn(async move {
        for n in 0..2_000 {
            put(&writer, [started::result(0, n)]).await;
        }
    });
    let mut seqs = Vec::new();
    while seqs.len() < 2_000 {
        tokio::select! { biased;
            () = tokio::task::yield_now() => {}
            received = inbox.next() => seqs.push(received.unwrap().seq),
        }
        while let Some(received) = inbox.try_next().unwrap() {
            seqs.push(received.seq);
        }
    }
    writer.await.unwrap();
    assert_eq!(seqs, (1..=2_000).collect::<Vec<u64>>());
}

/// Stores a message whose headers pretend to be a word of the server.
async fn forge(server: &Server, subject: &str, status: &str) {
    let mut wire = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    let headers = format!("NATS/1.0 {status}\r\n\r\n");
    let publish = format!(
        "CONNECT {{\"verbose\":false,\"headers\":true}}\r\nHPUB {subject} {} {}\r\n{headers}?\r\nPING\r\n",
        headers.len(),
        headers.len() + 1
    );
    wire.write_all(publish.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(wire).lines();
    while lines.next_line().await.unwrap().is_some_and(|line| line != "PONG") {}
}

#[tokio::test]
async fn a_message_that_poses_as_the_server_is_a_message() {
    let (server, mesh) = started::mesh().await;
    let statuses =
        ["409 Consumer Deleted", "100 Idle Heartbeat", "503", "404 No Messages", "408 Request Timeout"];
    for (n, status) in statuses.iter().enumerate() {
        forge(&server, &mesh.subject(&started::result(0, n)), status).await;
    }
    put(&mesh, [started::result(0, 100)]).await;
    let mut inbox = mesh.commands().inbox(0, START).await.unwrap();
    for seq in 1..=6 {
        assert_eq!(inbox.next().await.unwrap().seq, seq);
    }
}
