//! `NAME.tools.lock`: digests of the descriptions of tools that a person accepted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sinew_files::read_text_file;

use super::server_tool::McpTool;

/// Maximum bytes of a lock file.
const MAX_LOCK_BYTES: u64 = 1 << 20;
/// Suffixes of agent files.
const ENDINGS: [&str; 3] = [".agent.yaml", ".agent.yml", ".agent.json"];

/// Digests of the accepted tools, by server and tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolLock {
    mcp: BTreeMap<String, BTreeMap<String, String>>,
}

/// State of a tool's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolPin {
    /// The agent file has no lock file.
    Unpinned,
    /// The description equals the accepted one.
    Accepted,
    /// The tool is not in the lock file.
    New,
    /// The description differs from the accepted one.
    Changed,
}

impl ToolPin {
    /// Returns the name of the state for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unpinned => "not pinned",
            Self::Accepted => "accepted",
            Self::New => "new",
            Self::Changed => "changed",
        }
    }
}

impl ToolLock {
    /// Returns the path of the lock file of an agent file.
    pub(crate) fn path(agent_file: &Path) -> PathBuf {
        let name = agent_file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
        agent_file.with_file_name(format!("{}.tools.lock", stem.unwrap_or(&name)))
    }

    /// Reads the lock file; `None` if it does not exist.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, String> {
        if !path.exists() {
            return Ok(None);
        }
        let text = read_text_file(path, MAX_LOCK_BYTES).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map(Some).map_err(|error| error.to_string())
    }

    /// Returns the content of the lock file.
    pub(crate) fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    pub(crate) fn accept(&mut self, server: &str, tool: &McpTool) {
        self.mcp.entry(server.to_owned()).or_default().insert(tool.name.clone(), tool.digest());
    }

    pub(crate) fn pin(&self, server: &str, tool: &McpTool) -> ToolPin {
        match self.mcp.get(server).and_then(|tools| tools.get(&tool.name)) {
            None => ToolPin::New,
            Some(digest) if *digest == tool.digest() => ToolPin::Accepted,
            Some(_) => ToolPin::Changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn locks_lie_beside_their_agents() {
        for (agent, lock) in [
            ("a/clerk.agent.yaml", "a/clerk.tools.lock"),
            ("clerk.agent.json", "clerk.tools.lock"),
            ("clerk", "clerk.tools.lock"),
        ] {
            assert_eq!(ToolLock::path(Path::new(agent)), Path::new(lock));
        }
    }

    #[test]
    fn changes_are_seen_whatever_the_order_of_keys() {
        let tool = |schema: &str, description: &str| McpTool {
            description: description.to_owned(),
            input_schema: serde_json::from_str(schema).unwrap(),
            ..McpTool::unknown("add")
        };
        let accepted = tool(r#"{"type": "object", "required": ["a"]}"#, "Adds.");
        let mut lock = ToolLock::default();
        lock.accept("s", &accepted);
        let read: ToolLock = serde_json::from_str(&lock.text()).unwrap();
        assert_eq!(read, lock);
        for (server, other, pin) in [
            ("s", accepted.clone(), ToolPin::Accepted),
            ("s", tool(r#"{"required": ["a"], "type": "object"}"#, "Adds."), ToolPin::Accepted),
            ("s", tool(r#"{"type": "object"}"#, "Adds."), ToolPin::Changed),
            ("s", McpTool { reads_only: true, ..accepted.clone() }, ToolPin::Changed),
            ("s", McpTool { input_schema: json!({}), ..McpTool::unknown("sub") }, ToolPin::New),
            ("t", accepted.clone(), ToolPin::New),
        ] {
            assert_eq!(lock.pin(server, &other), pin, "{server} {other:?}");
        }
    }
}
