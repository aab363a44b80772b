//! AgentFlow: graphs of a canvas editor, JSON with `nodes` and `connections`.
//!
//! Data flow: `model` reads the file, `subagents` checks the delegation trees, `unknown_keys` finds
//! misspelled keys, `lower` creates the plan, `adapter` implements the engine's callbacks; `text`
//! contains the dialect's value rules, `native` and `project` its result object and log. Every
//! arriving token runs a node again (there is no join), a pending approval freezes the execution,
//! and cycles are legal, so every edge has a budget.

mod adapter;
mod delegation;
mod lower;
mod model;
mod native;
mod portable;
mod project;
mod subagents;
mod text;
mod unknown_keys;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};
use sinew_engine::Adapter;
use sinew_plan::{NodeIndex, NodeOperation, Plan, PlanNode};
use sinew_source::{Diagnostics, Document};

use crate::dialect::message_schema;
use crate::{Dialect, LowerOptions, Lowered, PlanGraph, Portability, display};

/// The AgentFlow dialect.
#[derive(Debug)]
pub struct AgentFlow;

/// Name of the dialect.
const NAME: &str = "agentflow";

impl Dialect for AgentFlow {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "canvas graphs of start, agent, if and approval nodes (AgentFlow)"
    }

    fn detect(&self, document: &Document) -> u8 {
        model::resemblance(model::graph_of(&document.root))
    }

    fn lower(&self, document: Document, options: &LowerOptions<'_>) -> Result<Vec<Lowered>, Diagnostics> {
        lower::lower(document, options).map(|lowered| vec![lowered])
    }

    fn card_input_schema(&self, _plan: &Plan) -> Option<Value> {
        Some(message_schema("Text that the workflow starts with, instead of the one in its start node"))
    }

    fn asks_for_decision(&self, node: &PlanNode) -> bool {
        node.op == NodeOperation::Human
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &adapter::AgentFlowAdapter
    }

    fn schema(&self) -> Value {
        schema()
    }

    fn portable(&self, graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
        portable::portable(graph, node, losses)
    }
}

/// Returns the JSON Schema of the files. Unknown fields are allowed, because the editor stores its
/// own.
fn schema() -> Value {
    let text = json!({ "type": "string" });
    let condition = json!({
        "type": "object",
        "properties": { "operator": { "enum": ["equal", "contains"] }, "value": text }
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AgentFlow graph",
        "type": "object",
        "required": ["nodes"],
        "properties": {
            "nodes": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "type"],
                    "properties": {
                        "id": { "type": "string", "minLength": 1 },
                        "type": { "type": "string", "examples": ["start", "agent", "if", "approval"] },
                        "x": { "type": "number" },
                        "y": { "type": "number" },
                        "data": {
                            "type": "object",
                            "properties": {
                                "initialInput": true,
                                "agentName": text,
                                "systemPrompt": text,
                                "userPrompt": text,
                                "model": text,
                                "reasoningEffort": text,
                                "tools": {
                                    "type": "object",
                                    "properties": {
                                        "web_search": { "type": "boolean" },
                                        "subagents": { "type": "boolean" }
                                    }
                                },
                                "conditions": { "type": "array", "items": condition },
                                "condition": { "anyOf": [text, condition] },
                                "prompt": text
                            }
                        }
                    }
                }
            },
            "display": display::schema(),
            "connections": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["source", "target"],
                    "properties": {
                        "source": text,
                        "target": text,
                        "sourceHandle": { "type": "string", "examples": [
                            "output", "condition-0", "false", "approve", "reject", "subagent"
                        ] },
                        "targetHandle": text
                    }
                }
            }
        }
    })
}
