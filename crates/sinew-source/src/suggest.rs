//! "Did you mean": the nearest known word.

/// Maximum number of findings of a file with a suggestion. Each suggestion compares with all known
/// words, so a file with thousands of unknown names would take quadratic time.
pub const MAX_HINTED_FINDINGS: usize = 100;

/// Maximum number of compared letters of a word, because input may be long.
const LONGEST: usize = 64;

/// Returns the candidate nearest to `word` as [`did_you_mean`] does, or `None` once a file has many
/// findings.
pub fn hint_for<'a>(
    finding_count: usize,
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    (finding_count < MAX_HINTED_FINDINGS).then(|| did_you_mean(word, candidates)).flatten()
}

/// Returns the candidate nearest to `word`, if it is a likely typo: at most a third of its letters
/// are wrong. Ignores case; among equally near candidates the first is returned.
pub fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(LONGEST).flat_map(char::to_lowercase).collect();
    let mut allowed = word.len().div_ceil(3);
    let mut nearest = None;
    let mut letters = Vec::new();
    let mut rows = DistanceRows::default();
    for candidate in candidates {
        letters.clear();
        letters.extend(candidate.chars().take(LONGEST).flat_map(char::to_lowercase));
        // Each additional or missing letter is an edit.
        if letters.len().abs_diff(word.len()) > allowed {
            continue;
        }
        let Some(distance) = rows.distance(&word, &letters, allowed) else { continue };
        if distance >= candidate.chars().count() {
            continue;
        }
        nearest = Some(candidate);
        // Only a nearer candidate replaces it.
        match distance.checked_sub(1) {
            Some(nearer) => allowed = nearer,
            None => break,
        }
    }
    nearest
}

/// Rows of the edit distance table, reused for the next word.
#[derive(Default)]
struct DistanceRows {
    before: Vec<usize>,
    above: Vec<usize>,
    row: Vec<usize>,
}

impl DistanceRows {
    /// Returns the number of edits (insert, delete, replace, swap of neighbours) from one word to
    /// the other, if at most `allowed`.
    fn distance(&mut self, a: &[char], b: &[char], allowed: usize) -> Option<usize> {
        self.above.clear();
        self.above.extend(0..=b.len());
        self.before.clone_from(&self.above);
        let mut least_above = 0;
        for i in 1..=a.len() {
            self.row.clear();
            self.row.push(i);
            let mut least = i;
            for j in 1..=b.len() {
                let replace = self.above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut edits = replace.min(self.above[j] + 1).min(self.row[j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    edits = edits.min(self.before[j - 2] + 1);
                }
                least = least.min(edits);
                self.row.push(edits);
            }
            // Later rows are computed from these two and never have lower values.
            if least.min(least_above) > allowed {
                return None;
            }
            least_above = least;
            std::mem::swap(&mut self.before, &mut self.above);
            std::mem::swap(&mut self.above, &mut self.row);
        }
        self.above.last().copied().filter(|edits| *edits <= allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_up_to_what_is_allowed() {
        let cases = [
            ("", "", 0),
            ("a", "", 1),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
            ("node-1", "node-2", 1),
            ("abcd", "badc", 2),
        ];
        for (a, b, edits) in cases {
            let letters = |word: &str| word.chars().collect::<Vec<_>>();
            for allowed in 0..8 {
                let counted = DistanceRows::default().distance(&letters(a), &letters(b), allowed);
                assert_eq!(counted, (edits <= allowed).then_some(edits), "{a} {b} {allowed}");
            }
        }
    }

    #[test]
    fn files_with_many_findings_get_no_more_hints() {
        let hint = |count| hint_for(count, "abd", ["abc"].into_iter());
        assert_eq!((hint(MAX_HINTED_FINDINGS - 1), hint(MAX_HINTED_FINDINGS)), (Some("abc"), None));
    }
}
