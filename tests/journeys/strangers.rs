//! A stranger with a key of each role, and the data of another user.

use serde_json::{Value, json};

use crate::common::World;
use crate::views::Gateway;

/// Waits for a person before it calls an agent, so that there is something to read, decide and cancel.
const ASK: &str = r#"{
  "id": "ask", "name": "ask", "triggers": ["t"],
  "nodes": [
    {"id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}},
    {"id": "h", "name": "h", "type": "HUMAN_IN_THE_LOOP", "subtype": "MANUAL_REVIEW",
     "configurations": {"question": "Is this right?"}}
  ],
  "connections": [{"id": "c", "from_node": "t", "to_node": "h", "output_key": "result"}]
}"#;
const SECRET: &str = "the secret of alice";

#[test]
fn a_stranger_neither_reads_nor_changes_what_another_user_started() {
    let (world, _executor) = World::new();
    world.write("ask.json", ASK);
    world.ok(&["workflow", "deploy", "ask.json"]);
    world.online(&["ask"]);
    let key = |name: &str, args: &[&str]| {
        let made = world.json(&[&["gateway", "key", "create", name], args].concat());
        made["key"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    };
    let alice = Gateway::start_with(&world, &["--keys"]).with_key(key("alice", &[]));
    let execution = alice.begin("ask", &json!({ "text": SECRET }));
    alice.described(&world, &execution, "waiting");
    assert!(alice.get(&format!("/api/v1/executions/{execution}/record")).body.contains(SECRET));

    let strangers = [
        ("client", vec![]),
        ("operator", vec!["--role", "operator", "--scope", "own"]),
        ("admin", vec!["--role", "admin", "--scope", "own"]),
        ("elsewhere", vec!["--role", "admin", "--pattern", "other-*"]),
    ];
    for (name, args) in strangers {
        let stranger = alice.with_key(key(name, &args));
        for path in reads(&execution) {
            let answer = stranger.get(&path);
            let is_told = answer.body.contains(SECRET) || answer.body.contains("Is this right?");
            assert!(
                answer.status != 500 && !is_told,
                "{name} reads {path}: {} {}",
                answer.status,
                answer.body
            );
            let names_execution = path.contains(&execution);
            assert!(
                answer.status != 200 || (!names_execution && !answer.body.contains(&execution)),
                "{name} finds the execution at {path}: {}",
                answer.body
            );
        }
        for (path, body) in changes(&execution) {
            let answer = stranger.post(&path, &[("a2a-version", "1.0")], &body.to_string());
            assert!(
                [403, 404].contains(&answer.status),
                "{name} at {path}: {} {}",
                answer.status,
                answer.body
            );
        }
        let answer = stranger.mcp_answer(&execution);
        assert!(answer["error"].is_object(), "{name} reads the task over MCP: {answer}");
    }
    // Nothing has changed, and its owner still can do all of it.
    alice.described(&world, &execution, "waiting");
    alice.approve(&execution);
    alice.described(&world, &execution, "succeeded");
}

/// Paths under which the execution, its data or its question can be seen.
fn reads(execution: &str) -> Vec<String> {
    let of_execution =
        ["", "/record", "/tree", "/timeline", "/events", "/drawing", "/artifacts", "/approval"]
            .map(|rest| format!("/api/v1/executions/{execution}{rest}"));
    let lists = ["/api/v1/executions", "/api/v1/approvals", "/a2a/tasks", "/agents/ask/tasks"];
    let pages = [format!("/console/executions/{execution}")];
    let page_lists = ["/console/executions", "/console/approvals"];
    let tasks = ["/a2a/tasks", "/agents/ask/tasks"].map(|tasks| format!("{tasks}/{execution}"));
    let lists = lists.into_iter().chain(page_lists).map(str::to_owned);
    of_execution.into_iter().chain(lists).chain(pages).chain(tasks).collect()
}

/// Requests that change the execution.
fn changes(execution: &str) -> Vec<(String, Value)> {
    let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "taskId": execution,
        "parts": [{"data": {"decision": "approve"}}]}});
    let of_execution = [
        ("cancel", json!({"reason": "mine"})),
        ("pause", json!({"reason": "mine"})),
        ("resume", json!({})),
        ("retry", json!({})),
        ("decisions", json!({"decision": "approve"})),
    ];
    let over_rest = of_execution.map(|(verb, body)| (format!("/api/v1/executions/{execution}/{verb}"), body));
    let over_a2a = [
        (format!("/a2a/tasks/{execution}:cancel"), json!({})),
        (format!("/agents/ask/tasks/{execution}:cancel"), json!({})),
        ("/a2a/message:send".to_owned(), message.clone()),
        ("/agents/ask/message:send".to_owned(), message),
    ];
    over_rest.into_iter().chain(over_a2a).collect()
}
