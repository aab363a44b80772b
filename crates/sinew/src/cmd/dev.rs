//! `sinew dev`: a whole mesh in one command: NATS server, executor, gateway, agents, workflows.

mod next;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sinew_agents::AgentSet;
use sinew_documents::words;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_gateway::{ConsoleMode, DEFAULT_PORT, Gateway, GatewayError, GatewayOptions};
use sinew_mesh::Mesh;
use sinew_mesh::provision::Provision;
use sinew_mesh::server::{SERVER_USER, Server, ServerOptions};
use sinew_mesh::server_group::ServerGroup;
use sinew_operations::deployment;
use sinew_operations::dev_note::{DevNote, server_password};
use sinew_operations::failure::Failure;
use sinew_operations::file_watch::{FileChange, FileWatch};
use sinew_operations::mesh_operator;
use sinew_operations::private_folder::keep_state_private;
use sinew_operations::ready_made::add_ready_made;
use sinew_operations::served_agents::ServedAgents;
use sinew_operations::workflow_file::{Loaded, Options};
use sinew_protocol::code;

use self::next::{NextCommand, next_command};
use crate::agent_trust::TrustArgs;
use crate::cmd::serve::{self, GatewaySettings, MeshReadiness, MonitoringArgs, Stop, VocabularyArg};
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::output::Output;
use crate::variable_args::VariableArgs;

/// Default port of a NATS server.
const USUAL_PORT: u16 = 4222;
/// Maximum number of copies of a stream: a fourth copy tolerates no more failures than a third.
const MAX_COPIES: usize = 3;
/// Default folder for the data.
const STORE: &str = ".sinew/store";
/// Default folders of agents and workflows, used if they exist.
const AGENTS: &str = "agent-cards";
const WORKFLOWS: &str = "workflows";
/// Time for agents and workflows to announce themselves before the banner is written.
const ONLINE_TIMEOUT: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "Examples:
  sinew dev
  sinew dev --workflows examples/orders --agents examples/orders/agent-cards
  sinew dev --reload                           # the next execution uses saved workflows and agents
  sinew dev --ephemeral --port 4333
  sinew dev --push-to-private-addresses        # webhooks may be on this machine
  sinew dev --servers 3 --store cluster        # three servers, each with a copy of all data
  sinew dev --nats nats://localhost:4222       # on a running server";

/// Arguments of `sinew dev`.
#[derive(Args, Debug)]
#[command(
    long_about = "Start a development mesh in one process: a NATS server, an executor, ready-made agents and \
                  workflows. The mesh is persistent: executions continue after the next start.\n\n\
                  The server listens on this machine only, with a password that commands in this folder read \
                  from .sinew/dev.json. Programs in other folders and languages connect with the variables \
                  in .sinew/dev.env. Ctrl-C shuts down gracefully and hands over running work; a second \
                  Ctrl-C stops at once.",
    after_help = EXAMPLES
)]
pub(crate) struct DevArgs {
    /// Folder for the data [default: .sinew/store]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    store: Option<PathBuf>,
    /// Do not persist data
    #[arg(long)]
    ephemeral: bool,
    /// Number of NATS servers, each with a copy of all data [default: as created in the folder; 1 for a new one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    servers: Option<u8>,
    /// Port of the NATS server, 0 for a free port [default: 4222, or a free port if 4222 is in use]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Port of the HTTP gateway [default: 8234, or a free port if 8234 is in use]
    #[arg(long, value_name = "PORT")]
    gateway_port: Option<u16>,
    /// Serve the agents in these files and folders [default: agent-cards/, if it exists]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    agents: Vec<PathBuf>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Deploy the workflows in these files and folders [default: workflows/, if it exists]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    workflows: Vec<PathBuf>,
    /// Redeploy workflows and reload agents when their files change
    #[arg(long)]
    reload: bool,
    /// Vocabulary of messages to agents and callers [default: that of the mesh]
    #[arg(long, value_enum, hide_short_help = true)]
    vocabulary: Option<VocabularyArg>,
    /// Add the result object of the dialect to the tasks of workflows (`metadata.native_result`): every caller
    /// of a workflow can then read the outputs of all its nodes
    #[arg(long, hide_short_help = true)]
    native_results: bool,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten, next_help_heading = "Gateway options")]
    gateway: GatewaySettings,
    #[command(flatten)]
    monitoring: MonitoringArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// Runs the command.
