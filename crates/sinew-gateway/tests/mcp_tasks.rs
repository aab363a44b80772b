//! The tasks extension: the task is the execution, and outlives its gateway.

use rmcp::model::{
    CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities, ElicitationCapability,
    FormElicitationCapability, GetTaskParams, InputResponses, TaskPayload, TaskStatus, UpdateTaskParams,
};
use rmcp::service::{Peer, RoleClient};
use serde_json::{Value, json};

use crate::mcp_support::{TestClient, all_roads, call};
use crate::support::{GatewayWorld, PATIENCE, SINGLE, held, review};

/// A client that keeps tasks, and whose user can be asked.
fn keeper() -> TestClient {
    let elicitation = ElicitationCapability::new().with_form(FormElicitationCapability::new());
    let abilities = ClientCapabilities::builder().enable_elicitation_with(elicitation).enable_tasks().build();
    TestClient::new(abilities).0
}

async fn begin(peer: &Peer<RoleClient>, tool: &str, arguments: Value) -> String {
    match peer.call_tool_once(call(tool, arguments)).await.unwrap() {
        CallToolResponse::Task(begun) => begun.task.task_id,
        other => panic!("not a task: {other:?}"),
    }
}

async fn ended(peer: &Peer<RoleClient>, task: &str) -> TaskPayload {
    loop {
        let found = peer.get_task(GetTaskParams::new(task)).await.unwrap().task;
        if found.status().is_terminal() {
            return found.payload;
        }
        tokio::task::yield_now().await;
    }
}

fn result_of(payload: TaskPayload) -> CallToolResult {
    let TaskPayload::Completed { result } = payload else { panic!("not completed: {payload:?}") };
    serde_json::from_value(Value::Object(result)).unwrap()
}

#[tokio::test]
async fn a_long_call_is_a_task_at_any_gateway() {
    let (world, begun, go_on) = held(&[("single", SINGLE)]).await;
    for (road, lifecycle) in all_roads() {
        let client = keeper().connect(&world, road, lifecycle.clone()).await;
        let task = begin(&client, "single", json!({"value": "hello"})).await;
        tokio::time::timeout(PATIENCE, begun.notified()).await.unwrap();
        let found = client.get_task(GetTaskParams::new(&*task)).await.unwrap().task;
        assert_eq!(found.status(), TaskStatus::Working);
        client.cancel().await.unwrap();
        go_on.notify_one();
        // Another client asks, over another connection.
        let other = keeper().connect(&world, road, lifecycle).await;
        let result = result_of(ended(&other, &task).await);
        assert_eq!(result.structured_content, Some(json!({"value": "hello"})));
        assert_eq!(world.newest_task().await["id"], task, "the task is the execution");
        other.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn a_task_that_asks_takes_the_answer() {
    let world = GatewayWorld::new(&[("review", &review())]).await;
    for (road, lifecycle) in all_roads() {
        let client = keeper().connect(&world, road, lifecycle).await;
        let task = begin(&client, "review", json!({"text": "look"})).await;
        let found = client.get_task(GetTaskParams::new(&*task)).await.unwrap().task;
        let TaskPayload::InputRequired { input_requests } = found.payload else { panic!("{found:?}") };
        let key = input_requests.keys().next().unwrap();
        let silent = InputResponses::from([(key.clone(), json!({"action": "decline"}))]);
        client.update_task(UpdateTaskParams::new(&*task, silent)).await.unwrap();
        let found = client.get_task(GetTaskParams::new(&*task)).await.unwrap().task;
        assert_eq!(found.status(), TaskStatus::InputRequired, "a form that is put away decides nothing");
        let yes = json!({"action": "accept", "content": {"approved": true}});
        let answers = InputResponses::from([(key.clone(), yes), ("other.1".to_owned(), json!({}))]);
        client.update_task(UpdateTaskParams::new(&*task, answers)).await.unwrap();
        let result = result_of(ended(&client, &task).await);
        assert_eq!(result.is_error, Some(false), "{result:?}");
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn a_task_is_cancelled_by_its_id() {
    let (world, begun, _go_on) = held(&[("single", SINGLE)]).await;
    for (road, lifecycle) in all_roads() {
        let client = keeper().connect(&world, road, lifecycle).await;
        let task = begin(&client, "single", json!({"value": "hello"})).await;
        tokio::time::timeout(PATIENCE, begun.notified()).await.unwrap();
        client.cancel_task(CancelTaskParams::new(&*task)).await.unwrap();
        assert_eq!(ended(&client, &task).await, TaskPayload::Cancelled);
        // A task that has ended stays as it is.
        client.cancel_task(CancelTaskParams::new(&*task)).await.unwrap();
        assert!(client.get_task(GetTaskParams::new("unknown")).await.is_err());
        client.cancel().await.unwrap();
    }
    world.end().await;
}
