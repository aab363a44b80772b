//! Selects the MCP servers of a conversation and checks their tools against the lock file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::Value;
use sinew_model::EffectClass;
use sinew_protocol::access::matches_pattern;

use super::ModelAgent;
use super::rehearsal::ToolStubs;
use super::tools::{ToolSettings, ToolSource, ToolSources, ToolTable, missing_tool, unusable_tools};
use crate::call::Call;
use crate::clean::ResolvedSecrets;
use crate::error::AgentError;
use crate::peers::PeerDescription;
use crate::run::RunnerSurroundings;
use crate::run::mcp::{McpServer, McpTool, ServerLocation, ToolLock, ToolPin};

/// Name of the server or tool that searches for nodes that enable the search of their dialect.
pub(super) const WEB_SEARCH: &str = "web_search";
/// Maximum bytes of a tool's description in a prompt.
const MAX_DESCRIPTION_BYTES: usize = 4 << 10;
/// Maximum bytes of a tool's schema.
const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// A server whose tools a model can call.
#[derive(Debug)]
pub(crate) struct McpServerRule {
    /// Name of the server.
    pub(crate) name: String,
    pub(crate) place: Arc<ServerLocation>,
    /// Allowed tools. The first entry that matches a name applies.
    pub(crate) allow: Vec<AllowedTools>,
    /// Whether to trust the server's hints about effects.
    pub(crate) trust_hints: bool,
    /// Server that all tasks share; `None` if each task has its own.
    pub(crate) shared: Option<Arc<McpServer>>,
}

/// Allowed tools of a server, by name or pattern.
#[derive(Debug)]
pub(crate) struct AllowedTools {
    pub(crate) pattern: String,
    pub(crate) settings: ToolSettings,
}

impl McpServerRule {
    pub(crate) fn allowed(&self, tool: &str) -> Option<&ToolSettings> {
        let fits = |allowed: &&AllowedTools| matches_pattern(&allowed.pattern, tool);
        self.allow.iter().find(fits).map(|allowed| &allowed.settings)
    }

    /// Returns the default effect of a tool.
    pub(crate) fn usual_effect(&self, tool: &McpTool) -> EffectClass {
        match tool {
            tool if self.trust_hints && tool.reads_only => EffectClass::Read,
            tool if self.trust_hints && tool.is_idempotent => EffectClass::Repeat,
            _ => EffectClass::Once,
        }
    }
}

/// A server of a conversation, and its tools for the model.
pub(crate) struct OfferedServer {
    pub(crate) rule: Arc<McpServerRule>,
    /// The running server; `None` in rehearsals.
    pub(crate) server: Option<ServerAtWork>,
    pub(crate) tools: Vec<McpTool>,
}

/// A server that can be called.
#[derive(Clone)]
pub(crate) struct ServerAtWork {
    server: Arc<McpServer>,
    around: RunnerSurroundings,
    is_shared: bool,
}

impl ServerAtWork {
    /// Calls a tool.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        key: &str,
        task: &Call,
    ) -> Result<Value, AgentError> {
        // Progress of a shared server cannot be attributed to a task.
        let progress = (!self.is_shared).then_some(&task.progress);
        self.server.answer(tool, arguments, (key, task), &self.around, progress).await
    }
}

/// The servers of a file, with their tools.
struct AskedServers {
    /// The servers, with their allowed tools.
    servers: Vec<OfferedServer>,
    /// Pin states of the tools, by source.
    pins: HashMap<String, ToolPin>,
    /// Text of the lock file that accepts them.
    lock: String,
}

/// The tools of a model agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentTools {
    /// The tools, as in the model's requests.
    pub tools: Vec<PinnedTool>,
    /// Text of the lock file that accepts them.
    pub lock: String,
    /// Path of the lock file.
    pub lock_path: PathBuf,
}

/// A tool of a model agent.
#[derive(Clone, Debug, PartialEq)]
pub struct PinnedTool {
    /// Name in the model's requests.
    pub name: String,
    /// Origin of its results.
    pub source: String,
    /// Description, without hidden characters.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Value,
    /// `read`, `repeat` or `once`.
    pub effect: &'static str,
    /// Whether results can contain untrusted text.
    pub is_open: bool,
    /// Pin state; `None` for tools without a server.
    pub pin: Option<ToolPin>,
}

/// A tool that a node requests and its model agent lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LackingTool {
    /// Name of the MCP server or tool.
    pub name: String,
    /// Whether tasks of the node fail. Otherwise, the model works without the tool.
    pub is_fatal: bool,
}

