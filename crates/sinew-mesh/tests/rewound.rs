//! A server that has lost its newest writes, as one does that loses power before it syncs: its store is replaced by an older
//! copy, and other messages get the sequences of those that are lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{AppendError, Mesh, MeshError, OutgoingMessage, Provision, Stored};
use sinew_protocol::journal::Positions;
use sinew_protocol::{Subject, Token};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::started;

/// Longer than a loaded machine takes.
const PATIENCE: Duration = Duration::from_secs(30);
const SHARD: u32 = 1;

/// A server whose store can be set back.
struct RewindableServer {
    server: Server,
    older: TempDir,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

impl RewindableServer {
    async fn start() -> (Self, Mesh) {
        let server = Server::start(ServerOptions::default()).await.unwrap();
        let mesh = started::connect(&server.url(), "tester").await;
        let provision = Provision { keep_events: Some(true), ..Provision::default() };
        mesh.admin().provision(&provision).await.unwrap();
        (Self { server, older: TempDir::new().unwrap() }, mesh)
    }

    /// Keeps a copy of what is stored now.
    async fn keep(&mut self) {
        self.server.stop().await.unwrap();
        copy(&self.server.store().join("jetstream"), self.older.path());
        self.server.restart().await.unwrap();
    }

    /// Ends the server and takes back everything since the copy.
    async fn rewind(&mut self) {
        self.server.empty_disk().await.unwrap();
        copy(self.older.path(), &self.server.store().join("jetstream"));
        self.server.restart().await.unwrap();
    }

