//! Calls tools of a conversation.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sinew_model::{DiscoveredTool, ToolCall};
use sinew_protocol::embed::split_version;
use sinew_protocol::tool::{ToolInput, WorkflowTool};
use sinew_protocol::unique_keys::read_unique;
use sinew_protocol::usage::ModelTotals;
use sinew_protocol::{ArtifactName, ArtifactRef, Vocabulary};
use sinew_script::Function;
use sinew_source::violations;

use super::argument_contents::with_contents;
use super::builtin_tools::SkillText;
use super::conversation::ConversationScope;
use super::discover::CALL_NAMES_NO_TOOL;
use super::tools::{ToolAction, ToolEntryAtWork, ToolTable};
use crate::artifacts::Artifacts;
use crate::error::AgentError;
use crate::peers::PeerCall;
use crate::wait_clock::WaitClock;

/// Result of a call.
pub(crate) struct ToolOutcome {
    /// Output, or failure message for the model.
    pub(crate) result: Result<Value, String>,
    /// Model calls that it caused.
    pub(crate) usage: ModelTotals,
    /// Milliseconds for which a nested conversation or a called agent waited for people.
    pub(crate) waited_ms: u64,
    /// Whether the answer was lost, so that the call may have taken effect.
    pub(crate) is_lost: bool,
    /// Tools that it found.
    pub(crate) discovered: Vec<DiscoveredTool>,
}

impl ToolOutcome {
    fn lost(reason: String) -> Self {
        Self { is_lost: true, ..Self::from(Err(reason)) }
    }
}

impl From<Result<Value, String>> for ToolOutcome {
    fn from(result: Result<Value, String>) -> Self {
        Self { result, usage: ModelTotals::default(), waited_ms: 0, is_lost: false, discovered: Vec::new() }
    }
}

impl ToolTable {
    /// Runs a call that depends only on its arguments; `None` for all others.
    pub(crate) fn run_pure(&self, call: &ToolCall) -> Option<Result<Value, String>> {
        match &self.entries.get(&call.tool)?.action {
            ToolAction::Script(function) => {
                Some(function.call(&call.arguments).map_err(|error| script_failure(&error)))
            }
            _ => None,
        }
    }

    /// Makes a call within the remaining time. The model receives the text of a failure.
    pub(super) async fn run(
        &self,
        call: &ToolCall,
        left: Duration,
        place: ConversationScope<'_>,
        skills: &[SkillText],
    ) -> ToolOutcome {
        let found = match &call.discovered {
            None => None,
            Some(found) => match self.callee(found, place.call.peers.as_ref()).await {
                Ok(entry) => Some(entry),
                Err(reason) => return Err(reason).into(),
            },
        };
        match found.as_ref().or_else(|| self.entries.get(&call.tool)) {
            Some(entry) => self.run_entry(entry, call, left, place, skills).await,
            None => Err("there is no such tool".to_owned()).into(),
        }
    }

