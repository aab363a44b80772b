//! `sinew serve bridge`: serves external A2A agents as agents of the mesh.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use sinew_bridge::{BridgeError, BridgeSettings, serve_bridges};
use sinew_operations::deployment::refuse_names_of_workflows;
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_protocol::{Token, code};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{MeshReadiness, MonitoringArgs, Stop, wait_until_announced};
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew serve bridge translator.bridge.yaml
  sinew serve bridge https://agents.example.com/translator     # an agent that needs no credentials
  sinew schema bridge";

/// Longest wait for the cards of all external agents before the process is ready.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of `sinew serve bridge`.
#[derive(Args, Debug)]
#[command(
    long_about = "Serve external A2A 1.0 agents (JSON-RPC or HTTP+JSON) as agents of the mesh. Each file \
                  (NAME.bridge.yaml) or address names one agent, whose card is fetched, announced and \
                  refreshed. A task becomes a task of the external agent, whose id is recorded before the \
                  bridge waits for it: after a crash, any bridge of the same name resumes it, and no message \
                  is sent twice. Credentials come from variables and files that the bridge file names. If \
                  the card of an agent cannot be fetched or used, the bridge logs this, retries, and serves \
                  the others meanwhile.\n\n\
                  On SIGTERM the bridge drains: it takes no new tasks and hands long-running tasks over to \
                  other bridges of the same name; the external tasks continue.",
    after_help = EXAMPLES
)]
pub(crate) struct BridgeArgs {
    /// Bridge files, or addresses of agents or their cards
    #[arg(value_name = "FILE|URL", required = true)]
    agents: Vec<String>,
    #[command(flatten)]
    monitoring: MonitoringArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// Serves until it is stopped.
pub(super) async fn serve(args: &BridgeArgs, output: &Output) -> Result<Exit, Failure> {
    let settings = args.agents.iter().map(|agent| settings_of(agent)).collect::<Result<Vec<_>, _>>()?;
    refuse_names_twice(&settings)?;
    let stop = Stop::listen()?;
    let readiness = MeshReadiness::default();
    let telemetry = args.monitoring.start("bridge", None, readiness.check(), output).await?;
    let starting = async {
        let mesh = args.mesh.open("agent").await?;
        mesh.admin().layout().await?;
        Ok::<_, Failure>(mesh)
    };
    let mesh = tokio::select! { biased;
        mesh = starting => mesh?,
        // A broker that does not respond must not keep the process from exiting.
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
        // An unreachable external agent delays the readiness of the others no longer than this.
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
            let text = format!("two of the agents have the name {}", pair[0]);
            let failure = Failure::new(FailureKind::Usage, code::BRIDGE_FILE_NOT_VALID.as_str(), text);
            Err(failure.hint("rename one of them in a bridge file"))
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
