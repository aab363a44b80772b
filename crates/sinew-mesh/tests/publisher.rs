//! Messages that a loop stores without waiting: acknowledged over one subscription, or in doubt.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use sinew_mesh::history::ClosedExecution;
use sinew_mesh::publisher::{PublishTicket, StreamPublisher};
use sinew_mesh::{AppendError, HeaderMap, Journal, Mesh, MeshError, PutOutcome};
use sinew_protocol::ExecutionId;
use sinew_protocol::start::StartAnswer;
use sinew_protocol::usage::ModelTotals;

use crate::started;

async fn read(journal: &mut Journal) -> Vec<Bytes> {
    let mut all = Vec::new();
    let each = |stored: sinew_mesh::Stored| {
        all.push(stored.body);
        Ok::<_, MeshError>(())
    };
    journal.replay(each).await.unwrap();
    all
}

async fn opened(mesh: &Mesh) -> Journal {
    let mut journal = mesh.journal(0);
    read(&mut journal).await;
    journal
}

/// The place of a message that was acknowledged as stored.
async fn stored(publisher: &mut StreamPublisher, ticket: Option<PublishTicket>) -> Option<u64> {
    let report = publisher.next().await.unwrap();
    assert_eq!(Some(report.ticket), ticket, "acknowledgements tell their messages");
    report.stored
}

#[tokio::test]
async fn a_message_is_stored_once_however_it_is_sent() {
    let (_server, mesh) = started::mesh().await;
    let mut publisher = StreamPublisher::open(&mesh).await.unwrap();
    let (subject, headers) = (started::task("agent", 1), HeaderMap::new);
    let first = publisher.send_once(&subject, headers(), "a".into()).await;
    assert!(stored(&mut publisher, first).await.is_some());
    let again = publisher.send_once(&subject, headers(), "a".into()).await;
    assert_eq!(stored(&mut publisher, again).await, None, "what is there already is in doubt");
    assert_eq!(mesh.tasks().put_once(&subject, headers(), "a".into()).await.unwrap(), PutOutcome::Same);
    assert_eq!(mesh.tasks().put_once(&subject, headers(), "b".into()).await.unwrap(), PutOutcome::Taken);
    assert_eq!(started::messages(&mesh, "TASKS").await, 1);
}

#[tokio::test]
async fn a_body_that_was_sent_is_appended_once_and_fenced() {
    let (_server, mesh) = started::mesh().await;
    let mut publisher = StreamPublisher::open(&mesh).await.unwrap();
    let (mut one, mut two) = (opened(&mesh).await, opened(&mesh).await);
    let ticket = one.send(&mut publisher, "a".into()).await.unwrap();
    assert_eq!(one.position(), None, "nothing is known until it is acknowledged");
    let place = stored(&mut publisher, ticket).await.unwrap();
    one.handle_stored(place);
    assert_eq!(one.position(), Some(place));

    let ticket = two.send(&mut publisher, "other".into()).await.unwrap();
    assert_eq!(stored(&mut publisher, ticket).await, None);
    assert!(matches!(two.settle().await, Err(AppendError::Fenced { .. })));

    // An acknowledgement that is never heard: the stored message decides.
    one.send(&mut publisher, "b".into()).await.unwrap();
    assert_eq!(one.settle().await.unwrap(), place + 1);
    assert_eq!(read(&mut one).await, ["a", "b"]);
    assert_eq!(one.append("c".into()).await.unwrap(), place + 2);
}

#[tokio::test]
async fn a_large_body_is_appended_in_parts() {
    let (_server, mesh) = started::mesh().await;
    let mut publisher = StreamPublisher::open(&mesh).await.unwrap();
    let mut journal = opened(&mesh).await;
    let large = Bytes::from(vec![7; 3 << 20]);
    assert_eq!(journal.send(&mut publisher, large.clone()).await.unwrap(), None);
    journal.settle().await.unwrap();
    assert_eq!(read(&mut journal).await, [large]);
}

#[tokio::test]
async fn a_record_is_sent_where_none_is() {
    let (_server, mesh) = started::mesh().await;
    let mut publisher = StreamPublisher::open(&mesh).await.unwrap();
    let closed = |entries| ClosedExecution {
        execution: ExecutionId::of("test", "caller", "1"),
        workflow: "w".to_owned(),
        status: "success".to_owned(),
        started: 1,
        ended: 2,
        caller: "cli".to_owned(),
        entries,
        usage: ModelTotals::default(),
        fault_code: None,
        plan: None,
        is_dry_run: false,
        route: None,
        attributes: sinew_protocol::attributes::ExecutionAttributes::default(),
    };
    let first = mesh.history().send(&mut publisher, &closed(2), "first".into()).await;
    assert!(stored(&mut publisher, first).await.is_some());
    let longer = mesh.history().send(&mut publisher, &closed(4), "longer".into()).await;
    assert_eq!(stored(&mut publisher, longer).await, None, "another record is there");
    mesh.history().put(&closed(4), "longer".into()).await.unwrap();
    mesh.history().put(&closed(2), "first".into()).await.unwrap();
    let found = mesh.history().get(&closed(0).execution).await.unwrap();
    // Without a route and attributes, the record is that of an older release.
    let mut wanted = closed(4);
    wanted.attributes.incomplete = true;
    assert_eq!(found, Some((wanted, Bytes::from_static(b"longer"))));
}

#[tokio::test]
async fn a_start_is_answered_by_the_owner_of_its_shard() {
    let (_server, mesh) = started::mesh().await;
    let (id, headers) = (sinew_protocol::Token::of("e"), HeaderMap::new);
    assert_eq!(
        mesh.services().request_start(1, &id, headers(), "{}".into()).await.unwrap(),
        None,
        "nobody listens"
    );
    let mut requests = mesh.services().serve_starts(1).await.unwrap();
    let answer = StartAnswer::Stored { new: true, time: 7 };
    let serve = async {
        let request = requests.next().await.unwrap();
        assert_eq!((request.caller.as_str(), request.id.as_str()), ("tester", "e"));
        assert_eq!(request.body, "{}");
        mesh.services().answer_start(request.reply, &answer).await.unwrap();
    };
    let (asked, ()) = tokio::join!(mesh.services().request_start(1, &id, headers(), "{}".into()), serve);
    assert_eq!(asked.unwrap(), Some(answer));
    assert!(requests.try_next().is_none());
}
