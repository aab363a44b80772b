//! The processes of a bench: agents, the bare agent of the floor, and the measuring driver.

use std::io::BufRead as _;
use std::sync::Arc;

use sinew_agent::{Agent, Delivery};
use sinew_mesh::Mesh;
use sinew_mesh::connect::Connect;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::served_agents::serve_agent;
use sinew_protocol::code;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::bare_gateway::serve_bare_gateway;
use crate::child::{BenchProcessError, broken, ready, say};
use crate::cluster::{DIRECT, QUEUED};
use crate::conversations::talking_agents;
use crate::floor::{self, FloorLoops};
use crate::http_load::{self, OpenStreams};
use crate::load::ExecutionLoad;
use crate::order::DriverOrder;

/// Maximum concurrent tasks of an agent.
const CONCURRENCY: usize = 256;

/// Processes of a bench other than executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchRole {
    /// Two agents that return their input.
    Agent,
    /// Model agents with a scripted model.
    Talkers,
    /// The agent side of the bare loops.
    Echo,
    /// Forwards HTTP calls to an agent.
    BareGateway,
    /// Runs measurements that it reads from stdin, and reports their durations.
    Driver,
}

async fn connect(nats: &str) -> Result<Mesh, BenchProcessError> {
    let connect = Connect {
        url: Some(nats.to_owned()),
        caller: Some("bench".to_owned()),
        role: "bench",
        ..Connect::default()
    };
    connect.open().await.map_err(broken)
}

/// Ends this process when its stdin closes, because its bench has ended. Does not drain.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        std::process::exit(0);
    });
}

/// Runs a role with the server at `nats`, on one thread to minimise overhead.
///
/// # Errors
/// Fails if the server or another process of the bench does not respond, and reports this to the bench.
pub fn play_role(role: BenchRole, nats: &str) -> Result<(), Failure> {
    let failed =
        |reason: String| Failure::new(FailureKind::Failed, code::BENCH_CANNOT_GO_ON.as_str(), reason);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let played = runtime.block_on(async {
        match role {
            BenchRole::Agent => agent(nats).await,
            BenchRole::Talkers => talkers(nats).await,
            BenchRole::Echo => {
                let mesh = connect(nats).await?;
                tokio::select! {
                    () = parent_is_gone() => Ok(()),
                    ended = floor::echo(mesh.client()) => ended,
                }
            }
            BenchRole::BareGateway => {
                let mesh = connect(nats).await?;
                tokio::select! {
                    () = parent_is_gone() => Ok(()),
                    ended = serve_bare_gateway(mesh) => ended,
                }
            }
            BenchRole::Driver => drive(nats).await,
        }
    });
    played.map_err(|BenchProcessError(reason)| {
        say(&serde_json::json!({ "failed": reason }));
        failed(reason)
    })
}

async fn agent(nats: &str) -> Result<(), BenchProcessError> {
    let mesh = connect(nats).await?;
    let stop = CancellationToken::new();
    let mut serving = tokio::task::JoinSet::new();
    for (name, delivery) in [(QUEUED, Delivery::Queue), (DIRECT, Delivery::Direct)] {
        let agent = Agent::dynamic(name, None, None, |input, _| async move { Ok(input) })
            .delivery(delivery)
            .concurrency(CONCURRENCY);
        serving.spawn(agent.serve(mesh.clone(), stop.clone()));
    }
    let cards = mesh.cards().follow();
    cards.wait_for(QUEUED).await;
    cards.wait_for(DIRECT).await;
    drop(cards);
    ready();
    tokio::select! {
        () = parent_is_gone() => Ok(()),
        ended = serving.join_next() => Err(BenchProcessError(format!("an agent ended: {ended:?}"))),
    }
}

async fn talkers(nats: &str) -> Result<(), BenchProcessError> {
    let mesh = connect(nats).await?;
    let stop = CancellationToken::new();
    let mut serving = tokio::task::JoinSet::new();
    let cards = mesh.cards().follow();
    for agent in talking_agents()? {
        let name = agent.name().to_owned();
        serving.spawn(serve_agent(Arc::new(agent), mesh.clone(), stop.clone()));
        cards.wait_for(&name).await;
    }
    drop(cards);
    ready();
    tokio::select! {
        () = parent_is_gone() => Ok(()),
        ended = serving.join_next() => Err(BenchProcessError(format!("an agent ended: {ended:?}"))),
    }
}

/// Waits until the parent process, which holds the other end of stdin, ends.
async fn parent_is_gone() {
    let mut lines = lines();
    while lines.recv().await.is_some() {}
}

/// Returns the lines of stdin, read by a separate thread until the parent closes it.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

async fn drive(nats: &str) -> Result<(), BenchProcessError> {
    let mesh = connect(nats).await?;
    let loops = FloorLoops::new(mesh.client()).await?;
    let load = ExecutionLoad::new(mesh).await?;
    ready();
    let (mut lines, mut streams, mut streamed) = (lines(), OpenStreams::default(), None);
    while let Some(line) = lines.recv().await {
        let took = match serde_json::from_str(&line).map_err(broken)? {
            DriverOrder::FloorKind { kind, wide, count, at_once } => {
                loops.measure(kind, wide, count, at_once).await
            }
            DriverOrder::Run { workflow, items, count, at_once } => {
                load.run(&workflow, items, count, at_once).await
            }
            DriverOrder::Open { workflow, total, each } => load.open(&workflow, total, each).await,
            DriverOrder::Owned => load.owned().await,
            DriverOrder::Owners => load.owners().await,
            DriverOrder::MeshCalls { count, at_once } => {
                http_load::mesh_calls(load.mesh(), count, at_once).await
            }
            DriverOrder::GatewayCalls { gateway, count, at_once } => {
                http_load::gateway_calls(gateway, count, at_once).await
            }
            DriverOrder::OpenStreams { gateway, total } => {
                match http_load::begin_task(gateway, "waits").await {
                    Ok(execution) => {
                        let path = format!("/agents/waits/tasks/{execution}:subscribe");
                        streamed = Some(execution);
                        streams.open(gateway, &path, total).await
                    }
                    Err(error) => Err(error),
                }
            }
            DriverOrder::EndStreams => match streamed.take() {
                Some(execution) => {
                    let began = std::time::Instant::now();
                    match load.cancel(&execution).await {
                        Ok(()) => streams.reached(began, b"TASK_STATE_CANCELED").await,
                        Err(error) => Err(error),
                    }
                }
                None => Err("no streams are open".into()),
            },
        };
        match took {
            Ok(took) => say(&took),
            Err(BenchProcessError(reason)) => say(&serde_json::json!({ "failed": reason })),
        }
    }
    Ok(())
}
