//! New executions: of a workflow, or derived from an old execution with kept outputs.

use sinew_documents::retry::StartPreview;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_engine::{ActivationEnd, ExecutionMode, ROOT, SharedJson};
use sinew_inspection::record::Record;
use sinew_plan::{NodeIndex, NodeOperation, Plan};
use sinew_protocol::ExecutionId;
use sinew_protocol::code;

use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::MeshOperator;
use crate::start::{StartRequest, StartTarget};

/// An output that cannot be transferred to another execution.
const NOT_GIVEN: &str = code::OUTPUT_NOT_TRANSFERABLE.as_str();
/// The execution has no node with this name.
const NO_SUCH_NODE: &str = code::NO_SUCH_NODE.as_str();

/// A planned execution that is derived from an old one.
#[derive(Clone, Debug)]
pub struct NewExecution {
    /// The label with the old execution's id.
    pub label: &'static str,
    /// Its input.
    pub input: Value,
    /// Its start nodes, and given outputs.
    pub mode: ExecutionMode,
    /// Digest of its workflow version; `None` for the newest at its start.
    pub version: Option<String>,
}

/// A started execution that is derived from an old one.
#[derive(Clone, Debug)]
pub struct LaunchedExecution {
    /// Its id.
    pub execution: ExecutionId,
    /// Name of the workflow.
    pub workflow: String,
    /// The label with the old execution's id.
    pub label: &'static str,
    /// Id of the old execution.
    pub of: String,
}

impl LaunchedExecution {
    /// Returns its document, with the label as a member.
    pub fn document(&self) -> Value {
        let mut document = json!({ "execution": self.execution.as_str(), "workflow": self.workflow });
        document[self.label] = json!(self.of);
        document
    }
}

impl NewExecution {
    /// Returns a preview of the execution.
    pub fn preview(&self, old: &Record) -> StartPreview {
        StartPreview {
            would_start: old.plan().name.clone(),
            version: self.version.clone(),
            input: self.input.clone(),
            given: self.mode.given.keys().cloned().collect(),
            from: self.mode.from.clone(),
        }
    }
}

impl MeshOperator {
    /// Starts an execution that is derived from an old one.
    pub async fn launch(&self, old: &Record, new: NewExecution) -> Result<LaunchedExecution, Failure> {
        let name = old.plan().name.clone();
        let target = match new.version {
            Some(digest) => StartTarget::Plan { name, digest },
            None => StartTarget::Workflow { name, version: None },
        };
        let mut request = StartRequest::new(target, new.input);
        request.mode = new.mode;
        request.labels.clone_from(&old.about.labels);
        request.labels.insert(new.label.into(), old.id().to_owned());
        request.user.clone_from(&old.about.user);
        let prepared = self.prepare_start(request).await?;
        let execution = prepared.execution().clone();
        let started = self.start(prepared).await?;
        Ok(LaunchedExecution {
            execution,
            workflow: started.workflow,
            label: new.label,
            of: old.id().to_owned(),
        })
    }
}

/// Label of a fork with the old execution's id.
const FORK_OF: &str = "fork_of";

/// Returns an execution that forks from an old one at these nodes, with these outputs; without
/// nodes, after the outputs.
pub fn fork(record: &Record, at: &[String], set: Vec<(String, SharedJson)>) -> Result<NewExecution, Failure> {
    if at.is_empty() && set.is_empty() {
        return Err(Failure::usage("a fork needs a node to start at, or an output to set"));
    }
    let plan = record.plan();
    let named: Vec<String> = set.iter().map(|(node, _)| node.clone()).collect();
    let (at, named) = (planned_nodes(plan, at)?, planned_nodes(plan, &named)?);
    let again = nodes_behind(plan, if at.is_empty() { &named } else { &at });
    if let Some(ix) = named.iter().find(|ix| !is_work(plan, **ix)) {
        let id = &plan.node(*ix).id;
        let why = format!("the branch of node '{id}' is not part of its output, so it cannot be set");
        return Err(Failure::new(FailureKind::Conflict, NOT_GIVEN, why)
            .hint("set the output that the node evaluates"));
    }
    let mut mode = ExecutionMode { given: kept_outputs(record, &again)?, ..ExecutionMode::default() };
    mode.given.extend(set);
    let input = Value::clone(record.execution.ctx().input());
    Ok(NewExecution { label: FORK_OF, input, mode, version: Some(version_of(record).to_owned()) })
}

