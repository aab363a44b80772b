//! The index: which entry contains which term, and how often.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use sinew_protocol::catalogue::Stage;

use crate::document::{Field, SearchDocument, shortened};
use crate::query::{MAX_QUERY_CHARS, MAX_TERMS, SearchHit, SearchQuery, SearchResults};
use crate::spelling;
use crate::tokens::{Word, is_function_word, words};

/// Maximum number of entries; more are not added.
pub const MAX_ENTRIES: usize = 20_000;

/// Occurrences of a term that count per field, so that repetition wins nothing.
const MAX_OCCURRENCES: u8 = 3;
/// Saturation of BM25: how fast further occurrences stop to matter.
const K1: f64 = 1.8;
/// Influence of a field's length, from 0 to 1.
const B: f64 = 0.4;
/// Weight of a corrected word.
const CORRECTED: f64 = 0.6;
/// Share of a query's weight above which unknown words are not corrected.
const ENOUGH_KNOWN: f64 = 0.7;
const FIELDS: usize = Field::ALL.len();

type EntryId = u32;
type TermId = u32;

/// Id of a skill, and the terms of its texts.
type SkillTerms = (Box<str>, Box<[TermId]>);

/// Occurrences of a term in an entry, by field.
#[derive(Clone, Copy, Debug)]
struct Posting {
    entry: EntryId,
    occurrences: [u8; FIELDS],
}

#[derive(Debug)]
struct Term {
    text: Arc<str>,
    /// Sorted by entry.
    postings: Vec<Posting>,
}

#[derive(Debug)]
struct Entry {
    name: Box<str>,
    stage: Stage,
    pinned: bool,
    lengths: [u16; FIELDS],
    terms: Box<[TermId]>,
    skills: Box<[SkillTerms]>,
}

/// The entries of a mesh, by the terms of their texts.
#[derive(Debug, Default)]
pub struct SearchIndex {
    entries: Vec<Option<Entry>>,
    free_entries: Vec<EntryId>,
    names: BTreeMap<Box<str>, EntryId>,
    terms: Vec<Option<Term>>,
    free_terms: Vec<TermId>,
    ids: HashMap<Arc<str>, TermId>,
}

/// A term of a query with its weight.
#[derive(Debug)]
struct Wanted<'a> {
    /// The word of the query.
    word: String,
    /// Known terms, each with a factor: one, or the candidates of a corrected word.
    terms: Vec<(&'a Term, TermId, f64)>,
    /// Weight of the word: high for rare ones.
    weight: f64,
}

impl SearchIndex {
    /// Adds an entry, or replaces the one of its name. Returns `false`, and changes nothing, when the
    /// index is full.
    pub fn add(&mut self, document: &SearchDocument) -> bool {
        self.remove(&document.name);
        if self.names.len() >= MAX_ENTRIES {
            return false;
        }
        let id = self.free_entries.pop().unwrap_or_else(|| {
            self.entries.push(None);
            EntryId::try_from(self.entries.len() - 1).unwrap_or(EntryId::MAX)
        });
        let mut lengths = [0_u16; FIELDS];
        let mut counts: BTreeMap<TermId, [u8; FIELDS]> = BTreeMap::new();
        for (field, text) in document.texts() {
            let field = field as usize;
            for word in words(text) {
                lengths[field] = lengths[field].saturating_add(1);
                let count = &mut counts.entry(self.intern(&word)).or_default()[field];
                *count = (*count + 1).min(MAX_OCCURRENCES);
            }
        }
        for (term, occurrences) in &counts {
            if let Some(term) = &mut self.terms[*term as usize] {
                let at = term.postings.partition_point(|posting| posting.entry < id);
                term.postings.insert(at, Posting { entry: id, occurrences: *occurrences });
            }
        }
        let skills = document.several_skills().iter().map(|skill| {
            let texts = [shortened(&skill.name), shortened(&skill.description)];
            let mut terms: Vec<TermId> =
                texts.iter().flat_map(|text| words(text)).map(|word| self.ids[word.term.as_str()]).collect();
            terms.sort_unstable();
            terms.dedup();
            (skill.id.as_str().into(), terms.into())
        });
        let skills = skills.collect();
        self.names.insert(document.name.as_str().into(), id);
        self.entries[id as usize] = Some(Entry {
            name: document.name.as_str().into(),
            stage: document.stage,
            pinned: document.pinned,
            lengths,
            terms: counts.into_keys().collect(),
            skills,
        });
        true
    }

