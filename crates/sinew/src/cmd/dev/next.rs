//! The command that `sinew dev` names as the next: a workflow it deployed, with an input that the workflow takes.

use serde_json::Value;
use sinew_agents::AgentSet;
use sinew_dialects::Lowered;
use sinew_engine::ExecutionMode;
use sinew_plan::NodeOperation;

use crate::input;
use crate::load::{self, Loaded};
use sinew_inspection::words;

/// A command to type next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NextCommand {
    /// Run a deployed workflow.
    Run { workflow: String, input: Option<Value> },
    /// Call an agent: there is no workflow.
    Call { agent: String },
    /// Make a workflow: there is neither.
    New,
}

impl NextCommand {
    /// Returns the command line; `at` names the mesh.
    pub(super) fn line(&self, at: &str) -> String {
        match self {
            Self::Run { workflow, input } => {
                let input = input.as_ref().map(|input| format!(" -i {}", words::shell(&input.to_string())));
                let input = input.unwrap_or_default();
                format!("sinew run {} {at}{input} --watch", words::shell(workflow))
            }
            Self::Call { agent } => format!("sinew agent call {} {at} -i '{{}}'", words::shell(agent)),
            Self::New => "sinew new workflow hello".to_owned(),
        }
    }
}

/// Chooses the first workflow that takes a made-up input and whose agents are served, else the first that takes one.
pub(super) fn next_command(loaded: &[Loaded], agents: &AgentSet) -> NextCommand {
    let mut choices = Vec::new();
    for file in loaded {
        for lowered in &file.workflows {
            let Ok(program) = load::program(file.dialect, lowered) else { continue };
            let made_up = lowered.plan.input_schema.as_ref().map(|schema| sample(schema, schema, 0));
            let input = made_up.filter(|input| input.as_object().is_none_or(|fields| !fields.is_empty()));
            let given = input.clone().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            let is_taken = input::check(&program, &given, &ExecutionMode::default()).is_ok();
            choices.push((!is_taken, !is_served(lowered, loaded, agents), lowered.plan.name.clone(), input));
        }
    }
    choices.sort_by_key(|(is_refused, lacks_agents, ..)| (*is_refused, *lacks_agents));
    match choices.into_iter().next() {
        Some((is_refused, _, workflow, input)) => {
            NextCommand::Run { workflow, input: input.filter(|_| !is_refused) }
        }
        None => match agents.names().next() {
            Some(agent) => NextCommand::Call { agent: agent.to_owned() },
            None => NextCommand::New,
        },
    }
}

/// Tells whether all agents and workflows that a workflow asks are there.
fn is_served(lowered: &Lowered, loaded: &[Loaded], agents: &AgentSet) -> bool {
    let is_deployed =
        |name: &str| loaded.iter().flat_map(|file| &file.workflows).any(|one| one.plan.name == name);
    lowered.plan.nodes.iter().filter(|node| !node.attached).all(|node| {
        match (&node.op, node.agent.as_deref()) {
            (NodeOperation::Agent, Some(name)) => agents.get(name).is_some() || is_deployed(name),
            (NodeOperation::Workflow, Some(name)) => is_deployed(name),
            _ => true,
        }
    })
}

/// Levels of a schema that are made up; schemas may name themselves.
const MAX_SAMPLE_DEPTH: usize = 8;

/// Makes up a small value for a schema: its example or default, else what its type and limits ask for. Only properties that
/// are required are made up.
fn sample(schema: &Value, root: &Value, depth: usize) -> Value {
    if depth > MAX_SAMPLE_DEPTH {
        return Value::Null;
    }
    let first = |key: &str| schema.get(key).and_then(Value::as_array).and_then(|list| list.first()).cloned();
    if let Some(value) = first("examples")
        .or_else(|| schema.get("example").cloned())
        .or_else(|| schema.get("default").cloned())
        .or_else(|| schema.get("const").cloned())
        .or_else(|| first("enum"))
    {
        return value;
    }
    if let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'))
    {
        return root.pointer(pointer).map_or(Value::Null, |inner| sample(inner, root, depth + 1));
    }
    if let Some(choice) = first("anyOf").or_else(|| first("oneOf")).or_else(|| first("allOf")) {
        return sample(&choice, root, depth + 1);
    }
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str).unwrap_or_default(),
        _ if schema.get("properties").is_some() => "object",
        _ => "",
    };
    let number = |key: &str| schema.get(key).and_then(Value::as_u64);
    match kind {
        "object" => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let properties = required.filter_map(Value::as_str).map(|name| {
                let inner = schema.get("properties").and_then(|all| all.get(name)).unwrap_or(&Value::Null);
                (name.to_owned(), sample(inner, root, depth + 1))
            });
            Value::Object(properties.collect())
        }
        "array" => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            let count = number("minItems").unwrap_or(0).min(8);
            (0..count).map(|_| sample(items, root, depth + 1)).collect()
        }
        "integer" | "number" => schema
            .get("minimum")
            .cloned()
            .unwrap_or_else(|| number("exclusiveMinimum").map_or(1, |least| least + 1).into()),
        "boolean" => Value::Bool(true),
        "null" => Value::Null,
        _ => {
            let least = number("minLength").unwrap_or(0).min(64) as usize;
            Value::String("text".repeat(least.div_ceil(4).max(1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sinew_source::Schema;

    use super::*;

    #[test]
    fn made_up_inputs_fit_their_schemas() {
        let schemas = [
            json!({"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 5}, "note": {"type": "string"}}}),
            json!({"type": "object", "required": ["lines"], "properties": {"lines": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/line"}}}, "$defs": {"line": {"type": "object", "required": ["sku"], "properties": {"sku": {"enum": ["A", "B"]}}}}}),
            json!({"type": ["string", "null"], "minLength": 9}),
            json!({"anyOf": [{"const": 3}, {"type": "string"}]}),
            json!({"type": "object", "required": ["on"], "properties": {"on": {"type": "boolean"}, "x": {"exclusiveMinimum": 3}}}),
            json!({"type": "number", "exclusiveMinimum": 3}),
            json!(true),
        ];
        for schema in schemas {
            let made_up = sample(&schema, &schema, 0);
            let errors = Schema::compile(&schema).unwrap().errors(&made_up);
            assert!(errors.is_empty(), "{made_up} does not fit {schema}");
        }
        let endless = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(sample(&endless, &endless, 0), Value::Null);
    }

    #[test]
    fn a_line_can_be_typed() {
        let run = NextCommand::Run { workflow: "orders".into(), input: Some(json!({"a": "b's"})) };
        assert_eq!(run.line("--mesh"), r#"sinew run orders --mesh -i '{"a":"b'\''s"}' --watch"#);
        assert_eq!(NextCommand::New.line("--mesh"), "sinew new workflow hello");
    }
}
