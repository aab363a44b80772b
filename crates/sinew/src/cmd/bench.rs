//! `sinew bench`: the cost of executions on this machine, compared with the floor of messages that no
//! engine can avoid.

use clap::{Args, Subcommand};
use sinew_bench::{BenchOptions, BenchPart, BenchReport, BenchRole, measure, play_role};
use sinew_operations::failure::Failure;

use crate::cmd::serve::{self, ExecutorArgs, GatewayArgs};
use crate::connect::block;
use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew bench
  sinew bench --quick
  sinew bench -o json > bench.json";

/// Arguments of `sinew bench`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    long_about = "Measure the cost of executions on this machine, with a release build. Starts its own NATS \
                  servers (one that syncs every write to disk, one that does not), executors and agents, \
                  each in its own process, and runs in interleaved rounds:\n\n\
                  J1  three agents one after the other, one execution at a time\n\
                  J2  a fan-out of 100 and the join\n\
                  J3  2,000 times J1, 64 in flight\n\n\
                  together with the floor: bare loops over the same server in the same rounds that send only \
                  the messages that no engine can avoid (n: nothing durable; a4: an append at the start and \
                  after each step; g4: the same in groups; queued: a4 with a work queue and stored results). \
                  Compare only ratios within one run.",
    after_help = EXAMPLES
)]
pub(crate) struct BenchArgs {
    /// Run one round with a tenth of the work
    #[arg(long)]
    quick: bool,
    /// Run a few of everything, as a smoke test
    #[arg(long, hide = true, conflicts_with_all = ["quick", "rounds"])]
    smoke: bool,
    /// Measure even if this build is not optimised: memory figures are meaningful then, times are not
    #[arg(long, hide = true)]
    any_build: bool,
    /// Number of rounds; the report shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Number of shards of the meshes [default: that of `sinew mesh provision`]
    #[arg(long)]
    shards: Option<u32>,
    /// Run only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Jobs, Part::Executors, Part::Size, Part::Conversations, Part::Gateway, Part::Console])]
    only: Vec<Part>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// Parts of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// J1 to J3, compared with the floor
    Jobs,
    /// Two executors compared with one, where executors are the bottleneck
    Executors,
    /// Memory and recovery time with many open executions and wide fan-outs
    Size,
    /// Conversations of agents with a model that answers immediately
    Conversations,
    /// Calls and streams of a gateway, compared with the mesh
    Gateway,
    /// Pages of the console: a list of 100,000 executions, a graph of 10,000 nodes
    Console,
}

/// Processes that `sinew bench` starts.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    #[command(about = "Two agents that return their input")]
    #[command(hide = true)]
    Agent(At),
    #[command(about = "Agents that hold conversations")]
    #[command(hide = true)]
    Talkers(At),
    #[command(about = "Answer the bare loops")]
    #[command(hide = true)]
    Echo(At),
    #[command(about = "Forward HTTP calls to an agent")]
    #[command(hide = true)]
    BareGateway(At),
    #[command(about = "Run the jobs read from stdin, and report their duration")]
    #[command(hide = true)]
    Driver(At),
    #[command(about = "Serve as an executor until the benchmark ends")]
    #[command(hide = true)]
    Executor(Box<ExecutorArgs>),
    #[command(about = "Serve as a gateway until the benchmark ends")]
    #[command(hide = true)]
    Gateway(Box<GatewayArgs>),
}

/// Server of a role.
#[derive(Args, Debug)]
pub(crate) struct At {
    /// Address of the server
    #[arg(long)]
    nats: String,
}

/// Runs the command.
pub(crate) fn bench(args: &BenchArgs, output: &Output) -> Result<Exit, Failure> {
    if let Some(role) = &args.role {
        return play(role, output);
    }
    if cfg!(debug_assertions) && args.any_build {
        output.note("this build of sinew is not optimised, so its times are not meaningful");
    } else if cfg!(debug_assertions) && !args.smoke {
        let refused =
            Failure::usage("this build of sinew is not optimised, so its figures would not be meaningful");
        return Err(refused.hint("build it with: cargo build --release -p sinew"));
    }
    let options = BenchOptions {
        quick: args.quick,
        smoke: args.smoke,
        rounds: args.rounds,
        shards: args.shards,
        parts: args.only.iter().map(|part| (*part).into()).collect(),
    };
    let report = block(measure(&options, &|text| output.note(text)))?;
    output.value(&report, BenchReport::table);
    Ok(Exit::Ok)
}

impl From<Part> for BenchPart {
    fn from(part: Part) -> Self {
        match part {
            Part::Jobs => Self::Jobs,
            Part::Executors => Self::Executors,
            Part::Size => Self::Size,
            Part::Conversations => Self::Conversations,
            Part::Gateway => Self::Gateway,
            Part::Console => Self::Console,
        }
    }
}

/// Runs the role of a process of the bench.
fn play(role: &Role, output: &Output) -> Result<Exit, Failure> {
    let (role, at) = match role {
        Role::Executor(args) => {
            sinew_bench::end_with_parent();
            return serve::executor(args, output);
        }
        Role::Gateway(args) => {
            sinew_bench::end_with_parent();
            return serve::gateway(args, output);
        }
        Role::Agent(at) => (BenchRole::Agent, at),
        Role::Talkers(at) => (BenchRole::Talkers, at),
        Role::Echo(at) => (BenchRole::Echo, at),
        Role::BareGateway(at) => (BenchRole::BareGateway, at),
        Role::Driver(at) => (BenchRole::Driver, at),
    };
    play_role(role, &at.nats).map(|()| Exit::Ok)
}
