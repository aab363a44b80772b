//! Workflows that call workflows, through agents and by themselves: depth, circles, cancellation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::{Agent, Context};
use sinew_engine::TerminalStatus;
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::{ExecutionId, Fault};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::door::rpc::{at_once, call, message, serve, state};
use crate::faults::ended_work::cancel;
use crate::support::mesh::{PATIENCE, TestMesh, start};

/// A workflow with one agent, and with this said beside.
pub(super) fn with_agent(agent: &str, more: &str) -> String {
    format!(
        r#"
workflow:
  description: asks {agent}
  input_schema: {{type: object, properties: {{n: {{type: integer}}}}}}
  nodes:
    - {{id: a, type: agent, agent_name: {agent}, input: {{n: "{{{{workflow.input.n}}}}"}}}}
  output_mapping: {{result: "{{{{a.output}}}}"}}
{more}"#
    )
}

/// A workflow with one sub-workflow.
pub(super) fn with_workflow(name: &str) -> String {
    format!(
        r#"
workflow:
  description: calls {name}
  nodes:
    - {{id: w, type: workflow, workflow_name: {name}, input: {{n: 1}}}}
  output_mapping: {{result: "{{{{w.output}}}}"}}
"#
    )
}

/// A model's agent: does what its input says with its tools.
#[tokio::test]
async fn agents_call_workflows_as_tools_in_both_modes() {
    let mesh = TestMesh::new().await;
    mesh.deploy("inner", &with_agent("leaf", "")).await;
    mesh.deploy("outer", &with_agent("model", "")).await;
    mesh.agent("leaf", |task| Ok(task.input.clone().unwrap_or_default())).await;
    let model = Agent::dynamic("model", None, None, async |_, context: Context| {
        let names: Vec<String> = context.tools().await?.iter().map(|tool| tool.name.clone()).collect();
        let parameters =
            context.call_tool("workflow_inner", &json!({"n": 1, "input_artifact": null})).await?;
        let refused =
            context.call_tool("workflow_inner", &json!({"n": "one"})).await.unwrap_err().into_fault();
        context.artifacts().put_json("in.json", &json!({"n": 2}))?;
        let artifact = context.call_tool("workflow_inner", &json!({"input_artifact": "in.json"})).await?;
        // Not looked at here: the workflow refuses it.
        context.artifacts().put_json("bad.json", &json!({"n": "two"}))?;
        let bad = context.call_tool("workflow_inner", &json!({"input_artifact": "bad.json"})).await;
        let bad = bad.unwrap_err().into_fault();
        Ok(json!({
            "names": names,
            "parameters": parameters,
            "refused": refused.code,
            "artifact": artifact,
            "bad": bad.code != refused.code,
        }))
    });
    let service = mesh.executor("exec").await;
    let cards = mesh.mesh.cards().follow();
    for name in ["inner", "outer"] {
        tokio::time::timeout(PATIENCE, cards.wait_for(name)).await.unwrap();
    }
    let _model = serve(&mesh, model).await;
    let ada = mesh.connect("ada").await;
    let (said, _) = call(&ada, "outer", "SendMessage", message("m1", json!([{"data": {"n": 0}}]))).await;
    assert_eq!(state(&said["task"]), "TASK_STATE_COMPLETED", "{said}");
    let want = json!({
        "names": ["workflow_inner", "workflow_outer"],
        "parameters": {"result": {"n": 1}},
        "refused": "SINEW-4101",
        "artifact": {"result": {"n": 2}},
        "bad": true,
    });
    assert_eq!(said["task"]["metadata"]["output"]["result"], want);
    // The journal of what was called says under whom.
    let client = mesh.client().await;
    let page = call(&mesh.connect("model").await, "inner", "ListTasks", json!({})).await.0;
    assert_eq!(page["totalSize"], 3, "{page}");
    for task in page["tasks"].as_array().unwrap() {
        let execution = ExecutionId::parse(task["id"].as_str().unwrap()).unwrap();
        let (_, folded) = client.execution(&execution).await.unwrap().unwrap();
        let start = folded.state().start.clone().unwrap();
        assert_eq!((start.depth, start.chain.clone()), (1, vec!["outer".to_owned()]));
    }
    service.drain().await;
}

