//! Engine callbacks: the work of a node, its output, and the values on its connections.

use sinew_protocol::code;
use std::cell::RefCell;

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use sinew_engine::{
    ActivationEnd, ActivationId, ActivationOutput, Adapter, AdapterContext, Fact, NativeEvent, NodeDecision,
    PersonAnswer, PersonRequest, RouteDecision, SeenCondition, SharedJson, TaskRequest, TerminalStatus,
};
use sinew_plan::PlanNode;
use sinew_protocol::Fault;

use super::expr::{ExpressionError, ExpressionScope};
use super::flow::{self, ITERATION, PortValues};
use super::lower::{PlanRules, TeamNodeData};
use super::message::{self, StandardMessage};
use super::schema::{self, ContractViolation, SchemaChecks};
use super::{NAME, delivery, human, project, seen, spec};
use crate::fill::FillBudget;

/// A node reported `success: false`.
pub(super) const NODE_REPORTED_FAILURE: &str = code::NODE_REPORTED_FAILURE.as_str();
/// Port with the output of a node before shaping, for conversion functions. Control keys are never
/// passed on.
pub(super) const RAW: &str = "_raw";
/// The second port of a DELAY.
const DELAY_PORT: &str = "main";
/// Settings that agents read from the request, with their names in a node.
const SETTINGS: [(&str, &str); 3] =
    [("model", "model"), ("temperature", "temperature"), ("reasoningEffort", "reasoning_effort")];
/// Default, minimum and maximum of the person's timeout, in seconds.
const HUMAN_SECONDS: (f64, f64, f64) = (3_600.0, 60.0, 86_400.0);

/// The adapter of the dialect.
pub(super) struct AgentTeamAdapter;

impl Adapter for AgentTeamAdapter {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns the data that starts the workflow: bare, or the field `trigger_data`.
    fn admit(&self, _plan: &sinew_plan::Plan, input: Value) -> Result<Value, Fault> {
        Ok(match input {
            Value::Null => json!({}),
            Value::Object(mut members) if members.contains_key("trigger_data") => {
                members.remove("trigger_data").unwrap_or_default()
            }
            other => other,
        })
    }

    fn conditions(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<SeenCondition> {
        let Ok(extra) = extra(ctx.node_of(act)) else { return Vec::new() };
        if extra.kind == "FLOW" { seen::conditions(&extra, &scope(ctx, act, &extra)) } else { Vec::new() }
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        bind(ctx, act).into()
    }

    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        replied(ctx, act).into()
    }

    fn answer(&self, ctx: &AdapterContext<'_>, act: ActivationId, answer: &PersonAnswer) -> NodeDecision {
        answered(ctx, act, answer).into()
    }

    fn wake(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let Some(raw) = raw_reply(ctx, act) else {
            let input = input_of(ctx, act);
            let mut ports = vec![("result".to_owned(), input.clone())];
            if PlanRules::of(ctx.plan()).by_text {
                ports.push((DELAY_PORT.to_owned(), input));
            }
            return finish(ctx, act, ports).into();
        };
        finish(ctx, act, ports_of(kind_of(ctx, act), raw)).into()
    }

    fn select(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> RouteDecision {
        delivery::select(ctx, act).unwrap_or_else(RouteDecision::Fail)
    }

    /// Returns the outputs of the last nodes by node, or the only output.
    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        let mut left: Vec<(String, Value)> = Vec::new();
        for one in &ctx.state.acts {
            let last = one.end.is_some_and(|end| end == ActivationEnd::Succeeded)
                && !one.sent.iter().any(|token| token.value.is_live());
            let Some(output) = one.output.as_ref().filter(|_| last) else { continue };
            let value = output.value.get("result").unwrap_or(&output.value).clone();
            left.push((ctx.plan().node(one.node).id.clone(), value));
        }
        if left.len() == 1 {
            return Ok(left.remove(0).1);
        }
        let mut all = Map::new();
        for (id, value) in left {
            match all.get_mut(&id) {
                None => drop(all.insert(id, value)),
                Some(Value::Array(items)) if items.len() > 1 => items.push(value),
                Some(first) => *first = json!([first.take(), value]),
            }
        }
        Ok(Value::Object(all))
    }

