//! `sinew execution describe`: how an execution stands, and why.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::Args;
use sinew_executor::local;

use super::{Found, Which};
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
    let Found { record, remote } = args.which.open().await?;
    let now = local::now();
    let mut told = describe::describe(&record, now);
    if let Some(remote) = remote {
        let agents: BTreeSet<&str> = told.waiting.iter().filter_map(|wait| wait.agent.as_deref()).collect();
        if !agents.is_empty() {
            let cards = remote.mesh().cards();
            cards.ready().await;
            let online: BTreeSet<String> =
                agents.into_iter().filter(|name| cards.get(name).is_some()).map(str::to_owned).collect();
            for wait in &mut told.waiting {
                if let Some(agent) = wait.agent.as_ref().filter(|agent| !online.contains(*agent)) {
                    let _ = write!(wait.text, "; no agent '{agent}' is online");
                }
            }
        }
    }
    output.value(&told, |told| describe::text(told, now, output.color));
    Ok(Exit::Ok)
}
