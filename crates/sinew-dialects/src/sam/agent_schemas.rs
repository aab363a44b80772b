//! Schemas of agents declared next to a workflow file, and inputs that do not conform to them.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;
use sinew_source::hint_for;

use super::model::{Work, WorkflowDefinition};

/// The schemas of an agent declared next to the file.
#[derive(Default)]
pub(super) struct AgentSchemas {
    pub(super) input: Option<Rc<Value>>,
    pub(super) output: Option<Rc<Value>>,
}

/// Returns the schemas of the agents that a definition names, as far as they are declared next to
/// the file.
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

/// Returns whether a schema is composed of others or accepts any property, so that undeclared
/// properties are possible.
pub(super) fn is_open(schema: &Value) -> bool {
    let parts = ["patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if"];
    parts.iter().any(|key| schema.get(key).is_some())
        || schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false))
}

/// Returns a description of each missing or undeclared field of an input, with a similar name.
/// `told` counts the findings so far: similar names are only searched for while there are few.
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
            let words = format!("has '{name}', which the schema of the agent lacks");
            found.push((words, near.map(str::to_owned)));
        }
    }
    found
}
