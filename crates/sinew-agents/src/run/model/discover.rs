//! Tools that a model finds: a search over the agents and workflows that its file admits, and calls of
//! what it found.
//!
//! The list of tools in a prompt has `find_tools` and `call_tool`, whatever is on the mesh. The record
//! of a search contains the declarations that it returned, so that another process continues with the
//! same tools.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use sinew_model::{
    ApprovalRule, CALL_TOOL, CALL_TOOL_SOURCE, DiscoveredTool, EffectClass, FIND_TOOLS, ToolCall, ToolSpec,
};
use sinew_protocol::Fault;
use sinew_protocol::access::matches_pattern;
use sinew_protocol::catalogue::Stage;
use sinew_protocol::tool::ToolDeclaration;
use sinew_search::{Lookalikes, MAX_QUERY_CHARS, SearchDocument, SearchIndex, SearchQuery, parameters_of};

use super::tool_calls::ToolOutcome;
use super::tools::{ToolAction, ToolDefaults, ToolEntryAtWork, ToolSettings, ToolTable, cleaned, peer_tool};
use crate::model_file::DiscoverKind;
use crate::peers::{PeerDescription, Peers};

/// Default number of tools that a search returns.
pub(super) const DEFAULT_FOUND: usize = 5;
/// Bytes of declarations in a result after which it has no further tools.
const MAX_DECLARED: usize = 8 << 10;
/// Failure of a call of `call_tool` without a tool.
pub(super) const CALL_NAMES_NO_TOOL: &str = "name a tool that find_tools returned";

const FIND_ABOUT: &str = "Searches agents and workflows by what they do, and returns them as tools. \
                          Call it before you answer that a task is impossible.";
const CALL_ABOUT: &str = "Calls a tool that find_tools returned.";

/// A valid `discover` entry of an agent file.
#[derive(Debug, Clone)]
pub(crate) struct DiscoverRule {
    pub(super) patterns: Vec<String>,
    /// The kinds that are found; `None` for all.
    pub(super) kinds: Option<Vec<DiscoverKind>>,
    pub(super) stages: Vec<Stage>,
    /// Maximum number of tools that a search returns.
    pub(super) max: usize,
    pub(super) index: Arc<PeerIndex>,
}

impl DiscoverRule {
    fn admits(&self, peer: &PeerDescription) -> bool {
        let kind = if peer.is_workflow { DiscoverKind::Workflow } else { DiscoverKind::Agent };
        self.patterns.iter().any(|pattern| matches_pattern(pattern, &peer.name))
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
            && self.stages.contains(&peer.catalogue.stage)
    }
}

/// Search index of an agent over the agents and workflows that it may call.
#[derive(Debug, Default)]
pub(crate) struct PeerIndex(Mutex<IndexedPeers>);

#[derive(Debug, Default)]
struct IndexedPeers {
    index: SearchIndex,
    known: BTreeMap<String, PeerDescription>,
}

impl PeerIndex {
    /// Returns the matches among `peers`, the best first.
    fn search<'p>(
        &self,
        peers: &'p [PeerDescription],
        text: &str,
        visible: impl Fn(&PeerDescription) -> bool,
    ) -> Vec<&'p PeerDescription> {
        let by_name: HashMap<&str, &PeerDescription> =
            peers.iter().map(|peer| (peer.name.as_str(), peer)).collect();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let IndexedPeers { index, known } = &mut *state;
        let gone: Vec<String> =
            known.keys().filter(|name| !by_name.contains_key(name.as_str())).cloned().collect();
        for name in gone {
            known.remove(&name);
            index.remove(&name);
        }
        for peer in peers {
            if known.get(&peer.name) != Some(peer) && index.add(&document(peer)) {
                known.insert(peer.name.clone(), peer.clone());
            }
        }
        let is_visible = |name: &str| by_name.get(name).is_some_and(|peer| visible(peer));
        let results = index.search(&SearchQuery { text, limit: known.len() }, is_visible);
        results.hits.iter().filter_map(|hit| by_name.get(hit.name.as_str()).copied()).collect()
    }
}

fn document(peer: &PeerDescription) -> SearchDocument {
    SearchDocument {
        name: peer.name.clone(),
        aliases: peer.catalogue.aliases.clone(),
        tags: peer.skills.clone(),
        examples: peer.catalogue.examples.clone(),
        description: peer.description.clone(),
        skills: Vec::new(),
        parameters: peer.input_schema.as_ref().map(parameters_of).unwrap_or_default(),
        stage: peer.catalogue.stage,
        pinned: false,
    }
}

