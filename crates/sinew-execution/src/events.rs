//! The mesh protocol events of an execution: a projection of its facts, the same for every dialect.
//!
//! (`spec/1-agent-mesh-workflows.md`, "Workflow Protocol Messages".) Unlike in the source's engine,
//! failed and skipped nodes also have a result event.
//!
//! Events name inputs and outputs by artifact. Agents store some of these; all others are named
//! values of the record ([`value_artifacts`]), so that no value is stored twice.

use std::collections::HashMap;

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use sinew_engine::{ActivationEnd, ActivationId, AdapterContext, Fact, ROOT, TaskRequest, TerminalStatus};
use sinew_plan::{NodeIndex, NodeOperation};
use sinew_protocol::message::{
    MapStatus, MeshMessage, Outcome, WorkflowExecutionResultData, WorkflowExecutionStartData,
    WorkflowMapProgressData, WorkflowNodeExecutionResultData, WorkflowNodeExecutionStartData,
};
use sinew_protocol::{ActivationKey, ArtifactName, ArtifactRef, ExecutionId, Fault, TaskId};

pub use crate::call::label;
use crate::call::task_id;
use crate::reply::{result_content, result_name};
use crate::request::{input_name, output_name, plain};
use crate::usage::activation_usage;

/// Member of a node's `extra` with event fields that only its kind has.
const EVENT_FIELDS: &str = "event";
/// Kind of nodes that join branches.
const JOIN: &str = "join";

/// Cached ids of the attempts' tasks.
pub type KnownTasks = HashMap<(ActivationId, u32), (ActivationKey, TaskId)>;

/// Ids in events.
#[derive(Clone, Copy)]
struct EventIds<'a> {
    execution: &'a ExecutionId,
    /// Tasks with known ids, because computing each takes two hashes.
    known: Option<&'a KnownTasks>,
}

/// Returns the events of a fact that was just applied, in order.
pub fn project(ctx: &AdapterContext<'_>, execution: &ExecutionId, fact: &Fact) -> Vec<MeshMessage> {
    project_ids(ctx, EventIds { execution, known: None }, fact)
}

/// Like [`project`], with cached task ids.
pub fn project_known(
    ctx: &AdapterContext<'_>,
    execution: &ExecutionId,
    known: &KnownTasks,
    fact: &Fact,
) -> Vec<MeshMessage> {
    project_ids(ctx, EventIds { execution, known: Some(known) }, fact)
}

