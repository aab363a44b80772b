//! `sinew new`: small, working and commented template files.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

use crate::cmd::schema;
use crate::exit::Exit;
use crate::output::Output;

const SAM: &str = include_str!("../templates/workflow.yaml");
const AGENTFLOW: &str = include_str!("../templates/workflow.agentflow.json");
const AGENTTEAM: &str = include_str!("../templates/workflow.agentteam.json");
const COVALT: &str = include_str!("../templates/workflow.covalt.json");
const SWENY: &str = include_str!("../templates/workflow.sweny.yaml");
const SCRIPT: &str = include_str!("../templates/script.agent.yaml");
const COMMAND: &str = include_str!("../templates/command.agent.yaml");
const HTTP: &str = include_str!("../templates/http.agent.yaml");
const MODEL: &str = include_str!("../templates/model.agent.yaml");
const ROUTER: &str = include_str!("../templates/router.agent.yaml");
const JUDGE: &str = include_str!("../templates/judge.agent.yaml");

/// Files of an agent in Python, by name.
const PYTHON: [(&str, &str); 4] = [
    ("agent.py", include_str!("../templates/python/agent.py")),
    ("sinew_agent.py", include_str!("../../../../examples/python-agent/sinew_agent.py")),
    ("requirements.txt", "nats-py[nkeys]==2.16.0\n"),
    ("README.md", include_str!("../templates/python/README.md")),
];
/// Files of an agent in Rust, by name.
const RUST: [(&str, &str); 3] = [
    ("Cargo.toml", include_str!("../templates/rust/Cargo.toml")),
    ("src/main.rs", include_str!("../templates/rust/main.rs")),
    ("README.md", include_str!("../templates/rust/README.md")),
];
/// Commit from which this program was built; empty if unknown.
const BUILD_REVISION: &str = env!("BUILD_REVISION");
/// The version of schemars whose traits the SDK uses.
const SCHEMARS_VERSION: &str = "1";

const WORKFLOW_EXAMPLES: &str = "Examples:
  sinew new workflow hello && sinew new agent greeter   # a workflow and the agent that it calls
  sinew new workflow audit --dir flows
  sinew new workflow greet --dialect agentflow          # run it with -p text=Ada
  sinew new workflow triage --dialect sweny             # run it with --default-agent work=AGENT";

const AGENT_EXAMPLES: &str = "Examples:
  sinew new agent greeter
  sinew new agent lookup --kind http
  sinew new agent clerk --kind model             # a language model; works without a key at first
  sinew new agent gate --kind model --for judge  # or route: chooses edges
  sinew new agent convert --kind command --dir agents
  sinew new agent billing --kind python          # a project: a separate process on the mesh
  sinew new agent billing --kind rust";

/// Commands for new files.
#[derive(Debug, Subcommand)]
pub(crate) enum NewCommand {
    #[command(about = "Create a workflow")]
    Workflow(NewWorkflow),
    #[command(about = "Create an agent")]
    Agent(NewAgent),
}

/// Arguments of `sinew new workflow`.
#[derive(Args, Debug)]
#[command(
    long_about = "Create a workflow: writes NAME.yaml with one agent node (NAME.json in the dialects \
                  agentflow, agentteam and covalt), and a JSON Schema for editors. `sinew new agent greeter` \
                  creates the agent of the node. Existing files are never changed.",
    after_help = WORKFLOW_EXAMPLES
)]
pub(crate) struct NewWorkflow {
    /// Name of the workflow: letters, digits, - and _
    name: String,
    /// Dialect of the workflow
    #[arg(long, value_enum, default_value_t = WorkflowDialect::Sam)]
    dialect: WorkflowDialect,
    /// Folder to write to
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// Arguments of `sinew new agent`.
#[derive(Args, Debug)]
#[command(
    long_about = "Create an agent: writes NAME.agent.yaml, and a JSON Schema for editors. With --kind rust \
                  or python it writes a project to the folder NAME, for an agent that runs as a separate \
                  process. Existing files are never changed.",
    after_help = AGENT_EXAMPLES
)]
pub(crate) struct NewAgent {
    /// Name of the agent: letters, digits, - and _
    name: String,
    /// Kind of the agent
    #[arg(long, value_enum, default_value_t = Kind::Script)]
    kind: Kind,
    /// Purpose of an agent with a language model
    #[arg(long = "for", value_enum, default_value_t = AgentPurpose::Work)]
    purpose: AgentPurpose,
    /// Folder to write to [default: agent-cards; for a project the current folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Folder of the SDK crate for --kind rust [default: the repository, at the commit of this program]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    sdk_path: Option<PathBuf>,
}

