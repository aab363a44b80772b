//! Options that select agents and workflows by their catalogue attributes.

use clap::{Args, ValueEnum};
use sinew_operations::catalogue::CatalogueQuery;
use sinew_protocol::catalogue::Stage;

/// Filters of lists and searches.
#[derive(Args, Debug)]
pub(crate) struct EntryFilterArgs {
    /// Only entries of this stage
    #[arg(long, value_enum, help_heading = "Filters")]
    stage: Option<StageArg>,
    /// Only entries of this maintainer
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    maintainer: Option<String>,
    /// Only entries with this label
    #[arg(short, long, value_name = "KEY[=VALUE]", help_heading = "Filters")]
    label: Option<String>,
    /// Only entries with a skill of this tag
    #[arg(long, value_name = "TAG", help_heading = "Filters")]
    tag: Option<String>,
}

/// Stage of entries to select.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StageArg {
    /// May change at any time
    Experimental,
    /// Suited for production
    Stable,
    /// To be replaced
    Deprecated,
}

impl EntryFilterArgs {
    /// Returns the query for entries that pass the filters and fit these words.
    pub(crate) fn query(&self, words: Option<String>) -> CatalogueQuery {
        CatalogueQuery {
            q: words,
            stage: self.stage.map(|stage| match stage {
                StageArg::Experimental => Stage::Experimental,
                StageArg::Stable => Stage::Stable,
                StageArg::Deprecated => Stage::Deprecated,
            }),
            maintainer: self.maintainer.clone(),
            label: self.label.clone(),
            tag: self.tag.clone(),
            ..CatalogueQuery::default()
        }
    }
}

/// Filters of a list of agents or workflows.
#[derive(Args, Debug)]
pub(crate) struct ListFilterArgs {
    #[command(flatten)]
    entries: EntryFilterArgs,
    /// Only entries that a search for these words finds
    #[arg(long, value_name = "WORDS", help_heading = "Filters")]
    search: Option<String>,
}

impl ListFilterArgs {
    /// Returns the query for the selected entries.
    pub(crate) fn query(&self) -> CatalogueQuery {
        self.entries.query(self.search.clone())
    }

    /// Returns whether an option is set.
    pub(crate) fn is_set(&self) -> bool {
        self.query().selects()
    }
}
