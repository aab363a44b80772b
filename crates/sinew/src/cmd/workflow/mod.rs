//! `sinew workflow`: workflows in files and on a mesh, without running them.

mod control;
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
    #[command(about = "Validate workflow files, and report errors with their positions")]
    #[command(visible_alias = "lint")]
    Validate(validate::ValidateArgs),
    #[command(about = "Draw a workflow, optionally with the state of an execution")]
    #[command(visible_alias = "draw")]
    Render(Box<render::RenderArgs>),
    #[command(about = "List the workflows in files and folders, or on a mesh")]
    #[command(visible_alias = "ls")]
    List(Box<list::ListArgs>),
    #[command(about = "Describe the nodes, schemas, agents and limits of a workflow")]
    Describe(Box<describe::DescribeArgs>),
    #[command(about = "Deploy workflows to a mesh")]
    Deploy(Box<deploy::DeployArgs>),
    #[command(about = "List the versions of a deployed workflow")]
    Versions(versions::VersionsArgs),
    #[command(about = "Compare two workflows, from files or deployed")]
    Diff(versions::DiffArgs),
    #[command(about = "Pause a workflow: new executions wait for its resume")]
    Pause(control::PauseArgs),
    #[command(about = "Resume a paused workflow")]
    Resume(control::ResumeArgs),
    #[command(about = "Return to an earlier version of a workflow")]
    Rollback(control::RollbackArgs),
    #[command(about = "Delete a workflow from a mesh")]
    Delete(versions::DeleteArgs),
    #[command(about = "Convert a workflow to its plan or to another dialect")]
    Convert(Box<convert::ConvertArgs>),
    #[command(about = "Migrate older output shapes of an Agent Team workflow to the standard message")]
    Migrate(migrate::MigrateArgs),
    #[command(about = "Describe the inputs and outputs of node types, also as TypeScript")]
    Nodes(nodes::NodesArgs),
}

/// Runs the command.
pub(crate) fn workflow(command: WorkflowCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        WorkflowCommand::Validate(args) => validate::validate(&args, output),
        WorkflowCommand::Render(args) => render::render(&args, output),
        WorkflowCommand::List(args) => list::list(&args, output),
        WorkflowCommand::Describe(args) => describe::describe(&args, output),
        WorkflowCommand::Deploy(args) => deploy::deploy(&args, output),
        WorkflowCommand::Versions(args) => versions::versions(&args, output),
        WorkflowCommand::Diff(args) => versions::diff(&args, output),
        WorkflowCommand::Pause(args) => control::pause(&args, output),
        WorkflowCommand::Resume(args) => control::resume(&args, output),
        WorkflowCommand::Rollback(args) => control::rollback(&args, output),
        WorkflowCommand::Delete(args) => versions::delete(&args, output),
        WorkflowCommand::Convert(args) => convert::convert(&args, output),
        WorkflowCommand::Migrate(args) => migrate::migrate(&args, output),
        WorkflowCommand::Nodes(args) => nodes::nodes(&args, output),
    }
}
