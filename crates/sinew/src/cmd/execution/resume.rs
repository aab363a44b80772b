//! `sinew execution resume`: resumes paused and held executions.

use clap::Args;
use sinew_operations::failure::Failure;
use sinew_operations::steering::Steering;

use super::command::{TargetArgs, send_commands};
use crate::exit::Exit;
use crate::output::Output;

/// Arguments of `sinew execution resume`.
#[derive(Args, Debug)]
#[command(
    long_about = "Resume paused executions, and executions that are held because their executors crashed \
                  (SINEW-6061); `sinew execution list` and `sinew doctor` show such executions.",
    after_help = "Examples:\n  sinew execution resume @latest"
)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    targets: TargetArgs,
}

/// Resumes executions.
pub(super) async fn resume(args: &ResumeArgs, output: &Output) -> Result<Exit, Failure> {
    send_commands(&args.targets, &Steering::Resume, output).await
}
