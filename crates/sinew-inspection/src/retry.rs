//! `execution retry --dry-run`: what is kept, what runs again, what starts afresh and what is left alone.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_engine::{InputRefusal, RetryRequest};

use crate::node_rows;
use crate::node_status::NodeStatus;
use crate::record::Record;
use crate::words;

/// Columns that an input gets.
const INPUT_WIDTH: usize = 60;

/// Effects that a retry would have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RetryPreview {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Digest of the plan: an execution goes on with the version it was started with.
    pub version: String,
    /// Outputs that are used again.
    pub keep: Vec<String>,
    /// Nodes that run again, with how many of their children do (0: it has none).
    pub rerun: BTreeMap<String, u32>,
    /// Nodes that start afresh because they depend on one that runs again.
    pub reset: Vec<String>,
    /// Nodes that are not touched: they did not run, or stay failed, and nothing before them runs again.
    pub untouched: Vec<String>,
    /// Input that replaces the node's input, or the input with which the execution begins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// Plans a retry by the engine's own rule.
pub fn preview(record: &Record, retry: &RetryRequest) -> Result<RetryPreview, InputRefusal> {
    let program = record.execution.program();
    let graph = &program.graph;
    let plan = record.execution.machine().plan_retry(retry)?;
    let touched =
        |id: &String| plan.keep.contains(id) || plan.rerun.contains_key(id) || plan.reset.contains(id);
    let untouched = node_rows::rows(&record.execution, record.at())
        .into_iter()
        .filter(|row| !touched(&row.node))
        .map(|row| row.node)
        .collect();
    Ok(RetryPreview {
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        version: graph.digest().to_owned(),
        keep: plan.keep,
        rerun: plan.rerun,
        reset: plan.reset,
        untouched,
        input: retry.input.clone(),
    })
}

/// The preview for people.
pub fn text(preview: &RetryPreview, record: &Record) -> String {
    let rows = node_rows::rows(&record.execution, record.at());
    let word =
        |id: &str| rows.iter().find(|row| row.node == id).map_or(NodeStatus::Planned, |row| row.status);
    let mut lines = Vec::new();
    let mut line = |what: &str, nodes: String, why: String| {
        if !nodes.is_empty() {
            let why = if why.is_empty() { why } else { format!("({why})") };
            lines.push(vec![what.to_owned(), nodes, why]);
        }
    };
    line("would keep", preview.keep.join(", "), "ended well; outputs are used again".into());
    for (node, children) in &preview.rerun {
        let nodes = match children {
            0 => node.clone(),
            1 => format!("{node} (1 child)"),
            children => format!("{node} ({children} children)"),
        };
        line("would run", nodes, word(node).as_str().to_owned());
    }
    line("would reset", preview.reset.join(", "), "depends on what runs again".into());
    line("untouched", preview.untouched.join(", "), String::new());
    let input = preview.input.as_ref().map(|input| words::one_line(&input.to_string(), INPUT_WIDTH));
    line("input", input.unwrap_or_default(), "instead of what it got".into());
    let version = format!("{}@{}", preview.workflow, words::short(&preview.version));
    line("workflow", version, "the version it was started with".into());
    words::columns(&lines)
}
