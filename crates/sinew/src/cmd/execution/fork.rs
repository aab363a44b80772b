//! `sinew execution fork`: a new execution that leaves the way of an old one at a node.

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
  sinew execution fork @latest --at book                               # the same again from there
  sinew execution fork x7f3 --set price.output='{\"price\": 5}' --watch  # as if `price` had said so
  sinew execution fork x7f3 --at book --set price.output=@price.json --dry-run";

/// Arguments of `sinew execution fork`.
#[derive(Args, Debug)]
#[command(
    long_about = "Start a new execution that leaves the way of an old one: agents, maps and loops before the \
                  fork are not run, their outputs are taken as given; nodes at the fork and all that depend on them are \
                  run. What a node computes itself is computed again, and people are asked again. The old execution \
                  stays as it is, whether it has ended or not. The label `fork_of` of the new one names it.\n\nOutputs that \
                  --set gives replace those of the old execution. Without --at, the fork is behind the nodes that \
                  --set names.",
    after_help = FORK_EXAMPLES
)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    which: Which,
    /// Run this node and all that depends on it. May be repeated
    #[arg(long, value_name = "NODE", required_unless_present = "set")]
    at: Vec<String>,
    /// Take this as the node's output: JSON, text, or @FILE. May be repeated
    #[arg(long, value_name = "NODE.output=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    how: LaunchArgs,
}

/// Starts an execution that leaves the way of another.
pub(super) async fn fork(args: &ForkArgs, output: &Output) -> Result<Exit, Failure> {
    let set = args.set.iter().map(|text| given(text)).collect::<Result<Vec<_>, _>>()?;
    let (remote, id) = args.which.find().await?;
    let record = remote.record(&id).await?;
    let new = execution_start::fork(&record, &args.at, set)?;
    launch(&remote, &record, new, &args.how, output).await
}

/// `NODE.output=VALUE`, as a node and what it is said to have given.
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
