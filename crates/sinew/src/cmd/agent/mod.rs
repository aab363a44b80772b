//! `sinew agent`: inspect and call agents, from files or on a mesh.

mod eval;
pub(crate) mod files;
mod log;
mod mesh;
mod ping;
mod recorded_cases;
mod tools;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sinew_operations::failure::Failure;

use crate::agent_trust::TrustArgs;
use crate::connect::{Connection, block};
use crate::deadline::Deadline;
use crate::entry_filter_args::ListFilterArgs;
use crate::exit::Exit;
use crate::input;
use crate::output::Output;

const LIST_EXAMPLES: &str = "Examples:
  sinew agent list                        # agent files here and in agent-cards/
  sinew agent list --mesh                 # agents of the mesh
  sinew agent list --mesh --stage deprecated --label team=a
  sinew agent list --nats nats://localhost:4222 -o wide";

const CALL_EXAMPLES: &str = "Examples:
  sinew agent call summarise -i '{\"text\": \"…\"}' --agents agent-cards
  sinew agent call agent-cards/summarise.agent.yaml -m 'a few words'   # {\"text\": …}
  echo '{\"n\": 1}' | sinew agent call double -i - -o json
  sinew agent call summarise --mesh -m 'a few words'                   # on a mesh, through its A2A endpoint";

/// Commands for agents.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    #[command(about = "List agents")]
    #[command(visible_alias = "ls")]
    List(AgentSources),
    #[command(about = "Describe an agent and its input")]
    Describe(Named),
    #[command(about = "Print an agent's A2A card")]
    Card(Named),
    #[command(about = "Call an agent and print its answer")]
    Call(Box<CallArgs>),
    #[command(about = "Run evaluation cases against an agent and its real model, and grade the answers")]
    Eval(eval::EvalArgs),
    #[command(about = "Show the conversations of model agents in an execution")]
    Log(log::LogArgs),
    #[command(about = "Show the tools offered to an agent's model, and accept their descriptions")]
    Tools(tools::ToolsArgs),
    #[command(about = "Check that an agent of a mesh responds")]
    Ping(ping::PingArgs),
    #[command(about = "Let an agent of a mesh finish its tasks and take no new ones")]
    Drain(IntakeArgs),
    #[command(about = "Let an agent of a mesh take tasks again")]
    Undrain(IntakeArgs),
    #[command(about = "Remove an offline agent from the lists of a mesh")]
    Retire(RetireArgs),
}

/// Arguments of `sinew agent drain` and `sinew agent undrain`.
#[derive(Args, Debug)]
#[command(
    long_about = "Change whether the processes of an agent take new tasks.\n\n\
                  A drained process finishes the tasks that it has. New tasks go to other processes of the agent, or wait in \
                  its queue. The state is not stored: a process that restarts takes tasks.",
    after_help = "Examples:\n  sinew agent drain pricing\n  sinew agent drain pricing --process 4f2c\n  sinew agent undrain pricing"
)]
pub(crate) struct IntakeArgs {
    /// Name of the agent
    name: String,
    /// Only the process with this id, or beginning of it [default: all processes]
    #[arg(long, value_name = "ID")]
    process: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `sinew agent retire`.
#[derive(Args, Debug)]
#[command(
    long_about = "Remove an offline agent from the lists of a mesh.\n\n\
                  An agent whose processes were killed stays listed as offline until it is retired, at most \
                  for the retention of the mesh. An agent that shuts down retires itself, and an agent that \
                  starts again is listed again.",
    after_help = "Examples:\n  sinew agent retire pricing"
)]
pub(crate) struct RetireArgs {
    /// Name of the agent
    name: String,
    #[command(flatten)]
    connection: Connection,
}

/// Where to look for agents.
#[derive(Args, Debug)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct AgentSources {
    /// Agent files, or folders with them [default: . and agent-cards/]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    filter: ListFilterArgs,
    #[command(flatten)]
    on: OnMesh,
}

/// One agent.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  sinew agent describe summarise --agents agent-cards\n  sinew agent card summarise --mesh"
)]
pub(crate) struct Named {
    /// Name or file of the agent
    name: String,
    /// Agent files, or folders with them [default: . and agent-cards/]
    #[arg(short, long, value_name = "PATH")]
    agents: Vec<PathBuf>,
    #[command(flatten)]
    on: OnMesh,
}

