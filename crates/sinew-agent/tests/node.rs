//! The node endpoint: answered in place or beside it, once for each task, whatever the handler does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use sinew_agent::{Agent, Context, Delivery, Failure};
use sinew_mesh::async_nats::Subscriber;
use sinew_mesh::live::Control;
use sinew_mesh::steps::StepLogId;
use sinew_mesh::{HeaderMap, Mesh};
use sinew_protocol::card::takes_node_requests;
use sinew_protocol::task::{NodeAnswer, NodeOutput, WorkflowNodeRequest, read_node_answer};
use sinew_protocol::{Subject, TaskId, Token, header};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use common::{Asked, PATIENCE, asked, node_request, serve, sync, token};

use crate::common;

/// The executor's part: sends tasks and hears answers.
struct Executor {
    mesh: Mesh,
    answers: Subscriber,
}

impl Executor {
    async fn new(mesh: &Mesh) -> Self {
        let answers = mesh.client().subscribe("_INBOX.exec.*").await.unwrap();
        sync(mesh).await;
        Self { mesh: mesh.clone(), answers }
    }

    async fn send(&self, task: &Asked, input: Value) {
        self.send_bytes(task, node_request(task, &input)).await;
    }

    async fn send_bytes(&self, task: &Asked, body: Vec<u8>) {
        let subject = self.mesh.subject(&Subject::Node { agent: Token::of(&task.agent) });
        let reply = format!("_INBOX.exec.{}", token(task).as_str());
        self.mesh.client().publish_with_reply(subject, reply, body.into()).await.unwrap();
    }

    /// The next answer, which must be this task's.
    async fn next(&mut self, task: &Asked) -> NodeAnswer {
        let message = timeout(PATIENCE, self.answers.next()).await.expect("an answer comes").unwrap();
        assert!(message.subject.ends_with(token(task).as_str()), "another task was answered");
        read_node_answer(&message.payload, &task.task).unwrap()
    }

    /// The output of this task.
    async fn output(&mut self, task: &Asked) -> Value {
        match self.next(task).await {
            NodeAnswer::Ended(result) => match result.output {
                NodeOutput::Value(value) => value,
                output => panic!("no value: {output:?}, {:?}", result.fault),
            },
            NodeAnswer::Refused(fault) => panic!("refused: {fault}"),
        }
    }

    /// The code of the fault with which this task ended or was refused, and whether it was refused.
    async fn code(&mut self, task: &Asked) -> (String, bool) {
        match self.next(task).await {
            NodeAnswer::Ended(result) => (result.fault.expect("a fault").code.to_string(), false),
            NodeAnswer::Refused(fault) => (fault.code.to_string(), true),
        }
    }

    async fn cancel(&self, task: &Asked) {
        let control = Control::Cancel { execution: task.execution.clone() };
        self.mesh.tasks().control(&task.agent, &task.task, &control).await.unwrap();
    }
}

/// An agent that does what its input says and counts its calls.
fn agent(calls: &Arc<AtomicUsize>, gate: &Arc<Semaphore>) -> Agent {
    let (calls, gate) = (Arc::clone(calls), Arc::clone(gate));
    Agent::dynamic("node", None, None, move |input: Value, context: Context| {
        calls.fetch_add(1, Ordering::SeqCst);
        let gate = Arc::clone(&gate);
        async move {
            match input["does"].as_str().unwrap_or_default() {
                "block" => std::thread::sleep(Duration::from_millis(20)),
                "panic" => panic!("on purpose"),
                "fail" => return Err(Failure::new("it failed")),
                "progress" => context.progress("half"),
                "wait" => tokio::select! {
                    permit = gate.acquire() => permit?.forget(),
                    () = context.cancel().cancelled() => {}
                },
                _ => {}
            }
            Ok(input)
        }
    })
    .delivery(Delivery::Direct)
}

