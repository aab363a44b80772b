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
    let properties = |parameters: &Value| parameters["properties"].clone();
    let openai = declaration.openai();
    let plain = properties(&openai["function"]["parameters"]);
    assert_eq!(plain["id"], json!({"type": ["string", "null"]}));
    assert_eq!(plain["size"], json!({"type": ["integer", "null"]}));
    assert_eq!(plain["kind"], json!({"type": ["string", "null"], "enum": ["a", "b", null]}));
    assert_eq!(plain["any"], json!({"$ref": "#/$defs/any"}));
    assert_eq!(openai["function"]["parameters"]["$defs"], json!({"any": {}}));
    assert_eq!(declaration.anthropic()["input_schema"], openai["function"]["parameters"]);
    assert_eq!(declaration.mcp()["inputSchema"], openai["function"]["parameters"]);
    assert_eq!(declaration.mcp().get("outputSchema"), None);
    assert_eq!(
        properties(&declaration.spec()["parameters"])["id"],
        json!({"type": "string", "nullable": true})
    );
    for schema in [&openai["function"]["parameters"], &declaration.mcp()["inputSchema"]] {
        assert!(jsonschema::validator_for(schema).is_ok_and(|v| v.is_valid(&json!({"id": null}))));
    }
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
    assert_eq!(tool.input_schema["properties"], json!({"text": {"type": "string"}}));
}
