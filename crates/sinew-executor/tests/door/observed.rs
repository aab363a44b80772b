//! An observer of all subjects keeps the server from reporting that nobody listens. Nothing may
//! depend on that report.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_agent::{Agent, Context, Delivery};
use sinew_execution::Program;
use sinew_executor::service::{Service, ServiceOptions};
use sinew_protocol::ExecutionId;
use sinew_protocol::card::AGENT_CALL_PREFIX;

use crate::door::nested::{with_agent, with_workflow};
use crate::door::rpc::{call, message, serve, state};
use crate::support::mesh::{PATIENCE, TestMesh, adapters};

/// Shorter than any wait for an endpoint that nobody serves, and longer than all calls of the test
/// take.
const QUICK: Duration = Duration::from_secs(20);

fn agent_call(name: &str) -> Option<Program> {
    let plan = sinew_dialects::sam::agent_call_plan(name.strip_prefix(AGENT_CALL_PREFIX)?)?;
    let adapter = adapters(&plan.dialect)?;
    Program::new(plan, adapter).ok()
}

#[tokio::test]
async fn an_observer_of_all_subjects_changes_no_call() {
    let mesh = TestMesh::new().await;
    mesh.deploy("inner", &with_agent("leaf", "")).await;
    mesh.deploy("outer", &with_agent("model", "")).await;
    mesh.deploy("nested", &with_workflow("inner")).await;
    let echo = |name: &str| Agent::dynamic(name, None, None, |input, _| async { Ok(input) });
    let _leaf = serve(&mesh, echo("leaf").delivery(Delivery::Direct)).await;
    let model = Agent::dynamic("model", None, None, async |_, context: Context| {
        let nobody = context.call("nobody", json!({"n": 1})).await.unwrap_err().into_fault();
        Ok(json!({
            "workflow": context.call("inner", json!({"n": 1})).await?,
            "tool": context.call_tool("workflow_inner", &json!({"n": 2, "input_artifact": null})).await?,
            "peer": context.call("leaf", json!({"n": 3})).await?,
            "nobody": (nobody.code.to_string(), nobody.retryable),
        }))
    });
    let _model = serve(&mesh, model).await;
    let options = ServiceOptions { calls: Some(agent_call), ..ServiceOptions::new(adapters) };
    let service = Service::start(mesh.connect("exec").await, options).await.unwrap();
    let ada = mesh.connect("ada").await;
    let cards = mesh.mesh.cards().follow();
    for name in ["inner", "outer", "nested"] {
        tokio::time::timeout(PATIENCE, cards.wait_for(name)).await.unwrap();
    }
    // The endpoints are open before nobody reports any more that they are not.
    for name in ["inner", "outer", "nested", "call:leaf"] {
        call(&ada, name, "ListTasks", json!({})).await;
    }
    let mut observed = mesh.mesh.client().subscribe(">").await.unwrap();
    mesh.mesh.client().flush().await.unwrap();
    tokio::spawn(async move { while observed.next().await.is_some() {} });

    let began = Instant::now();
    let input = json!([{"data": {"n": 0}}]);
    let (said, _) = call(&ada, "outer", "SendMessage", message("m1", input.clone())).await;
    assert_eq!(state(&said["task"]), "TASK_STATE_COMPLETED", "{said}");
    let want = json!({
        "workflow": {"result": {"n": 1}},
        "tool": {"result": {"n": 2}},
        "peer": {"n": 3},
        "nobody": ("SINEW-5110", true),
    });
    assert_eq!(said["task"]["metadata"]["output"]["result"], want);
    let (said, _) = call(&ada, "nested", "SendMessage", message("m2", input)).await;
    assert_eq!(said["task"]["metadata"]["output"]["result"], json!({"result": {"n": 1}}), "{said}");
    assert!(began.elapsed() < QUICK, "an endpoint without a process was waited for: {:?}", began.elapsed());

    let client = mesh.client().await;
    let execution = ExecutionId::of("test", "ada", "m1");
    assert!(client.has_owner(&execution).await.unwrap());
    service.drain().await;
    assert!(!client.has_owner(&execution).await.unwrap(), "a drained executor is taken for a slow one");
    let record: Option<Value> = client.record(&execution).await.unwrap().map(|_| Value::Null);
    assert!(record.is_some(), "the journal and the history answer for an absent owner");
}
