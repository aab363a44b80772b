//! `sinew workflow`: workflows in files and on a mesh, without running them.

mod convert;
mod deploy;
mod describe;
mod list;
mod migrate;
mod nodes;
mod render;
mod suggest;
mod trial;
mod validate;
mod versions;

use clap::Subcommand;
use sinew_operations::failure::Failure;

use crate::exit::Exit;
use crate::output::Output;

/// Commands for workflow files.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// Check workflow files and say what is wrong, and where
    #[command(visible_alias = "lint")]
    Validate(validate::ValidateArgs),
    /// Draw a workflow, with or without an execution laid over it
    #[command(visible_alias = "draw")]
    Render(Box<render::RenderArgs>),
    /// List the workflows in files and folders, or on a mesh
    #[command(visible_alias = "ls")]
    List(Box<list::ListArgs>),
    /// Say what a workflow takes, does and needs
    Describe(Box<describe::DescribeArgs>),
    /// Deploy workflows to a mesh
    Deploy(Box<deploy::DeployArgs>),
    /// List the versions of a deployed workflow
    Versions(versions::VersionsArgs),
    /// Compare two workflows, from files or deployed
    Diff(versions::DiffArgs),
    /// Remove a workflow from a mesh
    Delete(versions::DeleteArgs),
    /// Print a workflow in another form
    Convert(Box<convert::ConvertArgs>),
    /// Rewrite older output shapes of an Agent Team workflow to the standard message
    Migrate(migrate::MigrateArgs),
    /// Say what types of nodes take and give, also as TypeScript
    Nodes(nodes::NodesArgs),
}

/// Does what the command line says.
pub(crate) fn workflow(command: WorkflowCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        WorkflowCommand::Validate(args) => validate::validate(&args, output),
        WorkflowCommand::Render(args) => render::render(&args, output),
        WorkflowCommand::List(args) => list::list(&args, output),
        WorkflowCommand::Describe(args) => describe::describe(&args, output),
        WorkflowCommand::Deploy(args) => deploy::deploy(&args, output),
        WorkflowCommand::Versions(args) => versions::versions(&args, output),
        WorkflowCommand::Diff(args) => versions::diff(&args, output),
        WorkflowCommand::Delete(args) => versions::delete(&args, output),
        WorkflowCommand::Convert(args) => convert::convert(&args, output),
        WorkflowCommand::Migrate(args) => migrate::migrate(&args, output),
        WorkflowCommand::Nodes(args) => nodes::nodes(&args, output),
    }
}
