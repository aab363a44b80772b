//! `sinew execution cancel`.

use clap::Args;
use sinew_operations::failure::Failure;
use sinew_operations::steering::Steering;

use super::command::{TargetArgs, send_commands};
use crate::exit::Exit;
use crate::output::Output;

const CANCEL_EXAMPLES: &str = "Examples:
  sinew execution cancel @latest --reason 'wrong input'
  sinew execution cancel x7f3 y81c --yes
  sinew execution cancel @latest --dry-run
  sinew execution cancel --where 'workflow:orders waiting:Warehouse' --reason 'duplicate batch'";

/// Arguments of `sinew execution cancel`.
#[derive(Args, Debug)]
#[command(
    long_about = "Cancel executions: no new work starts, agents are asked to stop, and sub-workflows are \
                  cancelled too.",
    after_help = CANCEL_EXAMPLES
)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Reason, recorded with the execution
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

/// Cancels executions.
pub(super) async fn cancel(args: &CancelArgs, output: &Output) -> Result<Exit, Failure> {
    send_commands(&args.targets, &Steering::Cancel(args.reason.clone()), output).await
}
