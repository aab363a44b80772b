//! Parts of a bench and their rounds.

use sinew_operations::failure::Failure;

use crate::cluster::BenchCluster;
use crate::console_part;
use crate::conversations::conversations;
use crate::gateway_part;
use crate::order::{DriverOrder, FloorKind, IN_FLIGHT};
use crate::report::{BenchJob, BenchReport, JobSample};
use crate::size;

/// Parts of a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchPart {
    /// Three jobs, relative to the floor.
    Jobs,
    /// Two executors relative to one, with executors as the bottleneck.
    Executors,
    /// Many open executions, wide fan-outs, memory, recovery.
    Size,
    /// Conversations with a language model that answers immediately.
    Conversations,
    /// Calls and streams of a gateway, relative to the mesh.
    Gateway,
    /// Console pages with a long history and a large graph.
    Console,
}

/// Amount of work of a bench.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Whether to run one round with a tenth of the work.
    pub quick: bool,
    /// Whether to run a minimal amount of work, as a test.
    pub smoke: bool,
    /// Number of rounds.
    pub rounds: u32,
    /// Number of shards; `None` for the default of provisioning.
    pub shards: Option<u32>,
    /// Parts to measure.
    pub parts: Vec<BenchPart>,
}

/// Amount of work of each part.
#[derive(Clone, Copy, Debug)]
struct Amount {
    alone: usize,
    fans: usize,
    many: usize,
    rounds: u32,
}

/// Items of J2.
const WIDE: usize = 100;

/// Measures the cost of executions on this machine. `note` receives progress.
///
/// The bench runs its processes as `bench ROLE --nats URL` of this program: see [`crate::BenchRole`].
///
/// # Errors
/// Fails if no NATS server is found, or if a process of the bench fails.
pub async fn measure(options: &BenchOptions, note: &dyn Fn(&str)) -> Result<BenchReport, Failure> {
    let amount = if options.smoke {
        Amount { alone: 2, fans: 1, many: 4, rounds: 1 }
    } else if options.quick {
        Amount { alone: 50, fans: 5, many: 200, rounds: 1 }
    } else {
        Amount { alone: 300, fans: 30, many: 2_000, rounds: options.rounds }
    };
    let mut report = BenchReport::new(amount.rounds);
    if options.parts.contains(&BenchPart::Jobs) {
        let mut sites = [
            BenchCluster::start(false, options.shards, None).await?,
            BenchCluster::start(true, options.shards, None).await?,
        ];
        report.idle_mib = sites[0].executor_memory();
        for round in u32::from(options.smoke)..=amount.rounds {
            // The first round is a warm-up.
            let (amount, kept) = match round {
                0 => (Amount { alone: 20, fans: 2, many: 200, rounds: 0 }, false),
                _ => (amount, true),
            };
            for cluster in &mut sites {
                note(&format!(
                    "round {round} of {}, {}",
                    report.rounds,
                    if cluster.sync_always { "every write synced" } else { "no sync" }
                ));
                let samples = jobs(cluster, amount).await?;
                if kept {
                    report.samples.extend(samples);
                }
            }
        }
        for cluster in sites {
            if !cluster.sync_always {
                report.executor_mib = cluster.executor_memory();
                report.server_mib = cluster.server_memory();
                report.agent_mib = cluster.agent_memory();
            }
            cluster.stop().await?;
        }
    }
    if options.parts.contains(&BenchPart::Executors) {
        note("two executors beside one");
        report.executors = Some(size::executors(options.shards, amount.many, amount.rounds).await?);
    }
    if options.parts.contains(&BenchPart::Size) {
        report.size = Some(size::size(options.quick, options.shards, note).await?);
    }
    if options.parts.contains(&BenchPart::Conversations) {
        report.conversations = Some(conversations(options.quick, options.smoke, note).await?);
    }
    if options.parts.contains(&BenchPart::Gateway) {
        let few = options.quick || options.smoke;
        report.gateway = Some(gateway_part::gateway(few, amount.rounds, note).await?);
    }
    if options.parts.contains(&BenchPart::Console) {
        report.console = Some(console_part::console(options.quick || options.smoke, note).await?);
    }
    report.judge();
    Ok(report)
}

/// Runs all jobs once, on the floor and for both deliveries.
async fn jobs(cluster: &mut BenchCluster, amount: Amount) -> Result<Vec<JobSample>, Failure> {
    let mut samples = Vec::new();
    // Synced writes of bare loops are slow, so fewer operations are sufficient.
    let many = if cluster.sync_always { amount.many / 2 } else { amount.many };
    for (job, wide, count, at_once) in [
        (BenchJob::J1, 1, amount.alone, 1),
        (BenchJob::J2, WIDE, amount.fans, 1),
        (BenchJob::J3, 1, many, IN_FLIGHT),
    ] {
        for kind in FloorKind::ALL {
            let order = DriverOrder::FloorKind { kind, wide, count, at_once };
            let (took, cost) = cluster.measure(&order).await?;
            samples.push(JobSample {
                system: kind.name(),
                sync: cluster.sync_always,
                job,
                count,
                took,
                cost,
            });
        }
        for (system, delivery) in [("queue", "queue"), ("direct", "direct")] {
            let (workflow, items) = match job {
                BenchJob::J2 => (format!("fan_{delivery}"), WIDE),
                _ => (format!("chain_{delivery}"), 0),
            };
            let order = DriverOrder::Run { workflow, items, count, at_once };
            let (took, cost) = cluster.measure(&order).await?;
            samples.push(JobSample { system, sync: cluster.sync_always, job, count, took, cost });
        }
    }
    Ok(samples)
}
