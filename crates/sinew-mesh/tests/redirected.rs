//! Messages that a third party makes the server redirect to a subject of the mesh: they carry a mark, and readers ignore
//! them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on")]

use std::time::Duration;

use futures_util::StreamExt as _;
use sinew_mesh::Mesh;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_protocol::journal::Positions;
use sinew_protocol::subject::Operation;
use sinew_protocol::{Subject, Token};
use tokio::time::timeout;

use crate::started;

const SOON: Duration = Duration::from_secs(20);

/// Two messages under subjects that differ in nothing that matters: what the server was made to send, and a true one.
async fn both(mesh: &Mesh, forged: &Subject, own: &Subject) {
    // The bytes come out of the store of artifacts, whose readers and writers agents are.
    let piece = "test.v1.artifact.g.bytes";
    // The second time the subject has its message already.
    let _ = mesh.admin().jetstream().publish(piece, "{}".into()).await.unwrap().await;
    let before = stored(mesh, forged).await;
    let call = format!("$JS.API.DIRECT.GET.test_ARTIFACTS.{piece}");
    mesh.client().publish_with_reply(call, mesh.subject(forged), "".into()).await.unwrap();
    timeout(SOON, async { while stored(mesh, forged).await == before {} })
        .await
        .unwrap_or_else(|_| panic!("the server did not deliver to {}", mesh.subject(forged)));
    let said =
        mesh.admin().jetstream().publish_with_headers(mesh.subject(own), HeaderMap::new(), "{}".into()).await;
    said.unwrap().await.unwrap();
}

/// Messages in the stream of a subject.
async fn stored(mesh: &Mesh, of: &Subject) -> u64 {
    let kind = match of {
        Subject::Task { .. } => "TASKS",
        Subject::Command { .. } => "COMMANDS",
        _ => "EVENTS",
    };
    let stream = mesh.admin().jetstream().get_stream(format!("test_{kind}")).await.unwrap();
    stream.cached_info().state.messages
}

#[tokio::test]
async fn nobody_takes_it_for_a_message() {
    let (_server, mesh) = started::mesh().await;
    mesh.admin()
        .provision(&sinew_mesh::Provision { keep_events: Some(true), ..Default::default() })
        .await
        .unwrap();
    let agent = Token::of("a");
    let task = |n: usize| {
        let (execution, task, _) = started::ids(n);
        Subject::Task { agent: agent.clone(), execution, task }
    };
    both(&mesh, &task(1), &task(2)).await;
    let delivery = timeout(SOON, mesh.tasks().queue(&agent, 2).next()).await.expect("the true task");
    assert_eq!(delivery.task, started::ids(2).1);

    let command = |n: usize| Subject::Command {
        shard: 0,
        operation: Operation::Cancel,
        caller: Token::of("admin"),
        id: Token::of(&n.to_string()),
    };
    both(&mesh, &command(1), &command(2)).await;
    let mut inbox = mesh.commands().inbox(0, Positions::default()).await.unwrap();
    for wanted in [None, Some(command(2))] {
        let received = timeout(SOON, inbox.next()).await.expect("a command").unwrap();
        assert_eq!(received.subject, wanted, "{}", received.name);
    }

    let event = |n: usize| Subject::Event {
        workflow: Token::of("w"),
        execution: started::ids(n).0,
        kind: Token::of("command"),
    };
    both(&mesh, &event(1), &event(2)).await;
    let mut events = mesh.events().follow(&EventFilter::default(), EventStart::Beginning).await.unwrap();
    assert_eq!(timeout(SOON, events.next()).await.expect("an event").execution, started::ids(2).0);

    // The same where events are not kept, and heard as they are told.
    let plain = Mesh::new(mesh.client(), "plain", "tester");
    plain.admin().provision(&sinew_mesh::Provision::default()).await.unwrap();
    let mut events = plain.events().follow(&EventFilter::default(), EventStart::Beginning).await.unwrap();
    let mut raw = mesh.client().subscribe(plain.subject(&event(1))).await.unwrap();
    let asked = serde_json::json!({ "last_by_subj": mesh.subject(&task(2)) }).to_string();
    let call = "$JS.API.DIRECT.GET.test_TASKS";
    mesh.client().publish_with_reply(call, plain.subject(&event(1)), asked.into()).await.unwrap();
    timeout(SOON, raw.next()).await.expect("the server delivers there").unwrap();
    plain.events().publish(&event(2), HeaderMap::new(), "{}".into()).await.unwrap();
    assert_eq!(timeout(SOON, events.next()).await.expect("an event").execution, started::ids(2).0);

    // The task was set aside by its agent; commands are by their executor.
    let aside = async {
        loop {
            if let [one] = &mesh.quarantine().list(10).await.unwrap()[..] {
                return one.subject.clone();
            }
        }
    };
    let subject = timeout(SOON, aside).await.expect("the forged task in quarantine");
    assert_eq!(subject, format!("redirected.{}", mesh.subject(&task(1))));
}
