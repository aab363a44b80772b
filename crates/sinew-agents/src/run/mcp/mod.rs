//! Tools of a server of the Model Context Protocol as an agent, without a model between.
//!
//! Each task has a connection of its own: a program is started and ended with it, so nothing of one task reaches another.

mod connection;
mod tool_answer;
mod tool_choice;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use sinew_protocol::a2a::AgentSkill;

use super::{Limits, Output, RunnerSurroundings};
use crate::call::Call;
use crate::error::AgentError;
use crate::template::Template;

use connection::McpConnection;
use tool_choice::ToolChoice;

/// An agent whose work is done by tools of a server.
#[derive(Debug)]
pub(crate) struct McpAgent {
    pub(crate) server: ServerPlace,
    /// The only tool; None if the input names one.
    pub(crate) tool: Option<String>,
    /// Patterns of the names of tools that may be called; all if empty.
    pub(crate) allow: Vec<String>,
    pub(crate) timeout: Option<Duration>,
}

/// Place of a server.
#[derive(Debug)]
pub(crate) enum ServerPlace {
    /// A program of this machine.
    Program { program: String, arguments: Vec<String>, folder: PathBuf, env: Vec<(String, Template)> },
    /// An address.
    Address { url: String, headers: Vec<(String, Template)>, allow_private: bool },
}

/// The tools of a server as its agent announces them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnnouncedTools {
    pub(crate) skills: Vec<AgentSkill>,
    pub(crate) input_schema: Option<Value>,
    pub(crate) output_schema: Option<Value>,
}

impl McpAgent {
    /// Calls the tool that is meant.
    pub(crate) async fn run(
        &self,
        call: &Call,
        limits: &Limits,
        around: &RunnerSurroundings,
    ) -> Result<Output, AgentError> {
        let limits = limits.at_most(self.timeout);
        let work = async {
            let choice = ToolChoice::of(&call.input, self.tool.as_deref(), &self.allow)?;
            let connection = McpConnection::open(&self.server, around, Some(&call.progress)).await?;
            let answer = connection.call(&choice, &call.context).await;
            connection.close().await;
            tool_answer::output_of(&choice.tool, answer?, call)
        };
        tokio::select! {
            biased;
            error = limits.reached() => Err(error),
            done = Box::pin(work) => done,
        }
    }

    /// Asks the server for its tools.
    pub(crate) async fn announce(
        &self,
        limits: &Limits,
        around: &RunnerSurroundings,
    ) -> Result<AnnouncedTools, AgentError> {
        let work = async {
            let connection = McpConnection::open(&self.server, around, None).await?;
            let tools = connection.tools().await;
            connection.close().await;
            Ok(tool_choice::announced(&tools?, self.tool.as_deref(), &self.allow))
        };
        tokio::select! {
            biased;
            error = limits.reached() => Err(error),
            done = Box::pin(work) => done,
        }
    }
}
