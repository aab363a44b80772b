//! Distributes a gateway's delivery slots fairly among callers.

use std::collections::BTreeMap;

use sinew_protocol::Token;

/// Maximum number of webhooks that one gateway serves concurrently.
const MAX_HELD: usize = 5_000;
/// Slots reserved for callers that use few; one caller alone cannot take them.
const RESERVED: usize = 1_000;
/// Number of slots up to which a caller uses few.
const FEW: usize = 100;

/// Returns the indexes of the webhooks to take. Callers with fewer slots come first, so that one
/// caller's webhooks cannot exclude those of others.
pub(super) fn fair_share(callers: &[&Token], held_by: &BTreeMap<Token, usize>) -> Vec<usize> {
    let mut places: BTreeMap<&Token, usize> =
        held_by.iter().map(|(caller, count)| (caller, *count)).collect();
    let mut ranked: Vec<(usize, usize)> = Vec::with_capacity(callers.len());
    for (at, caller) in callers.iter().enumerate() {
        let place = places.entry(caller).or_default();
        ranked.push((*place, at));
        *place += 1;
    }
    // Sorted by the slots that each caller would already have.
    ranked.sort_unstable();
    let mut held: usize = held_by.values().sum();
    let mut taken = Vec::new();
    for (place, at) in ranked {
        if held < MAX_HELD - RESERVED || (held < MAX_HELD && place < FEW) {
            held += 1;
            taken.push(at);
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes webhooks of these callers, and returns how many each caller then has.
    fn take(held_by: &mut BTreeMap<Token, usize>, wanted: &[(&str, usize)]) -> Vec<usize> {
        let tokens: Vec<(Token, usize)> =
            wanted.iter().map(|(name, count)| (Token::of(name), *count)).collect();
        let callers: Vec<&Token> =
            tokens.iter().flat_map(|(caller, count)| std::iter::repeat_n(caller, *count)).collect();
        for at in fair_share(&callers, held_by) {
            *held_by.entry(callers[at].clone()).or_default() += 1;
        }
        tokens.iter().map(|(caller, _)| held_by.get(caller).copied().unwrap_or_default()).collect()
    }

    #[test]
    fn one_caller_keeps_nobody_out() {
        let mut held = BTreeMap::new();
        assert_eq!(take(&mut held, &[("greedy", 5_008)]), [MAX_HELD - RESERVED], "some places stay free");
        assert_eq!(take(&mut held, &[("greedy", 1_008), ("other", 3)]), [MAX_HELD - RESERVED, 3]);
        assert_eq!(take(&mut held, &[("other", 500)]), [FEW], "those are for callers who have few");
    }

    #[test]
    fn callers_take_turns() {
        let mut held = BTreeMap::from([(Token::of("b"), 500)]);
        assert_eq!(take(&mut held, &[("a", 9_000), ("b", 9_000), ("c", 10)]), [1_995, 1_995, 10]);
        assert!(take(&mut held, &[("a", 9_000), ("b", 9_000)]).iter().all(|count| *count < 2_100));
    }

    #[test]
    fn a_few_are_all_taken() {
        assert_eq!(take(&mut BTreeMap::new(), &[("a", 7), ("b", 1)]), [7, 1]);
    }
}