    fn failure(&self, ctx: &AdapterContext<'_>, act: ActivationId, fault: &Fault) -> Fault {
        let name = project::name_of(ctx.node_of(act));
        Fault { message: format!("Node {name} failed: {}", fault.message), ..fault.clone() }
    }

    fn project(&self, ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
        project::events(ctx, fact)
    }

    fn native_result(&self, ctx: &AdapterContext<'_>) -> Value {
        let status = ctx.outcome().map(|outcome| outcome.status);
        project::result(ctx, status.is_some_and(|status| status == TerminalStatus::Success))
    }
}

/// Reads the dialect's data of a node.
pub(super) fn extra(node: &PlanNode) -> Result<TeamNodeData, Fault> {
    TeamNodeData::deserialize(&node.extra).map_err(|error| {
        Fault::invalid(
            code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(),
            format!("node '{}' of the plan is not a node of agentteam: {error}", node.id),
        )
    })
}

/// Returns the part of a node's type that determines its work: `AI_AGENT` of
/// `AI_AGENT.OPENAI_CHATGPT`.
fn kind_of<'a>(ctx: &AdapterContext<'a>, act: ActivationId) -> &'a str {
    let kind = ctx.node_of(act).kind.as_str();
    kind.split_once('.').map_or(kind, |(kind, _)| kind)
}

/// Returns the inputs that arrived. A start of a workflow without listed triggers receives the
/// trigger's data only if it is a trigger, or if the caller starts from it.
fn arrived<'a>(
    ctx: &AdapterContext<'a>,
    act: ActivationId,
) -> impl Iterator<Item = &'a sinew_engine::ArrivedToken> {
    let node = ctx.node_of(act);
    let starts_here = || ctx.mode().is_some_and(|mode| mode.from.contains(&node.id));
    let withheld = PlanRules::of(ctx.plan()).by_text && kind_of(ctx, act) != "TRIGGER" && !starts_here();
    ctx.act(act).inputs.iter().filter(move |arrived| !withheld || arrived.edge.is_some())
}

/// Returns the inputs by name: `result`, if any input arrived.
pub(super) fn inputs_of(ctx: &AdapterContext<'_>, act: ActivationId) -> Value {
    if arrived(ctx, act).next().is_none() && PlanRules::of(ctx.plan()).by_text {
        return json!({});
    }
    json!({ "result": input_of(ctx, act) })
}

/// Returns the inputs that have arrived: one value, or a list of several.
pub(super) fn input_of(ctx: &AdapterContext<'_>, act: ActivationId) -> Value {
    let mut gathered: Option<Value> = None;
    for arrived in arrived(ctx, act) {
        let next = Value::clone(&arrived.value);
        gathered = Some(match gathered {
            None => next,
            Some(Value::Array(mut items)) => {
                items.push(next);
                Value::Array(items)
            }
            Some(first) => json!([first, next]),
        });
    }
    gathered.unwrap_or_default()
}

/// Returns the values that expressions of the node may refer to.
fn scope(ctx: &AdapterContext<'_>, act: ActivationId, extra: &TeamNodeData) -> ExpressionScope {
    let input = input_of(ctx, act);
    let (mut nodes_id, mut nodes_name) = (Map::new(), Map::new());
    let uses_nodes = serde_json::to_string(&extra.configurations).is_ok_and(|text| text.contains("$node"));
    if uses_nodes {
        for (ix, node) in (0..).zip(&ctx.plan().nodes) {
            let Some(last) = ctx.latest(ctx.act(act).scope, ix) else { continue };
            let Some(output) = &ctx.act(last).output else { continue };
            nodes_id.insert(node.id.clone(), Value::clone(&output.value));
            nodes_name.insert(project::name_of(node).to_owned(), Value::clone(&output.value));
        }
    }
    let trigger = ctx.plan().entry.first().map(|ix| ctx.plan().node(*ix).kind.clone()).unwrap_or_default();
    let trigger = trigger.split_once('.').map_or(trigger.as_str(), |(_, subtype)| subtype);
    ExpressionScope {
        inputs: inputs_of(ctx, act),
        input,
        config: Value::Object(extra.configurations.clone()),
        trigger: json!({ "type": trigger, "data": ctx.input() }),
        nodes_id,
        nodes_name,
        now: ctx.now,
        budget: RefCell::default(),
        filled: FillBudget::default(),
    }
}

