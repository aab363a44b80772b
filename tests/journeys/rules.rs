//! Rules of an operation hold at every entry point.

use serde_json::{Value, json};

use crate::common::{World, text};
use crate::views::Gateway;

/// Waits for a person.
const ASK: &str = r#"{
  "id": "ask", "name": "ask", "triggers": ["t"],
  "nodes": [
    {"id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}},
    {"id": "h", "name": "h", "type": "HUMAN_IN_THE_LOOP", "subtype": "MANUAL_REVIEW",
     "configurations": {"question": "Is this right?"}}
  ],
  "connections": [{"id": "c", "from_node": "t", "to_node": "h", "output_key": "result"}]
}"#;
/// Exit code of a command that is used wrongly.
const USAGE: Option<i32> = Some(2);
/// Words of every refusal of a rejection without a reason.
const REASON: &str = "a rejection needs a comment that states the reason";
/// Words of every refusal of an empty idempotency key.
const EMPTY_KEY: &str = "the idempotency key is empty";

#[test]
fn a_rejection_states_its_reason_and_a_key_is_not_empty() {
    let (world, _executor) = World::new();
    world.write("ask.json", ASK);
    world.ok(&["workflow", "deploy", "ask.json"]);
    world.online(&["ask"]);
    let gateway = Gateway::start(&world);
    check_empty_keys(&world, &gateway);

    let execution = gateway.begin("ask", &json!({}));
    gateway.described(&world, &execution, "waiting");
    check_command_line(&world, &execution);
    check_rest(&gateway, &execution);
    check_a2a(&gateway, &execution);
    check_mcp(&gateway, &execution);
    check_console(&gateway, &execution);
    gateway.agree(&world, "ask", &execution, "waiting");

    // With a reason, the same message rejects, and every view shows the reason.
    let answer = send_text(&gateway, &execution, "reasoned", "no: the amount is wrong");
    assert_eq!(answer["task"]["id"], execution, "{answer}");
    let description = gateway.described(&world, &execution, "succeeded");
    let decision = &description["decisions"][0];
    assert!(decision.to_string().contains("the amount is wrong"), "{description}");
    gateway.shows(&format!("/console/executions/{execution}"), "the amount is wrong");
}

fn check_empty_keys(world: &World, gateway: &Gateway) {
    let output = world.run(&["run", "ask", "--mesh", "--detach", "--idempotency-key", ""]);
    assert_eq!(output.status.code(), USAGE, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(EMPTY_KEY), "{}", text(&output.stderr));
    let body = json!({ "workflow": "ask", "idempotency_key": "" });
    let answer = gateway.post("/api/v1/executions", &[], &body.to_string());
    assert!(answer.status == 400 && answer.body.contains(EMPTY_KEY), "{} {}", answer.status, answer.body);
    let message = json!({ "messageId": "", "role": "ROLE_USER", "parts": [{ "data": {} }] });
    let answer = gateway.post(
        "/agents/ask/message:send",
        &[("a2a-version", "1.0")],
        &json!({ "message": message }).to_string(),
    );
    assert_eq!(answer.status, 400, "{}", answer.body);
    let params = json!({ "name": "ask", "arguments": {} });
    let params = with_message_id(params, "");
    let answer = gateway.mcp_request("tools/call", "ask", params);
    assert!(answer["error"].is_object(), "{answer}");
    assert_eq!(world.json(&["execution", "list"]), json!([]), "a start without a key was accepted");
}

fn with_message_id(mut params: Value, id: &str) -> Value {
    params["_meta"] = json!({ "io.github.sinew-mesh/message-id": id });
    params
}

fn check_command_line(world: &World, execution: &str) {
    for comment in ["", " "] {
        let output = world.run(&["approval", "reject", execution, "--comment", comment]);
        assert_eq!(output.status.code(), USAGE, "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(REASON), "{}", text(&output.stderr));
    }
}

fn check_rest(gateway: &Gateway, execution: &str) {
    for body in [json!({ "decision": "reject" }), json!({ "decision": "reject", "comment": " " })] {
        let path = format!("/api/v1/executions/{execution}/decisions");
        let answer = gateway.post(&path, &[], &body.to_string());
        assert!(answer.status == 400 && answer.body.contains(REASON), "{} {}", answer.status, answer.body);
    }
}

fn send_text(gateway: &Gateway, execution: &str, id: &str, text: &str) -> Value {
    send_part(gateway, execution, id, &json!({ "text": text }))
}

fn send_part(gateway: &Gateway, execution: &str, id: &str, part: &Value) -> Value {
    let message = json!({ "messageId": id, "role": "ROLE_USER", "taskId": execution, "parts": [part] });
    let body = json!({ "message": message }).to_string();
    let answer = gateway.post("/agents/ask/message:send", &[("a2a-version", "1.0")], &body);
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{}", answer.body))
}

fn check_a2a(gateway: &Gateway, execution: &str) {
    for (nth, part) in
        [json!({ "text": "no" }), json!({ "text": "No." }), json!({ "data": { "approved": false } })]
            .iter()
            .enumerate()
    {
        let answer = send_part(gateway, execution, &format!("m{nth}"), part);
        assert!(answer["error"].to_string().contains(REASON), "{part}: {answer}");
    }
}

fn check_mcp(gateway: &Gateway, execution: &str) {
    let form = json!({ "action": "accept", "content": { "approved": false } });
    let approval = gateway.document(&format!("/api/v1/executions/{execution}/approval"));
    let key = format!("{}.{}", approval["node"].as_str().unwrap(), approval["activation"]);
    let params = json!({ "taskId": execution, "inputResponses": { key: form } });
    let answer = gateway.mcp_request("tasks/update", execution, params);
    assert!(answer["error"].to_string().contains(REASON), "{answer}");
}

fn check_console(gateway: &Gateway, execution: &str) {
    let path = format!("/console/executions/{execution}/approval");
    let page = gateway.get(&path);
    let after = |text: &str, start: &str, end: char| -> String {
        let found = text.split(start).nth(1).unwrap_or_else(|| panic!("no {start} in {text}"));
        found.split(end).next().unwrap_or_default().to_owned()
    };
    let token = after(&page.body, "name=\"form_token\" value=\"", '"');
    let cookie = after(&page.head, "set-cookie: ", ';');
    let form = format!("form_token={token}&node=&comment=&data=&decision=reject");
    let headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("cookie", cookie.as_str()),
        ("origin", gateway.base.as_str()),
    ];
    let answer = gateway.send("POST", &path, &headers, &form);
    assert!(answer.status == 400 && answer.body.contains(REASON), "{} {}", answer.status, answer.body);
}
