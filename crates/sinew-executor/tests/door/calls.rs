//! One workflow, called in every way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::{Agent, Context, Delivery};
use sinew_mesh::artifact::ArtifactOwner;
use sinew_protocol::a2a::PartContent;
use sinew_protocol::card::{self, AgentKind};
use sinew_protocol::command::{ApproveCommand, Command};
use sinew_protocol::{ActivationKey, ArtifactName, ExecutionId, TaskId, Token};

use crate::door::rpc::{at_once, call, code, message, serve, state};
use crate::support::mesh::{PATIENCE, TestMesh};

pub(crate) const SINGLE: &str = r#"
workflow:
  description: One agent
  input_schema: {type: object, properties: {value: {type: string}}, required: [value]}
  nodes:
    - {id: a, type: agent, agent_name: one, input: {value: "{{workflow.input.value}}"}}
  output_mapping: {value: "{{a.output.value}}"}
"#;

/// Both ways to give the input, the result, and all that can be asked of the task later.
#[tokio::test]
async fn a_workflow_is_called_like_an_agent() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", SINGLE).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let echo = Agent::dynamic("one", None, None, move |input, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok(input) }
    });
    let _agent = serve(&mesh, echo).await;
    let service = mesh.executor("exec").await;
    let (ada, eve) = (mesh.connect("ada").await, mesh.connect("eve").await);
    let request =
        json!({"data": {"type": "structured_invocation_request", "workflow_name": "x", "node_id": "n"}});
    let parts = json!([request, {"data": {"value": "hello"}}]);
    let (said, seq) = call(&ada, "single", "SendMessage", message("m1", parts.clone())).await;
    let task = &said["task"];
    assert_eq!(state(task), "TASK_STATE_COMPLETED", "{said}");
    let execution = ExecutionId::of("test", "ada", "m1");
    assert_eq!(task["id"], json!(execution));
    assert_eq!(task["contextId"], json!(execution), "a call without a context has one of its own");
    assert_eq!(task["artifacts"][0]["parts"][0]["data"], json!({"value": "hello"}));
    assert_eq!(task["metadata"]["output"], json!({"value": "hello"}));
    let result = &task["status"]["message"]["parts"][1]["data"];
    assert_eq!((&result["type"], &result["status"]), (&json!("workflow_node_result"), &json!("success")));
    assert!(seq.unwrap() > 0);

    let (again, _) =
        call(&ada, "single", "SendMessage", message("m1", json!([{"data": {"value": "other"}}]))).await;
    assert_eq!(again, said, "the same message is the same task");
    let (got, _) = call(&ada, "single", "GetTask", json!({"id": execution})).await;
    assert_eq!(got, said["task"]);
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    // An artifact instead of a value.
    let name = ArtifactName::parse("in.json").unwrap();
    let activation = ActivationKey::of::<&str>(&execution, "n", &[], 0);
    let id = TaskId::of(&execution, &activation, 1);
    let place = ArtifactOwner { app: "ada", user: "ada", execution: &execution, task: &id };
    let bytes = json!({"value": "from a file"}).to_string().into();
    let stored = ada.artifacts().put_object(&place, name, 0, "application/json", bytes).await.unwrap();
    let PartContent::Url(address) = stored.part.content else { panic!("it was stored") };
    let (said, _) = call(&ada, "single", "SendMessage", message("m2", json!([{"url": address}]))).await;
    assert_eq!(said["task"]["artifacts"][0]["parts"][0]["data"], json!({"value": "from a file"}));
    // Nobody asked for structure: the message has words, and the output as text.
    let parts = said["task"]["status"]["message"]["parts"].as_array().unwrap();
    let [_, output] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!(output["text"], json!({"value": "from a file"}).to_string());

    // An input that is larger than a command.
    let large = "x".repeat(600_000);
    let (said, _) =
        call(&ada, "single", "SendMessage", message("m3", json!([{"data": {"value": large}}]))).await;
    assert_eq!(state(&said["task"]), "TASK_STATE_COMPLETED", "{said}");
    let part = &said["task"]["artifacts"][0]["parts"][0];
    let bytes = ada.artifacts().fetch(part["url"].as_str().unwrap()).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), json!({"value": large}));

    // An input that violates the workflow's schema gives a failed task.
    let (said, _) = call(&ada, "single", "SendMessage", message("m4", json!([{"data": {"value": 7}}]))).await;
    assert_eq!(state(&said["task"]), "TASK_STATE_FAILED", "{said}");
    assert!(said["task"]["metadata"]["sinew"]["fault"]["code"].is_string());

    // A file name without an address leads nowhere; the words beside it are not input.
    let mut named = message("m5", json!([{"text": "Invoking workflow with input artifact: in.json"}]));
    named["metadata"] = json!({"invoked_with_artifacts": [{"filename": "in.json", "version": 0}]});
    let (refused, _) = call(&ada, "single", "SendMessage", named).await;
    assert_eq!(code(&refused), "SINEW-6054", "{refused}");

    // For others the tasks do not exist.
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let (theirs, _) = call(&eve, "single", method, json!({"id": execution})).await;
        assert_eq!(theirs["code"], -32001, "{method}: {theirs}");
    }
    let (page, _) = call(&eve, "single", "ListTasks", json!({})).await;
    assert_eq!(page["totalSize"], 0);
    let (page, _) = call(&ada, "single", "ListTasks", json!({"pageSize": 3})).await;
    assert_eq!((page["totalSize"].as_u64(), page["tasks"].as_array().unwrap().len()), (Some(4), 3), "{page}");
    let (rest, _) =
        call(&ada, "single", "ListTasks", json!({"pageSize": 3, "pageToken": page["nextPageToken"]})).await;
    assert_eq!(
        (&rest["tasks"][0]["id"], &rest["nextPageToken"]),
        (&json!(execution), &json!("")),
        "oldest last"
    );
    let (failed, _) = call(&ada, "single", "ListTasks", json!({"status": "TASK_STATE_FAILED"})).await;
    assert_eq!(failed["totalSize"], 1);
    let context = json!({"contextId": execution});
    let (one, _) = call(&ada, "single", "ListTasks", context).await;
    assert_eq!(one["totalSize"], 1);

    for (method, params, want) in [
        ("SubscribeToTask", json!({"id": execution}), -32004),
        ("CancelTask", json!({"id": execution}), -32002),
        ("GetTask", json!({"id": "no-such-task"}), -32001),
        ("GetTask", json!({"id": "not a token"}), -32001),
        ("GetExtendedAgentCard", json!({}), -32007),
        ("ListTaskPushNotificationConfigs", json!({"taskId": execution}), -32003),
        ("ListTasks", json!({"pageSize": 0}), -32602),
        ("ListTasks", json!({"pageToken": "x"}), -32602),
        ("SendMessage", json!({"message": {}}), -32602),
        ("SendMessage", message("m9", json!([])), -32602),
        ("NoSuchMethod", json!({}), -32601),
    ] {
        let (error, _) = call(&ada, "single", method, params).await;
        assert_eq!(error["code"], want, "{method}: {error}");
    }
    // The input of an earlier task, by its name in the specification's message.
    for (id, parent, context) in [("m6", Some(&execution), None), ("m7", None, Some(&execution))] {
        let mut named =
            message(id, json!([{"text": "Invoking workflow with input artifact: wi_single.json"}]));
        named["metadata"] = json!({
            "parentTaskId": parent, "invoked_with_artifacts": [{"filename": "wi_single.json", "version": 0}],
        });
        if let Some(context) = context {
            named["message"]["contextId"] = json!(context);
        }
        let (said, _) = call(&ada, "single", "SendMessage", named).await;
        assert_eq!(said["task"]["artifacts"][0]["parts"][0]["data"], json!({"value": "hello"}), "{said}");
    }
    service.drain().await;
}

