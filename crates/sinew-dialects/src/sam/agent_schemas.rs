//! Schemas of agents declared next to a workflow file, and inputs that do not conform to them.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;
use sinew_source::{Node, Span, hint_for};

use super::model::{Work, WorkflowDefinition};
use super::template::is_operator;

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
        let branches = match &node.work {
            Work::Fork { branches, .. } => branches.as_slice(),
            _ => &[],
        };
        let own = match &node.work {
            Work::Agent { agent_name, .. } => Some(agent_name),
            _ => None,
        };
        for agent_name in own.into_iter().chain(branches.iter().map(|branch| &branch.agent_name)) {
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

/// The subject of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaOf {
    /// The input of an agent.
    AgentInput,
    /// The output of the workflow.
    Output,
}

impl SchemaOf {
    const fn name(self) -> &'static str {
        match self {
            Self::AgentInput => "the agent",
            Self::Output => "the output",
        }
    }
}

/// A missing or undeclared member of an object.
pub(super) struct MemberMisfit {
    /// The undeclared key, or the object that lacks a member.
    pub(super) at: Span,
    pub(super) words: String,
    /// A declared name that resembles the undeclared one.
    pub(super) near: Option<String>,
}

/// Returns the missing and undeclared members of an object with the schema `of` something. Undeclared
/// members of an output are only those that look misspelled: others may follow. `earlier` counts the
/// findings so far: similar names are only searched for while there are few.
pub(super) fn misfits(object: &Node, schema: &Value, earlier: usize, of: SchemaOf) -> Vec<MemberMisfit> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let (Some(members), Some(properties)) = (object.as_object(), properties) else { return Vec::new() };
    if members.len() == 1 && members.iter().all(|member| is_operator(&member.key)) {
        return Vec::new();
    }
    let mut found: Vec<MemberMisfit> = Vec::new();
    if !is_open(schema) {
        let missing = || properties.keys().map(String::as_str).filter(|name| object.get(name).is_none());
        for member in members.iter().filter(|member| !properties.contains_key(&member.key)) {
            let near = hint_for(earlier + found.len(), &member.key, missing()).map(str::to_owned);
            if near.is_some() || of == SchemaOf::AgentInput || schema.get("additionalProperties").is_some() {
                let words = format!("has '{}', which the schema of {} lacks", member.key, of.name());
                found.push(MemberMisfit { at: member.key_span, words, near });
            }
        }
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str).filter(|name| object.get(name).is_none()) {
        // A misspelled member is one mistake.
        if properties.contains_key(name) && found.iter().all(|misfit| misfit.near.as_deref() != Some(name)) {
            let words = format!("has no '{name}', which {} requires", of.name());
            found.push(MemberMisfit { at: object.span, words, near: None });
        }
    }
    found
}
