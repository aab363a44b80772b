//! `sinew execution pause`.

use clap::Args;
use sinew_operations::failure::Failure;
use sinew_operations::steering::Steering;

use super::command::{TargetArgs, send_commands};
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `sinew execution pause`.
#[derive(Args, Debug)]
#[command(
    long_about = "Pause executions: no new work starts. Running tasks continue, and deadlines still apply.",
    after_help = "Examples:\n  sinew execution pause @latest --reason 'the shop is closed'"
)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Reason, recorded with the execution
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Pauses executions.
pub(super) async fn pause(args: &PauseArgs, output: &Output) -> Result<Exit, Failure> {
    send_commands(&args.targets, &Steering::Pause(args.reason.clone()), output).await
}
