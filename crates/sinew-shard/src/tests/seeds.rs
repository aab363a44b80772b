//! Tens of thousands of histories.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use super::simulation::{self, Reached};

/// Histories of one run.
const SEEDS: Range<u64> = 0..20_000;

/// The one seed to replay, if there is one.
fn chosen_seed() -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test may read how it is to be run")]
    std::env::var("SINEW_SEED").ok().and_then(|seed| seed.parse().ok())
}

/// Things that all seeds together must have reached, or the faults were idle.
const WANTED: [&str; 20] = [
    "archived",
    "checkpoints",
    "closed",
    "commands",
    "failed attempts",
    "foreign results",
    "held",
    "kills",
    "killed by work",
    "late facts",
    "late results",
    "left",
    "loads",
    "lost races",
    "purges",
    "quarantined",
    "reopened",
    "repeated starts",
    "shards stolen",
    "streams read again",
];

#[test]
fn every_history_keeps_the_invariants() {
    let seeds = chosen_seed().map_or(SEEDS, |seed| seed..seed + 1);
    let reached: Mutex<BTreeMap<&str, u64>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (seeds, reached) = (seeds.clone(), &reached);
            scope.spawn(move || {
                for seed in seeds.skip(thread as usize).step_by(threads as usize) {
                    let Reached { counts } = match catch_unwind(AssertUnwindSafe(|| simulation::run(seed))) {
                        Ok(counts) => counts,
                        Err(_) => panic!(
                            "seed {seed} failed; replay it with SINEW_SEED={seed} cargo test -p sinew-shard"
                        ),
                    };
                    let mut reached = reached.lock().unwrap();
                    for (what, count) in counts {
                        *reached.entry(what).or_default() += count;
                    }
                }
            });
        }
    });
    let reached = reached.into_inner().unwrap();
    println!("reached: {reached:?}");
    if chosen_seed().is_none() {
        for wanted in WANTED {
            assert!(reached.get(wanted).is_some_and(|count| *count > 20), "{wanted} in {reached:?}");
        }
    }
}
