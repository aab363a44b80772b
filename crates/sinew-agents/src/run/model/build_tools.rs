//! Builds tool rules from an agent file: allowed tools, their effects, and approvals.

use std::collections::HashMap;
use std::sync::Arc;

use sinew_model::{ANSWER_TOOL, ApprovalRule, CALL_TOOL, EffectClass, FIND_TOOLS};
use sinew_protocol::catalogue::Stage;
use sinew_protocol::code;
use sinew_protocol::tool::ToolDeclaration;
use sinew_script::Function;
use sinew_source::Schema;

use super::build::ModelBuilder;
use super::builtin_tools::BuiltinTool;
use super::discover::{DEFAULT_FOUND, DiscoverRule};
use super::mcp_tools::{AllowedTools, McpServerRule};
use super::tools::{ToolRule, ToolSettings, ToolSource, tool_name};
use crate::complaint::FileComplaint;
use crate::model_file::{
    AllowEntry, ApproveEntry, BuiltinName, DiscoverEntry, EffectName, ModelFile, PeerSelector, ScriptTool,
    ServerLifetime, TaintEntry, ToolEntry, TrustName,
};
use crate::rejection::RejectionRule;
use crate::run::mcp::{McpServer, ServerKeys, ServerLocation};

impl ModelBuilder<'_> {
    pub(super) fn tools(
        &mut self,
        file: &ModelFile,
        conditions: &mut HashMap<String, Function>,
    ) -> Vec<ToolRule> {
        let mut rules: Vec<ToolRule> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut servers: Vec<String> = Vec::new();
        for (index, entry) in file.tools.iter().enumerate() {
            let at = format!("/tools/{index}");
            let Some(settings) = self.settings(&at, entry, conditions) else { continue };
            let requested = file.tools.iter().filter_map(|entry| entry.request.as_ref());
            let on_request = entry
                .mcp
                .as_ref()
                .is_some_and(|name| requested.into_iter().any(|request| request.mcp.contains(name)));
            if let Some(name) = &entry.mcp {
                if servers.contains(name) {
                    self.complain(format!("{at}/mcp"), format!("two servers are called '{name}'"));
                }
                servers.push(name.clone());
                if let Some(server) = self.mcp(&at, name, entry, &settings, conditions) {
                    let source = ToolSource::Mcp { server: Arc::new(server), on_request };
                    rules.push(ToolRule { source, settings: settings.clone() });
                }
            }
            for (number, name) in entry.request.iter().flat_map(|request| &request.mcp).enumerate() {
                if !file.tools.iter().any(|entry| entry.mcp.as_ref() == Some(name)) {
                    self.complain(
                        format!("{at}/request/mcp/{number}"),
                        format!(
                            "there is no server '{name}' among the tools: `mcp: {name}` says where it is"
                        ),
                    );
                }
            }
            for source in self.sources(&at, entry) {
                let is_first = !rules.iter().any(|rule| matches!(rule.source, ToolSource::Discover(_)));
                let fixed = match &source {
                    ToolSource::Discover(_) if is_first => vec![FIND_TOOLS.to_owned(), CALL_TOOL.to_owned()],
                    source => settings.name.clone().or_else(|| fixed_name(source)).into_iter().collect(),
                };
                for name in fixed {
                    if names.contains(&name) || name == ANSWER_TOOL {
                        self.complain(&at, format!("two tools are called '{name}'; name one with `as`"));
                    }
                    names.push(name);
                }
                rules.push(ToolRule { source, settings: settings.clone() });
            }
        }
        rules
    }

    fn sources(&mut self, at: &str, entry: &ToolEntry) -> Vec<ToolSource> {
        let given = [
            ("peer", entry.peer.is_some()),
            ("workflow", entry.workflow.is_some()),
            ("discover", entry.discover.is_some()),
            ("mcp", entry.mcp.is_some()),
            ("script", entry.script.is_some()),
            ("builtin", entry.builtin.is_some()),
            ("request", entry.request.is_some()),
        ];
        if given.iter().filter(|(_, given)| *given).count() != 1 {
            let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
            self.complain(at, format!("expected exactly one of {}", names.join(", ")));
            return Vec::new();
        }
        let several = matches!(&entry.peer, Some(PeerSelector::Skill(_)))
            || matches!(&entry.peer, Some(PeerSelector::Name(name)) if name.contains('*'))
            || entry.builtin.is_some()
            || entry.discover.is_some()
            || entry.mcp.is_some()
            || entry.request.is_some();
        if several && entry.r#as.is_some() {
            self.complain(
                format!("{at}/as"),
                "this entry can provide several tools, which cannot share one name",
            );
        }
        if let Some(selector) = &entry.peer {
            return vec![match selector {
                PeerSelector::Name(name) if name.contains('*') => ToolSource::PeerPattern(name.clone()),
                PeerSelector::Name(name) => ToolSource::Peer(name.clone()),
                PeerSelector::Skill(skill) => ToolSource::PeerSkill(skill.skill.clone()),
            }];
        }
        if let Some(workflow) = &entry.workflow {
            return vec![ToolSource::Workflow(workflow.clone())];
        }
        if let Some(discover) = &entry.discover {
            return self.discover(at, discover, entry.effect).into_iter().collect();
        }
        if let Some(script) = &entry.script {
            return self.script_tool(at, script).into_iter().collect();
        }
        if let Some(builtins) = &entry.builtin {
            let tools = builtins.iter().flat_map(|name| match name {
                BuiltinName::Artifacts => {
                    vec![BuiltinTool::ListArtifacts, BuiltinTool::ReadArtifact, BuiltinTool::WriteArtifact]
                }
                BuiltinName::Time => vec![BuiltinTool::Time],
                BuiltinName::AskPerson => vec![BuiltinTool::AskPerson],
            });
            return tools.map(ToolSource::Builtin).collect();
        }
        if let Some(request) = &entry.request {
            return vec![ToolSource::Request { peers: request.peers.clone(), subagents: request.subagents }];
        }
        Vec::new()
    }

    /// Returns the tools that find agents and workflows.
    fn discover(
        &mut self,
        at: &str,
        entry: &DiscoverEntry,
        effect: Option<EffectName>,
    ) -> Option<ToolSource> {
        if effect == Some(EffectName::Read) {
            let text = "whether a discovered tool only reads is not known: write `repeat` or `once`";
            self.complain(format!("{at}/effect"), text);
            return None;
        }
        Some(ToolSource::Discover(DiscoverRule {
            patterns: entry.r#match.clone(),
            kinds: entry.kinds.clone(),
            stages: entry.stages.clone().unwrap_or_else(|| vec![Stage::Stable, Stage::Experimental]),
            max: entry.max.map_or(DEFAULT_FOUND, usize::from),
            index: Arc::clone(&self.index),
        }))
    }

    fn mcp(
        &mut self,
        at: &str,
        name: &str,
        entry: &ToolEntry,
        settings: &ToolSettings,
        conditions: &mut HashMap<String, Function>,
    ) -> Option<McpServerRule> {
        if !is_server_name(name) {
            self.complain(
                format!("{at}/mcp"),
                "the name of a server has letters, digits, '-' and '_', at most 32",
            );
        }
        let allow = entry.allow.as_deref().unwrap_or_default();
        if allow.is_empty() {
            self.complain(at, "an MCP server needs `allow`: the tools that the model may call");
        }
        let program = entry.command.as_ref().and_then(|command| command.first());
        let downloads = program.is_some_and(|program| ["npx", "uvx"].contains(&program.as_str()));
        if downloads && entry.allow_download != Some(true) {
            self.complain(
                format!("{at}/command"),
                "npx and uvx download programs; install it, or set allow_download: true",
            );
        }
        let command: Option<Vec<String>> = entry
            .command
            .as_ref()
            .map(|command| entry.sandbox.iter().flatten().chain(command).cloned().collect());
        let keys = ServerKeys {
            command: command.as_deref(),
            env: &entry.env,
            cwd: entry.cwd.as_deref(),
            url: entry.url.as_deref(),
            headers: &entry.headers,
            allow_private: entry.allow_private == Some(true),
        };
        let place = match ServerLocation::read(&keys, self.folder) {
            Ok(place) => Arc::new(place),
            Err(problems) => {
                for (key, problem) in problems {
                    self.complain(format!("{at}{key}"), problem);
                }
                return None;
            }
        };
        let mut allowed = Vec::new();
        for (index, entry) in allow.iter().enumerate() {
            allowed.push(self.allowed_tools(&format!("{at}/allow/{index}"), entry, settings, conditions)?);
        }
        let is_shared = entry.lifetime == Some(ServerLifetime::Agent);
        Some(McpServerRule {
            name: name.to_owned(),
            shared: is_shared.then(|| McpServer::new(Arc::clone(&place))),
            place,
            allow: allowed,
            trust_hints: entry.trust_hints == Some(true),
        })
    }

    /// Returns allowed tools of a server. Their own settings override those of the entry.
    fn allowed_tools(
        &mut self,
        at: &str,
        entry: &AllowEntry,
        settings: &ToolSettings,
        conditions: &mut HashMap<String, Function>,
    ) -> Option<AllowedTools> {
        let tool = match entry {
            AllowEntry::Name(pattern) => {
                return Some(AllowedTools { pattern: pattern.clone(), settings: settings.clone() });
            }
            AllowEntry::Tool(tool) => tool,
        };
        let mut settings = settings.clone();
        if let Some(approve) = &tool.approve {
            self.set_approval(at, approve, &mut settings, conditions)?;
        }
        settings.effect = tool.effect.map(effect_class).or(settings.effect);
        settings.open = tool.trust.map(|trust| trust == TrustName::Open).or(settings.open);
        settings.limit = tool.limit.or(settings.limit);
        Some(AllowedTools { pattern: tool.name.clone(), settings })
    }

    fn script_tool(&mut self, at: &str, script: &ScriptTool) -> Option<ToolSource> {
        let parameters = script
            .input_schema
            .clone()
            .unwrap_or_else(|| serde_json::json!({"type": "object", "properties": {}}));
        if let Err(error) = Schema::compile(&parameters) {
            self.complain(format!("{at}/script/input_schema"), error.to_string());
            return None;
        }
        if parameters.get("type").is_none_or(|kind| kind != "object") {
            self.complain(
                format!("{at}/script/input_schema"),
                "the arguments of a tool are an object: write type: object",
            );
        }
        match Function::compile(&script.source) {
            Ok(function) => Some(ToolSource::Script {
                declaration: ToolDeclaration {
                    name: script.name.clone(),
                    description: script.description.clone(),
                    parameters,
                    takes_artifact: false,
                    output_schema: None,
                },
                function,
            }),
            Err(error) => {
                let message = format!("the script cannot be used{}: {error}", crate::error::line(&error));
                self.complain(format!("{at}/script/source"), message);
                let within = error.line.map(|line| (line, error.column.unwrap_or(1)));
                if let Some(complaint) = self.found.last_mut() {
                    complaint.within = within;
                }
                None
            }
        }
    }

    fn settings(
        &mut self,
        at: &str,
        entry: &ToolEntry,
        conditions: &mut HashMap<String, Function>,
    ) -> Option<ToolSettings> {
        let usual = ToolSettings::default();
        let of_server = [
            ("command", entry.command.is_some()),
            ("url", entry.url.is_some()),
            ("allow", entry.allow.is_some()),
            ("lifetime", entry.lifetime.is_some()),
            ("trust_hints", entry.trust_hints.is_some()),
            ("allow_download", entry.allow_download.is_some()),
            ("allow_private", entry.allow_private.is_some()),
            ("sandbox", entry.sandbox.is_some()),
            ("cwd", entry.cwd.is_some()),
            ("env", !entry.env.is_empty()),
            ("headers", !entry.headers.is_empty()),
        ];
        for (key, _) in of_server.iter().filter(|(_, given)| *given && entry.mcp.is_none()) {
            self.complain(format!("{at}/{key}"), format!("`{key}` belongs to tools of an MCP server"));
        }
        let size = entry.max_result.and_then(|size| usize::try_from(size.0).ok());
        let mut settings = ToolSettings {
            name: entry.r#as.clone(),
            effect: entry.effect.map(effect_class),
            open: entry.trust.map(|trust| trust == TrustName::Open),
            limit: entry.limit,
            timeout: entry.timeout.map_or(usual.timeout, |time| time.0),
            max_result: size.unwrap_or(usual.max_result),
            rejection_fails: entry.on_reject == Some(RejectionRule::Fail),
            ..usual
        };
        let asks = entry.builtin.iter().flatten().any(|name| *name == BuiltinName::AskPerson);
        let may_approve = entry.approve.is_some()
            || entry
                .allow
                .iter()
                .flatten()
                .any(|tool| matches!(tool, AllowEntry::Tool(tool) if tool.approve.is_some()));
        if entry.on_reject.is_some() && !asks && !may_approve {
            let text = "`on_reject` belongs to tools with `approve`, and to `ask_person`";
            self.complain(format!("{at}/on_reject"), text);
        }
        if let Some(approve) = &entry.approve {
            self.set_approval(at, approve, &mut settings, conditions)?;
        }
        Some(settings)
    }

    /// Sets when a call requires approval, and by whom.
    fn set_approval(
        &mut self,
        at: &str,
        approve: &ApproveEntry,
        settings: &mut ToolSettings,
        conditions: &mut HashMap<String, Function>,
    ) -> Option<()> {
        settings.approval = match approve {
            ApproveEntry::Always(false) => ApprovalRule::Never,
            ApproveEntry::Always(true) => ApprovalRule::Always,
            ApproveEntry::When(rule) => {
                settings.people.clone_from(&rule.people);
                settings.decision_timeout = rule.timeout.map_or(settings.decision_timeout, |time| time.0);
                self.approval(at, rule.when.as_deref(), conditions)?
            }
        };
        Some(())
    }

    fn approval(
        &mut self,
        at: &str,
        when: Option<&str>,
        conditions: &mut HashMap<String, Function>,
    ) -> Option<ApprovalRule> {
        let Some(condition) = when else { return Some(ApprovalRule::Always) };
        match Function::compile(&format!("lambda args: bool({condition})")) {
            Ok(function) => {
                conditions.insert(condition.to_owned(), function);
                Some(ApprovalRule::When(condition.into()))
            }
            Err(error) => {
                self.complain(format!("{at}/approve/when"), format!("the condition cannot be used: {error}"));
                None
            }
        }
    }
}