/// Settings of the user travel with a request to every agent below it.
#[tokio::test]
async fn agents_see_the_user_of_a_request_and_their_settings() {
    let mesh = TestMesh::new().await;
    mesh.deploy("inner", &with_agent("leaf", "")).await;
    mesh.deploy("outer", &with_workflow("inner")).await;
    let leaf = Agent::dynamic("leaf", None, None, async |_: Value, context: Context| {
        Ok(json!({"user": context.user(), "settings": context.user_config()}))
    });
    let service = mesh.executor("exec").await;
    let _leaf = serve(&mesh, leaf).await;
    let ada = mesh.connect("ada").await;
    let ask = |id: &str, settings: Value| {
        let mut request = message(id, json!([{"data": {"n": 0}}]));
        request["message"]["metadata"] = json!({"a2aUserConfig": settings});
        request
    };
    let settings = json!({"language": "de", "tools": ["search"]});
    for (id, given, seen) in [
        ("m1", settings.clone(), settings),
        ("m2", json!("none"), Value::Null),
        ("m3", Value::Null, Value::Null),
    ] {
        let (said, _) = call(&ada, "outer", "SendMessage", ask(id, given)).await;
        let result = &said["task"]["metadata"]["output"]["result"]["result"];
        assert_eq!(*result, json!({"user": "ada", "settings": seen}), "{said}");
    }
    service.drain().await;
}

/// Agents of called workflows belong to the conversation of the first caller, whether a node or an
/// agent calls; two callers with one context have two conversations.
#[tokio::test]
async fn called_workflows_continue_the_conversation_of_the_caller() {
    let mesh = TestMesh::new().await;
    mesh.deploy("inner", &with_agent("leaf", "")).await;
    mesh.deploy("middle", &with_agent("boss", "")).await;
    mesh.deploy("outer", &with_workflow("middle")).await;
    let leaf = Agent::dynamic("leaf", None, None, async |input: Value, context: Context| {
        let log = context.session_log().unwrap();
        let keep = Duration::from_hours(1);
        let earlier = log.last(9, keep).await?;
        let earlier: Vec<Value> = earlier.iter().map(|one| serde_json::from_slice(one).unwrap()).collect();
        log.append(input["n"].to_string().into(), keep).await?;
        Ok(json!({"session": context.session(), "user": context.user(), "earlier": earlier}))
    });
    let boss = Agent::dynamic("boss", None, None, async |_: Value, context: Context| {
        let through_workflow = context.call("inner", json!({"n": 1})).await?["result"].clone();
        let direct = context.call("leaf", json!({"n": 2})).await?;
        Ok(json!([through_workflow, direct]))
    });
    let service = mesh.executor("exec").await;
    let _leaf = serve(&mesh, leaf).await;
    let _boss = serve(&mesh, boss).await;
    let in_chat = |id: &str| {
        let mut request = message(id, json!([{"data": {"n": 0}}]));
        request["message"]["contextId"] = json!("chat");
        request
    };
    for name in ["ada", "bob"] {
        let caller = mesh.connect(name).await;
        for (id, earlier) in [("m1", json!([])), ("m2", json!([1]))] {
            let (said, _) = call(&caller, "outer", "SendMessage", in_chat(id)).await;
            let result = &said["task"]["metadata"]["output"]["result"]["result"][0];
            assert_eq!(*result, json!({"session": "chat", "user": name, "earlier": earlier}), "{said}");
        }
        // The called agent only sees the calling agent, not its caller.
        for (id, earlier) in [("m3", [json!([]), json!([])]), ("m4", [json!([1]), json!([2])])] {
            let (said, _) = call(&caller, "boss", "SendMessage", in_chat(id)).await;
            let result = &said["task"]["artifacts"][0]["parts"][0]["data"];
            let seen = [&result[0]["earlier"], &result[1]["earlier"]];
            assert_eq!(seen, earlier.each_ref(), "{name}: {said}");
            assert_ne!(result[1]["session"], "chat");
        }
    }
    service.drain().await;
}

