//! Steps of handlers on a server: done once, whoever takes the task up.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test says what is wrong by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_agent::{Agent, Context, Failure, StepEffect};
use sinew_mesh::Mesh;
use sinew_mesh::live::Control;
use sinew_mesh::steps::StepLogId;
use sinew_protocol::task::NodeOutput;
use sinew_protocol::{FaultKind, TaskId, Token};
use tokio::sync::Notify;
use tokio::time::timeout;

use common::{Asked, PATIENCE, asked, results, serve, settled, sync};

use crate::common;

fn log_of(asked: &Asked) -> StepLogId {
    StepLogId {
        agent: Token::of(&asked.agent),
        execution: asked.execution.clone(),
        activation: asked.activation.clone(),
    }
}

/// The kinds of records of a task's log, with the name of their step.
async fn log(mesh: &Mesh, asked: &Asked) -> Vec<String> {
    let records = mesh.tasks().steps().read(&log_of(asked), 0).await.unwrap();
    let kind = |record: &Bytes| {
        let record: Value = serde_json::from_slice(record).unwrap();
        let step = record["step"].as_str().map(|step| format!(" {step} {}", record["nth"]));
        record["kind"].as_str().unwrap().to_owned() + &step.unwrap_or_default()
    };
    records.iter().map(kind).collect()
}

/// The same activation, tried again.
fn second_attempt(mesh: &Mesh, first: &Asked) -> Asked {
    let task = TaskId::of(&first.execution, &first.activation, 2);
    let result = first.result.replace(first.task.as_str(), task.as_str());
    assert_ne!(result, first.result, "{}", mesh.namespace());
    Asked { task, result, ..first.clone() }
}

#[derive(Clone, Default)]
struct Counts {
    ordered: Arc<AtomicU32>,
    charged: Arc<AtomicU32>,
    reached: Arc<Notify>,
}

/// Orders, charges, and then waits as long as it is told to hang.
fn shop(counts: &Counts, hangs: bool) -> Agent {
    let counts = counts.clone();
    Agent::dynamic("shop", None, None, move |_, context: Context| {
        let counts = counts.clone();
        async move {
            let steps = context.steps();
            let order = steps.run("order", StepEffect::Repeat, |key| {
                let nth = counts.ordered.fetch_add(1, Ordering::SeqCst);
                async move { Ok(json!({"key": key, "nth": nth})) }
            });
            let order: Value = order.await?;
            let charge = |amount: u32| {
                let charged = Arc::clone(&counts.charged);
                move |key: String| async move {
                    charged.fetch_add(1, Ordering::SeqCst);
                    Ok(format!("{key}:{amount}"))
                }
            };
            // Two of one name, at the same time: told apart by their order.
            let first = steps.run("charge", StepEffect::Once, charge(1));
            let second = steps.run("charge", StepEffect::Once, charge(2));
            let (first, second) = futures_util::try_join!(first, second)?;
            counts.reached.notify_one();
            if hangs {
                std::future::pending::<()>().await;
            }
            Ok(json!([order, first, second]))
        }
    })
    .grace(Duration::ZERO)
}

#[tokio::test]
async fn a_task_that_comes_again_goes_on_behind_its_steps() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let counts = Counts::default();
    let first = serve(&server, &mesh, shop(&counts, true)).await;
    let task = asked(&mesh, "shop", 1);
    task.send(&mesh, json!({})).await;
    counts.reached.notified().await;
    first.stop().await;
    let second = serve(&server, &mesh, shop(&counts, false)).await;
    let result = results.next().await;
    let key = |step: &str, nth: u32| format!("{}-{step}-{nth}", task.activation);
    let want = json!([
        {"key": key("order", 0), "nth": 0},
        format!("{}:1", key("charge", 0)),
        format!("{}:2", key("charge", 1)),
    ]);
    assert_eq!((result.output, result.fault), (NodeOutput::Value(want), None));
    assert_eq!(counts.ordered.load(Ordering::SeqCst), 1);
    assert_eq!(counts.charged.load(Ordering::SeqCst), 2);
    let mut log = log(&mesh, &task).await;
    assert_eq!((log.remove(0), log.pop().unwrap()), ("begin".to_owned(), "begin".to_owned()));
    log.sort();
    let want = ["call charge 0", "call charge 1", "done charge 0", "done charge 1", "done order 0"];
    assert_eq!(log, want);
    // A later attempt of the activation finds the steps, too.
    let again = second_attempt(&mesh, &task);
    again.send(&mesh, json!({})).await;
    assert!(results.next().await.fault.is_none());
    assert_eq!(counts.charged.load(Ordering::SeqCst), 2);
    second.stop().await;
}