/// Warns if the file combines tools that return untrusted text with unapproved tools that have side
/// effects, and has `taint: allow`.
pub(super) fn doubts_about_taint(file: &ModelFile, rules: &[ToolRule]) -> Vec<FileComplaint> {
    if file.taint != TaintEntry::Allow {
        return Vec::new();
    }
    let opens = rules.iter().any(|rule| may_be_open(&rule.source, &rule.settings));
    let acts = rules.iter().position(|rule| acts_unasked(&rule.source, &rule.settings));
    let (true, Some(_)) = (opens, acts) else { return Vec::new() };
    let message = "with `taint: allow` words that open tools bring may make the model call tools that act; \
                   `taint: approve` asks a person first, and `approve: true` on these tools does, too";
    vec![FileComplaint {
        pointer: "/run/model/taint".to_owned(),
        code: code::MODEL_TOOLS_ACT_ON_WORDS_OF_OTHERS.as_str(),
        message: message.to_owned(),
        within: None,
        is_warning: true,
    }]
}

/// Returns whether results of these tools can contain untrusted text.
fn may_be_open(source: &ToolSource, settings: &ToolSettings) -> bool {
    match source {
        ToolSource::Mcp { server, .. } => {
            server.allow.iter().any(|allowed| allowed.settings.open.unwrap_or(true))
        }
        ToolSource::Script { .. } | ToolSource::Builtin(_) | ToolSource::Workflow(_) => {
            settings.open == Some(true)
        }
        _ => settings.open.unwrap_or(true),
    }
}

