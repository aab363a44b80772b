//! What operators do every day: decide, drain an agent, look for slow nodes, and audit. The command line, the REST
//! API and the console show the same.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{World, text};
use crate::views::Gateway;

/// Asks whether to refund an amount, then does it.
const REFUND: &str = r#"
name: refund
description: Refunds after an approval
nodes:
  - id: ask
    type: approval
    prompt: "Pay this refund?"
    data: {order: "{{workflow.input.order}}", amount: "{{workflow.input.amount}}"}
  - {id: pay, type: agent, agent_name: Bank, depends_on: [ask], input: {amount: "{{workflow.input.amount}}"}}
output_mapping: {paid: "{{pay.output.paid}}"}
"#;
const BANK: &str = "name: Bank\nrun: {script: {source: \"lambda input: {'paid': input['amount']}\"}}\n";
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn operators_decide_drain_report_and_audit_everywhere_alike() {
    let (world, _executor) = World::new();
    world.write("refund.yaml", REFUND);
    world.write("bank.agent.yaml", BANK);
    let _agents = world.serve(&["serve", "agent", "bank.agent.yaml"]);
    world.online(&["Bank"]);
    world.ok(&["workflow", "deploy", "refund.yaml"]);
    world.online(&["refund"]);
    let gateway = Gateway::start(&world);
    let begin = |order: &str, amount: u32| {
        let id = gateway.begin("refund", &json!({"order": order, "amount": amount}));
        gateway.described(&world, &id, "waiting");
        id
    };
    let ids = [begin("A-1", 20), begin("A-2", 5000), begin("A-3", 30), begin("A-4", 40)];
    decide(&world, &gateway, &ids);
    drain(&world, &gateway);
    report(&world, &gateway);
    audit(&world, &gateway, &ids[1]);
}

/// Waits until a document of the REST API fulfils a condition.
#[track_caller]
fn reaches(gateway: &Gateway, path: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let document = gateway.document(path);
        if is_reached(&document) {
            return document;
        }
        assert!(Instant::now() < until, "{path}: {document}");
    }
}

/// The oldest question comes first, each with its data; decisions by condition, by several ids, and late ones.
fn decide(world: &World, gateway: &Gateway, ids: &[String; 4]) {
    let rest = gateway.document("/api/v1/approvals");
    // The time that a question has waited differs.
    let questions = |document: &Value| -> Vec<Value> {
        let rows = document.as_array().unwrap().iter();
        rows.map(|row| json!([row["execution"], row["node"], row["question"], row["review"], row["since"]]))
            .collect()
    };
    assert_eq!(questions(&rest), questions(&world.json(&["approval", "list"])));
    let found: Vec<&str> =
        rest.as_array().unwrap().iter().map(|row| row["execution"].as_str().unwrap()).collect();
    assert_eq!(found, *ids, "{rest}");
    assert_eq!(rest[1]["review"], json!({"order": "A-2", "amount": 5000}), "{rest}");
    assert_eq!(gateway.document("/api/v1/approval-count"), json!({"open": 4}));
    gateway.shows("/console/approvals", "<dd>5000</dd>");
    assert!(world.ok(&["approval", "list"]).contains("order=A-2 amount=5000"));

    // The console decides one in place.
    let page = gateway.get("/console/approvals").body;
    assert!(page.contains(&format!("name=\"execution\" value=\"{}\"", ids[0])), "{page}");
    gateway.approve(&ids[0]);
    let decided =
        world.json(&["approval", "approve", "--all", "--where", "amount<35", "--comment", "small", "--yes"]);
    assert_eq!(decided.as_array().unwrap().len(), 1, "{decided}");
    assert_eq!((&decided[0]["execution"], &decided[0]["status"]), (&json!(ids[2]), &json!("approved")));
    let refused = world.run(&["approval", "reject", &ids[1], &ids[3], "--comment", "too dear"]);
    assert!(text(&refused.stderr).contains("--yes"), "{}", text(&refused.stderr));
    let decided = world.json(&["approval", "reject", &ids[1], &ids[3], "--comment", "too dear", "--yes"]);
    assert_eq!(decided.as_array().unwrap().len(), 2, "{decided}");
    reaches(gateway, "/api/v1/approval-count", |count| count["open"] == 0);

    // A late decision is told who decided, on every way.
    let late = world.run(&["approval", "approve", &ids[1]]);
    let said = text(&late.stderr);
    assert!(said.contains("rejected by") && said.contains("(too dear)"), "{said}");
    let path = format!("/api/v1/executions/{}/decisions", ids[1]);
    let late = gateway.post(&path, &[], &json!({"decision": "approve"}).to_string());
    assert!(late.status == 409 && late.body.contains("(too dear)"), "{} {}", late.status, late.body);
    for id in [&ids[0], &ids[2]] {
        gateway.described(world, id, "succeeded");
    }
}

