//! The recorded behaviour of Solace Agent Mesh, as far as it is this crate's: cards, tools, result markers.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sinew_protocol::a2a;
use sinew_protocol::card::{self, AgentKind, Announcement, Visualisation, workflow_config};
use sinew_protocol::embed::ResultEmbed;
use sinew_protocol::message::Vocabulary;
use sinew_protocol::tool::{Caller, ToolInput, WorkflowTool};
use sinew_protocol::{ArtifactName, ArtifactRef};

/// Kinds of case that are this crate's.
pub(crate) const KINDS: [&str; 6] =
    ["card", "registry", "tool_decl", "tool_prepare", "tool_message", "result_embed"];

#[test]
fn recorded_cases() {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/sam.json"));
    let all: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let ours = |case: &&Value| KINDS.contains(&case["kind"].as_str().unwrap());
    let cases: Vec<&Value> = all["cases"].as_array().unwrap().iter().filter(ours).collect();
    let mut failed = Vec::new();
    for case in &cases {
        let broken = wrong(case);
        if !broken.is_empty() {
            failed.push(format!("{}\n  {}", case["id"], broken.join("\n  ")));
        }
    }
    println!("{} passed, {} failed", cases.len() - failed.len(), failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(cases.len(), 18);
}

/// Returns the expectations of a case that do not hold; the executor's test of whole folders uses it too.
pub(crate) fn wrong(case: &Value) -> Vec<String> {
    let found = observe(case);
    wanted(case)
        .iter()
        .filter(|(key, want)| !holds(key, want, &found))
        .map(|(key, want)| format!("{key}: want {want}, found {found}"))
        .collect()
}

/// Returns the expectations of a case: `expect`, overridden by `want` where Sinew differs on purpose.
fn wanted(case: &Value) -> Map<String, Value> {
    let mut wanted = case["expect"].as_object().unwrap().clone();
    wanted.extend(case["want"].as_object().cloned().unwrap_or_default());
    // Drawings are tested in sinew-diagram.
    wanted.remove("mermaid_contains");
    wanted
}

fn holds(key: &str, want: &Value, found: &Value) -> bool {
    if let Some(name) = key.strip_suffix("_pattern") {
        let pattern = regex::Regex::new(&format!("^{}$", want.as_str().unwrap())).unwrap();
        return found[name].as_str().is_some_and(|text| pattern.is_match(text));
    }
    match want {
        // Objects name the keys that matter; the message's metadata has more.
        Value::Object(fields) => fields.iter().all(|(name, want)| found[key].get(name) == Some(want)),
        _ => found.get(key) == Some(want),
    }
}

fn vocabulary(case: &Value) -> Vocabulary {
    if case["vintages"] == json!(["spec"]) { Vocabulary::Spec } else { Vocabulary::Current }
}

fn observe(case: &Value) -> Value {
    match case["kind"].as_str().unwrap() {
        "card" => observe_card(case),
        "registry" => observe_registry(case),
        "result_embed" => observe_embed(case["text"].as_str().unwrap()),
        _ => observe_tool(case),
    }
}

fn observe_card(case: &Value) -> Value {
    let workflow = &case["workflow"];
    let visualisation = match vocabulary(case) {
        Vocabulary::Current => Visualisation::Config(workflow_config(workflow)),
        Vocabulary::Spec => Visualisation::Mermaid("graph TD".to_owned()),
    };
    let skills = workflow.get("skills").cloned().unwrap_or(json!([]));
    let announcement = Announcement {
        name: "WF".to_owned(),
        description: workflow["description"].as_str().unwrap().to_owned(),
        kind: AgentKind::Workflow,
        skills: serde_json::from_value(skills).unwrap(),
        visualisation: Some(visualisation),
        ..Announcement::default()
    };
    let card = announcement.card("ns");
    let params = card::extension_params(&card, card::VISUALISATION).unwrap();
    let keys: Vec<&String> = params.as_object().unwrap().keys().collect();
    let config = &params["workflow_config"];
    let nodes = config["nodes"].as_array().into_iter().flatten();
    let by_id: Map<String, Value> =
        nodes.map(|node| (node["id"].as_str().unwrap().to_owned(), node.clone())).collect();
    json!({"skills": card.skills, "viz_keys": keys, "viz_config": config, "viz_config_nodes": by_id})
}

fn observe_registry(case: &Value) -> Value {
    let ttl = Duration::from_secs(case["ttl"].as_u64().unwrap());
    let expired = |age: &u64| card::is_expired(Duration::from_secs(*age), ttl);
    json!({
        "not_expired_at": (0..1_000).rfind(|age| !expired(age)),
        "expired_at": (0..1_000).find(expired),
    })
}

fn observe_embed(text: &str) -> Value {
    match ResultEmbed::last(text) {
        None => json!({"embed": null}),
        Some(embed) => json!({
            "artifact": embed.artifact,
            "version": embed.version,
            "status": embed.status(),
            "message": embed.message,
        }),
    }
}

fn observe_tool(case: &Value) -> Value {
    let tool = WorkflowTool::new(case["target"].as_str().unwrap(), Some(&case["schema"]));
    if case["kind"] == "tool_decl" {
        let declaration = tool.declaration().spec();
        let properties = declaration["parameters"]["properties"].as_object().unwrap();
        let nullable = properties.iter().filter(|(_, p)| p["nullable"] == true).map(|(name, _)| name);
        let types: Map<String, Value> = properties
            .iter()
            .map(|(name, p)| (name.clone(), p["type"].as_str().unwrap().to_uppercase().into()))
            .collect();
        return json!({
            "name": declaration["name"],
            "description": declaration["description"],
            "param_names": properties.keys().collect::<Vec<_>>(),
            "required": declaration["parameters"]["required"],
            "nullable": nullable.collect::<Vec<_>>(),
            "types": types,
        });
    }
    let check = |schema: &Value, value: &Value| {
        let validator = jsonschema::validator_for(schema).unwrap();
        validator.iter_errors(value).map(|e| e.to_string()).collect()
    };
    let input = tool.prepare(case["args"].as_object().unwrap(), check).unwrap();
    let reference = match &input {
        ToolInput::Parameters(content) => {
            let name = tool.input_artifact(vocabulary(case), 0x00C0_FFEE).unwrap();
            if case["kind"] == "tool_prepare" {
                return json!({"artifact": name, "content": content, "version": 0});
            }
            ArtifactRef { name, version: Some(0) }
        }
        ToolInput::Artifact(name) => ArtifactRef { name: ArtifactName::parse(name).unwrap(), version: None },
    };
    let caller = Caller {
        agent: "Caller".to_owned(),
        user: "u1".to_owned(),
        session: "sess1".to_owned(),
        task: "main".to_owned(),
        function_call: "fc1".to_owned(),
        message: "m1".to_owned(),
    };
    let request = tool.message(reference, &caller, vocabulary(case));
    let parts = &request.message.parts;
    let file_uri = parts.iter().find_map(|part| match &part.content {
        a2a::PartContent::Url(url) => Some(url),
        _ => None,
    });
    json!({
        "part_kinds": parts.iter().map(a2a::part_kind).collect::<Vec<_>>(),
        "text": parts.iter().find_map(a2a::Part::text_content),
        "data_type": parts.iter().find_map(a2a::part_data).map(|data| &data["type"]),
        "file_uri": file_uri,
        "metadata": request.metadata,
    })
}
