//! Chance in conditions (`rand()`, `randint(n)`): numbers that depend on nothing but the place where they are drawn.
//!
//! Every owner of an execution draws the same numbers for the same decision, and a replay draws them again.

use sha2::{Digest as _, Sha256};

/// Digest of the place of a decision: execution, node, activation, condition.
pub(super) type ChanceSeed = [u8; 32];

/// Place of a condition within the decisions of one activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionPosition {
    /// Whether the node runs at all.
    When,
    /// A case of a switch by its position, or the only condition of a conditional.
    Case(usize),
    /// Whether a loop goes on after so many iterations.
    Iteration(usize),
}

/// Digest of a place: each part by itself, so that no two places are one.
pub(super) fn chance_seed(names: &[&str], ordinal: u32, place: ConditionPosition) -> ChanceSeed {
    let mut digest = Sha256::new();
    for name in names {
        digest.update((name.len() as u64).to_be_bytes());
        digest.update(name);
    }
    digest.update(ordinal.to_be_bytes());
    let (kind, position) = match place {
        ConditionPosition::When => (0_u8, 0),
        ConditionPosition::Case(position) => (1, position),
        ConditionPosition::Iteration(count) => (2, count),
    };
    digest.update([kind]);
    digest.update((position as u64).to_be_bytes());
    digest.finalize().into()
}

/// The numbers that one evaluation draws.
pub(super) struct ChanceDraws<'s> {
    seed: &'s dyn Fn() -> ChanceSeed,
    drawn: u64,
}

impl<'s> ChanceDraws<'s> {
    /// Draws of an evaluation at this place. The seed is made for conditions that draw something.
    pub(super) fn new(seed: &'s dyn Fn() -> ChanceSeed) -> Self {
        Self { seed, drawn: 0 }
    }

    /// Returns the next number, from 0 to just below 1.
    pub(super) fn next_float(&mut self) -> f64 {
        let digest =
            Sha256::new().chain_update((self.seed)()).chain_update(self.drawn.to_be_bytes()).finalize();
        self.drawn += 1;
        let bits = digest.iter().take(8).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        // A float has 53 bits.
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Numbers lie from 0 to below 1, spread evenly, and no place repeats those of another.
    #[test]
    fn draws_are_even_and_those_of_their_place() {
        let mut seen = BTreeSet::new();
        let mut tenths = [0_u32; 10];
        for (names, place) in [
            (["a", "bc"], ConditionPosition::When),
            (["ab", "c"], ConditionPosition::When),
            (["a", "bc"], ConditionPosition::Case(0)),
            (["a", "bc"], ConditionPosition::Case(1)),
            (["a", "bc"], ConditionPosition::Iteration(1)),
        ] {
            for ordinal in 0..2 {
                let seed = || chance_seed(&names, ordinal, place);
                let (mut draws, mut again) = (ChanceDraws::new(&seed), ChanceDraws::new(&seed));
                for _ in 0..1_000 {
                    let drawn = draws.next_float();
                    assert!((0.0..1.0).contains(&drawn), "{drawn}");
                    assert_eq!(drawn.to_bits(), again.next_float().to_bits());
                    assert!(seen.insert(drawn.to_bits()), "{drawn} was drawn before");
                    tenths[(1..10_u8).filter(|tenth| f64::from(*tenth) / 10.0 <= drawn).count()] += 1;
                }
            }
        }
        // 10,000 draws: a tenth of them lies 6 standard deviations around 1,000.
        assert!(tenths.iter().all(|count| (820..1180).contains(count)), "{tenths:?}");
    }
}
