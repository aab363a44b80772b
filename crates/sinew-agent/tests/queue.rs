//! The durable door: every task is answered once, whoever dies, and acknowledged after that.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::similar_names,
    clippy::cast_possible_truncation,
    reason = "a test says what is wrong by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sinew_agent::{Agent, Context, Failure};
use sinew_mesh::Mesh;
use sinew_mesh::artifact::ArtifactOwner;
use sinew_mesh::live::Control;
use sinew_protocol::a2a::{Part, TaskState};
use sinew_protocol::message::{MeshMessage, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::task::{NodeOutput, TaskExtra};
use sinew_protocol::{ExecutionId, FaultKind, header};
use tokio::sync::{Notify, Semaphore};

use common::{Asked, asked, connect, results, serve, settled};

use crate::common;

fn echo() -> Agent {
    Agent::dynamic("echo", Some(json!({"type": ["integer", "string", "object"]})), None, async |input, _| {
        Ok(input)
    })
}

#[tokio::test]
async fn a_task_is_answered_and_then_acknowledged() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let agent = Agent::dynamic("echo", None, None, async |input, context: Context| {
        context.usage(json!({"tokens": 7}));
        context.artifacts().put("note.txt", "text/plain", "a note")?;
        Ok(json!({
            "input": input,
            "instruction": context.instruction(),
            "context": context.context(),
            "session": context.session(),
            "node": context.node(),
            "ids": [context.execution(), context.task()],
            "activation": context.activation(),
            "attempt": context.attempt(),
        }))
    });
    let served = serve(&server, &mesh, agent.build("3f2a91")).await;
    let one = asked(&mesh, "echo", 1);
    let node = WorkflowNodeRequestData {
        node_id: "node".to_owned(),
        suggested_output_filename: Some("out.json".to_owned()),
        ..WorkflowNodeRequestData::default()
    };
    let parts = vec![MeshMessage::from(node).to_part(Vocabulary::Spec)];
    one.send_as(&mesh, &one.message(&one.extra(Some(json!([1, null]))), parts)).await;
    let result = results.next().await;
    let want = json!({
        "input": [1, null], "instruction": "be kind", "context": {"k": 1}, "session": "session", "node": "node",
        "ids": [one.execution, one.task], "activation": one.activation, "attempt": 1,
    });
    assert_eq!(result.output, NodeOutput::Value(want));
    assert_eq!(
        (result.task.as_str(), result.fault, result.usage),
        (one.task.as_str(), None, json!({"tokens": 7, "agent": {"version": "1.0.0", "build": "3f2a91"}}))
    );
    let names: Vec<String> = result.artifacts.iter().map(|one| one.reference().to_string()).collect();
    assert_eq!(names, ["note.txt:v0", "out.json:v0"]);
    settled(&mesh, "echo").await;
    one.kept(&mesh).await;
    assert_eq!(results.left(&mesh).await, 0, "once");
    served.stop().await;
}

type Change<'a> = &'a dyn Fn(&mut TaskExtra);

