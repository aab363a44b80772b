//! The events of a workflow's task: numbered, the same from every executor.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sinew_agent::Delivery;
use sinew_mesh::live::ProgressFeed;
use sinew_protocol::{ActivationKey, ExecutionId, TaskId, header};

use crate::door::calls::SINGLE;
use crate::door::rpc::{call, message};
use crate::support::mesh::{PATIENCE, TestMesh};

/// Hears events until the last; each number must always say the same.
async fn heard(feed: &mut ProgressFeed) -> BTreeMap<u64, Value> {
    let mut all = BTreeMap::new();
    loop {
        let event =
            tokio::time::timeout(PATIENCE, feed.next()).await.unwrap_or_else(|_| panic!("no end: {all:?}"));
        let event = event.unwrap();
        let seq: u64 = event.headers.get(header::A2A_SEQ).unwrap().as_str().parse().unwrap();
        let body: Value = serde_json::from_slice(&event.body).unwrap();
        if let Some(before) = all.insert(seq, body.clone()) {
            assert_eq!(before, body, "event {seq}");
        }
        if let Some(end) = event.headers.get(header::A2A_END) {
            assert_eq!(end.as_str(), "completed");
            return all;
        }
    }
}

#[tokio::test]
async fn executors_tell_the_same_story() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", SINGLE).await;
    let mut agents = mesh.agents_process(Delivery::Queue, &[("one", json!({"pass": true, "hold": 2}))]).await;
    let mut first = mesh.executor_process("first").await;
    let ada = mesh.connect("ada").await;
    // Where the stream will be follows from namespace, caller and message: a caller listens before it asks.
    let execution = ExecutionId::of("test", "ada", "m1");
    let activation = ActivationKey::of::<&str>(&execution, "single", &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    let mut feed = ada.tasks().watch_progress(Some(&execution), Some(&task)).await.unwrap();
    let (said, seq) =
        call(&ada, "single", "SendStreamingMessage", message("m1", json!([{"data": {"value": "v"}}]))).await;
    let snapshot = seq.unwrap();
    agents.asked(1).await;
    // The one that tells dies; whoever listens asks again, and another goes on with the same numbers.
    first.kill9().await;
    let _second = mesh.executor_process("second").await;
    let _third = mesh.executor_process("third").await;
    let id = &said["task"]["id"];
    let mut seqs = Vec::new();
    for _ in 0..6 {
        let (again, seq) = call(&ada, "single", "SubscribeToTask", json!({"id": id})).await;
        assert_eq!(again["task"]["id"], *id);
        seqs.push(seq.unwrap());
    }
    assert!(seqs.iter().all(|seq| *seq >= snapshot), "{seqs:?} after {snapshot}");
    agents.release().await;
    let events = heard(&mut feed).await;
    let last = *events.keys().last().unwrap();
    let from = seqs.iter().min().unwrap() + 1;
    assert_eq!(
        events.range(from..).map(|(seq, _)| *seq).collect::<Vec<_>>(),
        (from..=last).collect::<Vec<_>>()
    );
    let end = &events[&last]["statusUpdate"]["status"];
    let (task, seq) = call(&ada, "single", "GetTask", json!({"id": id})).await;
    assert_eq!((end, seq), (&task["status"], Some(last)));
    assert_eq!(events[&(last - 1)]["artifactUpdate"]["artifact"], task["artifacts"][0]);
    agents.end().await;
}
