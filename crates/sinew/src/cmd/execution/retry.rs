//! `sinew execution retry`: the same execution again.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use sinew_protocol::command::{Command, RetryCommand};

use super::changes::Changes;
use super::watch::{Follow, follow};
use super::{Found, NEEDS_MESH, Which};
use crate::cli::Format;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::remote::Remote;
use crate::views::tree::Options;
use crate::views::{Standing, retry};

const RETRY_EXAMPLES: &str = "Examples:
  sinew execution retry @latest --dry-run
  sinew execution retry @latest
  sinew execution retry x7f3 --from enrich --watch
  sinew execution retry run.json --dry-run       # from a file, without a mesh";

/// Arguments of `sinew execution retry`.
#[derive(Args, Debug)]
#[command(
    long_about = "Run again what failed or was cancelled, in the same execution: what ended well is kept, what depends \
                  on nodes that run again starts afresh. It goes on with the version of the workflow it was started \
                  with; `rerun --latest` starts a new execution with the newest one.",
    after_help = RETRY_EXAMPLES
)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    which: Which,
    /// Only this node (and what depends on it) instead of all that failed. May be repeated
    #[arg(long = "from", visible_alias = "node", value_name = "NODE")]
    nodes: Vec<String>,
    /// List what would be kept, run again and reset, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Why; recorded with the execution
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Follow it until it ends
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
}

/// Retries an execution.
pub(super) async fn retry(args: &RetryArgs, output: &Output) -> Result<Exit, Failure> {
    let found = args.which.open().await?;
    let preview = retry::preview(&found.record, &args.nodes).map_err(|refused| {
        let failure = Failure::new(Exit::Conflict, refused.code(), refused.to_string());
        match refused {
            sinew_engine::Refused::NotEnded => failure.hint("`sinew execution cancel ID` ends it"),
            _ => failure.hint("`sinew execution tree ID` shows what failed"),
        }
    })?;
    if args.dry_run {
        match output.format {
            Format::Name => preview.rerun.keys().for_each(|node| output.text(node)),
            _ => output.value(&preview, |preview| retry::text(preview, &found.record)),
        }
        return Ok(Exit::Ok);
    }
    let Found { record, remote: Some(remote) } = found else {
        return Err(Failure::new(Exit::Usage, NEEDS_MESH, "an execution in a file cannot go on")
            .hint("--dry-run says what a retry would do; `sinew execution import FILE` puts it on a mesh"));
    };
    output.note(&retry::text(&preview, &record).replace("would ", "will "));
    let command = RetryCommand {
        execution: record.execution.id().clone(),
        nodes: args.nodes.clone(),
        reason: args.reason.clone(),
    };
    remote.signal(Command::Retry(command)).await?;
    let id = record.execution.id().clone();
    if args.watch {
        return watched(&remote, &id, output).await;
    }
    output.value(&json!({ "execution": id.as_str(), "status": "running" }), |_| id.to_string());
    Ok(Exit::Ok)
}

/// Follows an execution that was just started or retried.
pub(super) async fn watched(
    remote: &Remote,
    id: &sinew_protocol::ExecutionId,
    output: &Output,
) -> Result<Exit, Failure> {
    let record = remote.record(id).await?;
    let changes = Changes::of(Found { record, remote: Some(remote.clone()) }).await?;
    let how = Follow { options: Options::default(), timeout: None, people: true, show: true };
    let record = follow(changes, &how, output).await?;
    let standing = Standing::of(record.execution.state());
    output.value(&json!({ "execution": id.as_str(), "status": standing }), |_| id.to_string());
    Ok(standing.exit())
}

/// Waits until an executor has taken a start.
pub(crate) async fn wait_until_known(
    remote: &Remote,
    id: &sinew_protocol::ExecutionId,
) -> Result<(), Failure> {
    const BETWEEN: Duration = Duration::from_millis(50);
    const PATIENCE: Duration = Duration::from_secs(30);
    let begun = tokio::time::Instant::now();
    while remote.client.record(id).await?.is_none() {
        if begun.elapsed() > PATIENCE {
            return Err(sinew_executor::client::ClientError::Undecided(PATIENCE).into());
        }
        tokio::time::sleep(BETWEEN).await;
    }
    Ok(())
}