    /// Removes the entry of a name, if there is one.
    pub fn remove(&mut self, name: &str) {
        let Some(id) = self.names.remove(name) else { return };
        let Some(entry) = self.entries[id as usize].take() else { return };
        self.free_entries.push(id);
        for term_id in entry.terms {
            let slot = &mut self.terms[term_id as usize];
            let Some(term) = slot else { continue };
            if let Ok(at) = term.postings.binary_search_by_key(&id, |posting| posting.entry) {
                term.postings.remove(at);
            }
            if term.postings.is_empty() {
                self.ids.remove(&term.text);
                *slot = None;
                self.free_terms.push(term_id);
            }
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether the index has no entry.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the names of the entries, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    /// Searches the entries for which `visible` returns `true`. Other entries have no influence on the
    /// results.
    pub fn search(&self, query: &SearchQuery<'_>, visible: impl Fn(&str) -> bool) -> SearchResults {
        let seen: Vec<bool> = self
            .entries
            .iter()
            .map(|entry| entry.as_ref().is_some_and(|entry| visible(&entry.name)))
            .collect();
        let statistics = Statistics::new(&self.entries, &seen);
        let (wanted, corrections) = self.wanted(query.text, &statistics);
        let best: f64 = wanted.iter().map(|wanted| wanted.weight * (K1 + 1.0)).sum();
        let mut scores: HashMap<EntryId, f64> = HashMap::new();
        for wanted in &wanted {
            for (entry, gain) in self.gains(wanted, &statistics) {
                *scores.entry(entry).or_default() += gain;
            }
        }
        let mut ranked: Vec<(u64, (bool, Stage), &str, EntryId)> = scores
            .into_iter()
            .filter_map(|(id, score)| {
                let entry = self.entries[id as usize].as_ref()?;
                Some((in_millionths(score / best), (!entry.pinned, entry.stage), &*entry.name, id))
            })
            .collect();
        ranked.sort_by_key(|(score, order, name, _)| {
            (order.1 == Stage::Deprecated, Reverse(*score), *order, *name)
        });
        let total = ranked.len();
        let hits = ranked.iter().take(query.limit).map(|(score, (_, stage), name, id)| SearchHit {
            name: (*name).to_owned(),
            score: u8::try_from((score + 5_000) / 10_000).unwrap_or(100).min(100),
            matches: matches_of(&wanted, *id),
            skill: self.best_skill(&wanted, *id),
            stage: *stage,
        });
        SearchResults { hits: hits.collect(), total, corrections }
    }

    /// Returns the id of the term of a word.
    fn intern(&mut self, word: &Word) -> TermId {
        if let Some(id) = self.ids.get(word.term.as_str()) {
            return *id;
        }
        let text: Arc<str> = word.term.as_str().into();
        let term = Term { text: Arc::clone(&text), postings: Vec::new() };
        let id = if let Some(id) = self.free_terms.pop() {
            self.terms[id as usize] = Some(term);
            id
        } else {
            self.terms.push(Some(term));
            TermId::try_from(self.terms.len() - 1).unwrap_or(TermId::MAX)
        };
        self.ids.insert(text, id);
        id
    }

    fn term(&self, id: TermId) -> Option<&Term> {
        self.terms.get(id as usize)?.as_ref()
    }

    /// Returns the terms to look for, and the words that were corrected.
    fn wanted<'a>(
        &'a self,
        text: &str,
        statistics: &Statistics<'_>,
    ) -> (Vec<Wanted<'a>>, Vec<(String, String)>) {
        let end = text.char_indices().nth(MAX_QUERY_CHARS).map_or(text.len(), |(end, _)| end);
        let mut wanted: Vec<Wanted<'a>> = Vec::new();
        let mut seen = HashSet::new();
        let mut asked = words(&text[..end]);
        if asked.iter().any(|word| !is_function_word(&word.text)) {
            asked.retain(|word| !is_function_word(&word.text));
        }
        for word in asked {
            if wanted.len() == MAX_TERMS || !seen.insert(word.term.clone()) {
                continue;
            }
            let known = self.ids.get(word.term.as_str()).copied();
            let known = known.and_then(|id| Some((self.term(id)?, id)));
            let frequency = known.map_or(0, |(term, _)| statistics.frequency(term));
            let parts = if frequency > 0 { None } else { self.compound(&word, statistics) };
            match (known, parts) {
                (_, Some(parts)) => {
                    for (term, id) in parts {
                        let weight = statistics.weight(statistics.frequency(term));
                        wanted.push(Wanted { word: word.text.clone(), terms: vec![(term, id, 1.0)], weight });
                    }
                }
                (Some((term, id)), None) if frequency > 0 => wanted.push(Wanted {
                    word: word.text,
                    terms: vec![(term, id, 1.0)],
                    weight: statistics.weight(frequency),
                }),
                _ => wanted.push(Wanted { word: word.text, terms: Vec::new(), weight: statistics.weight(0) }),
            }
        }
        let all: f64 = wanted.iter().map(|wanted| wanted.weight).sum();
        let known: f64 =
            wanted.iter().filter(|wanted| !wanted.terms.is_empty()).map(|wanted| wanted.weight).sum();
        if known < ENOUGH_KNOWN * all {
            self.correct(&mut wanted, statistics);
        }
        let corrections = wanted.iter().filter_map(|wanted| {
            let (term, _, factor) = wanted.terms.first()?;
            (*factor < 1.0).then(|| (wanted.word.clone(), term.text.to_string()))
        });
        let corrections = corrections.collect();
        (wanted, corrections)
    }

    /// Gives each unknown word the known terms that it may have been meant as.
    fn correct<'a>(&'a self, wanted: &mut [Wanted<'a>], statistics: &Statistics<'_>) {
        for wanted in wanted.iter_mut().filter(|wanted| wanted.terms.is_empty()) {
            let known = self.ids.iter().filter_map(|(text, id)| Some((&**text, (self.term(*id)?, *id))));
            let stem = words(&wanted.word).pop().map_or_else(String::new, |word| word.term);
            let near = spelling::corrections(&stem, known, |(term, _)| statistics.frequency(term));
            // The word counts as much as the one that it was corrected to, not like a rare word.
            let weights = near.iter().map(|(term, _)| statistics.weight(statistics.frequency(term)));
            wanted.weight = weights.reduce(f64::max).unwrap_or(wanted.weight);
            wanted.terms = near.into_iter().map(|(term, id)| (term, id, CORRECTED)).collect();
        }
    }

    /// Splits an unknown word into two known ones, at the first place where both are known.
    fn compound<'a>(&'a self, word: &Word, statistics: &Statistics<'_>) -> Option<[(&'a Term, TermId); 2]> {
        const SHORTEST_PART: usize = 3;
        let known = |part: &str| {
            let id = *self.ids.get(words(part).first()?.term.as_str())?;
            let term = self.term(id).filter(|term| statistics.frequency(term) > 0)?;
            Some((term, id))
        };
        let ends = word.text.char_indices().map(|(at, _)| at).skip(SHORTEST_PART);
        let last = word.text.chars().count().checked_sub(2 * SHORTEST_PART)?;
        ends.take(last + 1).find_map(|at| Some([known(&word.text[..at])?, known(&word.text[at..])?]))
    }

    /// Returns what a word adds to the score of each visible entry that contains it. Of several
    /// candidates of a corrected word the best counts.
    fn gains(&self, wanted: &Wanted<'_>, statistics: &Statistics<'_>) -> HashMap<EntryId, f64> {
        let mut gains: HashMap<EntryId, f64> = HashMap::new();
        for (term, _, factor) in &wanted.terms {
            for posting in statistics.visible(term) {
                let Some(entry) = &self.entries[posting.entry as usize] else { continue };
                let frequency = statistics.weighted_occurrences(posting, entry);
                let gain = factor * wanted.weight * (K1 + 1.0) * frequency / (K1 + frequency);
                let best = gains.entry(posting.entry).or_default();
                *best = best.max(gain);
            }
        }
        gains
    }

    /// Returns the skill that contains the most weight of the query; the first of several.
    fn best_skill(&self, wanted: &[Wanted<'_>], id: EntryId) -> Option<String> {
        let entry = self.entries[id as usize].as_ref()?;
        let weight = |terms: &[TermId]| {
            let found = wanted
                .iter()
                .filter(|wanted| wanted.terms.iter().any(|(_, id, _)| terms.binary_search(id).is_ok()));
            in_millionths(found.map(|wanted| wanted.weight).sum())
        };
        let best = entry.skills.iter().rev().max_by_key(|(_, terms)| weight(terms))?;
        Some(best.0.to_string())
    }
}