    async fn run_entry(
        &self,
        entry: &ToolEntryAtWork,
        call: &ToolCall,
        left: Duration,
        place: ConversationScope<'_>,
        skills: &[SkillText],
    ) -> ToolOutcome {
        let task = place.call;
        let arguments = match with_contents(&call.arguments, call.effect, task.artifacts.as_ref()) {
            Ok(arguments) => arguments,
            Err(reason) => return Err(reason).into(),
        };
        let cancel = task.cancel.child_token();
        let clock = WaitClock::default();
        let ask = async |agent: &str, input: Value, artifact: Option<ArtifactRef>| {
            let asked = PeerCall {
                agent: agent.to_owned(),
                input,
                artifact,
                key: call.position.key.clone(),
                cancel: cancel.clone(),
                clocks: [clock.clone(), place.clock.clone()],
            };
            let answer = task.peers.ask(asked).await;
            let result = answer.result.map_err(|fault| fault.to_string());
            ToolOutcome { usage: answer.usage, ..ToolOutcome::from(result) }
        };
        let mut work = std::pin::pin!(async {
            let result = match &entry.action {
                ToolAction::Peer { agent, takes_text } => {
                    let input =
                        if *takes_text { json!({"text": arguments["text"]}) } else { arguments.clone() };
                    return ask(agent, input, None).await;
                }
                ToolAction::Workflow(tool) => match workflow_input(tool, &arguments, task.artifacts.as_ref())
                {
                    Ok((input, artifact)) => return ask(&tool.workflow, input, Some(artifact)).await,
                    Err(reason) => Err(reason),
                },
                ToolAction::FindTools => {
                    return self.find_tools(&arguments, task.peers.as_ref(), place.profile.name).await;
                }
                ToolAction::CallTool => Err(CALL_NAMES_NO_TOOL.to_owned()),
                ToolAction::Script(function) => run_script(function, &arguments).await,
                ToolAction::Mcp { server, tool } => match server {
                    Some(server) => {
                        let key = &call.position.key;
                        match server.call(tool, &arguments, key, task).await {
                            Err(error @ AgentError::McpAnswerLost { .. }) => {
                                return ToolOutcome::lost(error.to_string());
                            }
                            answer => answer.map_err(|error| error.to_string()),
                        }
                    }
                    None => Err("the server of this tool is not started".to_owned()),
                },
                ToolAction::Builtin(builtin) => builtin.run(call, task, skills),
                ToolAction::Nested(_) => Err("a nested agent is not a call of its own".to_owned()),
                ToolAction::Host(host) => {
                    let answer = host.call(&call.tool, arguments.clone(), &call.position.key).await;
                    answer.map_err(|fault| fault.to_string())
                }
            };
            result.into()
        });
        let limit = entry.settings.timeout.min(left);
        let waited_ms = || u64::try_from(clock.waited().as_millis()).unwrap_or(u64::MAX);
        tokio::select! {
            biased;
            outcome = &mut work => return ToolOutcome { waited_ms: waited_ms(), ..outcome },
            () = clock.reached(limit) => {}
        }
        let late = ToolOutcome::lost(format!("no answer within {} s", limit.as_secs_f64()));
        if !entry.action.is_peer() {
            return late;
        }
        // Cancel the called agent, and account for its usage.
        cancel.cancel();
        ToolOutcome { usage: work.await.usage, waited_ms: waited_ms(), ..late }
    }
}

/// Returns the input of a workflow, and the artifact of this task that contains it: in parameter
/// mode a new one, `wi_WORKFLOW.json`.
fn workflow_input(
    tool: &WorkflowTool,
    arguments: &Value,
    artifacts: &dyn Artifacts,
) -> Result<(Value, ArtifactRef), String> {
    let none = Map::new();
    let prepared = tool.prepare(arguments.as_object().unwrap_or(&none), violations);
    match prepared.map_err(|fault| fault.to_string())? {
        ToolInput::Parameters(content) => {
            let name = tool.input_artifact(Vocabulary::Spec, 0).map_err(|fault| fault.to_string())?;
            let content = Value::Object(content);
            let stored = artifacts.put(name.as_str(), content.to_string().as_bytes(), None);
            Ok((content, stored.map_err(|error| error.to_string())?))
        }
        ToolInput::Artifact(named) => {
            let (name, version) = split_version(&named);
            let bytes = artifacts.get(name, version).map_err(|error| error.to_string())?;
            let input = read_unique(&bytes)
                .map_err(|error| format!("the artifact '{named}' is not JSON: {error}"))?;
            let name = ArtifactName::parse(name).map_err(|error| error.to_string())?;
            Ok((input, ArtifactRef { name, version }))
        }
    }
}

async fn run_script(function: &Function, arguments: &Value) -> Result<Value, String> {
    let (function, arguments) = (function.clone(), arguments.clone());
    // The interpreter blocks until it ends or reaches its own limit.
    let work = tokio::task::spawn_blocking(move || function.call(&arguments));
    match work.await {
        Ok(result) => result.map_err(|error| script_failure(&error)),
        Err(error) => Err(error.to_string()),
    }
}

fn script_failure(error: &sinew_script::ScriptError) -> String {
    format!("the script failed{}: {error}", crate::error::line(error))
}
