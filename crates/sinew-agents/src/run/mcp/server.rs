//! A supervised MCP server: starts on demand and restarts with exponential backoff.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::ServerLocation;
use super::connection::McpConnection;
use super::server_tool::McpTool;
use super::tool_answer::ToolAnswer;
use super::tool_choice::ToolChoice;
use crate::error::AgentError;
use crate::run::RunnerSurroundings;

/// Time limit for a server to start and negotiate the protocol version.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a server to list its tools.
const TOOLS_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay of the restart after a failure; doubled after each consecutive failure.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
/// Maximum delay of a restart.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Time limit for the ping of a server that did not answer a call.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A supervised MCP server.
#[derive(Debug)]
pub(crate) struct McpServer {
    place: Arc<ServerLocation>,
    state: Mutex<ServerState>,
}

#[derive(Debug, Default)]
struct ServerState {
    connection: Option<Arc<McpConnection>>,
    /// Consecutive failures.
    failures: u32,
    not_before: Option<Instant>,
}

impl ServerState {
    fn fail(&mut self) {
        self.connection = None;
        self.failures = self.failures.saturating_add(1);
        let pause = MIN_BACKOFF.saturating_mul(1 << (self.failures - 1).min(10));
        self.not_before = Some(Instant::now() + pause.min(MAX_BACKOFF));
    }
}

impl McpServer {
    pub(crate) fn new(place: Arc<ServerLocation>) -> Arc<Self> {
        Arc::new(Self { place, state: Mutex::default() })
    }

    /// Returns the current tools of the server.
    pub(crate) async fn tools(
        &self,
        around: &RunnerSurroundings,
        progress: Option<&UnboundedSender<Value>>,
    ) -> Result<Vec<McpTool>, AgentError> {
        let connection = self.connection(around, progress).await?;
        match tokio::time::timeout(TOOLS_TIMEOUT, connection.tools()).await {
            Ok(Ok(tools)) => Ok(tools.iter().map(McpTool::of).collect()),
            Ok(Err(error)) => {
                self.discard(&connection).await;
                Err(error)
            }
            Err(_) => {
                self.discard(&connection).await;
                Err(late("listed its tools", TOOLS_TIMEOUT))
            }
        }
    }

    /// Calls a tool. `key` identifies repetitions of the call. A server that does not answer in time is
    /// pinged, and terminated if it does not respond.
    pub(super) async fn call(
        self: &Arc<Self>,
        choice: &ToolChoice,
        key: &str,
        around: &RunnerSurroundings,
        progress: Option<&UnboundedSender<Value>>,
    ) -> Result<ToolAnswer, AgentError> {
        let connection = self.connection(around, progress).await?;
        let mut open = OpenCall { server: Arc::clone(self), connection: Some(Arc::clone(&connection)) };
        let answer = connection.call(choice, Some(key)).await;
        open.connection = None;
        if connection.is_closed() {
            self.discard(&connection).await;
        } else if matches!(answer, Ok(_) | Err(AgentError::Tool { .. })) {
            self.state.lock().await.failures = 0;
        }
        answer
    }

    /// Returns the open connection, or opens one.
    async fn connection(
        &self,
        around: &RunnerSurroundings,
        progress: Option<&UnboundedSender<Value>>,
    ) -> Result<Arc<McpConnection>, AgentError> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            if !connection.is_closed() {
                return Ok(Arc::clone(connection));
            }
            state.fail();
        }
        if let Some(time) = state.not_before {
            tokio::time::sleep_until(time).await;
        }
        let opening = McpConnection::open(&self.place, around, progress);
        match tokio::time::timeout(START_TIMEOUT, Box::pin(opening)).await {
            Ok(Ok(connection)) => {
                let connection = Arc::new(connection);
                state.connection = Some(Arc::clone(&connection));
                Ok(connection)
            }
            Ok(Err(error)) => {
                state.fail();
                Err(error)
            }
            Err(_) => {
                state.fail();
                Err(late("started", START_TIMEOUT))
            }
        }
    }

    /// Closes a broken connection. Counts a failure if it is the current one.
    async fn discard(&self, broken: &Arc<McpConnection>) {
        let mut state = self.state.lock().await;
        if state.connection.as_ref().is_some_and(|open| Arc::ptr_eq(open, broken)) {
            state.fail();
        }
        // Pending calls of this connection fail immediately.
        broken.end();
    }
}

/// A pending call. If it is dropped before its answer, the server is checked in the background.
struct OpenCall {
    server: Arc<McpServer>,
    connection: Option<Arc<McpConnection>>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let server = Arc::clone(&self.server);
        // Without a runtime, this drop closes the connection.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let is_alive = tokio::time::timeout(PING_TIMEOUT, connection.ping()).await.unwrap_or(false);
            if !is_alive {
                server.discard(&connection).await;
            }
        });
    }
}

fn late(action: &str, time: Duration) -> AgentError {
    AgentError::McpServer { reason: format!("it has not {action} within {} s", time.as_secs()) }
}
