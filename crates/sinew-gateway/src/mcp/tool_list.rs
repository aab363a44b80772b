//! Agents and workflows as tools: names, descriptions, schemas, and the input for arguments.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use sinew_protocol::Token;
use sinew_protocol::a2a::AgentCard;
use sinew_protocol::card::{self, AgentKind};
use sinew_protocol::catalogue::Catalogue;

/// Argument with the whole input of an agent whose input is not a JSON object.
const WHOLE_INPUT: &str = "input";
/// Members of a schema that its references point to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Returns the tool name of an agent: its token on the mesh, which every host accepts as a name.
pub(super) fn tool_name(agent: &str) -> String {
    Token::of(agent).as_str().to_owned()
}

/// Returns the tool of an agent or workflow.
pub(super) fn tool_of(card: &AgentCard) -> Tool {
    let description = match card.description.trim() {
        "" if card::kind(card) == AgentKind::Workflow => format!("Runs the workflow {}", card.name),
        "" => format!("Asks the agent {}", card.name),
        purpose => purpose.to_owned(),
    };
    let mut tool = Tool::new(tool_name(&card.name), description, Arc::new(arguments_schema(card)));
    tool.title = Some(card.name.clone());
    if Catalogue::of(card).side_effects {
        tool.annotations = Some(ToolAnnotations::new().destructive(true));
    }
    tool.output_schema = card::output_schema(card).and_then(Value::as_object).cloned().map(Arc::new);
    tool
}

/// Returns the schema of the arguments, which are always an object.
fn arguments_schema(card: &AgentCard) -> JsonObject {
    match card::input_schema(card) {
        None => object(json!({"type": "object"})),
        Some(Value::Object(schema)) if takes_object(schema) => {
            let mut schema = schema.clone();
            schema.insert("type".to_owned(), "object".into());
            schema
        }
        Some(schema) => whole_input_schema(schema),
    }
}

/// Returns the schema of an argument with the whole input. Definitions move to the top level, which
/// references point to.
fn whole_input_schema(input: &Value) -> JsonObject {
    let mut input = input.clone();
    let mut schema = object(json!({"type": "object", "required": [WHOLE_INPUT]}));
    for name in DEFINITIONS {
        if let Some(definitions) = input.as_object_mut().and_then(|input| input.shift_remove(name)) {
            schema.insert(name.to_owned(), definitions);
        }
    }
    schema.insert("properties".to_owned(), json!({WHOLE_INPUT: input}));
    schema
}

/// Returns whether a schema describes objects.
fn takes_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => schema.contains_key("properties"),
    }
}

/// Returns the input for a call's arguments. Fails with a text for the caller.
pub(super) fn input_of(card: &AgentCard, arguments: JsonObject) -> Result<Value, String> {
    match card::input_schema(card) {
        None => Ok(Value::Object(arguments)),
        Some(Value::Object(schema)) if takes_object(schema) => Ok(Value::Object(arguments)),
        Some(_) => {
            let mut arguments = arguments;
            let input = arguments.shift_remove(WHOLE_INPUT);
            input.ok_or_else(|| format!("arguments: expected the member {WHOLE_INPUT}"))
        }
    }
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use sinew_protocol::card::Announcement;

    use super::*;

    fn card(name: &str, description: &str, input_schema: Option<Value>) -> AgentCard {
        let kind = AgentKind::Workflow;
        let (name, description) = (name.to_owned(), description.to_owned());
        Announcement { name, description, kind, input_schema, ..Announcement::default() }.card("test")
    }

    #[test]
    fn schemas_of_arguments_are_objects() {
        let check = |schema: Option<Value>, expected: Value| {
            let tool = tool_of(&card("orders", "", schema.clone()));
            assert_eq!(Value::Object((*tool.input_schema).clone()), expected, "{schema:?}");
        };
        check(None, json!({"type": "object"}));
        check(Some(json!({"type": ["object", "null"]})), json!({"type": "object"}));
        check(Some(json!({"properties": {"a": {}}})), json!({"properties": {"a": {}}, "type": "object"}));
        check(
            Some(json!({"type": "array", "items": {"$ref": "#/$defs/one"}, "$defs": {"one": true}})),
            json!({
                "type": "object",
                "required": ["input"],
                "$defs": {"one": true},
                "properties": {"input": {"type": "array", "items": {"$ref": "#/$defs/one"}}},
            }),
        );
        check(
            Some(json!(true)),
            json!({"type": "object", "required": ["input"], "properties": {"input": true}}),
        );
    }

    #[test]
    fn arguments_become_inputs() {
        let check = |schema: Option<Value>, arguments: Value, expected: Option<Value>| {
            let read = input_of(&card("orders", "", schema.clone()), object(arguments.clone())).ok();
            assert_eq!(read, expected, "{schema:?} {arguments}");
        };
        check(None, json!({"input": 1}), Some(json!({"input": 1})));
        check(Some(json!({"type": "object"})), json!({"a": 1}), Some(json!({"a": 1})));
        check(Some(json!({"type": "string"})), json!({"input": "a"}), Some(json!("a")));
        check(Some(json!({"type": "string"})), json!({"a": 1}), None);
    }

    #[test]
    fn every_name_is_a_name_of_a_tool() {
        for name in ["orders", "a.b", "Größe", "with blank", &"x".repeat(300)] {
            let tool = tool_of(&card(name, "  Checks orders. ", None));
            let is_good = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            assert!((1..=63).contains(&tool.name.len()) && tool.name.bytes().all(is_good), "{}", tool.name);
            assert_eq!(tool.title.as_deref(), Some(name));
            assert_eq!(tool.description.as_deref(), Some("Checks orders."));
        }
        let unnamed = tool_of(&card("orders", " ", None));
        assert_eq!(unnamed.description.as_deref(), Some("Runs the workflow orders"));
    }
}
