//! Nested agents of the calling node: tools whose calls are nested conversations.
//!
//! A nested agent has the instruction of its node, and the models and budget of its parent. Its tools
//! are those of its node that the file allows. Its records are in the log of the parent conversation.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use sinew_model::{BudgetSpec, ConversationSpec, ConversationState, ToolCall};
use sinew_protocol::tool::ToolDeclaration;
use sinew_protocol::usage::TaskUsage;
use tokio::sync::mpsc::UnboundedSender;

use super::conversation::ConversationScope;
use super::conversation_log::{ConversationLog, SharedLog};
use super::tool_calls::ToolOutcome;
use super::{ModelAgent, tools};
use crate::call::Call;
use crate::error::AgentError;

/// Maximum levels of nested agents.
pub(crate) const MAX_DEPTH: u32 = 32;
/// Maximum turns of a nested agent.
const MAX_TURNS: u32 = 20;
/// Maximum nested agents of an agent.
const MAX_AGENTS: usize = 64;

/// A nested agent, as the calling node describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NestedAgent {
    pub(crate) declaration: ToolDeclaration,
    /// Id of the node.
    pub(crate) node: String,
    /// Name of the agent, for people.
    pub(crate) name: String,
    pub(crate) instruction: String,
    /// Request of the node: model, tools, nested agents.
    pub(crate) request: Value,
}

/// Scope of a nested conversation.
#[derive(Clone, Copy)]
pub(super) struct NestedScope<'a> {
    pub(super) agent: &'a NestedAgent,
    /// Key of the call that started it.
    pub(super) key: &'a str,
    pub(super) share: NestedShare,
    /// Number of parent conversations.
    pub(super) depth: u32,
    /// Observers of the task, who receive the events of the call.
    pub(super) observers: &'a UnboundedSender<Value>,
    pub(super) log: &'a Arc<SharedLog>,
}

/// Budget and taint that a nested conversation inherits.
#[derive(Clone, Copy)]
pub(super) struct NestedShare {
    /// Remaining budget of the parent.
    pub(super) budget: BudgetSpec,
    /// Whether the parent, and so possibly the task, contains untrusted text.
    pub(super) tainted: bool,
}

/// Returns the nested agents in a node's request: those of agentflow, and of covalt's tools socket.
pub(crate) fn nested_agents(request: &Value) -> Vec<NestedAgent> {
    let list = |pointer: &str| request.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let of_tree = list("/subagents").filter_map(of_delegation_tree);
    let of_socket = list("/links/tools").filter_map(of_tools_socket);
    of_tree.chain(of_socket).take(MAX_AGENTS).collect()
}

/// Parses an agent of agentflow: settings of a node, with its nested agents.
fn of_delegation_tree(agent: &Value) -> Option<NestedAgent> {
    let text = |key: &str| agent.get(key).and_then(Value::as_str).unwrap_or_default();
    let node = Some(text("nodeId")).filter(|id| !id.is_empty())?;
    let name = Some(text("agentName")).filter(|name| !name.is_empty()).unwrap_or("Agent");
    let described = Some(text("systemPrompt")).filter(|prompt| !prompt.is_empty());
    let purpose = described.map(|prompt| format!(" It works by: {}", sinew_model::shortened(prompt, 300)));
    let own = ["model", "reasoningEffort", "tools", "subagents"].into_iter();
    let member = |key: &str| Some((key.to_owned(), agent.get(key).filter(|value| !value.is_null())?.clone()));
    let request: Map<String, Value> = own.filter_map(member).collect();
    Some(NestedAgent {
        declaration: declaration(
            &format!("subagent_{}_{node}", slug(name)),
            &format!("Give a task to the agent '{name}'.{}", purpose.unwrap_or_default()),
        ),
        node: node.to_owned(),
        name: name.to_owned(),
        instruction: text("systemPrompt").to_owned(),
        request: request.into(),
    })
}

/// Parses an agent of covalt that is connected to the tools socket.
fn of_tools_socket(node: &Value) -> Option<NestedAgent> {
    if !node["type"].as_str().is_some_and(|kind| kind.ends_with("agent")) {
        return None;
    }
    let data = |key: &str| node["data"][key].as_str().filter(|text| !text.is_empty());
    let name = node["label"].as_str().or(data("_label")).or(data("name")).unwrap_or("agent");
    let told = |key: &str| node["tool"][key].as_str().map(str::to_owned);
    let tool = told("name").unwrap_or_else(|| format!("delegate_to_{}", slug(name)));
    let description = told("description").or_else(|| data("description").map(str::to_owned));
    let mut request = json!({ "links": node["links"] });
    for setting in ["model", "temperature", "reasoningEffort"] {
        if let Some(value) = node["data"].get(setting).filter(|value| !value.is_null() && *value != "") {
            request[setting] = value.clone();
        }
    }
    Some(NestedAgent {
        declaration: declaration(
            &tool,
            &format!("Give a task to the agent '{name}'. {}", description.unwrap_or_default()),
        ),
        node: node["id"].as_str().unwrap_or_default().to_owned(),
        name: name.to_owned(),
        instruction: data("instructions").or(data("system_prompt")).unwrap_or_default().to_owned(),
        request,
    })
}

fn declaration(name: &str, description: &str) -> ToolDeclaration {
    ToolDeclaration {
        name: tools::tool_name("", name),
        description: description.trim().to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "task": {"type": "string", "description": "The task, with everything the agent has to know."},
            },
            "required": ["task"],
            "additionalProperties": false,
        }),
        takes_artifact: false,
        output_schema: None,
    }
}