#[tokio::test]
async fn a_task_is_done_once_and_answered_as_often_as_it_comes() {
    let (server, mesh) = common::mesh().await;
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let served = serve(&server, &mesh, agent(&calls, &gate)).await;
    let mut executor = Executor::new(&mesh).await;
    for (nth, does) in ["", "progress", "block", "", "fail", "panic"].into_iter().enumerate() {
        let task = asked(&mesh, "node", nth as u32);
        executor.send(&task, json!({ "does": does })).await;
        let first = executor.next(&task).await;
        executor.send(&task, json!({ "does": does })).await;
        assert_eq!(executor.next(&task).await, first, "{does}");
        assert_eq!(calls.load(Ordering::SeqCst), nth + 1, "{does}");
    }
    // A task that comes while it is worked on is answered once for each subject that waits.
    let task = asked(&mesh, "node", 10);
    for _ in 0..3 {
        executor.send(&task, json!({ "does": "wait" })).await;
    }
    let after = asked(&mesh, "node", 11);
    executor.send(&after, json!({ "does": "" })).await;
    executor.output(&after).await;
    gate.add_permits(1);
    executor.output(&task).await;
    executor.send(&task, json!({ "does": "wait" })).await;
    executor.output(&task).await;
    sync(&mesh).await;
    assert!(executor.answers.next().now_or_never().is_none(), "one subject was answered twice");
    assert_eq!(calls.load(Ordering::SeqCst), 8);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_blocks_keeps_nobody_waiting_twice() {
    let (server, mesh) = common::mesh().await;
    // Dropped by a failure too: a runtime with a blocked thread would never end.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(released));
    let blocking = Agent::dynamic("node", None, None, move |input: Value, _| {
        let blocked = Arc::clone(&blocked);
        async move {
            match input["does"].as_str().unwrap_or_default() {
                "block" => std::thread::sleep(Duration::from_millis(20)),
                "hang" => assert!(blocked.lock().unwrap().recv().is_err(), "released by closing"),
                _ => {}
            }
            Ok(input)
        }
    });
    let served = serve(&server, &mesh, blocking.delivery(Delivery::Direct)).await;
    let mut executor = Executor::new(&mesh).await;
    let (first, hangs, quick) = (asked(&mesh, "node", 0), asked(&mesh, "node", 1), asked(&mesh, "node", 2));
    executor.send(&first, json!({ "does": "block" })).await;
    executor.output(&first).await;
    // From now on the handler runs beside the endpoint: a call that hangs holds no other one up.
    executor.send(&hangs, json!({ "does": "hang" })).await;
    executor.send(&quick, json!({ "does": "" })).await;
    executor.output(&quick).await;
    drop(release);
    executor.output(&hangs).await;
    served.stop().await;
}

#[tokio::test]
async fn tasks_are_given_up_refused_and_left_to_others() {
    let (server, mesh) = common::mesh().await;
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let served = serve(&server, &mesh, agent(&calls, &gate).grace(Duration::from_millis(50))).await;
    let mut executor = Executor::new(&mesh).await;
    let task = |nth| asked(&mesh, "node", nth);
    let wait = json!({ "does": "wait" });
    executor.send(&task(0), wait.clone()).await;
    // A task that is cancelled before its handler runs never starts.
    let started = async {
        while calls.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), started).await.expect("the handler starts");
    // Another execution's word is none; one's own ends the task.
    executor.cancel(&Asked { execution: task(1).execution, ..task(0) }).await;
    executor.cancel(&task(0)).await;
    assert_eq!(executor.code(&task(0)).await, ("SINEW-5105".to_owned(), false));
    // An unreadable request that names its task is refused for good.
    let body = json!({ "type": "workflow_node_request", "sub_task_id": task(2).task }).to_string();
    executor.send_bytes(&task(2), b"{".to_vec()).await;
    executor.send_bytes(&task(2), body.into_bytes()).await;
    assert_eq!(executor.code(&task(2)).await, ("SINEW-5108".to_owned(), true));
    // A deadline that has passed.
    let late = node_request(&task(3), &wait);
    let late = String::from_utf8(late).unwrap().replace("\"attempt\":1", "\"attempt\":1,\"deadline\":1");
    executor.send_bytes(&task(3), late.into_bytes()).await;
    assert_eq!(executor.code(&task(3)).await, ("SINEW-5104".to_owned(), false));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // A process that ends refuses what it has not done; another one may take it.
    executor.send(&task(4), wait).await;
    let after = asked(&mesh, "node", 5);
    executor.send(&after, json!({ "does": "" })).await;
    executor.output(&after).await;
    served.stop().await;
    assert_eq!(executor.code(&task(4)).await, ("SINEW-5111".to_owned(), true));
}

/// A person was waited for until after the deadline that the task was sent with, and the process was replaced.
#[tokio::test]
async fn a_repeated_task_with_steps_may_come_after_its_deadline() {
    let (server, mesh) = common::mesh().await;
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let _served = serve(&server, &mesh, agent(&calls, &gate)).await;
    let mut executor = Executor::new(&mesh).await;
    for (nth, has_step, is_repeated) in [(0, true, true), (1, false, true), (2, true, false)] {
        let task = asked(&mesh, "node", nth);
        if has_step {
            let log = StepLogId {
                agent: Token::of("node"),
                execution: task.execution.clone(),
                activation: task.activation.clone(),
            };
            mesh.tasks().steps().append(&log, 0, "{}".into(), None).await.unwrap();
        }
        let late = String::from_utf8(node_request(&task, &json!({ "does": "" }))).unwrap();
        let late = late.replace("\"attempt\":1", "\"attempt\":1,\"deadline\":1");
        let subject = mesh.subject(&Subject::Node { agent: Token::of("node") });
        let reply = format!("_INBOX.exec.{}", token(&task).as_str());
        let mut headers = HeaderMap::new();
        if is_repeated {
            headers.insert(header::REPEATED, "1");
        }
        let client = mesh.client();
        client.publish_with_reply_and_headers(subject, reply, headers, late.into()).await.unwrap();
        if has_step && is_repeated {
            assert_eq!(executor.output(&task).await, json!({ "does": "" }));
        } else {
            assert_eq!(executor.code(&task).await, ("SINEW-5104".to_owned(), false), "{nth}");
        }
    }
}

