use super::*;
use crate::a2a;
use crate::card::Announcement;

fn tool() -> WorkflowTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "size": {"type": ["integer", "null"]},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "any": {"$ref": "#/$defs/any"},
        },
        "required": ["id"],
        "$defs": {"any": {}},
    });
    WorkflowTool::new("Order-flow: größe", Some(&schema))
}

fn prepare(arguments: &Value) -> Result<ToolInput, Fault> {
    let check = |schema: &Value, value: &Value| match jsonschema::validator_for(schema) {
        Ok(validator) => validator.iter_errors(value).map(|e| e.to_string()).collect(),
        Err(e) => vec![e.to_string()],
    };
    tool().prepare(arguments.as_object().unwrap(), 0xAB, check)
}

#[test]
fn declarations_suit_each_interface() {
    let declaration = tool().declaration();
    assert_eq!(declaration.name, "workflow_Order_flow__gr__e");
    assert_eq!(declaration.description, "Invoke the 'Order-flow: größe' workflow.");
    let openai = declaration.openai();
    let parameters = &openai["function"]["parameters"];
    assert_eq!(parameters["required"], json!(["id"]));
    let plain = &parameters["properties"];
    assert_eq!(plain["id"], json!({"type": "string"}));
    assert_eq!(plain["kind"], json!({"type": "string", "enum": ["a", "b"]}));
    assert_eq!(plain["input_artifact"], Value::Null);
    assert_eq!(parameters["$defs"], json!({"any": {}}));
    assert_eq!(declaration.anthropic()["input_schema"], *parameters);
    assert_eq!(declaration.mcp()["inputSchema"], *parameters);
    assert_eq!(declaration.mcp().get("outputSchema"), None);
    let spec = declaration.spec();
    assert_eq!(spec["parameters"]["required"], json!([]));
    assert_eq!(spec["parameters"]["properties"]["id"], json!({"type": "string", "nullable": true}));
    for (schema, without_id) in [(parameters, false), (&declaration.mcp()["inputSchema"], false)] {
        assert!(jsonschema::validator_for(schema).is_ok_and(|v| v.is_valid(&json!({})) == without_id));
    }
    let of_artifact = declaration.artifact_mode().unwrap();
    assert_eq!(of_artifact.name, "workflow_Order_flow__gr__e_from_artifact");
    assert_eq!(of_artifact.parameters["required"], json!(["input_artifact"]));
    assert_eq!(of_artifact.artifact_mode(), None);
}

#[test]
fn the_purpose_comes_first() {
    let described = |text: &str| {
        let tool = WorkflowTool { description: text.to_owned(), ..tool() };
        tool.declaration().anthropic()["description"].clone()
    };
    let call = "Invoke the 'Order-flow: größe' workflow.";
    assert_eq!(described("Checks an order"), format!("Checks an order. {call}"));
    assert_eq!(described("Is it paid? "), format!("Is it paid? {call}"));
}

/// Strict interfaces require every parameter; optional ones are nullable instead.
#[test]
fn optional_parameters_take_null_where_all_are_demanded() {
    let schema = json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string"}, "kind": {"type": "string", "enum": ["a"]}}});
    let function = WorkflowTool::new("w", Some(&schema)).declaration().openai()["function"].clone();
    assert_eq!(function["strict"], true);
    assert_eq!(function["parameters"]["required"], json!(["id", "kind"]));
    assert_eq!(function["parameters"]["properties"]["id"], json!({"type": "string"}));
    assert_eq!(
        function["parameters"]["properties"]["kind"],
        json!({"type": ["string", "null"], "enum": ["a", null]})
    );
    // Other tools do not accept null.
    let other =
        ToolDeclaration { takes_artifact: false, ..WorkflowTool::new("w", Some(&schema)).declaration() };
    assert_eq!(other.openai()["function"].get("strict"), None);
}

#[test]
fn long_names_stay_apart() {
    let name = |end: &str| {
        WorkflowTool::new(format!("{}{end}", "x".repeat(80)), None).declaration().mcp()["name"].clone()
    };
    assert_eq!(name("a").as_str().map(str::len), Some(64));
    assert_ne!(name("a"), name("b"));
}

#[test]
fn arguments_choose_the_mode() {
    let stored = |arguments: Value| match prepare(&arguments) {
        Ok(ToolInput::Parameters { artifact, content }) => format!("{artifact} {content}"),
        Ok(ToolInput::Artifact(reference)) => reference.to_string(),
        Err(fault) => format!("{} {}", fault.code, fault.details.len()),
    };
    let name = "wi_Order-flow__gr__e_000000ab.json";
    assert_eq!(
        stored(json!({"id": "1", "any": null, "size": null})),
        format!(r#"{name} {{"id":"1","size":null}}"#)
    );
    assert_eq!(stored(json!({"id": "1", "input_artifact": ""})), format!(r#"{name} {{"id":"1"}}"#));
    assert_eq!(stored(json!({"input_artifact": "a.json:3", "id": null})), "a.json:v3");
    assert_eq!(stored(json!({"input_artifact": "a.json", "id": "1"})), "SINEW-4101 0");
    assert_eq!(stored(json!({"input_artifact": "../a.json"})), "SINEW-5001 0");
    assert_eq!(stored(json!({"input_artifact": 1})), "SINEW-4101 0");
    assert_eq!(stored(json!({})), "SINEW-4101 1");
    assert_eq!(stored(json!({"id": 1, "kind": "c"})), "SINEW-4101 2");
}

#[test]
fn messages_carry_the_reference_in_both_vocabularies() {
    let input = prepare(&json!({"input_artifact": "a b.json:3"})).unwrap();
    let caller = Caller { agent: "Boss".to_owned(), session: "s/1".to_owned(), ..Caller::default() };
    let current = tool().message(&input, &caller, Vocabulary::Current);
    let address = match &current.message.parts[1].content {
        a2a::PartContent::Url(url) => url.parse::<ArtifactUri>().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!((address.session.as_str(), address.artifact), ("s/1", input.reference()));
    let spec = tool().message(&input, &caller, Vocabulary::Spec).metadata.unwrap();
    assert_eq!(spec["invoked_with_artifacts"], json!([{"filename": "a b.json", "version": 3}]));
}

#[test]
fn only_workflows_become_tools() {
    let announce = |kind| Announcement { name: "W".to_owned(), kind, ..Announcement::default() }.card("ns");
    assert_eq!(WorkflowTool::from_card(&announce(AgentKind::Agent)), None);
    let tool = WorkflowTool::from_card(&announce(AgentKind::Workflow)).unwrap();
    // A workflow without an input schema accepts any object; no parameter is invented.
    let declaration = tool.declaration();
    assert_eq!(declaration.anthropic()["input_schema"]["properties"], json!({}));
    assert_eq!(declaration.openai()["function"].get("strict"), None);
    let any = json!({"a": 1});
    let input = tool.prepare(any.as_object().unwrap(), 1, |_, _| Vec::new()).unwrap();
    assert!(matches!(input, ToolInput::Parameters { content, .. } if content == any));
}
