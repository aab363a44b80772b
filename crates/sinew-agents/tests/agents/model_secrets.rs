//! Servers of models that answer with the key they were asked with: no caller, log, agent or output has it.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_agents::{Agent, AgentSet, LocalPeers, MemorySteps, Steps};

use crate::model::{agent, stream, words};
use crate::server::{Server, json as say_json};

/// A turn with text and a call, both in pieces whose borders lie within the key.
fn telling_and_calling() -> crate::server::Say {
    let text = |piece: &str| json!({"choices": [{"delta": {"content": piece}}]});
    let call = |piece: &str| {
        let function = json!({"name": "peer_Courier", "arguments": piece});
        json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c1", "function": function}]}}]})
    };
    stream(&[
        json!({"model": "m s3cret-canary", "choices": [{"delta": {"reasoning_content": "my s3cret-canary"}}]}),
        text("my key is Bearer s3cre"),
        text("t-can"),
        text("ary, I think"),
        call(r#"{"order": "s3cret-c"#),
        call(r#"anary", "escaped": "s3cret\u002dcanary", "s3cret-canary": 1}"#),
        json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
    ])
}

#[tokio::test]
async fn a_key_that_a_model_answers_with_goes_nowhere() {
    let server = Server::start(vec![telling_and_calling(), words("once more: s3cret-canary")]).await;
    let fixture = agent(&server, &json!({}), &json!({"tools": [{"peer": "Courier"}]}));
    let courier = "name: Courier\ninput_schema: {type: object, properties: {order: {type: string}, escaped: {type: string}}}\n\
                   run: {script: {source: \"lambda input: sorted([len(k) for k in input]) + [input['order'] == '***', input['escaped'] == '***']\"}}\n";
    let mut others = AgentSet::default();
    others.add(Agent::from_text(Path::new("courier.agent.yaml"), courier).unwrap()).unwrap();
    let steps = Arc::new(MemorySteps::default());
    let (sender, mut said) = tokio::sync::mpsc::unbounded_channel();
    let peers = Arc::new(LocalPeers::new(others, fixture.artifacts.clone()));
    let task = || {
        let mut call = fixture.input(json!({"text": "hi"}));
        call.context = json!({"task": "t", "activation": "a", "attempt": 1});
        call.steps = Some(steps.clone());
        call.peers = peers.clone();
        call.progress = sender.clone();
        call
    };
    let reply = fixture.agent.call(task()).await.unwrap();
    assert_eq!(reply.output, json!({"text": "once more: ***"}));
    let heard: Vec<Value> = std::iter::from_fn(|| said.try_recv().ok()).collect();
    let text: String =
        heard.iter().filter(|one| one["turn"] == 0).filter_map(|one| one["delta"].as_str()).collect();
    assert_eq!(text, "my key is Bearer ***, I think");
    // The other agent sees that the texts are hidden.
    let result = reply.events.iter().find(|event| event["type"] == "tool:result");
    let result = result.unwrap_or_else(|| panic!("{}", server.seen()[1]));
    assert_eq!(result["output"], json!([3, 5, 7, true, true]), "{result}");
    let log = serde_json::to_string(&steps.read().await.unwrap()).unwrap();
    let asked = server.seen()[1].split_once("\r\n\r\n").unwrap().1.to_owned();
    let told = [json!(heard).to_string(), log, asked, format!("{reply:?}")];
    for place in told {
        assert!(!place.contains("canary") && place.contains("***"), "{place}");
    }
    // The log is whole: a task that comes again finds its end there.
    assert_eq!(fixture.agent.call(task()).await.unwrap().output, reply.output);
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn a_key_is_cut_out_of_outputs_in_a_form() {
    for (answer, expected) in [
        (r#"{"level": "s3cret\u002dcanary", "n": 1}"#, json!({"level": "***", "n": 1})),
        (r#"{"level": "low", "s3cret-canary": [2]}"#, json!({"level": "low", "***": [2]})),
    ] {
        let message = json!({"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]});
        let server = Server::start(vec![say_json(&message.to_string())]).await;
        let fixture = agent(&server, &json!({}), &json!({}));
        let steps = Arc::new(MemorySteps::default());
        let mut call = fixture.input(json!({"text": "hi"}));
        call.output_schema = Some(json!({"type": "object", "required": ["level"]}));
        call.steps = Some(steps.clone());
        assert_eq!(fixture.agent.call(call).await.unwrap().output, expected);
        let log = serde_json::to_string(&steps.read().await.unwrap()).unwrap();
        assert!(!log.contains("canary"), "{log}");
    }
}