#[tokio::test]
async fn what_cannot_be_done_is_answered_with_why() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let served = serve(&server, &mesh, echo()).await;
    let past = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64 - 5_000;
    let foreign = asked(&mesh, "echo", 99).result;
    let cases: [(&str, Change<'_>, &str, FaultKind); 4] = [
        ("input", &|extra| extra.input = Some(json!([])), "SINEW-5102", FaultKind::Invalid),
        ("late", &|extra| extra.deadline = Some(past), "SINEW-5104", FaultKind::Timeout),
        ("foreign", &|extra| extra.result_subject.clone_from(&foreign), "SINEW-5108", FaultKind::Invalid),
        (
            "nowhere",
            &|extra| extra.result_subject = "test.v1.card.echo".to_owned(),
            "SINEW-5108",
            FaultKind::Invalid,
        ),
    ];
    for (n, (what, change, code, kind)) in (10..).zip(cases) {
        let one = asked(&mesh, "echo", n);
        let mut extra = one.extra(Some(json!(1)));
        change(&mut extra);
        one.send_as(&mesh, &one.message(&extra, Vec::new())).await;
        let result = results.next().await;
        let fault = result.fault.unwrap();
        assert_eq!(
            (result.task.as_str(), fault.code.as_ref(), fault.kind),
            (one.task.as_str(), code, kind),
            "{what}"
        );
        assert_eq!(fault.details.is_empty(), what != "input", "{what}");
        // It went to the subject that the broker vouches for.
        one.kept(&mesh).await;
    }
    // Bodies that are nothing at all: answered where the header says whereto, else set aside.
    let one = asked(&mesh, "echo", 20);
    one.send_bytes(&mesh, one.headers(), b"garbage".to_vec()).await;
    assert_eq!(results.next().await.fault.unwrap().code, "SINEW-5108");
    assert!(mesh.quarantine().list(10).await.unwrap().is_empty());
    for (n, subject) in [(21, None), (22, Some("test.v1.event.x.y.z")), (23, Some(foreign.as_str()))] {
        let one = asked(&mesh, "echo", n);
        let mut headers = one.headers();
        match subject {
            Some(subject) => headers.insert(header::RESULT_SUBJECT, subject),
            None => headers = sinew_mesh::async_nats::HeaderMap::new(),
        }
        one.send_bytes(&mesh, headers, b"garbage".to_vec()).await;
    }
    settled(&mesh, "echo").await;
    let aside = mesh.quarantine().list(10).await.unwrap();
    assert_eq!(aside.len(), 3);
    for one in aside {
        let whole = mesh.quarantine().get(&one.stream, one.seq).await.unwrap();
        assert_eq!((one.stream.as_str(), &whole.body[..]), ("TASKS", &b"garbage"[..]));
    }
    assert_eq!(results.left(&mesh).await, 0);
    served.stop().await;
}

#[tokio::test]
async fn large_inputs_and_outputs_lie_in_the_object_store() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let served = serve(&server, &mesh, echo()).await;
    let one = asked(&mesh, "echo", 1);
    let value = json!("x".repeat(300_000));
    let place = ArtifactOwner { app: "workflow", user: "", execution: &one.execution, task: &one.task };
    let name = "input.json".parse().unwrap();
    let store = mesh.artifacts();
    let stored =
        store.put_object(&place, name, 0, "application/json", value.to_string().into()).await.unwrap();
    one.send_as(&mesh, &one.message(&one.extra(None), vec![stored.part])).await;
    let NodeOutput::Address(address) = results.next().await.output else {
        panic!("the output is not inside")
    };
    let bytes = store.fetch(&address).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), value);

    let two = asked(&mesh, "echo", 2);
    let gone = address.replace(|c: char| c.is_ascii_digit(), "0");
    two.send_as(&mesh, &two.message(&two.extra(None), vec![Part::url(gone)])).await;
    assert_eq!(results.next().await.fault.unwrap().code, "SINEW-5109");
    served.stop().await;
}

#[tokio::test]
async fn many_small_artifacts_make_no_result_too_large() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let agent = Agent::dynamic("many", None, None, async |_, context: Context| {
        for n in 0..60 {
            // Each of these bytes takes six in JSON.
            context.artifacts().put(&format!("{n}"), "text/plain", "\u{1}".repeat(30_000))?;
        }
        Ok(json!("done"))
    });
    let served = serve(&server, &mesh, agent).await;
    asked(&mesh, "many", 1).send(&mesh, json!(1)).await;
    let result = results.next().await;
    assert_eq!((result.fault, result.artifacts.len()), (None, 61));
    for artifact in &result.artifacts {
        let bytes = mesh.artifacts().get(artifact).await.unwrap();
        assert_eq!(bytes.len() as u64, artifact.meta.size);
    }
    served.stop().await;
}