impl ModelAgent {
    /// Returns the requested servers that the file does not have, and the search.
    pub(crate) fn lacking_tools(&self, request: &Value) -> Vec<LackingTool> {
        let asked = servers_of_request(request).into_iter();
        let lacking = asked.filter(|name| {
            let is_search = name == WEB_SEARCH && is_search_wanted(request);
            let is_offered = is_search && self.tools.iter().any(|rule| rule.offers(WEB_SEARCH));
            !is_offered && !self.server_rules().any(|(rule, _)| rule.name == *name)
        });
        lacking
            .map(|name| LackingTool { is_fatal: is_search_wanted(request) && name == WEB_SEARCH, name })
            .collect()
    }

    fn server_rules(&self) -> impl Iterator<Item = (&Arc<McpServerRule>, bool)> {
        self.tools.iter().filter_map(|rule| match &rule.source {
            ToolSource::Mcp { server, on_request } => Some((server, *on_request)),
            _ => None,
        })
    }

    /// Adds the environment values in the settings of servers, to redact them in results.
    pub(super) fn read_server_secrets(&self, around: &RunnerSurroundings, secrets: &mut ResolvedSecrets) {
        for (rule, _) in self.server_rules() {
            rule.place.read_secrets(around.environment.as_ref(), secrets);
        }
    }

    /// Starts the servers of a conversation and lists their tools; a nested conversation has only those
    /// that its node names. Fails if a description differs from the accepted one.
    pub(super) async fn offered_servers(
        &self,
        call: &Call,
        around: &RunnerSurroundings,
        is_nested: bool,
    ) -> Result<Vec<OfferedServer>, AgentError> {
        let asked = servers_of_request(call.context.get("request").unwrap_or(&Value::Null));
        let wanted = self
            .server_rules()
            .filter(|(rule, on_request)| asked.contains(&rule.name) || (!*on_request && !is_nested));
        try_join_all(wanted.map(|(rule, _)| async {
            let (at_work, tools) = ask_server(rule, around, Some(call)).await?;
            let tools = self.accepted(rule, tools)?;
            Ok(OfferedServer { rule: Arc::clone(rule), server: Some(at_work), tools })
        }))
        .await
    }

    /// Returns the tools that the file allows and the lock file accepts.
    fn accepted(&self, rule: &McpServerRule, tools: Vec<McpTool>) -> Result<Vec<McpTool>, AgentError> {
        let allowed: Vec<McpTool> =
            tools.into_iter().filter(|tool| rule.allowed(&tool.name).is_some()).collect();
        for one in rule.allow.iter().filter(|one| !one.pattern.contains('*')) {
            if !allowed.iter().any(|tool| tool.name == one.pattern) {
                return Err(missing_tool(&format!("{}/{}", rule.name, one.pattern)).into());
            }
        }
        let mut offered = Vec::new();
        for tool in allowed {
            match self.pin(&rule.name, &tool) {
                ToolPin::Unpinned | ToolPin::Accepted => offered.extend(usable(&rule.name, tool)),
                // Hide an unknown tool from the model; the others remain usable.
                ToolPin::New => {
                    tracing::warn!(
                        server = rule.name,
                        tool = tool.name,
                        "the tool is not in the lock file and is left out"
                    );
                }
                ToolPin::Changed => {
                    let text = format!(
                        "the MCP server '{}' changed the description of its tool '{}' since it was accepted; \
                         review it with `sinew agent tools`, and accept it with --accept",
                        rule.name, tool.name
                    );
                    return Err(unusable_tools(text).into());
                }
            }
        }
        Ok(offered)
    }

    pub(super) fn pin(&self, server: &str, tool: &McpTool) -> ToolPin {
        self.lock.as_ref().map_or(ToolPin::Unpinned, |lock| lock.pin(server, tool))
    }

    /// Returns the tools of the agent `own`. Starts all servers of the file. Of offline agents, only the
    /// name is known.
    pub(crate) async fn agent_tools(
        &self,
        own: &str,
        peers: &[PeerDescription],
        around: &RunnerSurroundings,
    ) -> Result<AgentTools, AgentError> {
        let AskedServers { servers, pins, lock } = self.server_tools(around).await?;
        let table = ToolTable::of(&ToolSources {
            rules: &self.rules(),
            peers: &self.with_named_peers(peers.to_vec()),
            servers: &servers,
            own,
            request: &Value::Null,
            host: None,
            depth: 0,
            has_lock: self.lock.is_some(),
        })?;
        let tools = table.specs.iter().cloned().map(|spec| PinnedTool {
            pin: pins.get(&spec.source).copied(),
            name: spec.declaration.name,
            source: spec.source,
            description: spec.declaration.description,
            parameters: spec.declaration.parameters,
            effect: match spec.effect {
                EffectClass::Read => "read",
                EffectClass::Repeat => "repeat",
                EffectClass::Once => "once",
            },
            is_open: spec.open,
        });
        Ok(AgentTools { tools: tools.collect(), lock, lock_path: self.lock_path.clone() })
    }