fn raised(error: &ExpressionError) -> Fault {
    Fault::failure(code::AGENT_TEAM_EXPRESSION_WITHOUT_VALUE.as_str(), error.0.clone()).with_retryable(false)
}

fn bind(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<NodeDecision, Fault> {
    let extra = extra(ctx.node_of(act))?;
    let scope = scope(ctx, act, &extra);
    match extra.kind.as_str() {
        "TRIGGER" => finish(ctx, act, vec![("result".into(), scope.input)]),
        "FLOW" => {
            if let Some(ports) = flow::compute(&extra.subtype, &extra.configurations, &scope) {
                return finish(ctx, act, ports.map_err(|error| raised(&error))?);
            }
            let configurations = rendered(&scope, &extra)?;
            Ok(pause(&extra.subtype, &configurations, scope.input))
        }
        "HUMAN_IN_THE_LOOP" => {
            let configurations = rendered(&scope, &extra)?;
            Ok(NodeDecision::Wait(Box::new(wait(&configurations, scope.input))))
        }
        _ => {
            check_contract(ctx, act, &schema::input_violations(&extra, &scope.input))?;
            ask(ctx, act, &extra, &scope)
        }
    }
}

/// Returns whether an agent does the work of the node.
pub(super) fn works(extra: &TeamNodeData) -> bool {
    !matches!(extra.kind.as_str(), "TRIGGER" | "FLOW" | "HUMAN_IN_THE_LOOP")
}

/// Records violations of the node's contract; fails the node if the file requires it.
fn check_contract(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    found: &[ContractViolation],
) -> Result<(), Fault> {
    let checks = PlanRules::of(ctx.plan()).schema_checks;
    if found.is_empty() || checks == SchemaChecks::Off {
        return Ok(());
    }
    for violation in found {
        ctx.note(json!({ "schema_violation": violation.to_json(&ctx.node_of(act).id) }));
    }
    if checks == SchemaChecks::Warn {
        return Ok(());
    }
    let messages: Vec<String> = found.iter().map(ContractViolation::message).collect();
    Err(Fault::invalid(code::NODE_CONTRACT_BROKEN.as_str(), messages.join("; ")).with_retryable(false))
}

fn rendered(scope: &ExpressionScope, extra: &TeamNodeData) -> Result<Map<String, Value>, Fault> {
    let all = Value::Object(extra.configurations.clone());
    match scope.render_all(&all).map_err(|error| raised(&error))? {
        Value::Object(members) => Ok(members),
        _ => Ok(Map::new()),
    }
}

fn pause(subtype: &str, configurations: &Map<String, Value>, input: Value) -> NodeDecision {
    if subtype == "DELAY" {
        return NodeDecision::Sleep(flow::delay_ms(configurations));
    }
    let keys = ["timeout_seconds", "timeout", "wait_seconds", "duration_seconds", "seconds", "duration"];
    let seconds = keys.iter().find_map(|key| configurations.get(*key).and_then(flow::number));
    let prompt =
        ["description", "event", "wait_for"].iter().find_map(|key| configurations.get(*key)?.as_str());
    NodeDecision::Wait(Box::new(PersonRequest {
        prompt: prompt.unwrap_or("waits for an event").to_owned(),
        data: SharedJson::new(input),
        timeout_ms: Some(flow::milliseconds(seconds.unwrap_or(HUMAN_SECONDS.0))),
        ..PersonRequest::default()
    }))
}

fn wait(configurations: &Map<String, Value>, data: Value) -> PersonRequest {
    let keys =
        ["question", "message", "prompt", "review_description", "review_title", "title", "description"];
    let prompt =
        keys.iter().find_map(|key| configurations.get(*key)?.as_str().filter(|text| !text.is_empty()));
    let (usual, least, most) = HUMAN_SECONDS;
    let seconds = configurations.get("timeout_seconds").or_else(|| configurations.get("timeout"));
    let seconds = seconds.and_then(flow::number).unwrap_or(usual).clamp(least, most);
    let people = configurations.get("reviewers").and_then(Value::as_array);
    let people = people.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    PersonRequest {
        prompt: prompt.unwrap_or("Approval is needed").to_owned(),
        data: SharedJson::new(data),
        allowed: people,
        timeout_ms: Some(flow::milliseconds(seconds)),
        ..PersonRequest::default()
    }
}

fn ask(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    extra: &TeamNodeData,
    scope: &ExpressionScope,
) -> Result<NodeDecision, Fault> {
    let node = ctx.node_of(act);
    let configurations = rendered(scope, extra)?;
    let mut context = json!({
        "node": { "id": node.id, "name": extra.name, "type": extra.kind, "subtype": extra.subtype },
        "configurations": configurations,
        "input_params": extra.input_params,
        "trigger": scope.trigger,
    });
    let mut instruction = None;
    if extra.kind == "AI_AGENT" {
        let arrived = message::prompt_of(&scope.input);
        let own = configurations.get("user_prompt").and_then(Value::as_str).filter(|text| !text.is_empty());
        context["user_prompt"] = json!(own.map_or_else(|| arrived.clone(), str::to_owned));
        context["message"] = json!(arrived);
        context["trigger_message"] = json!(message::trigger_message(ctx.input()));
        context["attached"] = json!(extra.attached);
        instruction = configurations.get("system_prompt").and_then(Value::as_str).map(str::to_owned);
        for (setting, name) in SETTINGS {
            if let Some(value) = configurations.get(name).filter(|value| !value.is_null()) {
                context[setting] = value.clone();
            }
        }
    }
    if extra.kind == "EXTERNAL_ACTION" && extra.subtype == "SLACK" {
        context["message"] = json!(message::slack_message(&scope.input));
        context["channel"] = json!(message::slack_channel(&scope.input, &configurations));
    }
    let agent = node.agent.clone().unwrap_or_default();
    Ok(NodeDecision::Ask(Box::new(TaskRequest {
        instruction,
        context,
        ..TaskRequest::agent(agent, scope.inputs.clone())
    })))
}

/// Returns the output of the last reply of an agent, if any.
pub(super) fn raw_reply<'a>(ctx: &AdapterContext<'a>, act: ActivationId) -> Option<&'a Value> {
    let last = ctx.act(act).last_reply()?;
    last.result.as_ref().ok().map(|reply| &*reply.output)
}

