//! `sinew execution`: inspect and control executions, on a mesh or from a file.

mod cancel;
pub(crate) mod command;
mod describe;
mod diff;
mod events;
mod export;
mod fork;
mod import;
mod launch;
mod list;
mod logs;
mod pause;
mod replay;
mod rerun;
mod result;
mod resume;
pub(crate) mod retry;
mod timeline;
mod tree;
pub(crate) mod watch;

use std::path::Path;

use clap::{Args, Subcommand};
use sinew_documents::words;
use sinew_inspection::record::RecordSource;
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::export_file;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::local_records;
use sinew_operations::mesh_operator::{MeshOperator, NO_SUCH_EXECUTION};
use sinew_protocol::ExecutionId;
use sinew_protocol::code;

use crate::connect::{Connection, block_traced};
use crate::exit::Exit;
use crate::output::Output;

/// A command that needs a mesh was given a file.
const NEEDS_MESH: &str = code::MESH_REQUIRED.as_str();

/// Commands for executions.
#[derive(Debug, Subcommand)]
pub(crate) enum ExecutionCommand {
    #[command(about = "List executions, running first, then newest")]
    #[command(visible_alias = "ls")]
    List(Box<list::ListArgs>),
    #[command(about = "Find executions by key, text, agent, error and other terms")]
    Find(list::FindArgs),
    #[command(about = "Describe an execution: status, what it waits for, and why it failed")]
    Describe(describe::DescribeArgs),
    #[command(about = "Show the nodes of an execution")]
    Tree(tree::TreeArgs),
    #[command(about = "Show how long nodes waited and ran")]
    Timeline(timeline::TimelineArgs),
    #[command(about = "Follow an execution until it ends")]
    Watch(watch::WatchArgs),
    #[command(about = "Show messages of agents and scripts")]
    Logs(logs::LogsArgs),
    #[command(about = "Show events, one per line")]
    Events(events::EventsArgs),
    #[command(about = "Print the output of an execution or a node")]
    Result(result::ResultArgs),
    #[command(about = "Cancel executions")]
    Cancel(cancel::CancelArgs),
    #[command(about = "Pause executions")]
    Pause(pause::PauseArgs),
    #[command(about = "Resume paused or held executions")]
    Resume(resume::ResumeArgs),
    #[command(about = "Run failed nodes again in the same execution")]
    Retry(retry::RetryArgs),
    #[command(about = "Start a new execution with the input of an old one")]
    Rerun(rerun::RerunArgs),
    #[command(about = "Start a new execution that branches off an old one at a node")]
    Fork(fork::ForkArgs),
    #[command(about = "Compare two executions, node by node")]
    Diff(diff::DiffArgs),
    #[command(about = "Write an execution to a file")]
    Export(export::ExportArgs),
    #[command(about = "Add an execution from a file to the history of a mesh")]
    Import(import::ImportArgs),
    #[command(about = "Replay the decisions of an execution offline")]
    Replay(replay::ReplayArgs),
}

/// Runs the command.
pub(crate) fn execution(command: ExecutionCommand, output: &Output) -> Result<Exit, Failure> {
    use ExecutionCommand as C;
    let done = async {
        match command {
            C::List(args) => list::list(&args, output).await,
            C::Find(args) => list::find(&args, output).await,
            C::Describe(args) => describe::describe(&args, output).await,
            C::Tree(args) => tree::tree(&args, output).await,
            C::Timeline(args) => timeline::timeline(&args, output).await,
            C::Watch(args) => watch::watch(&args, output).await,
            C::Logs(args) => logs::logs(&args, output).await,
            C::Events(args) => events::events(&args, output).await,
            C::Result(args) => result::result(&args, output).await,
            C::Cancel(args) => cancel::cancel(&args, output).await,
            C::Pause(args) => pause::pause(&args, output).await,
            C::Resume(args) => resume::resume(&args, output).await,
            C::Retry(args) => Box::pin(retry::retry(&args, output)).await,
            C::Rerun(args) => rerun::rerun(&args, output).await,
            C::Fork(args) => fork::fork(&args, output).await,
            C::Diff(args) => diff::diff(&args, output).await,
            C::Export(args) => export::export(&args, output).await,
            C::Import(args) => import::import(&args, output).await,
            C::Replay(args) => replay::replay(&args, output).await,
        }
    };
    block_traced(async {
        tokio::select! {
            done = done => done,
            // Only the command stops; the execution continues.
            _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
        }
    })
}

/// One execution.
#[derive(Args, Clone, Debug)]
pub(crate) struct Which {
    /// Id or id prefix, @latest, or a file written by `export` (- for stdin)
    #[arg(value_name = "ID|@latest|FILE")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) mesh: Connection,
}

impl Which {
    /// Returns the path if this is a file: ids have no dots and no slashes.
    fn file(&self) -> Option<&Path> {
        (self.id == "-" || self.id.contains(['.', '/'])).then(|| Path::new(&self.id))
    }

    /// Reads it from its file or from the mesh.
    pub(crate) async fn open(&self) -> Result<FoundExecution, Failure> {
        if let Some(file) = self.file() {
            if self.mesh.is_given() {
                return Err(Failure::usage(format!("{} is a file and does not need a mesh", file.display())));
            }
            let record = export_file::read(file)?.read_from(RecordSource::File(self.id.clone()));
            return Ok(FoundExecution { record, remote: None });
        }
        if !self.mesh.is_meant(false)
            && let Some(record) = local_records::find(&self.id)?
        {
            return Ok(FoundExecution { record, remote: None });
        }
        if self.mesh.local {
            let text = format!("there is no execution '{}' in this folder", words::one_line(&self.id, 80));
            return Err(Failure::new(FailureKind::NotFound, NO_SUCH_EXECUTION, text));
        }
        let (remote, id) = self.find().await?;
        Ok(FoundExecution { record: remote.record(&id).await?, remote: Some(remote) })
    }

    /// Finds it on the mesh; rejects a file.
    pub(crate) async fn find(&self) -> Result<(MeshOperator, ExecutionId), Failure> {
        if self.file().is_some() {
            return Err(Failure::new(
                FailureKind::Usage,
                NEEDS_MESH,
                "this command needs an execution on a mesh, not a file",
            )
            .hint("`sinew execution import FILE` adds one to a mesh"));
        }
        let remote = self.mesh.operator().await?;
        let id = remote.find(&self.id).await?;
        Ok((remote, id))
    }
}
