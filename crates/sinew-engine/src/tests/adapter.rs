//! A dialect whose behaviour is data: the `extra` of a node defines what it does, see
//! [`super::plan`].

use std::sync::Arc;

use serde_json::{Value, json};
use sinew_plan::{NodeOperation, Plan, PlanNode};
use sinew_protocol::Fault;

use crate::fact::{ActivationOutput, ChildSpec, PersonAnswer, PersonRequest, TokenValue};
use crate::{
    ActivationEnd, ActivationId, Adapter, AdapterContext, NodeDecision, OutgoingToken, RouteDecision,
    SharedJson, TaskRequest, out_edges,
};

pub(crate) struct Scripted;

/// Returns the fault with this name: `failure`, `error`, `invalid`, `hard` (not retryable),
/// `after500` (retry after 500 ms).
pub(crate) fn fault(word: &str) -> Fault {
    match word {
        "" | "failure" => Fault::failure("failure", "it failed"),
        "error" => Fault::error("error", "it crashed"),
        "invalid" => Fault::invalid("invalid", "it is wrong"),
        "hard" => Fault::failure("hard", "it failed for good").with_retryable(false),
        other => match other.strip_prefix("after").and_then(|ms| ms.parse().ok()) {
            Some(ms) => Fault::error("after", "busy").with_retry_after_ms(ms),
            None => panic!("no such fault: {other}"),
        },
    }
}

fn input(ctx: &AdapterContext<'_>, act: ActivationId) -> Value {
    let inputs = &ctx.act(act).inputs;
    match &inputs[..] {
        [] => Value::Null,
        [one] => Value::clone(&one.value),
        many => many.iter().map(|arrived| Value::clone(&arrived.value)).collect(),
    }
}

fn output(node: &PlanNode, value: impl Into<SharedJson>) -> ActivationOutput {
    let value: SharedJson = value.into();
    let ports = node.extra["ports"].as_array().into_iter().flatten().filter_map(Value::as_str);
    ports
        .fold(ActivationOutput::new(Arc::clone(&value)), |output, port| output.port(port, Arc::clone(&value)))
}

fn children(node: &PlanNode, bodies: impl IntoIterator<Item = (u32, Value)>) -> NodeDecision {
    let delay_ms = node.extra["delay"].as_u64();
    NodeDecision::Fan {
        children: bodies
            .into_iter()
            .map(|(body, item)| ChildSpec { body, item: Arc::new(item), delay_ms })
            .collect(),
        limit: node.extra["limit"].as_u64().map(|limit| limit as u32),
        fail_fast: node.extra["fail_fast"] == true,
    }
}

/// Returns the decision of a setting: one name, or a list with one name per call of the hook.
fn decision(node: &PlanNode, setting: &str, call: usize) -> Option<NodeDecision> {
    let words = &node.extra[setting];
    let word = words.as_str().filter(|_| call == 0).or_else(|| words[call].as_str())?;
    Some(match word {
        "ask" => NodeDecision::Ask(Box::new(TaskRequest::agent("other", Value::Null).tagged("other"))),
        "sleep" => NodeDecision::Sleep(10),
        "wait" => NodeDecision::Wait(Box::default()),
        "fan" => match &node.op {
            NodeOperation::Map { body } => children(node, [(*body, json!(0))]),
            other => panic!("{other:?} has no body"),
        },
        "skip" => NodeDecision::Skip { reason: "told to".into(), output: output(node, json!("skipped")) },
        "done" => NodeDecision::Done(output(node, json!("done"))),
        "fail" => NodeDecision::Fail(fault("failure")),
        other => panic!("no such decision: {other}"),
    })
}