/// Returns the ports of a reply: `{"outputs": {…}}`, an object with `result` or control keys, else
/// the whole reply as `result`.
///
/// Older AI runners and programs add `_tokens` and `_details` to the payload itself; in their
/// replies, these keys do not make a port map.
pub(super) fn ports_of(kind: &str, reply: &Value) -> PortValues {
    let all = match reply {
        Value::Object(members) => match members.get("outputs") {
            Some(Value::Object(ports)) if members.len() == 1 => Some(ports),
            _ => {
                let reports = members.keys().any(|key| matches!(key.as_str(), "_tokens" | "_details"));
                let payload = kind == "AI_AGENT" || message::has_payload(members);
                let is_map =
                    members.keys().any(|key| key == "result" || is_control(key)) || (reports && !payload);
                is_map.then_some(members)
            }
        },
        _ => None,
    };
    match all {
        Some(ports) => ports.iter().map(|(port, value)| (port.clone(), value.clone())).collect(),
        None => vec![("result".to_owned(), reply.clone())],
    }
}

fn is_control(key: &str) -> bool {
    matches!(key, "_stream_chunks" | "_hil_wait" | "_wait" | "_delay_ms" | "_hil_timeout_seconds")
}

fn replied(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<NodeDecision, Fault> {
    let raw = match ctx.act(act).last_reply().map(|replied| &replied.result) {
        Some(Ok(reply)) => &*reply.output,
        Some(Err(fault)) => return Err(fault.clone()),
        None => &Value::Null,
    };
    let ports = ports_of(kind_of(ctx, act), raw);
    let control = |key: &str| ports.iter().find(|(port, _)| port == key).map(|(_, value)| value);
    let seconds = |key: &str| control(key).and_then(flow::number);
    let payload = || control("result").cloned().unwrap_or_default();
    if control("_hil_wait").is_some_and(sinew_script::python_truth) {
        let mut wait = wait(&Map::new(), payload());
        if let Some(seconds) = seconds("_hil_timeout_seconds") {
            wait.timeout_ms = Some(flow::milliseconds(seconds));
        }
        return Ok(NodeDecision::Wait(Box::new(wait)));
    }
    if let Some(ms) = seconds("_delay_ms") {
        return Ok(NodeDecision::Sleep(flow::milliseconds(ms / 1_000.0)));
    }
    if control("_wait").is_some_and(sinew_script::python_truth) {
        let timeout = seconds("_wait_timeout_seconds").or_else(|| seconds("_timeout_seconds"));
        let timeout = flow::milliseconds(timeout.unwrap_or(HUMAN_SECONDS.0));
        let prompt = "waits for an event".to_owned();
        let wait = PersonRequest {
            prompt,
            data: SharedJson::new(payload()),
            timeout_ms: Some(timeout),
            ..PersonRequest::default()
        };
        return Ok(NodeDecision::Wait(Box::new(wait)));
    }
    finish(ctx, act, ports)
}

/// Returns whether the activation waits for a person, not for an event.
pub(super) fn asks_person(ctx: &AdapterContext<'_>, act: ActivationId) -> bool {
    let asked = raw_reply(ctx, act).map(|raw| ports_of(kind_of(ctx, act), raw)).unwrap_or_default();
    ctx.node_of(act).op == sinew_plan::NodeOperation::Human
        || asked.iter().any(|(port, _)| port == "_hil_wait")
}

fn answered(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    answer: &PersonAnswer,
) -> Result<NodeDecision, Fault> {
    let given = |value: &Value| match (value, &answer.comment) {
        (Value::Null, Some(comment)) => json!(comment),
        _ => value.clone(),
    };
    if !asks_person(ctx, act) {
        let port = if answer.timed_out { "timeout" } else { "result" };
        let value = if answer.timed_out {
            json!({ "timeout": true, "data": input_of(ctx, act) })
        } else {
            given(&answer.data)
        };
        return finish(ctx, act, vec![(port.into(), value)]);
    }
    let mut extra = extra(ctx.node_of(act))?;
    if let Some(Value::Object(payload)) = raw_reply(ctx, act).and_then(|raw| raw.get("result")) {
        for key in ["timeout_action", "default_response"] {
            if let (false, Some(value)) = (extra.configurations.contains_key(key), payload.get(key)) {
                extra.configurations.insert(key.to_owned(), value.clone());
            }
        }
    }
    let mut value = given(&answer.data);
    if answer.timed_out {
        match extra.configurations.get("timeout_action").and_then(Value::as_str) {
            Some("continue") => {
                let value = json!({ "status": "timeout", "data": input_of(ctx, act) });
                return finish(ctx, act, vec![("timeout".into(), value.clone()), ("result".into(), value)]);
            }
            Some("default_response") => {
                value = extra.configurations.get("default_response").cloned().unwrap_or_default();
            }
            _ => {
                let text = "no answer arrived in time";
                return Err(Fault::timeout(code::PERSON_DID_NOT_ANSWER.as_str(), text).with_retryable(false));
            }
        }
    }
    let intent = match answer.approved {
        Some(false) => human::AnswerIntent::Rejected,
        _ => human::intent(&value),
    };
    let port = intent.port();
    finish(ctx, act, vec![(port.into(), value.clone()), ("result".into(), value)])
}

/// Shapes the output of a node, and fails the node if it reports a failure.
fn finish(ctx: &AdapterContext<'_>, act: ActivationId, raw: PortValues) -> Result<NodeDecision, Fault> {
    let node = ctx.node_of(act);
    let extra = extra(node)?;
    let rules = PlanRules::of(ctx.plan());
    if let Some((_, payload)) = raw.iter().find(|(port, _)| port == "result")
        && works(&extra)
    {
        check_contract(ctx, act, &schema::output_violations(&extra, payload))?;
    }
    let used = ReportedWork::of(ctx, act);
    let mut shaped: Vec<(String, Value)> = Vec::with_capacity(raw.len());
    let mut kept = Map::new();
    let mut failure = None;
    for (port, payload) in raw {
        if port.starts_with('_') || (payload.is_null() && port != "result") {
            continue;
        }
        // `success: false` reports the failure of a node's work. Data that starts a workflow is not
        // a report.
        let reports_failure = payload.get("success") == Some(&json!(false)) && !rules.is_start(&extra.kind);
        let stamp = message::timestamp(ctx.now);
        let (whole, value) = if port == ITERATION && payload.is_array() {
            (payload.clone(), payload)
        } else if rules.standard && port == "result" {
            let message = StandardMessage::adapt(&payload, Some(&node.id), Some(stamp));
            let message = if rules.by_text { message.with_parsed_json() } else { message };
            let mut message = message.to_json();
            add_metadata(&mut message["metadata"], &used);
            // Conversion functions receive the same value in both formats.
            let stamp = message::timestamp(ctx.now);
            (whole_payload(&extra, rules, payload, &used, (&node.id, stamp)), message)
        } else {
            let whole = whole_payload(&extra, rules, payload, &used, (&node.id, stamp));
            let value = if rules.is_start(&extra.kind) && extra.shape.is_some() {
                spec::shape_trigger(&extra.shape, &whole)
            } else if rules.by_text || !is_shaped_agent(&extra) || whole.get("content").is_some() {
                spec::shape(&extra.shape, &whole)
            } else {
                let stamp = message::timestamp(ctx.now);
                spec::shape(&extra.shape, &adapt_agent(&whole, &used, &node.id, stamp))
            };
            (whole, value)
        };
        // A default of the spec is not a failure: the node itself must report it.
        if reports_failure && (rules.standard || value.get("success") == Some(&json!(false))) {
            let text = whole.get("error_message").and_then(Value::as_str).filter(|text| !text.is_empty());
            failure.get_or_insert_with(|| text.unwrap_or("Node execution failed").to_owned());
        }
        if value != whole {
            kept.insert(port.clone(), whole);
        }
        shaped.push((port, value));
    }
    let value: Map<String, Value> = shaped.iter().cloned().collect();
    let mut output = ActivationOutput::new(Value::Object(value));
    output.ports.extend(shaped.into_iter().map(|(port, value)| (port, SharedJson::new(value))));
    if !kept.is_empty() {
        output = output.port(RAW, Value::Object(kept));
    }
    Ok(match failure {
        Some(text) => {
            NodeDecision::FailWith(Fault::failure(NODE_REPORTED_FAILURE, text).with_retryable(false), output)
        }
        None => NodeDecision::Done(output),
    })
}

/// The report of an agent in addition to its output, in the fields of agent runners.
#[derive(Default)]
pub(super) struct ReportedWork {
    /// Model and reason of the end.
    pub(super) metadata: Map<String, Value>,
    /// Tokens and cost; `None` if the agent reported nothing.
    pub(super) usage: Option<Value>,
    /// Tool calls, in order.
    pub(super) calls: Vec<Value>,
}

impl ReportedWork {
    fn of(ctx: &AdapterContext<'_>, act: ActivationId) -> Self {
        let reply = ctx.act(act).last_reply().and_then(|reply| reply.result.as_ref().ok());
        let Some(reply) = reply else { return Self::default() };
        let told = |key: &&str| reply.usage.get(*key).is_some_and(|value| !value.is_null());
        let metadata = ["model", "finish_reason"].into_iter().filter(told);
        let metadata = metadata.map(|key| (key.to_owned(), reply.usage[key].clone())).collect();
        let usage = Some(&reply.usage).filter(|usage| usage.as_object().is_some_and(|it| !it.is_empty()));
        Self { metadata, usage: usage.map(token_usage), calls: function_calls(&reply.events) }
    }
}

/// Returns tokens by the names of agent runners, if the usage names them as model agents do.
fn token_usage(usage: &Value) -> Value {
    let count = |key: &str| usage.get(key).and_then(Value::as_u64);
    match (count("input_tokens"), count("output_tokens")) {
        (Some(prompt), Some(completion)) => json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt.saturating_add(completion),
        }),
        _ => usage.clone(),
    }
}

