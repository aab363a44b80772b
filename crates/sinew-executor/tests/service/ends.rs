//! Executions reach their end.

use serde_json::json;
use sinew_engine::Status;

use crate::mesh::{PATIENCE, TestMesh, start};

const CHAIN: &str = r#"
workflow:
  description: Two agents, one after the other
  nodes:
    - {id: first, type: agent, agent_name: echo, input: {value: "{{workflow.input.value}}"}}
    - {id: second, type: agent, agent_name: echo, input: {value: "{{first.output.value}}"}, depends_on: [first]}
  output_mapping: {value: "{{second.output.value}}"}
"#;

#[tokio::test]
async fn a_chain_of_agents_ends_in_success() {
    let mesh = TestMesh::new().await;
    mesh.deploy("chain", CHAIN).await;
    let asked = mesh.agent("echo", |task| Ok(task.input.clone().unwrap_or_default())).await;
    let service = mesh.executor("one").await;
    let client = mesh.client().await;
    let command = start(&client, "k", "chain", json!({"value": "hello"}));
    let execution = command.execution.clone();
    assert!(client.start(command.clone()).await.unwrap());
    assert!(!client.start(command).await.unwrap(), "the same start is the same execution");
    let outcome = client.outcome(&execution, Some(PATIENCE)).await.unwrap().unwrap();
    assert_eq!(outcome.status, Status::Success, "{outcome:?}");
    assert_eq!(*outcome.output.unwrap(), json!({"value": "hello"}));
    assert_eq!(asked.lock().unwrap().len(), 2);
    service.drain().await;
    let (record, folded) = client.execution(&execution).await.unwrap().unwrap();
    assert!(folded.state().ended);
    assert_eq!(record.meta.workflow, "chain");
    assert!(client.open().await.unwrap().is_empty(), "closed executions leave the shard");
}
