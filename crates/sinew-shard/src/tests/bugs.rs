//! Seeded bugs: each is caught by the simulation or by a named unit test.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::simulation;
use crate::bug::{SeededBug, switch};

/// Seeds of the simulation that look for one bug.
const SEEDS_PER_BUG: u64 = 2_000;

/// Bugs that a unit test catches, because histories do not show them or only seldom.
const CAUGHT_BY_UNIT_TESTS: &[(SeededBug, fn())] = &[];

#[test]
fn every_seeded_bug_is_caught() {
    let mut missed = Vec::new();
    for bug in SeededBug::ALL {
        switch(Some(*bug));
        let is_caught = match CAUGHT_BY_UNIT_TESTS.iter().find(|(caught, _)| caught == bug) {
            Some((_, test)) => catch_unwind(test).is_err(),
            None => (0..SEEDS_PER_BUG).any(|seed| {
                let caught = catch_unwind(AssertUnwindSafe(|| simulation::run(seed))).is_err();
                if caught {
                    println!("{bug:?} is caught by seed {seed}");
                }
                caught
            }),
        };
        switch(None);
        if !is_caught {
            missed.push(*bug);
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
