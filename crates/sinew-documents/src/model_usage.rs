//! Model usage of nodes, as reported by their agents.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

pub use sinew_protocol::usage::{ModelTotals, TaskUsage};

/// Model usage of a node over all activations and attempts, as reported by its agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelUsage {
    /// Node of the usage.
    pub node: String,
    /// Totals of its agent, and of the agents and workflows that it called.
    #[serde(flatten)]
    pub used: TaskUsage,
    /// Number of turns that were replayed from the log of an earlier process.
    pub replayed_turns: u64,
    /// Number of tool calls whose result is unknown because of a crash.
    pub unknown_calls: u64,
    /// Milliseconds spent waiting for people.
    pub waited_ms: u64,
    /// Decisions of people about tool calls. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<ToolDecision>,
}

/// Decision of a person about a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolDecision {
    /// Name of the tool.
    pub tool: String,
    /// Whether the call was allowed or the question answered.
    pub approved: bool,
    /// Person who decided. Empty if nobody did.
    pub by: String,
}

impl ToolDecision {
    fn line(&self) -> String {
        let by = if self.by.is_empty() { "nobody" } else { &self.by };
        let word = if self.approved { "allowed" } else { "refused" };
        format!("{} {word} by {}", words::name(&self.tool), words::name(by))
    }
}

impl ModelUsage {
    /// Formats the usage and the decisions of people.
    pub fn line(&self) -> String {
        let TaskUsage { own, children } = self.used;
        let part =
            |count: u64, what: &str| if count > 0 { format!(" ({count} {what})") } else { String::new() };
        let cached = (100 * own.cached_tokens.min(own.input_tokens)).checked_div(own.input_tokens);
        let cached =
            cached.filter(|part| *part > 0).map(|part| format!(" ({part} % cached)")).unwrap_or_default();
        let mut line = if own.is_empty() {
            "no own turns".to_owned()
        } else {
            format!(
                "{}{}, {}{}, {} in{cached}, {} out{}",
                counted(own.turns, "turn"),
                part(self.replayed_turns, "replayed"),
                counted(own.tool_calls, "call"),
                part(self.unknown_calls, "unknown"),
                short(own.input_tokens),
                short(own.output_tokens),
                price(own.cost_usd),
            )
        };
        if !children.is_empty() {
            let _ =
                write!(line, "; children: {}{}", counted(children.turns, "turn"), price(children.cost_usd));
        }
        if self.waited_ms > 0 {
            let _ = write!(line, "; waited {} for people", words::duration(self.waited_ms));
        }
        for decision in &self.decisions {
            let _ = write!(line, "; {}", decision.line());
        }
        line
    }
}

/// Formats the total model usage of an execution; `None` if it adds nothing to the lines of nodes.
pub fn total_line(models: &[ModelUsage]) -> Option<String> {
    let mut all = TaskUsage::default();
    for usage in models {
        all.add(&usage.used);
    }
    let (own, total) = (all.own, all.total());
    let is_plain = models.len() < 2 && all.children.is_empty();
    if is_plain || total.is_empty() {
        return None;
    }
    let with_children = if all.children.is_empty() {
        String::new()
    } else {
        format!("; with children {}{}", counted(total.turns, "turn"), price(total.cost_usd))
    };
    Some(format!("{}{}{with_children}", counted(own.turns, "turn"), price(own.cost_usd)))
}

/// Formats totals of model calls; empty if no model was called.
pub fn totals_words(totals: &ModelTotals) -> String {
    if totals.is_empty() {
        return String::new();
    }
    let tokens = totals.input_tokens.saturating_add(totals.output_tokens);
    format!("{}, {} tokens{}", counted(totals.turns, "turn"), short(tokens), price(totals.cost_usd))
}

fn counted(count: u64, noun: &str) -> String {
    words::count(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

fn price(cost: Option<f64>) -> String {
    cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default()
}

/// Formats a number of tokens: thousands with one decimal place.
fn short(tokens: u64) -> String {
    if tokens < 1_000 { tokens.to_string() } else { format!("{}.{}k", tokens / 1_000, tokens % 1_000 / 100) }
}
