//! Small values that follow the recursion of a schema, to test it before use.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::expansion::References;

/// Levels of a trial value.
const TRIAL_DEPTH: usize = 40;
/// Maximum number of references that are tested for recursion.
const MAX_TRIALS: usize = 16;
/// Maximum number of visited subschemas from a reference back to itself.
const MAX_VISITS: usize = 2_000;

/// Returns values that are nested along the recursive references of a schema.
pub(super) fn recursive_values(schema: &Value, references: &References<'_>) -> Vec<Value> {
    let mut targets = Vec::new();
    let mut seen = BTreeSet::new();
    collect_targets(schema, references, &mut seen, &mut targets);
    let ways = targets.into_iter().take(MAX_TRIALS).filter_map(|target| way_back(target, references));
    ways.map(|way| nested(&way)).collect()
}

/// One level down in a value.
#[derive(Clone)]
enum TrialDescent<'s> {
    Member(&'s str),
    Item(usize),
}

fn collect_targets<'s>(
    schema: &'s Value,
    references: &References<'s>,
    seen: &mut BTreeSet<*const Value>,
    targets: &mut Vec<&'s Value>,
) {
    match schema {
        Value::Array(items) => {
            for item in items {
                collect_targets(item, references, seen, targets);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), value) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                        let found = references.resolve(reference).into_iter();
                        targets.extend(found.filter(|target| seen.insert(std::ptr::from_ref(*target))));
                    }
                    _ => collect_targets(value, references, seen, targets),
                }
            }
        }
        _ => {}
    }
}

/// Returns the shortest path in a value after which a subschema is applied again.
fn way_back<'s>(target: &'s Value, references: &References<'s>) -> Option<Vec<TrialDescent<'s>>> {
    let mut seen = BTreeSet::new();
    let mut queue = VecDeque::from([(target, Vec::new())]);
    while let Some((schema, way)) = queue.pop_front() {
        if std::ptr::eq(schema, target) && !way.is_empty() {
            return Some(way);
        }
        if way.len() > TRIAL_DEPTH || seen.len() > MAX_VISITS {
            return None;
        }
        // At the position itself and again below it: the target is visited twice.
        if !seen.insert((std::ptr::from_ref(schema), way.is_empty())) {
            continue;
        }
        let Value::Object(members) = schema else { continue };
        for (key, value) in members {
            for (next, descent) in next_subschemas(key, value, references) {
                let mut way = way.clone();
                way.extend(descent);
                if way.is_empty() { queue.push_front((next, way)) } else { queue.push_back((next, way)) }
            }
        }
    }
    None
}

/// Returns the subschemas that a keyword applies, each with the level of the value that it applies
/// to.
fn next_subschemas<'s>(
    key: &str,
    value: &'s Value,
    references: &References<'s>,
) -> Vec<(&'s Value, Option<TrialDescent<'s>>)> {
    match (key, value) {
        ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
            references.resolve(reference).into_iter().map(|target| (target, None)).collect()
        }
        ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
            branches.iter().map(|branch| (branch, None)).collect()
        }
        ("not" | "if" | "then" | "else", branch) => vec![(branch, None)],
        ("properties", Value::Object(properties)) => {
            properties.iter().map(|(name, schema)| (schema, Some(TrialDescent::Member(name)))).collect()
        }
        ("additionalProperties" | "unevaluatedProperties", schema) => {
            vec![(schema, Some(TrialDescent::Member("a")))]
        }
        ("patternProperties", Value::Object(patterns)) => {
            let below = |name: &'s String| TrialDescent::Member(name.trim_matches(['^', '$']));
            patterns.iter().map(|(name, schema)| (schema, Some(below(name)))).collect()
        }
        ("dependentSchemas", Value::Object(schemas)) => {
            schemas.values().map(|schema| (schema, None)).collect()
        }
        ("prefixItems" | "items", Value::Array(schemas)) => {
            schemas.iter().enumerate().map(|(n, schema)| (schema, Some(TrialDescent::Item(n)))).collect()
        }
        ("items" | "contains" | "additionalItems" | "unevaluatedItems", schema) => {
            vec![(schema, Some(TrialDescent::Item(0)))]
        }
        _ => Vec::new(),
    }
}

/// Returns a value that repeats the path.
fn nested(way: &[TrialDescent<'_>]) -> Value {
    let descents = way.iter().rev().cycle().take(TRIAL_DEPTH / way.len().max(1) * way.len());
    descents.fold(Value::Null, |inner, descent| match descent {
        TrialDescent::Member(name) => Value::Object(Map::from_iter([((*name).to_owned(), inner)])),
        TrialDescent::Item(index) => {
            let mut items = vec![Value::Null; *index.min(&TRIAL_DEPTH)];
            items.push(inner);
            Value::Array(items)
        }
    })
}
