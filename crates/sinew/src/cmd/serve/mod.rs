//! `sinew serve`: runs a service of the mesh until it is stopped, then drains it.

mod agent;
mod bridge;
mod executor;
mod gateway;
mod stop;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, Subcommand};
use sinew_mesh::{Mesh, is_granted};
use sinew_operations::failure::Failure;
use sinew_protocol::Token;
use sinew_telemetry::{ReadinessCheck, Telemetry, TelemetryOptions};
use tokio::runtime::Builder;

use crate::exit::Exit;

pub(crate) use executor::{ExecutorArgs, VocabularyArg};
pub(crate) use gateway::{
    GatewayArgs, GatewaySettings, card_address, console_address, gateway_failure, tools_address,
};
pub(crate) use stop::Stop;

use crate::connect::{block, block_here, new_runtime, telemetry_failure};
use crate::output::Output;

/// Time between two reads of the card of a starting agent.
const CARD_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Time to send the last traces.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Roles.
#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    #[command(about = "Run workflows; executors share the shards of the mesh")]
    Executor(ExecutorArgs),
    #[command(about = "Serve agents from files")]
    Agent(agent::AgentArgs),
    #[command(about = "Serve workflows and agents over HTTP: A2A (JSON-RPC and REST) and MCP tools")]
    Gateway(Box<gateway::GatewayArgs>),
    #[command(about = "Serve external A2A agents as agents of the mesh")]
    Bridge(bridge::BridgeArgs),
}

/// Readiness of a process on a mesh: ready only while it is connected.
#[derive(Clone, Default)]
pub(crate) struct MeshReadiness {
    mesh: Arc<Mutex<Option<Mesh>>>,
}

impl MeshReadiness {
    /// Returns the check for the health port.
    pub(crate) fn check(&self) -> ReadinessCheck {
        let mesh = Arc::clone(&self.mesh);
        Arc::new(move || {
            let mesh = mesh.lock().unwrap_or_else(PoisonError::into_inner);
            let mesh = mesh.as_ref().ok_or_else(|| "the service has not started yet".to_owned())?;
            mesh.connection_problem().map_or(Ok(()), Err)
        })
    }

    /// Marks the process as serving on this mesh, so that the next command finds what it needs.
    pub(crate) fn begin(&self, mesh: Mesh) {
        *self.mesh.lock().unwrap_or_else(PoisonError::into_inner) = Some(mesh);
    }

    /// Marks the process as stopping, and releases its connection.
    pub(crate) fn end(&self) {
        *self.mesh.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Waits until an agent has a card, by which callers find it.
async fn wait_until_announced(mesh: &Mesh, agent: &Token) {
    loop {
        match is_granted(mesh.cards().may_get(agent).await) {
            // Most agents may announce their card but not read it.
            Ok(false) => return,
            Ok(true) if matches!(mesh.cards().get(agent).await, Ok(Some(_))) => return,
            _ => tokio::time::sleep(CARD_CHECK_INTERVAL).await,
        }
    }
}

/// Monitoring of a service.
#[derive(Args, Clone, Debug)]
pub(crate) struct MonitoringArgs {
    /// Serve /healthz, /readyz and /metrics on this port (0 = a free port)
    #[arg(long, value_name = "PORT")]
    health_port: Option<u16>,
    /// Address to serve health and metrics on
    #[arg(long, value_name = "ADDRESS", requires = "health_port", default_value_t = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST))]
    health_address: std::net::IpAddr,
}

/// Runs the command.
pub(crate) fn serve(command: ServeCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        ServeCommand::Executor(args) => executor(&args, output),
        // Agents may use more than one thread.
        ServeCommand::Agent(args) => block(agent::serve(&args, output)),
        ServeCommand::Gateway(args) => gateway(&args, output),
        ServeCommand::Bridge(args) => block(bridge::serve(&args, output)),
    }
}

/// Serves as an executor, on this thread.
pub(crate) fn executor(args: &ExecutorArgs, output: &Output) -> Result<Exit, Failure> {
    block_here(executor::serve(args, output))
}

/// Serves as a gateway: agent calls on this thread, slow work on others.
pub(crate) fn gateway(args: &GatewayArgs, output: &Output) -> Result<Exit, Failure> {
    let pages = new_runtime(&mut Builder::new_multi_thread())?;
    let served = block_here(gateway::serve(args, pages.handle().clone(), output));
    pages.shutdown_background();
    served
}

impl MonitoringArgs {
    /// Starts logging and the health port.
    pub(crate) async fn start(
        &self,
        role: &'static str,
        id: Option<String>,
        ready: ReadinessCheck,
        output: &Output,
    ) -> Result<Telemetry, Failure> {
        let health = self.health_port.map(|port| SocketAddr::new(self.health_address, port));
        let options = TelemetryOptions { id, health, ready, terminal: output.live, color: output.color_err };
        let telemetry = sinew_telemetry::start_service(role, options).await;
        let telemetry = telemetry.map_err(|error| telemetry_failure(&error))?;
        if let Some(address) = telemetry.address() {
            output.note(&format!("health and metrics: http://{address}/readyz"));
        }
        Ok(telemetry)
    }
}

/// Stops the telemetry of a service.
pub(crate) async fn end(telemetry: Telemetry) {
    telemetry.stop(LAST_WORDS).await;
}
