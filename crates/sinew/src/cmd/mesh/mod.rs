//! `sinew mesh`: what the mesh itself needs on a server, and what was set aside.

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
    /// Make the streams and buckets of a mesh, or set right what differs
    Provision(provision::ProvisionArgs),
    /// Say what on the server is not what the mesh needs
    Check(provision::CheckArgs),
    /// Print what each role may do, for the server's configuration
    Permissions(permissions::PermissionsArgs),
    /// Look at messages that were set aside, and send them again
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
}

/// Does what the command line says.
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
