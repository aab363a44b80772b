//! Solace Agent Mesh workflows: agents in a graph of dependencies, with switches, maps, forks, joins and loops.
//!
//! Supports both vocabularies, the specification's (conditional, fork, join, camel-case keys) and
//! that of current releases, as a bare definition, under `workflow:`, or as the workflows of an
//! application file. Constructs that hang or race in the source engine end here: empty maps, loops
//! at their limit, joins without dependencies, exit handlers.
//!
//! `file` finds workflows, `parse` reads their shape into `model`, `validate` checks the other
//! rules, `lower` creates the plan. During execution, `adapter` implements the engine's callbacks;
//! `program` contains a plan's parsed templates and conditions.

mod adapter;
mod agent_call;
mod agent_schemas;
mod approval;
mod chance;
mod condition;
mod data_check;
pub mod duration;
mod execution_state;
mod extension_check;
mod failure;
mod file;
mod lower;
pub mod model;
mod parse;
mod path;
mod portable;
pub mod probe;
mod program;
mod read;
mod shape;
mod sleep;
mod template;
mod template_check;
mod type_check;
mod validate;
mod value_type;
mod violation;
mod world;

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::{Value, json};
use sinew_engine::Adapter;
use sinew_plan::{NodeOperation, Plan, PlanNode};
use sinew_protocol::catalogue::Catalogue;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Diagnostics, Document, Node};

use crate::dialect::{Dialect, LowerOptions, Lowered};
use crate::display;

pub use agent_call::agent_call_plan;
pub use violation::violations;

/// Name of the dialect.
pub(crate) const NAME: &str = "sam";

/// The dialect.
#[derive(Clone, Copy, Debug)]
pub struct Sam;

impl Dialect for Sam {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "Solace Agent Mesh workflows: YAML with agents, switches, maps, forks, joins and loops"
    }

    fn detect(&self, document: &Document) -> u8 {
        file::certainty(document)
    }

    fn declared_variables<'d>(&self, document: &'d Document) -> Option<Vec<&'d Node>> {
        file::declared_variables(document)
    }

    fn unread_parts<'d>(&self, document: &'d Document) -> Vec<&'d Node> {
        file::unread_parts(document)
    }

    fn lower(&self, document: Document, options: &LowerOptions<'_>) -> Result<Vec<Lowered>, Diagnostics> {
        let mut found = Vec::new();
        let content = file::read(&document, options.default_name, &mut found);
        let mut lowered = Vec::new();
        // Parser warnings are reported once, with the first workflow.
        let is_warning = |item: &&Diagnostic| item.severity == sinew_source::Severity::Warning;
        let mut while_reading: Vec<Diagnostic> = found.iter().filter(is_warning).cloned().collect();
        for (name, definition) in &content.workflows {
            let mut about = Vec::new();
            // Without a readable list of nodes, every reference would be unknown.
            if definition.nodes.is_empty() && definition.unread.is_empty() {
                continue;
            }
            validate::validate(name, definition, &document.sources, options.read, &mut about);
            let mut items = std::mem::take(&mut while_reading);
            items.extend(about.iter().filter(is_warning).cloned());
            let mut warnings = Diagnostics { sources: document.sources.clone(), items };
            let broken = about.iter().any(|item| item.severity == sinew_source::Severity::Error);
            found.extend(about);
            if broken || found.iter().any(|item| item.severity == sinew_source::Severity::Error) {
                continue;
            }
            match lower::lower(name, definition) {
                Ok((mut plan, places)) => {
                    warnings.extend(display::mark_quiet(definition.display.as_ref(), &mut plan.nodes));
                    warnings.sort();
                    lowered.push(Lowered { plan, places, warnings, agents: content.agents.clone() });
                }
                Err(fault) => {
                    found.push(
                        Diagnostic::error(code::PLAN_OF_OTHER_DIALECT.as_str(), fault.message)
                            .at(definition.places.whole),
                    );
                }
            }
        }
        if found.iter().any(|item| item.severity == sinew_source::Severity::Error) {
            found.retain(|item| !GRAPH_WARNINGS.iter().any(|code| item.code == code.as_str()));
            let mut diagnostics = Diagnostics { sources: document.sources, items: found };
            diagnostics.sort();
            return Err(diagnostics);
        }
        Ok(lowered)
    }

    fn card_skills(&self, plan: &Plan) -> Vec<Value> {
        let declared = plan.extra.get("skills").and_then(Value::as_array);
        declared.into_iter().flatten().map(card_skill).collect()
    }

    fn card_catalogue(&self, plan: &Plan) -> Catalogue {
        plan.extra.get("catalogue").and_then(|value| Catalogue::deserialize(value).ok()).unwrap_or_default()
    }

    /// The definition concerns the whole workflow; each node stores its own settings.
    fn node_settings(&self, _plan: &Plan) -> Value {
        Value::Null
    }

    fn sam_document(&self, plan: &Plan) -> Option<Value> {
        Some(portable::document(plan))
    }

    fn asks_for_decision(&self, node: &PlanNode) -> bool {
        node.op == NodeOperation::Human
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &adapter::SamAdapter
    }

    fn schema(&self) -> Value {
        serde_json::from_str(include_str!("schema.json")).unwrap_or_default()
    }
}

/// Warnings that follow from the whole graph: they may be wrong while it has errors.
const GRAPH_WARNINGS: [code::Code; 4] = [
    code::TEMPLATE_NODE_MAY_NOT_BE_DONE,
    code::NOTHING_USES_NODE_OUTPUT,
    code::INPUT_AMBIGUOUS,
    code::NODE_WAITS_FOR_LOOP_BODY,
];

/// Returns a declared skill with all fields that a card requires.
fn card_skill(declared: &Value) -> Value {
    let mut skill = declared.clone();
    let id = skill["id"].clone();
    for (member, otherwise) in [("name", id.clone()), ("description", id), ("tags", json!(["workflow"]))] {
        if skill[member].is_null() {
            skill[member] = otherwise;
        }
    }
    skill
}
