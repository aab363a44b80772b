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
