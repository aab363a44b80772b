//! Queries and their results.

use sinew_protocol::catalogue::Stage;

use crate::document::Field;

/// Maximum length of a query in characters; the rest is ignored.
pub const MAX_QUERY_CHARS: usize = 1_000;
/// Maximum number of different terms of a query; the rest is ignored.
pub(crate) const MAX_TERMS: usize = 64;

/// A search.
#[derive(Clone, Debug)]
pub struct SearchQuery<'a> {
    /// What the caller wants to do, in any words.
    pub text: &'a str,
    /// Maximum number of hits.
    pub limit: usize,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResults {
    /// The best entries, best first.
    pub hits: Vec<SearchHit>,
    /// Number of entries that contain a term of the query.
    pub total: usize,
    /// Corrected words: the word of the query, and the stem that was searched for.
    pub corrections: Vec<(String, String)>,
}

/// An entry that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchHit {
    /// Name of the entry.
    pub name: String,
    /// Share of the query that the entry covers, in percent: rare words count more than frequent
    /// ones, and names more than parameters.
    pub score: u8,
    /// Fields in which each word was found.
    pub matches: Vec<(Field, String)>,
    /// The skill that fits best, of an entry with several skills.
    pub skill: Option<String>,
    /// Maturity of the entry.
    pub stage: Stage,
}
