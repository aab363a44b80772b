//! An agent in Python reads its queue only: every entry point calls it through an execution.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Role, World, python_packages};
use crate::views::Gateway;

/// Time in which a list is complete: an agent without an endpoint is not waited for.
const LIST_LIMIT: Duration = Duration::from_secs(4);
const ANSWER: &str = "Hello, Ada!";

#[test]
fn an_agent_that_reads_its_queue_only_is_called_everywhere() {
    let (world, _executor) = World::new();
    world.ok(&["new", "agent", "billing", "--kind", "python"]);
    let project = world.path().join("billing");
    let _agent = Command::new("python3")
        .arg("agent.py")
        .current_dir(&project)
        .env("PYTHONPATH", python_packages(&project))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NATS_URL", &world.url)
        .stdout(Stdio::null())
        .spawn()
        .map(Role)
        .unwrap();
    world.online(&["billing"]);
    world.answered_for("billing");
    let gateway = Gateway::start(&world);

    // Command line.
    let answer: Value =
        serde_json::from_str(&world.ok(&["agent", "call", "billing", "--mesh", "-p", "name=Ada"])).unwrap();
    assert_eq!(answer, json!({ "text": ANSWER }));

    // REST.
    let execution = gateway.begin_with(&json!({ "agent": "billing", "input": { "name": "Ada" } }));
    gateway.described(&world, &execution, "succeeded");
    // It can be repeated with the newest version of its workflow, which no one has deployed.
    let again = world.json(&["execution", "rerun", &execution, "--latest"]);
    gateway.described(&world, again["execution"].as_str().unwrap(), "succeeded");

    // A2A: a call, its task at both endpoints, a stream, and lists.
    let task = send(&gateway, "/agents/billing/message:send", "m1");
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert!(task.to_string().contains(ANSWER), "{task}");
    let id = task["id"].as_str().unwrap();
    for path in [format!("/agents/billing/tasks/{id}"), format!("/a2a/tasks/{id}")] {
        assert_eq!(gateway.document(&path)["status"]["state"], "TASK_STATE_COMPLETED", "{path}");
    }
    // The execution that REST started is a task as well.
    assert_eq!(
        gateway.document(&format!("/agents/billing/tasks/{execution}"))["status"]["state"],
        "TASK_STATE_COMPLETED"
    );
    let began = Instant::now();
    for path in ["/agents/billing/tasks", "/a2a/tasks"] {
        let list = gateway.document(path);
        assert!(list.to_string().contains(id), "{path}: {list}");
    }
    assert!(began.elapsed() < LIST_LIMIT, "lists waited {:?} for the agent", began.elapsed());

    // MCP.
    let params = json!({ "name": "billing", "arguments": { "name": "Ada" } });
    let answer = gateway.mcp_request("tools/call", "billing", params);
    assert!(answer["result"].to_string().contains(ANSWER), "{answer}");

    // Console.
    gateway.shows(&format!("/console/executions/{execution}"), "✓ call:billing");
}

/// Sends a message and returns its task.
fn send(gateway: &Gateway, path: &str, id: &str) -> Value {
    let message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "data": { "name": "Ada" } }] });
    let answer = gateway.post(path, &[("a2a-version", "1.0")], &json!({ "message": message }).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    answer["task"].clone()
}
