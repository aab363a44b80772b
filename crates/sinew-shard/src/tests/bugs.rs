//! Seeded bugs: each makes at least one story end otherwise.

use std::panic::catch_unwind;

use super::script::{check, check_with};
use super::stories::{children, commands, results, starts, takeovers, timers};
use super::{care, manager, state};
use crate::bug::{SeededBug, switch};

/// Whether a story ends otherwise while the bug is switched on.
fn is_caught() -> bool {
    let tests: [fn(); 2] =
        [state::a_compacted_journal_keeps_verdicts, care::an_item_is_condemned_at_its_third_death];
    let shards = [starts::ALL, results::ALL, commands::ALL, timers::ALL, takeovers::ALL, children::ALL];
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
