//! Several executors believe that a shard is theirs; journals that are compacted under way.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::Delivery;
use sinew_engine::Adapter;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_mesh::server::ServerOptions;
use sinew_protocol::journal::{Commit, EntryKind};
use tokio::time::timeout;

use crate::faults::agents::{begun, stands};
use crate::faults::audit::{CHAIN, single, succeeded};
use crate::support::mesh::{LEASE, PATIENCE, Site, TestMesh, adapters, start};
use crate::support::process::Part;

/// Commits of all shards.
async fn commits(site: &Site, shards: u32) -> Vec<Commit> {
    let mut commits = Vec::new();
    for shard in 0..shards {
        site.mesh
            .journal(shard)
            .replay::<sinew_mesh::MeshError>(|stored| {
                commits.push(Commit::decode(&stored.body).unwrap());
                Ok(())
            })
            .await
            .unwrap();
    }
    commits
}

/// The fleet's record of who owns what is swapped again and again while work goes on: both executors decide, one is fenced.
#[tokio::test]
async fn owners_that_fight_do_no_harm() {
    const SWAPS: usize = 12;
    /// Bounds for a slow machine, where more work would only make each swap take longer still.
    const MOST: usize = 150;
    const ENOUGH: Duration = Duration::from_secs(30);
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("chain", CHAIN).await;
    let slow = json!({ "pass": true, "delay_ms": 300 });
    let mut agents = mesh.agents_process(Delivery::Queue, &[("one", slow.clone()), ("two", slow)]).await;
    let (one, two) = (mesh.executor("one").await, mesh.executor("two").await);
    let client = mesh.client().await;
    let fleet = mesh.mesh.fleet();
    let mut executions = Vec::new();
    let mut swaps = 0;
    // Robbed by the test, and not seen at work since. The robbed one has not been told: it writes on until the other one's
    // first commit fences it.
    let mut robbed: Option<&str> = None;
    let mut look = tokio::time::interval(Duration::from_millis(50));
    let began = tokio::time::Instant::now();
    while swaps < SWAPS && (swaps == 0 || began.elapsed() < ENOUGH) {
        assert!(began.elapsed() < PATIENCE, "nobody took the shard that was stolen for it");
        look.tick().await;
        if executions.len() < MOST {
            let key = format!("k{}", executions.len());
            executions
                .push(crate::faults::agents::begun(&client, &key, "chain", json!({ "value": key })).await);
        }
        let commits = commits(&mesh, 1).await;
        let writer =
            commits.iter().rfind(|commit| commit.entries.is_empty()).map(|claim| claim.owner.as_str());
        if robbed.is_some() && writer == robbed {
            swaps += 1;
            robbed = None;
        }
        let Some((Some(owner), revision)) = fleet.look().await.unwrap().owners.get(&0).cloned() else {
            continue;
        };
        // Only who is at work is robbed. On a slow machine the thief may be taken for dead before it begins: then the
        // record names the first one again, and it is robbed once more.
        if writer == Some(owner.as_str()) {
            let other = if owner == "one" { "two" } else { "one" };
            if fleet.claim(0, other, revision).await.unwrap() {
                robbed = Some(other);
            }
        }
    }
    for (nth, execution) in executions.iter().enumerate() {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": format!("k{nth}") }));
    }
    // The record names the executor at work in the end.
    let recorded = async {
        while fleet.owner(0).await.unwrap().is_none() {
            look.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, recorded).await.expect("nobody is recorded as the owner");
    println!("{} executions while their shard was stolen {swaps} times", executions.len());
    one.drain().await;
    two.drain().await;
    agents.end().await;
    let given = crate::faults::audit::given(&[&agents]);
    assert_eq!(given.len(), 2 * executions.len(), "a task was sent that no fact names");
    assert!(given.values().all(|times| *times == 1), "an agent worked twice");
}

#[tokio::test]
async fn a_compacted_journal_is_taken_over() {
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("chain", CHAIN).await;
    // The first executions stay open while so many others pass that the journal is worn.
    let agents = [("one", json!({ "pass": true, "hold": 3 })), ("two", json!({ "pass": true }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &agents).await;
    let part = |id: &str| Part::Executor {
        id: id.to_owned(),
        lease_ms: 2_000,
        compaction_threshold_bytes: Some(16 * 1024),
    };
    let mut first = mesh.process(part("first")).await;
    let client = mesh.client().await;
    let begin = |key: String| {
        let client = client.clone();
        async move {
            let command = start(&client, &key, "chain", json!({ "value": key }));
            let execution = command.execution.clone();
            client.start(command).await.unwrap();
            execution
        }
    };
    let mut open = Vec::new();
    for nth in 0..3 {
        open.push(begin(format!("old{nth}")).await);
    }
    agents.asked(3).await;
    let mut nth = 0;
    loop {
        let execution = begin(format!("new{nth}")).await;
        succeeded(&client, &execution).await;
        let all = commits(&mesh, 1).await;
        let again = |entry: &sinew_protocol::journal::Entry| entry.kind == EntryKind::Checkpoint;
        let kept = all.iter().flat_map(|commit| &commit.entries).filter(|entry| again(entry));
        let kept: Vec<_> = kept.map(|entry| &entry.execution).collect();
        let purged = !all
            .iter()
            .flat_map(|commit| &commit.entries)
            .any(|entry| entry.execution == open[0] && !again(entry));
        if open.iter().all(|open| kept.contains(&open)) && purged {
            break;
        }
        nth += 1;
        assert!(nth < 300, "the journal is not compacted");
    }
    first.kill9().await;
    let mut second = mesh.process(part("second")).await;
    for _ in 0..3 {
        agents.release().await;
    }
    for (nth, execution) in open.iter().enumerate() {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": format!("old{nth}") }));
    }
    second.end().await;
    agents.end().await;
    assert!(crate::faults::audit::given(&[&agents]).values().all(|times| *times == 1));
}

/// Tells that an executor loads a plan, and waits until it may go on.
static HALT: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

/// The adapters, once the executor may go on.
fn halting_adapters(name: &str) -> Option<&'static dyn Adapter> {
    let halt = HALT.lock().unwrap().take();
    if let Some((reached, go_on)) = halt {
        tokio::task::block_in_place(|| {
            reached.send(()).unwrap();
            let _ = go_on.recv();
        });
    }
    adapters(name)
}

/// The note of the owner about its work in hand.
async fn noted(mesh: &TestMesh) -> usize {
    let (note, _) = mesh.mesh.fleet().takeover_note(0).await.unwrap();
    let note: Value = serde_json::from_slice(&note).unwrap_or_default();
    note["in_hand"].as_array().map_or(0, Vec::len)
}

/// An executor that is told to stop while it opens a shard, or that cannot stop in time while it takes the first messages,
/// leaves no note: the next owner would count a death.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_that_is_stopped_is_not_a_death() {
    for (is_open, drain_timeout) in [(true, PATIENCE), (true, LEASE / 2), (false, LEASE / 2)] {
        let mesh = TestMesh::with(ServerOptions::default(), 1).await;
        mesh.deploy("single", &single("")).await;
        let client = mesh.client().await;
        if is_open {
            let service = mesh.executor("first").await;
            let execution = begun(&client, "k", "single", json!({ "value": 1 })).await;
            stands(&client, &execution, |_| true).await;
            service.drain().await;
        } else {
            client.start(start(&client, "k", "single", json!({ "value": 1 }))).await.unwrap();
        }
        assert_eq!(noted(&mesh).await, 0);
        let ((reached, reaches), (go_on, goes_on)) = (channel(), channel());
        *HALT.lock().unwrap() = Some((reached, goes_on));
        let options = ServiceOptions {
            id: "second".to_owned(),
            lease: LEASE,
            drain_timeout,
            ..ServiceOptions::new(halting_adapters)
        };
        let service = Service::start(mesh.connect("second").await, options).await.unwrap();
        tokio::task::spawn_blocking(move || reaches.recv_timeout(PATIENCE).unwrap()).await.unwrap();
        assert_eq!(noted(&mesh).await, 1, "the work is noted before it is touched");
        let mut draining = tokio::spawn(service.drain());
        if timeout(LEASE, &mut draining).await.is_err() {
            assert_eq!(drain_timeout, PATIENCE, "the executor does not stop in time");
            drop(go_on);
            timeout(PATIENCE, draining).await.unwrap().unwrap();
        }
        assert_eq!(noted(&mesh).await, 0, "open: {is_open}, {drain_timeout:?}");
    }
}
