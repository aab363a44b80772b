//! `sinew-chaos`: kills executors, agents and the broker of a running mesh, and checks the results.
//!
//! It is not part of the product's data flow: it is the parent of its processes and their client.
//! `points` crashes each process at named crash points between two durable writes; `run` kills and
//! halts at random; `conversations` kills an agent with a language model; `gateway` kills the
//! processes between a mesh and external programs; `attacks` adds attackers of each role to `run`;
//! `bombs` sends expensive scripts, schemas and patterns, and measures concurrent executions.
//!
//! Verdicts never depend on the memory of a process: only on the journal, the history, the agents'
//! ledger, the list of accepted starts, and process statistics of the operating system.

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

/// Result with any error.
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Kill the processes of a mesh and check the results
#[derive(Parser)]
#[command(name = "sinew-chaos", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kill at each named crash point between two durable writes
    Points(run::PointsArgs),
    /// Kill and halt processes at random
    Run(run::RunArgs),
    /// Kill an agent during its conversations with a language model
    Conversations(conversations::ConversationArgs),
    /// Kill such an agent at each named crash point between two durable writes
    ConversationPoints(conversations::ConversationPointArgs),
    /// Send scripts, schemas, patterns and answers that exhaust time and memory
    Bombs(bombs::BombArgs),
    /// Kill gateway, bridge, executors and broker while clients follow streams and webhooks
    Gateway(outside::GatewayArgs),
    /// Kill a gateway and a bridge at each named crash point between two durable writes
    GatewayPoints(outside::GatewayPointArgs),
    /// Kill and halt processes at random while attackers of each role send malformed data
    Attacks(attacks::AttackArgs),
    /// Run a steady load for hours and check that memory, streams, disk, tasks and latency stay level
    Soak(soak::SoakArgs),
    /// Run the gateway of `gateway` (internal)
    #[command(hide = true)]
    GatewayProcess {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        listen: std::net::SocketAddr,
        #[arg(long)]
        guarded: bool,
    },
    /// Run the bridge of `gateway` (internal)
    #[command(hide = true)]
    BridgeProcess {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        card: String,
    },
    /// Run one executor (internal)
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
    /// Run all agents (internal)
    #[command(hide = true)]
    Agents {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        work_ms: u64,
    },
    /// Run the agent of `conversations` (internal)
    #[command(hide = true)]
    Clerk {
        #[command(flatten)]
        place: MeshArgs,
    },
    /// Run the sender of `bombs` (internal)
    #[command(hide = true)]
    Bomber {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        seed: u64,
        #[command(flatten)]
        args: bombs::ThrowArgs,
    },
    /// Run agents of `bombs` (internal)
    #[command(hide = true)]
    Targets {
        #[command(flatten)]
        place: MeshArgs,
        #[arg(long)]
        group: target_group::TargetGroup,
    },
}

/// Common arguments of runs.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// Seed of the run; random by default
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for data and logs, which is kept; a temporary folder by default
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Number of executor processes
    #[arg(long, default_value_t = 3)]
    executors: u32,
    /// Number of agent processes, each with all agents
    #[arg(long, default_value_t = 2)]
    agents: u32,
    /// Number of nats-servers, each with a replica of each stream: 1 or 3
    #[arg(long, default_value_t = 1)]
    servers: usize,
    /// Number of shards of the mesh
    #[arg(long, default_value_t = 6)]
    shards: u32,
    /// Maximum duration of a task, in milliseconds
    #[arg(long, default_value_t = 200)]
    work_ms: u64,
}

fn main() -> ExitCode {
    // First, because this process may be a worker for scripts.
    if let Some(exit) = sinew_script::run_worker() {
        return exit;
    }
    sinew_script::use_worker_processes();
    let command = Cli::parse().command;
    // Executors and agents are single-threaded, as in the product.
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
