//! `sinew serve`: a role of the mesh as a process. It runs until it is told to stop, then drains.

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

pub(crate) use executor::{ExecutorArgs, MessageWords};
pub(crate) use gateway::{GatewayArgs, card_address, console_address, gateway_failure, tools_address};
pub(crate) use stop::Stop;

use crate::connect::{block, block_here, new_runtime, telemetry_failure};
use crate::output::Output;

/// Time between two looks for the card of an agent that starts.
const CARD_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How long the last traces may take on their way.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Roles.
#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Run workflows: owns shards of the mesh, shares them with other executors
    Executor(ExecutorArgs),
    /// Serve ready-made agents from files
    Agent(agent::AgentArgs),
    /// Offer workflows and agents over HTTP: A2A by JSON-RPC and REST, tools of MCP
    Gateway(Box<gateway::GatewayArgs>),
    /// Serve agents outside, of A2A over HTTP, as agents of the mesh
    Bridge(bridge::BridgeArgs),
}

/// Readiness of a process that works on a mesh: not before it is connected, and not while the connection is away.
#[derive(Clone, Default)]
pub(crate) struct MeshReadiness {
    mesh: Arc<Mutex<Option<Mesh>>>,
}

impl MeshReadiness {
    /// Returns the check that the health port asks.
    pub(crate) fn check(&self) -> ReadinessCheck {
        let mesh = Arc::clone(&self.mesh);
        Arc::new(move || {
            let mesh = mesh.lock().unwrap_or_else(PoisonError::into_inner);
            let mesh = mesh.as_ref().ok_or_else(|| "it has not started yet".to_owned())?;
            mesh.connection_problem().map_or(Ok(()), Err)
        })
    }

    /// Notes that the process serves on this mesh: the next command finds what it needs.
    pub(crate) fn begin(&self, mesh: Mesh) {
        *self.mesh.lock().unwrap_or_else(PoisonError::into_inner) = Some(mesh);
    }

    /// Notes that the process stops, and lets its connection go.
    pub(crate) fn end(&self) {
        *self.mesh.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Waits until an agent has a card: callers find it by that.
async fn wait_until_announced(mesh: &Mesh, agent: &Token) {
    loop {
        match is_granted(mesh.cards().may_get(agent).await) {
            // Most agents may announce their card and not read it.
            Ok(false) => return,
            Ok(true) if matches!(mesh.cards().get(agent).await, Ok(Some(_))) => return,
            _ => tokio::time::sleep(CARD_CHECK_INTERVAL).await,
        }
    }
}

/// How a service is looked after.
#[derive(Args, Clone, Debug)]
pub(crate) struct Care {
    /// Answer /healthz, /readyz and /metrics on this port (0: a free one)
    #[arg(long, value_name = "PORT")]
    health_port: Option<u16>,
    /// Listen for health and metrics there, instead of on this machine only
    #[arg(long, value_name = "ADDRESS", requires = "health_port", default_value_t = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST))]
    health_address: std::net::IpAddr,
}

/// Does what the command line says.
pub(crate) fn serve(command: ServeCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        ServeCommand::Executor(args) => executor(&args, output),
        // Agents may do more than wait.
        ServeCommand::Agent(args) => block(agent::serve(&args, output)),
        ServeCommand::Gateway(args) => gateway(&args, output),
        ServeCommand::Bridge(args) => block(bridge::serve(&args, output)),
    }
}

/// Serves as an executor, on this thread.
pub(crate) fn executor(args: &ExecutorArgs, output: &Output) -> Result<Exit, Failure> {
    block_here(executor::serve(args, output))
}

/// Serves as a gateway: calls of agents on this thread, whatever may take long on others.
pub(crate) fn gateway(args: &GatewayArgs, output: &Output) -> Result<Exit, Failure> {
    let pages = new_runtime(&mut Builder::new_multi_thread())?;
    let served = block_here(gateway::serve(args, pages.handle().clone(), output));
    pages.shutdown_background();
    served
}

impl Care {
    /// Begins to log, and to answer on the health port.
    pub(crate) async fn begin(
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

/// Ends what was begun.
pub(crate) async fn end(telemetry: Telemetry) {
    telemetry.stop(LAST_WORDS).await;
}
