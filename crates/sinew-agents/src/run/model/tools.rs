//! Tools of a conversation: their origin, and their description for the model.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_model::{ApprovalRule, EffectClass, PersonQuestion, QuestionReason, ToolCall, ToolSpec};
use sinew_protocol::access::matches_pattern;
use sinew_protocol::tool::{ToolDeclaration, WorkflowTool};
use sinew_protocol::{Fault, code};
use sinew_script::Function;

use super::builtin_tools::BuiltinTool;
use super::discover::DiscoverRule;
use super::mcp_tools::{
    McpServerRule, OfferedServer, ServerAtWork, WEB_SEARCH, WantedTools, attached_names, is_search_wanted,
};
use super::nested::{MAX_DEPTH, NestedAgent, nested_agents};
use super::setup::compiled;
use crate::host_tools::{HostTool, HostTools};
use crate::peers::PeerDescription;
use crate::people::PersonPrompt;
use crate::run::mcp::McpTool;

/// Default maximum bytes of a result in the conversation.
pub(crate) const DEFAULT_MAX_RESULT: usize = 16 << 10;
/// Default time limit of a call.
pub(crate) const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_mins(2);
/// Default time limit of a person's decision.
pub(crate) const DEFAULT_DECISION_TIMEOUT: Duration = Duration::from_hours(1);
/// Maximum tools of a pattern.
const MAX_TOOLS: usize = 128;

/// A valid tool entry of an agent file.
#[derive(Debug, Clone)]
pub(crate) struct ToolRule {
    pub(crate) source: ToolSource,
    pub(crate) settings: ToolSettings,
}

impl ToolRule {
    /// Returns whether the entry offers a tool of this name. Tools of a server are known when it runs:
    /// only names that the file sets count.
    pub(super) fn offers(&self, name: &str) -> bool {
        let is_set = |settings: &ToolSettings| settings.name.as_deref() == Some(name);
        is_set(&self.settings)
            || match &self.source {
                ToolSource::Script { declaration, .. } => declaration.name == name,
                ToolSource::Builtin(builtin) => builtin.name() == name,
                ToolSource::Mcp { server, .. } => server.allow.iter().any(|tools| is_set(&tools.settings)),
                _ => false,
            }
    }
}

/// Origin of tools.
#[derive(Debug, Clone)]
pub(crate) enum ToolSource {
    /// An agent by name.
    Peer(String),
    /// Agents whose names match a pattern with `*`.
    PeerPattern(String),
    /// Agents with a skill.
    PeerSkill(String),
    /// A deployed workflow.
    Workflow(String),
    /// Agents and workflows that the model finds.
    Discover(DiscoverRule),
    /// A Python function.
    Script { declaration: ToolDeclaration, function: Function },
    /// A built-in tool.
    Builtin(BuiltinTool),
    /// Tools of a server; with `on_request`, only if the calling node names the server.
    Mcp { server: Arc<McpServerRule>, on_request: bool },
    /// Agents that the calling node names and that match one of these patterns; and its nested agents.
    Request { peers: Vec<String>, subagents: bool },
}

impl ToolSource {
    /// Returns whether the tools depend on the available agents.
    fn needs_peers(&self) -> bool {
        match self {
            Self::Peer(_) | Self::PeerPattern(_) | Self::PeerSkill(_) | Self::Workflow(_) => true,
            Self::Request { peers, .. } => !peers.is_empty(),
            _ => false,
        }
    }

    /// Returns whether the calling node selects the tools. The servers of a nested agent are already
    /// selected.
    fn is_of_request(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::Mcp { .. })
    }
}

/// Returns whether any tool depends on the available agents.
pub(crate) fn need_peers(rules: &[ToolRule]) -> bool {
    rules.iter().any(|rule| rule.source.needs_peers())
}

