//! Workflows as tools of a model agent: the dual-mode tool of the specification, section
//! "WorkflowAgentTool Invocation".

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sinew_agents::{Artifacts as _, PeerAnswer, PeerCall, PeerDescription, Peers};
use sinew_protocol::Fault;

use crate::model::{agent, asked, calling, words};
use crate::server::Server;

/// One workflow, which answers every call.
#[derive(Default)]
struct OneWorkflow(Mutex<Vec<(Value, String)>>);

impl Peers for OneWorkflow {
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerDescription>, Fault>> {
        let schema = json!({
            "type": "object",
            "properties": {"order_id": {"type": "string"}, "amount": {"type": "integer"}},
            "required": ["order_id", "amount"],
        });
        let workflow = PeerDescription {
            name: "Order-flow".to_owned(),
            description: "Ships an order".to_owned(),
            input_schema: Some(schema),
            is_workflow: true,
            ..PeerDescription::default()
        };
        std::future::ready(Ok(vec![workflow])).boxed()
    }

    fn ask(&self, call: PeerCall) -> BoxFuture<'_, PeerAnswer> {
        let artifact = call.artifact.map(|artifact| artifact.to_string()).unwrap_or_default();
        self.0.lock().unwrap().push((call.input, artifact));
        std::future::ready(Ok(json!({"status": "shipped"})).into()).boxed()
    }
}

/// Has the model call the tool with these arguments, one after the other. Returns the calls that the
/// workflow received, the declaration of the tool, and the last result for the model.
async fn call_with(tool: Value, calls: &[Value]) -> (Vec<(Value, String)>, Value, String) {
    let mut say: Vec<_> = calls.iter().map(|call| calling("workflow_Order_flow", call)).collect();
    say.push(words("Done."));
    let server = Server::start(say).await;
    let fixture = agent(&server, &json!({}), &json!({"tools": [tool]}));
    fixture.artifacts.put("big.json", br#"{"order_id": "B", "amount": 2}"#, None).unwrap();
    fixture.artifacts.put("note.txt", b"no JSON", None).unwrap();
    let peers = Arc::new(OneWorkflow::default());
    let mut call = fixture.input(json!({"text": "Ship it."}));
    call.peers = Arc::clone(&peers) as Arc<dyn Peers>;
    fixture.agent.call(call).await.unwrap();
    let last = asked(&server, calls.len());
    let result = last["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    let seen = peers.0.lock().unwrap().clone();
    (seen, last["tools"][0]["function"].clone(), result)
}

#[tokio::test]
async fn a_model_receives_the_dual_mode_tool() {
    let calls = [
        json!({"order_id": "A", "amount": 1, "input_artifact": null}),
        json!({"input_artifact": "big.json", "order_id": null}),
        json!({"input_artifact": "big.json:v0"}),
    ];
    let (seen, declared, _) = call_with(json!({"workflow": "Order-flow"}), &calls).await;
    assert_eq!(declared["parameters"]["required"], json!([]));
    let properties = declared["parameters"]["properties"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["input_artifact", "order_id", "amount"]);
    assert!(properties.values().all(|schema| schema["nullable"] == true), "{properties:?}");
    let about = "Ships an order. Invoke the 'Order-flow' workflow. Dual-mode: provide parameters directly OR 'input_artifact'.";
    assert_eq!(declared["description"], about);
    let stored = json!({"order_id": "B", "amount": 2});
    assert_eq!(
        seen,
        [
            (json!({"order_id": "A", "amount": 1}), "wi_Order-flow.json:v0".to_owned()),
            (stored.clone(), "big.json".to_owned()),
            (stored, "big.json:v0".to_owned()),
        ]
    );
}

#[tokio::test]
async fn a_model_receives_the_reason_of_a_refused_call() {
    let plain = || json!({"workflow": "Order-flow"});
    for (tool, call, reason) in [
        (plain(), json!({"order_id": 7, "amount": 1}), "/order_id"),
        (plain(), json!({"order_id": "A"}), "'amount' is a required property"),
        (
            plain(),
            json!({"input_artifact": "big.json", "amount": 1}),
            "either 'input_artifact' or parameters",
        ),
        (plain(), json!({"input_artifact": "none.json"}), "none.json"),
        (plain(), json!({"input_artifact": "note.txt"}), "is not JSON"),
        // The person who approves the call must know its content.
        (
            json!({"workflow": "Order-flow", "effect": "once"}),
            json!({"input_artifact": "big.json"}),
            "big.json:v0",
        ),
        // A condition reads the parameters.
        (
            json!({"workflow": "Order-flow", "approve": {"when": "args['amount'] > 9"}}),
            json!({"input_artifact": "big.json"}),
            "'order_id' is a required property",
        ),
    ] {
        let (seen, _, result) = call_with(tool, std::slice::from_ref(&call)).await;
        assert_eq!(seen, [], "{call}");
        assert!(result.contains(reason), "{call}: {result}");
    }
}
