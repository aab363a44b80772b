use serde_json::{Value, json};
use sinew_protocol::a2a::{StreamResponse, Task};

use super::*;
use crate::operations::OpenQuestion;

fn task(state: &str, more: Value) -> Task {
    let mut task =
        json!({"id": "x7f3", "contextId": "c", "status": {"state": format!("TASK_STATE_{state}")}});
    if let (Value::Object(task), Value::Object(more)) = (&mut task, more) {
        task.extend(more);
    }
    serde_json::from_value(task).unwrap()
}

fn artifacts(parts: &Value) -> Value {
    json!({"artifacts": [{"artifactId": "a", "parts": parts}]})
}

#[test]
fn parts_of_a_result_are_content() {
    let check = |parts: Value, content: Value, structured: Option<Value>| {
        let result = result_of_task(&task("COMPLETED", artifacts(&parts)), &AskedInput::Nothing, None);
        assert_eq!(serde_json::to_value(&result.content).unwrap(), content, "{parts}");
        assert_eq!(result.structured_content, structured, "{parts}");
        assert_eq!(result.is_error, Some(false), "{parts}");
        assert_eq!(result.meta.unwrap().0["io.github.sinew-mesh/task"], "x7f3");
    };
    check(
        json!([{"data": {"n": 9_007_199_254_740_993_u64}}]),
        json!([{"type": "text", "text": "{\"n\":9007199254740993}"}]),
        Some(json!({"n": 9_007_199_254_740_993_u64})),
    );
    check(json!([{"text": "done"}]), json!([{"type": "text", "text": "done"}]), None);
    check(
        json!([{"data": 1}, {"data": 2}]),
        json!([{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]),
        None,
    );
    check(
        json!([{"raw": "YWJj", "mediaType": "image/png"}, {"raw": "YWJj", "mediaType": "application/pdf"}]),
        json!([
            {"type": "image", "data": "YWJj", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "sinew://tasks/x7f3#1", "mimeType": "application/pdf", "blob": "YWJj"}},
        ]),
        None,
    );
    check(
        json!([{"url": "artifact://a/u/e/n", "filename": "n", "mediaType": "text/csv"}]),
        json!([{"type": "resource_link", "uri": "artifact://a/u/e/n", "name": "n", "mimeType": "text/csv"}]),
        None,
    );
}

#[test]
fn other_ends_are_errors_that_say_what_to_do() {
    let fault = json!({"code": "SINEW-5100", "message": "it is broken", "retryable": false, "kind": "failure",
                       "details": ["one", "two"]});
    let check = |task: &Task, asked: AskedInput, expected: &[&str]| {
        let result = result_of_task(task, &asked, Some("http://gateway/console"));
        assert_eq!((result.is_error, &result.structured_content), (Some(true), &None));
        let text = &result.content[0].as_text().unwrap().text;
        for one in expected {
            assert!(text.contains(one), "{one}: {text}");
        }
    };
    let failed = task("FAILED", json!({"metadata": {METADATA: {"fault": fault}}}));
    check(&failed, AskedInput::Nothing, &["SINEW-5100: it is broken\n- one\n- two"]);
    check(&task("FAILED", json!({})), AskedInput::Nothing, &["SINEW-5100: the task failed without a reason"]);
    check(&task("CANCELED", json!({})), AskedInput::Nothing, &["x7f3 was cancelled"]);
    check(&task("WORKING", json!({})), AskedInput::Nothing, &["x7f3 is still running", "sinew://tasks/x7f3"]);
    let waits = task(
        "INPUT_REQUIRED",
        json!({"status": {"state": "TASK_STATE_INPUT_REQUIRED", "message":
            {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Is this right?"}]}}}),
    );
    let prompt = "Is this right?".to_owned();
    let question = OpenQuestion { node: "h".to_owned(), activation: 3, prompt, answer_schema: None };
    check(
        &waits,
        AskedInput::Questions(vec![question]),
        &[
            "Is this right?",
            "http://gateway/console/executions/x7f3/approval",
            "`sinew approval approve x7f3 --node h`",
        ],
    );
}

#[test]
fn refusals_reach_the_model_and_failures_of_the_mesh_the_host() {
    let told = refusal(&A2aError::invalid_params("value: expected a text")).unwrap();
    assert!(told.content[0].as_text().unwrap().text.contains("value: expected a text"));
    let fault = Fault::error(sinew_protocol::code::NO_ANSWER_ON_MESH.as_str(), "nobody answers");
    let error = refusal(&sinew_protocol::jsonrpc::error_of(&fault)).unwrap_err();
    assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);
    assert_eq!(error.data.unwrap()["code"], fault.code.as_ref());
}

#[test]
fn tasks_have_states_of_the_extension() {
    let check = |state: &str, expected: &str| {
        let shown = detailed_task(
            &task(state, json!({})),
            "2026-01-31T09:00:00.000Z",
            rmcp::model::InputRequests::new(),
            &CallToolResult::default(),
        );
        let shown = serde_json::to_value(shown).unwrap();
        assert_eq!(shown["status"], expected, "{state}");
        assert_eq!(
            (&shown["taskId"], &shown["createdAt"]),
            (&json!("x7f3"), &json!("2026-01-31T09:00:00.000Z"))
        );
    };
    check("SUBMITTED", "working");
    check("WORKING", "working");
    // The user of this client cannot be asked, so the task is `working` from its point of view.
    check("INPUT_REQUIRED", "working");
    check("COMPLETED", "completed");
    check("FAILED", "completed");
    check("REJECTED", "completed");
    check("CANCELED", "cancelled");
}

#[test]
fn events_are_worded_as_progress() {
    let check = |part: Value, expected: Option<&str>| {
        let event: StreamResponse = serde_json::from_value(json!({"statusUpdate": {
            "taskId": "x7f3", "contextId": "c", "status": {"state": "TASK_STATE_WORKING", "message":
                {"messageId": "m", "role": "ROLE_AGENT", "parts": [part.clone()]}}}}))
        .unwrap();
        assert_eq!(news_of(&event).map(|news| news.text).as_deref(), expected, "{part}");
    };
    check(json!({"text": "half"}), Some("half"));
    check(json!({"text": ""}), None);
    let begun = json!({"type": "workflow_node_execution_start", "node_id": "a", "node_type": "agent"});
    check(json!({"data": begun}), Some("a: begun"));
    let done = json!({"type": "workflow_node_execution_result", "node_id": "a", "status": "success"});
    check(json!({"data": done}), Some("a: done"));
}