/// Common settings of tools.
#[derive(Debug, Clone)]
pub(crate) struct ToolSettings {
    pub(crate) name: Option<String>,
    pub(crate) effect: Option<EffectClass>,
    pub(crate) open: Option<bool>,
    pub(crate) approval: ApprovalRule,
    pub(crate) people: Vec<String>,
    pub(crate) decision_timeout: Duration,
    /// Whether a rejection fails the task.
    pub(crate) rejection_fails: bool,
    pub(crate) limit: Option<u32>,
    pub(crate) timeout: Duration,
    pub(crate) max_result: usize,
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            name: None,
            effect: None,
            open: None,
            approval: ApprovalRule::Never,
            people: Vec::new(),
            decision_timeout: DEFAULT_DECISION_TIMEOUT,
            rejection_fails: false,
            limit: None,
            timeout: DEFAULT_CALL_TIMEOUT,
            max_result: DEFAULT_MAX_RESULT,
        }
    }
}

/// The tools of one conversation.
#[derive(Default)]
pub(crate) struct ToolTable {
    pub(crate) specs: Arc<Vec<ToolSpec>>,
    /// Settings of discovered tools, by rule.
    pub(crate) discover_rules: Arc<Vec<ToolSpec>>,
    /// Rules of discovered tools, with their settings.
    pub(super) discover: Vec<(DiscoverRule, ToolSettings)>,
    /// Whether a tool has a third-party description that was not accepted.
    pub(crate) has_words_of_others: bool,
    pub(super) entries: HashMap<String, ToolEntryAtWork>,
    wanted: WantedTools,
}

/// Defaults of a tool, which its entry in the file can override, and the author of its description.
#[derive(Clone, Copy)]
pub(super) struct ToolDefaults {
    effect: EffectClass,
    pub(super) is_open: bool,
    words: DescriptionAuthor,
}

/// Author of the name, the description and the parameters of a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DescriptionAuthor {
    /// The agent's owner, who wrote or accepted the description.
    Owner,
    /// A third party.
    Others,
}

impl ToolDefaults {
    pub(super) const fn own(effect: EffectClass) -> Self {
        Self { effect, is_open: false, words: DescriptionAuthor::Owner }
    }
}

/// A callable tool.
pub(super) struct ToolEntryAtWork {
    pub(super) action: ToolAction,
    pub(super) settings: ToolSettings,
}

/// Action of a tool call.
pub(super) enum ToolAction {
    Peer {
        agent: String,
        takes_text: bool,
    },
    Workflow(WorkflowTool),
    /// The search for agents and workflows.
    FindTools,
    /// The call of a found one, if it does not name a tool.
    CallTool,
    Script(Function),
    Builtin(BuiltinTool),
    /// A tool of a server, by its name on the server; `None` in rehearsals.
    Mcp {
        server: Option<ServerAtWork>,
        tool: String,
    },
    /// A conversation within this one.
    Nested(Arc<NestedAgent>),
    /// A function of the host program; absent in rehearsals.
    Host(Arc<dyn HostTools>),
}

impl ToolAction {
    /// Returns whether the tool calls another agent or a workflow.
    pub(super) const fn is_peer(&self) -> bool {
        matches!(self, Self::Peer { .. } | Self::Workflow(_))
    }
}

/// The sources of the tools of a conversation.
pub(crate) struct ToolSources<'a> {
    pub(crate) rules: &'a [ToolRule],
    /// The available agents.
    pub(crate) peers: &'a [PeerDescription],
    pub(crate) servers: &'a [OfferedServer],
    /// Name of the agent itself.
    pub(crate) own: &'a str,
    pub(crate) request: &'a Value,
    pub(crate) host: Option<&'a Arc<dyn HostTools>>,
    /// Number of parent agents. A nested agent has only the tools that its node requests.
    pub(crate) depth: u32,
    /// Whether a lock file pins the tools of servers.
    pub(crate) has_lock: bool,
}

