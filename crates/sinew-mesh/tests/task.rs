//! An agent's queue: shared work, words about it, and what happens when consumer, server or rights are missing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on")]

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use sinew_mesh::async_nats::jetstream::consumer::{AckPolicy, pull};
use sinew_mesh::async_nats::{self, HeaderMap};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::task::{MAX_DELIVERIES, queue_name};
use sinew_mesh::{Mesh, OutgoingMessage, Provision};
use sinew_protocol::Token;
use tokio::time::{interval, timeout};

use crate::started;

fn agent() -> Token {
    Token::of("reviewer")
}

async fn put(mesh: &Mesh, tasks: std::ops::Range<usize>) {
    let parcels = tasks.map(|n| OutgoingMessage {
        subject: started::task("reviewer", n),
        headers: HeaderMap::new(),
        body: Bytes::from(n.to_string()),
    });
    for put in mesh.tasks().put_all(parcels.collect()).await {
        put.unwrap();
    }
}

/// A consumer that loses patience quickly; a queue takes the one that is there.
async fn impatient(mesh: &Mesh, ack_wait: Duration) {
    let config = pull::Config {
        durable_name: Some(queue_name(&agent())),
        ack_policy: AckPolicy::Explicit,
        ack_wait,
        filter_subject: "test.v1.task.reviewer.>".to_owned(),
        ..pull::Config::default()
    };
    mesh.admin().jetstream().create_consumer_on_stream(config, "test_TASKS").await.unwrap();
}

async fn unanswered(mesh: &Mesh) -> (usize, u64) {
    let jetstream = mesh.admin().jetstream();
    let consumer =
        jetstream.get_consumer_from_stream::<pull::Config, _, _>(queue_name(&agent()), "test_TASKS");
    let info = consumer.await.unwrap().cached_info().clone();
    (info.num_ack_pending, info.num_pending)
}

#[tokio::test]
async fn a_task_comes_once_to_one_of_those_who_serve() {
    let (_server, mesh) = started::mesh().await;
    put(&mesh, 0..200).await;
    mesh.tasks().put_once(&started::task("other", 1), HeaderMap::new(), "".into()).await.unwrap();
    let (mut left, mut right) = (mesh.tasks().queue(&agent(), 4), mesh.tasks().queue(&agent(), 4));
    let mut bodies = Vec::new();
    let mut by = [0, 0];
    for _ in 0..200 {
        let (who, delivery) = tokio::select! {
            delivery = left.next() => (0, delivery),
            delivery = right.next() => (1, delivery),
        };
        by[who] += 1;
        assert_eq!((delivery.delivered(), delivery.agent.as_str()), (1, "reviewer"));
        assert_eq!(
            delivery.name,
            mesh.subject(&started::task(
                "reviewer",
                std::str::from_utf8(&delivery.body).unwrap().parse().unwrap()
            ))
        );
        delivery.ack().await.unwrap();
        bodies.push(delivery.body.clone());
    }
    assert!(by.iter().all(|count| *count > 20), "{by:?}");
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), 200);
    assert_eq!(unanswered(&mesh).await, (0, 0));
}

#[tokio::test]
async fn no_more_is_fetched_than_can_be_worked_on() {
    let (_server, mesh) = started::mesh().await;
    put(&mesh, 0..20).await;
    let mut queue = mesh.tasks().queue(&agent(), 3);
    let mut out = vec![queue.next().await, queue.next().await, queue.next().await];
    assert_eq!((queue.busy(), queue.try_next().is_none()), (3, true));
    assert_eq!(unanswered(&mesh).await, (3, 17), "the rest stays for others");
    for left in (0..17).rev() {
        let done = out.remove(0);
        done.ack().await.unwrap();
        drop(done);
        out.push(queue.next().await);
        assert_eq!(unanswered(&mesh).await, (3, left));
    }
}

#[tokio::test]
async fn a_task_that_is_handed_back_comes_again_and_one_that_is_ended_does_not() {
    let (_server, mesh) = started::mesh().await;
    put(&mesh, 0..2).await;
    let mut queue = mesh.tasks().queue(&agent(), 1);
    let first = queue.next().await;
    first.term("no\r\nmore").await.unwrap();
    drop(first);
    for delivered in 1..=MAX_DELIVERIES + 1 {
        let delivery = queue.next().await;
        assert_eq!((&delivery.body[..], delivery.delivered()), (&b"1"[..], delivered));
        assert_eq!(delivery.exhausted(), delivered > MAX_DELIVERIES, "{delivered}");
        delivery.nak(Duration::ZERO).await.unwrap();
    }
    let delivery = queue.next().await;
    delivery.ack().await.unwrap();
    delivery.ack().await.unwrap();
    assert_eq!(unanswered(&mesh).await, (0, 0));
}

