//! `sinew execution list`.

use clap::Args;
use serde_json::json;
use sinew_documents::execution_filter::ExecutionFilter;
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::words;
use sinew_inspection::list;
use sinew_operations::execution_list::{ListDepth, RestOfList};
use sinew_operations::failure::Failure;
use sinew_operations::local_records;
use sinew_operations::mesh_operator::RowDetails;
use sinew_operations::quantity::parse_duration;
use sinew_protocol::query::ExecutionStatus;
use sinew_runtime::local;

use crate::connect::Connection;
use crate::exit::Exit;
use crate::input;
use crate::output::{Format, Output};
use crate::status_values;

const EXAMPLES: &str = "Examples:
  sinew execution list
  sinew execution list --status failed --since 1h
  sinew execution list --workflow orders --label team=a -o wide
  sinew execution list --status waiting -o name | xargs -n1 sinew execution describe";

/// Arguments of `sinew execution list`.
#[derive(Args, Debug)]
#[command(
    long_about = "List executions, running first, then newest.\n\n\
                  An execution that waits for a person has the status `waiting`.",
    after_help = EXAMPLES
)]
pub(crate) struct ListArgs {
    /// Only executions with this status. May be repeated
    #[arg(long, value_parser = status_values::execution_status())]
    status: Vec<ExecutionStatus>,
    /// Only executions of this workflow. May be repeated
    #[arg(short, long, value_name = "NAME")]
    workflow: Vec<String>,
    /// Only executions with this label. May be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Only executions started within this time (`30m`, `24h`)
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Only executions started longer ago than this
    #[arg(long, value_name = "DURATION")]
    older: Option<String>,
    /// Only executions that failed with this error (`SINEW-5001`). May be repeated
    #[arg(long = "error", value_name = "CODE")]
    errors: Vec<String>,
    /// Show at most N executions
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print only the number of executions
    #[arg(long)]
    count: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Records of this folder to read at most.
const MAX_LOCAL_RECORDS: usize = 200;

/// Lists executions.
pub(super) async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let now = local::now();
    let ago = |text: &Option<String>| -> Result<_, Failure> {
        let time = text.as_deref().map(parse_duration).transpose()?;
        Ok(time.map(|time| now.saturating_sub(time)))
    };
    let wanted = ExecutionFilter {
        status: args.status.clone(),
        workflow: args.workflow.clone(),
        labels: input::pairs(&args.labels, "--label")?,
        since: ago(&args.since)?,
        until: ago(&args.older)?,
        errors: args.errors.clone(),
        caller: None,
    };
    let mut rows = if args.mesh.is_meant(false) { None } else { local_rows(&wanted, now) };
    if args.mesh.local {
        rows = rows.or(Some(Vec::new()));
    }
    let is_local = rows.is_some();
    let (mut rows, unlisted) = if let Some(rows) = rows {
        (rows, 0)
    } else {
        let remote = args.mesh.operator().await?;
        let needs_labels = output.format == Format::Wide || output.is_machine();
        let details = if needs_labels { RowDetails::All } else { RowDetails::Faults };
        // A count needs no details.
        let limit = if args.count { 0 } else { args.limit };
        let rows = remote
            .list(&wanted, ListDepth { limit, details, after: None, counts_rest: RestOfList::Counted })
            .await?;
        (rows, remote.client.unlisted_shards().await?.len())
    };
    list::sort(&mut rows);
    if args.count {
        output.value(&json!({ "count": rows.len() }), |_| rows.len().to_string());
        return Ok(Exit::Ok);
    }
    let hidden = rows.len().saturating_sub(args.limit);
    rows.truncate(args.limit);
    let wide = output.format == Format::Wide;
    output.value(&rows, |rows| list::text(rows, now, wide, output.color));
    if hidden > 0 {
        output.note(&format!("{hidden} more; see --limit, --since and --status"));
    } else if rows.is_empty() && !output.is_machine() {
        output.note("no executions match");
    }
    if unlisted > 0 {
        let shards = words::count(unlisted, "shard");
        output.note(&format!("no executor serves {shards}; starts stored there are not shown to this user"));
    }
    if is_local && !output.is_machine() {
        output.note("these executions ran in this folder; --mesh lists those of the mesh");
    }
    Ok(Exit::Ok)
}

/// Returns the executions that ran in this folder; `None` if it has no records.
fn local_rows(wanted: &ExecutionFilter, now: u64) -> Option<Vec<ExecutionRow>> {
    let records = local_records::newest(MAX_LOCAL_RECORDS);
    let rows = records.iter().map(|record| list::execution_row(record, now)).filter(|row| wanted.takes(row));
    (!records.is_empty()).then(|| rows.collect())
}
