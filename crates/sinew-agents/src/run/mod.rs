//! The five kinds of agents.

mod address;
mod command;
mod group_watch;
mod http;
mod left_behind;
pub(crate) mod mcp;
mod model;
mod script;
mod task_folder;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use command::Command;
pub use http::fetch;
pub(crate) use http::{Http, RequestTemplate, check_literal_address, http_client, http_client_with_identity};
pub use mcp::ToolPin;
pub(crate) use mcp::{AnnouncedTools, McpAgent, ServerKeys, ServerLocation};
pub(crate) use model::build::build_model;
pub(crate) use model::compiled_schema;
pub use model::endpoint_check::{ModelDescription, ModelPong};
pub use model::mcp_tools::{AgentTools, LackingTool, PinnedTool};
pub use model::rehearsal::{AgentCase, CaseOutcome, ToolStubs};
pub(crate) use model::{AgentProfile, ModelAgent};
pub(crate) use script::Script;
pub use task_folder::remove_stale_task_folders;

use crate::error::AgentError;
use crate::template::Environment;

/// The parts of the host that a runner can access.
#[derive(Clone)]
pub(crate) struct RunnerSurroundings {
    pub(crate) environment: Arc<Environment>,
}

/// Outcome of a runner.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) value: Value,
    pub(crate) artifacts: Vec<crate::ArtifactRef>,
    pub(crate) usage: Value,
    pub(crate) events: Vec<Value>,
}

impl From<Value> for Output {
    fn from(value: Value) -> Self {
        Self { value, artifacts: Vec::new(), usage: Value::Null, events: Vec::new() }
    }
}

/// Time limit and cancellation of a call.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    start: Instant,
    time: Option<Duration>,
    cancel: CancellationToken,
}

impl Limits {
    pub(crate) fn new(time: Option<Duration>, cancel: CancellationToken) -> Self {
        Self { start: Instant::now(), time, cancel }
    }

    /// Returns these limits with at most `time` from the start.
    pub(crate) fn at_most(&self, time: Option<Duration>) -> Self {
        Self { time: [self.time, time].into_iter().flatten().min(), ..self.clone() }
    }

    /// Returns the remaining time; `None` without a limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        Some(self.time?.saturating_sub(self.start.elapsed()))
    }

    /// Waits until the call must stop, and returns the reason.
    pub(crate) async fn reached(&self) -> AgentError {
        let time_is_up = async {
            match self.time {
                Some(time) => {
                    tokio::time::sleep_until(self.start + time).await;
                    AgentError::TimedOut(time)
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => AgentError::Cancelled,
            error = time_is_up => error,
        }
    }
}
