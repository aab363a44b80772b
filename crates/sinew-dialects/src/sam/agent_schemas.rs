//! Schemas that agents declare beside a workflow file, and inputs that do not fit them.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;
use sinew_source::hint_for;

use super::model::{Work, WorkflowDefinition};

/// Schemas that an agent declares beside the file.
#[derive(Default)]
pub(super) struct AgentSchemas {
    pub(super) input: Option<Rc<Value>>,
    pub(super) output: Option<Rc<Value>>,
}

/// The schemas of the agents that a definition names, as far as they are known beside the file.
pub(super) fn agent_schemas<'d>(
    definition: &'d WorkflowDefinition,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> BTreeMap<&'d str, AgentSchemas> {
    let schema = |part: &str, agent: &str| {
        let bytes = read(&format!("agent-{part}:{agent}")).ok()?;
        serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object).map(Rc::new)
    };
    let mut known = BTreeMap::new();
    for node in &definition.nodes {
        if let Work::Agent { agent_name, .. } = &node.work {
            known.entry(agent_name.as_str()).or_insert_with(|| AgentSchemas {
                input: schema("input", agent_name),
                output: schema("output", agent_name),
            });
        }
    }
    known
}

/// Whether a schema is put together of others, or takes any property: it says nothing about one that it does not name.
pub(super) fn is_open(schema: &Value) -> bool {
    let parts = ["patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if"];
    parts.iter().any(|key| schema.get(key).is_some())
        || schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false))
}

/// Returns for each member of an input that its schema misses, or does not have, words for it and a near name. `told` counts
/// findings so far: near names are looked for while there are few.
pub(super) fn misfits(input: &Value, schema: &Value, told: usize) -> Vec<(String, Option<String>)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let (Some(members), Some(properties)) = (input.as_object(), properties) else { return Vec::new() };
    if members.len() == 1 && members.keys().all(|key| key == "coalesce" || key == "concat") {
        return Vec::new();
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let missing = required.filter_map(Value::as_str).filter(|name| !members.contains_key(*name));
    let mut found: Vec<(String, Option<String>)> =
        missing.map(|name| (format!("has no '{name}', which the agent requires"), None)).collect();
    if !is_open(schema) {
        for name in members.keys().filter(|name| !properties.contains_key(*name)) {
            let near = hint_for(told + found.len(), name, properties.keys().map(String::as_str));
            let words = format!("has '{name}', and the schema of the agent does not");
            found.push((words, near.map(str::to_owned)));
        }
    }
    found
}