/// Returns the digest of an execution's workflow version.
pub fn version_of(record: &Record) -> &str {
    record.execution.program().graph.digest()
}

/// Returns the workflow's own nodes by name. Nodes run by a map or a loop start and end with it.
pub fn planned_nodes(plan: &Plan, names: &[String]) -> Result<Vec<NodeIndex>, Failure> {
    let find = |name: &String| {
        let found = plan.find(name).filter(|ix| !plan.node(*ix).inner);
        found.ok_or_else(|| {
            let inner = plan.find(name).is_some();
            let why = if inner { "is run by another node; use that one" } else { "is not in the workflow" };
            Failure::new(FailureKind::NotFound, NO_SUCH_NODE, format!("node '{name}' {why}"))
                .hint("`sinew execution tree ID` shows its nodes")
        })
    };
    names.iter().map(find).collect()
}

/// Returns these nodes and all their dependents.
pub fn nodes_behind(plan: &Plan, begun: &[NodeIndex]) -> BTreeSet<NodeIndex> {
    let mut found = BTreeSet::new();
    let mut left = begun.to_vec();
    while let Some(ix) = left.pop() {
        if found.insert(ix) {
            left.extend(plan.edges.iter().filter(|edge| edge.from == ix).map(|edge| edge.to));
        }
    }
    found
}

/// Returns the outputs of the workflow's own successful nodes, except these.
///
/// Nodes without an agent run again, and people are asked again: their values do not contain the
/// routes of their tokens.
pub fn kept_outputs(
    record: &Record,
    except: &BTreeSet<NodeIndex>,
) -> Result<BTreeMap<String, SharedJson>, Failure> {
    let state = record.execution.state();
    let plan = record.plan();
    let mut kept = BTreeMap::new();
    let mut at_ports = Vec::new();
    // Exit handlers run at every end, so an output at an earlier end is not reusable.
    let is_exit = |ix: &NodeIndex| plan.exits.iter().any(|exit| exit.node == *ix);
    let nodes = (0..plan.nodes.len() as NodeIndex).filter(|ix| !except.contains(ix) && !is_exit(ix));
    for ix in nodes.filter(|ix| is_work(plan, *ix)) {
        let one = state.last(ROOT, ix).map(|act| state.act(act));
        let Some(output) =
            one.filter(|one| one.end == Some(ActivationEnd::Succeeded)).and_then(|one| one.output.as_ref())
        else {
            continue;
        };
        let id = plan.node(ix).id.clone();
        if output.ports.is_empty() {
            kept.insert(id, Arc::clone(&output.value));
        } else {
            at_ports.push(id);
        }
    }
    if at_ports.is_empty() {
        return Ok(kept);
    }
    let why = format!(
        "outputs of {} cannot be reused in another execution: in dialect {} they are stored at ports",
        at_ports.join(", "),
        plan.dialect
    );
    Err(Failure::new(FailureKind::Conflict, NOT_GIVEN, why)
        .hint("run everything again with `sinew execution rerun ID`"))
}

/// Returns whether an agent or a workflow does the node's work; computed values and people's
/// decisions determine routes.
fn is_work(plan: &Plan, ix: NodeIndex) -> bool {
    matches!(
        plan.node(ix).op,
        NodeOperation::Agent
            | NodeOperation::Workflow
            | NodeOperation::Map { .. }
            | NodeOperation::Loop { .. }
            | NodeOperation::Fork { .. }
    )
}