fn project_ids(ctx: &AdapterContext<'_>, ids: EventIds<'_>, fact: &Fact) -> Vec<MeshMessage> {
    let execution = ids.execution;
    match fact {
        Fact::Started(start) => vec![
            WorkflowExecutionStartData {
                workflow_name: ctx.plan().name.clone(),
                execution_id: execution.as_str().to_owned(),
                input_artifact_ref: execution_input(ctx),
                workflow_input: Some(Value::clone(&start.input)),
            }
            .into(),
        ],
        // An agent's or workflow's node starts with its first task, so that a skipped node never
        // names a task that was not sent.
        Fact::Began { act } if !asks(&ctx.node_of(*act).op) => vec![started(ctx, ids, *act).into()],
        Fact::Dispatched { act, ask, .. }
            if asks(&ctx.node_of(*act).op) && !ask.is_evaluation() && ctx.act(*act).tasks() == 1 =>
        {
            vec![started(ctx, ids, *act).into()]
        }
        Fact::Completed { act, .. } | Fact::Skipped { act, .. } | Fact::Failed { act, .. } => {
            ended(ctx, ids, *act)
        }
        Fact::Cancelled { act, .. } if ctx.act(*act).began_at.is_some() => ended(ctx, ids, *act),
        Fact::Died { node, scope, reason } => {
            vec![skipped(ctx, *node, *scope, reason).into()]
        }
        Fact::Ended => concluded(ctx, execution).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn started(ctx: &AdapterContext<'_>, ids: EventIds<'_>, act: ActivationId) -> WorkflowNodeExecutionStartData {
    let one = ctx.act(act);
    let node = ctx.node_of(act);
    let (node_id, node_type) = (label(ctx, act), node.kind.clone());
    // The dialect stores fields of specific node kinds (cases, branches, wait_for, …) in
    // `extra.event`.
    let told = node.extra.get(EVENT_FIELDS).and_then(Value::as_object).and_then(|told| {
        let mut told = told.clone();
        told.insert("node_id".into(), json!(node_id));
        told.insert("node_type".into(), json!(node_type));
        serde_json::from_value(Value::Object(told)).ok()
    });
    let mut data = told.unwrap_or_else(|| WorkflowNodeExecutionStartData {
        node_id,
        node_type,
        ..WorkflowNodeExecutionStartData::default()
    });
    data.agent_name.clone_from(&node.agent);
    if asks(&node.op) {
        let task = first_task(ctx, ids, act);
        data.input_artifact_ref = artifact_of_input(&data.node_id, &task);
        data.sub_task_id = Some(task);
    } else {
        data.input_artifact_ref = handed_input(ctx, act, &data.node_id);
    }
    if let Some(owner) = one.owner {
        let parent = label(ctx, owner);
        if matches!(ctx.node_of(owner).op, NodeOperation::Map { .. } | NodeOperation::Fork { .. }) {
            data.parallel_group_id = Some(parent.clone());
        }
        data.parent_node_id = Some(parent);
        data.iteration_index = ctx.item(one.scope).map(|(_, index)| index);
    }
    data
}

/// Returns whether a node calls an agent or a workflow.
const fn asks(op: &NodeOperation) -> bool {
    matches!(op, NodeOperation::Agent | NodeOperation::Workflow)
}

/// Returns the id of an activation's first task. Earlier attempts were evaluations of scripts.
fn first_task(ctx: &AdapterContext<'_>, ids: EventIds<'_>, act: ActivationId) -> String {
    let replies = &ctx.act(act).replies;
    let is_evaluation =
        |attempt: u32| replies.iter().any(|one| one.tag == TaskRequest::EVALUATION && one.attempt == attempt);
    let first = (1..=replies.len() as u32).find(|attempt| !is_evaluation(*attempt));
    let attempt = first.unwrap_or(replies.len() as u32 + 1);
    match ids.known.and_then(|known| known.get(&(act, attempt))) {
        Some((_, task)) => task.as_str().to_owned(),
        None => task_id(ids.execution, ctx.plan(), ctx.state, act, attempt).as_str().to_owned(),
    }
}

fn ended(ctx: &AdapterContext<'_>, ids: EventIds<'_>, act: ActivationId) -> Vec<MeshMessage> {
    let one = ctx.act(act);
    let status = match one.end {
        Some(ActivationEnd::Succeeded) => Outcome::Success,
        Some(ActivationEnd::Skipped) => Outcome::Skipped,
        Some(ActivationEnd::Cancelled) => Outcome::Cancelled,
        Some(ActivationEnd::Failed) | None => Outcome::Error,
    };
    let mut result = WorkflowNodeExecutionResultData::new(label(ctx, act), status);
    result.error_message = one.fault.as_ref().map(Fault::reason);
    result.output_artifact_ref = output_artifact(ctx, act).or_else(|| node_output(ctx, ids, act));
    if let Some(used) = activation_usage(one) {
        result.metadata.insert("usage".into(), json!(used));
    }
    if let Some(output) = &one.output {
        let told = |key: &str| output.value.get(key);
        result.condition_result = told("condition_result").and_then(Value::as_bool);
        if matches!(ctx.node_of(act).op, NodeOperation::Pure) {
            let branch = told("selected_branch").and_then(Value::as_str).map(str::to_owned);
            result.selected_branch = branch.or_else(|| chosen_branch(ctx, act, result.condition_result?));
        }
    }
    let mut events = vec![result.into()];
    events.extend(one.owner.and_then(|owner| progress(ctx, owner)).map(MeshMessage::from));
    events
}

/// Returns the branch of a conditional, which only provides the value of its condition.
fn chosen_branch(ctx: &AdapterContext<'_>, act: ActivationId, holds: bool) -> Option<String> {
    let fields = ctx.node_of(act).extra.get(EVENT_FIELDS)?;
    let branch = fields.get(if holds { "true_branch" } else { "false_branch" })?;
    branch.as_str().map(str::to_owned)
}

/// An input or output of an execution or node that events name by artifact.
#[derive(Clone, Debug)]
pub struct ValueArtifact {
    /// The node; `None` for the execution itself.
    pub node: Option<String>,
    /// Name and version.
    pub artifact: ArtifactRef,
    /// The JSON content.
    pub value: Value,
}

/// Returns all values, in order, that events of an execution name by artifact and no agent stored.
pub fn value_artifacts(ctx: &AdapterContext<'_>, execution: &ExecutionId) -> Vec<ValueArtifact> {
    let ids = EventIds { execution, known: None };
    let of = |node: Option<String>, artifact: Option<ArtifactRef>, value: Value| {
        artifact.map(|artifact| ValueArtifact { node, artifact, value })
    };
    let mut found: Vec<ValueArtifact> =
        of(None, execution_input(ctx), ctx.input().clone()).into_iter().collect();
    for act in 0..ctx.state.acts.len() as ActivationId {
        let one = ctx.act(act);
        let node = || Some(label(ctx, act));
        if let Some(input) = given_input(ctx, act) {
            found.extend(of(node(), node_input(ctx, ids, act), input));
        }
        if let Some(output) = one.output.as_ref().filter(|_| output_artifact(ctx, act).is_none()) {
            found.extend(of(node(), node_output(ctx, ids, act), Value::clone(&output.value)));
        }
    }
    if let Some(outcome) = ctx.outcome() {
        found.extend(of(None, execution_output(ctx, execution), result_content(outcome)));
    }
    found
}

/// `wi_{workflow}.json`.
fn execution_input(ctx: &AdapterContext<'_>) -> Option<ArtifactRef> {
    artifact_ref(&format!("wi_{}.json", plain(&ctx.plan().name, 100)), 0)
}

fn execution_output(ctx: &AdapterContext<'_>, execution: &ExecutionId) -> Option<ArtifactRef> {
    let name = result_name(&ctx.plan().name, execution.as_str()).ok()?;
    Some(ArtifactRef { name, version: Some(0) })
}

fn node_input(ctx: &AdapterContext<'_>, ids: EventIds<'_>, act: ActivationId) -> Option<ArtifactRef> {
    let label = label(ctx, act);
    if asks(&ctx.node_of(act).op) {
        return artifact_of_input(&label, &first_task(ctx, ids, act));
    }
    handed_input(ctx, act, &label)
}

/// Returns the artifact of the input of a map, fork, join or loop.
fn handed_input(ctx: &AdapterContext<'_>, act: ActivationId, label: &str) -> Option<ArtifactRef> {
    let node = ctx.node_of(act);
    let label = plain(label, 100);
    let name = match &node.op {
        NodeOperation::Map { .. } => format!("map_{label}_items.json"),
        NodeOperation::Fork { .. } => format!("fork_{label}_input.json"),
        NodeOperation::Loop { .. } => format!("loop_{label}_input.json"),
        NodeOperation::Pure if node.kind == JOIN => format!("join_{label}_input.json"),
        _ => return None,
    };
    artifact_ref(&name, ctx.act(act).ordinal)
}

/// Returns the input of a started node: for an agent or a workflow the input of its task, for a map
/// its items, for a join the output of each node that has arrived, for a fork or a loop the output
/// of the preceding node.
///
/// A fork or a loop that follows several nodes gets an object of their outputs; one that follows
/// none gets its item, or the input of the execution. Returns `None` for other nodes, and for work
/// that was not dispatched.
pub fn given_input(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<Value> {
    let one = ctx.act(act);
    let node = ctx.node_of(act);
    let is_join = matches!(node.op, NodeOperation::Pure) && node.kind == JOIN;
    match &node.op {
        op if asks(op) => one.last_task().map(|ask| Value::clone(&ask.input)),
        _ if one.began_at.is_none() => None,
        NodeOperation::Map { .. } => {
            // A map with unreadable items has no input; a map without items has an empty list.
            let items = one.children.as_ref().map(|children| {
                Value::Array(children.list.iter().map(|child| Value::clone(&child.item)).collect())
            });
            let is_empty = one.end == Some(ActivationEnd::Succeeded);
            Some(items.unwrap_or_else(|| if is_empty { json!([]) } else { Value::Null }))
        }
        NodeOperation::Fork { .. } | NodeOperation::Loop { .. } => {
            let mut arrived = arrived_outputs(ctx, act);
            if arrived.len() > 1 {
                return Some(Value::Object(arrived));
            }
            let only = arrived.values_mut().next().map(Value::take);
            let item =
                || ctx.item(one.scope).map(|(item, _)| Value::clone(item)).filter(|item| !item.is_null());
            Some(only.or_else(item).unwrap_or_else(|| ctx.input().clone()))
        }
        _ if is_join => Some(Value::Object(arrived_outputs(ctx, act))),
        _ => None,
    }
}

/// Returns the values of an activation's live tokens, by the label of the sending node.
fn arrived_outputs(ctx: &AdapterContext<'_>, act: ActivationId) -> Map<String, Value> {
    let tokens = ctx.act(act).inputs.iter();
    tokens
        .filter_map(|token| token.source.map(|source| (label(ctx, source), Value::clone(&token.value))))
        .collect()
}

/// Returns the artifact of the input of a node with this name, whose first task is this one.
fn artifact_of_input(label: &str, first_task: &str) -> Option<ArtifactRef> {
    Some(ArtifactRef { name: input_name(label, first_task)?, version: Some(0) })
}

/// Returns the output artifact of a node with an output: an agent, or one that combines the outputs
/// of others.
fn node_output(ctx: &AdapterContext<'_>, ids: EventIds<'_>, act: ActivationId) -> Option<ArtifactRef> {
    let one = ctx.act(act);
    one.output.as_ref().filter(|_| one.end == Some(ActivationEnd::Succeeded))?;
    let node = ctx.node_of(act);
    let label = label(ctx, act);
    let name = match &node.op {
        op if asks(op) => output_name(&ctx.plan().name, &label, &first_task(ctx, ids, act)),
        NodeOperation::Map { .. } => format!("map_{}_results.json", plain(&label, 100)),
        NodeOperation::Fork { .. } => format!("fork_{}_merged.json", plain(&label, 100)),
        NodeOperation::Loop { .. } => format!("loop_{}_result.json", plain(&label, 100)),
        NodeOperation::Pure if node.kind == JOIN => format!("join_{}_results.json", plain(&label, 100)),
        _ => return None,
    };
    artifact_ref(&name, one.ordinal)
}

fn artifact_ref(name: &str, version: u32) -> Option<ArtifactRef> {
    Some(ArtifactRef { name: ArtifactName::parse(name).ok()?, version: Some(version) })
}

/// Returns the artifact with an activation's output: the first in its last reply.
fn output_artifact(ctx: &AdapterContext<'_>, act: ActivationId) -> Option<ArtifactRef> {
    let reply = ctx.act(act).last_reply()?.result.as_ref().ok()?;
    ArtifactRef::deserialize(reply.artifacts.first()?).ok()
}

fn progress(ctx: &AdapterContext<'_>, owner: ActivationId) -> Option<WorkflowMapProgressData> {
    if !matches!(ctx.node_of(owner).op, NodeOperation::Map { .. }) {
        return None;
    }
    let children = ctx.act(owner).children.as_deref()?;
    let completed = children.acts.len() as u32 - children.active;
    let total = children.list.len() as u32;
    Some(WorkflowMapProgressData {
        node_id: label(ctx, owner),
        total_items: total,
        completed_items: completed,
        status: match (children.failed, completed == total) {
            (Some(_), _) => MapStatus::Failed,
            (None, true) => MapStatus::Completed,
            (None, false) => MapStatus::InProgress,
        },
    })
}

fn skipped(
    ctx: &AdapterContext<'_>,
    node: NodeIndex,
    scope: u32,
    reason: &str,
) -> WorkflowNodeExecutionResultData {
    let mut id = ctx.plan().node(node).id.clone();
    if scope != ROOT
        && let Some(inner) = ctx.state.scope(scope)
    {
        id = format!("{id}_{}", inner.index);
    }
    let mut result = WorkflowNodeExecutionResultData::new(id, Outcome::Skipped);
    result.metadata.insert("reason".into(), json!(reason));
    result
}

fn concluded(ctx: &AdapterContext<'_>, execution: &ExecutionId) -> Option<MeshMessage> {
    let outcome = ctx.outcome()?;
    let data = WorkflowExecutionResultData {
        workflow_name: Some(ctx.plan().name.clone()),
        execution_id: Some(execution.as_str().to_owned()),
        status: match outcome.status {
            TerminalStatus::Success => Outcome::Success,
            TerminalStatus::Failure => Outcome::Error,
            TerminalStatus::Cancelled => Outcome::Cancelled,
        },
        output_artifact_ref: execution_output(ctx, execution),
        error_message: outcome.fault.as_ref().map(Fault::reason),
        workflow_output: outcome.output.as_ref().map(|output| Value::clone(output)),
    };
    Some(data.into())
}