pub(crate) fn dev(args: &DevArgs, output: &Output) -> Result<Exit, Failure> {
    if args.mesh.dev.is_some() {
        return Err(Failure::usage("--dev names a running `sinew dev`; this command starts one"));
    }
    if args.mesh.nats.is_some()
        && (args.store.is_some() || args.ephemeral || args.port.is_some() || args.servers.is_some())
    {
        return Err(Failure::usage(
            "--store, --ephemeral, --servers and --port configure the built-in server, which --nats replaces",
        ));
    }
    block(start(args, output))
}

async fn start(args: &DevArgs, output: &Output) -> Result<Exit, Failure> {
    let options = Options { variables: args.variables.rules()?, ..Options::default() };
    let gateway_options = GatewayOptions { console: Some(ConsoleMode::Full), ..args.gateway.options()? };
    // Watch before reading, so that no change is missed.
    let mut watch = args
        .reload
        .then(|| FileWatch::of(named_or(&args.workflows, WORKFLOWS), named_or(&args.agents, AGENTS)));
    let loaded = read_workflows(args, &options)?;
    let (agents, ready_made) = read_agents(args)?;
    // With --reload, later changes come from the author, so they need no further confirmation.
    args.trust.check(&agents, &args.agents, |_| true, output)?;
    let stop = Stop::listen()?;
    let readiness = MeshReadiness::default();
    let telemetry = args.monitoring.start("dev", None, readiness.check(), output).await?;
    let (mut server, mesh_at) = if args.mesh.nats.is_some() {
        (None, args.mesh.clone())
    } else {
        let password = server_password(store_of(args).as_deref())?;
        let server = server(args, &password, output).await?;
        let at = Connection {
            nats: Some(server.url()),
            user: Some(SERVER_USER.to_owned()),
            dev_password: Some(password),
            ..args.mesh.clone()
        };
        (Some(server), at)
    };
    let mesh = mesh_at.open("dev").await?;
    let replicas = server.as_ref().map(|server| server.members().len().min(MAX_COPIES));
    mesh.admin().provision(&Provision { replicas, ..Provision::default() }).await?;
    let deployed = deployment::deploy_all(&mesh, &loaded).await?;
    let service = start_service(&mesh, args).await?;
    let gateway = start_gateway(&mesh, gateway_options, args, output).await?;
    let note = server.as_ref().and_then(|server| {
        let ports = server.members().iter().map(Server::port).collect();
        DevNote::write(ports, mesh.namespace(), mesh_at.dev_password.as_deref().unwrap_or_default())
    });
    let names: Vec<String> = agents.names().map(str::to_owned).collect();
    let own: Vec<String> = names.iter().filter(|name| !ready_made.contains(name)).cloned().collect();
    let mut serving = ServedAgents::serve(&mesh, &agents, &stop.token);
    let workflows: Vec<String> = deployed.into_iter().map(|one| one.deployed.name).collect();
    // Print the banner only when the next command can find what it lists.
    tokio::select! {
        () = wait_until_online(&mesh, names.iter().chain(&workflows)) => {}
        () = stop.asked() => {}
    }
    readiness.begin(mesh.clone());
    let banner = DevBanner {
        args,
        url: mesh_at.nats.clone().unwrap_or_default(),
        namespace: mesh.namespace(),
        card: serve::card_address(&gateway),
        tools: serve::tools_address(&gateway),
        console: serve::console_address(&gateway),
        server: server.as_ref(),
        env_file: note.as_ref().map(DevNote::env_file),
        agents: &own,
        ready_made: &ready_made,
        workflows: &workflows,
        next: next_command(&loaded, &agents),
    };
    banner.say(output);
    let failed = loop {
        tokio::select! {
            () = stop.asked() => break None,
            failed = serving.failure() => {
                stop.token.cancel();
                break Some(failed);
            }
            change = next_change(watch.as_mut()) => {
                let done = match change {
                    FileChange::Workflows => redeploy(&mesh, args, &options, output).await,
                    FileChange::Agents => read_agents(args).map(|(agents, _)| {
                        serving.replace(&mesh, &agents, &stop.token);
                        output.note(&format!("serving agents: {}", list_names(agents.names())));
                    }),
                };
                if let Err(failure) = done {
                    tell_refused_change(change, &failure, output);
                }
            }
        }
    };
    output.note("shutting down gracefully (press Ctrl-C again to stop at once)");
    telemetry.drain();
    gateway.drain().await;
    serving.stopped().await;
    service.drain().await;
    readiness.end();
    drop(mesh);
    if let Some(server) = &mut server {
        server.stop().await?;
    }
    serve::end(telemetry).await;
    failed.map_or(Ok(Exit::Ok), Err)
}

