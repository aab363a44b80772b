//! The in-process driver in real time: agents that answer, fail, die, hang and are given up.
#![expect(clippy::expect_used, clippy::panic, reason = "a test says what is wrong by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sinew_engine::{
    ActivationId, Adapter, AdapterContext, ChildSpec, EngineInput, ExecutionMode, Fact, NodeDecision,
    PersonAnswer, PersonRequest, TaskReply, TaskRequest, TerminalStatus, Time,
};
use sinew_execution::Call;
use sinew_execution::{Execution, Library, Program};
use sinew_plan::{
    FailurePolicy, JoinRule, NodeOperation, PausePolicy, Plan, PlanEdge, PlanLimits, PlanNode, ReadyOrder,
    RetryPolicy, SchedulingProfile,
};
use sinew_protocol::{ExecutionId, Fault};
use sinew_runtime::local::{Agents, Local, Observer, Progress};
use sinew_runtime::sim::{Signal, Sim, Stub, Stubbed};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Adapter that reads a node's work from `extra`: `{"ask": agent}`, `{"call": workflow}`, `{"map": n}`, `{"wait": prompt}`.
struct Plain;

impl Adapter for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let extra = &ctx.node_of(act).extra;
        if let Some(agent) = extra["ask"].as_str() {
            return NodeDecision::Ask(Box::new(TaskRequest::agent(
                agent,
                json!({ "node": ctx.node_of(act).id }),
            )));
        }
        if let Some(workflow) = extra["call"].as_str() {
            return NodeDecision::Ask(Box::new(TaskRequest::workflow(workflow, json!({}))));
        }
        if let Some(prompt) = extra["wait"].as_str() {
            return NodeDecision::Wait(Box::new(PersonRequest {
                prompt: prompt.into(),
                ..PersonRequest::default()
            }));
        }
        let children = (0..extra["map"].as_u64().unwrap_or(0))
            .map(|n| ChildSpec { body: 1, item: Arc::new(json!(n)), delay_ms: None })
            .collect();
        NodeDecision::Fan { children, limit: Some(2), fail_fast: true }
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        let last = ctx.state.acts.iter().rfind(|act| act.owner.is_none());
        Ok(last.and_then(|act| act.output.as_ref()).map(|out| Value::clone(&out.value)).unwrap_or_default())
    }
}

fn node(id: &str, extra: Value) -> PlanNode {
    PlanNode {
        id: id.into(),
        kind: "plain".into(),
        label: None,
        op: if extra.get("map").is_some() { NodeOperation::Map { body: 1 } } else { NodeOperation::Agent },
        join: JoinRule::Resolved { quorum: None },
        rank: 0,
        agent: None,
        retry: RetryPolicy {
            limit: extra["retry"].as_u64().and_then(|n| n.try_into().ok()).unwrap_or(0),
            ..RetryPolicy::default()
        },
        attempt_timeout_ms: extra["timeout"].as_u64(),
        timeout_ms: None,
        inner: id.starts_with("inner"),
        attached: false,
        quiet: false,
        handles_failure: false,
        extra,
    }
}

/// A chain of nodes; those whose id starts with `inner` are bodies.
fn plan(name: &str, nodes: &[(&str, Value)]) -> Plan {
    let nodes: Vec<PlanNode> = nodes.iter().map(|(id, extra)| node(id, extra.clone())).collect();
    let flow: Vec<u32> = (0u32..).zip(&nodes).filter(|(_, node)| !node.inner).map(|(ix, _)| ix).collect();
    let edges = (0u32..).zip(flow.windows(2)).map(|(n, pair)| PlanEdge {
        from: pair[0],
        port: "out".into(),
        to: pair[1],
        handle: "in".into(),
        label: None,
        budget: None,
        counter: n,
        veto: false,
        quorum: false,
        attach: false,
        extra: Value::Null,
    });
    Plan {
        format: Plan::FORMAT,
        dialect: "plain".into(),
        name: name.into(),
        description: String::new(),
        version: None,
        profile: SchedulingProfile {
            order: ReadyOrder::Fifo,
            parallel: 0,
            failure: FailurePolicy::Stop,
            pause: PausePolicy::NodeLocal,
        },
        edges: edges.collect(),
        nodes,
        entry: vec![0],
        exits: vec![],
        limits: PlanLimits::default(),
        input_schema: None,
        output_schema: None,
        extra: Value::Null,
    }
}

