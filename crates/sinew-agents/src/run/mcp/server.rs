//! A server of tools under supervision: started when it is needed, and again after its end, with growing pauses.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::CallToolResult;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::ServerLocation;
use super::connection::McpConnection;
use super::server_tool::McpTool;
use super::tool_choice::ToolChoice;
use crate::error::AgentError;
use crate::run::RunnerSurroundings;

/// Longest time for a server to start and agree on a version.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for a server to tell its tools.
const TOOLS_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before the second start after a failure; doubled at each failure in a row.
const MIN_BACKOFF: Duration = Duration::from_millis(250);
/// Longest pause before a start.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Time for a sign of life of a server that did not answer a call.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// A server of tools under supervision.
#[derive(Debug)]
pub(crate) struct McpServer {
    place: Arc<ServerLocation>,
    state: Mutex<ServerState>,
}

#[derive(Debug, Default)]
struct ServerState {
    connection: Option<Arc<McpConnection>>,
    /// Failures in a row.
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

    /// The tools of the server now.
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
                Err(late("told its tools", TOOLS_TIMEOUT))
            }
        }
    }

    /// Calls a tool. `key` marks a repeated call as the same call. A server that gives no answer in time is asked for a sign
    /// of life, and ended if there is none.
    pub(super) async fn call(
        self: &Arc<Self>,
        choice: &ToolChoice,
        key: &str,
        around: &RunnerSurroundings,
        progress: Option<&UnboundedSender<Value>>,
    ) -> Result<CallToolResult, AgentError> {
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

    /// The connection that is open, or a new one.
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

    /// Ends a connection that is of no use any more, unless another one has taken its place.
    async fn discard(&self, broken: &Arc<McpConnection>) {
        let mut state = self.state.lock().await;
        if state.connection.as_ref().is_some_and(|open| Arc::ptr_eq(open, broken)) {
            state.fail();
        }
        // Calls that wait for this server hear of its end at once.
        broken.end();
    }
}

/// A call whose answer is waited for. If the waiting ends, the server is looked after.
struct OpenCall {
    server: Arc<McpServer>,
    connection: Option<Arc<McpConnection>>,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let server = Arc::clone(&self.server);
        // Without a runtime the connection ends with this drop.
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
