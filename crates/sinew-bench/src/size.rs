//! Scaling with open executions and wide fan-outs: time, memory, recovery; one and two executors.

use std::time::Instant;

use serde::Serialize;
use sinew_operations::failure::Failure;

use crate::cluster::BenchCluster;
use crate::order::{DriverOrder, IN_FLIGHT, MeasuredTime, median};

/// One and two executors, each with one thread, without other bottlenecks.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ExecutorComparison {
    pub(crate) one_per_second: f64,
    pub(crate) two_per_second: f64,
    pub(crate) ratio: f64,
    /// CPU seconds of the executors per second.
    pub(crate) one_cores: f64,
    pub(crate) two_cores: f64,
    /// Minimum number of shards of an executor.
    pub(crate) fewest_shards: usize,
    /// Commits of both executors since the start of the second one.
    pub(crate) commits: f64,
    /// Percentage of commit attempts that were fenced.
    pub(crate) lost_percent: f64,
}

/// Measurements with a number of open executions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OpenFigure {
    pub(crate) open: usize,
    pub(crate) executor_mib: f64,
    pub(crate) j3_per_second: f64,
    pub(crate) j3_cpu_us: f64,
}

/// Measurements of a fan-out.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WidthFigure {
    pub(crate) items: usize,
    pub(crate) milliseconds: f64,
    pub(crate) us_per_item: f64,
    pub(crate) cpu_us_per_item: f64,
}

/// Measurements of scaling.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct GrowthFigures {
    pub(crate) open: Vec<OpenFigure>,
    pub(crate) width: Vec<WidthFigure>,
    /// Memory per open execution, between the smallest and the largest number, in KiB.
    pub(crate) kib_per_open: f64,
    /// Number of open executions when the executor was killed.
    pub(crate) recovered: usize,
    /// Seconds from the kill until another executor owned all shards with all executions.
    pub(crate) recovery_seconds: f64,
    /// Seconds from the kill until new executions had ended.
    pub(crate) working_seconds: f64,
}

fn chains(count: usize, delivery: &str) -> DriverOrder {
    DriverOrder::Run { workflow: format!("chain_{delivery}"), items: 0, count, at_once: IN_FLIGHT }
}

/// Measures executions that load executors, with one and with two single-threaded executors.
pub(crate) async fn executors(
    shards: Option<u32>,
    many: usize,
    rounds: u32,
) -> Result<ExecutorComparison, Failure> {
    let mut alone = BenchCluster::start(false, shards, Some(1)).await?;
    let mut both = BenchCluster::start(false, shards, Some(1)).await?;
    both.executor()?;
    let patience = Instant::now() + std::time::Duration::from_mins(1);
    let mut owners = MeasuredTime::default();
    while Instant::now() < patience {
        both.driver.ask::<MeasuredTime>(&DriverOrder::Owned).await?;
        owners = both.driver.ask(&DriverOrder::Owners).await?;
        if owners.seconds > 1.5 && owners.number > 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let decide =
        DriverOrder::Run { workflow: "decide".to_owned(), items: 0, count: many, at_once: IN_FLIGHT };
    let mut rates = [Vec::new(), Vec::new()];
    let mut shares = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (nth, cluster) in [&mut alone, &mut both].into_iter().enumerate() {
            let (took, cost) = cluster.measure(&decide).await?;
            if round > 0 {
                rates[nth].push(many as f64 / took.seconds);
                shares[nth].push(cost.executor / 1e6 / took.seconds);
            }
        }
    }
    let commits = both.counted("sinew_commits_total").await?;
    let lost = both.counted("sinew_fenced_total").await?;
    alone.stop().await?;
    both.stop().await?;
    let ([one, two], [one_cores, two_cores]) = (rates.map(median), shares.map(median));
    Ok(ExecutorComparison {
        one_per_second: one,
        two_per_second: two,
        ratio: two / one,
        one_cores,
        two_cores,
        fewest_shards: owners.number,
        commits,
        lost_percent: 100.0 * lost / (commits + lost).max(1.0),
    })
}

/// Measures scaling.
pub(crate) async fn size(
    quick: bool,
    shards: Option<u32>,
    note: &dyn Fn(&str),
) -> Result<GrowthFigures, Failure> {
    let mut cluster = BenchCluster::start(false, shards, None).await?;
    let mut size = GrowthFigures::default();
    cluster.measure(&chains(500, "direct")).await?;
    for items in if quick { vec![100, 1_000] } else { vec![100, 1_000, 10_000] } {
        note(&format!("a fan-out of {items}"));
        let order = DriverOrder::Run { workflow: "fan_direct".to_owned(), items, count: 3, at_once: 1 };
        let (took, cost) = cluster.measure(&order).await?;
        size.width.push(WidthFigure {
            items,
            milliseconds: took.p50_us / 1e3,
            us_per_item: took.p50_us / items as f64,
            cpu_us_per_item: cost.all / 3.0 / items as f64,
        });
    }
    let steps: &[usize] = if quick { &[100, 1_000] } else { &[100, 1_000, 10_000] };
    for &open in steps {
        grow(&mut cluster, &mut size, open, note).await?;
    }
    let (killed, open) = (Instant::now(), size.open.last().map_or(0, |last| last.open));
    note(&format!("the executor is killed with {open} executions open"));
    cluster.kill_executors().await?;
    cluster.executor()?;
    let owned: MeasuredTime = cluster.driver.ask(&DriverOrder::Owned).await?;
    size.recovered = owned.number;
    size.recovery_seconds = killed.elapsed().as_secs_f64();
    cluster.driver.ask::<MeasuredTime>(&chains(200, "direct")).await?;
    size.working_seconds = killed.elapsed().as_secs_f64();
    if !quick {
        grow(&mut cluster, &mut size, 50_000, note).await?;
    }
    if let [first, .., last] = size.open.as_slice() {
        let more = last.open.saturating_sub(first.open).max(1) as f64;
        size.kib_per_open = (last.executor_mib - first.executor_mib) * 1_024.0 / more;
    }
    cluster.stop().await?;
    Ok(size)
}

async fn grow(
    cluster: &mut BenchCluster,
    size: &mut GrowthFigures,
    open: usize,
    note: &dyn Fn(&str),
) -> Result<(), Failure> {
    note(&format!("{open} open executions"));
    let order = DriverOrder::Open { workflow: "waits".to_owned(), total: open, each: 1 };
    cluster.driver.ask::<MeasuredTime>(&order).await?;
    let many = 2_000;
    cluster.measure(&chains(many / 4, "direct")).await?;
    let (took, cost) = cluster.measure(&chains(many, "direct")).await?;
    size.open.push(OpenFigure {
        open,
        executor_mib: cluster.executor_memory(),
        j3_per_second: many as f64 / took.seconds,
        j3_cpu_us: cost.all / many as f64,
    });
    Ok(())
}
