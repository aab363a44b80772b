//! The catalogue: agents and workflows of a mesh, and searches in it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sinew_protocol::catalogue::Stage;

use crate::agent::AgentKind;
use crate::agent_kind;

/// An agent or a workflow in the catalogue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CatalogueEntry {
    /// Name of the agent or workflow.
    pub name: String,
    /// `agent` or `workflow`.
    #[serde(with = "agent_kind")]
    #[schemars(with = "String")]
    pub kind: AgentKind,
    /// Maturity.
    pub stage: Stage,
    /// What to use instead of a deprecated entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
    /// Purpose, at most 300 characters.
    pub description: String,
    /// People or team responsible for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintainer: Option<String>,
    /// Labels of its author.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Links of its author, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, String>,
    /// Tags of its skills.
    pub tags: Vec<String>,
    /// Requests that it serves, in the words of its author.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Whether a call changes something outside the mesh, according to its author.
    pub side_effects: bool,
    /// Another name that looks the same, which may be an attempt to deceive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resembles: Option<String>,
    /// Whether short lists contain it, as administrators set it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Whether lists and searches omit it, as administrators set it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// JSON Schema of its input. Only the description of one entry has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// JSON Schema of its output. Only the description of one entry has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// How the entry matches the query. `null` in a list without a query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<CatalogueMatch>,
}

/// How an entry matches a query.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CatalogueMatch {
    /// Share of the query that the entry covers, in percent.
    pub score: u8,
    /// Words of the query, and the part of the entry that contains each: `name`, `example`, `tag`,
    /// `description` or `parameter`.
    pub words: Vec<MatchedWord>,
    /// The skill that fits best, of an entry with several skills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
}

/// A word of a query in an entry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MatchedWord {
    /// Part of the entry.
    pub field: String,
    /// The word.
    pub word: String,
}

/// Entries of the catalogue: all, or those that a search found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CataloguePage {
    /// The entries: by name, or the best first.
    pub entries: Vec<CatalogueEntry>,
    /// Number of entries that match.
    pub total: usize,
    /// Words that no entry contains, each with the stem that was searched for instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub corrections: BTreeMap<String, String>,
    /// Name after which the next page of a list begins: pass it as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
