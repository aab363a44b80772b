//! Agents that call a language model.
//!
//! `sinew-model` decides what a conversation does next. This module does it: it keeps the log, asks models over HTTP,
//! makes calls of tools, and asks people.

mod argument_contents;
pub(crate) mod build;
mod build_tools;
mod builtin_tools;
mod call_results;
mod conversation;
mod conversation_log;
pub(crate) mod endpoint;
pub(crate) mod endpoint_check;
mod figures;
pub(crate) mod instruction;
pub(crate) mod mcp_tools;
mod model_ask;
pub(crate) mod nested;
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
    /// Models of the file that workflows may name instead of the first, by alias.
    pub(crate) others: Vec<ModelEndpoint>,
    /// Alias of the only model that answers, whatever file and workflow say.
    pub(crate) chosen: OnceLock<String>,
    pub(crate) summary_model: usize,
    pub(crate) instruction: InstructionTemplate,
    pub(crate) skills: Vec<SkillText>,
    /// User text and assistant text.
    pub(crate) examples: Vec<(String, String)>,
    pub(crate) tools: Vec<ToolRule>,
    /// Descriptions of tools that a person accepted; none without a lock file.
    pub(crate) lock: Option<ToolLock>,
    pub(crate) lock_path: PathBuf,
    /// Doubtful parts of the file.
    pub(crate) doubts: Vec<FileComplaint>,
    /// Conditions of approvals by their text.
    pub(crate) conditions: HashMap<String, Function>,
    pub(crate) mode: OutputMode,
    pub(crate) repairs: u32,
    pub(crate) budget: BudgetSpec,
    pub(crate) compaction: CompactionSpec,
    pub(crate) fallback: FallbackRule,
    pub(crate) taint: TaintRule,
    pub(crate) on_unknown: UnknownRule,
    /// The session that conversations belong to; none if each stands alone.
    pub(crate) session: Option<SessionRule>,
    /// sha256 of the agent file.
    pub(crate) digest: String,
    /// Time after which the log of a conversation is forgotten.
    pub(crate) log_keep: std::time::Duration,
}

/// Sessions of a model agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRule {
    pub(crate) keep: std::time::Duration,
    /// Earlier conversations that the model is told.
    pub(crate) turns: u32,
}

/// The agent around a conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentProfile<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) output_schema: Option<&'a serde_json::Value>,
    /// Longest time of work, without waiting for people.
    pub(crate) timeout: std::time::Duration,
}

impl ModelAgent {
    /// Whether a call of this text as arguments needs a person. A condition that cannot be evaluated needs one.
    fn needs_approval(&self, condition: &str, arguments: &serde_json::Value) -> bool {
        let Some(function) = self.conditions.get(condition) else { return true };
        !matches!(function.call(arguments), Ok(serde_json::Value::Bool(false)))
    }
}
