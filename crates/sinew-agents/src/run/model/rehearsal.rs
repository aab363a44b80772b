//! Cases of model agents: conversations with a scripted model and tool stubs in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sinew_model::rehearsal::{
    CrashFinding, Rehearsal, RehearsalStubs, StubAnswer, crash_everywhere, rehearse,
};
use sinew_model::script::ModelScript;
use sinew_model::{ConversationSpec, ToolCall};

use super::tools::{ToolSource, ToolSources, ToolTable};
use super::{AgentProfile, ModelAgent};
use crate::call::Call;
use crate::error::AgentError;
use crate::peers::PeerDescription;

/// Start of cases in Unix milliseconds: 2026-01-01, so that dates in instructions are stable.
const CASE_TIME_MS: u64 = 1_767_225_600_000;

/// Answers of stubs by tool, one for each call; the last one repeats.
pub type ToolStubs = BTreeMap<String, Vec<StubAnswer>>;

/// A case of a model agent.
#[derive(Clone, Debug)]
pub struct AgentCase {
    /// Input of the agent.
    pub input: Value,
    /// Instruction of the calling node.
    pub instruction: Option<String>,
    /// Output schema of the calling node.
    pub output_schema: Option<Value>,
    /// Context of the request.
    pub context: Value,
    /// Start of the conversation, in milliseconds since the Unix epoch; 2026-01-01 if `None`.
    pub begun_at: Option<u64>,
    /// Answers of the model.
    pub script: ModelScript,
    /// Answers of tools.
    pub tools: ToolStubs,
    /// Available agents, in addition to those that `tools` names.
    pub peers: Vec<PeerDescription>,
    /// Whether people approve calls.
    pub people_allow: bool,
    /// Whether to run the case again with a crash after each record.
    pub crash_everywhere: bool,
}

/// Outcome of a case.
#[derive(Clone, Debug)]
pub struct CaseOutcome {
    /// The conversation.
    pub rehearsal: Rehearsal,
    /// First difference that a crash caused.
    pub crash: Option<CrashFinding>,
    /// Called tools without a stub.
    pub unlisted: Vec<String>,
}

struct CaseStubs<'a> {
    agent: &'a ModelAgent,
    case: &'a AgentCase,
    unlisted: Vec<String>,
    scripts: &'a ToolTable,
    peers: &'a [PeerDescription],
    agent_name: &'a str,
}

impl RehearsalStubs for CaseStubs<'_> {
    fn call(&mut self, call: &ToolCall, earlier: usize) -> StubAnswer {
        if let Some(answer) =
            self.case.tools.get(&call.tool).and_then(|list| list.get(earlier).or(list.last()))
        {
            let discovered = self.scripts.found_in_stub(call, &answer.result);
            return StubAnswer { discovered, ..answer.clone() };
        }
        // A function of the file needs no stub, because it is deterministic.
        if let Some(result) = self.scripts.run_pure(call) {
            return result.into();
        }
        if let Some((found, discovered)) = self.scripts.find_tools_among(call, self.peers, self.agent_name) {
            return StubAnswer { discovered, ..Ok(found).into() };
        }
        if !self.unlisted.contains(&call.tool) {
            self.unlisted.push(call.tool.clone());
        }
        Err("the case has no answer for this tool".to_owned()).into()
    }

    fn decide(&mut self, _: &ToolCall) -> bool {
        self.case.people_allow
    }

    fn needs_approval(&self, condition: &str, arguments: &Value) -> bool {
        self.agent.needs_approval(condition, arguments)
    }
}

impl ModelAgent {
    /// Runs a case with the script instead of the models of the file.
    pub(crate) fn rehearse(
        &self,
        profile: AgentProfile<'_>,
        case: &AgentCase,
    ) -> Result<CaseOutcome, AgentError> {
        let nowhere = std::sync::Arc::new(crate::artifacts::NoArtifacts);
        let mut call = Call::new(profile.name, case.input.clone(), nowhere);
        call.instruction.clone_from(&case.instruction);
        call.output_schema.clone_from(&case.output_schema);
        call.context.clone_from(&case.context);
        let request = call.context.get("request").unwrap_or(&Value::Null).clone();
        let servers = self.rehearsed_servers(&case.tools);
        let places = ToolSources {
            rules: &self.rules(),
            peers: &self.with_named_peers(case.peers.clone()),
            servers: &servers,
            own: profile.name,
            request: &request,
            host: None,
            depth: 0,
            has_lock: self.lock.is_some(),
        };
        let tools = ToolTable::of(&places)?;
        let models = self.models(&request);
        let begun_at = case.begun_at.unwrap_or(CASE_TIME_MS);
        let tool_specs = Arc::clone(&tools.specs);
        let mut spec: ConversationSpec = self.spec(profile, &call, &models, tool_specs, "case", begun_at)?;
        spec.tainted = tools.has_words_of_others;
        spec.discover_rules = Arc::clone(&tools.discover_rules);
        let stubs = || CaseStubs {
            agent: self,
            case,
            unlisted: Vec::new(),
            scripts: &tools,
            peers: &case.peers,
            agent_name: profile.name,
        };
        let mut first = stubs();
        let rehearsal = rehearse(&spec, &case.script, &mut first, &[], "first");
        let crash =
            case.crash_everywhere.then(|| crash_everywhere(&spec, &case.script, stubs, &rehearsal)).flatten();
        Ok(CaseOutcome { rehearsal, crash, unlisted: first.unlisted })
    }

    /// Adds the agents that the file names. Without a card, they accept any arguments.
    pub(super) fn with_named_peers(&self, mut peers: Vec<PeerDescription>) -> Vec<PeerDescription> {
        for rule in &self.tools {
            let (name, is_workflow) = match &rule.source {
                ToolSource::Peer(name) => (name, false),
                ToolSource::Workflow(name) => (name, true),
                _ => continue,
            };
            if !peers.iter().any(|peer| peer.name == *name) {
                let any = serde_json::json!({"type": "object", "properties": {}});
                peers.push(PeerDescription {
                    name: name.clone(),
                    input_schema: Some(any),
                    is_workflow,
                    ..PeerDescription::default()
                });
            }
        }
        peers
    }
}
