//! Logs of steps on a server: one record for each place, in order, for as long as it is wanted.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::time::Duration;

use bytes::Bytes;
use sinew_mesh::PutOutcome::{New, Same, Taken};
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::steps::{MAX_STEP_BYTES, MAX_STEPS, StepLogId};
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::stream::INLINE_LIMIT;
use sinew_protocol::{ActivationKey, Subject, Token};

use crate::started;

fn log(n: usize) -> StepLogId {
    let (execution, ..) = started::ids(n);
    let activation = ActivationKey::of::<&str>(&execution, "node", &[], 0);
    StepLogId { agent: Token::of("agent"), execution, activation }
}

fn subject(mesh: &Mesh, log: &StepLogId, place: u64) -> String {
    let StepLogId { agent, execution, activation } = log.clone();
    mesh.subject(&Subject::Step { agent, execution, activation, place })
}

async fn texts(mesh: &Mesh, log: &StepLogId, from: u64) -> Vec<String> {
    let records = mesh.tasks().steps().read(log, from).await.unwrap();
    records.iter().map(|record| String::from_utf8(record.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn each_place_takes_one_record_and_logs_read_in_order() {
    let (_server, mesh) = started::mesh().await;
    let steps = mesh.tasks().steps();
    assert_eq!(texts(&mesh, &log(1), 0).await, Vec::<String>::new());
    // More than are asked for at once.
    let many: Vec<String> = (0..150).map(|place| format!("record {place}")).collect();
    for (place, record) in many.iter().enumerate() {
        let put = steps.append(&log(1), place as u64, record.clone().into(), None).await.unwrap();
        assert_eq!(put, New);
    }
    assert_eq!(texts(&mesh, &log(1), 0).await, many);
    assert_eq!(texts(&mesh, &log(1), 149).await, ["record 149"]);
    assert_eq!(texts(&mesh, &log(2), 0).await, Vec::<String>::new(), "logs are apart");
    // The fence: what another process has written stays, the own record may be written again.
    assert_eq!(steps.append(&log(1), 149, "record 149".into(), None).await.unwrap(), Same);
    assert_eq!(steps.append(&log(1), 149, "another".into(), None).await.unwrap(), Taken);
    let both = ["a", "b"].map(|body| {
        let steps = steps.clone();
        async move { steps.append(&log(1), 150, body.into(), None).await.unwrap() }
    });
    let mut both = futures_util::future::join_all(both).await;
    both.sort_by_key(|put| *put == Taken);
    assert_eq!(both, [New, Taken]);
}

#[tokio::test]
async fn large_records_lie_in_the_artifact_store() {
    let (_server, mesh) = started::mesh().await;
    let steps = mesh.tasks().steps();
    let large = Bytes::from(vec![b'x'; INLINE_LIMIT + 1]);
    for expected in [New, Same] {
        assert_eq!(steps.append(&log(1), 0, large.clone(), None).await.unwrap(), expected);
    }
    let other = Bytes::from(vec![b'y'; INLINE_LIMIT + 1]);
    assert_eq!(steps.append(&log(1), 0, other, None).await.unwrap(), Taken);
    assert_eq!(steps.read(&log(1), 0).await.unwrap(), std::slice::from_ref(&large));
    // A record that names the object of another log is not believed.
    let stolen = mesh.admin().jetstream().get_stream("test_STEPS").await.unwrap();
    let message = stolen.direct_get_last_for_subject(subject(&mesh, &log(1), 0)).await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("Sinew-Object", message.payload.iter().map(|b| *b as char).collect::<String>());
    let jetstream = mesh.admin().jetstream();
    let stored = jetstream.publish_with_headers(subject(&mesh, &log(2), 0), headers, message.payload);
    stored.await.unwrap().await.unwrap();
    let error = steps.read(&log(2), 0).await.unwrap_err();
    assert!(matches!(error, MeshError::Damaged { .. }), "{error}");

    let huge = Bytes::from(vec![0; MAX_STEP_BYTES + 1]);
    let refused = steps.append(&log(1), 1, huge, None).await.unwrap_err();
    assert!(matches!(refused, MeshError::TooLarge { .. }), "{refused}");
    let refused = steps.append(&log(1), MAX_STEPS, "x".into(), None).await.unwrap_err();
    assert!(matches!(refused, MeshError::TooManySteps { .. }), "{refused}");
}

#[tokio::test]
async fn records_go_when_their_time_is_over() {
    let (_server, mesh) = started::mesh().await;
    let steps = mesh.tasks().steps();
    steps.append(&log(1), 0, "short".into(), Some(Duration::from_millis(10))).await.unwrap();
    steps.append(&log(2), 0, "long".into(), Some(Duration::from_hours(1))).await.unwrap();
    let gone = async {
        while !texts(&mesh, &log(1), 0).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
    assert_eq!(texts(&mesh, &log(2), 0).await, ["long"]);
}

#[tokio::test]
async fn answers_that_the_server_was_made_to_store_are_no_records() {
    let (_server, mesh) = started::mesh().await;
    mesh.tasks().steps().append(&log(1), 0, "theirs".into(), None).await.unwrap();
    // Reading a message with the victim's subject as the place for the answer.
    let stored = subject(&mesh, &log(1), 0);
    let client = mesh.client();
    let call = format!("$JS.API.DIRECT.GET.test_STEPS.{stored}");
    client.publish_with_reply(call, subject(&mesh, &log(2), 0), "".into()).await.unwrap();
    let damaged = async {
        loop {
            match mesh.tasks().steps().read(&log(2), 0).await {
                Ok(records) => assert_eq!(records, Vec::<Bytes>::new()),
                Err(error) => return error,
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(20), damaged).await.unwrap();
    assert!(matches!(error, MeshError::Damaged { .. }), "{error}");
}
