//! Engine callbacks: the work of a node, and the targets of its output.

use sinew_protocol::code;
use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::{Value, json};
use sinew_engine::{
    ActivationId, ActivationOutput, Adapter, AdapterContext, BoundValue, Fact, NativeEvent, NodeDecision,
    OutgoingToken, PersonAnswer, PersonRequest, RouteDecision, SeenCondition, SharedJson, TaskRequest,
    out_edges,
};
use sinew_protocol::Fault;

use super::delegation::{self, DelegationStep};
use super::lower::{Extra, condition_port};
use super::model::{Agent, BranchCondition, Work};
use super::text::{self, ApprovalDecision, ComparedText};
use super::{NAME, native, project};

/// Port of the branch that a finished node selected; absent if all branches are taken.
const BRANCH: &str = "branch";
/// Port of an approval's answer, which becomes part of the state.
pub(super) const APPROVAL: &str = "approval";
/// Port of the number that orders the activations after each answer; see `native`.
pub(super) const SEGMENT: &str = "segment";

/// The adapter of the dialect.
pub(super) struct AgentFlowAdapter;

impl Adapter for AgentFlowAdapter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn conditions(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<SeenCondition> {
        match extra(ctx, act).map(|extra| extra.work) {
            Ok(Work::If { conditions }) => seen(ctx, act, &conditions),
            _ => Vec::new(),
        }
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let extra = match extra(ctx, act) {
            Ok(extra) => extra,
            Err(fault) => return NodeDecision::Fail(fault),
        };
        match extra.work {
            Work::Start { initial } => NodeDecision::Done(ActivationOutput::new(start_value(ctx, initial))),
            Work::Agent(agent) => bind_agent(ctx, act, &agent, extra.own),
            Work::If { conditions } => {
                choose(ctx, act, &conditions).map_or_else(NodeDecision::Fail, NodeDecision::Done)
            }
            Work::Approval { prompt } => {
                let prompt = if prompt.is_empty() { project::WAITING.to_owned() } else { prompt };
                NodeDecision::Wait(Box::new(PersonRequest {
                    prompt,
                    data: previous(ctx, act),
                    decision: true,
                    ..PersonRequest::default()
                }))
            }
            Work::Unknown => {
                let kind = &ctx.node_of(act).kind;
                project::note(ctx, act, "warn", &format!("Unknown node type \"{kind}\" skipped"));
                NodeDecision::Done(finish(ctx, act, ActivationOutput::default()))
            }
            Work::Broken { message } => NodeDecision::Fail(
                Fault::failure(code::AGENTFLOW_GRAPH_CANNOT_START.as_str(), message).with_retryable(false),
            ),
        }
    }

    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let own = match extra(ctx, act) {
            Ok(extra) => extra.own,
            Err(fault) => return NodeDecision::Fail(fault),
        };
        match delegation::next_step(ctx, act, &own) {
            DelegationStep::Answer(answer) => {
                NodeDecision::Done(finish(ctx, act, ActivationOutput::new(reply_value(&answer))))
            }
            DelegationStep::Failed(fault) => NodeDecision::Fail(fault),
            DelegationStep::Ask(ask) => NodeDecision::Ask(ask),
        }
    }

    fn answer(&self, ctx: &AdapterContext<'_>, act: ActivationId, answer: &PersonAnswer) -> NodeDecision {
        let decision = ApprovalDecision::of(answer);
        let left = json!({ "decision": decision.word(), "note": decision.note });
        let output = ActivationOutput::new(previous(ctx, act))
            .port(BRANCH, json!(decision.word()))
            .port(APPROVAL, left)
            .port(SEGMENT, json!(native::ended(ctx)));
        NodeDecision::Done(output)
    }

    fn select(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> RouteDecision {
        let one = ctx.act(act);
        let branch = one.output.as_ref().and_then(|output| {
            output
                .ports
                .iter()
                .find(|(name, _)| name == BRANCH)
                .map(|(_, value)| value.as_str().unwrap_or_default())
        });
        let taken = |port: &str| branch.is_none_or(|branch| branch == port);
        if let Ok(extra) = extra(ctx, act) {
            for missing in extra.missing.iter().filter(|missing| taken(&missing.port)) {
                let message = format!("Connection target \"{}\" not found", missing.target);
                project::note(ctx, act, "warn", &message);
            }
        }
        let edges = out_edges(ctx, one.node).filter(|edge| taken(&ctx.plan().edge(*edge).port));
        RouteDecision::Tokens(edges.map(OutgoingToken::port).collect())
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        Ok(native::state(ctx))
    }

    fn project(&self, ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
        project::project(ctx, fact)
    }

    fn native_result(&self, ctx: &AdapterContext<'_>) -> Value {
        native::result(ctx)
    }
}

