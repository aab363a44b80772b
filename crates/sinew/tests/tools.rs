//! Declarations of workflows as tools, held to JSON Schemas of what models' interfaces take.
#![expect(clippy::expect_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use crate::common;

use common::World;
use jsonschema::Validator;
use serde_json::{Value, json};
use sinew_protocol::tool::{INPUT_ARTIFACT, WorkflowTool};

/// The format, its schema, and where in a declaration the parameters are.
const FORMATS: [(&str, &str, &str); 3] = [
    ("openai", include_str!("fixtures/tools/openai.json"), "/function/parameters"),
    ("anthropic", include_str!("fixtures/tools/anthropic.json"), "/input_schema"),
    ("mcp", include_str!("fixtures/tools/mcp.json"), "/inputSchema"),
];

const TALK: &str = r#"{"nodes": [{"id": "c", "type": "chat-start", "data": {}}, {"id": "a", "type": "agent", "data": {"model": "m"}}],
    "edges": [{"id": "1", "source": "c", "target": "a", "data": {"channel": "flow"}}]}"#;
const DRAFT: &str = r#"{"nodes": [{"id": "s", "type": "start", "data": {"initialInput": "a"}}, {"id": "a", "type": "agent", "data": {"agentName": "Writer"}}],
    "connections": [{"source": "s", "target": "a", "sourceHandle": "output", "targetHandle": "input"}]}"#;

fn validator(schema: &str) -> Validator {
    let schema: Value = serde_json::from_str(schema).expect("a schema is JSON");
    jsonschema::validator_for(&schema).expect("a schema")
}

