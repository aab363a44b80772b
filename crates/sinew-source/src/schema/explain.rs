//! Messages for errors of the validator, without the values that they concern.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Is};
use serde_json::Value;

use super::{DetailedViolation, MOST_VIOLATIONS, SchemaError};

/// Maximum length of a message, in characters: schemas may have very long enums.
const LONGEST_MESSAGE: usize = 300;
/// Maximum number of valid strings that one violation lists.
const MAX_EXPECTED_TEXTS: usize = 256;
/// Maximum number of violations that list valid strings.
const MAX_FINDINGS_WITH_TEXTS: usize = 64;

/// Adds the violations of one error: several for several unknown properties, and those of the most
/// likely branch for `anyOf` and `oneOf`.
pub(super) fn findings(error: &ValidationError<'_>, out: &mut Vec<DetailedViolation>) {
    let actual = type_name(error.instance());
    match error.kind() {
        Is::AdditionalProperties { unexpected } | Is::UnevaluatedProperties { unexpected } => {
            for key in unexpected.iter().take(MOST_VIOLATIONS.saturating_sub(out.len())) {
                let mut finding =
                    DetailedViolation::new(error, format!("unknown property '{}'", short(key, 60)));
                finding.key = Some(key.clone());
                out.push(finding);
            }
        }
        Is::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            out.push(DetailedViolation::new(error, format!("'{}' is a required property", short(name, 60))));
        }
        Is::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(one) => format!("type {one}"),
                TypeKind::Multiple(set) => {
                    let names: Vec<String> = set.iter().map(|one| one.to_string()).collect();
                    format!("types {}", names.join(", "))
                }
            };
            out.push(DetailedViolation::new(error, format!("{actual} is not of {expected}")));
        }
        Is::Enum { options } => {
            let mut finding = DetailedViolation::new(error, masked(error, actual));
            if out.len() < MAX_FINDINGS_WITH_TEXTS {
                finding.expected = texts(options);
            }
            out.push(finding);
        }
        Is::Constant { expected_value } => {
            let mut finding = DetailedViolation::new(error, masked(error, actual));
            finding.expected = expected_value.as_str().map(str::to_owned).into_iter().collect();
            out.push(finding);
        }
        // The error contains a placeholder for the array, whose length has no meaning.
        Is::AdditionalItems { limit } => {
            out.push(DetailedViolation::new(
                error,
                format!("additional items are not allowed (more than {limit})"),
            ));
        }
        Is::FalseSchema => out.push(DetailedViolation::new(error, "no value is allowed here".to_owned())),
        Is::PropertyNames { error: inner } => {
            let name = inner.instance().as_str().unwrap_or_default();
            let message =
                format!("property name '{}' is not allowed: {}", short(name, 60), masked(inner, "name"));
            let mut finding = DetailedViolation::new(error, message);
            finding.key = Some(name.to_owned());
            out.push(finding);
        }
        Is::AnyOf { context } | Is::OneOfNotValid { context } => branches(error, context, actual, out),
        Is::OneOfMultipleValid { .. } => {
            out.push(DetailedViolation::new(
                error,
                format!("{actual} matches more than one of the allowed forms"),
            ));
        }
        _ => out.push(DetailedViolation::new(error, masked(error, actual))),
    }
}

/// Selects the branch that the author probably intended: the one of the right type whose marker (a
/// `const` or `enum` one level down, such as `type: agent`) matches. Only its errors are useful.
fn branches(
    error: &ValidationError<'_>,
    context: &[Vec<ValidationError<'static>>],
    actual: &str,
    out: &mut Vec<DetailedViolation>,
) {
    let here = error.instance_path().as_str();
    let right_type = |branch: &&Vec<ValidationError<'static>>| {
        !branch.iter().any(|e| matches!(e.kind(), Is::Type { .. }) && e.instance_path().as_str() == here)
    };
    let marker = |e: &&ValidationError<'static>| {
        let below = e.instance_path().as_str().strip_prefix(here).unwrap_or("");
        matches!(e.kind(), Is::Constant { .. } | Is::Enum { .. }) && below.matches('/').count() <= 1
    };
    let typed: Vec<_> = context.iter().filter(right_type).collect();
    let meant: Vec<_> = typed.iter().filter(|branch| !branch.iter().any(|e| marker(&e))).collect();
    if let [only] = meant[..] {
        only.iter().for_each(|inner| findings(inner, out));
        return;
    }
    let markers: Vec<&ValidationError<'static>> =
        typed.iter().filter_map(|branch| branch.iter().find(marker)).collect();
    let places: BTreeSet<&str> = markers.iter().map(|e| e.instance_path().as_str()).collect();
    if let (true, [first, ..], 1) = (meant.is_empty(), &markers[..], places.len()) {
        let texts = markers.iter().flat_map(|e| marker_texts(e));
        let expected: Vec<String> = texts.take(MAX_EXPECTED_TEXTS).collect();
        let listed: Vec<String> = expected.iter().map(|text| format!("'{text}'")).collect();
        let message = format!("{} is none of {}", type_name(first.instance()), listed.join(", "));
        let mut finding = DetailedViolation::new(first, short(&message, LONGEST_MESSAGE));
        finding.expected = expected;
        out.push(finding);
        return;
    }
    out.push(DetailedViolation::new(error, format!("{actual} matches none of the allowed forms")));
}

fn marker_texts(error: &ValidationError<'_>) -> Vec<String> {
    match error.kind() {
        Is::Constant { expected_value } => expected_value.as_str().map(str::to_owned).into_iter().collect(),
        Is::Enum { options } => texts(options),
        _ => Vec::new(),
    }
}

fn texts(options: &Value) -> Vec<String> {
    let texts = options.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.take(MAX_EXPECTED_TEXTS).map(str::to_owned).collect()
}

/// Returns the reason why a schema did not compile.
pub(super) fn schema_error(error: &ValidationError<'_>) -> SchemaError {
    match error.kind() {
        Is::Referencing(inner) => SchemaError::Unresolved(short(&inner.to_string(), LONGEST_MESSAGE)),
        _ => SchemaError::Invalid {
            pointer: error.instance_path().as_str().to_owned(),
            message: masked(error, type_name(error.instance())),
        },
    }
}

/// Returns the validator's message with the type instead of the value.
fn masked(error: &ValidationError<'_>, placeholder: &str) -> String {
    let mut cut = CutText { text: String::new(), left: 4 * LONGEST_MESSAGE };
    // Formatting stops at the length limit, because an `enum` may be as long as a schema.
    let _stopped = write!(cut, "{}", error.masked_with(placeholder));
    let text = cut.text;
    let mut letters = text.chars();
    let lower: String =
        letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default();
    short(&lower, LONGEST_MESSAGE)
}

/// String that returns an error above a number of bytes, which stops the formatting.
struct CutText {
    text: String,
    left: usize,
}

impl std::fmt::Write for CutText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = text.floor_char_boundary(self.left);
        self.text.push_str(&text[..end]);
        self.left -= end;
        if end == text.len() { Ok(()) } else { Err(std::fmt::Error) }
    }
}

/// Truncates a string to `most` characters and marks the cut.
pub(super) fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
