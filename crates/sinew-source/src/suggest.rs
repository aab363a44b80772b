//! "Did you mean": the nearest known word.

/// The candidate nearest to `word`, if it is near enough to be a slip of the fingers: at most a third
/// of its letters wrong. Case does not count; of equally near ones the first wins.
pub fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
    let allowed = word.len().div_ceil(3);
    candidates
        .map(|candidate| {
            let letters: Vec<char> = candidate.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
            (distance(&word, &letters), candidate)
        })
        .filter(|(distance, candidate)| *distance <= allowed && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Words longer than this are compared by their first letters only: names are short, input may not be.
const LONGEST: usize = 64;

/// Edits (insert, delete, replace, swap of neighbours) from one word to the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}