/// Flags that select agents of a mesh.
#[derive(Args, Debug)]
struct OnMesh {
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `sinew agent call`.
#[derive(Args, Debug)]
#[command(after_help = CALL_EXAMPLES)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    who: Named,
    #[command(flatten)]
    trust: TrustArgs,
    /// The input: JSON, @FILE or - for stdin
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// One field of the input. May be repeated
    #[arg(short, long = "param", value_name = "KEY=VALUE")]
    params: Vec<String>,
    /// Text for an agent that takes `{text}`
    #[arg(short, long, conflicts_with = "input")]
    message: Option<String>,
    /// Instruction to send with the call
    #[arg(long)]
    instruction: Option<String>,
    /// Time limit, counted from the start of the command (`30s`, `5m`)
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Folder for artifacts [default: .sinew/calls]
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    /// Use the model of this alias, and no other, in all agents whose files have it
    #[arg(long, value_name = "ALIAS")]
    model: Option<String>,
    /// Preset the answer to a question of the agent to a person: text, yes or no. May be repeated
    #[arg(long, value_name = "TEXT")]
    answer: Vec<String>,
    /// Record the conversation of a model agent to this folder, as a test file that replays it without the model
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

impl CallArgs {
    /// Returns whether a flag selects agents of files.
    fn names_files(&self) -> bool {
        let of_files = self.artifacts.is_some() || self.record.is_some() || self.model.is_some();
        self.who.names_files() || of_files || !self.answer.is_empty()
    }
}

/// Runs the command.
pub(crate) fn agent(command: AgentCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        AgentCommand::List(places) if places.on.is_meant(!places.paths.is_empty()) => {
            refuse("PATH", !places.paths.is_empty())?;
            block(mesh::list(&places, output))
        }
        AgentCommand::Describe(named) if named.on.is_meant(named.names_files()) => {
            refuse("--agents", !named.agents.is_empty())?;
            block(mesh::describe(&named.name, &named.on.connection, output))
        }
        AgentCommand::Card(named) if named.on.is_meant(named.names_files()) => {
            refuse("--agents", !named.agents.is_empty())?;
            block(mesh::card(&named.name, &named.on.connection, output))
        }
        AgentCommand::Call(args) if args.who.on.is_meant(args.names_files()) => {
            refuse("--agents", !args.who.agents.is_empty())?;
            refuse("--artifacts", args.artifacts.is_some())?;
            refuse("--model", args.model.is_some())?;
            block(mesh::call(&args, output))
        }
        AgentCommand::List(places) => {
            refuse_without_mesh(places.filter.is_set())?;
            files::list(&places.paths, output)
        }
        AgentCommand::Describe(named) => files::find(&named).map(|agent| files::describe(&agent, output)),
        AgentCommand::Card(named) => {
            let card = files::find(&named)?.announcement().card("local");
            output.value(&card, |card| serde_json::to_string_pretty(card).unwrap_or_default());
            Ok(Exit::Ok)
        }
        AgentCommand::Call(args) => files::call(&args, output),
        AgentCommand::Eval(args) => eval::eval(&args, output),
        AgentCommand::Log(args) => block(log::log(&args, output)),
        AgentCommand::Tools(args) => tools::tools(&args, output),
        AgentCommand::Ping(args) => block(ping::ping(&args, output)),
        AgentCommand::Drain(args) => block(mesh::intake(&args, false, output)),
        AgentCommand::Undrain(args) => block(mesh::intake(&args, true, output)),
        AgentCommand::Retire(args) => block(mesh::retire(&args.name, &args.connection, output)),
    }
}

fn refuse(flag: &str, given: bool) -> Result<(), Failure> {
    if given {
        return Err(Failure::usage(format!("{flag} is not supported for agents on a mesh")));
    }
    Ok(())
}

impl OnMesh {
    fn is_meant(&self, names_files: bool) -> bool {
        self.connection.is_meant(names_files)
    }
}

impl Named {
    /// Returns whether the command line names an agent file, or where such files are.
    fn names_files(&self) -> bool {
        !self.agents.is_empty() || self.name.contains(".agent.")
    }
}

impl CallArgs {
    fn value(&self) -> Result<Value, Failure> {
        match &self.message {
            Some(text) => Ok(json!({ "text": text })),
            None => input::read(self.input.as_deref(), &self.params),
        }
    }

    fn deadline(&self) -> Result<Deadline, Failure> {
        Deadline::from_flag(self.timeout.as_deref())
    }
}

/// Rejects filters of the catalogue for a list of files.
fn refuse_without_mesh(is_set: bool) -> Result<(), Failure> {
    if !is_set {
        return Ok(());
    }
    Err(Failure::usage("filters are supported for agents of a mesh only").hint("add --mesh"))
}
