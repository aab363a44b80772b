//! `sinew execution replay`: decides the rounds of an execution again, offline.

use clap::Args;
use sinew_documents::words;
use sinew_inspection::replay;
use sinew_inspection::tree::{self, TreeOptions, TreeStyle};
use sinew_inspection::view_context::{MeshPresence, ViewContext};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

use super::Which;
use crate::exit::Exit;
use crate::output::Output;

const REPLAY_EXAMPLES: &str = "Examples:
  sinew execution replay run.json
  sinew execution replay @latest                 # does this version decide the same?
  sinew execution replay run.json --until 12     # the state after round 12";

/// Arguments of `sinew execution replay`.
#[derive(Args, Debug)]
#[command(
    long_about = "Fold an execution's facts offline and decide every round again. Exits with 1 if this \
                  version of Sinew decides a round differently. No agent is called.",
    after_help = REPLAY_EXAMPLES
)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    which: Which,
    /// Replay up to this round, and show the execution tree at that point
    #[arg(long, value_name = "ROUND")]
    until: Option<usize>,
    /// Rebuild the state from the recorded facts; do not rerun decisions
    #[arg(long)]
    fold_only: bool,
}

/// Replays an execution.
pub(super) async fn replay(args: &ReplayArgs, output: &Output) -> Result<Exit, Failure> {
    let mut record = args.which.open().await?.record;
    if let Some(until) = args.until {
        record = record.until(until);
    }
    if record.redacted && !args.fold_only {
        output.note("its values are redacted, so it can only be folded");
    }
    let report = replay::replay(&record, !args.fold_only && !record.redacted);
    output.value(&report, |report| {
        let mut text = format!(
            "{}, {}: {}",
            words::count(report.rounds, "round"),
            words::count(report.facts, "fact"),
            words::status_word(report.status)
        );
        if report.difference.is_none() && report.decided_again > 0 {
            text.push_str(", every round was decided the same way");
        }
        if args.until.is_some() {
            let context = ViewContext::of(&record.execution, record.at(), &MeshPresence::default());
            let branches = tree::tree(&record, &context, &TreeOptions::default()).unwrap_or_default();
            let lines = tree::lines(
                &branches,
                TreeStyle { color: output.color, ascii: output.ascii, ..TreeStyle::default() },
            );
            text = format!("{text}\n{}\n{}", tree::head(&record, &context), lines.join("\n"));
        }
        text
    });
    let Some(difference) = report.difference else { return Ok(Exit::Ok) };
    let (recorded, decided) = (&difference.recorded, &difference.decided);
    Err(Failure::new(
        FailureKind::Failed,
        code::ROUND_DECIDED_DIFFERENTLY.as_str(),
        format!("round {} is decided differently: recorded {recorded}, now {decided}", difference.round),
    ))
}
