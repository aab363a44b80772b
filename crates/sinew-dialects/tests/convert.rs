//! Workflows of other dialects written as `sam`: what comes out must be a sound `sam` workflow, and what is lost is said.
#![expect(clippy::expect_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use sinew_dialects::{Converted, Loss, LowerOptions, by_name, to_sam};
use sinew_source::{Document, Limits, LoadOptions, load};

fn document(name: &str, value: &Value) -> Document {
    let read = |_: &Path| Err("no other files".to_owned());
    load(
        value.to_string().as_bytes(),
        &LoadOptions {
            name,
            variables: sinew_source::Variables::Kept,
            read: &read,
            limits: Limits::default(),
        },
    )
    .expect("JSON loads")
}

fn convert(dialect: &str, value: &Value) -> Result<Converted, Vec<Loss>> {
    let dialect = by_name(dialect).expect("a dialect of this name");
    let options = LowerOptions {
        default_name: "flow",
        read: &|_| Err("no other files".to_owned()),
        list: &sinew_dialects::no_list,
        agents: &BTreeMap::new(),
    };
    let lowered = dialect.lower(document("flow.json", value), &options).expect("it lowers");
    to_sam(&lowered[0].plan, dialect)
}

fn sound(converted: &Converted) {
    let options = LowerOptions {
        default_name: "flow",
        read: &|_| Err("no other files".to_owned()),
        list: &sinew_dialects::no_list,
        agents: &BTreeMap::new(),
    };
    let sam = by_name("sam").expect("the dialect sam");
    if let Err(diagnostics) = sam.lower(document("out.json", &converted.document), &options) {
        panic!("{}\n{}", sinew_source::render_text(&diagnostics, false), converted.document);
    }
}

fn canvas(nodes: &Value, connections: &[(&str, &str, &str)]) -> Value {
    let connections: Vec<Value> = connections
        .iter()
        .map(|(from, port, to)| json!({ "source": from, "target": to, "sourceHandle": port, "targetHandle": "input" }))
        .collect();
    json!({ "nodes": nodes, "connections": connections })
}

#[test]
fn a_canvas_graph_becomes_agents_and_a_switch() {
    let graph = canvas(
        &json!([
            {"id": "s", "type": "start", "x": 0, "y": 0, "data": {"initialInput": "hello"}},
            {"id": "w", "type": "agent", "x": 0, "y": 0, "data": {"agentName": "Writer", "userPrompt": "Write {{PREVIOUS_OUTPUT}}"}},
            {"id": "i", "type": "if", "x": 0, "y": 0, "data": {"conditions": [{"operator": "contains", "value": "err"}]}},
            {"id": "e", "type": "agent", "x": 0, "y": 0, "data": {"agentName": "Fixer"}},
            {"id": "f", "type": "agent", "x": 0, "y": 0, "data": {"agentName": "Sender"}}
        ]),
        &[("s", "output", "w"), ("w", "output", "i"), ("i", "condition-0", "e"), ("i", "false", "f")],
    );
    let converted = convert("agentflow", &graph).expect("it converts");
    sound(&converted);
    let nodes = &converted.document["workflow"]["nodes"];
    assert_eq!(nodes[0]["agent_name"], "Writer");
    let start = json!({"coalesce": ["{{workflow.input.text}}", "hello"]});
    assert_eq!(nodes[0]["input"], json!({"text": {"concat": ["Write ", start, ""]}}));
    let case = &nodes[1]["cases"][0];
    assert!(case["when"].as_str().expect("a condition").starts_with("\"err\" in str({{w.output}}['text']"));
    assert_eq!(case["then"], "e");
    assert_eq!(nodes[1]["default"], "f");
    assert_eq!(nodes[2]["depends_on"], json!(["i"]));
    let lost: Vec<&str> = converted.losses.iter().map(|loss| loss.node.as_str()).collect();
    assert_eq!(lost, ["s", "w", "w", "e", "e", "f", "f"], "{:?}", converted.losses);
}

