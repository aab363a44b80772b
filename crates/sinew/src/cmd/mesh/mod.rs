//! `sinew mesh`: provisioning, checks, permissions and the quarantine of a mesh.

mod permissions;
mod provision;
mod quarantine;

use clap::Subcommand;
use sinew_operations::failure::Failure;

use crate::connect::block;
use crate::exit::Exit;
use crate::output::Output;

/// Commands for the mesh.
#[derive(Debug, Subcommand)]
pub(crate) enum MeshCommand {
    #[command(about = "Create the streams and buckets of a mesh, or correct those that differ")]
    Provision(provision::ProvisionArgs),
    #[command(about = "Check that the server meets the requirements of the mesh")]
    Check(provision::CheckArgs),
    #[command(about = "Print the permissions of each role, for the server's configuration")]
    Permissions(permissions::PermissionsArgs),
    #[command(about = "Inspect, replay and remove quarantined messages")]
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
}

/// Runs the command.
pub(crate) fn mesh(command: MeshCommand, output: &Output) -> Result<Exit, Failure> {
    let command = match command {
        MeshCommand::Permissions(args) => return permissions::permissions(&args, output),
        command => command,
    };
    block(async {
        match command {
            MeshCommand::Permissions(_) => Ok(Exit::Ok),
            MeshCommand::Provision(args) => provision::provision(&args, output).await,
            MeshCommand::Check(args) => provision::check(&args, output).await,
            MeshCommand::Quarantine(command) => quarantine::quarantine(command, output).await,
        }
    })
}
