//! `sinew mcp`: serves workflows and agents of a mesh as MCP tools over standard input and output.

mod host_config;

use clap::{Args, Subcommand};
use sinew_gateway::{GatewayOptions, ToolMode, serve_mcp_stdio};
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::adapter;
use sinew_telemetry::TelemetryOptions;

use self::host_config::{HostConfigArgs, print_host_config};
use crate::cmd::serve::{self, Stop};
use crate::connect::{Connection, block, telemetry_failure};
use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew mcp                                  # usually started by a host
  sinew mcp --expose 'orders-*' --nats nats://localhost:4222
  sinew mcp config claude-desktop            # print the configuration for a host
  sinew mcp config vscode --url http://127.0.0.1:8234/mcp";

/// Arguments of `sinew mcp`.
#[derive(Args, Debug)]
#[command(
    long_about = "Serve the workflows and agents of a mesh as tools of the Model Context Protocol over \
                  standard input and output, for Claude Desktop, editors and other hosts that start this \
                  command. A gateway serves the same tools over HTTP at /mcp.\n\n\
                  A workflow continues when its host disconnects; only a cancellation by the host cancels \
                  it.",
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    command: Option<McpCommand>,
    /// Expose only workflows and agents whose names match; `*` matches any text. May be repeated
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    expose: Vec<String>,
    /// Tools in the list of the host: `auto` (all up to 40, else tools that search), `all`, `find`, or names and
    /// patterns with commas between them
    #[arg(long, value_name = "MODE", default_value = "auto")]
    tools: ToolMode,
    #[command(flatten)]
    mesh: Connection,
}

/// Commands other than serving.
#[derive(Debug, Subcommand)]
enum McpCommand {
    #[command(about = "Print the configuration with which a host starts `sinew mcp`")]
    Config(HostConfigArgs),
}

/// Serves, or prints the configuration of a host.
pub(crate) fn mcp(args: &McpArgs, output: &Output) -> Result<Exit, Failure> {
    match &args.command {
        Some(McpCommand::Config(config)) => print_host_config(config, output),
        None => block(serve_pipes(args, output)),
    }
}

async fn serve_pipes(args: &McpArgs, output: &Output) -> Result<Exit, Failure> {
    let stop = Stop::listen()?;
    let options = TelemetryOptions {
        id: None,
        health: None,
        ready: std::sync::Arc::new(|| Ok(())),
        terminal: output.live,
        color: output.color_err,
    };
    let telemetry = sinew_telemetry::start_service("mcp", options).await;
    let telemetry = telemetry.map_err(|error| telemetry_failure(&error))?;
    let options = GatewayOptions {
        expose: args.expose.clone(),
        mcp_tools: args.tools.clone(),
        ..GatewayOptions::new(adapter)
    };
    let serving = async {
        let mesh = args.mesh.open("mcp").await?;
        let served = serve_mcp_stdio(mesh, options, stop.token.clone()).await;
        served.map_err(serve::gateway_failure)
    };
    let served = tokio::select! {
        biased;
        served = serving => served,
        // A broker that does not respond must not keep the process from exiting.
        () = stop.asked() => Ok(()),
    };
    serve::end(telemetry).await;
    served.map(|()| Exit::Ok)
}
