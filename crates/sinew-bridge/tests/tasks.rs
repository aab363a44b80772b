//! Tasks of the mesh as tasks of a good outside agent.

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::json;
use sinew_mesh::event::{EventFilter, EventStart};
use sinew_operations::approval_filter::ApprovalFilter;
use sinew_operations::approvals::DecisionRequest;
use sinew_protocol::Token;

use crate::fake_agent::{FakeAgent, OLD_JSON_RPC};
use crate::world::{BridgeWorld, SINGLE, output};

#[tokio::test(flavor = "multi_thread")]
async fn tasks_end_over_both_bindings_with_streams_and_without() {
    let world = BridgeWorld::bare().await;
    let bindings = ["JSONRPC", "HTTP+JSON", OLD_JSON_RPC];
    for (nth, (binding, streams)) in
        bindings.into_iter().flat_map(|binding| [(binding, true), (binding, false)]).enumerate()
    {
        let fake = FakeAgent::start(binding, streams).await;
        let name = format!("outside{nth}");
        let text = format!("name: {name}\ncard: {}\ncredentials: {{bearer: {{file: key}}}}\n", fake.base);
        std::fs::write(world.folder().join("key"), "s3cret\n").unwrap();
        world.serve(&text).await;
        let told = format!("{binding}, streams: {streams}");
        let echoed = world.ask(&name, "m1", json!({"text": "echo hello"})).await;
        assert_eq!(output(&echoed), &json!({"state": "completed", "text": "hello"}), "{told}: {echoed:#}");
        let direct = world.ask(&name, "m2", json!({"text": "direct at once"})).await;
        assert_eq!(output(&direct), &json!({"state": "completed", "text": "at once"}), "{told}");
        let failed = world.ask(&name, "m3", json!({"text": "fail"})).await;
        assert_eq!(failed["status"]["state"], "TASK_STATE_FAILED", "{told}");
        let words = failed.to_string();
        assert!(
            words.contains("SINEW-9038") && words.contains("ended as failed: no more"),
            "{told}: {words}"
        );
        let file = world.ask(&name, "m4", json!({"text": "file"})).await;
        let shown = file.to_string();
        assert_eq!(output(&file)["data"], json!({"n": 7}), "{told}: {shown}");
        assert_eq!(output(&file)["artifacts"][0]["name"], "notes.txt", "{told}");
        assert_eq!(output(&file)["links"], json!(["https://elsewhere.example/x"]), "{told}: {shown}");
        let asks = world.ask(&name, "m5", json!({"text": "ask"})).await;
        assert_eq!(asks["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{told}: {asks:#}");
        assert_eq!(asks["status"]["message"]["parts"], json!([{"text": "which colour?"}]), "{told}");
        let reply = json!({"message": {
            "messageId": "m6", "role": "ROLE_USER", "taskId": asks["id"], "parts": [{"text": "blue"}],
        }});
        let answered = world.rpc(&name, "SendMessage", &reply).await["task"].take();
        assert_eq!(output(&answered)["text"], "answered blue", "{told}: {answered:#}");
        assert_eq!(fake.most_of_one_message(), 1, "{told}");
        fake.record(|record| {
            for headers in &record.headers {
                assert_eq!(headers["authorization"], "Bearer s3cret", "{told}");
                let is_card = headers["accept"] == "application/json";
                let version = if binding == OLD_JSON_RPC && !is_card { "0.3" } else { "1.0" };
                assert_eq!(headers["a2a-version"], version, "{told}");
            }
        });
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_answers_questions_and_cancellations_pass_through() {
    const ANSWERS: &str = r#"
workflow:
  description: Answers questions
  nodes:
    - {id: choice, type: switch, cases: [{condition: "'{{workflow.input.question}}' == 'which colour?'", node: blue}], default: red}
    - {id: blue, type: agent, agent_name: outside, input: {text: "direct blue"}, depends_on: [choice]}
    - {id: red, type: agent, agent_name: outside, input: {text: "direct red"}, depends_on: [choice]}
  output_mapping: {answer: "{{blue.output.text}}"}
"#;
    let fake = FakeAgent::start("JSONRPC", true).await;
    let world = BridgeWorld::with_workflows(&[("single", SINGLE), ("answers", ANSWERS)]).await;
    world.serve(&format!("name: outside\ncard: {}\nask: answers\n", fake.base)).await;
    let asked = world.ask_to_end("single", "m1", json!({"data": {"text": "ask"}})).await;
    assert_eq!(output(&asked)["text"], "answered blue", "{asked:#}");
    let params = json!({
        "message": {"messageId": "m2", "role": "ROLE_USER", "parts": [{"data": {"text": "hold"}}]},
        "configuration": {"returnImmediately": true},
    });
    let begun = world.rpc("single", "SendMessage", &params).await;
    fake.until("the message arrives", |record| {
        record.messages.keys().any(|id| !id.contains("answer")) && record.messages.len() >= 4
    })
    .await;
    world.rpc("single", "CancelTask", &json!({"id": begun["task"]["id"]})).await;
    fake.until("the outside task is cancelled", |record| record.cancelled.len() == 1).await;
    assert_eq!(fake.most_of_one_message(), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_answer_questions_of_outside_agents() {
    let fake = FakeAgent::start("JSONRPC", true).await;
    let world = BridgeWorld::with_workflows(&[("single", SINGLE)]).await;
    // Tasks of executions have no caller to ask, so people are asked without a setting too.
    world.serve(&format!("name: outside\ncard: {}\n", fake.base)).await;
    let person = world.operator("ann").await;
    let (asked, ()) =
        tokio::join!(world.ask_to_end("single", "m1", json!({"data": {"text": "ask"}})), async {
            let events = person.mesh().events();
            let filter = EventFilter { workflow: Some("ask:person".to_owned()), ..EventFilter::default() };
            let mut told = events.follow(&filter, EventStart::Now).await.unwrap();
            let question = loop {
                if let Some(question) =
                    person.approvals(&ApprovalFilter::of_workflow("ask:person")).await.unwrap().pop()
                {
                    break question;
                }
                told.next().await;
            };
            let shown = question.wait.question.as_ref().unwrap();
            assert!(shown.prompt.ends_with("which colour?"), "{shown:?}");
            let id = person.find(&question.execution).await.unwrap();
            let found = person.find_approval(&id, None).await.unwrap();
            let answer = DecisionRequest { data: json!({"text": "blue"}), ..DecisionRequest::default() };
            person.decide(found.asking_node(), answer).await.unwrap();
        });
    assert_eq!(output(&asked)["text"], "answered blue", "{asked:#}");
    assert_eq!(fake.most_of_one_message(), 1);
    world.end().await;
}

/// An agent or a proxy that repeats what it was sent. Nobody on the mesh is told the credentials of the bridge.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_that_outside_agents_repeat_are_hidden() {
    const SECRET: &str = "s3cret-OUT-TOKEN-\"1\"";
    let world = BridgeWorld::bare().await;
    std::fs::write(world.folder().join("key"), SECRET).unwrap();
    for (nth, (binding, streams)) in
        [("JSONRPC", true), ("JSONRPC", false), ("HTTP+JSON", true), ("HTTP+JSON", false)]
            .into_iter()
            .enumerate()
    {
        let fake = FakeAgent::start(binding, streams).await;
        fake.record(|record| record.description = format!("does what it is told with {SECRET}"));
        let name = format!("outside{nth}");
        let credentials =
            if streams { "{bearer: {file: key}}" } else { "{api_key: {header: x-key, value: {file: key}}}" };
        world.serve(&format!("name: {name}\ncard: {}\ncredentials: {credentials}\n", fake.base)).await;
        let card = world.mesh.cards().get(&Token::of(&name)).await.unwrap().unwrap();
        assert_eq!(card.description, "does what it is told with ***");
        let mut progress = world.mesh.client().subscribe("test.v1.progress.>").await.unwrap();
        for word in ["echo", "direct", "fail-with", "ask-with", "file-with", "pieces", "refuse-with"] {
            let told = format!("{word} over {binding}, streams: {streams}");
            let text = format!("{word} you sent Bearer {SECRET}");
            let task = world.ask(&name, word, json!({"text": text})).await;
            // The message of the caller, who knows what he sent, is part of the task.
            let mut shown = task.clone();
            shown["history"] = json!(null);
            let shown = shown.to_string();
            assert!(
                shown.contains("you sent Bearer ***") && !shown.contains("OUT-TOKEN"),
                "{told}: {task:#}"
            );
            if word == "file-with" {
                let parts = task["artifacts"].to_string();
                assert!(!parts.contains(&data_encoding::BASE64.encode(SECRET.as_bytes())), "{told}: {parts}");
            }
        }
        while let Some(Some(message)) = progress.next().now_or_never() {
            let text = String::from_utf8_lossy(&message.payload).into_owned();
            assert!(!text.contains("OUT-TOKEN"), "{text}");
        }
    }
    world.end().await;
}
