//! `sinew serve agent`: serves ready-made agents from files on the mesh.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use sinew_agent::AgentError;
use sinew_operations::deployment::refuse_names_of_workflows;
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_operations::file_agents;
use sinew_operations::served_agents::serve_agent;
use sinew_protocol::{Token, code};
use tokio::task::JoinSet;

use super::{MeshReadiness, MonitoringArgs, Stop, wait_until_announced};
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew serve agent agent-cards/summarise.agent.yaml
  sinew serve agent agent-cards                # all agents in a folder
  sinew agent list --nats nats://localhost:4222";

/// Arguments of `sinew serve agent`.
#[derive(Args, Debug)]
#[command(
    long_about = "Serve agents from files: script, command, http, mcp or model. Each agent \
                  announces its card, takes tasks from its queue and answers A2A calls. Several processes \
                  may serve the same agent and share its work.\n\n\
                  On SIGTERM the agents drain: they take no new tasks, finish tasks in progress and exit.",
    after_help = EXAMPLES
)]
pub(crate) struct AgentArgs {
    /// Agent files, or folders with them
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Use the model of this alias, and no other, in all agents whose files have it
    #[arg(long, value_name = "ALIAS")]
    model: Option<String>,
    #[command(flatten)]
    monitoring: MonitoringArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// Serves until it is stopped.
pub(super) async fn serve(args: &AgentArgs, output: &Output) -> Result<Exit, Failure> {
    let set = file_agents::load(&args.paths, Path::new("./workflow.yaml"))?;
    if set.is_empty() {
        return Err(Failure::new(
            FailureKind::NotFound,
            code::NO_SUCH_AGENT.as_str(),
            "no agent file was found in these paths",
        )
        .hint("their names end with .agent.yaml; `sinew new agent NAME` creates one"));
    }
    if let Some(alias) = &args.model {
        file_agents::choose_model(set.iter(), alias)?;
    }
    sinew_agents::remove_stale_task_folders();
    let stop = Stop::listen()?;
    let readiness = MeshReadiness::default();
    let names: Vec<&str> = set.names().collect();
    let telemetry = args.monitoring.start("agent", Some(names.join(",")), readiness.check(), output).await?;
    let starting = async {
        let mesh = args.mesh.open("agent").await?;
        mesh.admin().layout().await?;
        refuse_names_of_workflows(&mesh, names.iter().copied()).await?;
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
    let mut serving = JoinSet::new();
    for agent in set.iter() {
        serving.spawn(serve_agent(Arc::clone(agent), mesh.clone(), stop.token.clone()));
    }
    tracing::info!(agents = names.join(", "), "serving");
    let announced = {
        let names: Vec<Token> = names.iter().map(|name| Token::of(name)).collect();
        let mesh = mesh.clone();
        tokio::spawn(async move {
            for name in &names {
                wait_until_announced(&mesh, name).await;
            }
            readiness.begin(mesh);
        })
    };
    let mut failed = None;
    while let Some(ended) = serving.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                failed = Some(match error {
                    AgentError::Mesh(error) => error.into(),
                    error => Failure::new(FailureKind::Failed, known(error.code()), error.to_string()),
                });
                stop.token.cancel();
            }
            Err(error) => {
                failed = Some(Failure::new(
                    FailureKind::Failed,
                    code::AGENT_DIED.as_str(),
                    format!("an agent crashed: {error}"),
                ));
                stop.token.cancel();
            }
        }
        telemetry.drain();
    }
    announced.abort();
    super::end(telemetry).await;
    failed.map_or(Ok(Exit::Ok), Err)
}
