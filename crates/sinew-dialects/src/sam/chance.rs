//! Random numbers in conditions (`rand()`, `randint(n)`), which depend only on the position of the
//! draw.
//!
//! Every owner of an execution draws the same numbers for the same decision, and a replay draws them again.

use sha2::{Digest as _, Sha256};

/// Digest of the position of a decision: execution, node, activation, condition.
pub(super) type ChanceSeed = [u8; 32];

/// Position of a condition among the decisions of one activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionPosition {
    /// Condition for running the node.
    When,
    /// A case of a switch by its index, or the only condition of a conditional.
    Case(usize),
    /// Condition for continuing a loop after this number of iterations.
    Iteration(usize),
}

/// Digests a position: each part separately, so that no two positions collide.
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

/// The random numbers of one evaluation.
pub(super) struct ChanceDraws<'s> {
    seed: &'s dyn Fn() -> ChanceSeed,
    drawn: u64,
}

impl<'s> ChanceDraws<'s> {
    /// Creates the draws of an evaluation. The seed is only computed for conditions that draw a
    /// number.
    pub(super) fn new(seed: &'s dyn Fn() -> ChanceSeed) -> Self {
        Self { seed, drawn: 0 }
    }

    /// Returns the next number in the range `0.0..1.0`.
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

    /// Numbers are distributed evenly in `0.0..1.0`, and no position repeats those of another.
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
        // 10,000 draws: the range is 6 standard deviations around 1,000 per tenth.
        assert!(tenths.iter().all(|count| (820..1180).contains(count)), "{tenths:?}");
    }
}
