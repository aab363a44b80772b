//! Agents that call a language model.
//!
//! `sinew-model` decides the next step of a conversation. This module performs it: it writes the log,
//! calls models over HTTP, calls tools, and sends questions to people.

mod argument_contents;
pub(crate) mod build;
mod build_tools;
mod builtin_tools;
mod call_results;
mod conversation;
mod conversation_log;
mod discover;
pub(crate) mod endpoint;
pub(crate) mod endpoint_check;
mod figures;
pub(crate) mod instruction;
pub(crate) mod mcp_tools;
mod model_ask;
pub(crate) mod nested;
mod past_events;
pub(crate) mod rehearsal;
mod session;
mod setup;
mod tool_calls;
pub(crate) mod tools;
mod turn_secrets;

use sinew_model::{BudgetSpec, CompactionSpec, FallbackRule, OutputMode, TaintRule, UnknownRule};
use sinew_script::Function;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::complaint::FileComplaint;
use crate::run::mcp::ToolLock;
use builtin_tools::SkillText;
use endpoint::ModelEndpoint;
use instruction::InstructionTemplate;
pub(crate) use setup::compiled as compiled_schema;
use tools::ToolRule;

/// A model agent, ready to run.
#[derive(Debug)]
pub(crate) struct ModelAgent {
    /// Models in the order of `use`.
    pub(crate) endpoints: Vec<ModelEndpoint>,
    /// Models of the file that workflows can select instead, by alias.
    pub(crate) others: Vec<ModelEndpoint>,
    /// Alias of the only model to use, which overrides file and workflow.
    pub(crate) chosen: OnceLock<String>,
    pub(crate) summary_model: usize,
    pub(crate) instruction: InstructionTemplate,
    pub(crate) skills: Vec<SkillText>,
    /// Pairs of user text and assistant text.
    pub(crate) examples: Vec<(String, String)>,
    pub(crate) tools: Vec<ToolRule>,
    /// Digests of the accepted tools; `None` without a lock file.
    pub(crate) lock: Option<ToolLock>,
    pub(crate) lock_path: PathBuf,
    /// Warnings about the file.
    pub(crate) doubts: Vec<FileComplaint>,
    /// Compiled conditions of approvals, by their text.
    pub(crate) conditions: HashMap<String, Function>,
    pub(crate) mode: OutputMode,
    pub(crate) repairs: u32,
    pub(crate) budget: BudgetSpec,
    pub(crate) compaction: CompactionSpec,
    pub(crate) fallback: FallbackRule,
    pub(crate) taint: TaintRule,
    pub(crate) on_unknown: UnknownRule,
    /// Settings of sessions; `None` if conversations have no session.
    pub(crate) session: Option<SessionRule>,
    /// sha256 of the agent file.
    pub(crate) digest: String,
    /// Retention of conversation logs.
    pub(crate) log_keep: std::time::Duration,
}

/// Settings of a model agent's sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRule {
    pub(crate) keep: std::time::Duration,
    /// Maximum earlier conversations in a prompt.
    pub(crate) turns: u32,
}

/// The agent of a conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentProfile<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) output_schema: Option<&'a serde_json::Value>,
    /// Time limit, without time spent waiting for people.
    pub(crate) timeout: std::time::Duration,
}

impl ModelAgent {
    /// Returns whether a call with these arguments requires approval; true if the condition fails.
    fn needs_approval(&self, condition: &str, arguments: &serde_json::Value) -> bool {
        let Some(function) = self.conditions.get(condition) else { return true };
        !matches!(function.call(arguments), Ok(serde_json::Value::Bool(false)))
    }
}
