//! Executions reach their end.

use serde_json::json;
use sinew_engine::TerminalStatus;
use sinew_mesh::event::{EventFilter, EventStart};

use crate::support::mesh::{PATIENCE, TestMesh, start};

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
    assert_eq!(outcome.status, TerminalStatus::Success, "{outcome:?}");
    assert_eq!(*outcome.output.unwrap(), json!({"value": "hello"}));
    assert_eq!(asked.lock().unwrap().len(), 2);
    service.drain().await;
    let (record, folded) = client.execution(&execution).await.unwrap().unwrap();
    assert!(folded.state().ended);
    assert_eq!(record.meta.workflow, "chain");
    assert!(client.open().await.unwrap().is_empty(), "closed executions leave the shard");
}

const LARGE: &str = r#"
workflow:
  description: Gives its input back four times
  nodes:
    - {id: only, type: agent, agent_name: echo, input: {value: 1}}
  output_mapping: {a: "{{workflow.input.v}}", b: "{{workflow.input.v}}", c: "{{workflow.input.v}}", d: "{{workflow.input.v}}"}
"#;

/// An end whose output is larger than a message is told without it.
#[tokio::test]
async fn an_end_with_a_large_output_is_told() {
    let mesh = TestMesh::new().await;
    mesh.deploy("large", LARGE).await;
    let _asked = mesh.agent("echo", |task| Ok(task.input.clone().unwrap_or_default())).await;
    let service = mesh.executor("one").await;
    let client = mesh.client().await;
    let text = "x".repeat(300_000);
    let command = start(&client, "k", "large", json!({"v": text}));
    let execution = command.execution.clone();
    let filter = EventFilter { execution: Some(execution.clone()), ..EventFilter::default() };
    let mut events = client.mesh().events().follow(&filter, EventStart::Beginning).await.unwrap();
    client.start(command).await.unwrap();
    let told = async {
        loop {
            let event = events.next().await;
            if event.kind.as_str() == "workflow_execution_result" {
                return String::from_utf8(event.body.to_vec()).unwrap();
            }
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await.unwrap();
    assert!(told.contains("success") && !told.contains("xxxx"), "{}", &told[..told.len().min(500)]);
    let outcome = client.outcome(&execution, Some(PATIENCE)).await.unwrap().unwrap();
    assert_eq!(outcome.output.unwrap()["d"], text, "the record has it");
    service.drain().await;
}