/// A declaration must be what the format takes, and its parameters a JSON Schema of their own.
#[track_caller]
fn check(format: &str, schema: &Validator, parameters: &str, declared: &Value) {
    let wrong: Vec<String> =
        schema.iter_errors(declared).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{format}: {wrong:#?}\n{declared:#}");
    let parameters = declared.pointer(parameters).unwrap_or_else(|| panic!("{format}: {declared:#}"));
    let arguments = jsonschema::validator_for(parameters)
        .unwrap_or_else(|error| panic!("{format}: its parameters are not a schema: {error}: {parameters:#}"));
    // Required is what the workflow requires; strict interfaces demand all, and null stands for what is left out.
    let is_strict = declared.pointer("/function/strict") == Some(&json!(true));
    let names: Vec<&String> =
        parameters["properties"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
    let required: Vec<&str> =
        parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(required.iter().all(|name| names.iter().any(|known| known == name)), "{format}: {parameters:#}");
    if is_strict {
        assert_eq!(names, required, "{format}: {parameters:#}");
    } else {
        assert_eq!(arguments.is_valid(&json!({})), required.is_empty(), "{format}: {parameters:#}");
    }
}

#[test]
fn every_workflow_is_declared_as_each_interface_takes_it() {
    let long = "a very long name, ".repeat(20);
    let cases: &[(&str, Value, Value)] = &[
        (
            "orders",
            json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}),
            Value::Null,
        ),
        ("no schema", Value::Null, Value::Null),
        ("any", json!({}), json!({})),
        ("list", json!({"type": "array", "items": {"type": "string"}}), json!({"type": "array"})),
        ("Größe & Maß: Bestellungen/2026.v1", json!({"type": "object"}), json!({"type": "string"})),
        (
            &long,
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            json!({"type": "object"}),
        ),
        ("", json!({"type": "object"}), Value::Null),
        // Names that interfaces refuse.
        (
            "names",
            json!({"type": "object", "properties": {
                "filter[id]": {"type": "string"}, "größe": {}, "$top": {}, "": {}, "a b": {}, "x".repeat(65): {}, "ok.1-x_": {},
            }}),
            Value::Null,
        ),
        // A parameter that has the name of ours.
        (
            "hidden",
            json!({"type": "object", "properties": {INPUT_ARTIFACT: {"type": "integer"}}}),
            Value::Null,
        ),
        // Schemas that are not objects, combinations, references, nulls.
        (
            "booleans",
            json!({"type": "object", "properties": {"a": true, "b": false}}),
            json!({"type": "object", "properties": {"a": true}}),
        ),
        (
            "combined",
            json!({"type": "object", "anyOf": [{"required": ["a"]}], "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "null"}]}}}),
            json!({"anyOf": [{"type": "object"}]}),
        ),
        (
            "shared",
            json!({"type": "object", "$defs": {"money": {"type": "number"}}, "properties": {"price": {"$ref": "#/$defs/money"}}}),
            json!({"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}),
        ),
        (
            "enums",
            json!({"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}, "b": {"enum": [1]}, "c": {"type": ["string", "null"]}}}),
            Value::Null,
        ),
        (
            "deep",
            json!({"type": "object", "properties": {"a": {"type": "object", "required": ["b"], "properties": {"b": {"type": "array", "items": {"type": "object"}}}}}}),
            Value::Null,
        ),
    ];
    for (format, schema, parameters) in FORMATS {
        let schema = validator(schema);
        for (workflow, input, output) in cases {
            let mut tool = WorkflowTool::new(*workflow, Some(input).filter(|input| !input.is_null()));
            tool.output_schema = Some(output.clone()).filter(|output| !output.is_null());
            let declaration = tool.declaration();
            let declared = match format {
                "openai" => declaration.openai(),
                "anthropic" => declaration.anthropic(),
                _ => declaration.mcp(),
            };
            check(format, &schema, parameters, &declared);
            let taken = declared.pointer(parameters).expect("parameters");
            assert!(taken["properties"][INPUT_ARTIFACT].is_object(), "{format}: {taken}");
            assert_eq!(taken["required"], json!([]), "{format}");
        }
    }
}

#[test]
fn what_the_command_prints_is_taken() {
    let (world, _executor) = World::new();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/orders");
    world.ok(&["workflow", "deploy", examples]);
    // A graph that a message enters declares it, although any input would do.
    world.write("talk.json", TALK);
    world.write("draft.json", DRAFT);
    world.ok(&["workflow", "deploy", "talk.json", "draft.json"]);
    for (format, schema, parameters) in FORMATS {
        let declared = world.json(&["tool", "declare", "--for", format]);
        let declared = declared.as_array().expect("an array");
        assert!(declared.len() > 3, "{format}: {declared:#?}");
        let with_text = declared.iter().filter_map(|one| one.pointer(parameters)).filter(|taken| {
            taken["properties"]["text"]["type"] == "string" && taken["required"] == json!([])
        });
        assert_eq!(with_text.count(), 2, "{format}: {declared:#?}");
        for one in declared {
            check(format, &validator(schema), parameters, one);
        }
    }
}

/// The schemas refuse what the interfaces refuse.
#[test]
fn what_no_interface_takes_is_noticed() {
    let anything = json!({"type": "object", "properties": {}});
    let openai = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    let strict = |parameters: Value| json!({"type": "function", "function": {"name": "f", "strict": true, "parameters": parameters}});
    let anthropic = |name: &str, schema: Value| json!({"name": name, "input_schema": schema});
    let mcp = |name: &str, schema: Value| json!({"name": name, "inputSchema": schema});
    let nested = json!({"type": "object", "properties": {"b": {"type": "string"}}});
    let cases: &[(&str, Value, bool)] = &[
        ("openai", openai("f", anything.clone()), true),
        ("openai", openai("a b", anything.clone()), false),
        ("openai", openai(&"f".repeat(65), anything.clone()), false),
        ("openai", openai("f", json!({"type": "string"})), false),
        ("openai", openai("f", json!({"type": "object", "properties": {}, "anyOf": []})), false),
        ("openai", json!({"name": "f", "parameters": anything}), false),
        (
            "openai",
            strict(
                json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
            ),
            true,
        ),
        ("openai", strict(anything.clone()), false),
        (
            "openai",
            strict(
                json!({"type": "object", "properties": {"a": nested}, "required": ["a"], "additionalProperties": false}),
            ),
            false,
        ),
        ("anthropic", anthropic("f", anything.clone()), true),
        ("anthropic", anthropic("f", json!({"type": "object", "properties": {"filter[id]": {}}})), false),
        ("anthropic", anthropic("f", json!({"type": "object", "oneOf": []})), false),
        ("anthropic", anthropic("f", json!({"type": "array"})), false),
        ("anthropic", json!({"name": "f", "parameters": anything}), false),
        ("mcp", mcp("f", anything.clone()), true),
        ("mcp", mcp("f", json!({"type": "object", "properties": {"a": true}})), false),
        ("mcp", mcp("f", json!({"type": "object", "required": [1]})), false),
        ("mcp", mcp("f", json!({})), false),
        ("mcp", json!({"name": "f", "inputSchema": anything, "outputSchema": {"type": "string"}}), false),
        ("mcp", json!({"name": "f", "input_schema": anything}), false),
    ];
    for (format, declared, good) in cases {
        let (_, schema, _) = FORMATS.into_iter().find(|(name, ..)| name == format).expect("a format");
        assert_eq!(validator(schema).is_valid(declared), *good, "{format}: {declared}");
    }
}
