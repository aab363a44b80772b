//! What the tool lists of MCP clients contain.

use std::str::FromStr;

/// What the tool list of a client contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolMode {
    /// All tools if there are few, else those of [`ToolMode::Find`].
    #[default]
    Auto,
    /// All tools, for hosts that search themselves.
    All,
    /// The tools that search and call others.
    Find,
    /// The tools whose names match a pattern (`*` matches any text), and those of
    /// [`ToolMode::Find`].
    Named(Vec<String>),
}

impl FromStr for ToolMode {
    type Err = std::convert::Infallible;

    /// Parses `auto`, `all`, `find`, or names and patterns with commas between them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "" | "auto" => Self::Auto,
            "all" => Self::All,
            "find" => Self::Find,
            names => Self::Named(names.split(',').map(|name| name.trim().to_owned()).collect()),
        })
    }
}
