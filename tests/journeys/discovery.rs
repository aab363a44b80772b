//! A model agent finds a workflow of the catalogue and calls it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{World, kill};
use crate::model_server::ModelServer;
use crate::views::Gateway;

/// Longer than a gateway takes to follow a change of the catalogue.
const PATIENCE: Duration = Duration::from_mins(1);

const REFUND: &str = r#"
workflow:
  description: Gives the customer of an order the money back.
  input_schema: {type: object, properties: {order: {type: integer}}, required: [order]}
  nodes:
    - {id: pay, type: agent, agent_name: Payer, input: {order: "{{workflow.input.order}}"}}
  output_mapping: {refunded: "{{pay.output.order}}"}
"#;

const DESK: &str = r#"
workflow:
  description: Answers a customer.
  nodes:
    - {id: ask, type: agent, agent_name: Desk, input: {text: "{{workflow.input.text}}"}}
  output_mapping: {answer: "{{ask.output.text}}"}
"#;

const PAYER: &str = "name: Payer\nrun: {script: {source: \"lambda input: {'order': input['order']}\"}}\n";

fn call(tool: &str, arguments: &Value) -> Value {
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    json!({ "role": "assistant", "content": null, "tool_calls": [{ "id": "c", "type": "function", "function": function }] })
}

#[test]
fn a_model_finds_a_workflow_and_calls_it_after_a_kill() {
    let (world, _executor) = World::new();
    let answers = vec![
        call("find_tools", &json!({ "query": "money back" })),
        call("call_tool", &json!({ "tool": "workflow_refund", "arguments": { "order": 17 } })),
        json!({ "role": "assistant", "content": "It is on its way." }),
    ];
    // The first process is killed while it waits for the second turn.
    let model = ModelServer::with(answers, Some(1));
    world.write("refund.yaml", REFUND);
    world.write("desk.yaml", DESK);
    world.write("payer.agent.yaml", PAYER);
    let agent = format!(
        "name: Desk\nrun:\n  model:\n    use: [main]\n    models:\n      main: {{provider: openai, model: fake, \
         url: '{}', allow_private: true, caps: {{stream: false}}, price: {{input: 1, output: 2}}}}\n    \
         tools: [{{discover: {{match: ['refund', 'payroll']}}}}]\n",
        model.url
    );
    world.write("desk.agent.yaml", &agent);
    let _payer = world.serve(&["serve", "agent", "payer.agent.yaml"]);
    let desk = world.serve(&["serve", "agent", "desk.agent.yaml"]);
    world.ok(&["workflow", "deploy", "refund.yaml", "desk.yaml"]);
    world.online(&["refund", "desk", "Payer", "Desk"]);
    let gateway = Gateway::start(&world);

    is_found_everywhere(&world, &gateway);
    let execution = gateway.begin("desk", &json!({ "text": "I want my money back for order 17." }));
    model.wait_for(2);
    kill(desk.0.id());
    let _desk = world.serve(&["serve", "agent", "desk.agent.yaml"]);
    let description = gateway.agree(&world, "desk", &execution, "succeeded");
    assert_eq!(description["output"]["answer"], "It is on its way.", "{description}");

    let requests = model.requests();
    let [first, lost, again, last] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(lost["messages"], again["messages"], "the search is part of the record");
    assert!([lost, again, last].iter().all(|request| request["tools"] == first["tools"]), "{requests:?}");
    let tools: Vec<&str> = first["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert_eq!(tools, ["find_tools", "call_tool"]);
    let found = lost["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(found.contains("workflow_refund") && !found.contains("Desk"), "{found}");

    // The found workflow ran once, for the execution of the desk.
    let refunds = world.json(&["execution", "list", "-w", "refund"]);
    let [refund] = refunds.as_array().unwrap().as_slice() else { panic!("{refunds}") };
    let refund = refund["execution"].as_str().unwrap();
    let refund = gateway.agree(&world, "refund", refund, "succeeded");
    assert_eq!((&refund["input"]["order"], &refund["output"]["refunded"]), (&json!(17), &json!(17)));
}

/// Searches for the refund with the command line, REST, A2A, MCP and the console. All of them show that it is pinned.
fn is_found_everywhere(world: &World, gateway: &Gateway) {
    assert_eq!(world.json(&["tool", "pin", "refund"])["pinned"], true);
    let first = |found: &Value| {
        let entry = &found["entries"][0];
        assert_eq!((&entry["name"], &entry["pinned"]), (&json!("refund"), &json!(true)), "{found}");
    };
    gateway.shows("/console/catalogue?q=money+back", "pinned");
    first(&world.json(&["tool", "search", "money back"]));
    first(&gateway.document("/api/v1/catalogue?q=money+back"));
    let names = |rows: &Value| -> Vec<Value> {
        rows.as_array().unwrap().iter().map(|row| row["name"].clone()).collect()
    };
    assert_eq!(names(&world.json(&["workflow", "list", "--mesh", "--search", "money back"])), ["refund"]);
    assert_eq!(names(&gateway.document("/api/v1/workflows?q=money+back")), ["refund"]);
    let message = json!({
        "messageId": "m1", "role": "ROLE_USER", "metadata": { "skill": "find" }, "parts": [{ "text": "money back" }],
    });
    let body = json!({ "message": message }).to_string();
    let answer = gateway.post("/a2a/message:send", &[("a2a-version", "1.0")], &body);
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(answer["message"]["parts"][0]["data"]["results"][0]["agent"], "refund", "{answer}");
    let params = json!({ "name": "find_tools", "arguments": { "query": "money back" } });
    let answer = gateway.mcp_request("tools/call", "find_tools", params);
    assert!(
        answer["result"]["structuredContent"]["tools"][0]["name"].as_str().unwrap().contains("refund"),
        "{answer}"
    );

    // A hidden entry is found nowhere, and can still be called.
    world.ok(&["tool", "hide", "refund"]);
    let is_listed = |found: &Value| found["entries"].to_string().contains("refund");
    let until = Instant::now() + PATIENCE;
    while is_listed(&gateway.document("/api/v1/catalogue?q=money+back")) {
        assert!(Instant::now() < until, "the hidden entry is still listed");
    }
    assert!(!is_listed(&world.json(&["tool", "search", "money back"])));
    world.ok(&["tool", "unhide", "refund"]);
    world.ok(&["tool", "unpin", "refund"]);
}
