//! Deadlines and sleep.

use std::collections::BTreeSet;

use serde_json::json;

use super::plan::graph;
use super::script::check;
use super::world::World;
use crate::fact::{ExecutionMode, Fact};
use crate::{Action, EngineInput, TaskReply};

#[test]
fn an_attempt_is_given_up_and_tried_again() {
    check(
        "a",
        json!({ "a": { "attempt_timeout": 100, "retry": { "limit": 1, "on": "error" } } }),
        "
        start      | +a a?1
        @99        |
        @100       | a?! a?2
        a#1=1      | a#1 late
        @200       | a!SINEW-6001 failure!SINEW-6001 end
        a#2=1      | a#2 late
",
    );
}

#[test]
fn the_ask_may_name_its_own_time() {
    check(
        "a",
        json!({ "a": { "attempt_timeout": 100, "ask_timeout": 50 } }),
        "
        start      | +a a?1
        @50        | a!SINEW-6001 failure!SINEW-6001 end
",
    );
}

#[test]
fn the_whole_activation_has_a_time() {
    check(
        "a>b",
        json!({ "a": { "timeout": 250, "attempt_timeout": 100, "retry": { "limit": 9, "delay_ms": 20 } } }),
        "
        start      | +a a?1
        @100       | a?! a backs off @120
        @120       | a?2
        @220       | a?! a backs off @240
        @250       | a?3 a!SINEW-6002 failure!SINEW-6002 end
",
    );
    check(
        "m",
        json!({ "m": { "op": "map", "body": "b", "items": 2, "timeout": 100 } }),
        "
        start      | +m m*2 +b[0] b[0]?1 +b[1] b[1]?1
        b[0]=1     | b[0]=1
        @100       | b[1]x m!SINEW-6002 failure!SINEW-6002 end
        b[1]=1     | b[1]#1 late
",
    );
    check(
        "w s",
        json!({ "@": { "failure": "isolate" }, "w": { "op": "human", "timeout": 100 }, "s": { "op": "delay", "sleep": 500, "timeout": 200 } }),
        "
        start      | +w w waits +s s sleeps @500
        @300       | w!SINEW-6002 s!SINEW-6002 failure!SINEW-6002 end
",
    );
}

#[test]
fn the_execution_has_a_time() {
    check(
        "a>b m",
        json!({ "@": { "limits": { "wall_ms": 1000 }, "exits": { "x": "failure" } }, "m": { "op": "map", "body": "c", "items": 2, "limit": 1 } }),
        "
        start      | +a a?1 +m m*2 +c[0] c[0]?1
        @999       |
        @1000      | ax mx c[0]x failure!SINEW-6003 +x x?1
        x=1        | x=1 end
        retry      | reopened(a m;b) +a_1 a_1?1 +m_1 m_1*2 +c[0] c[0]?1
        a_1=1      | a_1=1 +b b?1
        @2000      | m_1x c[0]x bx failure!SINEW-6003 +x_1 x_1?1
",
    );
}

#[test]
fn sleep_ends() {
    check(
        "s>a",
        json!({ "s": { "op": "delay", "sleep": 100 } }),
        r#"
        start      | +s s sleeps @100
        @99        |
        @100       | s="woke" +a a?1
        a=1        | a=1 success end
"#,
    );
    check(
        "a",
        json!({ "a": { "then": "nap" } }),
        r#"
        start      | +a a?1
        a=1        | a sleeps @100
        @100       | a="woke" success end
"#,
    );
}

#[test]
fn what_was_due_happens_in_order() {
    check(
        "a b>c",
        json!({ "a": { "op": "delay", "sleep": 200 }, "b": { "op": "delay", "sleep": 100 }, "c": { "op": "delay", "sleep": 50 } }),
        r#"
        start      | +a a sleeps @200 +b b sleeps @100
        @500       | b="woke" +c c sleeps @550 a="woke"
        @550       | c="woke" success end
"#,
    );
}

#[test]
fn who_is_told_is_who_was_asked() {
    let mut world = World::new(graph("a", json!({ "a": { "attempt_timeout": 100, "instead": "b" } })));
    world
        .input(EngineInput::Start {
            input: json!(1),
            mode: ExecutionMode::default(),
            depth: 0,
            chain: vec![],
            paused: None,
        })
        .unwrap();
    world.now = 100;
    let decided = world.machine.handle(world.now, EngineInput::Tick).unwrap();
    let told: Vec<String> = decided
        .actions
        .iter()
        .map(|action| match action {
            Action::Send { attempt, ask, .. } => format!("send {attempt} to {}", ask.target.name()),
            Action::Cancel { attempt, ask, .. } => format!("cancel {attempt} at {}", ask.target.name()),
            Action::Finish(_) => "finish".to_owned(),
        })
        .collect();
    assert_eq!(told, ["cancel 1 at a", "send 2 to b"]);
}

#[test]
fn a_task_that_no_process_took_says_so() {
    let timeout = json!({ "a": { "attempt_timeout": 100, "retry": { "limit": 1, "on": "error" } } });
    let mut world = World::new(graph("a", timeout));
    let (input, mode) = (json!(1), ExecutionMode::default());
    world.input(EngineInput::Start { input, mode, depth: 0, chain: vec![], paused: None }).unwrap();
    let not_taken = |attempt, is_online| EngineInput::NotTaken { act: 0, attempt, is_online };
    let fault_of = |facts: &[Fact]| {
        facts.iter().find_map(|fact| match fact {
            Fact::Replied { result: Err(fault), .. } => Some((fault.code.to_string(), fault.message.clone())),
            _ => None,
        })
    };
    world.now = 99;
    assert!(world.input(not_taken(1, false)).unwrap().is_empty(), "its time has not run out");
    world.now = 100;
    let facts = world.input(not_taken(1, false)).unwrap();
    let fault = fault_of(&facts).unwrap();
    assert_eq!(fault.0, "SINEW-6012");
    assert_eq!(fault.1, "no process of agent 'a' took the task within 0.1 s: none is online");
    assert_eq!(world.tasks, BTreeSet::from([(0, 2)]), "the next attempt is sent");
    world.now = 200;
    assert!(world.input(not_taken(1, true)).unwrap().is_empty(), "the attempt is over");
    let fault = fault_of(&world.input(not_taken(2, true)).unwrap()).unwrap();
    assert!(fault.1.ends_with("its processes were busy"), "{fault:?}");
}

#[test]
fn the_time_of_work_is_in_the_fact_and_nowhere_else() {
    let mut world = World::new(graph("a", json!({ "a": { "retry": { "limit": 1, "on": "error" } } })));
    let (input, mode) = (json!(1), ExecutionMode::default());
    world.input(EngineInput::Start { input, mode, depth: 0, chain: vec![], paused: None }).unwrap();
    let worked = |facts: Vec<Fact>| {
        facts.into_iter().find_map(|fact| match fact {
            Fact::Replied { worked_ms, result, .. } => Some((worked_ms, result.ok()?.worked_ms)),
            _ => None,
        })
    };
    let reply = TaskReply { worked_ms: Some(7), ..TaskReply::new(json!(1)) };
    let facts = world.input(EngineInput::Done { act: 0, attempt: 1, result: Ok(reply) }).unwrap();
    assert_eq!(worked(facts), Some((Some(7), None)));
}