/// Counts over the entries that the caller may see.
struct Statistics<'a> {
    seen: &'a [bool],
    entries: f64,
    average_lengths: [f64; FIELDS],
}

impl<'a> Statistics<'a> {
    fn new(entries: &[Option<Entry>], seen: &'a [bool]) -> Self {
        let mut count = 0_u32;
        // Optional fields: the average of the entries that have one, or the few authors who write examples
        // would have unusually long ones.
        let mut lengths = [(0_u64, 0_u32); FIELDS];
        for (entry, _) in entries.iter().zip(seen).filter(|(_, seen)| **seen) {
            let Some(entry) = entry else { continue };
            count += 1;
            for ((sum, present), length) in lengths.iter_mut().zip(entry.lengths) {
                *sum += u64::from(length);
                *present += u32::from(length > 0);
            }
        }
        // A sum of 20,000 lengths of 16 bits is exact as a double.
        #[expect(clippy::cast_precision_loss, reason = "below 2^52")]
        let average_lengths = lengths.map(|(sum, present)| sum as f64 / f64::from(present).max(1.0));
        Self { seen, entries: f64::from(count), average_lengths }
    }

    /// Returns the visible occurrences of a term.
    fn visible<'t>(&self, term: &'t Term) -> impl Iterator<Item = &'t Posting> {
        term.postings.iter().filter(|posting| self.seen[posting.entry as usize])
    }

    /// Returns the number of visible entries with a term.
    fn frequency(&self, term: &Term) -> usize {
        self.visible(term).count()
    }

    /// Weight of a term with this frequency: BM25's inverse document frequency.
    #[expect(clippy::cast_precision_loss, reason = "at most the number of entries")]
    fn weight(&self, frequency: usize) -> f64 {
        let frequency = frequency as f64;
        (1.0 + (self.entries - frequency + 0.5) / (frequency + 0.5)).ln()
    }

    /// Occurrences of a term in an entry, weighted by field; in longer fields each counts less.
    fn weighted_occurrences(&self, posting: &Posting, entry: &Entry) -> f64 {
        let fields = Field::ALL.iter().enumerate().filter(|(at, _)| posting.occurrences[*at] > 0);
        let weighted = fields.map(|(at, field)| {
            let length = f64::from(entry.lengths[at]) / self.average_lengths[at].max(1.0);
            field.weight() * f64::from(posting.occurrences[at]) / (1.0 - B + B * length)
        });
        weighted.sum()
    }
}

/// Returns the fields of an entry in which each word was found, best fields first.
fn matches_of(wanted: &[Wanted<'_>], id: EntryId) -> Vec<(Field, String)> {
    let mut found = Vec::new();
    for wanted in wanted {
        for (term, _, factor) in &wanted.terms {
            let Ok(at) = term.postings.binary_search_by_key(&id, |posting| posting.entry) else { continue };
            let occurrences = term.postings[at].occurrences;
            let fields = Field::ALL.into_iter().filter(|field| occurrences[*field as usize] > 0);
            // A word that was corrected is shown by its stem: its forms in hidden entries stay hidden.
            let shown = if *factor < 1.0 { &*term.text } else { &wanted.word };
            found.extend(fields.map(|field| (field, shown.to_owned())));
        }
    }
    found.sort_by_key(|(field, _)| *field);
    found.dedup();
    found
}

/// Returns a share as an integer, so that comparisons do not depend on the last bits of a sum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares and weights are small and positive"
)]
fn in_millionths(share: f64) -> u64 {
    (share * 1e6).round() as u64
}
