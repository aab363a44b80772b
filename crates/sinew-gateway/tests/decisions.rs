//! A workflow that waits for a person, and the message that answers it.

use serde_json::{Value, json};

use crate::support::{EventSource, GatewayWorld, above_review, message, review, state};

fn answer(id: &str, task: &Value, parts: Value) -> Value {
    let mut answer = message(id, parts);
    answer["message"]["taskId"] = task["id"].clone();
    answer
}

#[tokio::test]
async fn decisions_are_sent_as_messages() {
    check_decisions("review", "h").await;
}

/// The same for a workflow whose sub-workflow asks: the decision is passed on.
#[tokio::test]
async fn decisions_reach_the_execution_that_asks() {
    check_decisions("above", "k").await;
}

async fn check_decisions(workflow: &str, node: &str) {
    let world = GatewayWorld::new(&[("review", &review()), ("above", &above_review())]).await;
    let agent = format!("/agents/{workflow}");
    let cases = [
        ("yes", json!([{"text": "yes"}])),
        ("data", json!([{"data": {"approved": true, "comment": "fine"}}])),
    ];
    for (name, parts) in cases {
        let sent = world.rpc(&agent, "SendMessage", &message(name, json!([{"text": "look"}]))).await;
        let task = &sent["result"]["task"];
        assert_eq!(state(task), "TASK_STATE_INPUT_REQUIRED", "{sent}");
        assert!(sent.to_string().contains("Is this right?"), "{sent}");
        let mut wrong = answer("w", task, parts.clone());
        wrong["message"]["contextId"] = json!("another");
        let refused = world.rpc(&agent, "SendMessage", &wrong).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let named = json!([{"data": {"approved": true, "node": "zz"}}]);
        let refused = world.rpc(&agent, "SendMessage", &answer("n", task, named)).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let told = refused["error"]["message"].as_str().unwrap();
        assert!(told.contains("'zz'") && told.ends_with(&format!("waiting nodes: {node}")), "{told}");
        let decided =
            world.rpc(&agent, "SendMessage", &answer(&format!("{name}-2"), task, parts.clone())).await;
        assert_eq!(state(&decided["result"]["task"]), "TASK_STATE_COMPLETED", "{decided}");
        // A client whose answer was lost sends the decision again.
        let mut again = answer(&format!("{name}-2"), task, parts);
        let repeated = world.rpc(&agent, "SendMessage", &again).await;
        assert_eq!(repeated["result"], decided["result"], "{repeated}");
        let call = json!({"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": again});
        let stream = world.request(reqwest::Method::POST, &agent).json(&call).send().await.unwrap();
        let events = EventSource::of(stream).all().await;
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0].1["result"]["task"]["id"], task["id"], "{events:?}");
        again["message"]["contextId"] = json!("another");
        let refused = world.rpc(&agent, "SendMessage", &again).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        // A task that has ended takes no more messages.
        let late = world.rpc(&agent, "SendMessage", &answer("late", task, json!([{"text": "no"}]))).await;
        assert_eq!(late["error"]["code"], -32004, "{late}");
        assert!(late["error"]["data"].to_string().contains("SINEW-9007"), "{late}");
    }
    world.end().await;
}

/// Ids and roles of the messages of a task.
fn history(task: &Value) -> Vec<(&str, &str)> {
    let messages = task["history"].as_array().into_iter().flatten();
    messages.map(|one| (one["role"].as_str().unwrap(), one["messageId"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn the_history_of_a_task_has_the_messages_of_both_sides() {
    let world = GatewayWorld::new(&[("review", &review())]).await;
    let sent = world.rpc("/agents/review", "SendMessage", &message("m", json!([{"text": "look"}]))).await;
    let asking = &sent["result"]["task"];
    // The open question is in the status.
    assert_eq!(history(asking), [("ROLE_USER", "m")], "{sent}");
    assert_eq!(asking["history"][0]["parts"], json!([{"text": "look"}]));
    let decision = answer("m2", asking, json!([{"text": "yes, fine"}]));
    let decided = world.rpc("/agents/review", "SendMessage", &decision).await;
    let ended = &decided["result"]["task"];
    let roles: Vec<&str> = history(ended).iter().map(|(role, _)| *role).collect();
    assert_eq!(roles, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER"], "{decided}");
    let texts: Vec<&Value> = (1..3).map(|nth| &ended["history"][nth]["parts"][0]["text"]).collect();
    assert!(texts[0].as_str().unwrap().ends_with("Is this right?"), "{decided}");
    assert!(texts[1].as_str().unwrap().contains("fine"), "{decided}");
    for (length, expected) in [(json!(0), 0), (json!(2), 2), (Value::Null, 3)] {
        let params = json!({"id": ended["id"], "historyLength": length});
        let read = world.rpc("/agents/review", "GetTask", &params).await;
        assert_eq!(history(&read["result"]).len(), expected, "{read}");
    }
    for (length, expected) in [(Value::Null, 0), (json!(1), 1)] {
        let list = world.rpc("/agents/review", "ListTasks", &json!({"historyLength": length})).await;
        assert_eq!(history(&list["result"]["tasks"][0]).len(), expected, "{list}");
    }
    world.end().await;
}

#[tokio::test]
async fn the_history_of_an_agents_task_has_its_request() {
    let world = GatewayWorld::new(&[]).await;
    world.serve_echo().await;
    let mut sent = message("m", json!([{"data": {"value": "v"}}]));
    let ended = world.rpc("/agents/one", "SendMessage", &sent).await;
    let task = &ended["result"]["task"];
    assert_eq!(history(task), [("ROLE_USER", "m")], "{ended}");
    assert_eq!(task["history"][0]["taskId"], task["id"], "{ended}");
    sent["configuration"] = json!({"historyLength": 0});
    let repeated = world.rpc("/agents/one", "SendMessage", &sent).await;
    assert!(history(&repeated["result"]["task"]).is_empty(), "{repeated}");
    world.end().await;
}

#[tokio::test]
async fn a_decision_opens_a_stream_to_the_end() {
    let world = GatewayWorld::new(&[("review", &review())]).await;
    let sent = world.rpc("/a2a", "SendMessage", &message("m", json!([{"text": "look"}]))).await;
    let task = &sent["result"]["task"];
    let call = json!({"jsonrpc": "2.0", "id": "s", "method": "SendStreamingMessage",
                      "params": answer("m2", task, json!([{"text": "no, not like this"}]))});
    let response = world.request(reqwest::Method::POST, "/a2a").json(&call).send().await.unwrap();
    let events = EventSource::of(response).all().await;
    let (_, first) = &events[0];
    assert_eq!((&first["id"], &first["result"]["task"]["id"]), (&json!("s"), &task["id"]), "{first}");
    let (_, last) = events.last().unwrap();
    let ended = if events.len() == 1 { &last["result"]["task"] } else { &last["result"]["statusUpdate"] };
    assert!(["TASK_STATE_FAILED", "TASK_STATE_COMPLETED"].contains(&state(ended)), "{last}");
    let client = sinew_executor::client::Client::new(world.mesh.clone(), |_| None).await.unwrap();
    let execution = sinew_protocol::ExecutionId::parse(task["id"].as_str().unwrap()).unwrap();
    let record = client.record(&execution).await.unwrap().unwrap();
    let verdict = record.commands.iter().find(|verdict| verdict.op.as_str() == "approve").unwrap();
    assert_eq!(verdict.caller.as_str(), "gateway", "the decision names who made it");
    world.end().await;
}
