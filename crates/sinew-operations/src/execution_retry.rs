//! Retries: their preview, and the command that performs them. With the newest version of the
//! workflow, a retry is a new execution that reuses the outputs which are still valid there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sinew_documents::command::{RetriedExecution, RetryResult, SteeredExecution};
use sinew_documents::retry::NewVersionPreview;
use sinew_engine::{Activation, ActivationEnd, ExecutionMode, InputRefusal, ROOT, RetryRequest};
use sinew_executor::client::ClientError;
use sinew_inspection::record::Record;
use sinew_inspection::retry;
use sinew_plan::{NodeIndex, NodeOperation, Plan};
use sinew_protocol::card;
use sinew_protocol::code;
use sinew_protocol::command::{Command, RetryCommand};
use sinew_source::Schema;

use crate::deployment::find_deployed;
use crate::execution_changes::FoundExecution;
use crate::execution_start::{NewExecution, kept_outputs, version_of};
use crate::failure::{Failure, FailureKind};
use crate::input_check::check_input as check_start;
use crate::mesh_operator::MeshOperator;
use crate::version_change::VersionChange;

pub use sinew_documents::retry::RetryPreview;

/// Label of a retry with another version, with the id of the old execution.
const RETRY_OF: &str = "retry_of";

/// Workflow version of a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryVersion {
    /// The version with which the execution was started: the same execution continues.
    #[default]
    Same,
    /// The newest deployed version: if it differs, a new execution.
    Latest,
}

/// A planned retry.
#[derive(Clone, Debug)]
pub struct PlannedRetry {
    /// Its effects.
    pub preview: RetryPreview,
    /// The new execution, if there is one.
    new: Option<NewExecution>,
    wanted: RetryRequest,
    reason: String,
}

/// Plans a retry: what it would keep, run again and reset. Fails if the retry would fail.
pub async fn plan_retry(
    found: &FoundExecution,
    wanted: RetryRequest,
    version: RetryVersion,
    reason: String,
) -> Result<PlannedRetry, Failure> {
    if version == RetryVersion::Latest && (wanted != RetryRequest::default() || !reason.is_empty()) {
        let text = "a retry with the newest version is a new execution and accepts no nodes, input or reason";
        return Err(Failure::usage(text).hint(
            "use `sinew execution rerun ID --latest` for another input, or `--workflow-version same` for nodes",
        ));
    }
    let mut preview = retry::preview(&found.record, &wanted).map_err(refused)?;
    preview.latest = newest_version(found).await?;
    if version == RetryVersion::Latest {
        let remote = found.remote.as_ref().ok_or_else(|| {
            let text = "the newest version is known only on a mesh";
            Failure::new(FailureKind::Usage, code::MESH_REQUIRED.as_str(), text)
        })?;
        let (_, newest) = find_deployed(remote, &found.record.plan().name, None).await?;
        if newest != version_of(&found.record) {
            let (preview, new) = with_newest(remote, &found.record, newest).await?;
            return Ok(PlannedRetry { preview, new: Some(new), wanted, reason });
        }
    }
    check_input(found, &wanted).await?;
    Ok(PlannedRetry { preview, new: None, wanted, reason })
}

/// Returns the digest of the newest version, if it differs from the execution's.
async fn newest_version(found: &FoundExecution) -> Result<Option<String>, Failure> {
    let Some(remote) = &found.remote else { return Ok(None) };
    let newest = remote.workflows().await?.get(&found.record.plan().name);
    let newest = newest.map(|newest| newest.deployment.digest.clone());
    Ok(newest.filter(|newest| *newest != version_of(&found.record)))
}

/// Plans the new execution of a retry with the newest version.
async fn with_newest(
    remote: &MeshOperator,
    record: &Record,
    newest: String,
) -> Result<(RetryPreview, NewExecution), Failure> {
    let program = remote.client.programs().by_digest(&newest).await.map_err(ClientError::Plan)?;
    let new = program.graph.plan();
    let change = VersionChange::between(record.plan(), new, sinew_dialects::by_name(&new.dialect));
    let unfinished = unfinished_nodes(record);
    let run = change.nodes_to_run(new, &unfinished);
    let old = record.plan();
    let is_new = |ix: &NodeIndex| {
        let id = &old.node(*ix).id;
        run.contains(id) || change.removed.contains(id)
    };
    let except: BTreeSet<NodeIndex> = (0..old.nodes.len() as NodeIndex).filter(is_new).collect();
    let mode = ExecutionMode { given: kept_outputs(record, &except)?, ..ExecutionMode::default() };
    let input = Value::clone(record.execution.ctx().input());
    check_start(&program, &input, &mode)?;
    let preview = RetryPreview {
        execution: record.id().to_owned(),
        workflow: old.name.clone(),
        version: newest.clone(),
        latest: None,
        keep: mode.given.keys().cloned().collect(),
        rerun: BTreeMap::new(),
        reset: Vec::new(),
        untouched: Vec::new(),
        input: None,
        new_execution: Some(NewVersionPreview {
            started_with: version_of(record).to_owned(),
            removed: change.removed.iter().filter(|id| is_listed(old, id)).cloned().collect(),
            ..NewVersionPreview::default()
        }),
    };
    let preview = sorted(preview, new, &change, &unfinished, record);
    Ok((preview, NewExecution { label: RETRY_OF, input, mode, version: Some(newest) }))
}

