//! Delegation: an agent calls its sub-agents, and is called again with their answers.
//!
//! An agent with sub-agents delegates by its answer, `{"subagent_calls": [{"tool": …, "task":
//! …}]}`. The engine calls the named agents one after the other, and then the first agent again.
//! Every reply is a fact of the activation, so a walk through the replies determines the next call,
//! also after a crash.

use sinew_protocol::code;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sinew_engine::{ActivationId, AdapterContext, RecordedReply, SharedJson, TaskRequest};
use sinew_protocol::Fault;

use super::project;

/// Tag of tasks of sub-agents.
pub(super) const SUBAGENT: &str = "subagent";
/// Tag of tasks of the agent itself after the first one.
pub(super) const TURN: &str = "turn";
/// Maximum number of delegations before an agent must answer.
const MAX_TURNS: usize = 20;
/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 32;
/// Field of an answer with the calls of sub-agents.
const CALLS: &str = "subagent_calls";
/// Field of an input with the answers to them.
const RESULTS: &str = "subagent_results";
/// Field of the context of sub-agent tasks: the original content of the top-level agent's task.
const ROOT_CONTENT: &str = "rootContent";

/// Next step after the replies of an agent node so far.
pub(super) enum DelegationStep {
    /// The agent, or one of its sub-agents, is called next.
    Ask(Box<TaskRequest>),
    /// The agent's answer.
    Answer(SharedJson),
    /// The agent failed.
    Failed(Fault),
}

/// Returns the next step of an agent node. `own` contains the settings of the agent and its
/// sub-agents.
pub(super) fn next_step(ctx: &AdapterContext<'_>, act: ActivationId, own: &Value) -> DelegationStep {
    let one = ctx.act(act);
    let asked = one.ask.as_deref();
    let content = asked.and_then(|ask| ask.context.get(ROOT_CONTENT).or(ask.context.get("userContent")));
    let text = content.and_then(Value::as_str).unwrap_or_default();
    let agent = DelegateAgent {
        node: ctx.node_of(act).id.clone(),
        agent: ctx.node_of(act).agent.clone().unwrap_or_default(),
        own,
        depth: 0,
        call: None,
    };
    let mut walk = DelegationWalk { ctx, act, replies: &one.replies, calls: 0, root_content: text };
    match walk.run(&agent, text) {
        Err(ask) => DelegationStep::Ask(ask),
        Ok(Ok(answer)) => DelegationStep::Answer(answer),
        Ok(Err(fault)) => DelegationStep::Failed(fault),
    }
}

/// Returns whether a reply calls sub-agents, so that it is not the final answer.
pub(super) fn delegates(own: &Value, output: &Value) -> bool {
    calls_of(own, output).is_some()
}

/// Returns the calls of an answer; `None` if it is a final answer, or if the agent has no
/// sub-agents.
fn calls_of<'a>(own: &Value, output: &'a Value) -> Option<&'a [Value]> {
    let below = own.get("subagents").and_then(Value::as_array).is_some_and(|below| !below.is_empty());
    let members = output.as_object().filter(|members| below && members.len() == 1)?;
    let calls = members.get(CALLS)?.as_array()?;
    (!calls.is_empty() && calls.len() <= MAX_CALLS).then_some(calls)
}

/// An agent in the delegation tree.
struct DelegateAgent<'t> {
    node: String,
    agent: String,
    own: &'t Value,
    depth: usize,
    /// The call that it answers; `None` for the top-level agent.
    call: Option<String>,
}

struct DelegationWalk<'c> {
    ctx: &'c AdapterContext<'c>,
    act: ActivationId,
    /// Replies that the walk has not reached.
    replies: &'c [RecordedReply],
    /// Calls so far, over all agents of the node.
    calls: usize,
    root_content: &'c str,
}

