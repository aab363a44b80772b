//! Many simulated histories, each from one seed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::simulation::{self, ReachedCounts};

/// Number of histories in the usual test run.
const SEEDS: u64 = 20_000;

/// Failures of one thread after which it stops.
const MAX_FAILURES: usize = 5;
/// Outcomes that the histories together must reach; otherwise the faults had no effect.
const WANTED: &[&str] = &[
    "appends fenced",
    "appends without answer",
    "archived",
    "checkpoints",
    "children rejected",
    "closed",
    "commands",
    "executors stopped",
    "failed attempts",
    "foreign results",
    "held",
    "killed by work",
    "kills",
    "late appends fenced",
    "late facts",
    "late results",
    "late usage",
    "left",
    "loads",
    "messages doubled",
    "messages lost",
    "purges",
    "quarantined",
    "reopened",
    "repeated starts",
    "shards stolen",
    "starts answered",
    "streams read again",
    "timeouts",
    "usage after an end",
];

/// Returns the seeds to run: `SINEW_SEED=n` selects one, `SINEW_SEEDS=n` their number.
fn chosen_seeds() -> (Range<u64>, bool) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("SINEW_SEED") {
        Some(seed) => (seed..seed + 1, true),
        None => (0..number("SINEW_SEEDS").unwrap_or(SEEDS), false),
    }
}

#[test]
fn every_history_keeps_the_invariants() {
    let (seeds, is_replay) = chosen_seeds();
    let reached: Mutex<ReachedCounts> = Mutex::default();
    let failed: Mutex<Vec<u64>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (seeds, reached, failed) = (seeds.clone(), &reached, &failed);
            scope.spawn(move || {
                for seed in seeds.skip(thread as usize).step_by(threads as usize) {
                    let history = || simulation::run(seed);
                    let Ok(counts) = catch_unwind(AssertUnwindSafe(history)) else {
                        let mut failed = failed.lock().unwrap();
                        failed.push(seed);
                        if failed.len() >= MAX_FAILURES {
                            return;
                        }
                        continue;
                    };
                    let mut reached = reached.lock().unwrap();
                    for (what, count) in counts {
                        *reached.entry(what).or_default() += count;
                    }
                }
            });
        }
    });
    let (reached, failed) = (reached.into_inner().unwrap(), failed.into_inner().unwrap());
    println!("reached: {reached:?}");
    assert!(failed.is_empty(), "seeds {failed:?} fail; SINEW_SEED=n cargo test -p sinew-shard replays one");
    for wanted in WANTED.iter().filter(|_| !is_replay) {
        assert!(reached.get(wanted).is_some_and(|count| *count > 20), "{wanted} in {reached:?}");
    }
}
