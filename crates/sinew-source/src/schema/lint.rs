//! Mistakes in JSON Schemas that authors write, at the token.

use sinew_codes as code;

use super::compilation::{NAMED_SUBSCHEMA_KEYWORDS, SUBSCHEMA_KEYWORDS};
use super::{DEEPEST, Schema, SchemaError};
use crate::{Diagnostic, Node, hint_for};

/// Names of types.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];
/// Names of types in other languages.
const OTHER_NAMES: [(&str, &str); 17] = [
    ("bool", "boolean"),
    ("str", "string"),
    ("text", "string"),
    ("date", "string"),
    ("datetime", "string"),
    ("uuid", "string"),
    ("int", "integer"),
    ("int64", "integer"),
    ("long", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("decimal", "number"),
    ("list", "array"),
    ("dict", "object"),
    ("map", "object"),
    ("nil", "null"),
    ("none", "null"),
];
/// Keywords of all drafts and of OpenAPI that are not the name of a subschema.
const KEYWORDS: [&str; 42] = [
    "$schema",
    "$id",
    "$ref",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
    "$comment",
    "$defs",
    "definitions",
    "type",
    "enum",
    "const",
    "title",
    "description",
    "default",
    "examples",
    "example",
    "format",
    "deprecated",
    "readOnly",
    "writeOnly",
    "nullable",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxContains",
    "minContains",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "contentEncoding",
    "contentMediaType",
];
/// Keywords with which a schema has properties that `properties` does not list.
const COMPOSING: [&str; 7] =
    ["patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if", "additionalProperties"];
/// Minimum length of compared keywords, in characters: shorter ones resemble too many extensions.
const MIN_KEYWORD_CHARS: usize = 5;

/// Checks a schema that an author wrote. `what` names it in messages. Errors have the code
/// SINEW-2112: names of types that do not exist, and everything that the schema's draft does not
/// allow. Warnings have the code SINEW-2283: keywords that look misspelled, and required properties
/// that `properties` lacks. Each has the position of the token.
pub fn check_schema(node: &Node, what: &str) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    walk(node, what, 0, &mut found);
    if found.iter().any(|item| item.code == code::NOT_VALID_JSON_SCHEMA.as_str()) {
        return found;
    }
    if let Err(error) = Schema::compile(&node.to_json()) {
        let place = match &error {
            SchemaError::Invalid { pointer, .. } => node.at_pointer(pointer).unwrap_or(node),
            _ => node,
        };
        let message = format!("{what} is not a valid JSON Schema: {error}");
        found.push(Diagnostic::error(code::NOT_VALID_JSON_SCHEMA.as_str(), message).at(place.span));
    }
    found
}

fn walk(schema: &Node, what: &str, depth: usize, found: &mut Vec<Diagnostic>) {
    let Some(members) = schema.as_object().filter(|_| depth <= DEEPEST) else { return };
    for member in members {
        let (key, value) = (member.key.as_str(), &member.value);
        match key {
            "type" => types(value, what, found),
            "required" => required(schema, value, what, found),
            _ if NAMED_SUBSCHEMA_KEYWORDS.contains(&key) || key == "$defs" || key == "definitions" => {
                for named in value.as_object().unwrap_or_default() {
                    walk(&named.value, what, depth + 1, found);
                }
            }
            _ if SUBSCHEMA_KEYWORDS.contains(&key) => {
                let list = value.as_array().unwrap_or(std::slice::from_ref(value));
                for inner in list {
                    walk(inner, what, depth + 1, found);
                }
            }
            _ => {
                if let Some(near) = misspelled(key, found.len()) {
                    let text = format!("{what} has '{key}', which is no keyword of JSON Schema");
                    let unknown = Diagnostic::warning(code::SCHEMA_PROBABLY_WRONG.as_str(), text);
                    found.push(unknown.at(member.key_span).hint(format!("did you mean '{near}'?")));
                }
            }
        }
    }
}

/// Reports names of types that do not exist.
fn types(value: &Node, what: &str, found: &mut Vec<Diagnostic>) {
    for one in value.as_array().unwrap_or(std::slice::from_ref(value)) {
        let name = one.as_str().unwrap_or_default();
        if TYPES.contains(&name) {
            continue;
        }
        let text = match one.as_str() {
            Some(name) => format!("{what} has the unknown type '{name}'"),
            None => format!("{what} has a type that is {}, not a name", one.type_name()),
        };
        let lower = name.to_lowercase();
        let other = OTHER_NAMES.iter().find(|(other, _)| *other == lower).map(|(_, name)| *name);
        let near = other.or_else(|| hint_for(found.len(), name, TYPES.into_iter()));
        let hint = match near {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("types are {}", TYPES.join(", ")),
        };
        found.push(Diagnostic::error(code::NOT_VALID_JSON_SCHEMA.as_str(), text).at(one.span).hint(hint));
    }
}

/// Reports required properties that `properties` lacks: no value has them under another name.
fn required(schema: &Node, names: &Node, what: &str, found: &mut Vec<Diagnostic>) {
    let Some(properties) = schema.get("properties").and_then(Node::as_object) else { return };
    let is_composed = COMPOSING.iter().any(|key| {
        schema.get(key).is_some_and(|value| *key != "additionalProperties" || value.as_bool() != Some(false))
    });
    for name in names.as_array().unwrap_or_default() {
        let Some(text) = name.as_str() else { continue };
        if properties.iter().any(|property| property.key == text) {
            continue;
        }
        let near = hint_for(found.len(), text, properties.iter().map(|property| property.key.as_str()));
        if is_composed && near.is_none() {
            continue;
        }
        let message = format!("{what} requires '{text}', which is not in its 'properties'");
        let absent = Diagnostic::warning(code::SCHEMA_PROBABLY_WRONG.as_str(), message).at(name.span);
        found.push(match near {
            Some(near) => absent.hint(format!("did you mean '{near}'?")),
            None => absent.hint("add it to 'properties'"),
        });
    }
}

/// Returns the keyword that an unknown one resembles.
fn misspelled(key: &str, count: usize) -> Option<&'static str> {
    let known = || KEYWORDS.into_iter().chain(SUBSCHEMA_KEYWORDS).chain(NAMED_SUBSCHEMA_KEYWORDS);
    if known().any(|keyword| keyword == key) || key.starts_with("x-") {
        return None;
    }
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let near = hint_for(count, key, known())?;
    let is_long = key.chars().count() >= MIN_KEYWORD_CHARS && near.chars().count() >= MIN_KEYWORD_CHARS;
    (is_long || letters(key) == letters(near)).then_some(near)
}