#[tokio::test]
async fn a_task_that_comes_again_is_answered_not_done_again() {
    let (server, mesh) = common::mesh().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = {
        let calls = Arc::clone(&calls);
        Agent::dynamic("count", None, None, move |_, _| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move { Ok(json!(call)) }
        })
    };
    // A replica took these tasks, answered the first, and died before the acknowledgement.
    let (first, second) = (asked(&mesh, "count", 1), asked(&mesh, "count", 2));
    first.send(&mesh, json!(1)).await;
    second.send(&mesh, json!(2)).await;
    let mut queue = mesh.tasks().queue(&sinew_protocol::Token::of("count"), 2);
    let dead = [queue.next().await, queue.next().await];
    mesh.tasks().put_result(&first.result, first.headers(), r#"{"id":"theirs"}"#.into()).await.unwrap();
    for delivery in &dead {
        delivery.nak(Duration::ZERO).await.unwrap();
    }
    drop((dead, queue));
    let served = serve(&server, &mesh, counting).await;
    settled(&mesh, "count").await;
    assert_eq!(calls.load(Ordering::SeqCst), 1, "only what nobody had answered is done");
    assert_eq!(second.kept(&mesh).await.id.0, second.task.as_str());

    // The same task through the other door: this process remembers its answer.
    let request = json!(second.message(&second.extra(Some(json!(2))), Vec::new()));
    let (said, _) = common::call(&mesh, "count", "SendMessage", request).await;
    assert_eq!(said["task"], json!(second.kept(&mesh).await));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    served.stop().await;
}

#[tokio::test]
async fn a_task_that_kills_its_agents_is_taken_out() {
    let (server, mesh) = common::mesh().await;
    let one = asked(&mesh, "fragile", 1);
    one.send(&mesh, json!(1)).await;
    let mut queue = mesh.tasks().queue(&sinew_protocol::Token::of("fragile"), 1);
    for _ in 0..sinew_mesh::task::MAX_DELIVERIES {
        queue.next().await.nak(Duration::ZERO).await.unwrap();
    }
    drop(queue);
    let mut results = results(&mesh).await;
    let never = Agent::dynamic("fragile", None, None, async |_, _| panic!("it is done once more"));
    let served = serve(&server, &mesh, never).await;
    let fault = results.next().await.fault.unwrap();
    assert_eq!((fault.code.as_ref(), fault.retryable), ("SINEW-5107", false));
    settled(&mesh, "fragile").await;
    let aside = mesh.quarantine().list(10).await.unwrap();
    assert_eq!(aside.len(), 1);
    assert_eq!(aside[0].subject, mesh.subject(&one.subject()));
    served.stop().await;
}

/// Cancels a task as executors do.
async fn cancel(mesh: &Mesh, task: &Asked, execution: &ExecutionId) {
    let cancel = Control::Cancel { execution: execution.clone() };
    mesh.tasks().control(&task.agent, &task.task, &cancel).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_task_ends_as_cancelled_whatever_its_handler_returns() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let begun = Arc::new(Notify::new());
    let agent = {
        let begun = Arc::clone(&begun);
        Agent::dynamic("slow", None, None, move |input, context: Context| {
            let begun = Arc::clone(&begun);
            async move {
                begun.notify_one();
                context.cancel().cancelled().await;
                if input == json!("fails") { Err(Failure::new("cancelled")) } else { Ok(json!("late")) }
            }
        })
    };
    let served = serve(&server, &mesh, agent).await;
    let foreign = asked(&mesh, "slow", 99).execution;
    for (n, input) in [(1, "fails"), (2, "succeeds")] {
        let task = asked(&mesh, "slow", n);
        task.send(&mesh, json!(input)).await;
        begun.notified().await;
        // Another execution cannot cancel it.
        cancel(&mesh, &task, &foreign).await;
        common::sync(&mesh).await;
        assert!(task.stored(&mesh).await.is_none());
        cancel(&mesh, &task, &task.execution).await;
        let result = results.next().await;
        assert_eq!(result.task, task.task.as_str());
        assert_eq!(result.fault.unwrap().kind, FaultKind::Cancelled, "{input}");
        assert_eq!(task.kept(&mesh).await.status.state, TaskState::Canceled, "{input}");
    }
    settled(&mesh, "slow").await;
    assert_eq!(results.left(&mesh).await, 0, "each task has one result");
    served.stop().await;
}

