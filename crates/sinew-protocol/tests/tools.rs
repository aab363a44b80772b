//! Declarations of tools against the formats that model interfaces publish.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use serde_json::{Value, json};
use sinew_protocol::card::{AgentKind, Announcement};
use sinew_protocol::tool::{ToolDeclaration, WorkflowTool};

const OPENAI: &str = include_str!("fixtures/tools/openai.schema.json");
const ANTHROPIC: &str = include_str!("fixtures/tools/anthropic.schema.json");
/// Cases whose parameters can be said strictly.
const STRICT: &[&str] = &["plain", "größe & Co/../x", "odd", "hidden", "deep"];
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
        (
            "deep",
            object(json!({"a": object(json!({"a": {"type": "array", "items": {"type": "string"}}}))})),
            Value::Null,
        ),
        ("loose", object(json!({"a": {"type": "object"}})), Value::Null),
        ("bounded", object(json!({"a": {"type": "string", "maxLength": 3}})), Value::Null),
        ("hidden", object(json!({"input_artifact": {"type": "integer"}})), Value::Null),
    ] {
        let dual = declaration(name, input, output);
        let plain = ToolDeclaration { takes_artifact: false, ..dual.clone() };
        for (declaration, (interface, schema, worded)) in
            [&dual, &plain].into_iter().flat_map(|declaration| {
                [
                    ("openai", &openai, declaration.openai()),
                    ("anthropic", &anthropic, declaration.anthropic()),
                    ("mcp", &mcp, declaration.mcp()),
                ]
                .map(|shown| (declaration, shown))
            })
        {
            let found = complaints(schema, &worded);
            assert!(found.is_empty(), "{interface}, {name}: {found:?} in {worded}");
            let is_strict = worded["function"]["strict"] == true;
            assert_eq!(
                is_strict,
                interface == "openai" && !declaration.takes_artifact && STRICT.contains(&name),
                "{name}: {worded}"
            );
            if is_strict {
                all_required(&worded["function"]["parameters"]);
            }
            let parameters =
                [&worded["function"]["parameters"], &worded["input_schema"], &worded["inputSchema"]];
            let parameters = parameters.into_iter().find(|parameters| parameters.is_object()).unwrap();
            assert!(jsonschema::validator_for(parameters).is_ok(), "{interface}, {name}: {parameters}");
        }
    }
}

/// Checks that each object of a schema requires all its properties, which no schema of schemas can express.
fn all_required(schema: &Value) {
    if let Some(properties) = schema["properties"].as_object() {
        let required: Vec<&str> =
            schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(required, properties.keys().collect::<Vec<_>>(), "{schema}");
    }
    let inner = schema.as_object().into_iter().flat_map(|words| words.values());
    let lists = schema.as_array().into_iter().flatten();
    inner.chain(lists).for_each(all_required);
}

#[test]
fn the_formats_refuse_what_interfaces_refuse() {
    let parameters = json!({"type": "object", "properties": {}});
    let long = "x".repeat(65);
    for (format, bad) in [
        (OPENAI, json!({"type": "function", "function": {"name": long, "parameters": parameters}})),
        (OPENAI, json!({"type": "function", "function": {"name": "a", "parameters": {"type": "string"}}})),
        (OPENAI, json!({"name": "a", "parameters": parameters})),
        (
            OPENAI,
            json!({"type": "function", "function": {"name": "a", "strict": true, "parameters": parameters}}),
        ),
        (
            OPENAI,
            json!({"type": "function", "function": {"name": "a", "strict": true, "parameters": {
                "type": "object", "additionalProperties": false, "required": ["a"],
                "properties": {"a": {"type": "object", "properties": {}, "required": []}},
            }}}),
        ),
        (ANTHROPIC, json!({"name": "a b", "input_schema": parameters})),
        (ANTHROPIC, json!({"name": "a", "parameters": parameters})),
        (MCP, json!({"name": "a", "inputSchema": {"type": "array"}})),
        (MCP, json!({"name": "a", "inputSchema": parameters, "outputSchema": {"type": "string"}})),
    ] {
        assert!(!complaints(&schema(format), &bad).is_empty(), "{bad}");
    }
}
