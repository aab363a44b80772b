//! `sinew execution timeline`: the time of an execution, node by node.

use clap::Args;
use sinew_inspection::{timeline, timeline_text};
use sinew_operations::failure::Failure;
use sinew_runtime::local;

use super::Which;
use crate::exit::Exit;
use crate::output::Output;

const TIMELINE_EXAMPLES: &str = "Examples:
  sinew execution timeline @latest
  sinew execution timeline @latest --csv > times.csv
  sinew execution timeline run.json -o json";

/// Arguments of `sinew execution timeline`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show how long each node was in the queue, with its agent, in back-off, and waiting for a time, a \
                  person or its children. A star marks the nodes that the end had to wait for.",
    after_help = TIMELINE_EXAMPLES
)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    which: Which,
    /// Print comma-separated values: a line for each span of time
    #[arg(long)]
    csv: bool,
    /// Show at most N activations, in the order in which they were made
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    limit: usize,
}

/// Shows the times of an execution.
pub(super) async fn timeline(args: &TimelineArgs, output: &Output) -> Result<Exit, Failure> {
    let record = args.which.open().await?.record;
    let times = timeline::timeline(&record, local::now(), args.limit);
    if args.csv {
        output.text(timeline_text::csv(&times).trim_end());
    } else {
        output.value(&times, timeline_text::text);
    }
    Ok(Exit::Ok)
}
