//! Search over the agents and workflows of a mesh: "which tool refunds an order?"
//!
//! Layer: pure. A process that follows the cards of a mesh adds and removes [`SearchDocument`]s and
//! asks its own [`SearchIndex`]; there is no search service and nothing is stored.
//!
//! Ranking is lexical: BM25 over weighted fields ([`Field`]), English stems, and a careful spelling
//! correction. Only entries that the caller may see are scored **and counted**, so results say
//! nothing about entries that are hidden. The same entries give the same results, in whatever order
//! they arrived.
//!
//! It never reads a mesh, and never decides what a caller may see.

mod document;
mod index;
mod lookalike;
mod query;
mod spelling;
mod tokens;

pub use document::{Field, SearchDocument, SkillText, parameters_of};
pub use index::{MAX_ENTRIES, SearchIndex};
pub use lookalike::Lookalikes;
pub use query::{MAX_QUERY_CHARS, SearchHit, SearchQuery, SearchResults};
