//! Declarations of tools against the formats that model interfaces publish.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use serde_json::{Value, json};
use sinew_protocol::card::{AgentKind, Announcement};
use sinew_protocol::tool::{ToolDeclaration, WorkflowTool};

const OPENAI: &str = include_str!("fixtures/tools/openai.schema.json");
const ANTHROPIC: &str = include_str!("fixtures/tools/anthropic.schema.json");
const MCP: &str = include_str!("fixtures/tools/mcp.schema.json");

fn schema(text: &str) -> jsonschema::Validator {
    jsonschema::validator_for(&serde_json::from_str(text).unwrap()).unwrap()
}

fn complaints(schema: &jsonschema::Validator, value: &Value) -> Vec<String> {
    schema.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn declaration(name: &str, input: Value, output: Value) -> ToolDeclaration {
    let some = |value: Value| Some(value).filter(|value| !value.is_null());
    let card = Announcement {
        name: name.to_owned(),
        description: "What it does, in «words».".to_owned(),
        kind: AgentKind::Workflow,
        input_schema: some(input),
        output_schema: some(output),
        ..Announcement::default()
    };
    WorkflowTool::from_card(&card.card("ns")).unwrap().declaration()
}

#[test]
fn declarations_are_what_each_interface_takes() {
    let (openai, anthropic, mcp) = (schema(OPENAI), schema(ANTHROPIC), schema(MCP));
    let object = |fields: Value| json!({"type": "object", "properties": fields, "required": ["a"]});
    for (name, input, output) in [
        ("plain", object(json!({"a": {"type": "string"}})), object(json!({"a": {"type": "number"}}))),
        ("no schema", Value::Null, Value::Null),
        ("größe & Co/../x", object(json!({"a": {"type": ["integer", "null"]}})), json!({"type": "string"})),
        (&"long".repeat(40), object(json!({"a": {"enum": ["x", 1]}, "b": true})), json!({})),
        (
            "refs",
            json!({"$defs": {"d": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/d"}}}),
            json!([]),
        ),
        ("odd", json!({"type": "array", "items": {}}), Value::Null),
        ("hidden", object(json!({"input_artifact": {"type": "integer"}})), Value::Null),
    ] {
        let declaration = declaration(name, input, output);
        for (interface, schema, worded) in [
            ("openai", &openai, declaration.openai()),
            ("anthropic", &anthropic, declaration.anthropic()),
            ("mcp", &mcp, declaration.mcp()),
        ] {
            let found = complaints(schema, &worded);
            assert!(found.is_empty(), "{interface}, {name}: {found:?} in {worded}");
            let parameters =
                [&worded["function"]["parameters"], &worded["input_schema"], &worded["inputSchema"]];
            let parameters = parameters.into_iter().find(|parameters| parameters.is_object()).unwrap();
            assert!(jsonschema::validator_for(parameters).is_ok(), "{interface}, {name}: {parameters}");
        }
    }
}

#[test]
fn the_formats_refuse_what_interfaces_refuse() {
    let parameters = json!({"type": "object", "properties": {}});
    let long = "x".repeat(65);
    for (format, bad) in [
        (OPENAI, json!({"type": "function", "function": {"name": long, "parameters": parameters}})),
        (OPENAI, json!({"type": "function", "function": {"name": "a", "parameters": {"type": "string"}}})),
        (OPENAI, json!({"name": "a", "parameters": parameters})),
        (ANTHROPIC, json!({"name": "a b", "input_schema": parameters})),
        (ANTHROPIC, json!({"name": "a", "parameters": parameters})),
        (MCP, json!({"name": "a", "inputSchema": {"type": "array"}})),
        (MCP, json!({"name": "a", "inputSchema": parameters, "outputSchema": {"type": "string"}})),
    ] {
        assert!(!complaints(&schema(format), &bad).is_empty(), "{bad}");
    }
}
