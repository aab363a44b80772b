//! New executions that are made of old ones: their input, the outputs that are kept, and the start.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use sinew_engine::{ActivationEnd, ExecutionMode, ROOT, SharedJson};
use sinew_plan::{NodeIndex, NodeOperation, Plan};

use super::retry::{wait_until_known, watched};
use super::tree::NO_SUCH_NODE;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::remote::Remote;
use sinew_inspection::record::Record;
use sinew_inspection::words;

/// An output that another execution cannot be given.
pub(super) const NOT_GIVEN: &str = code::OUTPUT_NOT_TRANSFERABLE.as_str();

/// Handling of the new execution.
#[derive(Args, Debug)]
pub(super) struct LaunchArgs {
    /// Say what would be started, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Follow it until it ends
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
}

/// The execution to be.
pub(super) struct NewExecution {
    pub(super) label: &'static str,
    pub(super) input: Value,
    pub(super) mode: ExecutionMode,
    /// With the newest version of the workflow.
    pub(super) latest: bool,
}

pub(super) async fn launch(
    remote: &Remote,
    record: &Record,
    new: NewExecution,
    how: &LaunchArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let workflow = record.plan().name.clone();
    let version = (!new.latest).then(|| record.execution.program().graph.digest().to_owned());
    let shown = version.as_deref().map_or("the newest version", words::short).to_owned();
    if how.dry_run {
        let given: Vec<&String> = new.mode.given.keys().collect();
        let told = json!({
            "would_start": workflow,
            "version": version,
            "input": new.input,
            "given": given,
            "from": new.mode.from,
        });
        output.value(&told, |_| {
            let mut text = format!("would start {workflow} ({shown}) with {}", new.input);
            for (what, nodes) in [("given", given), ("from", new.mode.from.iter().collect())] {
                if !nodes.is_empty() {
                    let nodes: Vec<&str> = nodes.into_iter().map(String::as_str).collect();
                    text = format!("{text}\n  {what:<5}  {}", nodes.join(", "));
                }
            }
            text
        });
        return Ok(Exit::Ok);
    }
    let key = uuid::Uuid::now_v7().to_string();
    let mut command = remote.client.start_command(key, workflow.clone(), new.input);
    let id = command.execution.clone();
    command.version = version;
    command.labels.clone_from(&record.about.labels);
    command.labels.insert(new.label.into(), record.id().to_owned());
    command.user.clone_from(&record.about.user);
    if new.mode != ExecutionMode::default() {
        command.mode = serde_json::to_value(&new.mode).unwrap_or_default();
    }
    output.note(&format!("starting {workflow} ({shown})"));
    remote.client.start(command).await?;
    if how.watch {
        wait_until_known(remote, &id, &workflow, output).await?;
        return watched(remote, &id, output).await;
    }
    let mut told = json!({ "execution": id.as_str(), "workflow": workflow });
    told[new.label] = json!(record.id());
    output.value(&told, |_| id.to_string());
    Ok(Exit::Ok)
}

/// Nodes of the workflow itself, by name. What a map or a loop runs begins and ends with it.
pub(super) fn nodes(plan: &Plan, names: &[String]) -> Result<Vec<NodeIndex>, Failure> {
    let find = |name: &String| {
        let found = plan.find(name).filter(|ix| !plan.node(*ix).inner);
        found.ok_or_else(|| {
            let inner = plan.find(name).is_some();
            let why = if inner { "is run by another node: name that one" } else { "is not in it" };
            Failure::new(Exit::NotFound, NO_SUCH_NODE, format!("node '{name}' {why}"))
                .hint("`sinew execution tree ID` shows its nodes")
        })
    };
    names.iter().map(find).collect()
}

/// These nodes and all that depend on them.
pub(super) fn behind(plan: &Plan, begun: &[NodeIndex]) -> BTreeSet<NodeIndex> {
    let mut found = BTreeSet::new();
    let mut left = begun.to_vec();
    while let Some(ix) = left.pop() {
        if found.insert(ix) {
            left.extend(plan.edges.iter().filter(|edge| edge.from == ix).map(|edge| edge.to));
        }
    }
    found
}

/// Outputs of the nodes of the workflow itself that ended well, except these.
///
/// What a node computes is computed again, and people are asked again: where their tokens went is not in a value.
pub(super) fn outputs(
    record: &Record,
    except: &BTreeSet<NodeIndex>,
) -> Result<BTreeMap<String, SharedJson>, Failure> {
    let state = record.execution.state();
    let plan = record.plan();
    let mut kept = BTreeMap::new();
    let mut at_ports = Vec::new();
    for ix in (0..plan.nodes.len() as NodeIndex).filter(|ix| !except.contains(ix) && is_work(plan, *ix)) {
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
        "outputs of {} cannot be given to another execution: in dialect {} they lie at ports",
        at_ports.join(", "),
        plan.dialect
    );
    Err(Failure::new(Exit::Conflict, NOT_GIVEN, why).hint("`sinew execution rerun ID` runs all of it again"))
}

/// True if others work for the node; what it computes itself, and what people say, decides where tokens go.
pub(super) fn is_work(plan: &Plan, ix: NodeIndex) -> bool {
    matches!(
        plan.node(ix).op,
        NodeOperation::Agent
            | NodeOperation::Workflow
            | NodeOperation::Map { .. }
            | NodeOperation::Loop { .. }
            | NodeOperation::Fork { .. }
    )
}
