//! JSON Schema behind one module: drafts 4 to 2020-12, offline, with limits, without values in messages.

mod cache;
mod expansion;
mod explain;
mod place;

pub use cache::SchemaCache;
pub use place::check_node;

use std::sync::Arc;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Schemas larger than this (as JSON text, in bytes) are refused.
const LARGEST_SCHEMA: usize = 256 << 10;
/// Values and schemas nested deeper than this are refused: checking them takes stack.
const DEEPEST: usize = 100;
/// Violations past this many are not looked for.
const MOST_VIOLATIONS: usize = 1000;
/// Size of one compiled `pattern`, in bytes.
const LARGEST_PATTERN: usize = 1 << 20;

/// A compiled schema. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    validator: Arc<Validator>,
    source: Arc<Value>,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It does not fit the draft it is written in (`$schema`, else 2020-12), or a pattern of it is not linear.
    #[error("schema is not valid at '{pointer}': {message}")]
    Invalid {
        /// JSON pointer into the schema.
        pointer: String,
        /// What is wrong.
        message: String,
    },
    /// More than 256 kB of JSON text.
    #[error("schema is larger than 256 kB")]
    TooLarge,
    /// More than 100 levels.
    #[error("schema is nested deeper than 100 levels")]
    TooDeep,
    /// Its references lead through more than 50 000 subschemas or 300 steps down.
    #[error("schema grows too large when its references are followed")]
    TooManyReferences,
    /// A `$ref` out of the schema, to nowhere or only to itself, or an unknown `$schema`.
    #[error("schema refers to something that is not in it: {0}")]
    Unresolved(String),
}

impl SchemaError {
    /// The operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "SINEW-4005",
            Self::TooLarge | Self::TooDeep | Self::TooManyReferences => "SINEW-4006",
            Self::Unresolved(_) => "SINEW-4008",
        }
    }
}

/// One way in which a value does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the value; for an unknown or missing property, to the object.
    pub pointer: String,
    /// What is wrong, by type only, such as `string is not of type integer`: never the value itself.
    pub message: String,
    /// The schema keyword that was not met, such as `type`; `depth` for a value nested too deeply.
    pub keyword: String,
    /// JSON pointer into the schema.
    pub schema_pointer: String,
}

impl Schema {
    /// Compiles a schema. Remote references are refused, formats are checked, patterns run in linear time.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if deeper_than(schema, DEEPEST) {
            return Err(SchemaError::TooDeep);
        }
        if schema.to_string().len() > LARGEST_SCHEMA {
            return Err(SchemaError::TooLarge);
        }
        if expansion::too_large(schema) {
            return Err(SchemaError::TooManyReferences);
        }
        let validator = jsonschema::options()
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(
                PatternOptions::regex().size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN),
            )
            .build(schema)
            .map_err(|error| explain::schema_error(&error))?;
        Ok(Self { validator: Arc::new(validator), source: Arc::new(schema.clone()) })
    }

    /// All violations, at most 1000; empty where the value matches.
    pub fn errors(&self, value: &Value) -> Vec<Violation> {
        self.findings(value).into_iter().map(|finding| finding.violation).collect()
    }

    /// `Ok` where the value matches.
    pub fn check(&self, value: &Value) -> Result<(), Vec<Violation>> {
        if !deeper_than(value, DEEPEST) && self.validator.is_valid(value) {
            return Ok(());
        }
        Err(self.errors(value))
    }

    fn findings(&self, value: &Value) -> Vec<Finding> {
        if deeper_than(value, DEEPEST) {
            return vec![Finding::plain(Violation {
                pointer: String::new(),
                message: format!("value is nested deeper than {DEEPEST} levels"),
                keyword: "depth".to_owned(),
                schema_pointer: String::new(),
            })];
        }
        let mut out = Vec::new();
        for error in self.validator.iter_errors(value) {
            explain::findings(&error, &mut out);
            if out.len() >= MOST_VIOLATIONS {
                out.truncate(MOST_VIOLATIONS);
                break;
            }
        }
        out
    }
}

/// A violation with what a better message needs.
struct Finding {
    violation: Violation,
    /// The property that is unknown or badly named.
    key: Option<String>,
    /// The texts that would have been right here.
    expected: Vec<String>,
}

impl Finding {
    fn plain(violation: Violation) -> Self {
        Self { violation, key: None, expected: Vec::new() }
    }

    fn new(error: &ValidationError<'_>, message: String) -> Self {
        Self::plain(Violation {
            pointer: error.instance_path().as_str().to_owned(),
            message,
            keyword: error.kind().keyword().to_owned(),
            schema_pointer: error.schema_path().as_str().to_owned(),
        })
    }
}

/// Whether a value has more levels than `limit`; never recurses deeper than that itself.
fn deeper_than(value: &Value, limit: usize) -> bool {
    let below = |child: &Value| limit == 0 || deeper_than(child, limit - 1);
    match value {
        Value::Array(items) => items.iter().any(below),
        Value::Object(members) => members.values().any(below),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