/// Agents, by what they do.
#[derive(Default)]
struct World {
    calls: AtomicUsize,
    told: Arc<Notify>,
    given_up: Arc<Mutex<Vec<String>>>,
}

impl Agents for World {
    fn call(
        &self,
        call: Call,
        progress: Progress,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<TaskReply, Fault>> {
        let nth = self.calls.fetch_add(1, Ordering::SeqCst);
        let (told, given_up) = (Arc::clone(&self.told), Arc::clone(&self.given_up));
        let agent = call.ask.target.name().to_owned();
        async move {
            match agent.as_str() {
                "echo" => Ok(TaskReply::new(Value::clone(&call.ask.input))),
                "talks" => {
                    progress.say(json!("half"));
                    Ok(TaskReply::new(json!("whole")))
                }
                "flaky" if nth == 0 => Err(Fault::failure("SINEW-5090", "the first call fails")),
                "flaky" => Ok(TaskReply::new(json!({ "tries": call.tries }))),
                "spends" => {
                    if nth == 0 {
                        cancel.cancelled().await;
                        progress.tell_usage(json!({ "turns": 1 }));
                        return Err(Fault::cancelled("SINEW-5105", "it was cancelled"));
                    }
                    told.notified().await;
                    Ok(TaskReply { usage: json!({ "turns": 1 }), ..TaskReply::new(json!("done")) })
                }
                "dies" => panic!("an agent's bug"),
                "hangs" => {
                    cancel.cancelled().await;
                    given_up.lock().expect("no test panics while it holds the list").push(call.node);
                    told.notify_one();
                    std::future::pending().await
                }
                other => Err(Fault::failure("SINEW-5091", format!("no agent '{other}'"))),
            }
        }
        .boxed()
    }
}

fn library(plans: Vec<Plan>) -> (Arc<Library>, Program) {
    let programs: Vec<Program> =
        plans.into_iter().map(|plan| Program::new(plan, &Plain).expect("a sound plan")).collect();
    let first = programs[0].clone();
    let mut library = Library::default();
    for program in programs {
        library.insert(program);
    }
    (Arc::new(library), first)
}

async fn run(plans: Vec<Plan>) -> Execution {
    let (library, program) = library(plans);
    let driver = Local::new(library, Arc::new(World::default()), Box::new(|_, _, _| {}));
    let id = ExecutionId::of("test", "local", "1");
    driver.run(id, program, json!({}), ExecutionMode::default(), |_, _| false).await
}

fn outcome(execution: &Execution) -> (TerminalStatus, Value, String) {
    let outcome = execution.state().outcome.as_ref().expect("it ended");
    let output = outcome.output.as_deref().cloned().unwrap_or_default();
    let error = outcome.fault.as_ref().map(|fault| fault.message.clone()).unwrap_or_default();
    (outcome.status, output, error)
}

#[tokio::test]
async fn agents_answer_fail_die_and_run_out_of_time() {
    use TerminalStatus::{Failure, Success};
    let one = |extra: Value| vec![plan("one", &[("a", extra)])];
    let nested =
        |extra: Value| vec![plan("outer", &[("w", json!({"call": "sub"}))]), plan("sub", &[("x", extra)])];
    let mapped = json!({"results": [{"node": "inner"}, {"node": "inner"}, {"node": "inner"}]});
    let null = Value::Null;
    for (name, plans, status, output, error) in [
        ("echo", one(json!({"ask": "echo"})), Success, json!({"node": "a"}), ""),
        ("retry", one(json!({"ask": "flaky", "retry": 2})), Success, json!({"tries": 2}), ""),
        ("no retry", one(json!({"ask": "flaky"})), Failure, null.clone(), "the first call fails"),
        ("panic", one(json!({"ask": "dies"})), Failure, null.clone(), "agent 'dies' exited during its task"),
        (
            "timeout",
            one(json!({"ask": "hangs", "timeout": 20})),
            Failure,
            null.clone(),
            "timed out after 0.02 s",
        ),
        ("unknown", one(json!({"ask": "ghost"})), Failure, null.clone(), "no agent 'ghost'"),
        ("sub-workflow", nested(json!({"ask": "echo"})), Success, json!({"node": "x"}), ""),
        (
            "failing sub",
            nested(json!({"ask": "ghost"})),
            Failure,
            null.clone(),
            "node 'w' failed: node 'x' failed",
        ),
        ("no such sub", one(json!({"call": "sub"})), Failure, null.clone(), "Workflow 'sub' not found"),
        (
            "calls itself",
            one(json!({"call": "one"})),
            Failure,
            null.clone(),
            "workflows call each other in a cycle",
        ),
        (
            "map",
            vec![plan("map", &[("m", json!({"map": 3})), ("inner", json!({"ask": "echo"}))])],
            Success,
            mapped,
            "",
        ),
    ] {
        let seen = outcome(&run(plans).await);
        assert_eq!((seen.0, &seen.1), (status, &output), "{name}: {}", seen.2);
        assert!(seen.2.contains(error), "{name}: {}", seen.2);
    }
}

#[tokio::test]
async fn cancelling_reaches_the_agent_of_a_sub_workflow() {
    let world = Arc::new(World::default());
    let (library, program) = library(vec![
        plan("outer", &[("w", json!({"call": "sub"}))]),
        plan("sub", &[("x", json!({"ask": "hangs"}))]),
    ]);
    let (sent, mut dispatched) = tokio::sync::mpsc::unbounded_channel();
    let observer: Observer = Box::new(move |run, _, facts| {
        if run == 1 && facts.iter().any(|fact| matches!(fact, Fact::Dispatched { .. })) {
            let _ = sent.send(());
        }
    });
    let driver = Local::new(library, Arc::clone(&world) as Arc<dyn Agents>, observer);
    let control = driver.control();
    let id = ExecutionId::of("test", "local", "2");
    let running = tokio::spawn(driver.run(id, program, json!({}), ExecutionMode::default(), |_, _| false));
    dispatched.recv().await.expect("the inner task is sent");
    control
        .input(EngineInput::Cancel { reason: "enough".into() })
        .await
        .expect("it runs")
        .expect("it may be cancelled");
    let execution = running.await.expect("the driver does not panic");
    assert_eq!(outcome(&execution).0, TerminalStatus::Cancelled);
    world.told.notified().await;
    assert_eq!(*world.given_up.lock().expect("not poisoned"), ["x"]);
    assert!(control.input(EngineInput::Resume).await.is_none(), "nobody listens after the end");
}

#[tokio::test]
async fn a_person_answers_or_the_wait_is_left() {
    let plans = || vec![plan("asks", &[("p", json!({"wait": "go on?"})), ("a", json!({"ask": "echo"}))])];
    let left = run(plans()).await;
    assert!(left.state().outcome.is_none(), "it still waits");
    assert_eq!(left.state().waiting().count(), 1);

    let (library, program) = library(plans());
    let driver = Local::new(library, Arc::new(World::default()), Box::new(|_, _, _| {}));
    let control = driver.control();
    let idle = move |_: &Execution, execution: &Execution| {
        let act = execution.state().waiting().next().expect("somebody is waited for");
        let control = control.clone();
        tokio::spawn(async move {
            let answer = PersonAnswer { data: json!("yes"), ..PersonAnswer::default() };
            control.input(EngineInput::Answer { act, answer }).await
        });
        true
    };
    let id = ExecutionId::of("test", "local", "3");
    let execution = driver.run(id, program, json!({}), ExecutionMode::default(), idle).await;
    assert_eq!(outcome(&execution), (TerminalStatus::Success, json!({"node": "a"}), String::new()));
}

/// The first attempt is cancelled by its timeout, the second one answers.
#[tokio::test]
async fn usage_of_an_attempt_that_timed_out_counts() {
    let world = Arc::new(World::default());
    let counted = Arc::clone(&world.told);
    let observer: Observer = Box::new(move |_, _, facts| {
        if facts.iter().any(|fact| matches!(fact, Fact::Late { .. })) {
            counted.notify_one();
        }
    });
    let (library, program) =
        library(vec![plan("w", &[("x", json!({"ask": "spends", "timeout": 1_000, "retry": 1}))])]);
    let driver = Local::new(library, world, observer);
    let id = ExecutionId::of("test", "local", "6");
    let execution = driver.run(id, program, json!({}), ExecutionMode::default(), |_, _| false).await;
    assert_eq!(outcome(&execution).0, TerminalStatus::Success);
    assert_eq!(execution.state().model_totals().turns, 2);
}

/// A node that may take a second calls a workflow that asks a person and then an agent.
fn asks_below() -> Vec<Plan> {
    let nodes = [("p", json!({"wait": "Continue?"})), ("a", json!({"ask": "echo"}))];
    vec![plan("outer", &[("w", json!({"call": "sub", "timeout": 1_000}))]), plan("sub", &nodes)]
}

/// As `sinew test` runs it, in virtual time.
#[test]
fn a_person_below_may_take_longer_than_the_node_that_waits() {
    struct Echo;
    impl Stub for Echo {
        fn call(&mut self, _now: Time, call: &Call) -> Stubbed {
            Stubbed::now(Ok(TaskReply::new(Value::clone(&call.ask.input))))
        }
    }
    for answer_at in [Some(7_200_000), None] {
        let (library, program) = library(asks_below());
        let mut sim = Sim::new(library, Echo);
        // A process that dies meanwhile changes nothing.
        sim.crash_after(4);
        if let Some(at) = answer_at {
            let answer = PersonAnswer { data: json!("yes"), ..PersonAnswer::default() };
            sim.signal(at, Signal::Answer(None, answer));
        }
        sim.run(program, json!({}), ExecutionMode::default(), 86_400_000);
        let execution = sim.execution();
        match answer_at {
            Some(_) => {
                assert_eq!(
                    outcome(execution),
                    (TerminalStatus::Success, json!({"node": "a"}), String::new())
                );
            }
            None => assert!(execution.state().outcome.is_none(), "it waits after a day"),
        }
    }
}

/// As `sinew run` runs it.
#[tokio::test]
async fn a_person_below_may_take_longer_than_the_node_that_waits_in_real_time() {
    let (library, program) = library(asks_below());
    let driver = Local::new(library, Arc::new(World::default()), Box::new(|_, _, _| {}));
    let control = driver.control();
    let idle = move |_: &Execution, execution: &Execution| {
        let act = execution.state().waiting().next().expect("somebody is waited for");
        let (control, sub) = (control.clone(), execution.id().clone());
        tokio::spawn(async move {
            // Longer than the node may take.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            let answer = PersonAnswer { data: json!("yes"), ..PersonAnswer::default() };
            control.input_to(&sub, EngineInput::Answer { act, answer }).await
        });
        true
    };
    let id = ExecutionId::of("test", "local", "5");
    let execution = driver.run(id, program, json!({}), ExecutionMode::default(), idle).await;
    assert_eq!(outcome(&execution), (TerminalStatus::Success, json!({"node": "a"}), String::new()));
}

#[tokio::test]
async fn the_journal_holds_what_agents_say_and_folds_to_the_same_state() {
    let execution = run(vec![plan("talks", &[("a", json!({"ask": "talks"}))])]).await;
    let facts = execution.journal().iter().flat_map(|round| &round.facts);
    let said: Vec<&Value> = facts
        .filter_map(|fact| if let Fact::Progressed { value, .. } = fact { Some(value) } else { None })
        .collect();
    assert_eq!(said, [&json!("half")]);
    let (id, program) = (execution.id().clone(), execution.program().clone());
    let again = Execution::recover(id, program, execution.journal());
    assert_eq!(again.state(), execution.state());
    assert!(matches!(again.outstanding().as_slice(), [sinew_engine::Action::Finish(_)]));
}
