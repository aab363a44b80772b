//! `sinew gateway`: callers of the gateways of a mesh, and webhook triggers.

mod hook;
mod key;

use clap::Subcommand;
use sinew_operations::failure::Failure;

use crate::connect::block;
use crate::exit::Exit;
use crate::output::Output;

/// Commands for gateways.
#[derive(Debug, Subcommand)]
pub(crate) enum GatewayCommand {
    #[command(about = "Create, list and revoke API keys of HTTP callers")]
    #[command(alias = "keys", subcommand)]
    Key(key::KeyCommand),
    #[command(about = "Deploy, list and remove webhook triggers, which start executions")]
    #[command(alias = "hooks", subcommand)]
    Hook(hook::HookCommand),
}

/// Runs the command.
pub(crate) fn gateway(command: GatewayCommand, output: &Output) -> Result<Exit, Failure> {
    block(async {
        match command {
            GatewayCommand::Key(command) => key::key(command, output).await,
            GatewayCommand::Hook(command) => hook::hook(command, output).await,
        }
    })
}