/// A card says what a caller must know, and goes with the workflow.
#[tokio::test]
async fn deployed_workflows_are_announced_until_they_are_not() {
    let mesh = TestMesh::new().await;
    let service = mesh.executor("exec").await;
    mesh.deploy("single", SINGLE).await;
    let mut cards = mesh.mesh.cards().follow();
    let announced = tokio::time::timeout(PATIENCE, cards.wait_for("single")).await.unwrap();
    assert_eq!(card::kind(&announced.card), AgentKind::Workflow);
    assert_eq!(card::input_schema(&announced.card).unwrap()["required"], json!(["value"]));
    assert_eq!(announced.card.description, "One agent");
    let (said, _) = call(&mesh.mesh, "single", "GetAgentCard", json!({})).await;
    assert_eq!(said, serde_json::to_value(&announced.card).unwrap());
    assert_eq!(said["supportedInterfaces"][0]["url"], "nats:///test/single");
    mesh.mesh.workflows().undeploy("single").await.unwrap();
    let gone = async {
        while cards.get("single").is_some() {
            cards.changed().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("well before it grows old");
    service.drain().await;
}

/// Two executors give the same answers, and the death of the one that was asked loses no call.
#[tokio::test]
async fn any_executor_answers_for_a_task_of_a_dead_one() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", SINGLE).await;
    let mut agents = mesh.agents_process(Delivery::Queue, &[("one", json!({"pass": true, "hold": 1}))]).await;
    let mut first = mesh.executor_process("first").await;
    let ada = mesh.connect("ada").await;
    let parts = json!([{"data": {"value": "kept"}}]);
    let (said, _) = call(&ada, "single", "SendMessage", at_once("m1", parts.clone())).await;
    assert_eq!(state(&said["task"]), "TASK_STATE_WORKING", "{said}");
    agents.asked(1).await;
    first.kill9().await;
    let _second = mesh.executor_process("second").await;
    let (got, _) = call(&ada, "single", "GetTask", json!({"id": said["task"]["id"]})).await;
    assert_eq!(state(&got), "TASK_STATE_WORKING", "{got}");
    agents.release().await;
    let (ended, _) = call(&ada, "single", "SendMessage", message("m1", parts.clone())).await;
    assert_eq!(ended["task"]["artifacts"][0]["parts"][0]["data"], json!({"value": "kept"}), "{ended}");
    // Over the end too, when only the history is left, and for another executor.
    let _third = mesh.executor_process("third").await;
    let (again, _) = call(&ada, "single", "SendMessage", message("m1", parts)).await;
    assert_eq!(again["task"], ended["task"]);
    agents.end().await;
    assert_eq!(agents.began().count(), 1, "the work was done once");
}

/// A workflow that asks ada.
fn review() -> Value {
    json!({
        "id": "review",
        "name": "review",
        "nodes": [
            { "id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {} },
            { "id": "h", "name": "h", "type": "HUMAN_IN_THE_LOOP", "subtype": "MANUAL_REVIEW",
              "configurations": { "reviewers": ["ada"], "question": "Is this right?" } }
        ],
        "connections": [{ "id": "c", "from_node": "t", "to_node": "h", "output_key": "result" }],
        "triggers": ["t"]
    })
}

/// A person is waited for: the caller hears of it at once.
#[tokio::test]
async fn who_waits_for_a_person_is_told() {
    let mesh = TestMesh::new().await;
    mesh.deploy("review", &review().to_string()).await;
    let service = mesh.executor("exec").await;
    let ada = mesh.connect("ada").await;
    let (said, _) = call(&ada, "review", "SendMessage", message("m1", json!([{"text": "look"}]))).await;
    let task = &said["task"];
    assert_eq!(state(task), "TASK_STATE_INPUT_REQUIRED", "{said}");
    assert!(
        task["status"]["message"]["parts"][0]["text"].as_str().unwrap().contains("Is this right?"),
        "{said}"
    );
    let mut more = message("m2", json!([{"text": "yes"}]));
    more["message"]["taskId"] = task["id"].clone();
    let (refused, _) = call(&ada, "review", "SendMessage", more).await;
    assert_eq!(refused["code"], -32004, "an approval is a command: {refused}");
    let client = mesh.client_of("ada").await;
    let execution = ExecutionId::of("test", "ada", "m1");
    let approve = ApproveCommand {
        execution: execution.clone(),
        node: None,
        activation: None,
        data: Value::Null,
        comment: None,
        reject: false,
        member: None,
    };
    let verdict = client.signal(&Token::of("yes"), Command::Approve(approve), PATIENCE).await.unwrap();
    assert!(verdict.accepted, "{verdict:?}");
    let (ended, _) = call(&ada, "review", "SendMessage", message("m1", json!([{"text": "look"}]))).await;
    assert_eq!(state(&ended["task"]), "TASK_STATE_COMPLETED", "{ended}");
    service.drain().await;
}

/// An agent that is called at its own A2A endpoint stays at work while its callee waits for a person; its status names the
/// execution that asks.
#[tokio::test]
async fn status_of_an_agent_names_the_question_of_its_callee() {
    let mesh = TestMesh::new().await;
    mesh.deploy("review", &review().to_string()).await;
    let service = mesh.executor("exec").await;
    let calls = |input, context: Context| async move { context.call("review", input).await };
    let _agent = serve(&mesh, Agent::dynamic("outer", None, None, calls)).await;
    let ada = mesh.connect("ada").await;
    let (sent, _) = call(&ada, "outer", "SendMessage", at_once("m1", json!([{"data": {"value": 1}}]))).await;
    let id = sent["task"]["id"].clone();
    let reaches = async |is_enough: &dyn Fn(&Value) -> bool| {
        let look = async {
            loop {
                let (task, _) = call(&ada, "outer", "GetTask", json!({"id": id})).await;
                if is_enough(&task) {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.expect("the task does not change")
    };
    let waits = |task: &Value| task["status"]["message"]["metadata"]["sinew"]["person_wait"].is_object();
    let task = reaches(&waits).await;
    assert_eq!(state(&task), "TASK_STATE_WORKING", "the caller of the agent cannot answer: {task}");
    let message = &task["status"]["message"];
    assert!(message["parts"][0]["text"].as_str().unwrap().contains("Is this right?"), "{task}");
    let asks = message["metadata"]["sinew"]["person_wait"]["task"].as_str().unwrap();
    let client = mesh.client_of("ada").await;
    let approve = ApproveCommand {
        execution: ExecutionId::parse(asks).unwrap(),
        node: None,
        activation: None,
        data: Value::Null,
        comment: None,
        reject: false,
        member: None,
    };
    let verdict = client.signal(&Token::of("yes"), Command::Approve(approve), PATIENCE).await.unwrap();
    assert!(verdict.accepted, "{verdict:?}");
    let ended = reaches(&|task| state(task) != "TASK_STATE_WORKING").await;
    assert_eq!(state(&ended), "TASK_STATE_COMPLETED", "{ended}");
    assert!(!waits(&ended), "{ended}");
    service.drain().await;
}

/// The caller of an execution is who called, not the executor; nobody else can say so.
#[tokio::test]
async fn nobody_starts_in_the_name_of_others() {
    let mesh = TestMesh::new().await;
    mesh.deploy("single", SINGLE).await;
    mesh.agent("one", |task| Ok(task.input.clone().unwrap_or_default())).await;
    let service = mesh.executor("exec").await;
    let ada = mesh.connect("ada").await;
    call(&ada, "single", "SendMessage", message("m1", json!([{"data": {"value": "x"}}]))).await;
    let client = mesh.client().await;
    let record = client.record(&ExecutionId::of("test", "ada", "m1")).await.unwrap().unwrap();
    assert_eq!(record.meta.caller, Token::of("ada"));
    let mut forged = crate::support::mesh::start(&client, "k", "single", json!({"value": "y"}));
    let claim = json!({"caller": "ada", "proof": "aaaaaaaaaaaaaaaaaaaaaaaaaa"});
    forged.behalf = Some(serde_json::from_value(claim).unwrap());
    forged.depth = 3;
    let execution = forged.execution.clone();
    client.start(forged).await.unwrap();
    client.outcome(&execution, Some(PATIENCE)).await.unwrap().unwrap();
    let (record, folded) = client.execution(&execution).await.unwrap().unwrap();
    assert_eq!(record.meta.caller, Token::of("tester"));
    assert_eq!(folded.state().start.as_ref().unwrap().depth, 0);
    // Nor does a call during a task that is none.
    let mut params = message("m2", json!([{"data": {"value": "x"}}]));
    params["metadata"] = json!({"sinew": {"parent": {"execution": execution, "task": "t", "proof": "00"}}});
    let (refused, _) = call(&ada, "single", "SendMessage", params).await;
    assert_eq!(code(&refused), "SINEW-6051", "{refused}");
    service.drain().await;
}