/// Starts an executor in this process.
async fn start_service(mesh: &Mesh, args: &DevArgs) -> Result<Service, Failure> {
    let options = ServiceOptions {
        calls: Some(mesh_operator::built_in_workflow),
        vocabulary: args.vocabulary.map(Into::into),
        native_results: args.native_results,
        ..ServiceOptions::new(mesh_operator::adapter)
    };
    Ok(Service::start(mesh.clone(), options).await?)
}

/// Serves the mesh over HTTP, to this machine only. A port in use is an error only if it was requested.
async fn start_gateway(
    mesh: &Mesh,
    options: GatewayOptions,
    args: &DevArgs,
    output: &Output,
) -> Result<Gateway, Failure> {
    let start = |port: u16| {
        let listen = (Ipv4Addr::LOCALHOST, port).into();
        Gateway::start(mesh.clone(), GatewayOptions { listen, ..options.clone() })
    };
    match start(args.gateway_port.unwrap_or(DEFAULT_PORT)).await {
        Err(GatewayError::Listen { .. }) if args.gateway_port.is_none() => {
            output.note(&format!("port {DEFAULT_PORT} is in use; the gateway uses another port"));
            start(0).await.map_err(serve::gateway_failure)
        }
        started => started.map_err(serve::gateway_failure),
    }
}

/// Reports why changed files are not used.
fn tell_refused_change(change: FileChange, failure: &Failure, output: &Output) {
    output.failure(failure);
    output.note(match change {
        FileChange::Workflows => "nothing was deployed; the previous versions remain",
        FileChange::Agents => "no agent was changed; the previous agents keep running",
    });
}

/// Waits for a change of files; forever without --reload.
async fn next_change(watch: Option<&mut FileWatch>) -> FileChange {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

/// Reads the given workflows, or those of the default folder.
fn read_workflows(args: &DevArgs, options: &Options) -> Result<Vec<Loaded>, Failure> {
    match places(&args.workflows, WORKFLOWS).as_slice() {
        [] => Ok(Vec::new()),
        paths => deployment::read_workflows(paths, options),
    }
}

/// Reads the given agents, or those of the default folder, and adds the ready-made ones. Also returns
/// the names of the ready-made ones.
fn read_agents(args: &DevArgs) -> Result<(AgentSet, Vec<String>), Failure> {
    let mut agents = AgentSet::load_paths(&places(&args.agents, AGENTS)).map_err(Failure::diagnostics)?;
    let ready_made = add_ready_made(&mut agents)?;
    Ok((agents, ready_made))
}

async fn redeploy(mesh: &Mesh, args: &DevArgs, options: &Options, output: &Output) -> Result<(), Failure> {
    let loaded = read_workflows(args, options)?;
    for one in
        deployment::deploy_all(mesh, &loaded).await?.iter().map(|one| &one.deployed).filter(|one| one.new)
    {
        output.note(&format!("deployed {}@{}", one.name, words::short(&one.version)));
    }
    Ok(())
}

/// Waits until these names are online on the mesh, up to a timeout.
async fn wait_until_online<'a>(mesh: &Mesh, names: impl Iterator<Item = &'a String>) {
    let cards = mesh.cards().follow();
    let all = async {
        cards.ready().await;
        for name in names {
            cards.wait_for(name).await;
        }
    };
    let _ = tokio::time::timeout(ONLINE_TIMEOUT, all).await;
}

/// Returns the given paths, else the default folder if it exists.
fn places(named: &[PathBuf], usual: &str) -> Vec<PathBuf> {
    match named {
        [] if !Path::new(usual).is_dir() => Vec::new(),
        named => named_or(named, usual),
    }
}

/// Returns the given paths, else the default folder.
fn named_or(named: &[PathBuf], usual: &str) -> Vec<PathBuf> {
    if named.is_empty() { vec![PathBuf::from(usual)] } else { named.to_vec() }
}

fn list_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns the folder for the data; `None` if no data is kept.
fn store_of(args: &DevArgs) -> Option<PathBuf> {
    (!args.ephemeral).then(|| args.store.clone().unwrap_or_else(|| PathBuf::from(STORE)))
}

