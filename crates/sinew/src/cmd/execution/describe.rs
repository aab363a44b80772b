//! `sinew execution describe`: how an execution stands, and why.

use clap::Args;
use sinew_executor::local;

use super::Which;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::views::describe;

const DESCRIBE_EXAMPLES: &str = "Examples:
  sinew execution describe @latest
  sinew execution describe x7f3 -o json | jq .waiting
  sinew execution describe run.json              # from a file, without a mesh";

/// Arguments of `sinew execution describe`.
#[derive(Args, Debug)]
#[command(
    long_about = "Say how an execution stands: its input and output, what every open node waits for, since when and \
                  until when, the first failure with what led to it, commands that were given, and what to do next.",
    after_help = DESCRIBE_EXAMPLES
)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    which: Which,
}

/// Describes an execution.
pub(super) async fn describe(args: &DescribeArgs, output: &Output) -> Result<Exit, Failure> {
    let found = args.which.open().await?;
    let now = local::now();
    let told = describe::describe(&found.record, now, &found.presence().await?);
    output.value(&told, |told| describe::text(told, now, output.color));
    Ok(Exit::Ok)
}
