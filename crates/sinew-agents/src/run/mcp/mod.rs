//! Tools of Model Context Protocol servers: for model agents, and as agents without a model.
//!
//! Each task of an agent without a model has its own connection and server program, so no state is
//! shared between tasks. Model agents call supervised servers.

mod connection;
mod line_limit;
mod server;
mod server_location;
mod server_tool;
mod service_errors;
mod tool_announcement;
mod tool_answer;
mod tool_choice;
mod tool_lock;

use std::time::Duration;

use serde_json::{Value, json};
use sinew_protocol::a2a::AgentSkill;

use super::{Limits, Output, RunnerSurroundings};
use crate::call::Call;
use crate::clean::ResolvedSecrets;
use crate::error::AgentError;

pub(crate) use server::McpServer;
pub(crate) use server_location::{ServerKeys, ServerLocation};
pub(crate) use server_tool::McpTool;
pub(crate) use tool_lock::ToolLock;
pub use tool_lock::ToolPin;

use connection::McpConnection;
use tool_answer::ToolOutput;
use tool_choice::ToolChoice;

/// An agent that calls tools of a server.
#[derive(Debug)]
pub(crate) struct McpAgent {
    pub(crate) server: ServerLocation,
    /// The only tool; `None` if the input names the tool.
    pub(crate) tool: Option<String>,
    /// Name patterns of the allowed tools; all if empty.
    pub(crate) allow: Vec<String>,
    pub(crate) timeout: Option<Duration>,
}

/// The tools of a server on the agent's card.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnnouncedTools {
    pub(crate) skills: Vec<AgentSkill>,
    pub(crate) input_schema: Option<Value>,
    pub(crate) output_schema: Option<Value>,
}

impl McpAgent {
    /// Calls the tool that the input selects. The output is the structured content alone if only this
    /// fits the agent's schema.
    pub(crate) async fn run(
        &self,
        call: &Call,
        limits: &Limits,
        around: &RunnerSurroundings,
        fits: &(dyn Fn(&Value) -> bool + Sync),
    ) -> Result<Output, AgentError> {
        let limits = limits.at_most(self.timeout);
        let work = async {
            let choice = ToolChoice::of(&call.input, self.tool.as_deref(), &self.allow)?;
            let connection = McpConnection::open(&self.server, around, Some(&call.progress)).await?;
            let answer = connection.call(&choice, call.context.get("task").and_then(Value::as_str)).await;
            connection.close().await;
            let ToolOutput { mut output, structured } = answer?.output(&choice.tool, call)?;
            if let Some(structured) = structured.filter(|structured| !fits(&output.value) && fits(structured))
            {
                output.value = structured;
            }
            let mut secrets = ResolvedSecrets::default();
            self.server.read_secrets(around.environment.as_ref(), &mut secrets);
            Ok(Output { value: secrets.hide_in_value(&output.value), ..output })
        };
        tokio::select! {
            biased;
            error = limits.reached() => Err(error),
            done = Box::pin(work) => done,
        }
    }

    /// Lists the tools of the server for the card.
    pub(crate) async fn announce(
        &self,
        limits: &Limits,
        around: &RunnerSurroundings,
    ) -> Result<AnnouncedTools, AgentError> {
        let work = async {
            let connection = McpConnection::open(&self.server, around, None).await?;
            let tools = connection.tools().await;
            connection.close().await;
            Ok(tool_announcement::announced(&tools?, self.tool.as_deref(), &self.allow))
        };
        tokio::select! {
            biased;
            error = limits.reached() => Err(error),
            done = Box::pin(work) => done,
        }
    }
}

impl McpServer {
    /// Calls a tool for a conversation. Returns its output, and the names of artifacts that it stored.
    pub(crate) async fn answer(
        self: &std::sync::Arc<Self>,
        tool: &str,
        arguments: &Value,
        (key, call): (&str, &Call),
        around: &RunnerSurroundings,
        progress: Option<&tokio::sync::mpsc::UnboundedSender<Value>>,
    ) -> Result<Value, AgentError> {
        let choice = ToolChoice::of(arguments, Some(tool), &[])?;
        let answer = self.call(&choice, key, around, progress).await?;
        let ToolOutput { output, .. } = answer.output(&format!("{tool}-{}", short(key)), call)?;
        let Output { value, artifacts, .. } = output;
        if artifacts.is_empty() {
            return Ok(value);
        }
        let names: Vec<String> = artifacts.iter().map(ToString::to_string).collect();
        Ok(json!({"output": value, "artifacts": names}))
    }
}

/// Returns the end of a key, which distinguishes the files of two calls.
fn short(key: &str) -> &str {
    key.get(key.len().saturating_sub(6)..).unwrap_or(key)
}
