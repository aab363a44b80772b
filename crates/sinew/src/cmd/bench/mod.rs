//! `sinew bench`: what executions cost on this machine, beside the floor of messages that no engine can avoid.

mod child;
mod floor;
mod load;
mod order;
mod process;
mod report;
mod role;
mod site;
mod size;

use clap::Args;

use crate::connect::block;
use crate::exit::{Exit, Failure};
use crate::output::Output;

use order::{Floor, Order};
use report::{Job, Report, Sample};
use role::Role;
use site::Site;

const EXAMPLES: &str = "Examples:
  sinew bench
  sinew bench --quick
  sinew bench -o json > bench.json";

/// Arguments of `sinew bench`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    long_about = "Measure what executions cost on this machine, with a release build. Starts its own NATS servers (one that syncs every \
                  write to the disk, one that does not), executors and agents, each a process of its own, and runs in \
                  interleaved rounds:\n\n\
                  J1  three agents one after the other, one execution at a time\n\
                  J2  a fan-out of 100 and the join\n\
                  J3  2,000 times J1, 64 in flight\n\n\
                  beside the floor: bare loops over the same server in the same rounds that send the messages no \
                  engine can avoid (n: nothing durable; a4: an append at the start and after each step; g4: the same \
                  in groups; queued: a4 with a work queue and stored results). Ratios within one run are what counts.",
    after_help = EXAMPLES
)]
pub(crate) struct BenchArgs {
    /// One round, a tenth of the work
    #[arg(long)]
    quick: bool,
    /// A few of everything, to see that it works
    #[arg(long, hide = true, conflicts_with_all = ["quick", "rounds"])]
    smoke: bool,
    /// Rounds; medians are shown
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Shards of the meshes [default: as `sinew mesh provision`]
    #[arg(long)]
    shards: Option<u32>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Jobs, Part::Executors, Part::Size])]
    only: Vec<Part>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// Parts of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// J1 to J3 beside the floor
    Jobs,
    /// Two executors beside one, where they are the limit
    Executors,
    /// Many open executions, wide fan-outs, memory, recovery
    Size,
}

/// Does what the command line says.
pub(crate) fn bench(args: &BenchArgs, output: &Output) -> Result<Exit, Failure> {
    if let Some(role) = &args.role {
        return role::play(role, output);
    }
    if cfg!(debug_assertions) && !args.smoke {
        let refused =
            Failure::usage("this build of sinew is not optimised, so its figures would say nothing");
        return Err(refused.hint("build it with: cargo build --release -p sinew"));
    }
    let report = block(measure(args, output))?;
    output.value(&report, Report::table);
    Ok(Exit::Ok)
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Amount {
    alone: usize,
    fans: usize,
    many: usize,
    rounds: u32,
}

/// In flight at once in J3.
const IN_FLIGHT: usize = 64;
/// Items of J2.
const WIDE: usize = 100;

async fn measure(args: &BenchArgs, output: &Output) -> Result<Report, Failure> {
    let amount = if args.smoke {
        Amount { alone: 2, fans: 1, many: 4, rounds: 1 }
    } else if args.quick {
        Amount { alone: 50, fans: 5, many: 200, rounds: 1 }
    } else {
        Amount { alone: 300, fans: 30, many: 2_000, rounds: args.rounds }
    };
    let mut report = Report::new(amount.rounds);
    if args.only.contains(&Part::Jobs) {
        let mut sites =
            [Site::start(false, args.shards, None).await?, Site::start(true, args.shards, None).await?];
        report.idle_mib = sites[0].executor_memory();
        for round in u32::from(args.smoke)..=amount.rounds {
            // The first one only makes everything warm.
            let (amount, kept) = match round {
                0 => (Amount { alone: 20, fans: 2, many: 200, rounds: 0 }, false),
                _ => (amount, true),
            };
            for site in &mut sites {
                output.note(&format!(
                    "round {round} of {}, {}",
                    report.rounds,
                    if site.sync_always { "every write synced" } else { "no sync" }
                ));
                let samples = jobs(site, amount).await?;
                if kept {
                    report.samples.extend(samples);
                }
            }
        }
        for site in sites {
            if !site.sync_always {
                report.executor_mib = site.executor_memory();
                report.server_mib = site.server_memory();
                report.agent_mib = site.agent_memory();
            }
            site.stop().await?;
        }
    }
    if args.only.contains(&Part::Executors) {
        output.note("two executors beside one");
        report.executors = Some(size::executors(args.shards, amount.many, amount.rounds).await?);
    }
    if args.only.contains(&Part::Size) {
        report.size = Some(size::size(args.quick, args.shards, output).await?);
    }
    report.judge();
    Ok(report)
}

/// All jobs once, on the floor and for both deliveries.
async fn jobs(site: &mut Site, amount: Amount) -> Result<Vec<Sample>, Failure> {
    let mut samples = Vec::new();
    // Synced writes of a bare loop take a tenth of a second per hundred; fewer are enough to know.
    let many = if site.sync_always { amount.many / 2 } else { amount.many };
    for (job, wide, count, at_once) in
        [(Job::J1, 1, amount.alone, 1), (Job::J2, WIDE, amount.fans, 1), (Job::J3, 1, many, IN_FLIGHT)]
    {
        for kind in Floor::ALL {
            let order = Order::Floor { kind, wide, count, at_once };
            let (took, cost) = site.measure(&order).await?;
            samples.push(Sample { system: kind.name(), sync: site.sync_always, job, count, took, cost });
        }
        for (system, delivery) in [("queue", "queue"), ("direct", "direct")] {
            let (workflow, items) = match job {
                Job::J2 => (format!("fan_{delivery}"), WIDE),
                _ => (format!("chain_{delivery}"), 0),
            };
            let order = Order::Run { workflow, items, count, at_once };
            let (took, cost) = site.measure(&order).await?;
            samples.push(Sample { system, sync: site.sync_always, job, count, took, cost });
        }
    }
    Ok(samples)
}
