//! JSON Schema: drafts 4 to 2020-12, offline, limited, and without values in messages.

mod budget;
mod cache;
mod compilation;
mod cost;
mod expansion;
mod explain;
mod lint;
mod metered;
mod place;
mod trial;

pub use cache::SchemaCache;
pub use lint::check_schema;
pub use place::check_node;

use std::sync::Arc;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use budget::{BudgetExceeded, CheckBudget};
use compilation::compiled_count;
use cost::{SchemaCost, ValueSize};
use expansion::{References, expanded_size};
use metered::{MeteredJson, MeteredNode};
use sinew_codes as code;

/// Maximum size of a schema, in bytes of JSON.
const LARGEST_SCHEMA: usize = 256 << 10;
/// Maximum nesting of schemas and values, because checking uses the stack.
const DEEPEST: usize = 100;
/// Maximum number of reported violations.
const MOST_VIOLATIONS: usize = 1000;
/// Maximum size of one compiled `pattern`, in bytes.
const LARGEST_PATTERN: usize = 1 << 20;
/// Maximum size of all compiled patterns of a schema, in bytes, divided among them, but at least
/// [`MIN_PATTERN_BYTES`] each.
const MAX_PATTERNS_BYTES: usize = 8 << 20;
/// First size limit of a compiled pattern, in bytes: sufficient for usual patterns.
const USUAL_PATTERN_BYTES: usize = 64 << 10;
/// Minimum size limit of a compiled pattern, in bytes: sufficient for a few character classes.
const MIN_PATTERN_BYTES: usize = 32 << 10;
/// Maximum size of all pointers into a schema, in bytes: the compiled schema contains one for each
/// subschema.
const MAX_POINTER_BYTES: usize = 32 << 20;

/// Code of a check that exceeded its budget.
pub const CHECK_BUDGET_EXCEEDED: &str = code::CHECK_BUDGET_EXCEEDED.as_str();
/// Keyword of the violation for a check that exceeded its budget.
const BUDGET_KEYWORD: &str = "budget";

/// A compiled schema. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    validator: Arc<Validator<MeteredJson>>,
    source: Arc<Value>,
    cost: SchemaCost,
}

/// Error for an unusable schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema violates its draft (`$schema`, otherwise 2020-12), or one of its patterns is not
    /// linear.
    #[error("schema is not valid at '{pointer}': {message}")]
    Invalid {
        /// JSON pointer into the schema.
        pointer: String,
        /// Description of the defect.
        message: String,
    },
    /// More than 256 kB of JSON text.
    #[error("schema is larger than 256 kB")]
    TooLarge,
    /// More than 100 levels.
    #[error("schema is nested deeper than 100 levels")]
    TooDeep,
    /// Following its references visits more than 50 000 subschemas or 300 levels.
    #[error("schema grows too large when its references are followed")]
    TooManyReferences,
    /// More than 1000 patterns, or more than 1000 lists and objects in `enum`.
    #[error("schema has more patterns or more lists in 'enum' than a schema may have (1000)")]
    TooManyPatterns,
    /// The check of a small value that follows its recursion exceeds the budget of a check.
    #[error("the schema is so recursive that checking a small value exceeds the limit of a check")]
    TooCostly,
    /// A `$ref` to another document, to nothing or only to itself, or an unknown `$schema`.
    #[error("the schema has an unresolved reference: {0}")]
    Unresolved(String),
}

impl SchemaError {
    /// Returns the operator code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => code::SCHEMA_NOT_VALID.as_str(),
            Self::TooLarge | Self::TooDeep | Self::TooManyReferences | Self::TooManyPatterns => {
                code::SCHEMA_TOO_LARGE.as_str()
            }
            Self::TooCostly => CHECK_BUDGET_EXCEEDED,
            Self::Unresolved(_) => code::SCHEMA_REFERENCE_MISSING.as_str(),
        }
    }
}

/// Violation of a schema by a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the value; for an unknown or missing property, to the object.
    pub pointer: String,
    /// Description by type only, such as `string is not of type integer`: never the value itself.
    pub message: String,
    /// Violated schema keyword, such as `type`; `depth` for a value nested too deeply, `budget` for
    /// a check that exceeded its budget.
    pub keyword: String,
    /// JSON pointer into the schema.
    pub schema_pointer: String,
}

impl Violation {
    /// Returns whether the value could not be checked because the check exceeded its budget.
    pub fn is_over_budget(&self) -> bool {
        self.keyword == BUDGET_KEYWORD
    }
}

