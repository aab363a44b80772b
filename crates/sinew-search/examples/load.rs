//! Memory and times of a large index, as a line: `cargo run --release -p sinew-search --example load`.

#![expect(clippy::print_stdout, reason = "the line is the result")]

use std::time::{Duration, Instant};

use sinew_search::{SearchDocument, SearchIndex, SearchQuery, SkillText};

/// Number of entries.
const ENTRIES: usize = 10_000;
/// Number of queries, and of updates.
const QUERIES: usize = 1_000;
const SYLLABLES: [&str; 24] = [
    "re", "fund", "or", "der", "pay", "mint", "ship", "ping", "con", "tract", "in", "voice", "time", "sheet",
    "ro", "ster", "cu", "sto", "mer", "ac", "count", "led", "ger", "port",
];

/// Numbers in an order that looks random and is always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }

    /// A word of two or three syllables, of about 14,000: few words are frequent, as in texts.
    fn word(&mut self) -> String {
        let rare = self.below(4) == 0;
        let count = if rare { 3 } else { 2 };
        (0..count).map(|_| SYLLABLES[self.below(SYLLABLES.len())]).collect()
    }

    fn text(&mut self, words: usize) -> String {
        (0..words).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }

    /// An entry with a description, three examples, four tags and eight parameters.
    fn document(&mut self, at: usize) -> SearchDocument {
        let description = self.text(20);
        SearchDocument {
            name: format!("{}-{}-{at}", self.word(), self.word()),
            skills: vec![SkillText {
                id: "run".to_owned(),
                name: self.word(),
                description: description.clone(),
            }],
            description,
            examples: (0..3).map(|_| self.text(6)).collect(),
            tags: (0..4).map(|_| self.word()).collect(),
            parameters: (0..8).map(|_| (self.word(), self.text(6))).collect(),
            ..SearchDocument::default()
        }
    }
}

/// Resident memory in KiB; 0 where the system has no `/proc`.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).map_or(0, |pages| pages * 4)
}

fn quantile(times: &mut [Duration], share: usize) -> Duration {
    times.sort();
    times[(times.len() - 1) * share / 100]
}

fn main() {
    let mut numbers = Numbers(1);
    let mut documents: Vec<SearchDocument> = (0..ENTRIES).map(|at| numbers.document(at)).collect();
    let (mut index, before, begin) = (SearchIndex::default(), resident(), Instant::now());
    for document in &documents {
        index.add(document);
    }
    let (built, memory) = (begin.elapsed(), resident() - before);
    let mut queries: Vec<Duration> = (0..QUERIES)
        .map(|_| {
            let (text, begin) = (numbers.text(5), Instant::now());
            let found = index.search(&SearchQuery { text: &text, limit: 10 }, |_| true);
            let took = begin.elapsed();
            assert!(found.hits.len() <= 10);
            took
        })
        .collect();
    let mut updates: Vec<Duration> = (0..QUERIES)
        .map(|at| {
            let changed = SearchDocument { description: numbers.text(20), ..documents.swap_remove(at) };
            let begin = Instant::now();
            index.add(&changed);
            begin.elapsed()
        })
        .collect();
    println!(
        "{ENTRIES} entries: {} KiB, built in {built:?}; query p50 {:?}, p99 {:?}; update of an entry p50 {:?}, p99 {:?}",
        memory,
        quantile(&mut queries, 50),
        quantile(&mut queries, 99),
        quantile(&mut updates, 50),
        quantile(&mut updates, 99),
    );
}
