//! `sinew gateway`: who may call the gateways of a mesh, and what starts executions there.

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
    /// Make, list and revoke keys of programs and people that call over HTTP
    #[command(alias = "keys", subcommand)]
    Key(key::KeyCommand),
    /// Deploy, list and remove triggers: signed requests of services outside start executions
    #[command(alias = "hooks", subcommand)]
    Hook(hook::HookCommand),
}

/// Does what the command line says.
pub(crate) fn gateway(command: GatewayCommand, output: &Output) -> Result<Exit, Failure> {
    block(async {
        match command {
            GatewayCommand::Key(command) => key::key(command, output).await,
            GatewayCommand::Hook(command) => hook::hook(command, output).await,
        }
    })
}
