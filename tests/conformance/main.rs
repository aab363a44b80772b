//! A gateway that conformance suites of A2A and MCP can judge, in one process: a NATS server, a mesh, the agents that the
//! suites ask for, and the gateway in front of them.
//!
//! `cargo run -p sinew-gateway --example conformance [-- PORT]`; README.md says how the suites are run.

#![expect(clippy::print_stdout, reason = "the addresses are for the person who runs it")]

mod scenario_agent;
mod scenarios;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;

use scenario_agent::ScenarioAgent;
use scenarios::agent_scenarios;
use sinew_agents::AgentSet;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_gateway::{DEFAULT_PORT, Gateway, GatewayOptions, GrpcAddressForm, ReachableAddresses};
use sinew_mesh::connect::Connect;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, Provision};
use sinew_operations::served_agents::ServedAgents;
use tokio_util::sync::CancellationToken;

/// Agent that gets messages to the mesh which name none.
const DEFAULT_AGENT: &str = "tck";

/// Agent files beside this file.
const AGENT_FILES: &str = "../../tests/conformance/agents";

fn adapters(name: &str) -> Option<&'static dyn sinew_engine::Adapter> {
    sinew_dialects::by_name(name).map(sinew_dialects::Dialect::adapter)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = std::env::args().nth(1).map_or(Ok(DEFAULT_PORT), |port| port.parse())?;
    // A provider that another library installed is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/get-nats.sh");
    let program = Some(Server::find_or_install(&script)?);
    let server = Server::start(ServerOptions { program, ..ServerOptions::default() }).await?;
    let mesh = connect(&server.url(), "provision").await?;
    mesh.admin().provision(&Provision { shards: NonZeroU32::new(1), ..Provision::default() }).await?;
    let executor = connect(&server.url(), "executor").await?;
    let service = Service::start(executor, ServiceOptions::new(adapters)).await?;
    ScenarioAgent::serve(connect(&server.url(), DEFAULT_AGENT).await?, DEFAULT_AGENT, None).await?;
    for scenario in agent_scenarios()? {
        let name = scenario.name.clone();
        ScenarioAgent::serve(connect(&server.url(), &name).await?, &name, Some(scenario)).await?;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(AGENT_FILES);
    let agents = AgentSet::load_paths(&[folder]).map_err(|found| format!("{found:?}"))?;
    let stop = CancellationToken::new();
    let mut served = ServedAgents::serve(&connect(&server.url(), "files").await?, &agents, &stop);
    let mut options = GatewayOptions::new(adapters);
    options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // The suites' webhooks are on this machine.
    options.push_addresses = ReachableAddresses::All;
    options.default_agent = Some(DEFAULT_AGENT.to_owned());
    // The suite of A2A finds its transports on the card.
    options.grpc_on_cards = Some(GrpcAddressForm::Authority);
    let gateway = Gateway::start(connect(&server.url(), "gateway").await?, options).await?;
    let base = gateway.base_url();
    println!("A2A  {base}  (card: {base}/.well-known/agent-card.json)\nMCP  {base}/mcp\nCtrl-C ends it");
    tokio::signal::ctrl_c().await?;
    gateway.drain().await;
    stop.cancel();
    served.stopped().await;
    service.drain().await;
    Ok(())
}

async fn connect(url: &str, caller: &str) -> Result<Mesh, sinew_mesh::MeshError> {
    let connect = Connect {
        url: Some(url.to_owned()),
        namespace: Some("conformance".to_owned()),
        caller: Some(caller.to_owned()),
        ..Connect::default()
    };
    connect.open().await
}
