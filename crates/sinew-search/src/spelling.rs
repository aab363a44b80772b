//! Spelling correction of a word that no visible entry contains.

/// Maximum number of terms that a word is corrected to.
const MAX_CANDIDATES: usize = 3;
/// Length from which a word may have two mistakes.
const LONG_WORD: usize = 8;
/// Length below which a word is not corrected: too many words are one letter away.
const SHORT_WORD: usize = 4;

/// Returns up to three known terms that a word may have been meant as, nearest first, then the most
/// frequent, then by alphabet. A swap of two neighbouring letters is one mistake.
///
/// `known` are the terms of the index; `frequency` returns the number of visible entries with a term
/// and is called for near terms only.
pub(crate) fn corrections<'a, T: Copy>(
    word: &str,
    known: impl Iterator<Item = (&'a str, T)>,
    frequency: impl Fn(T) -> usize,
) -> Vec<T> {
    let length = word.chars().count();
    if length < SHORT_WORD {
        return Vec::new();
    }
    let allowed = if length < LONG_WORD { 1 } else { 2 };
    let mask = letters(word);
    let mut near: Vec<(usize, usize, &str, T)> = known
        .filter(|(term, _)| term.chars().count().abs_diff(length) <= allowed)
        .filter(|(term, _)| (letters(term) ^ mask).count_ones() as usize <= 2 * allowed)
        .map(|(term, id)| (strsim::osa_distance(word, term), term, id))
        .filter(|(distance, ..)| *distance <= allowed)
        .map(|(distance, term, id)| (distance, frequency(id), term, id))
        .filter(|(_, frequency, ..)| *frequency > 0)
        .collect();
    near.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)).then(a.2.cmp(b.2)));
    near.truncate(MAX_CANDIDATES);
    near.into_iter().map(|(.., id)| id).collect()
}

/// Returns a set of the letters of a word, which refuses most terms without comparing them.
fn letters(word: &str) -> u64 {
    word.chars().fold(0, |set, letter| set | 1 << (u32::from(letter) % 64))
}

#[cfg(test)]
mod tests {
    use super::corrections;

    fn corrected(word: &str) -> Vec<&'static str> {
        let known = ["order", "border", "orders", "invoice", "refund", "odder"];
        corrections(word, known.iter().map(|term| (*term, *term)), |term| usize::from(term != "odder"))
    }

    #[test]
    fn near_terms_are_found_and_hidden_ones_are_not() {
        assert_eq!(corrected("oder"), ["order"]);
        assert_eq!(corrected("refudn"), ["refund"]);
        assert_eq!(corrected("invoicee"), ["invoice"]);
        assert_eq!(corrected("ord"), Vec::<&str>::new());
        assert_eq!(corrected("payment"), Vec::<&str>::new());
    }
}