/// Returns the code of a fault for these violations: `code`, or the code of an exceeded budget.
pub fn violation_code(violations: &[Violation], code: &'static str) -> &'static str {
    if violations.iter().any(Violation::is_over_budget) { CHECK_BUDGET_EXCEEDED } else { code }
}

/// Returns the violations of a JSON Schema by a value, as lines of pointer and message. A schema that
/// cannot be compiled is one violation.
pub fn violations(schema: &Value, value: &Value) -> Vec<String> {
    match Schema::compile(schema) {
        Err(error) => vec![error.to_string()],
        Ok(schema) => {
            schema.errors(value).iter().map(|one| format!("{}: {}", one.pointer, one.message)).collect()
        }
    }
}

impl Schema {
    /// Compiles a schema. Rejects remote references. Formats are checked, and patterns run in
    /// linear time.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if ValueSize::within(schema, DEEPEST).is_none() {
            return Err(SchemaError::TooDeep);
        }
        if schema.to_string().len() > LARGEST_SCHEMA {
            return Err(SchemaError::TooLarge);
        }
        let references = References::of_schema(schema).ok_or(SchemaError::TooManyReferences)?;
        let followed = expanded_size(schema, &references).ok_or(SchemaError::TooManyReferences)?;
        let compiled = compiled_count(schema, &references)?;
        let subschemas = followed.max(compiled);
        let mut cost =
            SchemaCost::of_schema(schema, &references, subschemas).ok_or(SchemaError::TooManyPatterns)?;
        if subschemas.saturating_mul(cost.longest_pointer) > MAX_POINTER_BYTES {
            return Err(SchemaError::TooManyReferences);
        }
        let share = (MAX_PATTERNS_BYTES / cost.patterns.max(1)).clamp(MIN_PATTERN_BYTES, LARGEST_PATTERN);
        let mut pattern_bytes = share.min(USUAL_PATTERN_BYTES);
        let mut validator = build_validator(schema, pattern_bytes);
        if validator.is_err() && cost.patterns > 0 && pattern_bytes < share {
            pattern_bytes = share;
            validator = build_validator(schema, pattern_bytes);
        }
        let validator = validator?;
        cost.add_patterns(pattern_bytes);
        let compiled = Self { validator: Arc::new(validator), source: Arc::new(schema.clone()), cost };
        for value in trial::recursive_values(schema, &references) {
            let size = ValueSize::within(&value, DEEPEST).unwrap_or_default();
            compiled.matches(&value, size).map_err(|BudgetExceeded| SchemaError::TooCostly)?;
        }
        Ok(compiled)
    }

    /// Returns all violations, at most 1000; empty if the value matches.
    pub fn errors(&self, value: &Value) -> Vec<Violation> {
        self.findings(value).into_iter().map(|finding| finding.violation).collect()
    }

    /// Returns the violations, or `Ok` if the value matches. A value that cannot be checked within
    /// the budget does not match ([`Violation::is_over_budget`]).
    pub fn check(&self, value: &Value) -> Result<(), Vec<Violation>> {
        let violations = self.errors(value);
        if violations.is_empty() { Ok(()) } else { Err(violations) }
    }

    fn matches(&self, value: &Value, size: ValueSize) -> Result<bool, BudgetExceeded> {
        let budget = CheckBudget::of_value(size);
        budget.spend(&self.cost, 0, || self.validator.is_valid(MeteredNode(value)))
    }

    fn findings(&self, value: &Value) -> Vec<DetailedViolation> {
        let Some(size) = ValueSize::within(value, DEEPEST) else {
            let message = format!("value is nested deeper than {DEEPEST} levels");
            return vec![DetailedViolation::of_root("depth", message)];
        };
        // Checking whether a value matches is cheap even if listing all violations is not.
        match self.matches(value, size) {
            Ok(true) => return Vec::new(),
            Ok(false) => {}
            Err(BudgetExceeded) => {
                let message = "value takes more steps or memory to check than a check may take";
                return vec![DetailedViolation::of_root(BUDGET_KEYWORD, message.to_owned())];
            }
        }
        let error_bytes = self.cost.error_bytes + size.longest_pointer as u64;
        let explained = CheckBudget::of_value(size).spend(&self.cost, error_bytes, || {
            let mut out = Vec::new();
            for error in self.validator.iter_errors(MeteredNode(value)) {
                explain::findings(&error, &mut out);
                if out.len() >= MOST_VIOLATIONS {
                    break;
                }
            }
            out
        });
        match explained {
            Ok(found) if !found.is_empty() => found,
            _ => {
                let message = "value does not match, and listing the reasons takes too long";
                vec![DetailedViolation::of_root("schema", message.to_owned())]
            }
        }
    }
}

fn build_validator(schema: &Value, pattern_bytes: usize) -> Result<Validator<MeteredJson>, SchemaError> {
    jsonschema::options_for::<MeteredJson>()
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::regex().size_limit(pattern_bytes).dfa_size_limit(pattern_bytes))
        .build(schema)
        .map_err(|error| explain::schema_error(&error))
}

/// Violation with the data for a better message.
struct DetailedViolation {
    violation: Violation,
    /// Unknown property, or property with an invalid name.
    key: Option<String>,
    /// Strings that would be valid here.
    expected: Vec<String>,
}

impl DetailedViolation {
    fn plain(violation: Violation) -> Self {
        Self { violation, key: None, expected: Vec::new() }
    }

    /// Creates a violation of the whole value.
    fn of_root(keyword: &str, message: String) -> Self {
        let (pointer, schema_pointer) = (String::new(), String::new());
        Self::plain(Violation { pointer, message, keyword: keyword.to_owned(), schema_pointer })
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

#[cfg(test)]
mod tests;
