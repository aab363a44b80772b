//! `sinew execution fork`: starts a new execution that branches off an old one at a node.

use std::sync::Arc;

use clap::Args;
use sinew_engine::SharedJson;
use sinew_operations::execution_start;
use sinew_operations::failure::Failure;

use super::Which;
use super::launch::{LaunchArgs, launch};
use crate::exit::Exit;
use crate::input;
use crate::output::Output;

const FORK_EXAMPLES: &str = "Examples:
  sinew execution fork @latest --at book                               # run again from `book` on
  sinew execution fork x7f3 --set price.output='{\"price\": 5}' --watch  # with another output of `price`
  sinew execution fork x7f3 --at book --set price.output=@price.json --dry-run";

/// Arguments of `sinew execution fork`.
#[derive(Args, Debug)]
#[command(
    long_about = "Start a new execution that branches off an old one. Agents, maps and loops before the fork \
                  do not run; their outputs are reused. Nodes at the fork and all nodes that depend on them \
                  run. Outputs that nodes compute themselves are computed again, and people are asked again. \
                  The old execution is unchanged, whether it has ended or not. The label `fork_of` of the \
                  new one names it.\n\n\
                  Outputs from --set replace those of the old execution. Without --at, the fork is after the \
                  nodes that --set names.",
    after_help = FORK_EXAMPLES
)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    which: Which,
    /// Run this node and all nodes that depend on it. May be repeated
    #[arg(long, value_name = "NODE", required_unless_present = "set")]
    at: Vec<String>,
    /// Set the node's output: JSON, text, or @FILE. May be repeated
    #[arg(long, value_name = "NODE.output=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    how: LaunchArgs,
}

/// Starts an execution that branches off another.
pub(super) async fn fork(args: &ForkArgs, output: &Output) -> Result<Exit, Failure> {
    let set = args.set.iter().map(|text| given(text)).collect::<Result<Vec<_>, _>>()?;
    let (remote, id) = args.which.find().await?;
    let record = remote.record(&id).await?;
    let new = execution_start::fork(&record, &args.at, set)?;
    launch(&remote, &record, new, &args.how, output).await
}

/// Parses `NODE.output=VALUE`.
fn given(text: &str) -> Result<(String, SharedJson), Failure> {
    let wrong = || Failure::usage(format!("--set takes NODE.output=VALUE, not '{text}'"));
    let (node, value) = text.split_once('=').ok_or_else(wrong)?;
    let node = node.strip_suffix(".output").filter(|node| !node.is_empty()).ok_or_else(wrong)?;
    let value = match value.strip_prefix('@') {
        Some(_) => input::read(Some(value), &[])?,
        None => input::json_or_text(value),
    };
    Ok((node.to_owned(), Arc::new(value)))
}