impl Adapter for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn admit(&self, plan: &Plan, input: Value) -> Result<Value, Fault> {
        let refused = &plan.extra["refuse"];
        if *refused == true || (!refused.is_null() && *refused == input) {
            Err(fault("invalid"))
        } else {
            Ok(input)
        }
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let node = ctx.node_of(act);
        let extra = &node.extra;
        if let Some(note) = extra.get("note") {
            ctx.note(note.clone());
        }
        if let Some(decision) = decision(node, "first", 0) {
            return decision;
        }
        if let Some(value) = extra.get("skip") {
            return NodeDecision::Skip { reason: "told to".into(), output: output(node, value.clone()) };
        }
        if let Some(word) = extra["fail"].as_str() {
            return NodeDecision::Fail(fault(word));
        }
        if let Some(word) = extra["fail_with"].as_str() {
            return NodeDecision::FailWith(fault(word), output(node, json!("failed")));
        }
        match &node.op {
            NodeOperation::Agent | NodeOperation::Workflow => NodeDecision::Ask(Box::new(TaskRequest {
                timeout_ms: extra["ask_timeout"].as_u64(),
                ..TaskRequest::agent(node.id.clone(), input(ctx, act))
            })),
            NodeOperation::Source | NodeOperation::Pure => NodeDecision::Done(output(
                node,
                extra.get("done").cloned().unwrap_or_else(|| input(ctx, act)),
            )),
            NodeOperation::Human => NodeDecision::Wait(Box::new(PersonRequest {
                timeout_ms: extra["wait"].as_u64(),
                remind_ms: extra["remind"].as_u64(),
                ..PersonRequest::default()
            })),
            NodeOperation::Delay => NodeDecision::Sleep(extra["sleep"].as_u64().unwrap_or(100)),
            NodeOperation::Map { body } => match extra["items"].as_u64() {
                Some(count) => children(node, (0..count).map(|n| (*body, json!(n)))),
                None => children(
                    node,
                    input(ctx, act).as_array().into_iter().flatten().map(|n| (*body, n.clone())),
                ),
            },
            NodeOperation::Loop { body } => children(node, [(*body, json!(0))]),
            NodeOperation::Fork { bodies } => children(node, bodies.iter().map(|body| (*body, Value::Null))),
        }
    }

    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let node = ctx.node_of(act);
        if let Some(decision) = decision(node, "shape", ctx.act(act).replies.len() - 1) {
            return decision;
        }
        let reply = match ctx.act(act).replies.last().map(|replied| (replied.tag.as_str(), &replied.result)) {
            Some((TaskRequest::WORK, Err(_))) if node.extra.get("instead").is_some() => {
                let other = node.extra["instead"].as_str().unwrap();
                return NodeDecision::Ask(Box::new(TaskRequest::agent(other, Value::Null).tagged("instead")));
            }
            Some((_, Err(fault))) => return NodeDecision::Fail(fault.clone()),
            Some(("judge", Ok(reply))) if *reply.output == json!(false) => {
                return NodeDecision::Fail(fault("failure"));
            }
            Some(("judge", Ok(_))) => {
                ctx.act(act).replies.iter().rev().find_map(|replied| match &replied.result {
                    Ok(reply) if replied.tag == TaskRequest::WORK => Some(Value::clone(&reply.output)),
                    _ => None,
                })
            }
            Some((_, Ok(reply))) if node.extra["judge"] == true => {
                return NodeDecision::Ask(Box::new(
                    TaskRequest::agent("judge", Arc::clone(&reply.output)).tagged("judge"),
                ));
            }
            Some((_, Ok(reply))) => Some(Value::clone(&reply.output)),
            None => None,
        };
        match node.extra["then"].as_str() {
            Some("wait") => NodeDecision::Wait(Box::default()),
            Some("nap") => NodeDecision::Sleep(100),
            Some("doubt") if reply == Some(json!(false)) => NodeDecision::Fail(fault("failure")),
            _ => NodeDecision::Done(output(node, reply.unwrap_or_default())),
        }
    }

    fn gather(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let node = ctx.node_of(act);
        let known = ctx.act(act).children.as_ref().map_or(0, |own| own.list.len());
        if let Some(decision) = decision(node, "gather", known.saturating_sub(1)) {
            return decision;
        }
        if let Some(fault) = ctx.child_fault(act) {
            return NodeDecision::Fail(fault.clone());
        }
        let done = ctx.child_outputs(act).count() as u64;
        match &node.op {
            NodeOperation::Loop { body } if done < node.extra["times"].as_u64().unwrap_or(2) => {
                children(node, [(*body, json!(done))])
            }
            _ if node.extra["stuck"] == true => children(node, []),
            _ => {
                let all: Vec<Value> = ctx.child_outputs(act).map(|value| Value::clone(&value)).collect();
                NodeDecision::Done(output(node, json!(all)))
            }
        }
    }

    fn answer(&self, _ctx: &AdapterContext<'_>, _act: ActivationId, answer: &PersonAnswer) -> NodeDecision {
        match (answer.timed_out, answer.data.as_str()) {
            (true, _) => NodeDecision::Fail(Fault::timeout("expired", "nobody answered")),
            (_, Some("no")) => NodeDecision::Fail(fault("hard")),
            (_, Some("again")) => NodeDecision::Wait(Box::default()),
            _ => NodeDecision::Done(ActivationOutput::new(answer.data.clone())),
        }
    }

    fn wake(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        // Every sleep of a list lasts ten milliseconds.
        let slept = ctx.now.saturating_sub(ctx.act(act).began_at.unwrap_or_default());
        if let Some(decision) = decision(ctx.node_of(act), "wake", (slept / 10).saturating_sub(1) as usize) {
            return decision;
        }
        NodeDecision::Done(output(ctx.node_of(act), json!("woke")))
    }

    fn select(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> RouteDecision {
        let node = ctx.node_of(act);
        let one = ctx.act(act);
        let edges = || out_edges(ctx, one.node);
        let to = |id: &str| {
            RouteDecision::Tokens(
                edges()
                    .filter(|edge| ctx.plan().node(ctx.plan().edge(*edge).to).id == id)
                    .map(|edge| OutgoingToken::given(edge, one.output.clone().unwrap_or_default().value))
                    .collect(),
            )
        };
        if one.end == Some(ActivationEnd::Failed) && node.extra.get("fail_with").is_none() {
            return RouteDecision::End("it failed".into());
        }
        if node.extra["bad_edges"] == true {
            return RouteDecision::Fail(fault("hard"));
        }
        if let Some(count) = node.extra["tokens"].as_u64() {
            let token = |edge, n: u64| OutgoingToken {
                edge,
                value: TokenValue::Given(Arc::new(json!(n))),
                fan: Some(n as u32),
            };
            return RouteDecision::Tokens(
                edges().flat_map(|edge| (0..count).map(move |n| token(edge, n))).collect(),
            );
        }
        if let Some(id) = node.extra["choose"].as_str() {
            return to(id);
        }
        if node.extra["route"] == true {
            return match one.replies.last() {
                Some(replied) if replied.tag == TaskRequest::ROUTE => match &replied.result {
                    Ok(reply) => to(reply.output.as_str().unwrap_or_default()),
                    Err(fault) => RouteDecision::Fail(fault.clone()),
                },
                _ => RouteDecision::Ask(Box::new(
                    TaskRequest::agent("router", Value::Null).tagged(TaskRequest::ROUTE),
                )),
            };
        }
        if node.extra["evaluate"] == true {
            return match one.replies.last() {
                Some(replied) if replied.tag == TaskRequest::EVALUATION => match &replied.result {
                    Ok(reply) => to(reply.output.as_str().unwrap_or_default()),
                    Err(fault) => RouteDecision::Fail(fault.clone()),
                },
                _ => RouteDecision::Ask(Box::new(TaskRequest::evaluation(json!("edges")))),
            };
        }
        RouteDecision::Ports
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        if ctx.plan().extra["fail_result"] == true { Err(fault("hard")) } else { Ok(Value::Null) }
    }

    fn failure(&self, _ctx: &AdapterContext<'_>, _act: ActivationId, fault: &Fault) -> Fault {
        fault.clone()
    }
}