/// A drained agent takes no new task until it is resumed.
fn drain(world: &World, gateway: &Gateway) {
    let drained = world.json(&["agent", "drain", "Bank"]);
    assert_eq!(drained["status"], "draining", "{drained}");
    let rows = gateway.document("/api/v1/agents");
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["state"]), (1, &json!("draining")), "{rows}");
    assert_eq!(world.json(&["agent", "list", "--mesh"])[0]["state"], "draining");
    gateway.shows("/console/agents", "<b>draining</b>");
    let kept = gateway.begin("refund", &json!({"order": "A-5", "amount": 1}));
    gateway.described(world, &kept, "waiting");
    gateway.approve(&kept);
    reaches(gateway, "/api/v1/agents", |rows| rows[0]["queued"] == 1);
    gateway.shows("/console/agents/Bank", "Take tasks again");
    let resumed = gateway.post("/api/v1/agents/Bank/undrain", &[], "{}");
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    gateway.described(world, &kept, "succeeded");
    assert!(world.ok(&["agent", "describe", "Bank", "--mesh"]).contains("replicas  1"));
}

/// Reports count the tasks of the history.
fn report(world: &World, gateway: &Gateway) {
    let counted = |report: &Value| {
        let rows = report["rows"].as_array().unwrap().iter();
        rows.map(|row| (row["name"].clone(), row["tasks"].clone())).collect::<Vec<_>>()
    };
    let path = "/api/v1/reports/nodes";
    let rest = reaches(gateway, path, |report| report["rows"][0]["tasks"] == 3);
    assert_eq!(counted(&rest), [(json!("refund/pay"), json!(3))], "{rest}");
    assert_eq!(counted(&world.json(&["report", "nodes"])), counted(&rest));
    assert_eq!(rest["coverage"]["is_whole"], true, "{rest}");
    let csv = world.ok(&["report", "nodes", "--by", "agent", "-o", "csv"]);
    assert!(csv.starts_with("\"name\",\"tasks\"") && csv.contains("\"Bank\",3,0,"), "{csv}");
    gateway.shows("/console/reports/nodes", "refund/pay");
    let cost = world.json(&["report", "cost"]);
    assert_eq!(cost["rows"], json!([]), "no model was called: {cost}");
    gateway.shows("/console/reports/cost", "No model was called");
}

/// The audit names each decision with its reason and entry point.
fn audit(world: &World, gateway: &Gateway, rejected: &str) {
    let find = |report: &Value, what: &str, target: &str| {
        let rows = report["rows"].as_array().unwrap().iter();
        let found: Vec<Value> =
            rows.filter(|row| row["what"] == what && row["target"] == target).cloned().collect();
        assert!(!found.is_empty(), "{what} {target}: {report}");
        found[0].clone()
    };
    let rest = gateway.document("/api/v1/audit");
    let entry = find(&rest, "reject", rejected);
    assert_eq!((&entry["why"], &entry["via"]), (&json!("too dear"), &json!("cli")), "{entry}");
    // Everyone may give any name on this mesh.
    assert_eq!(entry["unproven"], true, "{entry}");
    assert_eq!(find(&rest, "deploy", "refund")["via"], "cli", "{rest}");
    let approved = world.json(&["audit", "--what", "approve"]);
    assert!(approved["rows"].as_array().unwrap().iter().any(|row| row["via"] == "rest"), "{approved}");
    let lines = world.ok(&["audit", "--what", rejected, "-o", "jsonl"]);
    assert_eq!(lines.lines().count(), 1, "{lines}");
    gateway.shows("/console/audit?what=reject", "too dear");
}
