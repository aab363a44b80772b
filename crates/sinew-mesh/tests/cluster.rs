//! Conditional writes into streams with three copies: a race while a message is being stored, and an acknowledgement that
//! is lost with the server that led the stream.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where it cannot go on"
)]

use std::time::Duration;

use serde_json::Value;
use sinew_mesh::async_nats::{HeaderMap, HeaderValue};
use sinew_mesh::server::ServerOptions;
use sinew_mesh::server_group::ServerGroup;
use sinew_mesh::{AppendError, Journal, Mesh, MeshError, Provision, PutOutcome};
use sinew_protocol::Subject;
use tokio::time::timeout;

use crate::started::{self, Wire};

/// Stream of the journals.
const JOURNAL: &str = "test_JOURNAL";
/// Stream of the tasks.
const TASKS: &str = "test_TASKS";
/// More than servers take to agree, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(90);

/// Three servers with a mesh of three copies.
async fn cluster() -> (ServerGroup, Mesh) {
    let group = ServerGroup::start(ServerOptions::default(), Some(3)).await.unwrap();
    let mesh = started::connect(&group.members()[0].url(), "tester").await;
    mesh.admin().provision(&Provision { replicas: Some(3), ..Provision::default() }).await.unwrap();
    (group, mesh)
}

/// The member that leads a stream.
async fn leader_of(group: &ServerGroup, mesh: &Mesh, stream: &str) -> usize {
    loop {
        if let Some(leader) = group.leader_of(&mesh.admin().jetstream(), stream).await {
            return leader;
        }
    }
}

async fn opened(mesh: &Mesh, shard: u32) -> Journal {
    let mut journal = mesh.journal(shard);
    journal.replay(|_| Ok::<_, MeshError>(())).await.unwrap();
    journal
}

/// The messages of a journal. Servers that have no leader yet do not answer; they are asked again.
async fn bodies(mesh: &Mesh, shard: u32) -> Vec<String> {
    let read = async {
        loop {
            let mut bodies = Vec::new();
            let each = |stored: sinew_mesh::Stored| {
                bodies.push(String::from_utf8(stored.body.to_vec()).unwrap());
                Ok::<_, MeshError>(())
            };
            if mesh.journal(shard).replay(each).await.is_ok() {
                return bodies;
            }
        }
    };
    timeout(PATIENCE, read).await.expect("the journal cannot be read")
}

/// How many tasks are stored. Servers that have no leader yet do not answer; they are asked again.
async fn stored_tasks(mesh: &Mesh) -> u64 {
    let jetstream = mesh.admin().jetstream();
    let read = async {
        loop {
            if let Ok(stream) = jetstream.get_stream(TASKS).await {
                return stream.cached_info().state.messages;
            }
        }
    };
    timeout(PATIENCE, read).await.expect("the stream of tasks cannot be read")
}

/// The code with which the server refuses a write behind a place that no subject of these tests reaches.
async fn refusal(mesh: &Mesh, subject: &str) -> (u64, String) {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Subject-Sequence", HeaderValue::from(999_999_u64));
    let answer =
        mesh.client().request_with_headers(subject.to_owned(), headers, "never stored".into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    (
        answer["error"]["err_code"].as_u64().unwrap(),
        answer["error"]["description"].as_str().unwrap().to_owned(),
    )
}

/// Waits until the server refuses writes of the subject because one is being stored.
async fn being_stored(mesh: &Mesh, subject: &str) -> String {
    let until_refused = async {
        loop {
            match refusal(mesh, subject).await {
                (10_164, words) => return words,
                (10_071, _) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    timeout(PATIENCE, until_refused).await.expect("the server never says that a message is being stored")
}

/// While most copies are halted, the leader holds a message that is neither stored nor refused. A second writer of the same
/// subject hears error 10164 then, and must not conclude from it who has won.
#[tokio::test]
async fn a_race_on_a_message_that_is_being_stored_has_one_winner() {
    let (group, mesh) = cluster().await;
    let leader = leader_of(&group, &mesh, JOURNAL).await;
    // Connections to the leader: the other members will not pass on anything.
    let url = group.members()[leader].url();
    let [first, second, probe] = [
        started::connect(&url, "a").await,
        started::connect(&url, "b").await,
        started::connect(&url, "c").await,
    ];
    let [mut one, mut other] = [opened(&first, 0).await, opened(&second, 0).await];
    let subject = mesh.subject(&Subject::Journal { shard: 0 });
    assert_eq!(refusal(&probe, &subject).await.0, 10_071, "nothing is being stored yet");
    for (nth, member) in group.members().iter().enumerate() {
        if nth != leader {
            member.pause().await.unwrap();
        }
    }
    let winning = tokio::spawn(async move { one.append("one".into()).await });
    let words = being_stored(&probe, &subject).await;
    assert_eq!(words, "wrong last sequence", "error 10164");
    let losing = tokio::spawn(async move { other.append("other".into()).await });
    for member in group.members() {
        let _ = member.resume();
    }
    let winner = timeout(PATIENCE, winning).await.unwrap().unwrap();
    let loser = timeout(PATIENCE, losing).await.unwrap().unwrap();
    let stored = bodies(&mesh, 0).await;
    match (winner, loser) {
        (Ok(_), Err(AppendError::Fenced { shard: 0 })) => assert_eq!(stored, ["one"]),
        // The leader may have changed before the first message was in most copies.
        (Err(AppendError::Fenced { shard: 0 }), Ok(_)) => assert_eq!(stored, ["other"]),
        ends => panic!("{ends:?}: {stored:?}"),
    }
}

/// The server takes a message, and is killed before its client hears of it. The client reads back from the next leader what
/// became of the message.
#[tokio::test]
async fn an_acknowledgement_that_is_lost_with_the_leader_is_read_back() {
    let (mut group, mesh) = cluster().await;
    // Streams of one mesh may have several leaders: one wire to each.
    let (journals, tasks) = (leader_of(&group, &mesh, JOURNAL).await, leader_of(&group, &mesh, TASKS).await);
    let journal_wire = Wire::to(&group.members()[journals]).await;
    let task_wire = Wire::to(&group.members()[tasks]).await;
    let writer = started::connect(&journal_wire.url, "a").await;
    let sender = started::connect(&task_wire.url, "b").await;
    let mut journal = opened(&writer, 0).await;
    let before = journal.position().unwrap();
    journal_wire.deafen();
    task_wire.deafen();
    let appending = tokio::spawn(async move { (journal.append("one".into()).await, journal.position()) });
    let task = started::task("agent", 1);
    let putting =
        tokio::spawn(async move { sender.tasks().put_once(&task, HeaderMap::new(), "task".into()).await });
    let both_stored = async { while bodies(&mesh, 0).await.is_empty() || stored_tasks(&mesh).await == 0 {} };
    timeout(PATIENCE, both_stored).await.expect("the messages are not stored");
    let leaders: std::collections::BTreeSet<usize> = [journals, tasks].into();
    for leader in &leaders {
        group.members_mut()[*leader].kill9().await.unwrap();
    }
    if leaders.len() > 1 {
        // Without it no leader can be chosen.
        group.members_mut()[tasks].restart().await.unwrap();
    }
    let (appended, position) = timeout(PATIENCE, appending).await.unwrap().unwrap();
    assert!(appended.unwrap() > before);
    assert!(position > Some(before));
    assert_eq!(timeout(PATIENCE, putting).await.unwrap().unwrap().unwrap(), PutOutcome::Same);
    assert_eq!(bodies(&mesh, 0).await, ["one"], "stored once");
    assert_eq!(stored_tasks(&mesh).await, 1, "stored once");
}
