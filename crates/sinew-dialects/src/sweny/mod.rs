//! Sweny: one agent after another along a graph whose branches a model chooses.
//!
//! Data flow: `shape` is the published form as a table, `validate` checks the other rules, `model`
//! contains the types of the file, `source`, `skill` and `inputs` its references and inputs,
//! `lower` creates the plan. `adapter` implements the engine's callbacks with `instruct`
//! (instructions of agents), `eval` and `path` (judgements), and `result` (node results); `project`
//! reports events to observers. A failed node does not stop an execution; an aborted one (budget,
//! no tools) does.

mod adapter;
mod eval;
mod inputs;
mod instruct;
mod lower;
mod model;
mod path;
mod portable;
mod project;
mod result;
mod seen;
mod shape;
mod skill;
mod source;
mod validate;

#[cfg(test)]
mod tests;

use serde_json::Value;
use sinew_engine::Adapter;
use sinew_plan::{NodeIndex, Plan, PlanNode};
use sinew_source::{Diagnostics, Document, Node};

use crate::{Dialect, LowerOptions, Lowered, PlanGraph, Portability, display};

/// The Sweny dialect.
#[derive(Debug)]
pub struct Sweny;

/// Name of the dialect.
const NAME: &str = "sweny";

impl Dialect for Sweny {
    fn name(&self) -> &'static str {
        NAME
    }

    fn node_request(&self, plan: &Plan, node: &PlanNode) -> Value {
        adapter::node_request(plan, node).unwrap_or_default()
    }

    fn about(&self) -> &'static str {
        "instruction graphs with routing in plain language (SWEny workflows)"
    }

    fn detect(&self, document: &Document) -> u8 {
        let root = &document.root;
        let nodes = root.get("nodes").and_then(Node::as_object);
        let edges = root.get("edges").and_then(Node::as_array);
        match (nodes, edges, root.get("entry").and_then(Node::as_str)) {
            (Some(_), Some(_), Some(_)) => 95,
            (Some(nodes), _, _) if nodes.iter().any(|node| node.value.get("instruction").is_some()) => 60,
            _ => 0,
        }
    }

    fn lower(&self, document: Document, options: &LowerOptions<'_>) -> Result<Vec<Lowered>, Diagnostics> {
        lower::lower(document, options).map(|lowered| vec![lowered])
    }

    /// Removes the members that concern single nodes (sources by position) or no node (budget of
    /// visits).
    fn node_settings(&self, plan: &Plan) -> Value {
        let mut settings = plan.extra.clone();
        if let Some(members) = settings.as_object_mut() {
            for member in ["id", "sources", "inputs", "max_steps"] {
                members.shift_remove(member);
            }
        }
        settings
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &adapter::SwenyAdapter
    }

    fn schema(&self) -> Value {
        let mut schema = shape::json_schema(&shape::WORKFLOW);
        schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        schema["title"] = "Sweny workflow".into();
        schema["properties"][display::DISPLAY] = display::schema();
        schema
    }

    fn read_input(
        &self,
        input: Value,
        read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Value, Diagnostics> {
        source::read_input(input, read)
    }

    fn portable(&self, graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
        portable::portable(graph, node, losses)
    }
}
