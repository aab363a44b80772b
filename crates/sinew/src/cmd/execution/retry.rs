//! `sinew execution retry | rerun`: the same execution again, or a new one like it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sinew_engine::{End, Mode, ROOT};
use sinew_plan::NodeIx;
use sinew_protocol::command::{Command, RetryCommand, StartCommand};

use super::changes::Changes;
use super::watch::{Follow, follow};
use super::{Found, NEEDS_MESH, Which};
use crate::cli::Format;
use crate::cmd::run::input;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::record::Record;
use crate::remote::Remote;
use crate::views::tree::Options;
use crate::views::{Standing, retry, words};

/// The label of a new execution that names the old one.
const RERUN_OF: &str = "rerun_of";

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
async fn watched(
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

const RERUN_EXAMPLES: &str = "Examples:
  sinew execution rerun @latest
  sinew execution rerun x7f3 --latest --watch    # with the newest version of the workflow
  sinew execution rerun x7f3 --memoize           # nodes that ended well are not run again
  sinew execution rerun x7f3 --from enrich -p limit=5";

/// Arguments of `sinew execution rerun`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    long_about = "Start a new execution with the input of an old one. The label `rerun_of` of the new one names it.",
    after_help = RERUN_EXAMPLES
)]
pub(crate) struct RerunArgs {
    #[command(flatten)]
    which: Which,
    /// Another input: JSON, @FILE or - for stdin
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// Change one field of the input. May be repeated
    #[arg(short, long = "param", value_name = "KEY=VALUE")]
    params: Vec<String>,
    /// Take outputs of nodes that ended well as given
    #[arg(long)]
    memoize: bool,
    /// Start at this node. May be repeated
    #[arg(long, value_name = "NODE")]
    from: Vec<String>,
    /// With the newest deployed version of the workflow, instead of the same
    #[arg(long)]
    latest: bool,
    /// Say what would be started, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Follow it until it ends
    #[arg(long, conflicts_with = "dry_run")]
    watch: bool,
}

/// Starts an execution like another.
pub(super) async fn rerun(args: &RerunArgs, output: &Output) -> Result<Exit, Failure> {
    let (remote, id) = args.which.find().await?;
    let record = remote.record(&id).await?;
    let old = record.execution.ctx().input().to_string();
    let given = args.input.clone().unwrap_or(old);
    let value = input::read(Some(&given), &args.params)?;
    let mode = Mode {
        given: if args.memoize { outputs(&record) } else { BTreeMap::new() },
        from: args.from.clone(),
        ..Mode::default()
    };
    for node in &args.from {
        if record.plan().find(node).is_none() {
            return Err(Failure::new(
                Exit::NotFound,
                "SINEW-8025",
                format!("there is no node '{node}' in it"),
            ));
        }
    }
    let workflow = record.plan().name.clone();
    let version = if args.latest { None } else { Some(record.execution.program().graph.digest().to_owned()) };
    let new = remote.client.execution_id(&uuid::Uuid::now_v7().to_string());
    let shown = version.as_deref().map_or("the newest version", words::short).to_owned();
    if args.dry_run {
        let kept: Vec<&String> = mode.given.keys().collect();
        let told = json!({ "would_start": workflow, "version": version, "input": value, "given": kept, "from": mode.from });
        output.value(&told, |_| format!("would start {workflow} ({shown}) with {value}"));
        return Ok(Exit::Ok);
    }
    let mut command = StartCommand::new(new.clone(), workflow.clone(), value);
    command.version = version;
    command.labels.clone_from(&record.about.labels);
    command.labels.insert(RERUN_OF.into(), id.to_string());
    command.user.clone_from(&record.about.user);
    if mode != Mode::default() {
        command.mode = serde_json::to_value(&mode).unwrap_or_default();
    }
    output.note(&format!("starting {workflow} ({shown})"));
    remote.client.start(command).await?;
    if args.watch {
        wait_until_known(&remote, &new).await?;
        return watched(&remote, &new, output).await;
    }
    output
        .value(&json!({ "execution": new.as_str(), "workflow": workflow, "rerun_of": id.as_str() }), |_| {
            new.to_string()
        });
    Ok(Exit::Ok)
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

/// Outputs of the nodes of the workflow itself that ended well.
fn outputs(record: &Record) -> BTreeMap<String, sinew_engine::Val> {
    let state = record.execution.state();
    let plan = record.plan();
    (0..plan.nodes.len() as NodeIx)
        .filter_map(|ix| {
            let one = state.act(state.last(ROOT, ix)?);
            let output = one.output.as_ref().filter(|_| one.end == Some(End::Succeeded))?;
            Some((plan.node(ix).id.clone(), Arc::clone(&output.value)))
        })
        .collect()
}