/// An agent that calls the workflow that asked it, as deep as it goes.
#[tokio::test]
async fn depth_holds_by_the_journal() {
    let mesh = TestMesh::new().await;
    mesh.deploy("dig", &with_agent("digger", "  max_call_depth: 3\n")).await;
    let digger = Agent::dynamic("digger", None, None, async |input: Value, context: Context| {
        let n = input["n"].as_i64().unwrap_or_default();
        match context.call("dig", json!({"n": n + 1})).await {
            Ok(deeper) => Ok(deeper["result"].clone()),
            Err(failure) => Ok(json!({"n": n, "why": failure.fault().message})),
        }
    });
    let service = mesh.executor("exec").await;
    let _digger = serve(&mesh, digger.concurrency(16)).await;
    let ada = mesh.connect("ada").await;
    let (said, _) = call(&ada, "dig", "SendMessage", message("m1", json!([{"data": {"n": 0}}]))).await;
    let result = &said["task"]["metadata"]["output"]["result"];
    assert_eq!(result["n"], 3, "{said}");
    assert!(result["why"].as_str().unwrap().contains("exceeds maximum allowed depth 3"), "{said}");
    service.drain().await;
}

/// Different workflows, each calling the next: ten are below the first, no more.
#[tokio::test]
async fn sub_workflows_go_ten_deep() {
    for (last, want) in [(10, TerminalStatus::Success), (11, TerminalStatus::Failure)] {
        let mesh = TestMesh::new().await;
        for n in 0..last {
            mesh.deploy(&format!("w{n}"), &with_workflow(&format!("w{}", n + 1))).await;
        }
        mesh.deploy(&format!("w{last}"), &with_agent("leaf", "")).await;
        mesh.agent("leaf", |_| Ok(json!("leaf"))).await;
        let service = mesh.executor("exec").await;
        let client = mesh.client().await;
        let command = start(&client, "k", "w0", json!({}));
        let execution = command.execution.clone();
        client.start(command).await.unwrap();
        let outcome = client.outcome(&execution, Some(PATIENCE)).await.unwrap().unwrap();
        assert_eq!(outcome.status, want, "{last}: {outcome:?}");
        if let Some(fault) = outcome.fault {
            assert!(fault.message.contains("exceeds maximum allowed depth 10"), "{fault:?}");
        }
        service.drain().await;
    }
}

/// A circle is refused where it would close, whether workflows or agents close it.
#[tokio::test]
async fn circles_are_refused() {
    let mesh = TestMesh::new().await;
    mesh.deploy("a", &with_workflow("b")).await;
    mesh.deploy("b", &with_workflow("a")).await;
    mesh.deploy("c", &with_agent("to-d", "")).await;
    mesh.deploy("d", &with_agent("to-e", "")).await;
    let caller = |name: &str, next: &'static str| {
        Agent::dynamic(name, None, None, async move |_, context: Context| {
            context.call(next, json!({"n": 1})).await
        })
    };
    // The circle goes through an agent that no execution asks.
    let served = [
        serve(&mesh, caller("to-d", "d")).await,
        serve(&mesh, caller("to-e", "e")).await,
        serve(&mesh, caller("e", "c")).await,
    ];
    let service = mesh.executor("exec").await;
    let client = mesh.client().await;
    for (workflow, circle) in [("a", "a -> b -> a"), ("c", "c -> d -> c")] {
        let command = start(&client, workflow, workflow, json!({"n": 1}));
        let execution = command.execution.clone();
        client.start(command).await.unwrap();
        let outcome = client.outcome(&execution, Some(PATIENCE)).await.unwrap().unwrap();
        assert_eq!(outcome.status, TerminalStatus::Failure);
        let fault: Fault = outcome.fault.unwrap();
        assert!(fault.message.contains(circle), "{workflow}: {fault:?}");
    }
    drop(served);
    service.drain().await;
}