#[test]
fn what_sam_cannot_say_stops_the_conversion() {
    let agent = |id: &str| json!({"id": id, "type": "agent", "x": 0, "y": 0});
    let start = json!({"id": "s", "type": "start", "x": 0, "y": 0});
    let approval = json!({"id": "ok", "type": "approval", "x": 0, "y": 0});
    for (graph, node, words) in [
        (
            canvas(&json!([start, agent("a"), approval]), &[("s", "output", "a"), ("a", "output", "ok")]),
            "ok",
            "has no target",
        ),
        (
            canvas(
                &json!([start, agent("a"), agent("b")]),
                &[("s", "output", "a"), ("a", "output", "b"), ("b", "output", "a")],
            ),
            "a",
            "cycle",
        ),
    ] {
        let losses = convert("agentflow", &graph).expect_err("it cannot be converted");
        assert!(
            losses.iter().any(|loss| loss.fatal && loss.node == node && loss.what.contains(words)),
            "{losses:?}"
        );
    }
}

#[test]
fn a_data_spine_becomes_agents_and_a_switch() {
    let flow = |source: &str, port: &str, target: &str| {
        json!({"id": format!("{source}-{target}"), "source": source, "sourceHandle": port, "target": target,
               "targetHandle": "input", "data": {"channel": "flow"}})
    };
    let graph = |instructions: &str| {
        json!({
            "nodes": [
                {"id": "cs", "type": "chat-start", "data": {"_label": "Chat Start"}},
                {"id": "a", "type": "agent", "data": {"agent": "Counter", "instructions": instructions}},
                {"id": "c", "type": "conditional", "data": {"field": "count", "operator": "greaterThan", "value": 3}},
                {"id": "b", "type": "agent", "data": {"agent": "Many", "instructions": "All {{ input.count }} of them"}},
                {"id": "d", "type": "agent", "data": {"agent": "Few"}}
            ],
            "edges": [flow("cs", "output", "a"), flow("a", "output", "c"), flow("c", "true", "b"), flow("c", "false", "d")]
        })
    };
    let converted =
        convert("covalt", &graph("Count {{ $('Chat Start').item.json.message }}")).expect("it converts");
    sound(&converted);
    let nodes = &converted.document["workflow"]["nodes"];
    assert_eq!(nodes[0]["instruction"], "Count {{workflow.input.message}}");
    assert_eq!(nodes[1]["cases"], json!([{"when": "{{a.output.count}} > 3", "then": "b"}]));
    assert_eq!(nodes[2]["instruction"], "All {{a.output.count}} of them");
    let losses =
        convert("covalt", &graph("{{ input.message.trim() }}")).expect_err("an expression that computes");
    assert!(
        losses.iter().any(|loss| loss.node == "a" && loss.what.contains("does more than name")),
        "{losses:?}"
    );
}

#[test]
fn a_team_keeps_its_agents_and_a_conversion_stops_it() {
    let team = |conversion: Option<&str>| {
        let mut connection = json!({"id": "k", "from_node": "t", "to_node": "a", "output_key": "result"});
        if let Some(code) = conversion {
            connection["conversion_function"] = json!(code);
        }
        json!({
            "metadata": {"id": "w", "name": "team", "created_time": 1, "created_by": "me"},
            "triggers": ["t"],
            "nodes": [
                {"id": "t", "name": "start", "description": "", "type": "TRIGGER", "subtype": "MANUAL"},
                {"id": "a", "name": "think", "description": "", "type": "AI_AGENT", "subtype": "OPENAI_CHATGPT",
                 "configurations": {"agent": "Thinker", "system_prompt": "Think."}}
            ],
            "connections": [connection]
        })
    };
    let converted = convert("agentteam", &team(None)).expect("it converts");
    sound(&converted);
    let node = &converted.document["workflow"]["nodes"][0];
    assert_eq!((&node["agent_name"], &node["instruction"]), (&json!("Thinker"), &json!("Think.")));
    let losses =
        convert("agentteam", &team(Some("lambda d: d['value']"))).expect_err("it converts data on the way");
    assert!(losses.iter().any(|loss| loss.fatal && loss.what.contains("conversion function")), "{losses:?}");
}