/// Returns the dialect's data of a node.
pub(super) fn extra(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<Extra, Fault> {
    let node = ctx.node_of(act);
    Extra::deserialize(&node.extra).map_err(|error| {
        let text = format!("node '{}' of the plan is not a node of agentflow: {error}", node.id);
        Fault::invalid(code::AGENTFLOW_GRAPH_WRONG_SHAPE.as_str(), text)
    })
}

/// Returns the output before this node; the execution's input if the node is started directly.
fn previous(ctx: &AdapterContext<'_>, act: ActivationId) -> SharedJson {
    ctx.act(act).inputs.first().map(|arrived| Arc::clone(&arrived.value)).unwrap_or_default()
}

/// Returns the execution's input, or the initial value of the file for a null or `{}` input.
/// Callers with a single string (a tool call, a message) send `{"text": …}`, which is converted to
/// that string.
fn start_value(ctx: &AdapterContext<'_>, initial: Value) -> Value {
    match ctx.input() {
        Value::Null => initial,
        Value::Object(members) if members.is_empty() => initial,
        Value::Object(members) if members.len() == 1 && members.contains_key("initialInput") => {
            members["initialInput"].clone()
        }
        Value::Object(members) if members.len() == 1 && members.get("text").is_some_and(Value::is_string) => {
            members["text"].clone()
        }
        given => given.clone(),
    }
}

fn bind_agent(ctx: &AdapterContext<'_>, act: ActivationId, agent: &Agent, own: Value) -> NodeDecision {
    if let Some(problem) = ctx.plan().extra.get("subagent_problem").and_then(Value::as_str) {
        return NodeDecision::Fail(Fault::invalid(
            code::AGENTFLOW_SUBAGENT_LINKS_NOT_VALID.as_str(),
            problem,
        ));
    }
    let previous = previous(ctx, act);
    // A decision is not text to work on: use the last text of a node instead.
    let previous = match text::is_decision(&previous).then(|| native::last_text(ctx)).flatten() {
        Some(text) => text,
        None => text::plain(&previous),
    };
    let prompt = match text::prompt(&agent.user_prompt, &previous) {
        Ok(prompt) => prompt,
        Err(error) => {
            return NodeDecision::Fail(Fault::invalid(code::VALUE_TOO_LARGE.as_str(), error.to_string()));
        }
    };
    let name = ctx.node_of(act).agent.clone().unwrap_or_default();
    let mut context = match own {
        Value::Object(own) => own,
        _ => serde_json::Map::new(),
    };
    context.insert("userContent".into(), json!(prompt));
    let ask = TaskRequest {
        instruction: Some(agent.system_prompt.clone()),
        context: Value::Object(context),
        ..TaskRequest::agent(name, json!({ "text": prompt }))
    };
    NodeDecision::Ask(Box::new(ask))
}

/// Returns the string of an agent's reply, bare or as the only field of an object; any other reply
/// is unchanged.
pub(super) fn reply_value(output: &SharedJson) -> SharedJson {
    match &**output {
        Value::Object(members) if members.len() == 1 && members.get("text").is_some_and(Value::is_string) => {
            Arc::new(members["text"].clone())
        }
        _ => Arc::clone(output),
    }
}

/// Returns the conditions with the text that they compare. Conditions after the first that held
/// were not evaluated.
fn seen(ctx: &AdapterContext<'_>, act: ActivationId, conditions: &[BranchCondition]) -> Vec<SeenCondition> {
    let value = previous(ctx, act);
    let mut text = ComparedText::new(&text::plain(&value));
    let mut has_held = false;
    let one = |condition: &BranchCondition| {
        let holds = if has_held { None } else { text.matches(condition).ok() };
        has_held |= holds == Some(true);
        SeenCondition {
            kind: "condition",
            text: format!("{} \"{}\"", condition.operator(), condition.value),
            bound: vec![BoundValue::new("previous output", Some(Value::clone(&value)))],
            holds,
        }
    };
    conditions.iter().map(one).collect()
}

fn choose(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    conditions: &[BranchCondition],
) -> Result<ActivationOutput, Fault> {
    let value = previous(ctx, act);
    let mut text = ComparedText::new(&text::plain(&value));
    let mut branch = "false".to_owned();
    for (ix, condition) in conditions.iter().enumerate() {
        let holds = text.matches(condition)?;
        let (operator, expected) = (condition.operator(), &condition.value);
        let line = format!("Condition {} ({operator} \"{expected}\") evaluated as {holds}", ix + 1);
        project::note(ctx, act, "logic_check", &line);
        if holds {
            branch = condition_port(ix);
            break;
        }
    }
    Ok(finish(ctx, act, ActivationOutput::new(value)).port(BRANCH, json!(branch)))
}

/// Finishes with an output. An activation from the deferred queue records its segment, as an
/// approved one does.
fn finish(ctx: &AdapterContext<'_>, act: ActivationId, output: ActivationOutput) -> ActivationOutput {
    if ctx.act(act).deferred == Some(false) {
        // Additional ports hide nothing: edges without their own port carry the whole value.
        output.port(SEGMENT, json!(native::ended(ctx)))
    } else {
        output
    }
}
