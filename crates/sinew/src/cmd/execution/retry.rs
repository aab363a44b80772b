//! `sinew execution retry`: runs failed nodes of an execution again.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use sinew_documents::bulk::BulkVerb;
use sinew_documents::words;
use sinew_engine::RetryRequest;
use sinew_inspection::execution_status::status_of;
use sinew_inspection::record::RecordSource;
use sinew_inspection::tree::TreeOptions;
use sinew_inspection::{retry, waiting};
use sinew_operations::bulk::BulkOrder;
use sinew_operations::execution_changes::ExecutionChanges;
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::execution_retry::{RetryVersion, plan_retry};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::mesh_operator::MeshOperator;
use sinew_protocol::ExecutionId;

use super::command::{BulkArgs, send_bulk};
use super::watch::{Follow, follow};
use super::{NEEDS_MESH, Which};
use crate::connect::Connection;
use crate::deadline::Deadline;
use crate::exit::Exit;
use crate::input;
use crate::output::{Format, Output};
use crate::status_values::exit_of;

const RETRY_EXAMPLES: &str = "Examples:
  sinew execution retry @latest --dry-run
  sinew execution retry @latest
  sinew execution retry --where 'workflow:orders error:SINEW-5001 since:1h' --dry-run
  sinew execution retry x7f3 --from enrich --watch
  sinew execution retry x7f3 --only enrich       # other failed nodes are unchanged
  sinew execution retry x7f3 --only enrich --with-input '{\"limit\": 5}'
  sinew execution retry x7f3 --with-input @order.json        # start over with another input
  sinew execution retry x7f3 --workflow-version latest --dry-run   # with the newest deployed version
  sinew execution retry run.json --dry-run       # from a file, without a mesh";

/// Arguments of `sinew execution retry`.
#[derive(Args, Debug)]
#[command(
    long_about = "Run failed and cancelled nodes again in the same execution. Nodes that succeeded are kept; \
                  nodes that depend on nodes that run again are reset. The execution keeps its version of \
                  the workflow. --workflow-version latest starts a new execution with the newest version, \
                  which reuses the outputs of agents, maps and loops that succeeded and are unchanged in the \
                  newest version; `rerun --latest` runs all nodes.\n\n\
                  --from runs these nodes again, and nodes that were cancelled before they started. --only \
                  runs only these nodes and the nodes that depend on them: other nodes stay failed or \
                  cancelled, and so does the execution, as long as one of them counts. A node that succeeded \
                  does not run again here; `fork --at NODE` starts a new execution there.\n\n\
                  --with-input replaces the input with which the one node of --from or --only calls its \
                  agent or workflow; later retries of that node keep it. Without a node, the whole execution \
                  starts over with this input, and nothing is kept.",
    after_help = RETRY_EXAMPLES
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct RetryArgs {
    /// Id or id prefix, @latest, or a file written by `export` (- for stdin)
    #[arg(id = "ids", value_name = "ID|@latest|FILE", required_unless_present = "filter")]
    id: Option<String>,
    #[command(flatten)]
    bulk: BulkArgs,
    /// Skip the confirmation of --where
    #[arg(short, long, requires = "filter")]
    yes: bool,
    #[command(flatten)]
    mesh: Connection,
    /// All failed and cancelled nodes; the default without --from and --only
    #[arg(long, conflicts_with_all = ["nodes", "only", "with_input"])]
    failed: bool,
    /// This node (and cancelled nodes) instead of all failed nodes. May be repeated
    #[arg(long = "from", visible_alias = "node", value_name = "NODE")]
    nodes: Vec<String>,
    /// Only this node and the nodes that depend on it. May be repeated
    #[arg(long, value_name = "NODE", conflicts_with = "nodes")]
    only: Vec<String>,
    /// Replace the input of the node, or of the execution if no node is given: JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    with_input: Option<String>,
    /// Version of the workflow to run
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = VersionChoice::Same)]
    workflow_version: VersionChoice,
    /// List the nodes that would be kept, run again and reset, without changing them
    #[arg(long)]
    dry_run: bool,
    /// Reason, recorded with the execution
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Follow the execution until it ends
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
}

/// Version of the workflow that a retry runs with.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum VersionChoice {
    /// The version that the execution was started with
    Same,
    /// The newest version, in a new execution
    Latest,
}

impl From<VersionChoice> for RetryVersion {
    fn from(choice: VersionChoice) -> Self {
        match choice {
            VersionChoice::Same => Self::Same,
            VersionChoice::Latest => Self::Latest,
        }
    }
}

