//! A workflow of one mesh as an agent of another, through the gateway of the first.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;
use sinew_agent::{Agent, CancellationToken};
use sinew_gateway::{Gateway, GatewayOptions};
use sinew_operations::mesh_operator;

use crate::world::{BridgeWorld, SINGLE, connect, output};

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_of_one_mesh_is_an_agent_of_another() {
    const GREETING: &str = r#"
workflow:
  description: Greets
  input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
  output_schema: {type: object, properties: {text: {type: string}, state: {type: string}}, required: [text]}
  nodes:
    - {id: a, type: agent, agent_name: greeter, input: {text: "{{workflow.input.text}}"}}
  output_mapping: {text: "{{a.output.text}}", state: "greeted"}
"#;
    let home = BridgeWorld::with_workflows(&[("greeting", GREETING)]).await;
    let stop = CancellationToken::new();
    let greeter = Agent::dynamic("greeter", None, None, |input, _| async move {
        Ok(json!({"text": format!("hello {}", input["text"].as_str().unwrap_or_default())}))
    });
    tokio::spawn(greeter.serve(connect(&home.url(), "greeter", "test").await, stop.clone()));
    home.is_announced("greeter").await;
    let mut options = GatewayOptions::new(mesh_operator::adapter);
    options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let gateway = Gateway::start(connect(&home.url(), "gateway", "test").await, options).await.unwrap();

    let away = BridgeWorld::with_workflows(&[("single", SINGLE)]).await;
    for transport in ["JSONRPC", "HTTP+JSON"] {
        let card = format!("http://{}/agents/greeting", gateway.address());
        let outside = away.killable(&format!("name: outside\ncard: {card}\ntransport: {transport}\n")).await;
        let task = away.ask("single", transport, json!({"data": {"text": "mesh"}})).await;
        assert_eq!(
            output(&task),
            &json!({"text": "hello mesh", "state": "greeted"}),
            "{transport}: {task:#}"
        );
        let wrong = away.ask("outside", &format!("wrong-{transport}"), json!({"data": {"text": 7}})).await;
        assert!(wrong.to_string().contains("schema"), "the schema of the workflow holds here too: {wrong:#}");
        drop(outside);
    }
    stop.cancel();
    gateway.drain().await;
    away.end().await;
    home.end().await;
}