/// The only process of an agent dies while an execution that it started is in progress.
#[tokio::test]
async fn executions_that_a_dead_agent_started_end_with_its_task() {
    let mesh = TestMesh::new().await;
    mesh.deploy("inner", &with_agent("leaf", "")).await;
    mesh.deploy("outer", &with_agent("model", "")).await;
    let (entered, cancelled) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let leaf = waiting_agent("leaf", &entered, &cancelled);
    let model = Agent::dynamic("model", None, None, async |_, context: Context| {
        context.call("inner", json!({"n": 1})).await
    });
    let service = mesh.executor("exec").await;
    let _served = serve(&mesh, leaf).await;
    let process = tokio::spawn(model.serve(mesh.connect("model").await, CancellationToken::new()));
    let client = mesh.client().await;
    let command = start(&client, "outer", "outer", json!({"n": 1}));
    let outer = command.execution.clone();
    client.start(command).await.unwrap();
    tokio::time::timeout(PATIENCE, entered.notified()).await.expect("the leaf is asked");
    process.abort();
    assert!(process.await.unwrap_err().is_cancelled());
    let open = client.open().await.unwrap();
    let inner = open.iter().find(|open| open.workflow == "inner").expect("it still runs").execution.clone();
    let early = tokio::time::timeout(Duration::from_secs(1), cancelled.notified()).await;
    assert!(early.is_err(), "another process of the agent may resume the task");
    cancel(&client, &outer).await;
    tokio::time::timeout(PATIENCE, cancelled.notified()).await.expect("the leaf is cancelled");
    for execution in [&outer, &inner] {
        let outcome = client.outcome(execution, Some(PATIENCE)).await.unwrap().unwrap();
        assert_eq!(outcome.status, TerminalStatus::Cancelled, "{execution}");
    }
    service.drain().await;
}

/// An agent that waits until its task is cancelled.
fn waiting_agent(name: &str, entered: &Arc<Notify>, cancelled: &Arc<Notify>) -> Agent {
    let (entered, cancelled) = (Arc::clone(entered), Arc::clone(cancelled));
    Agent::dynamic(name, None, None, move |_, context: Context| {
        let (entered, cancelled) = (Arc::clone(&entered), Arc::clone(&cancelled));
        async move {
            entered.notify_one();
            context.cancel().cancelled().await;
            cancelled.notify_one();
            Ok(json!(null))
        }
    })
}

/// Cancelling the outermost execution ends the innermost task.
#[tokio::test]
async fn a_cancellation_reaches_the_innermost_task() {
    let mesh = TestMesh::new().await;
    mesh.deploy("inner", &with_agent("leaf", "")).await;
    mesh.deploy("middle", &with_workflow("inner")).await;
    mesh.deploy("outer", &with_agent("model", "")).await;
    let (entered, cancelled) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let leaf = waiting_agent("leaf", &entered, &cancelled);
    let model = Agent::dynamic("model", None, None, async |_, context: Context| {
        context.call("middle", json!({"n": 1})).await
    });
    let service = mesh.executor("exec").await;
    let _served = [serve(&mesh, leaf).await, serve(&mesh, model).await];
    let ada = mesh.connect("ada").await;
    let (said, _) = call(&ada, "outer", "SendMessage", at_once("m1", json!([{"data": {"n": 1}}]))).await;
    tokio::time::timeout(PATIENCE, entered.notified()).await.expect("the leaf is asked");
    let (task, _) = call(&ada, "outer", "CancelTask", json!({"id": said["task"]["id"]})).await;
    assert_eq!(state(&task), "TASK_STATE_CANCELED", "{task}");
    tokio::time::timeout(PATIENCE, cancelled.notified()).await.expect("the leaf is cancelled");
    // And the executions between them end as cancelled ones.
    let client = mesh.client().await;
    let until = tokio::time::Instant::now() + PATIENCE;
    let open = loop {
        let open = client.open().await.unwrap();
        if open.iter().all(|open| open.status == ExecutionStatus::Cancelled)
            || tokio::time::Instant::now() > until
        {
            break open;
        }
    };
    assert!(open.iter().all(|open| open.status == ExecutionStatus::Cancelled), "{open:?}");
    let closed = call(&mesh.connect("model").await, "middle", "ListTasks", json!({})).await.0;
    assert_eq!(state(&closed["tasks"][0]), "TASK_STATE_CANCELED", "{closed}");
    service.drain().await;
}
