//! The processes of a bench: the agent, the bare agent of the floor, and the driver that measures.

use sinew_protocol::code;
use std::io::BufRead as _;

use clap::{Args, Subcommand};
use sinew_agent::{Agent, Delivery};
use sinew_mesh::Mesh;
use sinew_mesh::connect::Connect;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::child::{Broken, broken, ready, say};
use super::floor::{self, Loops};
use super::load::Load;
use super::order::Order;
use crate::cmd::serve::{self, ExecutorArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// The agents; the workflows name them.
pub(super) const QUEUED: &str = "bench_queued";
pub(super) const DIRECT: &str = "bench_direct";
/// Tasks that an agent works on at once.
const CONCURRENCY: usize = 256;

/// Processes that `sinew bench` starts.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Two agents that answer what they get
    #[command(hide = true)]
    Agent(At),
    /// Answer the bare loops
    #[command(hide = true)]
    Echo(At),
    /// Does what it reads from stdin, and says how long it took
    #[command(hide = true)]
    Driver(At),
    /// Serve as an executor until the benchmark ends
    #[command(hide = true)]
    Executor(Box<ExecutorArgs>),
}

/// Where a role works.
#[derive(Args, Debug)]
pub(crate) struct At {
    /// Address of the server
    #[arg(long)]
    nats: String,
}

impl At {
    async fn mesh(&self) -> Result<Mesh, Broken> {
        let connect = Connect {
            url: Some(self.nats.clone()),
            caller: Some("bench".to_owned()),
            role: "bench",
            ..Connect::default()
        };
        connect.open().await.map_err(broken)
    }
}

/// Plays a role on one thread: several would only add to what is measured.
pub(super) fn play(role: &Role, output: &Output) -> Result<Exit, Failure> {
    if let Role::Executor(args) = role {
        // Its task is to be killed: nothing is drained.
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            std::process::exit(Exit::Ok as i32);
        });
        return serve::executor(args, output);
    }
    let failed = |reason: String| Failure::new(Exit::Failed, code::BENCH_CANNOT_GO_ON.as_str(), reason);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let played = runtime.block_on(async {
        match role {
            Role::Agent(at) => agent(at).await,
            Role::Echo(at) => {
                let mesh = at.mesh().await?;
                tokio::select! {
                    () = parent_is_gone() => Ok(()),
                    ended = floor::echo(mesh.client()) => ended,
                }
            }
            Role::Driver(at) => drive(at).await,
            Role::Executor(_) => Ok(()),
        }
    });
    played.map(|()| Exit::Ok).map_err(|Broken(reason)| {
        say(&serde_json::json!({ "failed": reason }));
        failed(reason)
    })
}

async fn agent(at: &At) -> Result<(), Broken> {
    let mesh = at.mesh().await?;
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
        ended = serving.join_next() => Err(Broken(format!("an agent ended: {ended:?}"))),
    }
}

/// The parent process holds the other end of stdin.
async fn parent_is_gone() {
    let mut lines = lines();
    while lines.recv().await.is_some() {}
}

/// Lines of stdin, read by a thread of its own; ends with the process that writes them.
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

async fn drive(at: &At) -> Result<(), Broken> {
    let mesh = at.mesh().await?;
    let loops = Loops::new(mesh.client()).await?;
    let load = Load::new(mesh).await?;
    ready();
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        let took = match serde_json::from_str(&line).map_err(broken)? {
            Order::Floor { kind, wide, count, at_once } => loops.measure(kind, wide, count, at_once).await,
            Order::Run { workflow, items, count, at_once } => {
                load.run(&workflow, items, count, at_once).await
            }
            Order::Open { workflow, total } => load.open(&workflow, total).await,
            Order::Owned => load.owned().await,
            Order::Owners => load.owners().await,
        };
        match took {
            Ok(took) => say(&took),
            Err(Broken(reason)) => say(&serde_json::json!({ "failed": reason })),
        }
    }
    Ok(())
}