impl DelegationWalk<'_> {
    /// Follows an agent through its turns to its answer, or to the task that has no reply yet.
    fn run(
        &mut self,
        agent: &DelegateAgent<'_>,
        task: &str,
    ) -> Result<Result<SharedJson, Fault>, Box<TaskRequest>> {
        let mut results: Vec<Value> = Vec::new();
        for turn in 0..=MAX_TURNS {
            let Some((reply, rest)) = self.replies.split_first() else {
                return Err(Box::new(self.ask(agent, task, &results, turn)));
            };
            self.replies = rest;
            let output = match &reply.result {
                Ok(reply) => Arc::clone(&reply.output),
                Err(fault) => return Ok(Err(fault.clone())),
            };
            let Some(calls) = calls_of(agent.own, &output) else { return Ok(Ok(output)) };
            if turn == MAX_TURNS {
                break;
            }
            for call in calls {
                results.push(self.delegate(agent, call)?);
            }
        }
        let text = format!("agent '{}' delegated {MAX_TURNS} times without an answer", agent.node);
        Ok(Err(Fault::failure(code::DELEGATION_WITHOUT_END.as_str(), text).with_retryable(false)))
    }

    /// Returns the result of one call for the agent. A failure is also a result: the agent decides
    /// how to continue.
    fn delegate(&mut self, agent: &DelegateAgent<'_>, call: &Value) -> Result<Value, Box<TaskRequest>> {
        self.calls += 1;
        let id = format!("call_{}", self.calls);
        let text = |key: &str| call.get(key).and_then(Value::as_str);
        let (name, task) =
            (text("tool").or(text("node")).unwrap_or_default(), text("task").unwrap_or_default());
        let below = agent.own.get("subagents").and_then(Value::as_array).into_iter().flatten();
        let found = below.into_iter().find(|child| {
            let id = child["nodeId"].as_str().unwrap_or_default();
            id == name || tool_name(child["agentName"].as_str().unwrap_or_default(), id) == name
        });
        let Some(own) = found else {
            let error = format!("there is no sub-agent '{name}'");
            return Ok(json!({ "callId": id, "tool": name, "error": error }));
        };
        let node = own["nodeId"].as_str().unwrap_or_default().to_owned();
        let plan = self.ctx.plan();
        let target = plan.find(&node).and_then(|ix| plan.node(ix).agent.clone()).unwrap_or_default();
        let child =
            DelegateAgent { node, agent: target, own, depth: agent.depth + 1, call: Some(id.clone()) };
        self.tell("subagent_call_start", &child, agent, None);
        let result = self.run(&child, task)?;
        Ok(match result {
            Ok(output) => {
                self.tell("subagent_call_end", &child, agent, None);
                let output = super::adapter::reply_value(&output);
                json!({ "callId": id, "tool": name, "result": *output })
            }
            Err(fault) => {
                self.tell("subagent_call_error", &child, agent, Some(&fault.message));
                json!({ "callId": id, "tool": name, "error": fault.message })
            }
        })
    }

    /// Logs an event once: only events after the last reply are new.
    fn tell(&self, kind: &str, child: &DelegateAgent<'_>, parent: &DelegateAgent<'_>, message: Option<&str>) {
        if !self.replies.is_empty() {
            return;
        }
        let mut event = json!({
            "type": kind,
            "parentNodeId": self.ctx.node_of(self.act).id,
            "subagentNodeId": child.node,
            "subagentName": child.own["agentName"],
            "callId": child.call,
            "depth": child.depth,
        });
        if let Some(above) = &parent.call {
            event["parentCallId"] = json!(above);
        }
        if let Some(message) = message {
            event["message"] = json!(message);
        }
        project::note(self.ctx, self.act, kind, &crate::js::json_text(&event));
    }

    fn ask(&self, agent: &DelegateAgent<'_>, task: &str, results: &[Value], turn: usize) -> TaskRequest {
        let below = agent.call.is_some();
        let hidden = |key: &str| below && matches!(key, "nodeId" | "agentName");
        let own = agent.own.as_object().into_iter().flatten();
        let mut context: Map<String, Value> =
            own.filter(|(key, _)| !hidden(key)).map(|(key, value)| (key.clone(), value.clone())).collect();
        context.insert("userContent".into(), json!(task));
        if below {
            context.insert("node".into(), json!(agent.node));
            context.insert(ROOT_CONTENT.into(), json!(self.root_content));
        }
        let mut input = json!({ "text": task });
        if turn > 0 {
            input[RESULTS] = json!(results);
        }
        let system_prompt = agent.own.get("systemPrompt").and_then(Value::as_str).unwrap_or_default();
        let ask = TaskRequest {
            instruction: Some(system_prompt.to_owned()),
            context: Value::Object(context),
            ..TaskRequest::agent(agent.agent.clone(), input)
        };
        ask.tagged(if below { SUBAGENT } else { TURN })
    }
}

/// Returns the name of the tool with which a model calls a sub-agent: `subagent_<name>_<id of the
/// node>`.
fn tool_name(agent: &str, node: &str) -> String {
    let mut slug = String::new();
    for c in agent.chars() {
        if c.is_alphanumeric() {
            slug.extend(c.to_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('_') {
            slug.push('_');
        }
    }
    format!("subagent_{}_{node}", slug.trim_end_matches('_'))
}
