//! `sinew serve bridge`: outside agents of A2A as agents of the mesh.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use sinew_bridge::{BridgeError, BridgeSettings, serve_bridges};
use sinew_operations::deployment::refuse_names_of_workflows;
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_protocol::{Token, code};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{Care, MeshReadiness, Stop, wait_until_announced};
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew serve bridge translator.bridge.yaml
  sinew serve bridge https://agents.example.com/translator     # an agent without credentials
  sinew schema bridge";

/// Longest wait for the cards of all outside agents before the process is ready.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of `sinew serve bridge`.
#[derive(Args, Debug)]
#[command(
    long_about = "Serve agents outside, of A2A 1.0 by JSON-RPC or HTTP+JSON, as agents of the mesh. Each file (NAME.bridge.yaml) or \
                  address names one: its card is fetched, announced, and refreshed; a task becomes a task of the outside agent, \
                  whose id is recorded before it is waited for. So any bridge of the same name takes it up after a death, and no \
                  message is sent twice. Credentials come from variables and files that the bridge file names. An agent whose card cannot \
                  be had or used is logged and tried again, while the others are served.\n\nOn SIGTERM it \
                  takes nothing new and gives tasks that take long to other bridges of the name; the outside tasks go on.",
    after_help = EXAMPLES
)]
pub(crate) struct BridgeArgs {
    /// Bridge files, or addresses of agents or their cards
    #[arg(value_name = "FILE|URL", required = true)]
    agents: Vec<String>,
    #[command(flatten)]
    care: Care,
    #[command(flatten)]
    mesh: Connection,
}

/// Serves until told to stop.
pub(super) async fn serve(args: &BridgeArgs, output: &Output) -> Result<Exit, Failure> {
    let settings = args.agents.iter().map(|agent| settings_of(agent)).collect::<Result<Vec<_>, _>>()?;
    refuse_names_twice(&settings)?;
    let stop = Stop::listen()?;
    let readiness = MeshReadiness::default();
    let telemetry = args.care.begin("bridge", None, readiness.check(), output).await?;
    let starting = async {
        let mesh = args.mesh.open("agent").await?;
        mesh.admin().layout().await?;
        Ok::<_, Failure>(mesh)
    };
    let mesh = tokio::select! { biased;
        mesh = starting => mesh?,
        // A broker that does not answer must not keep a process from ending.
        () = stop.asked() => {
            super::end(telemetry).await;
            return Ok(Exit::Ok);
        }
    };
    let (admitted, mut names) = mpsc::unbounded_channel();
    let (own, agents) = (mesh.clone(), settings.len());
    let admit = move |name: String| {
        let (mesh, admitted) = (own.clone(), admitted.clone());
        async move {
            let refused = refuse_names_of_workflows(&mesh, std::iter::once(name.as_str())).await;
            refused.map_err(|failure| failure.message)?;
            let _ = admitted.send(Token::of(&name));
            Ok(())
        }
    };
    let own = mesh.clone();
    let _announced = AbortOnDropHandle::new(tokio::spawn(async move {
        let all = async {
            for _ in 0..agents {
                let Some(name) = names.recv().await else { return };
                wait_until_announced(&own, &name).await;
            }
        };
        // An outside agent that is away keeps the others from callers no longer than this.
        let _ = tokio::time::timeout(ANNOUNCEMENT_TIMEOUT, all).await;
        readiness.begin(own);
    }));
    let (served, ()) = tokio::join!(serve_bridges(settings, mesh, admit, stop.token.clone()), async {
        stop.asked().await;
        telemetry.drain();
    });
    super::end(telemetry).await;
    served.map(|()| Exit::Ok).map_err(bridge_failure)
}

fn settings_of(agent: &str) -> Result<BridgeSettings, Failure> {
    if agent.contains("://") {
        return BridgeSettings::of_address(agent).map_err(bridge_failure);
    }
    BridgeSettings::load(Path::new(agent)).map_err(Failure::diagnostics)
}

fn refuse_names_twice(settings: &[BridgeSettings]) -> Result<(), Failure> {
    let mut names: Vec<&str> = settings.iter().filter_map(BridgeSettings::name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => {
            let text = format!("two of the agents are named {}", pair[0]);
            let failure = Failure::new(FailureKind::Usage, code::BRIDGE_FILE_NOT_VALID.as_str(), text);
            Err(failure.hint("give one of them another name in a bridge file"))
        }
    }
}

fn bridge_failure(error: BridgeError) -> Failure {
    let kind = match error {
        BridgeError::Mesh(error) => return error.into(),
        BridgeError::Setting { .. } | BridgeError::Interface { .. } => FailureKind::Usage,
        BridgeError::Untrusted { .. } | BridgeError::Credentials { .. } => FailureKind::Denied,
        _ => FailureKind::Failed,
    };
    Failure::new(kind, known(error.code()), error.to_string())
}