#[tokio::test]
async fn a_step_that_acts_is_not_begun_twice() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let counts = Counts::default();
    let task = asked(&mesh, "shop", 1);
    // An earlier process died during the first charge.
    let earlier = [
        json!({"by": "x", "at": 1, "kind": "begin", "task": task.task, "attempt": 1, "delivery": 1}),
        json!({"by": "x", "at": 2, "kind": "call", "step": "charge", "nth": 0}),
    ];
    for (place, record) in earlier.iter().enumerate() {
        mesh.tasks()
            .steps()
            .append(&log_of(&task), place as u64, record.to_string().into(), None)
            .await
            .unwrap();
    }
    let served = serve(&server, &mesh, shop(&counts, false)).await;
    task.send(&mesh, json!({})).await;
    let fault = results.next().await.fault.unwrap();
    assert_eq!((fault.code.as_ref(), fault.kind, fault.retryable), ("SINEW-5117", FaultKind::Error, false));
    assert!(log(&mesh, &task).await.iter().all(|entry| entry != "done charge 0"));
    served.stop().await;
}

#[tokio::test]
async fn failures_that_may_pass_are_tried_again_and_others_stay() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let agent = Agent::dynamic("flaky", None, None, move |input: Value, context: Context| {
        let calls = Arc::clone(&counted);
        async move {
            let step = context.steps().run("work", StepEffect::Once, |_| async move {
                match (input.as_str(), calls.fetch_add(1, Ordering::SeqCst)) {
                    (Some("passes"), 0) => Err(Failure::temporary("the service is away")),
                    (Some("stays"), _) => Err(Failure::new("there is no such order").for_good()),
                    (_, nth) => Ok(nth),
                }
            });
            Ok(json!(step.await?))
        }
    });
    let served = serve(&server, &mesh, agent).await;
    for (n, input, first_retryable, second) in
        [(1, "passes", true, Ok(json!(1))), (2, "stays", false, Err(3))]
    {
        let task = asked(&mesh, "flaky", n);
        task.send(&mesh, json!(input)).await;
        assert_eq!(results.next().await.fault.unwrap().retryable, first_retryable, "{input}");
        second_attempt(&mesh, &task).send(&mesh, json!(input)).await;
        let result = results.next().await;
        match second {
            Ok(output) => assert_eq!(result.output, NodeOutput::Value(output), "{input}"),
            Err(calls_in_all) => {
                assert_eq!(result.fault.unwrap().message, "there is no such order");
                assert_eq!(calls.load(Ordering::SeqCst), calls_in_all, "the failure was recorded");
            }
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn a_process_that_lost_its_task_says_nothing() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let (entered, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (inside, gate) = (Arc::clone(&entered), Arc::clone(&go_on));
    let agent = Agent::dynamic("slow", None, None, move |_, context: Context| {
        let (inside, gate) = (Arc::clone(&inside), Arc::clone(&gate));
        async move {
            let steps = context.steps();
            let first: u64 = steps.run("first", StepEffect::Repeat, |_| async { Ok(1) }).await?;
            if context.delivery() == 1 {
                inside.notify_one();
                gate.notified().await;
            }
            let second: u64 = steps.run("second", StepEffect::Repeat, |_| async { Ok(2) }).await?;
            Ok(json!(first + second))
        }
    });
    let served = serve(&server, &mesh, agent).await;
    let task = asked(&mesh, "slow", 1);
    task.send(&mesh, json!({})).await;
    entered.notified().await;
    // Another process takes the task up and dies at once.
    let begin =
        json!({"by": "other", "at": 1, "kind": "begin", "task": task.task, "attempt": 1, "delivery": 2});
    mesh.tasks().steps().append(&log_of(&task), 2, begin.to_string().into(), None).await.unwrap();
    go_on.notify_one();
    // The task is neither answered nor given back; it comes again when its time is up.
    let result = results.next().await;
    assert_eq!((result.output, result.fault), (NodeOutput::Value(json!(3)), None));
    assert_eq!(log(&mesh, &task).await, ["begin", "done first 0", "begin", "begin", "done second 0"]);
    settled(&mesh, "slow").await;
    assert_eq!(results.left(&mesh).await, 0, "one result");
    served.stop().await;
}

#[tokio::test]
async fn many_deliveries_are_poison_only_without_progress() {
    let (server, mesh) = common::mesh().await;
    for (agent, records, poison) in [
        ("idle", &[(1, "begin"), (2, "begin"), (3, "begin"), (4, "begin"), (20, "begin")][..], true),
        ("none", &[][..], true),
        ("going", &[(1, "begin"), (1, "done"), (15, "begin"), (15, "done"), (20, "begin")][..], false),
    ] {
        let task = asked(&mesh, agent, 1);
        for (place, (delivery, kind)) in records.iter().enumerate() {
            let record = match *kind {
                "begin" => {
                    json!({"kind": kind, "by": "x", "at": 1, "task": "t", "attempt": 1, "delivery": delivery})
                }
                _ => {
                    json!({"kind": kind, "by": "x", "at": 1, "step": format!("s{place}"), "nth": 0, "result": 1})
                }
            };
            let (steps, log) = (mesh.tasks().steps(), log_of(&task));
            steps.append(&log, place as u64, record.to_string().into(), None).await.unwrap();
        }
        mesh.tasks().make_queue(&Token::of(agent)).await.unwrap();
        task.send(&mesh, json!({})).await;
        let mut queue = mesh.tasks().queue(&Token::of(agent), 1);
        for _ in 0..sinew_mesh::task::MAX_DELIVERIES {
            queue.next().await.nak(Duration::ZERO).await.unwrap();
        }
        drop(queue);
        let mut results = results(&mesh).await;
        let handler =
            Agent::dynamic(agent, None, None, async |_, context: Context| Ok(json!(context.delivery())));
        let served = serve(&server, &mesh, handler).await;
        let result = results.next().await;
        if poison {
            assert_eq!(result.fault.unwrap().code, "SINEW-5107", "{agent}");
        } else {
            assert_eq!((result.output, result.fault), (NodeOutput::Value(json!(21)), None), "{agent}");
        }
        served.stop().await;
    }
}

#[tokio::test]
async fn a_parked_task_leaves_its_place_to_others() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let (answer, working) = (Arc::new(Notify::new()), Arc::new(AtomicU32::new(0)));
    let (inside, busy) = (Arc::clone(&answer), Arc::clone(&working));
    let agent = Agent::dynamic("asker", None, None, move |input: Value, context: Context| {
        let (answer, busy) = (Arc::clone(&inside), Arc::clone(&busy));
        async move {
            if input == json!("waits") {
                context.parked(answer.notified()).await;
            }
            let others = busy.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            busy.fetch_sub(1, Ordering::SeqCst);
            assert_eq!(others, 0, "one works at a time");
            Ok(input)
        }
    })
    .concurrency(1);
    let served = serve(&server, &mesh, agent).await;
    let waiting: Vec<Asked> = (1..=20).map(|n| asked(&mesh, "asker", n)).collect();
    for task in &waiting {
        task.send(&mesh, json!("waits")).await;
    }
    // Only one place, and twenty wait for an answer: the next one is worked on all the same.
    asked(&mesh, "asker", 99).send(&mesh, json!("quick")).await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!("quick")));
    let answered = async {
        let mut left = waiting.len();
        while left > 0 {
            answer.notify_waiters();
            if let Ok(result) = tokio::time::timeout(Duration::from_millis(20), results.next()).await {
                assert_eq!(result.output, NodeOutput::Value(json!("waits")));
                left -= 1;
            }
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap();
    settled(&mesh, "asker").await;
    served.stop().await;
}

/// An observer of all subjects keeps the server from reporting that no executor is there.
#[tokio::test]
async fn an_agent_is_called_beside_an_observer_without_executors() {
    let (server, mesh) = common::mesh().await;
    let echo = Agent::dynamic("echo", None, None, |input: Value, _| async { Ok(input) });
    let caller = Agent::dynamic("caller", None, None, |input: Value, context: Context| async move {
        context.call("echo", input).await
    });
    let _echo = serve(&server, &mesh, echo).await;
    let _caller = serve(&server, &mesh, caller).await;
    let mut results = results(&mesh).await;
    let mut observed = mesh.client().subscribe(">").await.unwrap();
    mesh.client().flush().await.unwrap();
    tokio::spawn(async move { while observed.next().await.is_some() {} });
    asked(&mesh, "caller", 1).send(&mesh, json!({"n": 1})).await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!({"n": 1})));
}

