//! Growth with open executions and wide fan-outs: time, memory, recovery; two executors beside one.

use std::time::Instant;

use serde::Serialize;

use super::IN_FLIGHT;
use super::order::{Order, Took, median};
use super::site::Site;
use crate::exit::Failure;
use crate::output::Output;

/// One executor and two, each with one thread, and nothing that holds them up.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Executors {
    pub(super) one_per_second: f64,
    pub(super) two_per_second: f64,
    pub(super) ratio: f64,
    /// CPU seconds that the executors took in a second.
    pub(super) one_cores: f64,
    pub(super) two_cores: f64,
    /// Shards of the executor that has fewest.
    pub(super) fewest_shards: usize,
    /// Commits of both, from the moment the second one came.
    pub(super) commits: f64,
    /// How many more were refused because the other had written.
    pub(super) lost_percent: f64,
}

/// With so many executions open.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AtOpen {
    pub(super) open: usize,
    pub(super) executor_mib: f64,
    pub(super) j3_per_second: f64,
    pub(super) j3_cpu_us: f64,
}

/// A fan-out so wide.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AtWidth {
    pub(super) items: usize,
    pub(super) milliseconds: f64,
    pub(super) us_per_item: f64,
    pub(super) cpu_us_per_item: f64,
}

/// Measurements of growth.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Size {
    pub(super) open: Vec<AtOpen>,
    pub(super) width: Vec<AtWidth>,
    /// Memory of one open execution, between the fewest and the most, in KiB.
    pub(super) kib_per_open: f64,
    /// Open executions when the executor was killed.
    pub(super) recovered: usize,
    /// Seconds from the kill until another executor owned every shard with all executions.
    pub(super) recovery_seconds: f64,
    /// Seconds from the kill until new executions had ended too.
    pub(super) working_seconds: f64,
}

fn chains(count: usize, delivery: &str) -> Order {
    Order::Run { workflow: format!("chain_{delivery}"), items: 0, count, at_once: IN_FLIGHT }
}

/// Executions that are work for executors, with one of one thread and with two.
pub(super) async fn executors(shards: Option<u32>, many: usize, rounds: u32) -> Result<Executors, Failure> {
    let mut alone = Site::start(false, shards, Some(1)).await?;
    let mut both = Site::start(false, shards, Some(1)).await?;
    both.executor()?;
    let patience = Instant::now() + std::time::Duration::from_mins(1);
    let mut owners = Took::default();
    while Instant::now() < patience {
        both.driver.ask::<Took>(&Order::Owned).await?;
        owners = both.driver.ask(&Order::Owners).await?;
        if owners.seconds > 1.5 && owners.number > 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let decide = Order::Run { workflow: "decide".to_owned(), items: 0, count: many, at_once: IN_FLIGHT };
    let mut rates = [Vec::new(), Vec::new()];
    let mut shares = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (nth, site) in [&mut alone, &mut both].into_iter().enumerate() {
            let (took, cost) = site.measure(&decide).await?;
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
    Ok(Executors {
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

/// Everything that depends on how much there is.
pub(super) async fn size(quick: bool, shards: Option<u32>, output: &Output) -> Result<Size, Failure> {
    let mut site = Site::start(false, shards, None).await?;
    let mut size = Size::default();
    site.measure(&chains(500, "direct")).await?;
    for items in if quick { vec![100, 1_000] } else { vec![100, 1_000, 10_000] } {
        output.note(&format!("a fan-out of {items}"));
        let order = Order::Run { workflow: "fan_direct".to_owned(), items, count: 3, at_once: 1 };
        let (took, cost) = site.measure(&order).await?;
        size.width.push(AtWidth {
            items,
            milliseconds: took.p50_us / 1e3,
            us_per_item: took.p50_us / items as f64,
            cpu_us_per_item: cost.all / 3.0 / items as f64,
        });
    }
    let steps: &[usize] = if quick { &[100, 1_000] } else { &[100, 1_000, 10_000] };
    for &open in steps {
        grow(&mut site, &mut size, open, output).await?;
    }
    let (killed, open) = (Instant::now(), size.open.last().map_or(0, |last| last.open));
    output.note(&format!("the executor is killed with {open} executions open"));
    site.kill_executors().await?;
    site.executor()?;
    let owned: Took = site.driver.ask(&Order::Owned).await?;
    size.recovered = owned.number;
    size.recovery_seconds = killed.elapsed().as_secs_f64();
    site.driver.ask::<Took>(&chains(200, "direct")).await?;
    size.working_seconds = killed.elapsed().as_secs_f64();
    if !quick {
        grow(&mut site, &mut size, 50_000, output).await?;
    }
    if let [first, .., last] = size.open.as_slice() {
        let more = last.open.saturating_sub(first.open).max(1) as f64;
        size.kib_per_open = (last.executor_mib - first.executor_mib) * 1_024.0 / more;
    }
    site.stop().await?;
    Ok(size)
}

async fn grow(site: &mut Site, size: &mut Size, open: usize, output: &Output) -> Result<(), Failure> {
    output.note(&format!("{open} open executions"));
    let order = Order::Open { workflow: "waits".to_owned(), total: open };
    site.driver.ask::<Took>(&order).await?;
    let many = 2_000;
    site.measure(&chains(many / 4, "direct")).await?;
    let (took, cost) = site.measure(&chains(many, "direct")).await?;
    size.open.push(AtOpen {
        open,
        executor_mib: site.executor_memory(),
        j3_per_second: many as f64 / took.seconds,
        j3_cpu_us: cost.all / many as f64,
    });
    Ok(())
}