/// Returns the letters and digits of a name in lower case, separated by `_`.
fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars() {
        if c.is_alphanumeric() {
            slug.extend(c.to_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('_') {
            slug.push('_');
        }
    }
    slug.trim_end_matches('_').to_owned()
}

impl NestedShare {
    /// Returns the current share of the parent conversation.
    pub(super) fn of(spec: &ConversationSpec, state: &ConversationState, now: u64) -> Self {
        let budget = &spec.budget;
        let (input, output) = state.spent_tokens();
        let budget = BudgetSpec {
            turns: budget.turns.min(MAX_TURNS),
            input_tokens: budget.input_tokens.saturating_sub(input),
            output_tokens: budget.output_tokens.saturating_sub(output),
            cost_usd: budget.cost_usd.map(|limit| (limit - state.spent_usd()).max(0.0)),
            wall_ms: spec.wall_left_ms(state, now),
            waiting_ms: budget.waiting_ms.saturating_sub(state.totals.waited_ms),
            ..*budget
        };
        Self { budget, tainted: spec.tainted || state.tainted }
    }
}

impl ModelAgent {
    /// Runs the conversation of a nested agent. Fails if the log cannot be written; the parent's model
    /// receives failures of the agent. Adds events of the call and of its nested calls.
    pub(super) fn run_nested<'a>(
        &'a self,
        above: ConversationScope<'a>,
        nested: NestedScope<'a>,
        call: &'a ToolCall,
    ) -> BoxFuture<'a, Result<(ToolOutcome, Vec<Value>), AgentError>> {
        async move {
            let task = call.arguments["task"].as_str().unwrap_or_default();
            let own = nested_call(above.call, nested, task);
            let begin = self.begin(&own);
            let log = ConversationLog::nested(nested.log, nested.key, &begin).await?;
            let place = ConversationScope { call: &own, nested: Some(nested), ..above };
            let report = |event: Value| {
                // Fails if nobody observes the task.
                let _unobserved = nested.observers.send(event.clone());
                event
            };
            let mut events = vec![report(event("subagent_call_start", above, nested, None))];
            let held = self.hold_conversation(place, log).await?;
            let usage = TaskUsage::of(&held.usage).unwrap_or_default().total();
            let (result, end) = match held.result {
                Ok(output) => {
                    let below = output.events.into_iter().filter(is_of_nested_agent);
                    events.extend(below);
                    (Ok(words_of(output.value)), event("subagent_call_end", above, nested, None))
                }
                Err(fault) => {
                    let end = event("subagent_call_error", above, nested, Some(&fault.message));
                    (Err(fault.to_string()), end)
                }
            };
            events.push(report(end));
            Ok((ToolOutcome { usage, waited_ms: held.waited_ms, ..ToolOutcome::from(result) }, events))
        }
        .boxed()
    }
}

/// Returns the task of a nested agent: that of its parent, with the nested request.
fn nested_call(above: &Call, nested: NestedScope<'_>, task: &str) -> Call {
    let mut call = above.clone();
    call.input = json!({ "text": task });
    call.instruction = None;
    call.output_schema = None;
    call.input_schema = None;
    call.session = None;
    call.recording = None;
    call.tools = None;
    call.conversation = Some(nested.key.to_owned());
    call.context["request"] = nested.agent.request.clone();
    call.context["activation"] = nested.key.into();
    // Observers receive events of the call, but no progress.
    call.progress = tokio::sync::mpsc::unbounded_channel().0;
    call.usage = Arc::default();
    call
}

fn is_of_nested_agent(event: &Value) -> bool {
    event["type"].as_str().is_some_and(|kind| kind.starts_with("subagent_call_"))
}

/// Returns an event in the format of agentflow's log.
fn event(kind: &str, above: ConversationScope<'_>, nested: NestedScope<'_>, message: Option<&str>) -> Value {
    let mut event = json!({
        "type": kind,
        "subagentNodeId": nested.agent.node,
        "subagentName": nested.agent.name,
        "callId": nested.key,
        "depth": nested.depth,
    });
    if let Some(parent) = above.nested {
        event["parentCallId"] = parent.key.into();
    }
    if let Some(message) = message {
        event["message"] = message.into();
    }
    event
}

/// Converts an output for the parent's model: unwraps the object of a text.
fn words_of(output: Value) -> Value {
    match output {
        Value::Object(mut members)
            if members.len() == 1 && members.get("text").is_some_and(Value::is_string) =>
        {
            members.shift_remove("text").unwrap_or_default()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_describe_agents_below() {
        let request = json!({
            "subagents": [
                {"nodeId": "k", "agentName": "Fact finder!", "systemPrompt": "Find facts.", "model": "cheap",
                 "reasoningEffort": null, "subagents": [{"nodeId": "m", "agentName": "Librarian"}]},
                {"agentName": "without a node"},
                7,
            ],
            "links": {"tools": [
                {"id": "n1", "type": "agent", "label": "Orders", "data": {"instructions": "Look it up.", "model": "main"},
                 "tool": {"name": "delegate_to_orders", "description": "Knows orders."}, "links": {"tools": []}},
                {"id": "n2", "type": "mcp-server", "data": {"server": "files"}},
            ]},
        });
        let found = nested_agents(&request);
        let told: Vec<_> =
            found.iter().map(|one| (one.declaration.name.as_str(), one.instruction.as_str())).collect();
        assert_eq!(told, [("subagent_fact_finder_k", "Find facts."), ("delegate_to_orders", "Look it up.")]);
        assert_eq!(
            found[0].request,
            json!({"model": "cheap", "subagents": [{"nodeId": "m", "agentName": "Librarian"}]})
        );
        assert_eq!(found[1].request, json!({"links": {"tools": []}, "model": "main"}));
        for nothing in [json!(null), json!({"subagents": "all"}), json!({"links": {"tools": {"id": 1}}})] {
            assert_eq!(nested_agents(&nothing), [], "{nothing}");
        }
    }
}
