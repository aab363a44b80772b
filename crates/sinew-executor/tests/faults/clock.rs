//! Clocks that are wrong: an owner keeps the broker's time.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use sinew_agent::Delivery;
use sinew_engine::TerminalStatus;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::faults::agents::begun;
use crate::faults::audit::{ended, rounds, single};
use crate::support::mesh::TestMesh;
use crate::support::process::{Part, Process, Role};

/// The year in which the broker lives, as the executor sees it.
const YEAR: &str = "2067";

/// A broker whose clock is decades ahead of this machine's: the executor behind this proxy reads another year whenever the
/// broker says what time it is. The texts are equally long, so that nothing else changes.
async fn other_times(broker: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let this = year();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(broker.trim_start_matches("nats://")).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let wrong = format!("\"ts\":\"{YEAR}-").into_bytes();
            let right = format!("\"ts\":\"{this}-").into_bytes();
            tokio::spawn(async move {
                let mut waiting = Vec::new();
                while let Ok(1..) = from_server.read_buf(&mut waiting).await {
                    while let Some(at) = waiting.windows(right.len()).position(|window| window == right) {
                        waiting[at..at + wrong.len()].copy_from_slice(&wrong);
                    }
                    // Text that may be the beginning of the variable waits for its end.
                    let kept = (1..right.len()).rev().find(|n| waiting.ends_with(&right[..*n])).unwrap_or(0);
                    let rest = waiting.split_off(waiting.len() - kept);
                    if to_client.write_all(&waiting).await.is_err() {
                        return;
                    }
                    waiting = rest;
                }
            });
        }
    });
    url
}

fn year() -> u64 {
    1970 + SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 31_556_952
}

#[tokio::test]
async fn an_owner_keeps_the_brokers_time() {
    let mesh = TestMesh::new().await;
    mesh.deploy("hasty", &single(", timeout: 2s")).await;
    let url = other_times(mesh.url.clone()).await;
    let part = Part::Executor { id: "one".to_owned(), lease_ms: 2_000, compaction_threshold_bytes: None };
    let mut executor = Process::start(&Role { url, namespace: mesh.namespace.clone(), part }).await;
    let client = mesh.client().await;
    let agents = mesh.agents_process(Delivery::Queue, &[("two", json!({}))]).await;
    let began = std::time::Instant::now();
    let execution = begun(&client, "k", "hasty", json!({ "value": 1 })).await;
    let outcome = ended(&client, &execution).await;
    let took = began.elapsed();
    assert_eq!(outcome.status, TerminalStatus::Failure);
    assert!(took >= std::time::Duration::from_secs(2), "a deadline came early: {took:?}");
    assert!(took < std::time::Duration::from_secs(20), "a deadline came late: {took:?}");
    let record = client.record(&execution).await.unwrap().unwrap();
    let at = rounds(&record)[0].at / 1_000 / 31_556_952 + 1970;
    assert_eq!(at.to_string(), YEAR, "facts carry the time of this machine, not the broker's");
    executor.end().await;
    // The next owner's broker is back in the present: time in a journal does not go back, and nothing waits for decades.
    let _next = mesh.executor_process("next").await;
    let execution = begun(&client, "l", "hasty", json!({ "value": 1 })).await;
    assert_eq!(ended(&client, &execution).await.status, TerminalStatus::Failure);
    drop(agents);
}

/// The rule behind it, held by reading the code: nothing that owns a shard asks this machine what time it is.
#[test]
fn the_service_reads_no_wall_clock() {
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/service"))];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for word in ["SystemTime::now", "Utc::now", "OffsetDateTime::now", "UNIX_EPOCH"] {
                assert!(!text.contains(word), "{} names {word}", path.display());
            }
            files += 1;
        }
    }
    assert!(files > 5);
}
