//! `sinew serve executor`.

use std::path::PathBuf;

use clap::Args;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_operations::deployment;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator;
use sinew_operations::workflow_file::Options;
use sinew_protocol::Vocabulary;

use super::{MeshReadiness, MonitoringArgs, Stop};
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;
use crate::variable_args::VariableArgs;

const EXAMPLES: &str = "Examples:
  sinew serve executor
  sinew serve executor --workflows flows --health-port 8080
  NATS_URL=nats://nats.example:4222 NATS_CREDS=executor.creds sinew serve executor";

/// Arguments of `sinew serve executor`.
#[derive(Args, Debug)]
#[command(
    long_about = "Run the workflows of a mesh. Any number of executors share its work; if one crashes, the \
                  others take over within seconds, and nothing is lost or done twice. On SIGTERM an executor \
                  hands over its shards and exits; a second signal stops it at once, also without loss.\n\n\
                  The mesh must be provisioned with `sinew mesh provision`.",
    after_help = EXAMPLES
)]
pub(crate) struct ExecutorArgs {
    /// Deploy the workflows in these files and folders first
    #[arg(long, value_name = "PATH", num_args = 1..)]
    workflows: Vec<PathBuf>,
    /// Id of the executor [default: generated]
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// Approximate memory budget for active executions; idle executions are evicted and reloaded on demand
    #[arg(long, value_name = "MIB", default_value_t = 384)]
    memory: usize,
    /// Vocabulary of messages to agents and callers [default: that of the mesh]
    #[arg(long, value_enum, hide_short_help = true)]
    vocabulary: Option<VocabularyArg>,
    /// Add the result object of the dialect to the tasks of workflows (`metadata.native_result`): every caller
    /// of a workflow can then read the outputs of all its nodes
    #[arg(long, hide_short_help = true)]
    native_results: bool,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    monitoring: MonitoringArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// The vocabulary of outgoing messages; incoming messages may use either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum VocabularyArg {
    /// Current releases of Solace Agent Mesh: `structured_invocation_request`, status `error`
    Sam,
    /// The published specification: `workflow_node_request`, status `failure`
    Spec,
}

impl From<VocabularyArg> for Vocabulary {
    fn from(words: VocabularyArg) -> Self {
        match words {
            VocabularyArg::Sam => Self::Current,
            VocabularyArg::Spec => Self::Spec,
        }
    }
}

/// Serves until it is stopped.
pub(super) async fn serve(args: &ExecutorArgs, output: &Output) -> Result<Exit, Failure> {
    let loaded = match args.workflows.as_slice() {
        [] => Vec::new(),
        paths => deployment::read_workflows(
            paths,
            &Options { variables: args.variables.rules()?, ..Options::default() },
        )?,
    };
    let stop = Stop::listen()?;
    let mut options = ServiceOptions::new(mesh_operator::adapter);
    options.calls = Some(mesh_operator::built_in_workflow);
    options.vocabulary = args.vocabulary.map(Into::into);
    options.native_results = args.native_results;
    options.memory_limit_bytes = args.memory.saturating_mul(1024 * 1024);
    if let Some(id) = &args.id {
        options.id.clone_from(id);
    }
    let readiness = MeshReadiness::default();
    let telemetry =
        args.monitoring.start("executor", Some(options.id.clone()), readiness.check(), output).await?;
    let starting = async {
        let mesh = args.mesh.open("executor").await?;
        mesh.admin().verify().await?;
        for one in deployment::deploy_all(&mesh, &loaded)
            .await?
            .iter()
            .map(|one| &one.deployed)
            .filter(|one| one.new)
        {
            tracing::info!(workflow = %one.name, version = %one.version, "deployed");
        }
        Ok::<_, Failure>((Service::start(mesh.clone(), options).await?, mesh))
    };
    let (service, mesh) = tokio::select! { biased;
        started = starting => started?,
        // A broker that does not respond must not keep the process from exiting.
        () = stop.asked() => {
            super::end(telemetry).await;
            return Ok(Exit::Ok);
        }
    };
    readiness.begin(mesh);
    stop.asked().await;
    tracing::info!("draining; a second signal stops the executor at once");
    telemetry.drain();
    service.drain().await;
    super::end(telemetry).await;
    Ok(Exit::Ok)
}
