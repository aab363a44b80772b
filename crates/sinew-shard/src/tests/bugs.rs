//! Seeded bugs: each breaks at least one scripted test, and most break an invariant of the
//! simulation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::script::{check, check_with};
use super::stories::{children, commands, results, starts, takeovers, timers, waits};
use super::{manager, simulation, state, takeover_guard};
use crate::bug::{SeededBug, switch};

/// Maximum number of simulated histories until a bug is detected.
const SEEDS_PER_BUG: u64 = 3_000;

/// Bugs that simulated histories do not detect, with the reason. Scripted tests detect them.
const NOT_IN_HISTORIES: &[(SeededBug, &str)] = &[
    (
        SeededBug::StolenShardReleased,
        "the owner's next poll records it again, so the fault costs a moment and breaks nothing",
    ),
    (
        SeededBug::UsageCountedAgain,
        "few histories read a result again whose activation had an attempt without usage",
    ),
];

/// Returns whether a scripted test fails while the bug is enabled.
fn is_caught() -> bool {
    let tests: [fn(); 2] =
        [state::a_compacted_journal_keeps_verdicts, takeover_guard::an_item_is_condemned_at_its_third_death];
    let shards =
        [starts::ALL, results::ALL, commands::ALL, timers::ALL, takeovers::ALL, children::ALL, waits::ALL];
    let fails = |tell: fn(&str), stories: &'static [&'static str]| {
        stories.iter().any(|story| catch_unwind(move || tell(story)).is_err())
    };
    shards.iter().any(|stories| fails(check, stories))
        || fails(manager::check, manager::ALL)
        || fails(|story| check_with(state::small(), story), state::COMPACTIONS)
        || tests.into_iter().any(|test| catch_unwind(test).is_err())
}

#[test]
fn every_seeded_bug_is_caught() {
    assert!(!is_caught(), "all stories hold without a bug");
    let mut missed = Vec::new();
    for bug in SeededBug::ALL {
        switch(Some(*bug));
        if !is_caught() {
            missed.push(*bug);
        }
        switch(None);
    }
    assert!(SeededBug::ALL.len() >= 20 && missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn seeded_bugs_break_invariants_of_histories() {
    let is_shown = |bug: &SeededBug| NOT_IN_HISTORIES.iter().all(|(other, _)| other != bug);
    let bugs: Vec<SeededBug> = SeededBug::ALL.iter().copied().filter(is_shown).collect();
    let mut missed = Vec::new();
    for bug in &bugs {
        switch(Some(*bug));
        let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| simulation::run(*seed))).is_err();
        match (0..SEEDS_PER_BUG).find(fails) {
            Some(seed) => println!("{bug:?} is caught by seed {seed}"),
            None => missed.push(*bug),
        }
        switch(None);
    }
    assert!(bugs.len() >= 32 && missed.is_empty(), "not caught: {missed:?}");
}
