//! A consumer that was idle for longer than the server keeps a pull request receives later
//! messages; readers detect a consumer that exists but delivers nothing.

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use sinew_protocol::journal::Positions;
use sinew_protocol::subject::Operation;
use sinew_protocol::{ActivationKey, ExecutionId, Subject, TaskId, Token};

use time::OffsetDateTime;

use super::*;
use crate::Provision;
use crate::server::{Server, ServerOptions};
use crate::server_group::ServerGroup;
use crate::stream::follow::{self, FollowedItem, follow};

/// Idle time: longer than the lifetime of a request, so that the next one is tested.
const IDLE: Duration = EXPIRES.saturating_mul(5).checked_div(2).unwrap();
/// Timeout on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn mesh() -> (Server, Mesh) {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let mesh = Mesh::new(async_nats::connect(server.url()).await.unwrap(), "test", "tester");
    mesh.admin().provision(&Provision::default()).await.unwrap();
    (server, mesh)
}

#[tokio::test]
async fn an_idle_inbox_hears() {
    let (_server, mesh) = mesh().await;
    let mut inbox = mesh.commands().inbox(1, Positions::at(0, 0)).await.unwrap();
    let mut next = Box::pin(inbox.next());
    timeout(IDLE, &mut next).await.unwrap_err();
    let (operation, caller) = (Operation::Start, Token::of("tester"));
    let command = Subject::Command { shard: 1, operation, caller, id: Token::of("x") };
    mesh.put_once(&command, HeaderMap::new(), "{}".into()).await.unwrap();
    assert_eq!(timeout(PATIENCE, next).await.unwrap().unwrap().subject, Some(command));
}

#[tokio::test]
async fn an_idle_queue_hears() {
    let (_server, mesh) = mesh().await;
    let agent = Token::of("reviewer");
    let mut queue = mesh.tasks().queue(&agent, 1);
    let mut next = Box::pin(queue.next());
    timeout(IDLE, &mut next).await.unwrap_err();
    let execution = ExecutionId::of("test", "tester", "k");
    let task = TaskId::of(&execution, &ActivationKey::of::<&str>(&execution, "node", &[], 0), 1);
    let subject = Subject::Task { agent, execution, task: task.clone() };
    mesh.put_once(&subject, HeaderMap::new(), "{}".into()).await.unwrap();
    assert_eq!(timeout(PATIENCE, next).await.unwrap().task, task);
}

async fn cluster() -> (ServerGroup, Mesh) {
    let group = ServerGroup::start(ServerOptions::default(), Some(3)).await.unwrap();
    let mesh = Mesh::new(
        async_nats::connect(group.url().split(',').next().unwrap()).await.unwrap(),
        "test",
        "tester",
    );
    mesh.admin().provision(&Provision { replicas: Some(3), ..Provision::default() }).await.unwrap();
    (group, mesh)
}

