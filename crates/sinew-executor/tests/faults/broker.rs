//! A broker that is full, hangs, or whose streams somebody deletes and makes anew.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use sinew_agent::Delivery;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_mesh::async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, pull};
use sinew_mesh::async_nats::jetstream::stream::Config;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::task::queue_name;
use sinew_mesh::{HeaderMap, Provision};
use sinew_protocol::Token;
use sinew_protocol::command::Command as Asked;
use sinew_protocol::subject::Operation;

use crate::faults::agents::begun;
use crate::faults::audit::{CHAIN, given, succeeded};
use crate::support::mesh::{LEASE, PATIENCE, Site, TestMesh, adapters, server, start};

/// Starts both agents of the chain; returns what `one` was asked.
async fn serve_chain(site: &Site) -> std::sync::Arc<std::sync::Mutex<Vec<sinew_protocol::task::TaskExtra>>> {
    let echo = |extra: &sinew_protocol::task::TaskExtra| Ok(extra.input.clone().unwrap());
    let asked = site.agent("one", echo).await;
    site.agent("two", echo).await;
    asked
}

/// Deletes the streams of the executors' inputs; provisioning makes them anew.
async fn make_anew(site: &Site) {
    for kind in ["COMMANDS", "RESULTS"] {
        site.mesh.admin().jetstream().delete_stream(format!("{}_{kind}", site.namespace)).await.unwrap();
    }
    site.mesh.admin().provision(&Provision::default()).await.unwrap();
}

#[tokio::test]
async fn streams_made_anew_are_read_from_their_first_message() {
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("chain", CHAIN).await;
    let asked = serve_chain(&mesh).await;
    let client = mesh.client().await;
    let executor = mesh.executor("one").await;
    for nth in 0..3 {
        let execution = begun(&client, &format!("first{nth}"), "chain", json!({ "value": nth })).await;
        assert_eq!(succeeded(&client, &execution).await, json!({ "value": nth }));
    }

    // Under an executor at work: the new streams begin below its positions.
    make_anew(&mesh).await;
    let execution = begun(&client, "second", "chain", json!({ "value": "second" })).await;
    assert_eq!(succeeded(&client, &execution).await, json!({ "value": "second" }));

    // While no executor is there, and with more messages than the old stream had.
    executor.drain().await;
    make_anew(&mesh).await;
    // One of them is the start of an execution that has ended: it must not run again.
    let ended = start(&client, "first0", "chain", json!({ "value": 0 }));
    let id = Token::parse(ended.execution.as_str()).unwrap();
    let body = Asked::Start(Box::new(ended)).to_json();
    client_mesh(&mesh)
        .await
        .commands()
        .send(Operation::Start, 0, &id, HeaderMap::new(), body.into())
        .await
        .unwrap();
    let mut accepted = Vec::new();
    for nth in 0..8 {
        let command = start(&client, &format!("third{nth}"), "chain", json!({ "value": nth }));
        let execution = command.execution.clone();
        let id = Token::parse(execution.as_str()).unwrap();
        let body = Asked::Start(Box::new(command)).to_json();
        let tester = client_mesh(&mesh).await;
        tester.commands().send(Operation::Start, 0, &id, HeaderMap::new(), body.into()).await.unwrap();
        accepted.push((execution, nth));
    }
    let executor = mesh.executor("two").await;
    for (execution, nth) in &accepted {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": nth }));
    }
    executor.drain().await;
    assert_eq!(asked.lock().unwrap().len(), 3 + 1 + accepted.len(), "an ended execution ran again");
}

/// Lets the queue of an agent pass over all that is stored below a place, as in a cluster whose streams lost their ends with
/// its power: the queue remembers how far it was.
async fn pass_over(site: &Site, agent: &str, below: u64) {
    let agent = Token::of(agent);
    site.mesh.tasks().make_queue(&agent).await.unwrap();
    let stream = site.mesh.admin().jetstream().get_stream(format!("{}_TASKS", site.namespace)).await.unwrap();
    let name = queue_name(&agent);
    let made: Consumer<pull::Config> = stream.get_consumer(&name).await.unwrap();
    let config = pull::Config {
        durable_name: Some(name.clone()),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: below },
        ack_policy: AckPolicy::Explicit,
        ack_wait: made.cached_info().config.ack_wait,
        filter_subject: made.cached_info().config.filter_subject.clone(),
        ..pull::Config::default()
    };
    stream.delete_consumer(&name).await.unwrap();
    stream.create_consumer(config).await.unwrap();
}

#[tokio::test]
async fn tasks_that_a_queue_passes_over_reach_their_agent() {
    let mesh = TestMesh::with(ServerOptions::default(), 1).await;
    mesh.deploy("chain", CHAIN).await;
    // The last tasks are stored where the queue goes on by itself.
    for agent in ["one", "two"] {
        pass_over(&mesh, agent, 6).await;
    }
    let words = [("one", json!({ "pass": true })), ("two", json!({ "pass": true }))];
    let mut agents = mesh.agents_process(Delivery::Queue, &words).await;
    let executor = mesh.executor("one").await;
    let client = mesh.client().await;
    let mut executions = Vec::new();
    for nth in 0..5 {
        executions.push(begun(&client, &format!("k{nth}"), "chain", json!({ "value": nth })).await);
    }
    for (nth, execution) in executions.iter().enumerate() {
        assert_eq!(succeeded(&client, execution).await, json!({ "value": nth }));
    }
    executor.drain().await;
    agents.end().await;
    assert!(given(&[&agents]).values().all(|times| *times == 1), "a task was worked on twice");
}

