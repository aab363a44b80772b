//! `sinew-chaos`: kills executors, agents and the broker of a mesh while it works, and judges what is left.
//!
//! MeshArgs in the flow: none; it stands beside the product, as its processes' parent and their client. `points` ends each
//! process at named places between two durable writes; `run` kills and halts at random, the broker too; `conversations` kills
//! an agent that talks with a language model; `gateway` kills what stands between a mesh and programs outside; `attacks` adds attackers of every role to
//! `run`; `bombs` throws scripts, schemas and patterns without end, and measures
//! executions beside them.
//!
//! It never judges by what a process remembers: only by the journal, the history, the agents' ledger, the list of
//! starts that were accepted, and what the system tells about processes.

mod allowance;
mod attacks;
mod bombs;
mod brokers;
mod cluster;
mod conversations;
mod fault_plan;
mod load;
mod memory_limit;
mod other_client;
mod outside;
mod points;
mod power_loss;
mod report;
mod roles;
mod run;
mod slot;
mod soak;
mod target_group;
mod verdict;
mod workflows;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio::runtime::Builder;

use roles::MeshArgs;

/// Result of a part of this program.
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Kills the processes of a mesh and judges what is left.
#[derive(Parser)]
#[command(name = "sinew-chaos", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kill at every named place between two durable writes.
    Points(run::PointsArgs),
    /// Kill and halt at random for a while.
    Run(run::RunArgs),
    /// Kill an agent in the middle of its conversations with a language model.
    Conversations(conversations::ConversationArgs),
    /// Kill such an agent at every named place between two durable writes.
    ConversationPoints(conversations::ConversationPointArgs),
    /// Throw scripts, schemas, patterns and answers that take time and memory, beside innocent executions.
    Bombs(bombs::BombArgs),
    /// Kill gateway, bridge, executors and broker while clients follow streams and webhooks.
    Gateway(outside::GatewayArgs),
    /// Kill a gateway and a bridge at every named place between two durable writes.
    GatewayPoints(outside::GatewayPointArgs),
    /// Kill and halt at random while attackers of every role send what is not read.
    Attacks(attacks::AttackArgs),
    /// Work steadily for hours: memory, streams, disk, tasks and latency stay where they were.
    Soak(soak::SoakArgs),
    /// The gateway of `gateway` (what it starts).
    #[command(hide = true)]
    GatewayProcess {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        listen: std::net::SocketAddr,
        #[arg(long)]
        guarded: bool,
    },
    /// The bridge of `gateway` (what it starts).
    #[command(hide = true)]
    BridgeProcess {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        card: String,
    },
    /// One executor (what the others start).
    #[command(hide = true)]
    Executor {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        id: String,
        #[arg(long)]
        lease_ms: u64,
        #[arg(long)]
        worn: usize,
        #[arg(long)]
        room: Option<usize>,
    },
    /// All agents (what the others start).
    #[command(hide = true)]
    Agents {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        work_ms: u64,
    },
    /// The agent of `conversations` (what it starts).
    #[command(hide = true)]
    Clerk {
        #[command(flatten)]
        place: MeshArgs,
    },
    /// The thrower of `bombs` (what it starts).
    #[command(hide = true)]
    Bomber {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        args: bombs::ThrowArgs,
    },
    /// Agents of `bombs` (what it starts).
    #[command(hide = true)]
    Targets {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        group: target_group::TargetGroup,
    },
}

/// Arguments of all kinds of runs.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// Seed that decides the run; random when absent.
    #[arg(long)]
    seed: Option<u64>,
    /// Where everything is written and kept; a temporary folder when absent.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Executor processes.
    #[arg(long, default_value_t = 3)]
    executors: u32,
    /// Agent processes, each with all agents.
    #[arg(long, default_value_t = 2)]
    agents: u32,
    /// Servers of the mesh, each with a copy of every stream: 1 or 3.
    #[arg(long, default_value_t = 1)]
    servers: usize,
    /// Shards of the mesh.
    #[arg(long, default_value_t = 6)]
    shards: u32,
    /// The longest time an agent works, in milliseconds.
    #[arg(long, default_value_t = 200)]
    work_ms: u64,
}

fn main() -> ExitCode {
    // Before all else: the process may be a worker for scripts.
    if let Some(exit) = sinew_script::run_worker() {
        return exit;
    }
    sinew_script::use_worker_processes();
    let command = Cli::parse().command;
    // Executors and agents have one thread, as in the product.
    let mut runtime = match command {
        Command::Executor { .. }
        | Command::Agents { .. }
        | Command::Targets { .. }
        | Command::Clerk { .. } => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(perform_command(command)),
        Err(error) => exit_code(Err(error.into())),
    }
}

async fn perform_command(command: Command) -> ExitCode {
    exit_code(match command {
        Command::Points(args) => run::points(args).await,
        Command::Run(args) => run::run(args).await,
        Command::Conversations(args) => Box::pin(conversations::conversations(args)).await,
        Command::ConversationPoints(args) => Box::pin(conversations::conversation_points(args)).await,
        Command::Gateway(args) => Box::pin(outside::gateway(args)).await,
        Command::GatewayPoints(args) => Box::pin(outside::gateway_points(args)).await,
        Command::Attacks(args) => Box::pin(attacks::attacks(args)).await,
        Command::Soak(args) => Box::pin(soak::soak(args)).await,
        Command::GatewayProcess { place, listen, guarded } => {
            outside::serve_gateway(&place, listen, guarded).await.map(|()| true)
        }
        Command::BridgeProcess { place, card } => outside::serve_bridge(&place, &card).await.map(|()| true),
        Command::Clerk { place } => conversations::serve_clerk(&place).await.map(|()| true),
        Command::Bombs(args) => Box::pin(bombs::bombs(args)).await,
        Command::Bomber { place, seed, args } => bombs::throw_bombs(&place, seed, &args).await.map(|()| true),
        Command::Targets { place, group } => bombs::targets(&place, group).await.map(|()| true),
        Command::Executor { place, id, lease_ms, worn, room } => {
            let lease = Duration::from_millis(lease_ms);
            roles::executor(&place, id, lease, worn, room).await.map(|()| true)
        }
        Command::Agents { place, work_ms } => {
            roles::agents(&place, Duration::from_millis(work_ms)).await.map(|()| true)
        }
    })
}

fn exit_code(done: Fallible<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "sinew-chaos: {error}");
            ExitCode::from(2)
        }
    }
}
