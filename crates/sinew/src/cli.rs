//! The command line: flags, help, and dispatch to the commands in `cmd`.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use sinew_operations::failure::Failure;
use sinew_source::{escape_line, escape_text};

use crate::output::{Format, Global, Output};
use crate::short_help::shorten_help;
use crate::{cmd, exit, output};

/// Durable agent workflows: validate, run, test, draw and serve them.
#[derive(Debug, Parser)]
#[command(name = "sinew", version = env!("BUILD_VERSION"), about, after_help = exit::TABLE, max_term_width = 110, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(about = "Start a development mesh: NATS server, executor, agents and workflows")]
    Dev(Box<cmd::dev::DevArgs>),
    #[command(about = "Run a workflow, in this process or on a mesh")]
    Run(Box<cmd::run::RunArgs>),
    #[command(about = "Run workflow tests offline, in virtual time")]
    Test(cmd::test::TestArgs),
    #[command(about = "Validate, draw, describe and deploy workflows")]
    #[command(visible_aliases = ["workflows", "w"], subcommand)]
    Workflow(cmd::workflow::WorkflowCommand),
    #[command(about = "Inspect and control executions")]
    #[command(visible_aliases = ["executions", "x"], subcommand)]
    Execution(cmd::execution::ExecutionCommand),
    #[command(about = "List pending approvals and decide on them")]
    #[command(visible_alias = "approvals", subcommand)]
    Approval(cmd::approval::ApprovalCommand),
    #[command(about = "Inspect and call agents")]
    #[command(visible_alias = "agents", subcommand)]
    Agent(cmd::agent::AgentCommand),
    #[command(about = "Chat with an agent in this terminal")]
    Chat(cmd::chat::ChatArgs),
    #[command(about = "List the language models that agents use, and check that they respond")]
    #[command(visible_alias = "models", subcommand)]
    Model(cmd::model::ModelCommand),
    #[command(about = "List, fetch and compare execution artifacts")]
    #[command(visible_alias = "artifacts", subcommand)]
    Artifact(cmd::artifact::ArtifactCommand),
    #[command(about = "Expose workflows as tools for language models")]
    #[command(visible_alias = "tools", subcommand)]
    Tool(cmd::tool::ToolCommand),
    #[command(about = "Show the activity of a mesh")]
    Top(cmd::top::TopArgs),
    #[command(about = "Report slow nodes and the cost of models over the history of a mesh")]
    #[command(visible_alias = "reports", subcommand)]
    Report(cmd::report::ReportCommand),
    #[command(about = "List who changed what on a mesh, why and from where")]
    Audit(cmd::audit::AuditArgs),
    #[command(about = "Run end-to-end health checks on a mesh")]
    Doctor(cmd::doctor::DoctorArgs),
    #[command(about = "Run a mesh service until it is stopped")]
    #[command(subcommand)]
    Serve(cmd::serve::ServeCommand),
    #[command(about = "Serve workflows and agents as MCP tools to a host that starts this command")]
    Mcp(Box<cmd::mcp::McpArgs>),
    #[command(about = "Provision and check a mesh on a NATS server")]
    #[command(subcommand)]
    Mesh(cmd::mesh::MeshCommand),
    #[command(about = "Manage API keys of HTTP callers, and deploy webhook triggers")]
    #[command(subcommand)]
    Gateway(cmd::gateway::GatewayCommand),
    #[command(about = "Measure the cost of executions on this machine")]
    Bench(cmd::bench::BenchArgs),
    #[command(about = "Print the JSON Schema of a file format, for editors")]
    Schema(cmd::schema::SchemaArgs),
    #[command(about = "Explain an error code")]
    Explain(cmd::explain::ExplainArgs),
    #[command(about = "Create a workflow or an agent from a template")]
    #[command(subcommand)]
    New(cmd::new::NewCommand),
    #[command(about = "Print shell completions")]
    Completions(cmd::completions::CompletionsArgs),
    #[command(about = "Write man pages to a folder")]
    Man(cmd::completions::ManArgs),
}

/// Reads a command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    let mut command = Cli::command();
    if words.iter().any(|word| word == "-h") {
        command = shorten_help(command, &|name| words.iter().any(|word| word == name));
    }
    let matches = command.try_get_matches_from_mut(words);
    let mut matches = matches.map_err(|error| with_tip(&mut command, error))?;
    refuse_names(&mut command, &matches)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Names that other tools give to commands, and the commands here.
const OTHER_NAMES: [(&str, &str); 14] = [
    ("approve", "sinew approval approve ID"),
    ("cancel", "sinew execution cancel ID"),
    ("deploy", "sinew workflow deploy FILE"),
    ("describe", "sinew execution describe ID"),
    ("get", "sinew execution list, sinew workflow list, sinew agent list"),
    ("init", "sinew new workflow NAME"),
    ("lint", "sinew workflow validate FILE"),
    ("list", "sinew execution list, sinew workflow list, sinew agent list"),
    ("logs", "sinew execution logs ID"),
    ("ps", "sinew execution list"),
    ("retry", "sinew execution retry ID"),
    ("start", "sinew run WORKFLOW --mesh"),
    ("status", "sinew execution list, sinew doctor"),
    ("validate", "sinew workflow validate FILE"),
];

