//! Garbage on every subject: it ends in the quarantine or is ignored, and good messages go on beside it.

use bytes::Bytes;
use serde_json::json;
use sinew_agent::Delivery;
use sinew_mesh::server::ServerOptions;
use sinew_protocol::ExecutionId;
use sinew_protocol::subject::Operation;

use crate::faults::agents::begun;
use crate::faults::audit::{CHAIN, succeeded};
use crate::support::mesh::TestMesh;

/// Bodies that mean nothing, anywhere.
fn bodies() -> Vec<Bytes> {
    vec![
        Bytes::new(),
        Bytes::from_static(b"\x00\xff\xfe"),
        Bytes::from_static(b"{"),
        Bytes::from_static(b"null"),
        Bytes::from_static(b"[]"),
        Bytes::from_static(b"\"text\""),
        format!("{}{}", "[".repeat(20_000), "]".repeat(20_000)).into(),
        format!("{}1{}", "{\"a\":".repeat(20_000), "}".repeat(20_000)).into(),
        json!({ "execution": "x".repeat(10_000) }).to_string().into(),
        json!({ "jsonrpc": "2.0", "id": null, "method": "SendMessage", "params": { "message": 1 } })
            .to_string()
            .into(),
        vec![b'x'; 700_000].into(),
    ]
}

#[tokio::test]
async fn garbage_everywhere() {
    let mesh = TestMesh::with(ServerOptions::default(), 2).await;
    mesh.deploy("chain", CHAIN).await;
    let words = [("one", json!({ "pass": true })), ("two", json!({ "pass": true }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let mut executor = mesh.executor_process("one").await;
    let client = mesh.client().await;
    let vandal = mesh.connect("vandal").await;
    let ns = mesh.namespace.clone();
    let ghost = ExecutionId::of(&ns, "vandal", "ghost");
    let id = |nth: usize| format!("{:032x}", nth + 1);
    let mut sent = 0;
    let mut stored = 0;
    let mut good = Vec::new();
    for (nth, body) in bodies().into_iter().enumerate() {
        good.push(begun(&client, &format!("good{nth}"), "chain", json!({ "value": nth })).await);
        let mut subjects = Vec::new();
        for shard in 0..2 {
            for operation in Operation::ALL {
                subjects.push(format!("{ns}.v1.command.{shard}.{}.vandal.{}", operation.as_str(), id(nth)));
            }
            subjects.extend([
                format!("{ns}.v1.command.{shard}.explode.vandal.{}", id(nth)),
                format!("{ns}.v1.command.{shard}.start.vandal"),
                format!("{ns}.v1.command.{shard}.start.vandal.{}.more", id(nth)),
                format!("{ns}.v1.result.{shard}.one.{ghost}.{}.{}", id(nth), id(nth)),
                format!("{ns}.v1.result.{shard}.one.x{nth}"),
                format!("{ns}.v1.result.{shard}"),
                format!("{ns}.v1.query.{shard}"),
            ]);
        }
        subjects.extend([
            format!("{ns}.v1.command.99.start.vandal.{}", id(nth)),
            format!("{ns}.v1.command.x.start.vandal.{}", id(nth)),
            format!("{ns}.v1.task.one.{ghost}.{}", id(nth)),
            format!("{ns}.v1.task.one.{nth}"),
            format!("{ns}.v1.event.chain.{ghost}.boom{nth}"),
            format!("{ns}.v1.card.vandal{nth}"),
            format!("{ns}.v1.card.one"),
            format!("{ns}.v1.rpc.one.SendMessage.vandal"),
            format!("{ns}.v1.rpc.one.Explode.vandal"),
            format!("{ns}.v1.progress.{ghost}.{}", id(nth)),
            format!("{ns}.v1.control.one.{}", id(nth)),
            format!("{ns}.v1.workflow.chain{nth}"),
            format!("{ns}.v1.quarantine.RESULTS.{nth}"),
            format!("{ns}.v1.history.{ghost}"),
        ]);
        for subject in subjects {
            sent += 1;
            let kind = subject.split('.').nth(2).unwrap();
            if ["query", "rpc", "progress", "control"].contains(&kind) {
                vandal.client().publish(subject, body.clone()).await.unwrap();
                continue;
            }
            let publish = vandal.admin().jetstream().publish(subject, body.clone()).await.unwrap();
            stored += usize::from(publish.await.is_ok());
        }
    }
    assert!(stored > sent / 2, "most of the garbage was not taken: {stored} of {sent}");
    for (nth, execution) in good.iter().enumerate() {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": nth }), "good messages suffer");
    }
    let aside = mesh.mesh.quarantine().list(5_000).await.unwrap();
    let of = |stream: &str| aside.iter().filter(|one| one.stream == stream).count();
    println!(
        "{sent} messages of garbage, {stored} stored; set aside: {} commands, {} results, {} tasks",
        of("COMMANDS"),
        of("RESULTS"),
        of("TASKS")
    );
    assert!(of("COMMANDS") >= 2 * bodies().len() * 6, "commands: {}", of("COMMANDS"));
    assert!(of("RESULTS") >= 2 * bodies().len(), "results: {}", of("RESULTS"));
    assert!(aside.iter().filter(|one| !one.subject.is_empty()).all(|one| !one.reason.is_empty()));
    // The garbage does not stop the next owner.
    executor.kill9().await;
    let mut next = mesh.executor_process("next").await;
    let execution = begun(&client, "after", "chain", json!({ "value": "after" })).await;
    assert_eq!(succeeded(&client, &execution).await, json!({ "value": "after" }));
    next.end().await;
    agents.end().await;
}
