//! Checks of values against the schemas of the workflow and of its agents.

use std::rc::Rc;

use serde_json::{Value, json};
use sinew_protocol::code;
use sinew_source::{Diagnostic, Kind, Node, did_you_mean};

use super::agent_schemas::{SchemaOf, misfits};
use super::model::{KeySpans, NodeDef};
use super::path::{OUTPUT, Path, PathRoot};
use super::template::{Template, is_operator, operator_names};
use super::template_check::defect;
use super::validate::{DefinitionCheck, hinted};
use super::value_type::{ValueType, member};

impl DefinitionCheck<'_, '_> {
    /// Returns the type of a path, if a schema declares it.
    pub(super) fn type_of(&self, path: &Path) -> Option<ValueType> {
        let within = |schema: &Value, steps: &[String]| {
            let found = steps.iter().try_fold(schema, |schema, step| member(schema, step))?;
            ValueType::of_schema(found)
        };
        match &path.root {
            PathRoot::Input => within(self.definition.input_schema.as_ref()?, &path.steps),
            PathRoot::Node(id) => {
                let (first, rest) = path.steps.split_first()?;
                if first == OUTPUT { within(&*self.output_schema(id)?, rest) } else { None }
            }
            PathRoot::Index | PathRoot::Iteration => Some(ValueType::of("number")),
            PathRoot::Workflow | PathRoot::Item | PathRoot::Alias => None,
        }
    }

    /// Warns about items of a map that are not an array.
    pub(super) fn items_are_array(&mut self, node: &NodeDef) {
        let Some(items) = node.places.value("items") else { return };
        // A text may be an array as JSON.
        if items.as_str().is_none_or(|text| !text.trim_start().starts_with('[')) {
            self.fits(items, &json!({ "type": "array" }), &format!("'items' of node '{}'", node.id));
        }
    }

    /// Warns about input fields that the agent's schema lacks, missing required fields, and values of
    /// other types.
    pub(super) fn input_fits(&mut self, agent: &str, own: Option<&Value>, places: &KeySpans, what: &str) {
        let Some(input) = places.value("input") else { return };
        let of_agent = || self.agent_schemas.get(agent).and_then(|agent| agent.input.clone());
        if let Some(schema) = own.cloned().map(Rc::new).or_else(of_agent) {
            self.object_fits(input, &schema, what, SchemaOf::AgentInput);
        }
    }

    /// Warns about members that the schema lacks, missing required members, and values of other types.
    pub(super) fn object_fits(&mut self, value: &Node, schema: &Value, what: &str, of: SchemaOf) {
        for misfit in misfits(value, schema, self.found.len(), of) {
            let message = format!("{what} {}", misfit.words);
            let wrong = Diagnostic::warning(code::PATH_NOT_IN_SCHEMA.as_str(), message).at(misfit.at);
            self.found.push(hinted(wrong, misfit.near.as_deref()));
        }
        for property in value.as_object().unwrap_or_default() {
            if let Some(schema) = schema.get("properties").and_then(|all| all.get(&property.key)) {
                self.fits(&property.value, schema, &format!("'{}' of {what}", property.key));
            }
        }
    }

    /// Warns about a value whose type the schema does not allow.
    fn fits(&mut self, value: &Node, schema: &Value, what: &str) {
        let Some(expected) = ValueType::of_schema(schema) else { return };
        let actual = match &value.kind {
            Kind::Null => return,
            // A malformed template is reported as such.
            Kind::String(text) if defect(text, &|id| self.has(id)).is_some() => return,
            Kind::String(text) => match Template::parse(&text.as_str().into()) {
                Template::Path(path) => self.type_of(&path),
                Template::Text(_) => Some(ValueType::of("string")),
                _ => Some(ValueType::of_value(&text.as_str().into())),
            },
            Kind::Object(members) => match members.as_slice() {
                [only] if is_operator(&only.key) => {
                    let list = only.value.as_array().unwrap_or_default();
                    if only.key == "coalesce" {
                        for one in list {
                            self.fits(one, schema, what);
                        }
                    }
                    return;
                }
                // A misspelled operator is reported as such.
                [only] if did_you_mean(&only.key, operator_names()).is_some() => return,
                _ => Some(ValueType::of("object")),
            },
            Kind::Array(_) => Some(ValueType::of("array")),
            Kind::Bool(_) => Some(ValueType::of("boolean")),
            Kind::Number(_) => Some(ValueType::of("number")),
        };
        let Some(actual) = actual else { return };
        if !actual.overlaps(&expected) {
            let message = format!("{what} is {}, but it must be {}", actual.shown(), expected.shown());
            let whole = value.as_str().map_or(0..0, |text| 0..text.len());
            let at = if whole.is_empty() { value.span } else { self.token(value, whole) };
            self.found.push(Diagnostic::warning(code::TYPE_DOES_NOT_FIT.as_str(), message).at(at));
        }
    }
}