/// Adds a tip to the error of an unknown command that other tools have.
fn with_tip(command: &mut clap::Command, error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let Some((_, commands)) = OTHER_NAMES.iter().find(|(name, _)| name == word) else { return error };
    // Unknown subcommands of a group, such as `sinew artifact logs`, have the usage of the group.
    let usage = command.render_usage();
    let is_of_root =
        matches!(error.get(ContextKind::Usage), Some(ContextValue::StyledStr(own)) if *own == usage);
    if !is_of_root {
        return error;
    }
    let mut with_tip = clap::Error::new(ErrorKind::InvalidSubcommand).with_cmd(command);
    with_tip.insert(ContextKind::InvalidSubcommand, ContextValue::String(word.clone()));
    with_tip.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![format!("use {commands}").into()]));
    with_tip.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    with_tip
}

/// Commands whose output has no names that another command accepts.
const WITHOUT_NAMES: [&str; 22] = [
    "agent call",
    "agent log",
    "artifact get",
    "artifact diff",
    "bench",
    "chat",
    "completions",
    "dev",
    "execution diff",
    "execution export",
    "execution logs",
    "execution result",
    "gateway key create",
    "serve agent",
    "serve executor",
    "serve gateway",
    "test",
    "tool call",
    "tool declare",
    "top",
    "workflow diff",
    "workflow migrate",
];

/// Rejects `-o name` for commands without names: a program would read other lines as names.
fn refuse_names(command: &mut clap::Command, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
    let (mut path, mut at) = (Vec::new(), matches);
    while let Some((name, inner)) = at.subcommand() {
        path.push(name);
        at = inner;
    }
    let asks_for_names = at.try_get_one::<Format>("output").ok().flatten() == Some(&Format::Name);
    let name = path.join(" ");
    if asks_for_names && WITHOUT_NAMES.contains(&name.as_str()) {
        let text = format!("`sinew {name}` does not support `-o name`");
        return Err(error_of(command, &path, &text));
    }
    Ok(())
}

/// Returns an error with the usage of the command at this path.
fn error_of(command: &mut clap::Command, path: &[&str], text: &str) -> clap::Error {
    let kind = clap::error::ErrorKind::ArgumentConflict;
    match path {
        [] => command.error(kind, text),
        [name, rest @ ..] => match command.find_subcommand_mut(name) {
            Some(inner) => error_of(inner, rest, text),
            None => clap::Error::raw(kind, text),
        },
    }
}

/// Runs the command.
pub(crate) fn run(cli: Cli, output: &Output) -> Result<exit::Exit, Failure> {
    match cli.command {
        Command::Run(args) => cmd::run::run(&args, output),
        Command::Test(args) => cmd::test::test(&args, output),
        Command::Workflow(command) => cmd::workflow::workflow(command, output),
        Command::Execution(command) => cmd::execution::execution(command, output),
        Command::Approval(command) => cmd::approval::approval(command, output),
        Command::Bench(args) => cmd::bench::bench(&args, output),
        Command::Dev(args) => cmd::dev::dev(&args, output),
        Command::Serve(command) => cmd::serve::serve(command, output),
        Command::Mcp(args) => cmd::mcp::mcp(&args, output),
        Command::Mesh(command) => cmd::mesh::mesh(command, output),
        Command::Gateway(command) => cmd::gateway::gateway(command, output),
        Command::Artifact(command) => cmd::artifact::artifact(command, output),
        Command::Chat(args) => cmd::chat::chat(&args, output),
        Command::Model(command) => cmd::model::model(&command, output),
        Command::Tool(command) => cmd::tool::tool(command, output),
        Command::Top(args) => cmd::top::top(&args, output),
        Command::Audit(args) => cmd::audit::audit(&args, output),
        Command::Report(command) => cmd::report::report(&command, output),
        Command::Doctor(args) => cmd::doctor::doctor(&args, output),
        Command::Agent(command) => cmd::agent::agent(command, output),
        Command::Schema(args) => cmd::schema::schema(&args, output),
        Command::Explain(args) => cmd::explain::explain(&args, output),
        Command::New(command) => cmd::new::new(&command, output),
        Command::Completions(args) => Ok(cmd::completions::completions(&args, output)),
        Command::Man(args) => cmd::completions::man(&args, Cli::command(), output),
    }
}

/// Prints clap's message; usage errors exit with 2, help and version with 0.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return exit::Exit::Ok.into();
    }
    let said = error.render().to_string();
    // The command line is invalid, but its caller may still be a program.
    if is_for_machines(std::env::args_os().filter_map(|word| word.into_string().ok())) {
        let mut parts = said.split("\n\n");
        let mut failure = Failure::usage(parts.next().unwrap_or_default().trim_start_matches("error: "));
        failure.hint = parts.find_map(|part| Some(part.trim().strip_prefix("tip: ")?.to_owned()));
        let document = output::document(&failure).to_string();
        let _ = writeln!(std::io::stderr().lock(), "{}", escape_text(&document));
    } else {
        // Arguments may be untrusted text that a script passes on. A line break in one could forge a
        // line of the message, so the message is then printed as one line.
        let has_breaks = std::env::args_os().any(|word| word.to_string_lossy().contains('\n'));
        let text = if has_breaks { escape_line(said.trim_end()) } else { escape_text(said.trim_end()) };
        if text == said.trim_end() {
            let _ = error.print();
        } else {
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }
    exit::Exit::Usage.into()
}

/// Returns whether a command line requests a machine-readable format.
fn is_for_machines(mut words: impl Iterator<Item = String>) -> bool {
    let is = |format: &str| matches!(format, "json" | "jsonl" | "yaml");
    while let Some(word) = words.next() {
        let format = match word.as_str() {
            "-o" | "--output" => words.next(),
            word => ["--output=", "-o"].iter().find_map(|flag| word.strip_prefix(flag)).map(str::to_owned),
        };
        if format.is_some_and(|format| is(&format)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