/// Returns whether a call of these tools can have side effects without approval.
fn acts_unasked(source: &ToolSource, settings: &ToolSettings) -> bool {
    let acts = |settings: &ToolSettings, usual: bool| {
        let is_once = settings.effect.map_or(usual, |effect| effect == EffectClass::Once);
        is_once && settings.approval != ApprovalRule::Always
    };
    match source {
        ToolSource::Mcp { server, .. } => {
            server.allow.iter().any(|allowed| acts(&allowed.settings, !server.trust_hints))
        }
        _ => acts(settings, false),
    }
}

/// Returns whether a name is a valid prefix of a server's tools.
fn is_server_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=32).contains(&name.len()) && name.chars().all(fits)
}

/// Returns the tool name of a source that does not depend on the available agents.
fn fixed_name(source: &ToolSource) -> Option<String> {
    match source {
        ToolSource::Script { declaration, .. } => Some(declaration.name.clone()),
        ToolSource::Builtin(builtin) => Some(builtin.name().to_owned()),
        ToolSource::Peer(name) => Some(tool_name("peer_", name)),
        _ => None,
    }
}

fn effect_class(name: EffectName) -> EffectClass {
    match name {
        EffectName::Read => EffectClass::Read,
        EffectName::Repeat => EffectClass::Repeat,
        EffectName::Once => EffectClass::Once,
    }
}