async fn server(args: &DevArgs, password: &str, output: &Output) -> Result<ServerGroup, Failure> {
    let store = store_of(args);
    if let Some(store) = &store {
        keep_state_private(store).map_err(|error| Failure::unreadable(store, &error))?;
    }
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, USUAL_PORT)).is_ok();
    let port = match args.port {
        // nats-server reads 0 as its default port.
        Some(0) => None,
        Some(port) => Some(port),
        None => free.then_some(USUAL_PORT),
    };
    if args.port.is_none() && !free {
        output.note(&format!("port {USUAL_PORT} is in use; the NATS server uses another port"));
    }
    let password = Some(password.to_owned());
    let options = ServerOptions { store, port, password, ..ServerOptions::default() };
    let server = ServerGroup::start(options, args.servers.map(usize::from)).await;
    server.map_err(|error| {
        let failure = Failure::from(error);
        if failure.code == code::NO_NATS_SERVER_FOUND.as_str() {
            failure.hint("install one with deploy/get-nats.sh, or name a running one with --nats")
        } else {
            failure
        }
    })
}

/// Started services, and the next commands to type.
struct DevBanner<'a> {
    args: &'a DevArgs,
    url: String,
    namespace: &'a str,
    /// Address of the card of the mesh.
    card: String,
    /// Address of the tools of the mesh.
    tools: String,
    /// Address of the console.
    console: String,
    server: Option<&'a ServerGroup>,
    /// File with the variables that connect other programs.
    env_file: Option<PathBuf>,
    agents: &'a [String],
    /// Agents that ship with Sinew.
    ready_made: &'a [String],
    workflows: &'a [String],
    /// The command to run next, without the address of the mesh.
    next: NextCommand,
}

impl DevBanner<'_> {
    fn say(&self, output: &Output) {
        let store = match (self.server, self.args.ephemeral) {
            (None, _) => None,
            (Some(_), true) => Some("none (--ephemeral)".to_owned()),
            (Some(server), false) => {
                Some(format!("{} (--ephemeral stores nothing)", server.store().display()))
            }
        };
        let document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "nats": self.url,
            "namespace": self.namespace,
            "env_file": self.env_file,
            "console": self.console,
            "gateway": self.card,
            "tools": self.tools,
            "managed": self.server.is_some(),
            "persistent": self.server.map(|_| !self.args.ephemeral),
            "store": self.server.map(ServerGroup::store),
            "log": self.server.and_then(|server| server.members().first()).map(Server::log),
            "servers": self.server.map(|server| server.members().iter().map(Server::url).collect::<Vec<_>>()),
            "agents": self.agents,
            "ready_made": self.ready_made,
            "workflows": self.workflows,
        });
        output.value(&document, |_| {
            let list = |names: &[String], none: &str| match names {
                [] => none.to_owned(),
                names => words::name(&format!("{}: {}", names.len(), names.join(", "))),
            };
            let by = if self.server.is_some() { "started by sinew" } else { "external" };
            let mut lines = vec![
                format!("sinew {}   namespace {}", env!("CARGO_PKG_VERSION"), self.namespace),
                format!("NATS         {} ({by})", self.url),
            ];
            if let Some(file) = &self.env_file {
                lines.push(format!("Variables    {} (to connect other programs)", file.display()));
            }
            lines.push(format!("Console      {}", self.console));
            lines.push(format!("Gateway      {}", self.card));
            lines.push(format!("Tools        {} (MCP)", self.tools));
            if let (Some(store), Some(server)) = (store, self.server) {
                lines.push(format!("Persistence  {store}"));
                lines.extend(
                    server.members().iter().map(|member| format!("Server log   {}", member.log().display())),
                );
            }
            lines.push(format!(
                "Agents       {}",
                list(self.agents, "none; add one with `sinew serve agent FILE`")
            ));
            lines.push(format!("Ready-made   {}", list(self.ready_made, "none")));
            lines.push(format!(
                "Workflows    {}",
                list(self.workflows, "none; add one with `sinew workflow deploy FILE`")
            ));
            lines.push(format!("Next         {}", self.next()));
            lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
        });
    }

    fn next(&self) -> String {
        let first = self.url.split(',').next().unwrap_or_default();
        // Commands in this folder find a built-in server through the dev note.
        let is_found = self.env_file.is_some() || first.ends_with(&format!(":{USUAL_PORT}"));
        let at = if is_found { "--mesh".to_owned() } else { format!("--nats {first}") };
        words::name(&self.next.line(&at))
    }
}
