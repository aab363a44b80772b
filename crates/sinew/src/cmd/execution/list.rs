//! `sinew execution list`.

use clap::Args;
use serde_json::json;
use sinew_executor::local;
use sinew_mesh::history::HistoryFilter;

use crate::cmd::run::input;
use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::remote::Remote;
use crate::views::Standing;
use crate::views::list::{self, Wanted};

const EXAMPLES: &str = "Examples:
  sinew execution list
  sinew execution list --status failure --since 1h
  sinew execution list --workflow orders --label team=a -o wide
  sinew execution list --status waiting -o name | xargs -n1 sinew execution describe";

/// Arguments of `sinew execution list`.
#[derive(Args, Debug)]
#[command(
    long_about = "List executions: those that go on first, then the newest.\n\nAn execution that waits for a person \
                  has a status of its own: `waiting`.",
    after_help = EXAMPLES
)]
pub(crate) struct ListArgs {
    /// Only with this status. May be repeated
    #[arg(long, value_enum)]
    status: Vec<Standing>,
    /// Only of this workflow. May be repeated
    #[arg(short, long, value_name = "NAME")]
    workflow: Vec<String>,
    /// Only with this label. May be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Only started in the last (`30m`, `24h`)
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Only started longer ago than this
    #[arg(long, value_name = "DURATION")]
    older: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print the number of them only
    #[arg(long)]
    count: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// Closed executions that are read to find `limit` that are wanted.
const READ: usize = 5_000;

/// Lists executions.
pub(super) async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let now = local::now();
    let ago = |text: &Option<String>| -> Result<_, Failure> {
        let time = text.as_deref().map(input::duration).transpose()?;
        Ok(time.map(|time| now.saturating_sub(time)))
    };
    let wanted = Wanted {
        status: args.status.clone(),
        workflow: args.workflow.clone(),
        labels: input::pairs(&args.labels, "--label")?,
        since: ago(&args.since)?,
        until: ago(&args.older)?,
    };
    let remote = Remote::open(&args.mesh).await?;
    let narrow = |list: &[String]| list.first().filter(|_| list.len() == 1).cloned();
    let status = match args.status.as_slice() {
        [status] if status.is_over() => Some(status.as_str().to_owned()),
        _ => None,
    };
    let filter = HistoryFilter {
        workflow: narrow(&args.workflow),
        status,
        since: wanted.since,
        until: wanted.until,
        ..HistoryFilter::default()
    };
    let mut rows = remote.rows(&filter, READ).await?;
    if !wanted.labels.is_empty() || output.format == Format::Wide || output.is_machine() {
        let others = Wanted { labels: Vec::new(), ..wanted.clone() };
        rows.retain(|row| others.takes(row));
        if wanted.labels.is_empty() {
            list::sort(&mut rows);
            let rest = rows.split_off(rows.len().min(args.limit));
            rows = remote.with_labels(rows).await?;
            rows.extend(rest);
        } else {
            rows = remote.with_labels(rows).await?;
        }
    }
    rows.retain(|row| wanted.takes(row));
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
        output.note("no execution is like that");
    }
    Ok(Exit::Ok)
}