impl RetryArgs {
    fn wanted(&self) -> Result<RetryRequest, Failure> {
        let given = self.with_input.as_deref().map(|text| input::value(text, "--with-input")).transpose()?;
        let (nodes, only) = if self.only.is_empty() { (&self.nodes, false) } else { (&self.only, true) };
        Ok(RetryRequest { nodes: nodes.clone(), only, input: given })
    }
}

/// Retries an execution.
pub(super) async fn retry(args: &RetryArgs, output: &Output) -> Result<Exit, Failure> {
    let wanted = args.wanted()?;
    if let Some(filter) = &args.bulk.filter {
        return retry_all(args, wanted, filter, output).await;
    }
    let which = Which { id: args.id.clone().unwrap_or_default(), mesh: args.mesh.clone() };
    let found = which.open().await?;
    let planned = plan_retry(&found, wanted, args.workflow_version.into(), args.reason.clone()).await?;
    let preview = &planned.preview;
    if args.dry_run {
        match output.format {
            Format::Name => preview.names_of_runs().for_each(|node| output.line(node)),
            _ => output.value(preview, |preview| retry::text(preview, &found.record)),
        }
        return Ok(Exit::Ok);
    }
    let FoundExecution { record, remote } = found;
    let Some(remote) = remote else {
        if record.source == RecordSource::Folder {
            let text = "an execution that ran in one process cannot be retried";
            let hint = format!("`sinew execution describe {}` shows how to run it again", record.reference());
            return Err(Failure::new(FailureKind::Usage, NEEDS_MESH, text).hint(hint));
        }
        return Err(Failure::new(FailureKind::Usage, NEEDS_MESH, "an execution in a file cannot be retried")
            .hint("--dry-run shows what a retry would do; `sinew execution import FILE` adds it to a mesh"));
    };
    output.note_block(&retry::text(preview, &record).replace("would ", "will "));
    let is_new = preview.new_execution.is_some();
    let retried = remote.retry(&record, planned).await?;
    let id = ExecutionId::parse(retried.execution()).map_err(|error| Failure::usage(error.to_string()))?;
    if args.watch {
        if is_new {
            wait_until_known(&remote, &id, &record.plan().name, output).await?;
        }
        return watched(&remote, &id, output).await;
    }
    output.value(&retried, |_| id.to_string());
    Ok(Exit::Ok)
}

/// Retries every execution that matches a filter.
async fn retry_all(
    args: &RetryArgs,
    wanted: RetryRequest,
    filter: &str,
    output: &Output,
) -> Result<Exit, Failure> {
    if wanted != RetryRequest::default() || args.workflow_version != VersionChoice::Same || args.watch {
        return Err(Failure::usage("--where retries the failed nodes of each execution, with its version")
            .hint("name an execution to choose nodes, an input or a version, or to follow it"));
    }
    let remote = args.mesh.operator().await?;
    let order = BulkOrder::new(BulkVerb::Retry, args.reason.clone());
    send_bulk(&remote, filter, &order, (args.dry_run, args.yes), output).await
}

/// Follows an execution that was just started or retried.
pub(super) async fn watched(
    remote: &MeshOperator,
    id: &sinew_protocol::ExecutionId,
    output: &Output,
) -> Result<Exit, Failure> {
    let record = remote.record(id).await?;
    let changes = ExecutionChanges::of(FoundExecution { record, remote: Some(remote.clone()) }).await?;
    let how =
        Follow { options: TreeOptions::default(), deadline: Deadline::default(), people: true, show: true };
    let record = follow(changes, &how, output).await?;
    let status = status_of(record.execution.state());
    output.value(&json!({ "execution": id.as_str(), "status": words::status_word(status) }), |_| {
        id.to_string()
    });
    Ok(exit_of(status))
}

/// Time after which a missing executor is reported.
const NO_EXECUTOR_AFTER: Duration = Duration::from_secs(2);
/// Time for an executor to take a start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until an executor has taken a start. Reports soon if no executor serves it.
pub(crate) async fn wait_until_known(
    remote: &MeshOperator,
    id: &sinew_protocol::ExecutionId,
    workflow: &str,
    output: &Output,
) -> Result<(), Failure> {
    let begun = remote.client.begun(id, workflow, START_TIMEOUT);
    tokio::pin!(begun);
    let begun = tokio::select! {
        biased;
        begun = &mut begun => begun,
        () = tokio::time::sleep(NO_EXECUTOR_AFTER) => {
            if !remote.client.has_owner(id).await? {
                output.note(&format!("waiting for {}; the start is stored", waiting::NO_EXECUTOR));
            }
            begun.await
        }
    };
    if !begun? {
        return Err(sinew_executor::client::ClientError::Undecided(START_TIMEOUT).into());
    }
    Ok(())
}
