//! Covalt: canvas graphs with a data spine and typed side sockets, as JSON.
//!
//! Data flow: `model` reads and migrates the file, `catalogue` defines the kinds of nodes (plugins
//! add to it), `links` builds the structural trees, `lower` checks the graph (with `handle_check`,
//! `data_check` and `known_members`) and creates the plan, `adapter` implements the engine's
//! callbacks. `script` is the expression language, `template` finds expressions in parameters,
//! `coerce` contains the conversion table of the side sockets, `compute` the nodes that need no
//! agent, `project` the dialect's own events and result. A node runs once, after all its
//! predecessors have ended, if any input reached it.

mod adapter;
mod catalogue;
mod cluster;
mod coerce;
mod compute;
mod data_check;
mod executor;
mod handle_check;
mod known_members;
mod links;
mod lower;
mod model;
mod order;
mod portable;
mod project;
mod scope;
mod script;
mod seen;
mod template;

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod tests;

pub use catalogue::{HTTP_AGENT, describe_kind, describe_plugins, node_kinds};

use serde_json::Value;
use sinew_engine::Adapter;
use sinew_plan::{NodeIndex, Plan};
use sinew_source::{Diagnostics, Document};

use crate::dialect::message_schema;
use crate::{Dialect, LowerOptions, Lowered, PlanGraph, Portability};

/// The Covalt dialect.
#[derive(Debug)]
pub struct Covalt;

/// Name of the dialect.
const NAME: &str = "covalt";

impl Dialect for Covalt {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "canvas graphs with a data spine and typed side sockets (Covalt)"
    }

    fn detect(&self, document: &Document) -> u8 {
        model::resemblance(model::graph_of(&document.root))
    }

    fn lower(&self, document: Document, options: &LowerOptions<'_>) -> Result<Vec<Lowered>, Diagnostics> {
        lower::lower(document, options)
    }

    fn card_input_schema(&self, plan: &Plan) -> Option<Value> {
        let has = |kind: &str| plan.nodes.iter().any(|node| node.kind == kind);
        let takes_message = has("chat-start") || (has("agent") && !has("webhook-trigger"));
        takes_message.then(|| message_schema("Message of the person"))
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &adapter::CovaltAdapter
    }

    fn schema(&self) -> Value {
        catalogue::schema()
    }

    fn portable(&self, graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
        portable::portable(graph, node, losses)
    }
}