#[tokio::test]
async fn the_card_says_whether_there_is_an_endpoint() {
    let (server, mesh) = common::mesh().await;
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    for taken in [true, false] {
        let served = serve(&server, &mesh, agent(&calls, &gate).node_requests(taken)).await;
        let card = mesh.cards().follow().wait_for("node").await;
        assert_eq!(takes_node_requests(&card.card), taken);
        let subject = mesh.subject(&Subject::Node { agent: Token::of("node") });
        let client = mesh.client();
        if !taken {
            assert!(client.request(subject, "{}".into()).await.is_err(), "nobody listens");
        }
        served.stop().await;
    }
}

#[tokio::test]
async fn a_task_of_the_queue_may_come_in_the_short_form() {
    let (server, mesh) = common::mesh().await;
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let mut results = mesh.client().subscribe("test.v1.result.>").await.unwrap();
    sync(&mesh).await;
    mesh.tasks().make_queue(&Token::of("node")).await.unwrap();
    let served = serve(&server, &mesh, agent(&calls, &gate).delivery(Delivery::Queue)).await;
    let mut codes = Vec::new();
    let foreign = TaskId::parse("another-task").unwrap();
    for (nth, does) in ["", "fail", "progress", "foreign"].into_iter().enumerate() {
        let task = asked(&mesh, "node", nth as u32);
        let mut body = node_request(&task, &json!({ "does": does }));
        if does == "foreign" {
            body = node_request(&Asked { task: foreign.clone(), ..task.clone() }, &json!({}));
        }
        task.send_bytes(&mesh, task.headers(), body).await;
        let result = timeout(PATIENCE, results.next()).await.expect("a result comes").unwrap();
        assert_eq!(result.subject.as_str(), task.result);
        let NodeAnswer::Ended(result) = read_node_answer(&result.payload, &task.task).unwrap() else {
            panic!("a refusal is not a result")
        };
        codes.push(result.fault.map(|fault| fault.code.to_string()));
    }
    let wanted = [None, Some("SINEW-5100"), None, Some("SINEW-5108")];
    assert_eq!(codes, wanted.map(|code| code.map(str::to_owned)));
    common::settled(&mesh, "node").await;
    served.stop().await;
}

/// An agent that stores the text of each task in its session, and returns the earlier texts.
fn listener() -> Agent {
    let keep = Duration::from_hours(1);
    Agent::dynamic("listener", None, None, move |input: Value, context: Context| async move {
        let session = context.session_log().expect("a mesh keeps sessions");
        let earlier = session.last(9, keep).await?;
        session.append(input["text"].as_str().unwrap_or_default().to_owned().into(), keep).await?;
        let earlier = earlier.iter().map(|words| String::from_utf8_lossy(words).into_owned());
        Ok(json!({ "earlier": earlier.collect::<Value>(), "session": context.session() }))
    })
    .delivery(Delivery::Direct)
}

#[tokio::test]
async fn a_session_of_executions_is_that_of_their_caller_and_its_context() {
    let (server, mesh) = common::mesh().await;
    let served = serve(&server, &mesh, listener()).await;
    let mut executor = Executor::new(&mesh).await;
    for (nth, (context, caller, user), earlier) in [
        (0, ("chat", "ada", "u"), json!([])),
        (1, ("chat", "ada", "u"), json!(["0"])),
        (2, ("other", "ada", "u"), json!([])),
        (3, ("chat", "bob", "u"), json!([])),
        (4, ("chat", "ada", "v"), json!([])),
        (5, ("chat", "ada", "u"), json!(["0", "1"])),
    ] {
        let task = asked(&mesh, "listener", nth);
        let body = node_request(&task, &json!({ "text": nth.to_string() }));
        let mut request = WorkflowNodeRequest::read(&body).unwrap();
        request.context_id = Some(context.into());
        request.caller = Some(caller.into());
        request.user = Some(user.into());
        executor.send_bytes(&task, request.to_bytes()).await;
        let output = executor.output(&task).await;
        assert_eq!(output, json!({ "earlier": earlier, "session": context }), "{context} {caller} {user}");
    }
    // An execution whose caller named no context has a session of its own.
    let task = asked(&mesh, "listener", 6);
    executor.send(&task, json!({ "text": "6" })).await;
    let output = executor.output(&task).await;
    assert_eq!(output, json!({ "earlier": [], "session": task.execution }));
    served.stop().await;
}