    /// Likewise for the messages of one stream alone, which keeps what it knows of its consumers.
    async fn rewind_messages(&mut self, stream: &str) {
        self.server.stop().await.unwrap();
        let messages = Path::new("jetstream/$G/streams").join(stream).join("msgs");
        let now = self.server.store().join("jetstream").join(&messages);
        fs::remove_dir_all(&now).unwrap();
        copy(&self.older.path().join(&messages), &now);
        self.server.restart().await.unwrap();
    }
}

/// Stores messages under these subjects, one after the other.
async fn put(mesh: &Mesh, subjects: impl IntoIterator<Item = Subject>) {
    for subject in subjects {
        let message = OutgoingMessage { subject, headers: HeaderMap::new(), body: "{}".into() };
        for put in mesh.tasks().put_all(vec![message]).await {
            put.unwrap();
        }
    }
}

#[tokio::test]
async fn an_inbox_says_that_what_it_gave_is_lost_and_the_next_one_begins_anew() {
    let (mut server, mesh) = RewindableServer::start().await;
    put(&mesh, (1..=3).map(|nth| started::command(SHARD, nth))).await;
    server.keep().await;
    put(&mesh, (4..=6).map(|nth| started::command(SHARD, nth))).await;
    let mut inbox = mesh.commands().inbox(SHARD, Positions::at(0, 0)).await.unwrap();
    let mut read = Positions::default();
    while read.commands < 6 {
        let received = timeout(PATIENCE, inbox.next()).await.unwrap().unwrap();
        (read.commands, read.commands_stored) = (received.seq, received.time);
    }
    let same = mesh.commands().current_positions(SHARD, read).await.unwrap();
    assert_eq!((same.commands, same.commands_stored), (6, read.commands_stored));

    server.rewind().await;
    let other = started::connect(&server.server.url(), "tester").await;
    put(&other, (7..=10).map(|nth| started::command(SHARD, nth))).await;
    let lost = timeout(PATIENCE, inbox.next()).await.unwrap().unwrap_err();
    assert!(matches!(&lost, MeshError::StreamRewound { seq: 6, .. }), "{lost}");
    assert_eq!((lost.code(), lost.is_transient()), ("SINEW-7042", true));
    assert_eq!(inbox.next().await.unwrap_err().code(), "SINEW-7042", "it gives nothing more");

    let anew = mesh.commands().current_positions(SHARD, read).await.unwrap();
    assert_eq!(
        (anew.commands, anew.commands_stored),
        (0, 0),
        "the stream is longer than before, and another one"
    );
    let mut inbox = mesh.commands().inbox(SHARD, anew).await.unwrap();
    let mut subjects = Vec::new();
    for _ in 0..7 {
        subjects.push(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().subject.unwrap());
    }
    let expected: Vec<_> = [1, 2, 3, 7, 8, 9, 10].map(|nth| started::command(SHARD, nth)).into();
    assert_eq!(subjects, expected);
}

#[tokio::test]
async fn an_inbox_goes_on_if_what_it_gave_is_still_there() {
    let (mut server, mesh) = RewindableServer::start().await;
    put(&mesh, (1..=3).map(|nth| started::result(SHARD, nth))).await;
    let mut inbox = mesh.commands().inbox(SHARD, Positions::at(0, 0)).await.unwrap();
    for seq in 1..=3 {
        assert_eq!(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().seq, seq);
    }
    server.keep().await;
    put(&mesh, (4..=6).map(|nth| started::result(2, nth))).await;
    server.rewind().await;
    put(&mesh, (7..=8).map(|nth| started::result(SHARD, nth))).await;
    for seq in 4..=5 {
        assert_eq!(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().seq, seq);
    }
}

#[tokio::test]
async fn a_queue_gives_tasks_that_have_the_places_of_lost_ones() {
    let (mut server, mesh) = RewindableServer::start().await;
    let agent = Token::of("reviewer");
    let mut queue = mesh.tasks().queue(&agent, 10);
    put(&mesh, [started::task("reviewer", 1)]).await;
    let first = timeout(PATIENCE, queue.next()).await.unwrap();
    first.ack().await.unwrap();
    let acknowledged =
        async |place| mesh.tasks().queue_progress(&agent).await.unwrap().unwrap().is_acknowledged(place);
    assert!(acknowledged(1).await);
    server.keep().await;
    put(&mesh, (2..=4).map(|nth| started::task("reviewer", nth))).await;
    for _ in 2..=4 {
        timeout(PATIENCE, queue.next()).await.unwrap().ack().await.unwrap();
    }
    server.rewind_messages("test_TASKS").await;
    put(&mesh, (5..=9).map(|nth| started::task("reviewer", nth))).await;
    assert!(!acknowledged(2).await, "the fifth task has the place of the second");
    let mut given = BTreeSet::new();
    while given.len() < 5 {
        let delivery = timeout(PATIENCE, queue.next()).await.unwrap();
        given.insert(delivery.task.clone());
        delivery.ack().await.unwrap();
    }
    assert_eq!(given, (5..=9).map(|nth| started::ids(nth).1).collect());
    assert!(acknowledged(6).await);
    assert_eq!(mesh.tasks().queue_progress(&Token::of("nobody")).await.unwrap(), None);
}

#[tokio::test]
async fn kept_events_go_on_behind_lost_ones() {
    let (mut server, mesh) = RewindableServer::start().await;
    let event = |nth: usize| {
        let (execution, ..) = started::ids(nth);
        Subject::Event { workflow: Token::of("w"), execution, kind: Token::of("k") }
    };
    let tell = async |range: std::ops::RangeInclusive<usize>| {
        for nth in range {
            mesh.events().publish(&event(nth), HeaderMap::new(), "{}".into()).await.unwrap();
        }
        mesh.client().flush().await.unwrap();
    };
    let mut events = mesh.events().follow(&EventFilter::default(), EventStart::Beginning).await.unwrap();
    tell(1..=2).await;
    for nth in 1..=2 {
        assert_eq!(timeout(PATIENCE, events.next()).await.unwrap().execution, started::ids(nth).0);
    }
    server.keep().await;
    tell(3..=5).await;
    for nth in 3..=5 {
        assert_eq!(timeout(PATIENCE, events.next()).await.unwrap().execution, started::ids(nth).0);
    }
    server.rewind().await;
    // Fewer than were lost, so that all of them have places that were read.
    tell(6..=7).await;
    for nth in 6..=7 {
        assert_eq!(timeout(PATIENCE, events.next()).await.unwrap().execution, started::ids(nth).0);
    }
}

#[tokio::test]
async fn an_owner_is_fenced_if_another_commit_has_the_place_of_its_own() {
    let (mut server, mesh) = RewindableServer::start().await;
    let read = async |mesh: &Mesh| {
        let mut journal = mesh.journal(SHARD);
        let mut bodies = Vec::new();
        let each = |stored: Stored| {
            bodies.push(stored.body);
            Ok::<_, MeshError>(())
        };
        journal.replay(each).await.unwrap();
        (journal, bodies)
    };
    let (mut owner, _) = read(&mesh).await;
    owner.append("kept".into()).await.unwrap();
    server.keep().await;
    // The connection was lost, and the commit is there.
    assert_eq!(owner.append("lost".into()).await.unwrap(), 2);
    server.rewind().await;
    let next = started::connect(&server.server.url(), "next").await;
    let (mut other, bodies) = read(&next).await;
    assert_eq!(bodies, ["kept"]);
    assert_eq!(other.append("of another owner".into()).await.unwrap(), 2, "the same place");
    // The fence alone would let it pass: the journal ends where the owner knows it to end.
    let fenced = owner.append("of the first owner".into()).await.unwrap_err();
    assert!(matches!(fenced, AppendError::Fenced { shard: SHARD }), "{fenced}");
    assert_eq!(other.append("more".into()).await.unwrap(), 3);
    assert_eq!(read(&next).await.1, ["kept", "of another owner", "more"]);
}