impl ToolTable {
    /// Adds a rule for discovered tools; with the first one, the tools that find and call them.
    pub(super) fn add_discover(&mut self, rule: &DiscoverRule, settings: &ToolSettings) -> Result<(), Fault> {
        let is_open = settings.open.unwrap_or(true);
        let effect = settings.effect.unwrap_or(EffectClass::Repeat);
        let mut settings = settings.clone();
        if is_open && effect == EffectClass::Once && settings.approval == ApprovalRule::Never {
            // Its description is untrusted text, whatever the rule for tainted conversations is.
            settings.approval = ApprovalRule::Always;
        }
        if self.discover.is_empty() {
            self.add_search(&settings)?;
        }
        if is_open {
            self.open_search();
        }
        Arc::make_mut(&mut self.discover_rules).push(ToolSpec {
            declaration: declaration("", "", json!({})),
            parameters: None,
            source: "discover:tool".to_owned(),
            effect,
            open: is_open,
            approval: settings.approval.clone(),
            rejection_fails: settings.rejection_fails,
            limit: settings.limit,
            max_result: settings.max_result,
        });
        self.discover.push((rule.clone(), settings));
        Ok(())
    }

    /// Adds `find_tools` and `call_tool`.
    fn add_search(&mut self, settings: &ToolSettings) -> Result<(), Fault> {
        let (timeout, max_result) = (settings.timeout, settings.max_result);
        let plain = ToolSettings { timeout, max_result, ..ToolSettings::default() };
        let find = json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "maxLength": MAX_QUERY_CHARS,
                    "description": "What you want to do, in a few words.",
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        });
        let call = json!({
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "Name of the tool."},
                "arguments": {"type": "object", "description": "Arguments that fit its parameters."},
            },
            "required": ["tool"],
        });
        for (name, about, parameters, source, action) in [
            (FIND_TOOLS, FIND_ABOUT, find, "discover:find", ToolAction::FindTools),
            (CALL_TOOL, CALL_ABOUT, call, CALL_TOOL_SOURCE, ToolAction::CallTool),
        ] {
            let declaration = declaration(name, about, parameters);
            self.add(declaration, source.to_owned(), ToolDefaults::own(EffectClass::Read), action, &plain)?;
        }
        Ok(())
    }

    /// Counts results of searches as untrusted text.
    fn open_search(&mut self) {
        let specs = Arc::make_mut(&mut self.specs).iter_mut();
        specs.filter(|spec| spec.declaration.name == FIND_TOOLS).for_each(|spec| spec.open = true);
    }

    /// Searches the agents and workflows that can be called now.
    pub(super) async fn find_tools(&self, arguments: &Value, peers: &dyn Peers, own: &str) -> ToolOutcome {
        match peers.list().await {
            Ok(peers) => {
                let (found, discovered) = self.find(arguments, &peers, own);
                ToolOutcome { discovered, ..ToolOutcome::from(Ok(found)) }
            }
            Err(fault) => ToolOutcome::from(Err(fault.to_string())),
        }
    }

    /// Searches these agents and workflows for a rehearsal; `None` for calls of other tools.
    pub(super) fn find_tools_among(
        &self,
        call: &ToolCall,
        peers: &[PeerDescription],
        own: &str,
    ) -> Option<(Value, Vec<DiscoveredTool>)> {
        let is_search = matches!(self.entries.get(&call.tool)?.action, ToolAction::FindTools);
        is_search.then(|| self.find(&call.arguments, peers, own))
    }

    /// Returns the tools that a stub of a search names.
    pub(super) fn found_in_stub(
        &self,
        call: &ToolCall,
        result: &Result<Value, String>,
    ) -> Vec<DiscoveredTool> {
        let is_search = self.entries.get(&call.tool).map(|entry| &entry.action);
        let (Some(ToolAction::FindTools), Ok(found)) = (is_search, result) else { return Vec::new() };
        let tools = found["tools"].as_array().into_iter().flatten().filter_map(|tool| {
            let name = tool["tool"].as_str()?;
            let about = tool["description"].as_str().unwrap_or_default();
            Some(DiscoveredTool::new(name, 0, declaration(name, about, tool["parameters"].clone())))
        });
        tools.collect()
    }

    /// Returns the result of a search, and the tools that the model can call because of it.
    fn find(&self, arguments: &Value, peers: &[PeerDescription], own: &str) -> (Value, Vec<DiscoveredTool>) {
        let query = arguments["query"].as_str().unwrap_or_default();
        let rule_of = |peer: &PeerDescription| self.discover.iter().position(|(rule, _)| rule.admits(peer));
        let Some((first, _)) = self.discover.first() else { return (json!({"tools": []}), Vec::new()) };
        let hits = first.index.search(peers, query, |peer| peer.name != own && rule_of(peer).is_some());
        let lookalikes = Lookalikes::new(peers.iter().map(|peer| peer.name.as_str()));
        let mut left: Vec<usize> = self.discover.iter().map(|(rule, _)| rule.max).collect();
        let (mut shown, mut discovered, mut bytes) = (Vec::new(), Vec::<DiscoveredTool>::new(), 0);
        for peer in &hits {
            let Some(rule) = rule_of(peer).filter(|rule| left[*rule] > 0) else { continue };
            let declared = cleaned(peer_tool(peer, &self.discover[rule].1).0);
            let listed = self.listed(&peer.name);
            let is_taken = self.entries.contains_key(&declared.name)
                || discovered.iter().any(|tool| tool.declaration.name == declared.name);
            if listed.is_none() && is_taken {
                continue;
            }
            let mut entry = match listed {
                Some(name) => json!({"tool": name, "description": peer.description}),
                None => shown_declaration(&declared),
            };
            bytes += entry.to_string().len();
            if bytes > MAX_DECLARED && !shown.is_empty() {
                break;
            }
            if peer.catalogue.stage != Stage::Stable {
                entry["stage"] = peer.catalogue.stage.name().into();
            }
            if let Some(replaced_by) = &peer.catalogue.replaced_by {
                entry["replaced_by"] = replaced_by.clone().into();
            }
            let is_visible = |name: &str| {
                self.listed(name).is_some()
                    || peers.iter().any(|peer| peer.name == name && rule_of(peer).is_some())
            };
            if let Some(other) = lookalikes.of(&peer.name, is_visible) {
                entry["resembles"] = other.into();
            }
            left[rule] -= 1;
            shown.push(entry);
            if listed.is_none() {
                discovered.push(DiscoveredTool::new(&peer.name, u32::try_from(rule).unwrap_or(0), declared));
            }
        }
        let mut result = json!({"tools": shown, "total": hits.len()});
        if shown.is_empty() {
            result["hint"] = "nothing matches: try other words".into();
        }
        (result, discovered)
    }

    /// Returns the tool by which another entry of the file offers an agent or a workflow.
    fn listed(&self, agent: &str) -> Option<&str> {
        let offers = |entry: &ToolEntryAtWork| match &entry.action {
            ToolAction::Peer { agent: offered, .. } => offered == agent,
            ToolAction::Workflow(tool) => tool.workflow == agent,
            _ => false,
        };
        self.entries.iter().find(|(_, entry)| offers(entry)).map(|(name, _)| name.as_str())
    }

    /// Returns what a call of a discovered tool calls, or the reason why it is not called.
    pub(super) async fn callee(
        &self,
        found: &DiscoveredTool,
        peers: &dyn Peers,
    ) -> Result<ToolEntryAtWork, String> {
        let name = &found.agent;
        let available = peers.list().await.map_err(|fault| fault.to_string())?;
        let rule = self.discover.get(found.rule as usize);
        let callable = rule.and_then(|(rule, settings)| {
            let peer = available.iter().find(|peer| peer.name == *name && rule.admits(peer))?;
            Some((peer, settings))
        });
        let (peer, settings) = callable.ok_or_else(|| format!("{name} is unavailable: search again"))?;
        let (declared, action) = peer_tool(peer, settings);
        if DiscoveredTool::new(name, found.rule, cleaned(declared)).digest != found.digest {
            return Err(format!("{name} has changed since the search: search again"));
        }
        Ok(ToolEntryAtWork { action, settings: settings.clone() })
    }
}

/// Returns a declaration as a model reads it in a result.
fn shown_declaration(declared: &ToolDeclaration) -> Value {
    let shown = declared.anthropic();
    json!({"tool": shown["name"], "description": shown["description"], "parameters": shown["input_schema"]})
}

fn declaration(name: &str, description: &str, parameters: Value) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters,
        takes_artifact: false,
        output_schema: None,
    }
}