#[tokio::test]
async fn whoever_says_that_the_work_goes_on_keeps_the_task() {
    let (_server, mesh) = started::mesh().await;
    impatient(&mesh, Duration::from_millis(400)).await;
    put(&mesh, 0..1).await;
    let (mut queue, mut other) = (mesh.tasks().queue(&agent(), 1), mesh.tasks().queue(&agent(), 1));
    let delivery = queue.next().await;
    let answers = delivery.answers();
    let beat = tokio::spawn(async move {
        let mut every = interval(Duration::from_millis(100));
        loop {
            every.tick().await;
            answers.progress().await.unwrap();
        }
    });
    assert!(timeout(Duration::from_millis(1_500), other.next()).await.is_err());
    beat.abort();
    let again = other.next().await;
    assert_eq!((again.delivered(), again.task.clone()), (2, delivery.task.clone()));
    again.ack().await.unwrap();
}

#[tokio::test]
async fn a_deleted_consumer_and_a_killed_server_are_repaired() {
    let (mut server, mesh) = started::mesh().await;
    let mut queue = mesh.tasks().queue(&agent(), 8);
    put(&mesh, 0..1).await;
    queue.next().await.ack().await.unwrap();
    let stream = mesh.admin().jetstream().get_stream("test_TASKS").await.unwrap();
    for round in 1..4 {
        if round == 2 {
            server.kill9().await.unwrap();
            server.restart().await.unwrap();
        } else {
            assert!(queue.try_next().is_none());
            stream.delete_consumer(&queue_name(&agent())).await.unwrap();
        }
        put(&mesh, round..round + 1).await;
        // A new consumer gives what is still stored again; agents know their tasks.
        loop {
            let delivery = queue.next().await;
            delivery.ack().await.unwrap();
            if delivery.body == round.to_string() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn an_agent_without_the_right_to_make_its_queue_waits_for_an_executor() {
    let config = r#"
        authorization { users: [
            { user: admin, password: a }
            { user: agent, password: b, permissions: {
                publish: { allow: ["$JS.API.CONSUMER.INFO.test_TASKS.agent-reviewer",
                                   "$JS.API.CONSUMER.MSG.NEXT.test_TASKS.agent-reviewer", "$JS.ACK.>"] }
                subscribe: { allow: ["_INBOX.>"] } } }
        ] }"#;
    let options = ServerOptions { config_extra: Some(config.to_owned()), ..ServerOptions::default() };
    let server = Server::start(options).await.unwrap();
    let connect = async |user: &str, password: &str| {
        let (denied, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let options = async_nats::ConnectOptions::with_user_and_password(user.into(), password.into());
        let options = options.event_callback(move |event| {
            let denied = denied.clone();
            async move {
                if event.to_string().to_lowercase().contains("permissions violation") {
                    let _ = denied.send(());
                }
            }
        });
        let client = options.connect(server.url()).await.unwrap();
        (Mesh::new(client, "test", user), async move { seen.recv().await })
    };
    let (admin, _) = connect("admin", "a").await;
    admin.admin().provision(&Provision::default()).await.unwrap();
    let (mesh, denied) = connect("agent", "b").await;
    let mut queue = mesh.tasks().queue(&agent(), 1);
    let waiting = tokio::spawn(async move {
        let delivery = queue.next().await;
        delivery.ack().await.unwrap();
        delivery.body.clone()
    });
    denied.await.unwrap();
    admin.tasks().make_queue(&agent()).await.unwrap();
    admin.tasks().make_queue(&agent()).await.unwrap();
    put(&admin, 7..8).await;
    assert_eq!(waiting.await.unwrap(), "7");
}

#[tokio::test]
async fn what_is_no_task_is_set_aside_and_does_not_come_again() {
    let (_server, mesh) = started::mesh().await;
    let mut aside = mesh.client().subscribe("test.v1.quarantine.>").await.unwrap();
    let garbage = mesh.admin().jetstream().publish("test.v1.task.reviewer.x", "?".into()).await.unwrap();
    garbage.await.unwrap();
    put(&mesh, 0..1).await;
    let mut queue = mesh.tasks().queue(&agent(), 1);
    let delivery = queue.next().await;
    assert_eq!(delivery.body, "0");
    delivery.ack().await.unwrap();
    assert_eq!(aside.next().await.unwrap().subject.as_str(), "test.v1.quarantine.TASKS.1");
    let found = mesh.quarantine().list(10).await.unwrap();
    assert_eq!((found.len(), found[0].subject.as_str()), (1, "test.v1.task.reviewer.x"));
}