/// Dialect of a new workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WorkflowDialect {
    /// YAML: agents with branches, maps, loops, forks and sub-workflows
    Sam,
    /// JSON of a canvas: agents, conditions on text and approvals
    Agentflow,
    /// JSON: typed nodes, and Python functions on their connections
    Agentteam,
    /// JSON of a canvas: data flow, and agents with tools and sub-agents
    Covalt,
    /// YAML: instructions for agents, and edges that a model chooses
    Sweny,
}

impl WorkflowDialect {
    /// Returns the name of the dialect, and the ending, the template and the schema of its files.
    fn file(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Sam => ("sam", "yaml", SAM, ".sinew/schema/workflow.json"),
            Self::Agentflow => ("agentflow", "json", AGENTFLOW, ".sinew/schema/workflow.agentflow.json"),
            Self::Agentteam => ("agentteam", "json", AGENTTEAM, ".sinew/schema/workflow.agentteam.json"),
            Self::Covalt => ("covalt", "json", COVALT, ".sinew/schema/workflow.covalt.json"),
            Self::Sweny => ("sweny", "yaml", SWENY, ".sinew/schema/workflow.sweny.json"),
        }
    }
}

/// Kind of a new agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A Python function in a sandbox
    Script,
    /// A program on this machine
    Command,
    /// A request to a service
    Http,
    /// A conversation with a language model
    Model,
    /// A project in Rust, with the SDK
    Rust,
    /// A project in Python, with a one-file SDK and nats-py
    Python,
}

/// Purpose of an agent with a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AgentPurpose {
    /// Does the work of a node
    Work,
    /// Chooses the edge of a workflow whose natural-language condition holds
    Route,
    /// Judges a result by a rubric
    Judge,
}

/// Runs the command.
pub(crate) fn new(command: &NewCommand, output: &Output) -> Result<Exit, Failure> {
    if let NewCommand::Agent(args) = command
        && args.kind != Kind::Model
        && args.purpose != AgentPurpose::Work
    {
        return Err(Failure::usage("--for applies to agents with a language model; add --kind model"));
    }
    if let NewCommand::Agent(args) = command
        && args.kind != Kind::Rust
        && args.sdk_path.is_some()
    {
        return Err(Failure::usage("--sdk-path applies to projects in Rust; add --kind rust"));
    }
    if let NewCommand::Agent(args) = command
        && matches!(args.kind, Kind::Rust | Kind::Python)
    {
        return new_project(args, output);
    }
    let cards = PathBuf::from("agent-cards");
    let (name, dir, ending, template, kind, dialect, schema_name) = match command {
        NewCommand::Workflow(args) => {
            let (dialect, ending, template, schema) = args.dialect.file();
            (&args.name, &args.dir, ending, template, schema::Kind::Workflow, Some(dialect), schema)
        }
        NewCommand::Agent(args) => {
            let template = match args.kind {
                Kind::Script => SCRIPT,
                Kind::Command => COMMAND,
                Kind::Model => match args.purpose {
                    AgentPurpose::Work => MODEL,
                    AgentPurpose::Route => ROUTER,
                    AgentPurpose::Judge => JUDGE,
                },
                _ => HTTP,
            };
            let schema = ".sinew/schema/agent.json";
            (
                &args.name,
                args.dir.as_ref().unwrap_or(&cards),
                "agent.yaml",
                template,
                schema::Kind::Agent,
                None,
                schema,
            )
        }
    };
    check_name(name)?;
    // Paths are shown as people write them, without a `./` before them.
    let dir = if dir == Path::new(".") { Path::new("") } else { dir };
    let file = dir.join(format!("{name}.{ending}"));
    let text = template
        .replace("SCHEMA", schema_name)
        .replace("FILE", &file.display().to_string())
        .replace("NAME", name);
    write_new(&file, &text)?;
    let mut written = vec![file.clone()];
    let schema_file = dir.join(schema_name);
    if !schema_file.exists() {
        let schema = schema::of(kind, dialect)?;
        write_new(&schema_file, &format!("{schema:#}\n"))?;
        written.push(schema_file);
    }
    let next = match command {
        NewCommand::Workflow(_) => format!("sinew workflow validate {}", file.display()),
        NewCommand::Agent(_) => format!("sinew agent describe {}", file.display()),
    };
    output.value(&json!({ "written": written }), |_| {
        written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n")
    });
    output.note(&format!("next: {next}"));
    Ok(Exit::Ok)
}

