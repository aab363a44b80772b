//! `sinew dev`: a whole mesh in one command: server, executor, agents, workflows.

mod reload;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use sinew_agents::AgentSet;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_mesh::provision::Provision;
use sinew_mesh::server::{Server, ServerOptions};
use tokio::task::JoinSet;

use self::reload::Reload;
use crate::cmd::serve::{self, Care, Stop, wrap};
use crate::cmd::workflow::deploy;
use crate::connect::{self, Connection, block};
use crate::exit::{Exit, Failure, known};
use crate::load::{Options, VariableArgs};
use crate::output::Output;
use crate::views::words;

/// Where a NATS server usually listens.
const USUAL_PORT: u16 = 4222;
/// Where the data are kept when nobody says where.
const STORE: &str = ".sinew/store";
/// Folders that are served when they are there and nobody names others.
const AGENTS: &str = "agent-cards";
const WORKFLOWS: &str = "workflows";

const EXAMPLES: &str = "Examples:
  sinew dev
  sinew dev --workflows examples/orders --agents examples/orders/agent-cards
  sinew dev --reload                           # a saved workflow is what the next execution runs
  sinew dev --ephemeral --port 4333
  sinew dev --nats nats://localhost:4222       # on a server that runs already";

/// Arguments of `sinew dev`.
#[derive(Args, Debug)]
#[command(
    long_about = "Start a mesh for development in one process: a NATS server, an executor, ready-made agents and \
                  workflows. It is persistent: executions go on after the next start.\n\nThe server listens on this \
                  machine only and asks nobody for a password. Ctrl-C hands over what runs and stops everything; a \
                  second one stops at once.",
    after_help = EXAMPLES
)]
pub(crate) struct DevArgs {
    /// Folder for the data [default: .sinew/store]
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    store: Option<PathBuf>,
    /// Keep nothing
    #[arg(long)]
    ephemeral: bool,
    /// Port of the NATS server [default: 4222, or a free one if that is taken]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Serve the agents in these files and folders [default: agent-cards/, if it is there]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    agents: Vec<PathBuf>,
    /// Deploy the workflows in these files and folders [default: workflows/, if it is there]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    workflows: Vec<PathBuf>,
    /// Deploy workflows again when their files change
    #[arg(long)]
    reload: bool,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    care: Care,
    #[command(flatten)]
    mesh: Connection,
}

/// Does what the command line says.
pub(crate) fn dev(args: &DevArgs, output: &Output) -> Result<Exit, Failure> {
    if args.mesh.nats.is_some() && (args.store.is_some() || args.ephemeral || args.port.is_some()) {
        return Err(Failure::usage(
            "--store, --ephemeral and --port are for a server of our own; --nats names another",
        ));
    }
    block(start(args, output))
}

async fn start(args: &DevArgs, output: &Output) -> Result<Exit, Failure> {
    let paths = places(&args.workflows, WORKFLOWS);
    let options = Options { variables: args.variables.rules()?, ..Options::default() };
    // Before they are read: what is saved from now on is seen.
    let reload = args.reload.then(|| Reload::of(paths.clone(), options.clone()));
    let loaded = match paths.as_slice() {
        [] => Vec::new(),
        paths => deploy::read(paths, &options)?,
    };
    let agents = match places(&args.agents, AGENTS) {
        paths if paths.is_empty() => AgentSet::default(),
        paths => AgentSet::load_paths(&paths).map_err(Failure::diagnostics)?,
    };
    let stop = Stop::listen()?;
    let telemetry = args.care.begin("dev", None, Arc::new(|| Ok(())), output).await?;
    let (mut server, mesh_at) = if args.mesh.nats.is_some() {
        (None, args.mesh.clone())
    } else {
        let server = server(args, output).await?;
        let at = Connection { nats: Some(server.url()), ..args.mesh.clone() };
        (Some(server), at)
    };
    let mesh = mesh_at.open("dev").await?;
    mesh.provision(&Provision::default()).await?;
    let deployed = deploy::all(&mesh, &loaded).await?;
    let service = Service::start(mesh.clone(), ServiceOptions::new(connect::adapter)).await?;
    let mut serving = JoinSet::new();
    for agent in agents.iter() {
        serving.spawn(wrap(agent).serve(mesh.clone(), stop.token.clone()));
    }
    let names: Vec<String> = agents.names().map(str::to_owned).collect();
    let workflows: Vec<String> = deployed.into_iter().map(|one| one.name).collect();
    let banner = Banner {
        args,
        url: mesh_at.nats.clone().unwrap_or_default(),
        namespace: mesh.namespace(),
        server: server.as_ref(),
        agents: &names,
        workflows: &workflows,
    };
    banner.say(output);
    let mut reload = Box::pin(async {
        if let Some(reload) = reload {
            reload.follow(&mesh, output).await;
        }
        std::future::pending::<()>().await;
    });
    let mut failed = None;
    loop {
        tokio::select! {
            () = stop.asked() => break,
            () = &mut reload => {}
            Some(ended) = serving.join_next(), if !serving.is_empty() => {
                if let Ok(Err(error)) = ended {
                    failed = Some(Failure::new(Exit::Failed, known(error.code()), error.to_string()));
                    stop.token.cancel();
                }
            }
        }
    }
    drop(reload);
    output.note("stopping: what runs is handed over (a second Ctrl-C stops at once)");
    telemetry.drain();
    while serving.join_next().await.is_some() {}
    service.drain().await;
    drop(mesh);
    if let Some(server) = &mut server {
        server.stop().await?;
    }
    serve::end(telemetry).await;
    failed.map_or(Ok(Exit::Ok), Err)
}

