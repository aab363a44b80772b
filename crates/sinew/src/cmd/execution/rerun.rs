//! `sinew execution rerun`: a new execution with the input of an old one.

use clap::Args;
use sinew_engine::ExecutionMode;
use sinew_operations::execution_start::{
    NewExecution, kept_outputs, nodes_behind, planned_nodes, version_of,
};
use sinew_operations::failure::Failure;

use super::Which;
use super::launch::{LaunchArgs, launch};
use crate::exit::Exit;
use crate::input;
use crate::output::Output;

/// The label of a new execution that names the old one.
const RERUN_OF: &str = "rerun_of";

const RERUN_EXAMPLES: &str = "Examples:
  sinew execution rerun @latest
  sinew execution rerun x7f3 --latest --watch    # with the newest version of the workflow
  sinew execution rerun x7f3 --memoize           # nodes that succeeded do not run again
  sinew execution rerun x7f3 --from enrich -p limit=5";

/// Arguments of `sinew execution rerun`.
#[derive(Args, Debug)]
#[command(
    long_about = "Start a new execution with the input of an old one. The label `rerun_of` of the new one \
                  names it.",
    after_help = RERUN_EXAMPLES
)]
pub(crate) struct RerunArgs {
    #[command(flatten)]
    which: Which,
    /// Use this input instead: JSON, @FILE or - for stdin
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// Change one field of the input. May be repeated
    #[arg(short, long = "param", value_name = "KEY=VALUE")]
    params: Vec<String>,
    /// Reuse outputs of agents, maps and loops that succeeded, except for --from and its dependents
    #[arg(long)]
    memoize: bool,
    /// Start at this node. May be repeated
    #[arg(long, value_name = "NODE")]
    from: Vec<String>,
    /// Use the newest deployed version of the workflow instead of the same version
    #[arg(long)]
    latest: bool,
    #[command(flatten)]
    how: LaunchArgs,
}

/// Starts an execution like another.
pub(super) async fn rerun(args: &RerunArgs, output: &Output) -> Result<Exit, Failure> {
    let (remote, id) = args.which.find().await?;
    let record = remote.record(&id).await?;
    let old = record.execution.ctx().input().to_string();
    let given = args.input.clone().unwrap_or(old);
    let begun = planned_nodes(record.plan(), &args.from)?;
    let mut mode = ExecutionMode { from: args.from.clone(), ..ExecutionMode::default() };
    if args.memoize {
        mode.given = kept_outputs(&record, &nodes_behind(record.plan(), &begun))?;
    }
    let new = NewExecution {
        label: RERUN_OF,
        input: input::read(Some(&given), &args.params)?,
        mode,
        version: (!args.latest).then(|| version_of(&record).to_owned()),
    };
    launch(&remote, &record, new, &args.how, output).await
}
