//! `sinew execution timeline`: the times of an execution, by node.

use clap::Args;
use sinew_inspection::timeline::{self, TimelineWindow};
use sinew_inspection::timeline_text;
use sinew_operations::failure::Failure;
use sinew_operations::quantity::parse_duration;
use sinew_runtime::local;

use super::Which;
use crate::exit::Exit;
use crate::output::Output;

const TIMELINE_EXAMPLES: &str = "Examples:
  sinew execution timeline @latest
  sinew execution timeline @latest --from 40s --to 1m30s
  sinew execution timeline @latest --csv > times.csv
  sinew execution timeline run.json -o json";

/// Arguments of `sinew execution timeline`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show how long each node was queued, with its agent, in back-off, and waiting for a timer, \
                  a person or its children. A star marks the nodes on the critical path.",
    after_help = TIMELINE_EXAMPLES
)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    which: Which,
    /// Print comma-separated values, one line per time span
    #[arg(long)]
    csv: bool,
    /// List quiet nodes too; otherwise they are one line unless they failed, wait or run
    #[arg(long)]
    no_fold: bool,
    /// Show only activations that existed at or after this time since the start: 250ms, 30s, 1h30m
    #[arg(long, value_name = "DURATION")]
    from: Option<String>,
    /// Show only activations that existed at or before this time since the start
    #[arg(long, value_name = "DURATION")]
    to: Option<String>,
    /// Show at most N activations, in order of creation
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    limit: usize,
}

/// Shows the times of an execution.
pub(super) async fn timeline(args: &TimelineArgs, output: &Output) -> Result<Exit, Failure> {
    let record = args.which.open().await?.record;
    let time = |text: &Option<String>| text.as_deref().map(parse_duration).transpose();
    let window = TimelineWindow {
        from: time(&args.from)?.unwrap_or_default(),
        to: time(&args.to)?.unwrap_or(u64::MAX),
        max_rows: args.limit,
    };
    let times = timeline::timeline(&record, local::now(), window);
    if args.csv {
        output.text(timeline_text::csv(&times).trim_end());
    } else {
        output.value(&times, |times| timeline_text::text(times, !args.no_fold));
    }
    Ok(Exit::Ok)
}
