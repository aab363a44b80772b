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

    fn node_request(&self, _plan: &Plan, node: &PlanNode) -> Value {
        node.extra["own"].clone()
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
    let text = |about: &str| json!({ "type": "string", "description": about });
    let place = |about: &str| json!({ "type": "number", "description": about });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "AgentFlow graph",
        "type": "object",
        "required": ["nodes"],
        "properties": {
            "nodes": {
                "type": "array",
                "description": "Nodes of the graph. Exactly one has the type start.",
                "items": {
                    "type": "object",
                    "required": ["id", "type"],
                    "properties": {
                        "id": { "type": "string", "minLength": 1, "description": "Unique id of the node." },
                        "type": {
                            "type": "string",
                            "description": "Type of the node.",
                            "examples": ["start", "agent", "if", "approval"]
                        },
                        "x": place("Horizontal position on the canvas."),
                        "y": place("Vertical position on the canvas."),
                        "data": data_schema()
                    }
                }
            },
            "display": display::schema(),
            "connections": {
                "type": "array",
                "description": "Connections between nodes.",
                "items": {
                    "type": "object",
                    "required": ["source", "target"],
                    "properties": {
                        "source": text("Id of the node where the connection starts."),
                        "target": text("Id of the node where the connection ends."),
                        "sourceHandle": {
                            "type": "string",
                            "description": "Output of the source. A connection from subagent makes the target a sub-agent. Default: output.",
                            "examples": ["output", "condition-0", "false", "approve", "reject", "subagent"]
                        },
                        "targetHandle": text("Input of the target. Default: input.")
                    }
                }
            }
        }
    })
}

/// Returns the JSON Schema of the settings of a node.
fn data_schema() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let flag = |about: &str| json!({ "type": "boolean", "description": about });
    let condition = json!({
        "type": "object",
        "properties": {
            "operator": { "enum": ["equal", "contains"], "description": "Comparison without regard to case. Default: equal." },
            "value": text("Expected text. An empty text matches nothing.")
        }
    });
    json!({
        "type": "object",
        "description": "Settings of the node.",
        "properties": {
            "initialInput": {
                "description": "Start: input of executions that are started without one. Default: an empty text."
            },
            "agentName": text("Agent: name of the agent that is called. Default: agent."),
            "systemPrompt": text("Agent: instruction. Default: You are a helpful assistant."),
            "userPrompt": text(
                "Agent: text for the agent, in which {{PREVIOUS_OUTPUT}} is the preceding output. \
                 Default: the preceding output."
            ),
            "model": text("Agent: requested model. Default: gpt-5."),
            "reasoningEffort": text("Agent: requested effort. Default: low."),
            "tools": {
                "type": "object",
                "description": "Agent: tools that the agent may use.",
                "properties": {
                    "web_search": flag("Whether the agent may search the web. Default: false."),
                    "subagents": flag("Whether the agent may call its sub-agents. Default: false.")
                }
            },
            "conditions": {
                "type": "array",
                "description": "If: conditions on the preceding output. The first match selects the handle condition-N, \
                    counted from 0; without a match the handle false is selected.",
                "items": condition
            },
            "condition": {
                "description": "If: older form of a single condition. A text means contains.",
                "anyOf": [{ "type": "string" }, condition]
            },
            "prompt": text("Approval: question to the person.")
        }
    })
}
