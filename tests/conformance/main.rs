//! A gateway that conformance suites of A2A and MCP can judge, in one process: a NATS server, a mesh, the agents that the
//! suites ask for, and the gateway in front of them.
//!
//! `cargo run -p sinew-gateway --example conformance [-- PORT]`; README.md says how the suites are run.

#![expect(clippy::print_stdout, reason = "the addresses are for the person who runs it")]

mod scenario_agent;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;

use scenario_agent::ScenarioAgent;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_gateway::{DEFAULT_PORT, Gateway, GatewayOptions, ReachableAddresses};
use sinew_mesh::connect::Connect;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, Provision};

/// Agent that gets messages to the mesh which name none.
const DEFAULT_AGENT: &str = "tck";

/// Agents that the suites need beside `tck`, which does everything else.
const TOOL_AGENTS: [&str; 12] = [
    "greet",
    "slow_compute",
    "failing_job",
    "json_schema_2020_12_tool",
    "test_custom_headers",
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_progress",
];

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
    for name in TOOL_AGENTS.into_iter().chain([DEFAULT_AGENT]) {
        ScenarioAgent::serve(connect(&server.url(), name).await?, name).await?;
    }
    let mut options = GatewayOptions::new(adapters);
    options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // The suites' webhooks are on this machine.
    options.push_addresses = ReachableAddresses::All;
    options.default_agent = Some(DEFAULT_AGENT.to_owned());
    let gateway = Gateway::start(connect(&server.url(), "gateway").await?, options).await?;
    let base = gateway.base_url();
    println!("A2A  {base}  (card: {base}/.well-known/agent-card.json)\nMCP  {base}/mcp\nCtrl-C ends it");
    tokio::signal::ctrl_c().await?;
    gateway.drain().await;
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
