//! The number of subschemas that the validator compiles.
//!
//! For `unevaluatedProperties` and `unevaluatedItems` it compiles the subschemas that apply to the
//! same value again, and those within them again: 60 nested ones are 2^60 subschemas. This module
//! counts them in the same way before the validator compiles any.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::SchemaError;
use super::expansion::References;
use super::explain::short;

/// Maximum number of compiled subschemas of one schema.
const MAX_COMPILED: usize = 50_000;
/// Maximum depth of compiled subschemas, because compiling them uses the stack.
const MAX_COMPILED_DEPTH: usize = 300;
/// Keywords with one subschema, or with a list of them.
pub(super) const SUBSCHEMA_KEYWORDS: [&str; 16] = [
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "contentSchema",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];
/// Keywords with a subschema for each name.
pub(super) const NAMED_SUBSCHEMA_KEYWORDS: [&str; 4] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// Prefixes of the addresses of meta-schemas, which are built into the validator.
const META_SCHEMAS: [&str; 2] = ["http://json-schema.org/", "https://json-schema.org/"];

/// Returns the number of compiled subschemas of a schema. Fails if there are too many, or if this
/// module cannot follow a reference.
pub(super) fn compiled_count(schema: &Value, references: &References<'_>) -> Result<usize, SchemaError> {
    let mut count =
        NodeCount { references, left: MAX_COMPILED, targets: BTreeSet::new(), marking: BTreeSet::new() };
    count.compile(schema, 0)?;
    Ok(MAX_COMPILED - count.left)
}

/// Properties or items of a value that a schema has not evaluated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LeftoverMembers {
    Properties,
    Items,
}

impl LeftoverMembers {
    /// Returns the keyword for unevaluated members.
    fn keyword(self) -> &'static str {
        match self {
            Self::Properties => "unevaluatedProperties",
            Self::Items => "unevaluatedItems",
        }
    }

    /// Returns the keywords whose subschemas are compiled again.
    fn compiled_again(self) -> &'static [&'static str] {
        match self {
            Self::Properties => &["additionalProperties", "patternProperties", "unevaluatedProperties"],
            Self::Items => &["items", "prefixItems", "contains", "unevaluatedItems"],
        }
    }
}

struct NodeCount<'r, 's> {
    references: &'r References<'s>,
    left: usize,
    /// Targets of references; each is compiled once.
    targets: BTreeSet<*const Value>,
    /// Subschemas whose unevaluated members are being compiled; terminates loops.
    marking: BTreeSet<(*const Value, LeftoverMembers)>,
}

impl<'s> NodeCount<'_, 's> {
    fn spend(&mut self, depth: usize) -> Result<(), SchemaError> {
        let left = self.left.checked_sub(1).filter(|_| depth <= MAX_COMPILED_DEPTH);
        self.left = left.ok_or(SchemaError::TooManyReferences)?;
        Ok(())
    }

    /// Returns the possible targets of a reference; none for a meta-schema.
    fn targets(&self, reference: &str) -> Result<Vec<&'s Value>, SchemaError> {
        let targets = self.references.resolve(reference);
        if targets.is_empty() && !META_SCHEMAS.iter().any(|start| reference.starts_with(start)) {
            return Err(SchemaError::Unresolved(format!("'{}'", short(reference, 100))));
        }
        Ok(targets)
    }

    fn compile(&mut self, schema: &Value, depth: usize) -> Result<(), SchemaError> {
        self.spend(depth)?;
        let Value::Object(members) = schema else { return Ok(()) };
        for (key, value) in members {
            match key.as_str() {
                "unevaluatedProperties" => {
                    self.mark(schema, members, LeftoverMembers::Properties, depth + 1)?;
                }
                "unevaluatedItems" => self.mark(schema, members, LeftoverMembers::Items, depth + 1)?,
                keyword => self.compile_keyword(keyword, value, depth + 1)?,
            }
        }
        Ok(())
    }

    /// Counts the subschemas of one keyword.
    fn compile_keyword(&mut self, keyword: &str, value: &Value, depth: usize) -> Result<(), SchemaError> {
        match value {
            Value::String(reference) if is_reference(keyword) => {
                for target in self.targets(reference)? {
                    if self.targets.insert(std::ptr::from_ref(target)) {
                        self.compile(target, depth)?;
                    }
                }
                Ok(())
            }
            Value::Object(named) if NAMED_SUBSCHEMA_KEYWORDS.contains(&keyword) => {
                named.values().try_for_each(|schema| self.compile(schema, depth))
            }
            Value::Array(schemas) if SUBSCHEMA_KEYWORDS.contains(&keyword) => {
                schemas.iter().try_for_each(|schema| self.compile(schema, depth))
            }
            schema if SUBSCHEMA_KEYWORDS.contains(&keyword) => self.compile(schema, depth),
            _ => Ok(()),
        }
    }

    /// Counts the subschemas that determine the unevaluated members of a schema.
    fn mark(
        &mut self,
        schema: &Value,
        members: &Map<String, Value>,
        leftover: LeftoverMembers,
        depth: usize,
    ) -> Result<(), SchemaError> {
        self.spend(depth)?;
        let place = (std::ptr::from_ref(schema), leftover);
        if !self.marking.insert(place) {
            return Ok(());
        }
        for (key, value) in members {
            let keyword = key.as_str();
            if leftover.compiled_again().contains(&keyword) || keyword == leftover.keyword() {
                self.compile_keyword(keyword, value, depth + 1)?;
            }
            match (keyword, value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                    for branch in branches {
                        self.compile(branch, depth + 1)?;
                        self.mark_below(branch, leftover, depth + 1)?;
                    }
                }
                ("if", branch) => {
                    self.compile(branch, depth + 1)?;
                    self.mark_below(branch, leftover, depth + 1)?;
                }
                ("then" | "else", branch) => self.mark_below(branch, leftover, depth + 1)?,
                ("dependentSchemas", Value::Object(named)) => {
                    for branch in named.values() {
                        self.mark_below(branch, leftover, depth + 1)?;
                    }
                }
                (reference, Value::String(name)) if is_reference(reference) => {
                    for target in self.targets(name)? {
                        self.mark_below(target, leftover, depth + 1)?;
                    }
                }
                _ => {}
            }
        }
        self.marking.remove(&place);
        Ok(())
    }

    fn mark_below(
        &mut self,
        schema: &Value,
        leftover: LeftoverMembers,
        depth: usize,
    ) -> Result<(), SchemaError> {
        match schema {
            Value::Object(members) => self.mark(schema, members, leftover, depth),
            _ => Ok(()),
        }
    }
}

fn is_reference(keyword: &str) -> bool {
    matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef")
}
