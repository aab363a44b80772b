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
    tool().prepare(arguments.as_object().unwrap(), check)
}

#[test]
fn declarations_suit_each_interface() {
    let declaration = tool().declaration();
    assert_eq!(declaration.name, "workflow_Order_flow__gr__e");
    let openai = declaration.openai();
    assert_eq!(
        openai["function"]["description"],
        "Invoke the 'Order-flow: größe' workflow. Dual-mode: provide parameters directly OR 'input_artifact'."
    );
    assert_eq!(openai["function"].get("strict"), None);
    let parameters = &openai["function"]["parameters"];
    assert_eq!(parameters["required"], json!([]));
    let shown = parameters["properties"].as_object().unwrap();
    assert_eq!(shown.keys().next().map(String::as_str), Some(INPUT_ARTIFACT));
    assert!(shown.values().all(|schema| schema["nullable"] == true), "{shown:?}");
    assert_eq!(shown["id"], json!({"type": "string", "nullable": true}));
    assert_eq!(shown["kind"], json!({"type": "string", "enum": ["a", "b"], "nullable": true}));
    assert_eq!(parameters["$defs"], json!({"any": {}}));
    assert_eq!(declaration.anthropic()["input_schema"], *parameters);
    assert_eq!(declaration.mcp()["inputSchema"], *parameters);
    assert_eq!(declaration.mcp().get("outputSchema"), None);
    assert_eq!(declaration.spec()["parameters"], *parameters);
}

#[test]
fn the_purpose_comes_first() {
    let described = |text: &str| {
        let tool = WorkflowTool { description: text.to_owned(), ..tool() };
        tool.declaration().description
    };
    let call = "Invoke the 'Order-flow: größe' workflow.";
    assert_eq!(described("Checks an order"), format!("Checks an order. {call}"));
    assert_eq!(described("Is it paid? "), format!("Is it paid? {call}"));
}

/// Strict interfaces require every parameter.
#[test]
fn tools_without_optional_parameters_are_strict() {
    let strict = |required: Value| {
        let schema = json!({"type": "object", "required": required, "properties": {
            "id": {"type": "string"}, "kind": {"type": "string"}}});
        let tool = WorkflowTool::new("w", Some(&schema)).declaration();
        let tool = ToolDeclaration { takes_artifact: false, ..tool };
        tool.openai()["function"].get("strict").cloned()
    };
    assert_eq!(strict(json!(["id", "kind"])), Some(true.into()));
    assert_eq!(strict(json!(["id"])), None);
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
        Ok(ToolInput::Parameters(content)) => Value::Object(content).to_string(),
        Ok(ToolInput::Artifact(name)) => name,
        Err(fault) => format!("{} {}", fault.code, fault.details.len()),
    };
    assert_eq!(stored(json!({"id": "1", "any": null, "size": null})), r#"{"id":"1","size":null}"#);
    assert_eq!(stored(json!({"id": "1", "input_artifact": ""})), r#"{"id":"1"}"#);
    assert_eq!(stored(json!({"input_artifact": "a.json:3", "id": null})), "a.json:3");
    assert_eq!(stored(json!({"input_artifact": "a.json", "id": "1"})), "SINEW-4101 0");
    assert_eq!(stored(json!({"input_artifact": 1})), "SINEW-4101 0");
    assert_eq!(stored(json!({})), "SINEW-4101 1");
    assert_eq!(stored(json!({"id": 1, "kind": "c"})), "SINEW-4101 2");
    let name = |vocabulary| tool().input_artifact(vocabulary, 0xAB).unwrap().to_string();
    assert_eq!(name(Vocabulary::Spec), "wi_Order-flow__gr__e.json");
    assert_eq!(name(Vocabulary::Current), "wi_Order-flow__gr__e_000000ab.json");
}

#[test]
fn messages_carry_the_reference_in_both_vocabularies() {
    let input = ArtifactRef { name: ArtifactName::parse("a b.json").unwrap(), version: Some(3) };
    let caller = Caller { agent: "Boss".to_owned(), session: "s/1".to_owned(), ..Caller::default() };
    let current = tool().message(input.clone(), &caller, Vocabulary::Current);
    let address = match &current.message.parts[1].content {
        a2a::PartContent::Url(url) => url.parse::<ArtifactUri>().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!((address.session.as_str(), address.artifact), ("s/1", input.clone()));
    let spec = tool().message(input, &caller, Vocabulary::Spec).metadata;
    assert_eq!(spec, current.metadata);
    let named = &spec.unwrap()["invoked_with_artifacts"];
    assert_eq!(*named, json!([{"filename": "a b.json", "version": 3}]));
}

#[test]
fn only_workflows_become_tools() {
    let announce = |kind| Announcement { name: "W".to_owned(), kind, ..Announcement::default() }.card("ns");
    assert_eq!(WorkflowTool::from_card(&announce(AgentKind::Agent)), None);
    let tool = WorkflowTool::from_card(&announce(AgentKind::Workflow)).unwrap();
    // A workflow without an input schema accepts any object; no parameter is invented.
    let declaration = tool.declaration();
    let shown = declaration.anthropic()["input_schema"]["properties"].clone();
    assert_eq!(shown.as_object().unwrap().keys().collect::<Vec<_>>(), [INPUT_ARTIFACT]);
    let any = json!({"a": 1});
    let input = tool.prepare(any.as_object().unwrap(), |_, _| Vec::new()).unwrap();
    assert!(matches!(input, ToolInput::Parameters(content) if Value::Object(content.clone()) == any));
}
