//! A dialect whose behaviour is data: what a node does stands in its `extra`, see [`super::plan`].

use std::sync::Arc;

use serde_json::{Value, json};
use sinew_plan::{Op, Plan, PlanNode};
use sinew_protocol::Fault;

use crate::fact::{Answer, Child, Output, TokenValue, Wait};
use crate::{ActId, Adapter, Ask, Ctx, End, Select, Send, Step, Val, out_edges};

pub(crate) struct Scripted;

/// The fault of a word: `failure`, `error`, `invalid`, `hard` (not retryable), `after500` (retry after 500 ms).
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

fn input(ctx: &Ctx<'_>, act: ActId) -> Value {
    let inputs = &ctx.act(act).inputs;
    match &inputs[..] {
        [] => Value::Null,
        [one] => Value::clone(&one.value),
        many => many.iter().map(|arrived| Value::clone(&arrived.value)).collect(),
    }
}

fn output(node: &PlanNode, value: impl Into<Val>) -> Output {
    let value: Val = value.into();
    let ports = node.extra["ports"].as_array().into_iter().flatten().filter_map(Value::as_str);
    ports.fold(Output::new(Arc::clone(&value)), |output, port| output.port(port, Arc::clone(&value)))
}

fn children(node: &PlanNode, bodies: impl IntoIterator<Item = (u32, Value)>) -> Step {
    let delay_ms = node.extra["delay"].as_u64();
    Step::Fan {
        children: bodies
            .into_iter()
            .map(|(body, item)| Child { body, item: Arc::new(item), delay_ms })
            .collect(),
        limit: node.extra["limit"].as_u64().map(|limit| limit as u32),
        fail_fast: node.extra["fail_fast"] == true,
    }
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

    fn bind(&self, ctx: &Ctx<'_>, act: ActId) -> Step {
        let node = ctx.node_of(act);
        let extra = &node.extra;
        if let Some(note) = extra.get("note") {
            ctx.note(note.clone());
        }
        if let Some(value) = extra.get("skip") {
            return Step::Skip { reason: "told to".into(), output: output(node, value.clone()) };
        }
        if let Some(word) = extra["fail"].as_str() {
            return Step::Fail(fault(word));
        }
        if let Some(word) = extra["fail_with"].as_str() {
            return Step::FailWith(fault(word), output(node, json!("failed")));
        }
        match &node.op {
            Op::Agent | Op::Workflow => Step::Ask(Box::new(Ask {
                timeout_ms: extra["ask_timeout"].as_u64(),
                ..Ask::agent(node.id.clone(), input(ctx, act))
            })),
            Op::Source | Op::Pure => {
                Step::Done(output(node, extra.get("done").cloned().unwrap_or_else(|| input(ctx, act))))
            }
            Op::Human => Step::Wait(Box::new(Wait { timeout_ms: extra["wait"].as_u64(), ..Wait::default() })),
            Op::Delay => Step::Sleep(extra["sleep"].as_u64().unwrap_or(100)),
            Op::Map { body } => match extra["items"].as_u64() {
                Some(count) => children(node, (0..count).map(|n| (*body, json!(n)))),
                None => children(
                    node,
                    input(ctx, act).as_array().into_iter().flatten().map(|n| (*body, n.clone())),
                ),
            },
            Op::Loop { body } => children(node, [(*body, json!(0))]),
            Op::Fork { bodies } => children(node, bodies.iter().map(|body| (*body, Value::Null))),
        }
    }

    fn shape(&self, ctx: &Ctx<'_>, act: ActId) -> Step {
        let node = ctx.node_of(act);
        let reply = match ctx.act(act).replies.last().map(|replied| (replied.tag.as_str(), &replied.result)) {
            Some((Ask::WORK, Err(_))) if node.extra.get("instead").is_some() => {
                let other = node.extra["instead"].as_str().unwrap();
                return Step::Ask(Box::new(Ask::agent(other, Value::Null).tagged("instead")));
            }
            Some((_, Err(fault))) => return Step::Fail(fault.clone()),
            Some(("judge", Ok(reply))) if *reply.output == json!(false) => {
                return Step::Fail(fault("failure"));
            }
            Some(("judge", Ok(_))) => {
                ctx.act(act).replies.iter().rev().find_map(|replied| match &replied.result {
                    Ok(reply) if replied.tag == Ask::WORK => Some(Value::clone(&reply.output)),
                    _ => None,
                })
            }
            Some((_, Ok(reply))) if node.extra["judge"] == true => {
                return Step::Ask(Box::new(Ask::agent("judge", Arc::clone(&reply.output)).tagged("judge")));
            }
            Some((_, Ok(reply))) => Some(Value::clone(&reply.output)),
            None => None,
        };
        match node.extra["then"].as_str() {
            Some("wait") => Step::Wait(Box::default()),
            Some("nap") => Step::Sleep(100),
            Some("doubt") if reply == Some(json!(false)) => Step::Fail(fault("failure")),
            _ => Step::Done(output(node, reply.unwrap_or_default())),
        }
    }

    fn gather(&self, ctx: &Ctx<'_>, act: ActId) -> Step {
        let node = ctx.node_of(act);
        if let Some(fault) = ctx.child_fault(act) {
            return Step::Fail(fault.clone());
        }
        let done = ctx.child_outputs(act).count() as u64;
        match &node.op {
            Op::Loop { body } if done < node.extra["times"].as_u64().unwrap_or(2) => {
                children(node, [(*body, json!(done))])
            }
            _ if node.extra["stuck"] == true => children(node, []),
            _ => {
                let all: Vec<Value> = ctx.child_outputs(act).map(|value| Value::clone(&value)).collect();
                Step::Done(output(node, json!(all)))
            }
        }
    }

    fn answer(&self, _ctx: &Ctx<'_>, _act: ActId, answer: &Answer) -> Step {
        match (answer.timed_out, answer.data.as_str()) {
            (true, _) => Step::Fail(Fault::timeout("expired", "nobody answered")),
            (_, Some("no")) => Step::Fail(fault("hard")),
            (_, Some("again")) => Step::Wait(Box::default()),
            _ => Step::Done(Output::new(answer.data.clone())),
        }
    }

    fn wake(&self, ctx: &Ctx<'_>, act: ActId) -> Step {
        Step::Done(output(ctx.node_of(act), json!("woke")))
    }

    fn select(&self, ctx: &Ctx<'_>, act: ActId) -> Select {
        let node = ctx.node_of(act);
        let one = ctx.act(act);
        let edges = || out_edges(ctx, one.node);
        let to = |id: &str| {
            Select::Tokens(
                edges()
                    .filter(|edge| ctx.plan().node(ctx.plan().edge(*edge).to).id == id)
                    .map(|edge| Send::given(edge, one.output.clone().unwrap_or_default().value))
                    .collect(),
            )
        };
        if one.end == Some(End::Failed) && node.extra.get("fail_with").is_none() {
            return Select::End("it failed".into());
        }
        if node.extra["bad_edges"] == true {
            return Select::Fail(fault("hard"));
        }
        if let Some(count) = node.extra["tokens"].as_u64() {
            let token = |edge, n: u64| Send {
                edge,
                value: TokenValue::Given(Arc::new(json!(n))),
                fan: Some(n as u32),
            };
            return Select::Tokens(
                edges().flat_map(|edge| (0..count).map(move |n| token(edge, n))).collect(),
            );
        }
        if let Some(id) = node.extra["choose"].as_str() {
            return to(id);
        }
        if node.extra["route"] == true {
            return match one.replies.last() {
                Some(replied) if replied.tag == Ask::ROUTE => match &replied.result {
                    Ok(reply) => to(reply.output.as_str().unwrap_or_default()),
                    Err(fault) => Select::Fail(fault.clone()),
                },
                _ => Select::Ask(Box::new(Ask::agent("router", Value::Null).tagged(Ask::ROUTE))),
            };
        }
        if node.extra["evaluate"] == true {
            return match one.replies.last() {
                Some(replied) if replied.tag == Ask::EVALUATION => match &replied.result {
                    Ok(reply) => to(reply.output.as_str().unwrap_or_default()),
                    Err(fault) => Select::Fail(fault.clone()),
                },
                _ => Select::Ask(Box::new(Ask::evaluation(json!("edges")))),
            };
        }
        Select::Ports
    }

    fn result(&self, ctx: &Ctx<'_>) -> Result<Value, Fault> {
        if ctx.plan().extra["fail_result"] == true { Err(fault("hard")) } else { Ok(Value::Null) }
    }

    fn failure(&self, _ctx: &Ctx<'_>, _act: ActId, fault: &Fault) -> Fault {
        fault.clone()
    }
}