/// Pauses all consumers of a stream, like a consumer that reads from a replica that is being
/// restored: alive, with heartbeats, but without deliveries.
async fn pause_consumers(mesh: &Mesh, stream: &str) {
    let client = mesh.client();
    let names = client.request(format!("$JS.API.CONSUMER.NAMES.{stream}"), "".into()).await.unwrap();
    let names: serde_json::Value = serde_json::from_slice(&names.payload).unwrap();
    for name in names["consumers"].as_array().unwrap() {
        let call = format!("$JS.API.CONSUMER.PAUSE.{stream}.{}", name.as_str().unwrap());
        let paused = client.request(call, r#"{"pause_until":"2100-01-01T00:00:00Z"}"#.into()).await.unwrap();
        assert!(String::from_utf8_lossy(&paused.payload).contains(r#""paused":true"#), "{paused:?}");
    }
}

#[tokio::test]
async fn an_inbox_in_a_cluster_goes_on_when_its_consumer_delivers_nothing() {
    let (_group, mesh) = cluster().await;
    let mut inbox = mesh.commands().inbox(1, Positions::at(0, 0)).await.unwrap();
    let start = |id: &str| {
        let (operation, caller) = (Operation::Start, Token::of("tester"));
        Subject::Command { shard: 1, operation, caller, id: Token::of(id) }
    };
    mesh.put_once(&start("a"), HeaderMap::new(), "{}".into()).await.unwrap();
    assert_eq!(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().subject, Some(start("a")));
    pause_consumers(&mesh, "test_COMMANDS").await;
    mesh.put_once(&start("b"), HeaderMap::new(), "{}".into()).await.unwrap();
    assert_eq!(timeout(PATIENCE, inbox.next()).await.unwrap().unwrap().subject, Some(start("b")));
}

#[tokio::test]
async fn a_view_in_a_cluster_goes_on_when_its_consumer_delivers_nothing() {
    let (_group, mesh) = cluster().await;
    let source = follow::Source {
        stream: "test_CARDS".to_owned(),
        filter: sinew_protocol::subject::below("test", &["card"]),
        from: DeliverPolicy::LastPerSubject,
        tick: Duration::from_millis(100),
    };
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    let _following = follow(mesh.clone(), source, move |item| match item {
        FollowedItem::Message { subject, .. } => drop(say.send(subject)),
        FollowedItem::Whole => drop(say.send("whole".to_owned())),
        FollowedItem::Begin | FollowedItem::Tick => {}
    });
    assert_eq!(timeout(PATIENCE, said.recv()).await.unwrap().unwrap(), "whole");
    pause_consumers(&mesh, "test_CARDS").await;
    let card = mesh.subject(&Subject::Card { agent: Token::of("late") });
    mesh.jetstream().publish(card.clone(), "{}".into()).await.unwrap().await.unwrap();
    assert_eq!(timeout(PATIENCE, said.recv()).await.unwrap().unwrap(), card);
    assert_eq!(timeout(PATIENCE, said.recv()).await.unwrap().unwrap(), "whole");
}

/// The view stops at its first message until the server is halted: the unsent messages are missing,
/// and missed heartbeats do not make the view complete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_is_not_whole_while_a_halted_server_has_the_rest() {
    const CARDS: usize = 2_000;
    let (server, mesh) = mesh().await;
    for n in 0..CARDS {
        let card = mesh.subject(&Subject::Card { agent: Token::of(&format!("agent{n}")) });
        mesh.client().publish(card, "{}".into()).await.unwrap();
    }
    let source = follow::Source {
        stream: "test_CARDS".to_owned(),
        filter: sinew_protocol::subject::below("test", &["card"]),
        from: DeliverPolicy::LastPerSubject,
        tick: Duration::from_millis(20),
    };
    let stored =
        async { while mesh.stream_info("test_CARDS").await.unwrap().unwrap().state.messages < 2_000 {} };
    timeout(PATIENCE, stored).await.unwrap();
    let (started, is_started) = tokio::sync::oneshot::channel();
    let (go_on, halted) = std::sync::mpsc::channel::<()>();
    let (say, mut said) = tokio::sync::mpsc::unbounded_channel();
    let mut started = Some(started);
    let _following = follow(mesh.clone(), source, move |item| match item {
        FollowedItem::Message { .. } => {
            if let Some(started) = started.take() {
                started.send(()).unwrap();
                tokio::task::block_in_place(|| halted.recv().unwrap());
            }
            let _ = say.send("message");
        }
        FollowedItem::Begin => drop(say.send("begin")),
        FollowedItem::Whole => drop(say.send("whole")),
        FollowedItem::Tick => {}
    });
    is_started.await.unwrap();
    server.pause().await.unwrap();
    go_on.send(()).unwrap();
    let whole = async {
        let mut messages = 0;
        loop {
            match said.recv().await.unwrap() {
                "whole" => return messages,
                "begin" => messages = 0,
                _ => messages += 1,
            }
        }
    };
    let mut whole = std::pin::pin!(whole);
    // Much longer than the pause after which the view queries for remaining messages.
    let early = timeout(Duration::from_secs(2), &mut whole).await;
    assert!(early.is_err(), "a view with {early:?} of {CARDS} messages is called whole");
    server.resume().unwrap();
    assert_eq!(timeout(PATIENCE, whole).await.unwrap(), CARDS);
}

#[tokio::test]
async fn a_sweep_tells_all_or_fails_when_its_consumer_delivers_nothing() {
    let (_server, mesh) = mesh().await;
    let card = |name: &str| mesh.subject(&Subject::Card { agent: Token::of(name) });
    for name in ["one", "two"] {
        mesh.jetstream().publish(card(name), "{}".into()).await.unwrap().await.unwrap();
    }
    let swept = async |paused: Duration| {
        let config = pull::Config {
            filter_subject: sinew_protocol::subject::below("test", &["card"]),
            deliver_policy: DeliverPolicy::LastPerSubject,
            pause_until: Some(OffsetDateTime::now_utc() + paused),
            ..follow::quiet()
        };
        let mut subjects = Vec::new();
        let sweep = follow::sweep_with(&mesh, "test_CARDS", config, |message| {
            subjects.push(message.subject.to_string());
            true
        });
        sweep.await.map(|()| subjects)
    };
    assert_eq!(swept(Duration::from_millis(300)).await.unwrap(), [card("one"), card("two")]);
    assert!(matches!(swept(Duration::from_hours(1)).await, Err(MeshError::Unreachable { .. })));
}
