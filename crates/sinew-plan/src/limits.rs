//! Limits of loops, retries, maps, nesting and other unbounded work.

use serde::{Deserialize, Serialize};

/// Limits of one execution. Exceeding one ends the execution with a fault that names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanLimits {
    /// Activations in total, over loops, maps and cycles.
    pub activations: u32,
    /// Children of one map or fork.
    pub fan_out: u32,
    /// Iterations of one loop.
    pub iterations: u32,
    /// Traversals of one edge without a limit of its own.
    pub edge: u32,
    /// Depth of sub-workflows, counted from the outermost execution.
    pub depth: u32,
    /// Size of one value (an output, a reply, an input), in bytes of JSON.
    pub value_bytes: u64,
    /// Wall time of the whole execution in milliseconds; `None` = no limit.
    pub wall_ms: Option<u64>,
    /// Price in USD of all model calls that agents report, including sub-workflows and agents of
    /// agents; `None` = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Names of the agents and workflows that executions may call, in which `*` matches any string:
    /// the patterns of the key that the workflow was deployed with; `None` = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Vec<String>>,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self {
            activations: 200_000,
            fan_out: 20_000,
            iterations: 10_000,
            edge: 10_000,
            depth: 10,
            value_bytes: 16 << 20,
            wall_ms: None,
            cost_usd: None,
            calls: None,
        }
    }
}