fn check_name(name: &str) -> Result<(), Failure> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
        return Err(Failure::usage(format!("'{}' is not a valid name", name.escape_debug()))
            .hint("use up to 64 letters, digits, - and _"));
    }
    Ok(())
}

/// Writes the project of an agent that runs as a process.
fn new_project(args: &NewAgent, output: &Output) -> Result<Exit, Failure> {
    check_name(&args.name)?;
    let here = PathBuf::new();
    let folder = args.dir.as_ref().unwrap_or(&here).join(&args.name);
    let files: &[(&str, &str)] = if args.kind == Kind::Rust { &RUST } else { &PYTHON };
    if args.kind == Kind::Rust && !args.name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(Failure::usage("the name of a Rust package must start with a letter"));
    }
    let source = sdk_source(args.sdk_path.as_deref())?;
    let mut written = Vec::new();
    for (name, text) in files {
        let text = match *name {
            "sinew_agent.py" => (*text).to_owned(),
            _ => text
                .replace("AGENT_NAME", &args.name)
                .replace("SCHEMARS", SCHEMARS_VERSION)
                .replace("SOURCE", &source),
        };
        let path = folder.join(name);
        write_new(&path, &text)?;
        written.push(path);
    }
    output.value(&json!({ "written": written }), |_| {
        written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join("\n")
    });
    output.note(&format!("next: see {}", folder.join("README.md").display()));
    Ok(Exit::Ok)
}

/// Returns the source of the SDK for `Cargo.toml`: the given folder, otherwise the repository at the
/// commit of this program, so that the project is the same on every machine.
fn sdk_source(folder: Option<&Path>) -> Result<String, Failure> {
    if let Some(folder) = folder {
        let found = folder.canonicalize().map_err(|error| Failure::unreadable(folder, &error))?;
        return Ok(format!("path = {:?}", found.display().to_string()));
    }
    let repository = env!("CARGO_PKG_REPOSITORY");
    Ok(match BUILD_REVISION {
        "" => format!("git = \"{repository}\", tag = \"v{}\"", env!("CARGO_PKG_VERSION")),
        revision => format!("git = \"{repository}\", rev = \"{revision}\""),
    })
}

/// Writes a new file; fails if it exists.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || {
        if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
            fs::create_dir_all(parent)?;
        }
        OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
    };
    write().map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            return Failure::new(
                FailureKind::Conflict,
                code::FILE_EXISTS_ALREADY.as_str(),
                format!("{} already exists", path.display()),
            )
            .hint("choose another name or folder; nothing was written");
        }
        Failure::new(
            FailureKind::Failed,
            code::FILE_CANNOT_BE_WRITTEN.as_str(),
            format!("cannot write {}: {error}", path.display()),
        )
    })
}