/// Returns the tool calls among the events of a reply, each with the result that followed. Results
/// and errors are in the order of the calls of their tool.
pub(super) fn function_calls(events: &[Value]) -> Vec<Value> {
    let is = |event: &Value, kind: &str| event["type"] == kind;
    let mut calls: Vec<Value> = Vec::new();
    for event in events {
        if is(event, "tool:call") {
            calls.push(json!({ "name": event["tool"], "arguments": event["input"] }));
            continue;
        }
        let key = match () {
            () if is(event, "tool:result") => "result",
            () if is(event, "tool:error") => "error",
            () => continue,
        };
        let is_open = |call: &Value| call.get("result").is_none() && call.get("error").is_none();
        if let Some(call) = calls.iter_mut().find(|call| call["name"] == event["tool"] && is_open(call)) {
            call[key] = event["output"].clone();
        }
    }
    calls
}

/// Returns whether outputs of the node have the shape of an agent's output.
fn is_shaped_agent(extra: &TeamNodeData) -> bool {
    extra.kind == "AI_AGENT" && extra.shape.is_some()
}

/// Returns the payload for conversion functions. An agent's payload has all fields that agent
/// runners return.
fn whole_payload(
    extra: &TeamNodeData,
    rules: PlanRules,
    payload: Value,
    used: &ReportedWork,
    (id, stamp): (&str, String),
) -> Value {
    if !rules.by_text {
        return payload;
    }
    if is_shaped_agent(extra) {
        return message::agent_output(payload, used, id, stamp);
    }
    match payload {
        // A trigger's data may be a single string.
        Value::String(text) if rules.is_start(&extra.kind) && extra.shape.is_some() => {
            json!({ "message": text })
        }
        other => other,
    }
}

/// Adds the reported model and reason of the end, unless the agent's own metadata contain them.
pub(super) fn add_metadata(metadata: &mut Value, used: &ReportedWork) {
    if let Some(metadata) = metadata.as_object_mut() {
        for (key, value) in &used.metadata {
            metadata.entry(key).or_insert_with(|| value.clone());
        }
    }
}

/// Converts an agent's reply to the output shape of agents in plans of earlier versions.
fn adapt_agent(payload: &Value, used: &ReportedWork, id: &str, stamp: String) -> Value {
    let mut standard = StandardMessage::adapt(payload, Some(id), Some(stamp)).to_json();
    add_metadata(&mut standard["metadata"], used);
    if let Some(usage) = &used.usage {
        standard["token_usage"] = usage.clone();
    }
    if !used.calls.is_empty() {
        standard["function_calls"] = json!(used.calls);
    }
    for key in ["token_usage", "function_calls"] {
        if let Some(own) = payload.get(key) {
            standard[key] = own.clone();
        }
    }
    standard
}
