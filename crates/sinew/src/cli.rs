//! The command line: flags and help. What commands do is in `cmd`.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{cmd, exit};

/// Durable agent workflows: validate, run, test, draw and serve them.
#[derive(Debug, Parser)]
#[command(name = "sinew", version, about, after_help = exit::TABLE, max_term_width = 110, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Format of data on stdout
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
    /// When to use colour (also: `NO_COLOR`, `CLICOLOR_FORCE`)
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,
    /// Icons and lines in ASCII only
    #[arg(long, global = true)]
    pub(crate) ascii: bool,
    /// No progress and no hints on stderr
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// Formats of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people; may change
    Table,
    /// For people, with more columns
    Wide,
    /// One document; stable
    Json,
    /// One document a line; stable
    Jsonl,
    /// One document; stable
    Yaml,
    /// Names only
    Name,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a mesh for development: server, executor, agents, workflows
    Dev(cmd::dev::DevArgs),
    /// Run a workflow, in this process or on a mesh
    Run(Box<cmd::run::RunArgs>),
    /// Run the tests of workflows: offline, in virtual time
    Test(cmd::test::TestArgs),
    /// Check, draw and describe workflow files
    #[command(visible_aliases = ["workflows", "w"], subcommand)]
    Workflow(cmd::workflow::WorkflowCommand),
    /// Look at executions and steer them
    #[command(visible_aliases = ["executions", "x"], subcommand)]
    Execution(cmd::execution::ExecutionCommand),
    /// See what waits for a person, and decide
    #[command(visible_alias = "approvals", subcommand)]
    Approval(cmd::approval::ApprovalCommand),
    /// Look at agents and call them
    #[command(visible_alias = "agents", subcommand)]
    Agent(cmd::agent::AgentCommand),
    /// List, fetch and compare artifacts of executions
    #[command(visible_alias = "artifacts", subcommand)]
    Artifact(cmd::artifact::ArtifactCommand),
    /// Workflows as tools of language models
    #[command(visible_alias = "tools", subcommand)]
    Tool(cmd::tool::ToolCommand),
    /// Show what goes on in a mesh
    Top(cmd::top::TopArgs),
    /// Check a mesh from end to end
    Doctor(cmd::doctor::DoctorArgs),
    /// Run a role of the mesh until it is told to stop
    #[command(subcommand)]
    Serve(cmd::serve::ServeCommand),
    /// Make and check what the mesh needs on a server
    #[command(subcommand)]
    Mesh(cmd::mesh::MeshCommand),
    /// Measure what executions cost on this machine
    Bench(cmd::bench::BenchArgs),
    /// Print the JSON Schema of a kind of file, for editors
    Schema(cmd::schema::SchemaArgs),
    /// Explain an error code
    Explain(cmd::explain::ExplainArgs),
    /// Start a workflow or an agent from a template
    #[command(subcommand)]
    New(cmd::new::NewCommand),
    /// Print shell completions
    Completions(cmd::completions::CompletionsArgs),
    /// Write man pages into a folder
    Man(cmd::completions::ManArgs),
}

/// Prints what clap says; usage errors end with 2, help and version with 0.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { exit::Exit::Usage.into() } else { exit::Exit::Ok.into() }
}
