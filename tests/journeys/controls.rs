//! An operator's day: find an order by its key, stop a workflow that misbehaves, return to the version
//! before, and send one command to everything that matches. Every surface shows the same truth.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::World;
use crate::views::Gateway;

/// How long a start may take to show everywhere.
const PATIENCE: Duration = Duration::from_mins(1);

const REASON: &str = "wrong prices, see INC-42";

fn orders(version: &str) -> String {
    format!(
        "name: orders
workflow:
  version: {version}
  description: Doubles a number.
  input_schema: {{type: object, properties: {{n: {{type: integer}}, order: {{type: string}}}}}}
  nodes:
    - {{id: a, type: agent, agent_name: Doubler, input: {{n: \"{{{{workflow.input.n}}}}\"}}}}
  output_mapping: {{n: \"{{{{a.output.n}}}}\", by: \"{version}\"}}
"
    )
}

/// An agent that fails for negative numbers.
const DOUBLER: &str = "name: Doubler\ninput_schema: &schema {type: object, properties: {n: {type: integer}}}\noutput_schema: *schema\nrun: {script: {source: \"lambda input: {'n': input['n'] * 2} if input['n'] >= 0 else 1 // 0\"}}\n";

#[test]
fn an_operator_finds_stops_rolls_back_and_repeats() {
    let (world, executor) = World::new();
    world.write("doubler.agent.yaml", DOUBLER);
    let _agent = world.serve(&["serve", "agent", "doubler.agent.yaml"]);
    world.online(&["Doubler"]);
    for version in ["1.0.0", "2.0.0"] {
        world.write("orders.yaml", &orders(version));
        world.ok(&["workflow", "deploy", "orders.yaml"]);
    }
    world.online(&["orders"]);
    let gateway = Gateway::start(&world);
    let found = finds_by_key_and_text(&world, &gateway);
    rolls_back(&world, &gateway);
    let kept = keeps_starts(&world, &gateway);
    // The pause survives the death of the executor that applied it.
    drop(executor);
    let _executor = world.serve(&["serve", "executor"]);
    for id in &kept {
        gateway.described(&world, id, "paused");
    }
    let cancelled = json!(&kept[..1]);
    let result = world.json(&["execution", "cancel", "--where", "workflow:orders key:kept-0", "--yes"]);
    assert_eq!((&result["accepted"], &result["outcomes"][0]["execution"]), (&json!(1), &cancelled[0]));
    let resumed = world.json(&["workflow", "resume", "orders"]);
    assert_eq!(resumed["paused"], Value::Null);
    for id in &kept[1..] {
        gateway.described(&world, id, "succeeded");
    }
    gateway.agree(&world, "orders", &kept[0], "cancelled");
    gateway.agree(&world, "orders", &found, "succeeded");
    retries_all_that_match(&world, &gateway);
}

/// Finds an execution by key, input and agent; returns its id.
fn finds_by_key_and_text(world: &World, gateway: &Gateway) -> String {
    let request = json!({
        "workflow": "orders", "input": { "n": 17, "order": "A-17" }, "idempotency_key": "order-17",
    });
    let id = gateway.begin_with(&request);
    let other = gateway.begin("orders", &json!({ "n": 18, "order": "A-18" }));
    for id in [&id, &other] {
        gateway.described(world, id, "succeeded");
    }
    assert_eq!(world.json(&["execution", "describe", &id])["idempotency_key"], "order-17");
    let only = |rows: &Value| {
        let rows = rows.as_array().unwrap();
        assert!(rows.len() == 1 && rows[0]["execution"] == id.as_str(), "{rows:?}");
    };
    for terms in [&["order-17"][..], &["key:order-17"], &["A-17"], &["input:a-17", "agent:Doubler"]] {
        only(&world.json(&[&["execution", "find"], terms].concat()));
    }
    only(&world.json(&["execution", "list", "--key", "order-17"]));
    only(&gateway.document("/api/v1/executions?key=order-17")["executions"]);
    let page = gateway.document("/api/v1/executions?filter=A-17");
    only(&page["executions"]);
    assert_eq!((&page["searched"]["records"], &page["searched"]["stopped"]), (&json!(2), &json!(false)));
    let box_answer = gateway.get("/console/executions?find=A-17");
    assert_eq!(box_answer.status, 303, "{}", box_answer.body);
    let list = gateway.get("/console/executions?q=A-17").body;
    assert!(list.contains(&id) && !list.contains(&other), "{list}");
    gateway.shows(&format!("/console/executions/{id}"), "order-17");
    id
}

/// Returns to the version before; the author's version is shown everywhere.
fn rolls_back(world: &World, gateway: &Gateway) {
    let current = |rows: &Value| {
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), 2, "{rows:?}");
        rows.iter().find(|row| row["current"] == true).unwrap()["author_version"].clone()
    };
    assert_eq!(current(&world.json(&["workflow", "versions", "orders"])), "2.0.0");
    let state = world.json(&["workflow", "rollback", "orders"]);
    assert_eq!(state["author_version"], "1.0.0", "{state}");
    assert_eq!(current(&world.json(&["workflow", "versions", "orders"])), "1.0.0");
    assert_eq!(current(&gateway.document("/api/v1/workflows/orders/versions")), "1.0.0");
    gateway.shows("/console/workflows/orders", "Roll back to this");
    let id = gateway.begin("orders", &json!({ "n": 1 }));
    assert_eq!(gateway.described(world, &id, "succeeded")["output"]["by"], "1.0.0");
}

/// Pauses the workflow: starts exist, have not begun, and say why on every surface. Returns them.
fn keeps_starts(world: &World, gateway: &Gateway) -> Vec<String> {
    let state = world.json(&["workflow", "pause", "orders", "--reason", REASON]);
    let text = state["paused"].as_str().unwrap().to_owned();
    assert!(text.starts_with("workflow paused by ") && text.ends_with(REASON), "{text}");
    // The executors follow the deployments: a start is kept once they have read the pause.
    let until = Instant::now() + PATIENCE;
    while gateway.document("/api/v1/workflows/orders")["paused"] != json!(text) {
        assert!(Instant::now() < until, "the gateway does not show the pause");
    }
    let mut kept = Vec::new();
    for n in 0..3 {
        let request =
            json!({ "workflow": "orders", "input": { "n": n }, "idempotency_key": format!("kept-{n}") });
        let answer = gateway.post("/api/v1/executions", &[], &request.to_string());
        let started: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((answer.status, &started["paused"]), (202, &json!(text)), "{started}");
        kept.push(started["execution"].as_str().unwrap().to_owned());
    }
    let rows = world.json(&["execution", "list", "--status", "paused"]);
    assert!(rows.as_array().unwrap().iter().all(|row| row["waiting"] == json!(text)), "{rows}");
    // A blocking call is answered at once.
    let message = json!({ "messageId": "m7", "role": "ROLE_USER", "parts": [{ "data": { "n": 7 } }] });
    let body = json!({ "message": message }).to_string();
    let answer = gateway.post("/agents/orders/message:send", &[("a2a-version", "1.0")], &body);
    let task = &serde_json::from_str::<Value>(&answer.body).unwrap()["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED", "{task}");
    assert!(task["status"]["message"].to_string().contains(REASON), "{task}");
    kept.push(task["id"].as_str().unwrap().to_owned());
    let called =
        gateway.mcp_request("tools/call", "orders", json!({ "name": "orders", "arguments": { "n": 8 } }));
    assert!(called["error"].is_null(), "{called}");
    gateway.shows("/console/workflows/orders", REASON);
    gateway.shows(&format!("/console/executions/{}", kept[0]), REASON);
    kept
}

/// Retries everything that failed with one error: all are accepted, and they fail again.
fn retries_all_that_match(world: &World, gateway: &Gateway) {
    let failing: Vec<String> = (1..=3).map(|n| gateway.begin("orders", &json!({ "n": -n }))).collect();
    for id in &failing {
        gateway.described(world, id, "failed");
    }
    let filter = "workflow:orders status:failed";
    let preview = world.json(&["execution", "retry", "--where", filter, "--dry-run"]);
    assert_eq!(
        (&preview["count"], preview["groups"].as_array().map(Vec::len)),
        (&json!(3), Some(1)),
        "{preview}"
    );
    let refused = world.run(&["execution", "retry", "--where", filter]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && text.contains("--yes"), "{text}");
    let result = world.json(&["execution", "retry", "--where", filter, "--yes"]);
    assert_eq!((&result["accepted"], &result["rejected"]), (&json!(3), &json!(0)), "{result}");
    for id in &failing {
        let again = gateway.described(world, id, "failed");
        assert_eq!(again["retries"], 1, "{again}");
    }
    // The same over REST: the preview freezes the list, and its id makes a repetition harmless.
    let bulk = |body: &Value| -> Value {
        let answer = gateway.post("/api/v1/executions/bulk", &[], &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    };
    let preview = bulk(&json!({ "command": "retry", "filter": filter }));
    let send = json!({ "command": "retry", "id": preview["id"], "executions": preview["executions"] });
    for _ in 0..2 {
        assert_eq!(bulk(&send)["accepted"], 3);
    }
    for id in &failing {
        assert_eq!(gateway.described(world, id, "failed")["retries"], 2);
    }
    let pages = gateway.get("/console/executions?status=failed").body;
    assert!(pages.contains("All that match the filter"), "{pages}");
}