/// What was named, else the usual folder if it is there.
fn places(named: &[PathBuf], usual: &str) -> Vec<PathBuf> {
    match named {
        [] if Path::new(usual).is_dir() => vec![PathBuf::from(usual)],
        named => named.to_vec(),
    }
}

async fn server(args: &DevArgs, output: &Output) -> Result<Server, Failure> {
    let store = (!args.ephemeral).then(|| args.store.clone().unwrap_or_else(|| PathBuf::from(STORE)));
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, USUAL_PORT)).is_ok();
    let port = args.port.or_else(|| free.then_some(USUAL_PORT));
    if port.is_none() {
        output.note(&format!("port {USUAL_PORT} is taken; another is used"));
    }
    let server = Server::start(ServerOptions { store, port, ..ServerOptions::default() }).await;
    server.map_err(|error| {
        let failure = Failure::from(error);
        if failure.code == sinew_protocol::code::NO_NATS_SERVER_FOUND.as_str() {
            return failure.hint("install one with deploy/get-nats.sh, or name a running one with --nats");
        }
        failure
    })
}

/// What was started, and what to type next.
struct Banner<'a> {
    args: &'a DevArgs,
    url: String,
    namespace: &'a str,
    server: Option<&'a Server>,
    agents: &'a [String],
    workflows: &'a [String],
}

impl Banner<'_> {
    fn say(&self, output: &Output) {
        let store = match (self.server, self.args.ephemeral) {
            (None, _) => None,
            (Some(_), true) => Some("none (--ephemeral)".to_owned()),
            (Some(server), false) => {
                Some(format!("{} (--ephemeral to keep nothing)", server.store().display()))
            }
        };
        let document = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "nats": self.url,
            "namespace": self.namespace,
            "managed": self.server.is_some(),
            "persistent": self.server.map(|_| !self.args.ephemeral),
            "store": self.server.map(Server::store),
            "log": self.server.map(Server::log),
            "agents": self.agents,
            "workflows": self.workflows,
        });
        output.value(&document, |_| {
            let list = |names: &[String], none: &str| match names {
                [] => none.to_owned(),
                names => words::name(&format!("{}: {}", names.len(), names.join(", "))),
            };
            let by = if self.server.is_some() { "started by sinew" } else { "not ours" };
            let mut lines = vec![
                format!("sinew {}   namespace {}", env!("CARGO_PKG_VERSION"), self.namespace),
                format!("NATS         {} ({by})", self.url),
            ];
            if let (Some(store), Some(server)) = (store, self.server) {
                lines.push(format!("Persistence  {store}"));
                lines.push(format!("Server log   {}", server.log().display()));
            }
            lines.push(format!(
                "Agents       {}",
                list(self.agents, "none; `sinew serve agent FILE` adds some")
            ));
            lines.push(format!(
                "Workflows    {}",
                list(self.workflows, "none; `sinew workflow deploy FILE` adds some")
            ));
            lines.push(format!("Next         {}", self.next()));
            lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
        });
    }

    fn next(&self) -> String {
        // A server at the usual place needs not be named, as far as Sinew is concerned.
        let usual = self.url.ends_with(&format!(":{USUAL_PORT}"));
        let at = if usual { "--mesh".to_owned() } else { format!("--nats {}", self.url) };
        let what = self.workflows.first().map_or("FILE.yaml", String::as_str);
        words::name(&format!("sinew run {} {at} --watch", words::shell(what)))
    }
}