#[tokio::test]
async fn a_task_that_was_cancelled_before_it_came_does_not_start() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let agent = {
        let calls = Arc::clone(&calls);
        Agent::dynamic("count", None, None, move |_, _| {
            calls.fetch_add(1, Ordering::SeqCst);
            async move { Ok(json!(1)) }
        })
    };
    let served = serve(&server, &mesh, agent).await;
    let (cancelled, live) = (asked(&mesh, "count", 1), asked(&mesh, "count", 2));
    cancel(&mesh, &cancelled, &cancelled.execution).await;
    cancel(&mesh, &live, &cancelled.execution).await;
    common::sync(&mesh).await;
    cancelled.send(&mesh, json!(1)).await;
    assert_eq!(results.next().await.fault.unwrap().kind, FaultKind::Cancelled);
    live.send(&mesh, json!(1)).await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!(1)));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    settled(&mesh, "count").await;
    served.stop().await;
}

/// A queue that is made anew delivers every task of the stream once more.
#[tokio::test]
async fn a_new_queue_repeats_no_finished_task() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let agent = |calls: &Arc<AtomicUsize>| {
        let calls = Arc::clone(calls);
        Agent::dynamic("count", None, None, move |_, _| {
            calls.fetch_add(1, Ordering::SeqCst);
            async move { Ok(json!(1)) }
        })
    };
    let served = serve(&server, &mesh, agent(&calls)).await;
    for n in 0..3 {
        asked(&mesh, "count", n).send(&mesh, json!(n)).await;
        results.next().await;
    }
    settled(&mesh, "count").await;
    served.stop().await;
    let stream = mesh.admin().jetstream().get_stream("test_TASKS").await.unwrap();
    stream.delete_consumer("agent-count").await.unwrap();
    mesh.tasks().make_queue(&sinew_protocol::Token::of("count")).await.unwrap();
    assert_eq!(common::pending(&mesh, "count").await, (0, 3), "the new queue has all tasks");
    let served = serve(&server, &mesh, agent(&calls)).await;
    settled(&mesh, "count").await;
    assert_eq!(calls.load(Ordering::SeqCst), 3, "finished tasks were done again");
    served.stop().await;
}

#[tokio::test]
async fn no_more_tasks_run_at_once_than_the_agent_wants() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let (gate, most) = (Arc::new(Semaphore::new(0)), Arc::new((AtomicUsize::new(0), AtomicUsize::new(0))));
    let (entered, inside) = (Arc::new(Semaphore::new(0)), Arc::clone(&most));
    let agent = {
        let (gate, entered) = (Arc::clone(&gate), Arc::clone(&entered));
        Agent::dynamic("few", None, None, move |_, _| {
            let (gate, inside, entered) = (Arc::clone(&gate), Arc::clone(&inside), Arc::clone(&entered));
            async move {
                let now = inside.0.fetch_add(1, Ordering::SeqCst) + 1;
                inside.1.fetch_max(now, Ordering::SeqCst);
                entered.add_permits(1);
                gate.acquire().await?.forget();
                inside.0.fetch_sub(1, Ordering::SeqCst);
                Ok(Value::Null)
            }
        })
    };
    let served = serve(&server, &mesh, agent.concurrency(3)).await;
    let direct = connect(&server.url(), "somebody").await;
    let calls = (0..4).map(|n: u32| {
        let direct = direct.clone();
        let params = common::message(&n.to_string(), "x");
        tokio::spawn(async move { common::call(&direct, "few", "SendMessage", params).await })
    });
    let calls: Vec<_> = calls.collect();
    for n in 0..6 {
        asked(&mesh, "few", n).send(&mesh, json!(1)).await;
    }
    for _ in 0..10 {
        // One goes in for each that goes out, and never a fourth.
        entered.acquire().await.unwrap().forget();
        if most.1.load(Ordering::SeqCst) == 3 {
            gate.add_permits(1);
        }
    }
    gate.add_permits(10);
    for call in calls {
        call.await.unwrap();
    }
    for _ in 0..6 {
        assert_eq!(results.next().await.fault, None);
    }
    assert_eq!(most.1.load(Ordering::SeqCst), 3);
    served.stop().await;
}