impl ToolTable {
    /// The tools of a conversation.
    pub(crate) fn of(places: &ToolSources<'_>) -> Result<Self, Fault> {
        let ToolSources { request, servers, own, .. } = *places;
        let mut table = Self { wanted: WantedTools::of(request), ..Self::default() };
        let others = || places.peers.iter().filter(|peer| peer.name != own);
        for rule in places.rules.iter().filter(|rule| places.depth == 0 || rule.source.is_of_request()) {
            match &rule.source {
                ToolSource::Peer(name) | ToolSource::Workflow(name) => {
                    let found = others().find(|peer| peer.name == *name).ok_or_else(|| missing_tool(name))?;
                    table.add_peer(found, rule)?;
                }
                ToolSource::PeerPattern(pattern) => {
                    for peer in
                        others().filter(|peer| !peer.is_workflow && matches_pattern(pattern, &peer.name))
                    {
                        table.add_peer(peer, rule)?;
                    }
                }
                ToolSource::PeerSkill(skill) => {
                    for peer in others().filter(|peer| peer.skills.contains(skill)) {
                        table.add_peer(peer, rule)?;
                    }
                }
                ToolSource::Request { peers: patterns, subagents } => {
                    let nested = nested_agents(request);
                    for agent in nested.into_iter().filter(|_| *subagents && places.depth < MAX_DEPTH) {
                        table.add_nested(agent, &rule.settings)?;
                    }
                    // Attached agents are separate tools in this case.
                    let asked = named_by_request(request, !*subagents);
                    let wanted = |peer: &&PeerDescription| {
                        asked.contains(&peer.name)
                            && patterns.iter().any(|pattern| matches_pattern(pattern, &peer.name))
                    };
                    for peer in others().filter(wanted) {
                        table.add_peer(peer, rule)?;
                    }
                }
                ToolSource::Mcp { server, .. } => {
                    let offered = servers.iter().find(|offered| Arc::ptr_eq(&offered.rule, server));
                    for tool in offered.iter().flat_map(|offered| &offered.tools) {
                        let at_work = offered.and_then(|offered| offered.server.clone());
                        // A new release of a server must not disable the agent.
                        if let Err(fault) = table.add_server_tool(server, tool, at_work, places.has_lock) {
                            tracing::warn!(
                                server = server.name,
                                tool = tool.name,
                                reason = fault.message,
                                "a tool of an MCP server is left out"
                            );
                        }
                    }
                }
                ToolSource::Discover(discover) => table.add_discover(discover, &rule.settings)?,
                ToolSource::Script { declaration, function } => {
                    let source = format!("script:{}", declaration.name);
                    let defaults = ToolDefaults::own(EffectClass::Read);
                    let action = ToolAction::Script(function.clone());
                    let mut declaration = declaration.clone();
                    describe_object(&mut declaration.parameters);
                    table.add(declaration, source, defaults, action, &rule.settings)?;
                }
                ToolSource::Builtin(builtin) => table.add_builtin(*builtin, &rule.settings)?,
            }
        }
        if let Some(host) = places.host {
            for tool in host.list() {
                table.add_host(tool, Arc::clone(host))?;
            }
        }
        if is_search_wanted(request) && !table.has_search() {
            return Err(unusable_tools(format!(
                "the node enables {WEB_SEARCH}, but the file of agent '{own}' has no MCP server or tool of this \
                 name; add one, or disable {WEB_SEARCH} at the node"
            )));
        }
        Ok(table)
    }

    /// Returns whether a tool searches for nodes that enable the search of their dialect.
    fn has_search(&self) -> bool {
        self.specs.iter().any(|spec| {
            let server = spec.source.strip_prefix("mcp:").and_then(|source| source.split_once('/'));
            spec.declaration.name == WEB_SEARCH || server.is_some_and(|(server, _)| server == WEB_SEARCH)
        })
    }

    fn add_nested(&mut self, agent: NestedAgent, settings: &ToolSettings) -> Result<(), Fault> {
        let (declaration, source) = (agent.declaration.clone(), format!("subagent:{}", agent.name));
        let action = ToolAction::Nested(Arc::new(agent));
        let defaults = ToolDefaults { is_open: true, ..ToolDefaults::own(EffectClass::Repeat) };
        self.add(declaration, source, defaults, action, settings)
    }

    fn add_host(&mut self, tool: HostTool, host: Arc<dyn HostTools>) -> Result<(), Fault> {
        let HostTool { name, description, mut parameters, effect } = tool;
        describe_object(&mut parameters);
        let source = format!("program:{name}");
        let declaration =
            ToolDeclaration { name, description, parameters, takes_artifact: false, output_schema: None };
        let action = ToolAction::Host(host);
        self.add(declaration, source, ToolDefaults::own(effect), action, &ToolSettings::default())
    }

