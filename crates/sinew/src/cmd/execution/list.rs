//! `sinew execution list`.

use clap::Args;
use serde_json::json;
use sinew_documents::execution_filter::{BadFilter, ExecutionFilter, FilteredRow};
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words;
use sinew_inspection::list;
use sinew_operations::execution_list::{FoundExecutions, ListDepth, RestOfList};
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
  sinew execution list --key order-17
  sinew execution list --waiting agent --agent Warehouse
  sinew execution list --status waiting -o name | xargs -n1 sinew execution describe";

const FIND_EXAMPLES: &str = "Examples:
  sinew execution find A-17
  sinew execution find status:failed error:timeout
  sinew execution find key:order-17";

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
    /// Only executions of this version (a prefix of its digest)
    #[arg(long = "workflow-version", id = "workflow-version", value_name = "DIGEST")]
    version: Vec<String>,
    /// Only executions with this label. May be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Only executions started with this idempotency key
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
    /// Only executions started by this caller
    #[arg(long = "caller", id = "started-by", value_name = "NAME")]
    caller: Vec<String>,
    /// Only executions that called this agent or workflow
    #[arg(long, value_name = "NAME")]
    agent: Vec<String>,
    /// Only executions in which this node failed or waits
    #[arg(long, value_name = "NODE")]
    node: Vec<String>,
    /// Only executions that wait for this: agent, person, timer, script, retry, or the name of an agent
    #[arg(long, value_name = "KIND")]
    waiting: Vec<String>,
    /// Only executions whose input contains this text
    #[arg(long, value_name = "TEXT")]
    input: Vec<String>,
    /// Only executions whose output contains this text
    #[arg(long, value_name = "TEXT")]
    output_text: Vec<String>,
    /// Only executions started within this time (`30m`, `24h`)
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Only executions started longer ago than this
    #[arg(long, value_name = "DURATION")]
    older: Option<String>,
    /// Only executions that failed with this error: a code (`SINEW-5001`), or a part of the message.
    /// May be repeated
    #[arg(long = "error", value_name = "CODE|TEXT")]
    errors: Vec<String>,
    /// Further terms, as in `sinew execution find`
    #[arg(long = "where", value_name = "FILTER")]
    filter: Option<String>,
    /// Show at most N executions
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print only the number of executions
    #[arg(long)]
    count: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew execution find`.
#[derive(Args, Debug)]
#[command(
    long_about = "Find executions by terms, all of which must match.\n\n\
                  A text is searched in id, idempotency key, names, labels, error, input and output. \
                  KEY:VALUE compares one of status, workflow, version, label, key, caller, user, session, \
                  parent, agent, node, waiting, error, input, output, since, until.",
    after_help = FIND_EXAMPLES
)]
pub(crate) struct FindArgs {
    /// Texts, or terms KEY:VALUE
    #[arg(value_name = "TEXT|KEY:VALUE", required = true)]
    terms: Vec<String>,
    /// Show at most N executions
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    mesh: Connection,
}

/// Records of this folder to read at most.
const MAX_LOCAL_RECORDS: usize = 200;

/// What a list shows of the executions that match.
struct ListView<'a> {
    limit: usize,
    count: bool,
    mesh: &'a Connection,
}

/// Lists executions.
pub(super) async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let view = ListView { limit: args.limit, count: args.count, mesh: &args.mesh };
    show(&filter_of(args)?, &view, output).await
}

/// Finds executions.
pub(super) async fn find(args: &FindArgs, output: &Output) -> Result<Exit, Failure> {
    let view = ListView { limit: args.limit, count: false, mesh: &args.mesh };
    show(&parse_filter(&args.terms.join(" "))?, &view, output).await
}

/// Parses a filter of executions.
pub(super) fn parse_filter(text: &str) -> Result<ExecutionFilter, Failure> {
    ExecutionFilter::parse(text, Timestamp(local::now())).map_err(|bad| bad_filter(&bad))
}

fn bad_filter(bad: &BadFilter) -> Failure {
    Failure::usage(bad.to_string()).hint("see `sinew execution find --help`")
}

fn filter_of(args: &ListArgs) -> Result<ExecutionFilter, Failure> {
    let now = Timestamp(local::now());
    let mut filter = parse_filter(args.filter.as_deref().unwrap_or_default())?;
    filter.status.extend(&args.status);
    filter.workflow.extend(args.workflow.clone());
    filter.labels.extend(input::pairs(&args.labels, "--label")?);
    let terms = [
        ("version", &args.version),
        ("key", &args.key),
        ("caller", &args.caller),
        ("agent", &args.agent),
        ("node", &args.node),
        ("waiting", &args.waiting),
        ("input", &args.input),
        ("output", &args.output_text),
        ("error", &args.errors),
    ];
    for (key, values) in terms {
        for value in values {
            filter.add(key, value, now).map_err(|bad| bad_filter(&bad))?;
        }
    }
    let ago = |text: &Option<String>| -> Result<_, Failure> {
        let time = text.as_deref().map(parse_duration).transpose()?;
        Ok(time.map(|time| now.ms().saturating_sub(time)))
    };
    filter.since = ago(&args.since)?.or(filter.since);
    filter.until = ago(&args.older)?.or(filter.until);
    Ok(filter)
}

async fn show(wanted: &ExecutionFilter, view: &ListView<'_>, output: &Output) -> Result<Exit, Failure> {
    let now = local::now();
    let mut rows = if view.mesh.is_meant(false) { None } else { local_rows(wanted, now) };
    if view.mesh.local {
        rows = rows.or(Some(Vec::new()));
    }
    let is_local = rows.is_some();
    let (found, unlisted) = if let Some(rows) = rows {
        (FoundExecutions { rows, ..FoundExecutions::default() }, 0)
    } else {
        let remote = view.mesh.operator().await?;
        let needs_labels = output.format == Format::Wide || output.is_machine();
        let details = if needs_labels { RowDetails::All } else { RowDetails::Faults };
        // A count needs no details.
        let limit = if view.count { 0 } else { view.limit };
        let depth = ListDepth { limit, details, after: None, counts_rest: RestOfList::Counted };
        (remote.search(wanted, depth).await?, remote.client.unlisted_shards().await?.len())
    };
    let FoundExecutions { mut rows, searched, .. } = found;
    list::sort(&mut rows);
    if let Some(searched) = searched {
        output.note(&searched.line());
    }
    if view.count {
        output.value(&json!({ "count": rows.len() }), |_| rows.len().to_string());
        return Ok(Exit::Ok);
    }
    let hidden = rows.len().saturating_sub(view.limit);
    rows.truncate(view.limit);
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
    let rows = records.iter().filter_map(|record| {
        let row = list::execution_row(record, now);
        let is_match = wanted.takes_record(&FilteredRow::from(&row), &list::filtered_record(record, now));
        is_match.then_some(row)
    });
    (!records.is_empty()).then(|| rows.collect())
}
