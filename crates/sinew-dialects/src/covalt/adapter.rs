//! Engine callbacks: the work of a node, its outputs, and their targets.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use sinew_engine::{
    ActivationEnd, ActivationId, ActivationOutput, Adapter, AdapterContext, ChildSpec, Fact, NativeEvent,
    NodeDecision, OutgoingToken, RecordedReply, RouteDecision, SeenCondition, SharedJson, TaskRequest,
    out_edges,
};
use sinew_plan::{EdgeIndex, NodeIndex, NodeOperation, Plan, PlanEdge, PlanNode};
use sinew_protocol::Fault;
use sinew_script::CallBatch;

use super::coerce::{self, DATA};
use super::compute::{self, NodeWork};
use super::lower::{CanvasEdgeData, CanvasNodeData};
use super::scope::{self, ERROR, VisibleValues, bare, input_of, typed};
use super::{NAME, cluster, executor, project, seen, template};

/// A node failed.
const FAILED: &str = code::COVALT_NODE_FAILED.as_str();

/// Parameters of a node that calls a model, which agents read from the request.
const SETTINGS: [&str; 3] = ["model", "temperature", "reasoningEffort"];
/// Field with the outputs of a node before its error.
pub(super) const PARTIAL: &str = "_partial";
/// The execution would reach a cycle of its flow.
const CYCLE_REACHED: &str = code::CYCLE_REACHED.as_str();

/// The adapter of the dialect.
pub(super) struct CovaltAdapter;

impl Adapter for CovaltAdapter {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Rejects an execution that would reach a cycle; an execution with an entry scope may exclude
    /// it.
    fn admit(&self, plan: &Plan, input: Value) -> Result<Value, Fault> {
        let cycle = plan.extra.get("cycle").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if cycle.is_empty() {
            return Ok(input);
        }
        let part = scope::participants(plan, &input);
        let reached = cycle.iter().filter_map(|id| plan.find(id.as_str()?));
        match reached.into_iter().find(|node| part.as_ref().is_none_or(|part| part.contains(node))) {
            Some(node) => {
                let text = format!("the flow contains a cycle at node '{}'", plan.node(node).id);
                Err(Fault::invalid(CYCLE_REACHED, text))
            }
            None => Ok(input),
        }
    }

    fn conditions(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<SeenCondition> {
        let node = ctx.node_of(act);
        if node.kind != "conditional" {
            return Vec::new();
        }
        let Ok(TypedInputs { own, .. }) = inputs(ctx, act) else { return Vec::new() };
        let inputs = own.iter().map(|(handle, value)| (handle.clone(), bare(value))).collect();
        seen::conditions(ctx, &extra(node), &inputs)
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        bind(ctx, act).unwrap_or_else(|text| fail(ctx, act, &text, None))
    }

    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let last = ctx.act(act).replies.last();
        if let Some(RecordedReply { tag, result: Ok(reply), .. }) = last
            && tag == TaskRequest::EVALUATION
        {
            return evaluated(ctx, act, &reply.output).unwrap_or_else(|text| fail(ctx, act, &text, None));
        }
        match last.map(|replied| &replied.result) {
            Some(Ok(reply)) if ctx.node_of(act).inner => {
                NodeDecision::Done(ActivationOutput::new(Arc::clone(&reply.output)))
            }
            Some(Ok(reply)) => match outputs_of(ctx, act, &reply.output) {
                Err(text) => fail(ctx, act, &text, None),
                Ok(outputs) => match reported(ctx, act) {
                    Some(text) => fail(ctx, act, &text, Some(outputs)),
                    None => NodeDecision::Done(output(outputs)),
                },
            },
            Some(Err(fault)) if continues(ctx, act) => fail(ctx, act, &fault.message, None),
            Some(Err(fault)) => NodeDecision::Fail(fault.clone()),
            None => NodeDecision::Done(silent()),
        }
    }

    fn gather(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        if let Some(fault) = ctx.child_fault(act) {
            return fail(ctx, act, &fault.message, None);
        }
        let results: Vec<Value> = ctx.child_outputs(act).map(|value| Value::clone(&value)).collect();
        NodeDecision::Done(output(Map::from_iter([("output".to_owned(), typed(DATA, results))])))
    }