    /// Returns whether the table lists a tool of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Returns the tool of a call: for a discovered one its rule.
    pub(crate) fn spec(&self, call: &ToolCall) -> Option<&ToolSpec> {
        match &call.discovered {
            Some(found) => self.discover_rules.get(found.rule as usize),
            None => self.specs.iter().find(|spec| spec.declaration.name == call.tool),
        }
    }

    /// Returns the settings of a call's tool.
    fn settings(&self, call: &ToolCall) -> Option<&ToolSettings> {
        match &call.discovered {
            Some(found) => self.discover.get(found.rule as usize).map(|(_, settings)| settings),
            None => self.entries.get(&call.tool).map(|entry| &entry.settings),
        }
    }

    /// Returns the nested agent of a tool.
    pub(crate) fn nested(&self, tool: &str) -> Option<&NestedAgent> {
        match &self.entries.get(tool)?.action {
            ToolAction::Nested(agent) => Some(agent),
            _ => None,
        }
    }

    /// Returns whether a call is one of another agent, which does not need this process.
    pub(crate) fn waits_for_others(&self, call: &ToolCall) -> bool {
        call.discovered.is_some() || self.entries.get(&call.tool).is_some_and(|entry| entry.action.is_peer())
    }

    fn add_peer(&mut self, peer: &PeerDescription, rule: &ToolRule) -> Result<(), Fault> {
        let (declaration, action) = peer_tool(peer, &rule.settings);
        // Any agent can claim to be a workflow. Trust only results of workflows in the agent file.
        let is_open = !(peer.is_workflow && matches!(rule.source, ToolSource::Workflow(_)));
        let source = format!("{}:{}", if peer.is_workflow { "workflow" } else { "peer" }, peer.name);
        let words = author_of(peer, rule);
        let defaults = ToolDefaults { effect: EffectClass::Repeat, is_open, words };
        self.add(declaration, source, defaults, action, &rule.settings)
    }

    fn add_server_tool(
        &mut self,
        rule: &McpServerRule,
        tool: &McpTool,
        server: Option<ServerAtWork>,
        has_lock: bool,
    ) -> Result<(), Fault> {
        let Some(settings) = rule.allowed(&tool.name) else { return Ok(()) };
        let mut parameters = tool.input_schema.clone();
        describe_object(&mut parameters);
        let declaration = ToolDeclaration {
            name: tool_name(&format!("{}_", rule.name), &tool.name),
            description: tool.description.clone(),
            parameters,
            takes_artifact: false,
            output_schema: tool.output_schema.clone(),
        };
        let source = format!("mcp:{}/{}", rule.name, tool.name);
        // With a lock file, all offered tools are accepted. A rehearsal has no server descriptions.
        let is_accepted = has_lock || server.is_none();
        let words = if is_accepted { DescriptionAuthor::Owner } else { DescriptionAuthor::Others };
        let action = ToolAction::Mcp { server, tool: tool.name.clone() };
        let defaults = ToolDefaults { effect: rule.usual_effect(tool), is_open: true, words };
        self.add(declaration, source, defaults, action, settings)
    }

    fn add_builtin(&mut self, builtin: BuiltinTool, settings: &ToolSettings) -> Result<(), Fault> {
        let (name, description, parameters) = builtin.declaration();
        let declaration = ToolDeclaration {
            name: name.to_owned(),
            description: description.to_owned(),
            parameters,
            takes_artifact: false,
            output_schema: None,
        };
        let effect = match builtin {
            // Repeating a write adds a version; repeating a question is idempotent.
            BuiltinTool::WriteArtifact | BuiltinTool::AskPerson => EffectClass::Repeat,
            _ => EffectClass::Read,
        };
        // Other agents and tools can write artifacts of a task.
        let is_open = matches!(builtin, BuiltinTool::ListArtifacts | BuiltinTool::ReadArtifact);
        let defaults = ToolDefaults { is_open, ..ToolDefaults::own(effect) };
        let action = ToolAction::Builtin(builtin);
        self.add(declaration, format!("builtin:{name}"), defaults, action, settings)
    }