/// Groups the nodes of the newest version that are not kept by the reason why they run.
fn sorted(
    mut preview: RetryPreview,
    new: &Plan,
    change: &VersionChange,
    unfinished: &BTreeSet<String>,
    record: &Record,
) -> RetryPreview {
    let mut changes = preview.new_execution.take().unwrap_or_default();
    let is_kept: BTreeSet<&String> = preview.keep.iter().collect();
    let nodes = new.nodes.iter().filter(|node| is_listed(new, &node.id) && !is_kept.contains(&node.id));
    let (mut rerun, mut reset) = (BTreeMap::new(), Vec::new());
    for node in nodes {
        let id = node.id.clone();
        if change.added.contains(&id) {
            changes.added.push(id);
        } else if change.changed.contains(&id) {
            changes.changed.push(id);
        } else if unfinished.contains(&id) {
            rerun.insert(id, 0);
        } else if node.op == NodeOperation::Human && has_succeeded(record, &id) {
            changes.asked_again.push(id);
        } else {
            reset.push(id);
        }
    }
    RetryPreview { rerun, reset, new_execution: Some(changes), ..preview }
}

/// Returns whether tokens reach the node: not run by another node, and not structural.
fn is_listed(plan: &Plan, id: &str) -> bool {
    plan.find(id).is_some_and(|ix| !plan.node(ix).inner && !plan.node(ix).attached)
}

fn has_succeeded(record: &Record, id: &str) -> bool {
    let state = record.execution.state();
    let last = record.plan().find(id).and_then(|ix| state.last(ROOT, ix));
    last.is_some_and(|act| state.act(act).end.is_some_and(ActivationEnd::is_success))
}

/// Returns the workflow's own nodes that started and did not succeed.
fn unfinished_nodes(record: &Record) -> BTreeSet<String> {
    let state = record.execution.state();
    let ended_badly = |ix: &NodeIndex| {
        let end = state.last(ROOT, *ix).map(|act| state.act(act).end);
        end.is_some_and(|end| matches!(end, None | Some(ActivationEnd::Failed | ActivationEnd::Cancelled)))
    };
    let plan = record.plan();
    let nodes = (0..plan.nodes.len() as NodeIndex).filter(ended_badly);
    nodes.map(|ix| plan.node(ix).id.clone()).collect()
}

impl MeshOperator {
    /// Performs a retry, waits until it is recorded, and returns its document.
    pub async fn retry(&self, record: &Record, planned: PlannedRetry) -> Result<RetryResult, Failure> {
        if let Some(new) = planned.new {
            let launched = self.launch(record, new).await?;
            return Ok(RetryResult::New(RetriedExecution {
                execution: launched.execution.to_string(),
                workflow: launched.workflow,
                retry_of: launched.of,
            }));
        }
        let command = RetryCommand {
            execution: record.execution.id().clone(),
            nodes: planned.wanted.nodes,
            only: planned.wanted.only,
            input: planned.wanted.input,
            reason: planned.reason,
        };
        self.signal(Command::Retry(command)).await?;
        let execution = record.id().to_owned();
        Ok(RetryResult::Same(SteeredExecution { execution, status: "running".into() }))
    }
}

fn refused(refused: InputRefusal) -> Failure {
    let kind = match refused {
        InputRefusal::NoSuchNode(_) => FailureKind::NotFound,
        InputRefusal::ManyNodes(_) | InputRefusal::TakesNoInput(_) | InputRefusal::BadInput(_) => {
            FailureKind::Usage
        }
        _ => FailureKind::Conflict,
    };
    let failure = Failure::new(kind, refused.code(), refused.to_string());
    match refused {
        InputRefusal::NotEnded => failure.hint("cancel it with `sinew execution cancel ID`"),
        InputRefusal::DidNotFail(node) => failure
            .hint(format!("run it again in a new execution with `sinew execution fork ID --at {node}`")),
        InputRefusal::BadInput(_) => failure,
        _ => failure.hint("`sinew execution tree ID` shows what failed"),
    }
}

/// Checks a node's input against the schema of its last request, otherwise of its agent's card. An
/// agent without a card checks the input when it receives it.
async fn check_input(found: &FoundExecution, retry: &RetryRequest) -> Result<(), Failure> {
    let (Some(input), [node]) = (&retry.input, retry.nodes.as_slice()) else { return Ok(()) };
    let state = found.record.execution.state();
    let of_node = |one: &&Activation| found.record.plan().node(one.node).id == *node;
    let Some(ask) = state.acts.iter().rev().filter(of_node).find_map(|one| one.last_task()) else {
        return Ok(());
    };
    let schema = match (&ask.input_schema, &found.remote) {
        (Some(schema), _) => Some(schema.clone()),
        (None, Some(remote)) => {
            let announced = remote.online().await?.get(ask.target.name());
            announced.and_then(|one| card::input_schema(&one.card).cloned())
        }
        (None, None) => None,
    };
    // An invalid schema rejects nothing: its agent reports it.
    let Some(schema) = schema.and_then(|schema| Schema::compile(&schema).ok()) else { return Ok(()) };
    let wrong: Vec<String> =
        schema.errors(input).into_iter().map(|one| format!("{} {}", one.pointer, one.message)).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let text = format!("{} does not accept it: {}", ask.target.name(), wrong.join("; ").trim());
    Err(refused(InputRefusal::BadInput(text)))
}