    /// Lists the tools of all servers of the file.
    async fn server_tools(&self, around: &RunnerSurroundings) -> Result<AskedServers, AgentError> {
        let (mut lock, mut pins) = (ToolLock::default(), HashMap::new());
        let mut servers = Vec::new();
        for (rule, _) in self.server_rules() {
            let (_, tools) = ask_server(rule, around, None).await?;
            let tools: Vec<McpTool> =
                tools.into_iter().filter(|tool| rule.allowed(&tool.name).is_some()).collect();
            for tool in &tools {
                // The digest covers the whole description, which a prompt may truncate.
                lock.accept(&rule.name, tool);
                pins.insert(format!("mcp:{}/{}", rule.name, tool.name), self.pin(&rule.name, tool));
            }
            let tools = tools.into_iter().filter_map(|tool| usable(&rule.name, tool)).collect();
            servers.push(OfferedServer { rule: Arc::clone(rule), server: None, tools });
        }
        Ok(AskedServers { servers, pins, lock: lock.text() })
    }

    /// Returns the servers of a rehearsal, which never start, with tools of the file and of the case.
    pub(super) fn rehearsed_servers(&self, stubs: &ToolStubs) -> Vec<OfferedServer> {
        let offer = |(rule, _): (&Arc<McpServerRule>, bool)| {
            let prefix = format!("{}_", rule.name);
            let named = rule.allow.iter().map(|one| one.pattern.as_str()).filter(|name| !name.contains('*'));
            let stubbed = stubs.keys().filter_map(|name| name.strip_prefix(&prefix));
            let mut tools: Vec<McpTool> = Vec::new();
            for name in named.chain(stubbed.filter(|name| rule.allowed(name).is_some())) {
                if !tools.iter().any(|tool| tool.name == name) {
                    tools.push(McpTool::unknown(name));
                }
            }
            OfferedServer { rule: Arc::clone(rule), server: None, tools }
        };
        self.server_rules().map(offer).collect()
    }
}

async fn ask_server(
    rule: &McpServerRule,
    around: &RunnerSurroundings,
    call: Option<&Call>,
) -> Result<(ServerAtWork, Vec<McpTool>), AgentError> {
    let is_shared = rule.shared.is_some() && call.is_some();
    let server = match &rule.shared {
        Some(shared) if is_shared => Arc::clone(shared),
        _ => McpServer::new(Arc::clone(&rule.place)),
    };
    let progress = call.filter(|_| !is_shared).map(|call| &call.progress);
    let tools = server.tools(around, progress).await.map_err(|error| match error {
        AgentError::McpServer { reason } => {
            AgentError::McpServer { reason: format!("'{}': {reason}", rule.name) }
        }
        other => other,
    })?;
    Ok((ServerAtWork { server, around: around.clone(), is_shared }, tools))
}

/// Truncates the description of a tool for a prompt. Leaves out a tool whose schema is too large.
fn usable(server: &str, mut tool: McpTool) -> Option<McpTool> {
    if tool.input_schema.to_string().len() > MAX_SCHEMA_BYTES {
        tracing::warn!(
            server,
            tool = tool.name,
            "the parameters of the tool are larger than {MAX_SCHEMA_BYTES} bytes; it is left out"
        );
        return None;
    }
    let end = tool.description.floor_char_boundary(MAX_DESCRIPTION_BYTES);
    tool.description.truncate(end);
    Some(tool)
}

/// Returns the names of the servers in the node's request.
fn servers_of_request(request: &Value) -> Vec<String> {
    let of = |value: &Value| match value {
        Value::Object(members) => members.keys().cloned().collect(),
        Value::Array(items) => items.iter().filter_map(name_of).collect(),
        _ => Vec::new(),
    };
    let lists = ["mcp", "mcpServers", "mcp_servers"].iter().filter_map(|key| request.get(*key)).flat_map(of);
    let search = is_search_wanted(request).then(|| WEB_SEARCH.to_owned());
    lists
        .chain(search)
        .chain(attached_names(request, is_server_node, &["server", "server_name", "serverName", "toolset"]))
        .collect()
}

/// Returns whether the calling node enables the search of its dialect (agentflow).
pub(super) fn is_search_wanted(request: &Value) -> bool {
    request.pointer("/tools/web_search") == Some(&Value::Bool(true))
}

/// Returns whether an attached node is an MCP server: by type in covalt, by subtype in agentteam.
fn is_server_node(node: &Value) -> bool {
    let is = |key: &str, words: &[&str]| node[key].as_str().is_some_and(|word| words.contains(&word));
    is("type", &["mcp-server", "toolset"]) || is("subtype", &["MCP_TOOL"])
}