    pub(super) fn add(
        &mut self,
        mut declaration: ToolDeclaration,
        source: String,
        defaults: ToolDefaults,
        action: ToolAction,
        settings: &ToolSettings,
    ) -> Result<(), Fault> {
        if let Some(name) = &settings.name {
            declaration.name.clone_from(name);
        }
        let declaration = cleaned(declaration);
        if !self.wanted.has(&declaration.name, &source) {
            return Ok(());
        }
        if self.specs.len() >= MAX_TOOLS {
            return Err(unusable_tools(format!("the agent would have more than {MAX_TOOLS} tools")));
        }
        if !matches!(action, ToolAction::Mcp { .. }) {
            self.leave_out_server_tool(&declaration.name);
        }
        if self.entries.contains_key(&declaration.name) || declaration.name == sinew_model::ANSWER_TOOL {
            return Err(unusable_tools(format!(
                "two tools are called '{}'; name one with `as`",
                declaration.name
            )));
        }
        let parameters = compiled(&declaration.parameters).map_err(|error| {
            unusable_tools(format!("the parameters of tool '{}' cannot be used: {error}", declaration.name))
        })?;
        self.entries.insert(declaration.name.clone(), ToolEntryAtWork { action, settings: settings.clone() });
        let is_open = settings.open.unwrap_or(defaults.is_open);
        self.has_words_of_others |= is_open && defaults.words == DescriptionAuthor::Others;
        // Not cloned: the table is the only owner while it is built.
        Arc::make_mut(&mut self.specs).push(ToolSpec {
            declaration,
            parameters: Some(parameters),
            source,
            effect: settings.effect.unwrap_or(defaults.effect),
            open: is_open,
            approval: settings.approval.clone(),
            rejection_fails: settings.rejection_fails,
            limit: settings.limit,
            max_result: settings.max_result,
        });
        Ok(())
    }

    /// Removes a tool of a server with this name, because a tool of the agent file has it.
    fn leave_out_server_tool(&mut self, name: &str) {
        let is_of_server = |entry: &ToolEntryAtWork| matches!(entry.action, ToolAction::Mcp { .. });
        if self.entries.get(name).is_some_and(is_of_server) {
            tracing::warn!(tool = name, "a tool of an MCP server is left out: another tool has its name");
            self.entries.remove(name);
            Arc::make_mut(&mut self.specs).retain(|spec| spec.declaration.name != name);
        }
    }

    /// Returns the prompt for a person: the approval of a call, or the question of the model.
    pub(crate) fn question(&self, question: &PersonQuestion, reason: &str) -> PersonPrompt {
        let call = &question.call;
        let settings = self.settings(call);
        let about = json!({"tool": call.tool, "arguments": call.arguments});
        let (text, about) = if question.reason == QuestionReason::Words {
            let text = call.arguments["question"].as_str().unwrap_or_default().to_owned();
            // Only yes or no can be binding.
            let is_decision = settings.is_some_and(|settings| settings.rejection_fails);
            (text, if is_decision { about } else { Value::Null })
        } else {
            (format!("May the agent call {}? {reason}", call.tool), about)
        };
        PersonPrompt {
            text,
            call: about,
            people: settings.map(|settings| settings.people.clone()).unwrap_or_default(),
            timeout: settings.map_or(DEFAULT_DECISION_TIMEOUT, |settings| settings.decision_timeout),
            key: call.position.key.clone(),
        }
    }
}