/// The task is cancelled, or its process stops before the answer of the agent that it calls.
#[tokio::test]
async fn a_call_is_given_up_with_its_task_and_not_with_its_process() {
    for is_cancelled in [true, false] {
        let (server, mesh) = common::mesh().await;
        let (begun, released, given_up) = (Notify::new(), Notify::new(), Notify::new());
        let peer = Arc::new((begun, released, given_up));
        let inside = Arc::clone(&peer);
        let called = Agent::dynamic("peer", None, None, move |_: Value, context: Context| {
            let peer = Arc::clone(&inside);
            async move {
                peer.0.notify_one();
                tokio::select! {
                    () = context.cancel().cancelled() => peer.2.notify_one(),
                    () = peer.1.notified() => peer.0.notify_one(),
                }
                Ok(Value::Null)
            }
        });
        // The handler drops its call as soon as the task is cancelled, before the call could hear of it.
        let caller = Agent::dynamic("caller", None, None, |_: Value, context: Context| async move {
            tokio::select! {
                biased;
                () = context.cancel().cancelled() => Ok(Value::Null),
                answer = context.call_keyed("peer", "k", json!({})) => answer,
            }
        });
        let _peer = serve(&server, &mesh, called).await;
        let served = serve(&server, &mesh, caller.grace(Duration::ZERO)).await;
        let task = asked(&mesh, "caller", 1);
        task.send(&mesh, json!({})).await;
        tokio::time::timeout(PATIENCE, peer.0.notified()).await.unwrap();
        if is_cancelled {
            let control = Control::Cancel { execution: task.execution.clone() };
            mesh.tasks().control("caller", &task.task, &control).await.unwrap();
            tokio::time::timeout(PATIENCE, peer.2.notified()).await.expect("the peer hears of it");
            served.stop().await;
        } else {
            served.stop().await;
            sync(&mesh).await;
            peer.1.notify_one();
            tokio::time::timeout(PATIENCE, peer.0.notified()).await.expect("the peer has worked to its end");
        }
    }
}