    fn select(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> RouteDecision {
        let one = ctx.act(act);
        let Some(output) = &one.output else { return RouteDecision::Tokens(Vec::new()) };
        let emits = |port: &str| output.ports.iter().any(|(own, _)| own == port);
        let sends = out_edges(ctx, one.node).filter_map(|edge| {
            let port = ctx.plan().edge(edge).port.as_str();
            match port {
                _ if emits(port) => Some(OutgoingToken::port(edge)),
                // Another name of the data spine.
                "data" | "model" if emits("output") && (port == "data" || is_model(ctx, act)) => {
                    Some(OutgoingToken::given(edge, output.value["output"].clone()))
                }
                _ => None,
            }
        });
        RouteDecision::Tokens(sends.collect())
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        Ok(project::last_value(ctx))
    }

    fn project(&self, ctx: &AdapterContext<'_>, fact: &Fact) -> Vec<NativeEvent> {
        project::events(ctx, fact)
    }

    fn native_result(&self, ctx: &AdapterContext<'_>) -> Value {
        project::result(ctx)
    }
}

/// Returns whether the node outputs a reference to a model, at the socket `output` or `model`.
fn is_model(ctx: &AdapterContext<'_>, act: ActivationId) -> bool {
    ctx.node_of(act).kind == "model-selector"
}

/// Reads the dialect's data of a node.
pub(super) fn extra(node: &PlanNode) -> CanvasNodeData {
    CanvasNodeData::deserialize(&node.extra).unwrap_or_default()
}

/// Returns the output of a node that did not run: it sends no value.
fn silent() -> ActivationOutput {
    ActivationOutput::new(json!({}))
}

fn output(outputs: Map<String, Value>) -> ActivationOutput {
    let ports = outputs.iter().map(|(port, value)| (port.clone(), SharedJson::new(value.clone()))).collect();
    ActivationOutput { value: SharedJson::new(Value::Object(outputs)), ports }
}

/// Returns whether the node's errors are passed on in place of its output.
pub(super) fn continues(ctx: &AdapterContext<'_>, act: ActivationId) -> bool {
    ctx.node_of(act).extra["data"]["on_error"] == "continue"
}

/// Fails a node: the execution stops (and keeps its outputs), or the error is passed on.
fn fail(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    text: &str,
    partial: Option<Map<String, Value>>,
) -> NodeDecision {
    if continues(ctx, act) {
        let error = typed(ERROR, json!({ "error": text }));
        let mut failed = output(Map::from_iter([("output".to_owned(), error.clone())]));
        if let Some(partial) = partial {
            failed.value = SharedJson::new(json!({ "output": error, PARTIAL: partial }));
        }
        return NodeDecision::Done(failed);
    }
    let fault = Fault::failure(FAILED, text).with_retryable(false);
    match partial {
        Some(partial) => NodeDecision::FailWith(fault, output(partial)),
        None => NodeDecision::Fail(fault),
    }
}

/// Returns an error that an agent reported in addition to its result: as the field `error` of its
/// outputs, or as an event.
pub(super) fn reported(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<String> {
    let reply = ctx.act(act).last_reply()?.result.as_ref().ok()?;
    let said =
        reply.events.iter().find(|event| event["type"] == "error").and_then(|event| event.get("error"));
    let error = explicit(&reply.output).and_then(|_| reply.output.get("error")).or(said)?;
    Some(crate::js::string(error))
}

/// Typed values that reached a node.
#[derive(Default)]
struct TypedInputs {
    /// By handle; if two wires end at one handle, the last in the file counts.
    own: Map<String, Value>,
    /// Values for sockets of nodes in its cluster, by node and handle.
    inner: BTreeMap<String, Map<String, Value>>,
}

fn inputs(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<TypedInputs, String> {
    let mut by_edge = BTreeMap::new();
    for arrived in &ctx.act(act).inputs {
        if let Some(edge) = arrived.edge {
            by_edge.insert(edge, &arrived.value);
        }
    }
    let mut inputs = TypedInputs::default();
    for (ix, value) in by_edge {
        let edge = ctx.plan().edge(ix);
        let data = edge_data(edge);
        let from = value["type"].as_str().unwrap_or(DATA);
        let value = match data.target_type.as_deref() {
            Some(to) if to != DATA && from != DATA && from != ERROR && to != from => {
                let value = coerce::coerce(from, to, &bare(value)).ok_or_else(|| {
                    let id = |node| &ctx.plan().node(node).id;
                    let wire = format!("{}.{} -> {}.{}", id(edge.from), edge.port, id(edge.to), edge.handle);
                    coerce::refusal(from, to, &wire)
                })?;
                typed(to, value)
            }
            _ => Value::clone(value),
        };
        match data.inner {
            Some((node, socket)) => drop(inputs.inner.entry(node).or_default().insert(socket, bare(&value))),
            None => drop(inputs.own.insert(edge.handle.clone(), value)),
        }
    }
    let node = ctx.act(act).node;
    if is_lone_agent(ctx, node) {
        let work = NodeWork {
            params: &Map::new(),
            inputs: &Map::new(),
            typed_inputs: &Map::new(),
            start: ctx.input(),
            trigger: scope::trigger(ctx),
            scope: None,
        };
        inputs.own.insert("input".to_owned(), typed(DATA, compute::chat_start(&work)));
    }
    Ok(inputs)
}

/// Reads the dialect's data of an edge.
fn edge_data(edge: &PlanEdge) -> CanvasEdgeData {
    CanvasEdgeData::deserialize(&edge.extra).unwrap_or_default()
}

/// Returns whether a flow edge carries data and not the value of one parameter.
fn is_data_edge(edge: &PlanEdge) -> bool {
    !edge.attach && !edge_data(edge).socket
}

/// Returns whether the node is an agent of a graph without a flow; it then receives the person's
/// message.
fn is_lone_agent(ctx: &AdapterContext<'_>, node: NodeIndex) -> bool {
    let plan = ctx.plan();
    matches!(plan.node(node).kind.as_str(), "agent" | "droid-agent")
        && plan.nodes.iter().all(|other| other.op != NodeOperation::Source)
        && !ctx.graph.in_edges(node).iter().any(|edge| is_data_edge(plan.edge(*edge)))
}

/// Returns whether only parameter values reached a node that waits for data: its branch is dead.
fn is_starved(ctx: &AdapterContext<'_>, act: ActivationId) -> bool {
    let plan = ctx.plan();
    let one = ctx.act(act);
    let is_data = |edge: &EdgeIndex| is_data_edge(plan.edge(*edge));
    ctx.graph.in_edges(one.node).iter().any(is_data)
        && !one.inputs.iter().any(|arrived| arrived.edge.as_ref().is_none_or(is_data))
}

fn bind(ctx: &AdapterContext<'_>, act: ActivationId) -> Result<NodeDecision, String> {
    let node = ctx.node_of(act);
    if node.inner {
        return Ok(bind_body(ctx, act));
    }
    if !scope::takes_part(ctx, ctx.act(act).node) || is_starved(ctx, act) {
        return Ok(NodeDecision::Done(silent()));
    }
    if let Some(given) = scope::cached(ctx, &node.id) {
        let given = given.as_object().cloned().unwrap_or_default();
        return Ok(NodeDecision::Done(output(
            given.iter().map(|(port, value)| (port.clone(), with_type(value))).collect(),
        )));
    }
    let extra = extra(node);
    if extra.unknown {
        return Ok(NodeDecision::Done(silent()));
    }
    if let Some(problem) = extra.problem {
        return Err(problem);
    }
    let TypedInputs { own: typed_inputs, inner } = inputs(ctx, act)?;
    let inputs: Map<String, Value> =
        typed_inputs.iter().map(|(handle, value)| (handle.clone(), bare(value))).collect();
    let seen = VisibleValues { ctx, inputs: &inputs };
    let data = template::resolve(&extra.data, &extra.raw, &seen);
    // Wires take precedence over expressions, and expressions over literals; the data spine is not
    // a parameter.
    let mut params = data.clone();
    let wired = inputs.iter().filter(|(handle, _)| !matches!(handle.as_str(), "input" | "data"));
    params.extend(wired.map(|(handle, value)| (handle.clone(), value.clone())));
    let work = NodeWork {
        params: &params,
        inputs: &inputs,
        typed_inputs: &typed_inputs,
        start: ctx.input(),
        trigger: scope::trigger(ctx),
        scope: Some(&seen),
    };
    if let NodeOperation::Map { body } = node.op {
        return Ok(fan(body, &params, &inputs));
    }
    if node.kind == "code" && compute::is_python(&params) {
        return Ok(NodeDecision::Ask(Box::new(TaskRequest::evaluation(
            compute::python_call(&work).to_json(),
        ))));
    }
    if let Some(outputs) = compute::compute(&node.kind, &work) {
        return outputs.map(|outputs| NodeDecision::Done(output(outputs)));
    }
    let built = cluster::build(&extra.links, &inner, &seen);
    if let Some(code) = &extra.executor {
        let argument = json!({ "data": params, "inputs": typed_inputs, "context": cluster::plugin_context(ctx, node, &work.trigger) });
        return Ok(NodeDecision::Ask(Box::new(TaskRequest::evaluation(
            executor::execute_call(code, argument).to_json(),
        ))));
    }
    let mut builds = CallBatch::default();
    cluster::builder_calls(
        &built,
        &extra.builders,
        &cluster::plugin_context(ctx, node, &work.trigger),
        &mut builds,
    );
    let outcomes = cluster::builder_outcomes(ctx, act)?;
    if !builds.calls.is_empty() && outcomes.is_none() {
        return Ok(NodeDecision::Ask(Box::new(TaskRequest::evaluation(builds.to_json()))));
    }
    let built = cluster::plugged(built, &extra.builders, &mut outcomes.unwrap_or_default().into_iter())?;
    Ok(NodeDecision::Ask(Box::new(ask(node, &data, &params, &inputs, &built, &work.trigger))))
}

/// Returns the next step after the evaluation of a node's own code, or of the executors in its
/// cluster.
fn evaluated(ctx: &AdapterContext<'_>, act: ActivationId, reply: &Value) -> Result<NodeDecision, String> {
    let extra = extra(ctx.node_of(act));
    if let Some(code) = &extra.executor {
        return executor::executed(code, reply).map(|outputs| NodeDecision::Done(output(outputs)));
    }
    if !extra.builders.is_empty() {
        return bind(ctx, act);
    }
    compute::python_outputs(reply).map(|outputs| NodeDecision::Done(output(outputs)))
}

fn ask(
    node: &PlanNode,
    data: &Map<String, Value>,
    params: &Map<String, Value>,
    inputs: &Map<String, Value>,
    links: &Map<String, Value>,
    trigger: &Value,
) -> TaskRequest {
    let text = |key: &str| {
        params.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let input = input_of(inputs);
    let mut work = json!({ "data": data, "inputs": inputs, "params": params });
    let mut context = json!({
        "node": { "id": node.id, "type": node.kind, "label": node.label },
        "links": links,
        "trigger": trigger,
    });
    let mut instruction = text("instructions").or_else(|| text("system_prompt"));
    let mut output_schema = None;
    let mut prompt = None;
    match node.kind.as_str() {
        "agent" | "droid-agent" => prompt = Some(message_of(&input)),
        "llm-completion" | "structured-output" => {
            prompt = Some(text("prompt").unwrap_or_else(|| message_of(&input)));
            output_schema = params.get("schema").filter(|_| node.kind == "structured-output").cloned();
        }
        "classifier" | "router" => {
            let choices = choices(params);
            let names: Vec<&String> = choices.iter().map(|(name, _)| name).collect();
            output_schema = Some(json!({
                "type": "object",
                "properties": { "choice": { "enum": names } },
                "required": ["choice"]
            }));
            let described = choices.iter().map(|(name, about)| json!({ "name": name, "description": about }));
            context["choices"] = described.collect();
            prompt = Some(text("prompt").unwrap_or_else(|| message_of(&input)));
            instruction =
                instruction.or_else(|| Some("Choose the category that fits the message best.".to_owned()));
        }
        _ => {}
    }
    if let Some(prompt) = prompt {
        work["message"] = json!(prompt);
        context["user_prompt"] = prompt.into();
        for setting in SETTINGS {
            if let Some(value) = params.get(setting).filter(|value| !value.is_null()) {
                context[setting] = value.clone();
            }
        }
    }
    let agent = node.agent.clone().unwrap_or_default();
    TaskRequest { instruction, context, output_schema, ..TaskRequest::agent(agent, work) }
}

/// Returns the choices: names, or objects with a name (and a description).
fn choices(params: &Map<String, Value>) -> Vec<(String, String)> {
    let list =
        ["categories", "classes", "routes", "choices"].iter().find_map(|key| params.get(*key)?.as_array());
    let one = |choice: &Value| match choice {
        Value::String(name) => Some((name.clone(), String::new())),
        other => {
            let text = |key: &str| other.get(key).and_then(Value::as_str).map(str::to_owned);
            let name = text("name").or_else(|| text("id")).or_else(|| text("label"))?;
            Some((name, text("description").unwrap_or_default()))
        }
    };
    list.into_iter().flatten().filter_map(one).collect()
}

fn message_of(input: &Value) -> String {
    let text =
        ["message", "text", "response", "content", "prompt"].iter().find_map(|key| input.get(*key)?.as_str());
    match (text, input) {
        (Some(text), _) => text.to_owned(),
        (None, Value::Null) => String::new(),
        (None, Value::String(text)) => text.clone(),
        (None, other) => other.to_string(),
    }
}

/// Returns a value of a reply with its type: `{type?, value}` declares it.
fn with_type(value: &Value) -> Value {
    match value {
        Value::Object(members)
            if members.contains_key("value") && members.keys().all(|key| key == "type" || key == "value") =>
        {
            typed(members.get("type").and_then(Value::as_str).unwrap_or(DATA), bare(value))
        }
        plain => typed(DATA, plain.clone()),
    }
}

/// Returns the ports that a reply names: `{"outputs": {…}, "error"?}`.
fn explicit(reply: &Value) -> Option<&Map<String, Value>> {
    let members = reply.as_object()?;
    let only = members.keys().all(|key| key == "outputs" || key == "error");
    members.get("outputs").filter(|_| only)?.as_object()
}

/// Notes that no edge starts at the ports of a reply, so that nothing runs after its node.
fn note_ports_without_edge(ctx: &AdapterContext<'_>, act: ActivationId, ports: &Map<String, Value>) {
    let edges: BTreeSet<&str> =
        out_edges(ctx, ctx.act(act).node).map(|edge| ctx.plan().edge(edge).port.as_str()).collect();
    let leads_on = |port: &String| {
        edges.contains(port.as_str())
            || (port == "output" && (edges.contains("data") || edges.contains("model")))
    };
    if !edges.is_empty() && !ports.keys().any(leads_on) {
        let ports: Vec<&String> = ports.keys().collect();
        ctx.note(json!({ "ports_without_edge": { "ports": ports, "edges": edges } }));
    }
}

/// Returns the tokens that an agent reports, in its reply or separately.
fn tokens_used(ctx: &AdapterContext<'_>, act: ActivationId, reply: &Value) -> Option<Value> {
    let beside = || ctx.act(act).last_reply()?.result.as_ref().ok().map(|reply| &reply.usage);
    let said = ["tokens_used", "usage", "token_usage"].iter().find_map(|key| reply.get(*key));
    let used = said.filter(|used| !used.is_null()).or_else(beside)?;
    let is_told = match used {
        Value::Object(members) => !members.is_empty(),
        other => !other.is_null(),
    };
    is_told.then(|| prompt_and_completion(used))
}

/// Returns tokens by the names of the dialect, if the usage names them as model agents do.
fn prompt_and_completion(usage: &Value) -> Value {
    let count = |key: &str| usage.get(key).and_then(Value::as_u64);
    match (count("input_tokens"), count("output_tokens")) {
        (Some(prompt), Some(completion)) => json!({ "prompt": prompt, "completion": completion }),
        _ => usage.clone(),
    }
}

/// Returns the model that answered, as the agent reports it in its reply or separately.
fn model_used<'a>(ctx: &'a AdapterContext<'_>, act: ActivationId, reply: &'a Value) -> Option<&'a Value> {
    let beside = || ctx.act(act).last_reply()?.result.as_ref().ok()?.usage.get("model");
    reply.get("model").or_else(beside).filter(|model| !model.is_null())
}

/// Returns the outputs by port, from a reply of any shape.
fn outputs_of(
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    reply: &Value,
) -> Result<Map<String, Value>, String> {
    if let Some(ports) = explicit(reply) {
        note_ports_without_edge(ctx, act, ports);
        return Ok(ports.iter().map(|(port, value)| (port.clone(), with_type(value))).collect());
    }
    let node = ctx.node_of(act);
    let text = || {
        let found =
            ["response", "text", "content", "message", "output"].iter().find_map(|key| reply.get(*key));
        found.unwrap_or(reply).clone()
    };
    let value = match node.kind.as_str() {
        "agent" | "droid-agent" => {
            let mut answer = json!({ "response": text() });
            if let Some(model) = model_used(ctx, act, reply) {
                answer["model"] = model.clone();
            }
            if let Some(used) = tokens_used(ctx, act, reply) {
                answer["tokens_used"] = used;
            }
            answer
        }
        "llm-completion" => {
            let usage = tokens_used(ctx, act, reply).unwrap_or_else(|| json!({}));
            json!({ "text": text(), "usage": usage })
        }
        "classifier" | "router" => {
            let chosen = reply.get("choice").unwrap_or(reply);
            let chosen = chosen.as_str().unwrap_or_default().trim();
            let Some(Value::Object(params)) =
                ctx.act(act).ask.as_ref().map(|ask| ask.input["params"].clone())
            else {
                return Err("the choices are missing".to_owned());
            };
            let known = choices(&params).into_iter().find(|(name, _)| name.eq_ignore_ascii_case(chosen));
            let wired =
                |port: &str| out_edges(ctx, ctx.act(act).node).any(|edge| ctx.plan().edge(edge).port == port);
            let port = match known {
                Some((name, _)) => name,
                None if wired("default") => "default".to_owned(),
                None => return Err(format!("'{chosen}' is not one of the choices")),
            };
            let passed =
                inputs(ctx, act)?.own.get("input").cloned().unwrap_or_else(|| typed(DATA, Value::Null));
            return Ok(Map::from_iter([(port, passed)]));
        }
        _ => reply.clone(),
    };
    Ok(Map::from_iter([("output".to_owned(), typed(DATA, value))]))
}

/// Runs the inner graph once per item.
fn fan(body: u32, params: &Map<String, Value>, inputs: &Map<String, Value>) -> NodeDecision {
    let input = input_of(inputs);
    let items = match params.get("items").filter(|items| !items.is_null()) {
        Some(Value::Array(items)) => items.clone(),
        Some(Value::String(path)) => {
            compute::at(&input, path).and_then(Value::as_array).cloned().unwrap_or_default()
        }
        Some(Value::Number(times)) => {
            (0..times.as_u64().unwrap_or(0).min(100_000)).map(|n| json!(n)).collect()
        }
        _ => match &input {
            Value::Array(items) => items.clone(),
            _ => input.get("items").and_then(Value::as_array).cloned().unwrap_or_default(),
        },
    };
    let limit = params.get("parallel").and_then(Value::as_u64).and_then(|limit| u32::try_from(limit).ok());
    let children =
        items.into_iter().map(|item| ChildSpec { body, item: Arc::new(item), delay_ms: None }).collect();
    NodeDecision::Fan { children, limit: limit.or(Some(1)), fail_fast: true }
}

fn bind_body(ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
    let (item, index) =
        ctx.item(ctx.act(act).scope).map_or((Value::Null, 0), |(item, index)| (Value::clone(item), index));
    let workflow = ctx.node_of(act).agent.clone().unwrap_or_default();
    let message = message_of(&item);
    let input = json!({ "message": message, "trigger": { "item": item, "index": index } });
    NodeDecision::Ask(Box::new(TaskRequest::workflow(workflow, input)))
}

/// Returns whether the activation is hidden from events and results.
pub(super) fn is_silent(ctx: &AdapterContext<'_>, act: ActivationId) -> bool {
    let node = ctx.node_of(act);
    node.inner
        || node.extra["unknown"] == true
        || !scope::takes_part(ctx, ctx.act(act).node)
        || is_starved(ctx, act)
        || scope::cached(ctx, &node.id).is_some()
}

/// Returns the error that is passed on from an activation that failed under `on_error: continue`.
pub(super) fn error_of(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<Value> {
    let one = ctx.act(act);
    let port = &one.output.as_ref().filter(|_| one.end == Some(ActivationEnd::Succeeded))?.value["output"];
    (port["type"] == ERROR).then(|| port["value"]["error"].clone())
}