/// Returns the tool of an agent or a workflow.
pub(super) fn peer_tool(peer: &PeerDescription, settings: &ToolSettings) -> (ToolDeclaration, ToolAction) {
    if peer.is_workflow {
        let tool = WorkflowTool {
            description: peer.description.clone(),
            output_schema: peer.output_schema.clone(),
            ..WorkflowTool::new(peer.name.clone(), peer.input_schema.as_ref())
        };
        let mut declaration = tool.declaration();
        // The condition of an approval reads the parameters.
        declaration.takes_artifact = !matches!(settings.approval, ApprovalRule::When(_));
        return (declaration, ToolAction::Workflow(tool));
    }
    let schema = peer.input_schema.as_ref();
    let is_object = schema.is_some_and(|schema| schema.get("properties").is_some_and(Value::is_object));
    let mut parameters = schema.filter(|_| is_object).cloned().unwrap_or_else(text_parameters);
    if let Some(members) = parameters.as_object_mut() {
        members.insert("type".to_owned(), "object".into());
    }
    let declaration = ToolDeclaration {
        name: tool_name("peer_", &peer.name),
        description: format!("Ask the agent '{}'. {}", peer.name, peer.description).trim().to_owned(),
        parameters,
        takes_artifact: false,
        output_schema: peer.output_schema.clone(),
    };
    (declaration, ToolAction::Peer { agent: peer.name.clone(), takes_text: !is_object })
}

/// Returns a declaration for prompts: with a short name, and without hidden characters.
pub(super) fn cleaned(mut declaration: ToolDeclaration) -> ToolDeclaration {
    declaration.name = declaration.short_name();
    declaration.description = sinew_model::without_hidden(&declaration.description);
    declaration.parameters = sinew_model::value_without_hidden(&declaration.parameters);
    declaration
}

/// Returns the author of an agent's description: this agent's owner only if the file names the agent
/// and its card describes nothing.
fn author_of(peer: &PeerDescription, rule: &ToolRule) -> DescriptionAuthor {
    let is_named = matches!(rule.source, ToolSource::Peer(_) | ToolSource::Workflow(_));
    // A schema without properties describes nothing.
    let tells = |schema: &Value| {
        schema["properties"].is_object() && *schema != json!({"type": "object", "properties": {}})
    };
    let is_silent = peer.description.trim().is_empty() && !peer.input_schema.as_ref().is_some_and(tells);
    if is_named && is_silent { DescriptionAuthor::Owner } else { DescriptionAuthor::Others }
}

/// Returns the names of agents that the calling node lists as tools.
fn named_by_request(request: &Value, with_attached: bool) -> Vec<String> {
    let lists = ["peers", "agents", "tools"].iter().filter_map(|key| request.get(*key)?.as_array());
    let name =
        |item: &Value| item.as_str().or_else(|| item.get("name").and_then(Value::as_str)).map(str::to_owned);
    // Agents that a graph attaches to this agent are its tools.
    let is_agent = |node: &Value| node["type"].as_str().is_some_and(|kind| kind.ends_with("agent"));
    let mut names: Vec<String> = lists.flatten().filter_map(name).collect();
    if with_attached {
        names.extend(attached_names(request, is_agent, &["agent", "agent_name"]));
    }
    names
}

/// Concatenates prefix and name, with `_` for characters that a tool name cannot contain.
pub(crate) fn tool_name(prefix: &str, name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{prefix}{}", name.chars().map(plain).collect::<String>())
}

/// Adds the keywords that interfaces of models require. An object without properties takes any members,
/// which excludes it from the strict mode.
fn describe_object(parameters: &mut Value) {
    let Some(members) = parameters.as_object_mut() else { return };
    members.insert("type".to_owned(), "object".into());
    if !members.contains_key("properties") {
        members.insert("properties".to_owned(), json!({}));
        members.entry("additionalProperties").or_insert(Value::Bool(true));
    }
}

fn text_parameters() -> Value {
    json!({
        "type": "object",
        "properties": {"text": {"type": "string", "description": "The task, with everything the agent has to know."}},
        "required": ["text"],
        "additionalProperties": false,
    })
}

pub(super) fn missing_tool(name: &str) -> Fault {
    Fault::error(
        code::MODEL_TOOL_MISSING_OR_CHANGED.as_str(),
        format!("the tool needs '{name}', which does not exist"),
    )
}

pub(super) fn unusable_tools(text: String) -> Fault {
    Fault::error(code::MODEL_TOOL_MISSING_OR_CHANGED.as_str(), text).with_retryable(false)
}
