//! Measures the durable parts of the mesh: appends to journals, write-once publishes, reading, an agent's queue.
//!
//! `cargo bench -p sinew-mesh --bench streams [-- always]`; `always` syncs every write to the disk.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a program for people who measure"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use sinew_mesh::async_nats::{self, HeaderMap};
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, MeshError, OutgoingMessage, Provision};
use sinew_protocol::journal::Positions;
use sinew_protocol::{ActivationKey, ExecutionId, ResultKey, ResultToken, Subject, TaskId, Token};

const SHARDS: u32 = 16;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sync_always = std::env::args().any(|argument| argument == "always");
    let scale = if sync_always { 10 } else { 1 };
    let server = Server::start(ServerOptions { sync_always, ..ServerOptions::default() }).await.unwrap();
    let mesh = connect(&server).await;
    mesh.admin().provision(&Provision::default()).await.unwrap();
    println!("sync always: {sync_always}");
    append_alone(&mesh, 5_000 / scale).await;
    append_all_shards(&server, 3_000 / scale).await;
    publish_and_read(&mesh, 50_000 / scale).await;
    queue(&server, 20_000 / scale).await;
    replay(&mesh).await;
}

async fn connect(server: &Server) -> Mesh {
    Mesh::new(async_nats::connect(server.url()).await.unwrap(), "bench", "bench")
}

fn body() -> Bytes {
    Bytes::from(vec![b'x'; 512])
}

fn rate(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

async fn append_alone(mesh: &Mesh, count: usize) {
    let mut journal = mesh.journal(0);
    journal.replay(|_| Ok::<_, MeshError>(())).await.unwrap();
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        journal.append(body()).await.unwrap();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (median, slow) = (times[count / 2], times[count * 99 / 100]);
    println!("append, one in flight: p50 {median:?}, p99 {slow:?}");
}

async fn append_all_shards(server: &Server, each: usize) {
    let mesh = connect(server).await;
    let mut journals = Vec::new();
    for shard in 0..SHARDS {
        let mut journal = mesh.journal(shard);
        journal.replay(|_| Ok::<_, MeshError>(())).await.unwrap();
        journals.push(journal);
    }
    let began = Instant::now();
    let writers = journals.into_iter().map(|mut journal| async move {
        for _ in 0..each {
            journal.append(body()).await.unwrap();
        }
    });
    futures_util::future::join_all(writers).await;
    let count = each * SHARDS as usize;
    println!("append, {SHARDS} shards: {:.0}/s", rate(count, began.elapsed()));
}

async fn publish_and_read(mesh: &Mesh, count: usize) {
    let parcels: Vec<OutgoingMessage> = (0..count)
        .map(|n| {
            let (execution, task, token) = ids(n);
            let subject = Subject::Result { shard: 0, agent: Token::of("a"), execution, task, token };
            OutgoingMessage { subject, headers: HeaderMap::new(), body: body() }
        })
        .collect();
    let began = Instant::now();
    for put in mesh.tasks().put_all(parcels).await {
        put.unwrap();
    }
    println!("put_all: {:.0}/s", rate(count, began.elapsed()));
    let mut inbox = mesh.commands().inbox(0, Positions::default()).await.unwrap();
    let began = Instant::now();
    for _ in 0..count {
        inbox.next().await.unwrap();
    }
    println!("inbox: {:.0} messages/s", rate(count, began.elapsed()));
}

async fn queue(server: &Server, count: usize) {
    let mesh = connect(server).await;
    let parcels: Vec<OutgoingMessage> = (0..count)
        .map(|n| {
            let (execution, task, _) = ids(n);
            let subject = Subject::Task { agent: Token::of("a"), execution, task };
            OutgoingMessage { subject, headers: HeaderMap::new(), body: body() }
        })
        .collect();
    for put in mesh.tasks().put_all(parcels).await {
        put.unwrap();
    }
    let mut queue = mesh.tasks().queue(&Token::of("a"), 64);
    let mut working = tokio::task::JoinSet::new();
    let began = Instant::now();
    for _ in 0..count {
        let delivery = queue.next().await;
        working.spawn(async move { delivery.ack().await.unwrap() });
    }
    while working.join_next().await.is_some() {}
    println!("queue, 64 at once, each acknowledged: {:.0} tasks/s", rate(count, began.elapsed()));
}

async fn replay(mesh: &Mesh) {
    let mut journal = mesh.journal(1);
    let mut count = 0;
    let began = Instant::now();
    journal
        .replay(|_| {
            count += 1;
            Ok::<_, MeshError>(())
        })
        .await
        .unwrap();
    println!("replay: {:.0} commits/s", rate(count, began.elapsed()));
}

fn ids(n: usize) -> (ExecutionId, TaskId, ResultToken) {
    let execution = ExecutionId::of("bench", "bench", &n.to_string());
    let activation = ActivationKey::of::<&str>(&execution, "node", &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    let token = ResultToken::of(&ResultKey::new([1; 32]), &task);
    (execution, task, token)
}