/// An agent that keeps the words of its callers, and answers with those that it was told before.
fn listener(keep: Duration) -> Agent {
    Agent::dynamic("listener", None, None, move |input: Value, context: Context| async move {
        let session = context.session_log().expect("a mesh keeps sessions");
        let earlier = session.last(3, keep).await?;
        let words = input["text"].as_str().unwrap_or_default().to_owned();
        if words != "listen" {
            session.append(words.into(), keep).await?;
        }
        Ok(earlier.iter().map(|words| String::from_utf8_lossy(words).into_owned()).collect::<Value>())
    })
}

#[tokio::test]
async fn a_session_is_that_of_one_caller_and_one_context() {
    let (server, mesh) = common::mesh().await;
    // Longer than the mesh keeps steps, and so short that sessions are forgotten while the test runs.
    for (keep, forgets) in [(Duration::from_hours(2_400), false), (Duration::from_secs(4), true)] {
        let served = common::serve(&server, &mesh, listener(keep)).await;
        let callers =
            [common::connect(&server.url(), "ada").await, common::connect(&server.url(), "bob").await];
        let nth = AtomicU32::new(0);
        let tell = async |caller: usize, context: &str, words: &str| {
            let id = format!("{words}-{}-{}", keep.as_secs(), nth.fetch_add(1, Ordering::Relaxed));
            let mut message = common::message(&id, words);
            message["message"]["contextId"] = context.into();
            let (told, _) = common::call(&callers[caller], "listener", "SendMessage", message).await;
            let artifact = &told["task"]["artifacts"][0]["parts"][0];
            serde_json::from_value::<Vec<String>>(artifact["data"].clone())
                .unwrap_or_else(|_| panic!("{told}"))
        };
        let none: [&str; 0] = [];
        assert_eq!(tell(0, "talk", "one").await, none);
        assert_eq!(tell(0, "talk", "two").await, ["one"]);
        assert_eq!(tell(0, "other", "three").await, none, "another context");
        assert_eq!(tell(1, "talk", "four").await, none, "another caller of the same context");
        for words in ["five", "six", "seven"] {
            tell(0, "talk", words).await;
        }
        assert_eq!(tell(0, "talk", "eight").await, ["five", "six", "seven"]);
        if forgets {
            let forgotten = async { while !tell(0, "talk", "listen").await.is_empty() {} };
            timeout(PATIENCE, forgotten).await.expect("old words are forgotten");
        }
        served.stop().await;
    }
}