/// Returns the names in nodes attached to an agent: one of these settings, else the node's name.
pub(super) fn attached_names(
    request: &Value,
    is_meant: impl Fn(&Value) -> bool,
    settings: &[&str],
) -> Vec<String> {
    let nodes = [request.pointer("/links/tools"), request.get("attached")].into_iter().flatten();
    let nodes = nodes.filter_map(Value::as_array).flatten().filter(|node| is_meant(node));
    let name = |node: &Value| {
        let own = ["data", "configurations"].iter().filter_map(|key| node.get(*key));
        let set = own.flat_map(|own| settings.iter().filter_map(|key| own.get(*key)?.as_str())).next();
        let label = || node.pointer("/data/_label").or_else(|| node.get("name"))?.as_str();
        set.or_else(label).map(str::to_owned)
    };
    nodes.filter_map(name).collect()
}

fn name_of(item: &Value) -> Option<String> {
    item.as_str().or_else(|| item.get("name").and_then(Value::as_str)).map(str::to_owned)
}

/// Selection of the calling node among the tools of the file.
#[derive(Default)]
pub(crate) struct WantedTools {
    allow: Option<Vec<String>>,
    deny: Vec<String>,
}

impl WantedTools {
    pub(crate) fn of(request: &Value) -> Self {
        let list = |value: Option<&Value>| -> Option<Vec<String>> {
            Some(value?.as_array()?.iter().filter_map(name_of).collect())
        };
        let filter = request.get("toolFilter");
        let mut deny = list(request.get("disallowedTools")).unwrap_or_default();
        deny.extend(list(filter.and_then(|filter| filter.get("deny"))).unwrap_or_default());
        Self { allow: list(filter.and_then(|filter| filter.get("allow"))), deny }
    }

    /// Returns whether a tool is selected, by its name for the model or that of its source.
    pub(crate) fn has(&self, name: &str, source: &str) -> bool {
        let own = source.rsplit(['/', ':']).next().unwrap_or(source);
        let names = |list: &[String]| {
            list.iter().any(|pattern| matches_pattern(pattern, name) || matches_pattern(pattern, own))
        };
        // The allow list is for the skills of a node, which are tools of servers.
        let is_of_server = source.starts_with("mcp:");
        (!is_of_server || self.allow.as_deref().is_none_or(names)) && !names(&self.deny)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_name_servers() {
        for (request, names) in [
            (json!({"mcp": {"files": {"command": "rm"}}}), vec!["files"]),
            (json!({"mcp": ["files", {"name": "tickets"}, 7]}), vec!["files", "tickets"]),
            (json!({"mcp": "files"}), vec![]),
            (
                json!({"links": {"tools": [{"type": "mcp-server", "data": {"server": "files"}}]}}),
                vec!["files"],
            ),
            (
                json!({"links": {"tools": [{"type": "toolset", "data": {"_label": "tickets"}}]}}),
                vec!["tickets"],
            ),
            (json!({"links": {"tools": [{"type": "agent", "data": {"agent": "files"}}]}}), vec![]),
            (
                json!({"attached": [{"subtype": "MCP_TOOL", "name": "files", "configurations": {}}]}),
                vec!["files"],
            ),
            (json!({"attached": [{"subtype": "MCP_TOOL", "configurations": {"server": "a"}}, 7]}), vec!["a"]),
            (json!({"attached": {"name": "files"}}), vec![]),
            (json!({"tools": {"web_search": true, "subagents": false}}), vec!["web_search"]),
            (json!({"tools": {"web_search": false}}), vec![]),
            (Value::Null, vec![]),
        ] {
            assert_eq!(servers_of_request(&request), names, "{request}");
        }
    }

    #[test]
    fn requests_narrow_tools() {
        for (request, name, source, wanted) in [
            (json!({}), "files_read", "mcp:files/read", true),
            (json!({"disallowedTools": ["read"]}), "files_read", "mcp:files/read", false),
            (json!({"disallowedTools": ["files_*"]}), "files_read", "mcp:files/read", false),
            (json!({"toolFilter": {"allow": ["write"]}}), "files_read", "mcp:files/read", false),
            (json!({"toolFilter": {"allow": ["read"]}}), "files_read", "mcp:files/read", true),
            (
                json!({"toolFilter": {"allow": ["read"], "deny": ["read"]}}),
                "files_read",
                "mcp:files/read",
                false,
            ),
            (json!({"toolFilter": {"allow": ["x"]}}), "time", "builtin:time", true),
        ] {
            assert_eq!(WantedTools::of(&request).has(name, source), wanted, "{request} {name}");
        }
    }
}
