//! MCP over a pair of pipes, for hosts that start a server themselves.

use std::sync::Arc;

use rmcp::service::{RoleServer, ServerInitializeError, serve_server_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;
use sinew_executor::client::Client;
use sinew_mesh::Mesh;
use sinew_operations::catalogue_records::CatalogueRecords;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio_util::sync::CancellationToken;

use super::drain_tokens::DrainTokens;
use super::handler::McpHandler;
use super::long_lines;
use super::shared_state::McpShared;
use crate::access::CallerIdentity;
use crate::error::GatewayError;
use crate::operations::{A2aOperations, short};
use crate::options::GatewayOptions;

/// Serves the workflows and agents of a mesh as tools over standard input and output, until the
/// client closes them or `stop` is cancelled. Unfinished tasks continue.
pub async fn serve_mcp_stdio(
    mesh: Mesh,
    options: GatewayOptions,
    stop: CancellationToken,
) -> Result<(), GatewayError> {
    let (reader, writer) = stdio_pipes();
    Box::pin(serve_mcp(mesh, options, (reader, writer), stop)).await
}

/// Serves over any pair of pipes, for requests and responses.
pub async fn serve_mcp<R, W>(
    mesh: Mesh,
    options: GatewayOptions,
    (reader, writer): (R, W),
    stop: CancellationToken,
) -> Result<(), GatewayError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let caller = CallerIdentity::own(mesh.caller().clone());
    let client = Client::new(mesh, options.adapters).await?;
    client.cards().current().await?;
    let records = CatalogueRecords::open(client.mesh()).await;
    let operations = A2aOperations::new(client, &options, records);
    let shared =
        McpShared::new(operations, Some(caller), DrainTokens::default()).with_tools(options.mcp_tools);
    let handler = McpHandler::new(Arc::new(shared));
    let max_bytes = options.limits.body_bytes;
    let reader = long_lines::limited(reader, max_bytes);
    // A line of the maximum size, with its line break.
    let pipes = AsyncRwTransport::<RoleServer, DuplexStream, W>::new_server(reader, writer)
        .with_max_line_length(max_bytes + 2);
    match Box::pin(serve_server_with_ct(handler, pipes, stop)).await {
        Ok(running) => {
            // A panic of the server was already reported.
            let _ = running.waiting().await;
            Ok(())
        }
        // The client disconnected before it sent a message.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(GatewayError::Handshake { reason: short(&error.to_string(), 300) }),
    }
}
