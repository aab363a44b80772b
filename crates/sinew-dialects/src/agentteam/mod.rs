//! Agent Team: graphs of typed nodes and connections with conversion functions, as JSON.
//!
//! Data flow: `model` reads the file, `spec` defines inputs and outputs of each node type,
//! `validate` checks graph, conversions and contracts (`references` and `operand_check`: conditions
//! and templates), `lower` creates the plan, `adapter` implements the engine's callbacks. `expr`,
//! `convert`, `flow`, `human` and `message` contain the dialect's value rules; `project` its events
//! and result object; `introspect` exports the specs for editors; `trial` calls one conversion
//! function and `migrate` rewrites older shapes, for the command line. A node runs once, with the
//! inputs that have arrived when its turn comes.

mod adapter;
mod argument;
mod convert;
mod delivery;
mod expr;
mod flow;
mod human;
mod introspect;
mod known_keys;
mod lower;
mod message;
mod migrate;
mod model;
mod operand_check;
mod portable;
mod project;
mod references;
mod schema;
mod seen;
mod spec;
mod suggest;
mod trial;
mod validate;

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod tests;

pub use introspect::{describe, specs, typescript, typescript_of};
pub use message::StandardMessage;
pub use migrate::{Migration, MigrationNote, migrate};
pub use suggest::{ConversionSuggestion, suggest_conversions};
pub use trial::{ConversionFailure, ConversionTrial, TrialRefusal, try_conversion};

use serde_json::Value;
use sinew_engine::Adapter;
use sinew_plan::NodeIndex;
use sinew_source::{Diagnostics, Document};

use crate::{Dialect, LowerOptions, Lowered, PlanGraph, Portability};

/// The Agent Team dialect.
#[derive(Debug)]
pub struct AgentTeam;

/// Name of the dialect.
const NAME: &str = "agentteam";

impl Dialect for AgentTeam {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "typed nodes with conversion functions on their connections (Agent Team)"
    }

    fn detect(&self, document: &Document) -> u8 {
        model::resemblance(&document.root)
    }

    fn lower(&self, document: Document, options: &LowerOptions<'_>) -> Result<Vec<Lowered>, Diagnostics> {
        lower::lower(document, options).map(|lowered| vec![lowered])
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &adapter::AgentTeamAdapter
    }

    fn schema(&self) -> Value {
        introspect::schema()
    }

    fn portable(&self, graph: &PlanGraph<'_>, node: NodeIndex, losses: &mut Vec<String>) -> Portability {
        portable::portable(graph, node, losses)
    }
}