async fn client_mesh(site: &Site) -> sinew_mesh::Mesh {
    site.connect("tester").await
}

#[tokio::test]
async fn an_executor_leaves_in_time_while_the_broker_hangs() {
    const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
    let mesh = TestMesh::with(ServerOptions::default(), 4).await;
    mesh.deploy("chain", CHAIN).await;
    let client = mesh.client().await;
    let options = ServiceOptions {
        id: "one".to_owned(),
        lease: LEASE,
        drain_timeout: DRAIN_TIMEOUT,
        ..ServiceOptions::new(adapters)
    };
    let executor = Service::start(mesh.connect("one").await, options).await.unwrap();
    // The chain waits for an agent that is away, so there is work to hand over.
    begun(&client, "waits", "chain", json!({ "value": 1 })).await;
    mesh.server.pause().await.unwrap();
    // Well below what any single request to the broker may take.
    let left = tokio::time::timeout(3 * DRAIN_TIMEOUT, executor.drain()).await;
    mesh.server.resume().unwrap();
    left.unwrap();
}

/// Fills what is left of a server's store; removing it makes room again.
enum Filler {
    /// A stream of somebody else on the same server.
    Stream(sinew_mesh::Mesh),
    /// A file on the same disk.
    File(PathBuf),
}

impl Filler {
    async fn fill(&self) {
        match self {
            Self::Stream(mesh) => {
                let config =
                    Config { name: "filler".into(), subjects: vec!["filler".into()], ..Config::default() };
                mesh.admin().jetstream().create_stream(config).await.unwrap();
                let mut size = 256 * 1024;
                while size > 0 {
                    let body = vec![b'x'; size].into();
                    let stored = mesh.admin().jetstream().publish("filler", body).await.unwrap().await;
                    size = if stored.is_ok() { size } else { size / 2 };
                }
            }
            Self::File(path) => {
                let mut file = std::fs::File::create(path).unwrap();
                while std::io::Write::write_all(&mut file, &[b'x'; 512]).is_ok() {}
            }
        }
    }

    async fn remove(&self) {
        match self {
            Self::Stream(mesh) => drop(mesh.admin().jetstream().delete_stream("filler").await.unwrap()),
            Self::File(path) => std::fs::remove_file(path).unwrap(),
        }
    }
}

/// Executions that are accepted before and while the store is full end once there is room, without a restart of the
/// executor or of its agents.
async fn outlives_a_full_store(mut broker: Server, filler: Filler, restart: bool) {
    let site = Site::new(&broker.url(), "test", 2).await;
    site.deploy("chain", CHAIN).await;
    serve_chain(&site).await;
    let executor = site.executor("one").await;
    let client = site.client().await;
    let before = begun(&client, "before", "chain", json!({ "value": "before" })).await;
    assert_eq!(succeeded(&client, &before).await, json!({ "value": "before" }));

    filler.fill().await;
    let mut heartbeats = site.mesh.client().subscribe("$KV.test_FLEET.executor.one").await.unwrap();
    // A start is refused or not answered: what matters is that it is stored once there is room.
    let tester = client_mesh(&site).await;
    let command = start(&client, "while", "chain", json!({ "value": "while" }));
    let execution = command.execution.clone();
    let (id, shard) = (Token::parse(execution.as_str()).unwrap(), execution.shard(2.try_into().unwrap()));
    let body = bytes::Bytes::from(Asked::Start(Box::new(command)).to_json());
    let pursued = tokio::spawn(async move {
        loop {
            let put =
                tester.commands().send(Operation::Start, shard, &id, HeaderMap::new(), body.clone()).await;
            match put {
                Ok(_) => return,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    });
    // The executor meets the full store with its own messages, too.
    for _ in 0..3 {
        tokio::time::timeout(PATIENCE, heartbeats.next()).await.unwrap().unwrap();
    }
    filler.remove().await;
    if restart {
        broker.restart().await.unwrap();
    }
    tokio::time::timeout(PATIENCE, pursued).await.unwrap().unwrap();
    assert_eq!(succeeded(&client, &execution).await, json!({ "value": "while" }));
    let after = begun(&client, "after", "chain", json!({ "value": "after" })).await;
    assert_eq!(succeeded(&client, &after).await, json!({ "value": "after" }));
    executor.drain().await;
}

#[tokio::test]
async fn work_goes_on_once_a_full_store_has_room() {
    let options = ServerOptions { store_limit: Some(4 * 1024 * 1024), ..ServerOptions::default() };
    let broker = server(options).await;
    let filler = Filler::Stream(crate::support::mesh::connect(&broker.url(), "filler", "filler").await);
    outlives_a_full_store(broker, filler, false).await;
}

/// A small file system in memory; unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts one, where that is permitted.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=32m", "tmpfs"])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// nats-server stores nothing in a stream whose disk was full, until it is started again.
#[tokio::test]
async fn work_goes_on_once_a_server_with_a_full_disk_is_started_again() {
    let Some(disk) = SmallDisk::mount() else {
        println!("SKIPPED: no file system can be mounted here, so a full disk was not tried");
        return;
    };
    let broker =
        server(ServerOptions { store: Some(disk.path().join("store")), ..ServerOptions::default() }).await;
    let filler = Filler::File(disk.path().join("filler"));
    outlives_a_full_store(broker, filler, true).await;
}
