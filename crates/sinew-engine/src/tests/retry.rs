//! New attempts, and an operator's retry.

use std::collections::BTreeMap;

use serde_json::json;

use super::plan::{graph, plan};
use super::script::check;
use super::world::World;
use crate::{EngineInput, ExecutionMode, Fact, RetryRequest, TaskReply};

#[test]
fn as_often_as_the_limit_says() {
    check(
        "a",
        json!({ "a": { "retry": { "limit": 2 } } }),
        "
        start      | +a a?1
        a!         | a?! a?2
        a!         | a?! a?3
        a!         | a!failure failure!failure end
",
    );
    check(
        "a",
        json!({ "a": { "retry": { "limit": 2 } } }),
        "
        start      | +a a?1
        a!         | a?! a?2
        a=1        | a=1 success end
",
    );
}

#[test]
fn only_what_the_policy_names() {
    check(
        "a",
        json!({ "a": { "retry": { "limit": 9, "on": "failure" } } }),
        "
        start      | +a a?1
        a!failure  | a?! a?2
        a!error    | a!error failure!error end
",
    );
    check(
        "a",
        json!({ "a": { "retry": { "limit": 9, "on": "error" } } }),
        "
        start      | +a a?1
        a!error    | a?! a?2
        a!failure  | a!failure failure!failure end
",
    );
    check(
        "a",
        json!({ "a": { "retry": { "limit": 9 } } }),
        "
        start      | +a a?1
        a!hard     | a!hard failure!hard end
",
    );
    check(
        "a",
        json!({ "a": { "retry": { "limit": 9 } } }),
        "
        start      | +a a?1
        a!invalid  | a!invalid failure!invalid end
",
    );
}

#[test]
fn delays_grow_up_to_the_longest() {
    check(
        "a",
        json!({ "a": { "retry": { "limit": 9, "delay_ms": 100, "factor": 2.0, "max_delay_ms": 300 } } }),
        "
        start      | +a a?1
        a!         | a?! a backs off @100
        @99        |
        @100       | a?2
        a!         | a?! a backs off @300
        @300       | a?3
        a!         | a?! a backs off @600
        @600       | a?4
        a!after900 | a?! a backs off @1500
        @1500      | a?5
        a!after99999999999999 | a?! a backs off @3601500
",
    );
}

#[test]
fn jitter_is_the_same_every_time_and_bounded() {
    let due = |jitter: u64| {
        let settings = json!({ "a": { "retry": { "limit": 9, "delay_ms": 100, "jitter_ms": jitter } } });
        let mut world = World::new(graph("a", settings));
        world
            .input(EngineInput::Start {
                input: json!(1),
                mode: ExecutionMode::default(),
                depth: 0,
                chain: vec![],
                paused: None,
            })
            .unwrap();
        let mut waits = Vec::new();
        for attempt in 1..9 {
            let result = Err(super::adapter::fault("error"));
            let facts = world.input(EngineInput::Done { act: 0, attempt, result }).unwrap();
            let Some(Fact::BackedOff { until, .. }) = facts.last() else { panic!("{facts:?}") };
            waits.push(until - world.now);
            world.now = *until;
            world.input(EngineInput::Tick).unwrap();
        }
        waits
    };
    assert_eq!(due(50), due(50));
    assert!(due(50).iter().all(|wait| (100..=150).contains(wait)));
    assert!(due(50).windows(2).any(|two| two[0] != two[1]), "attempts do not all wait the same");
    assert_eq!(due(u64::MAX).len(), 8, "no overflow");
}

#[test]
fn what_the_adapter_judges_bad_is_tried_again() {
    check(
        "a",
        json!({ "a": { "then": "doubt", "retry": { "limit": 1 } } }),
        "
        start      | +a a?1
        a=false    | a?2
        a=2        | a=2 success end
",
    );
    check(
        "a",
        json!({ "a": { "judge": true, "retry": { "limit": 9 } } }),
        "
        start      | +a a?1
        a=1        | a?judge:2/1
        a=false    | a!failure failure!failure end
",
    );
}

#[test]
fn late_and_foreign_results_change_nothing() {
    check(
        "a>b",
        json!({ "a": { "retry": { "limit": 1 } } }),
        "
        start      | +a a?1
        a!         | a?! a?2
        a#1=5      | a#1 late
        a#9=5      |
        a#0=5      |
        nobody=5   |
        a=1        | a=1 +b b?1
        a#2=7      | a#2 late
        b=1        | b=1 success end
        b=1        | b#1 late
        b!         | b#1 late
        nobody%x   |
",
    );
}

#[test]
fn a_retry_keeps_what_succeeded() {
    check(
        "a>b b>d c>d d>e",
        json!({}),
        "
        start      | +a a?1 +c c?1
        a=1        | a=1 +b b?1
        c=2        | c=2
        retry      | refused: the execution has not ended, so there is nothing to retry
        b!         | b!failure failure!failure end
        retry nobody | refused: the workflow has no node 'nobody'
        retry c    | refused: node 'c' did not fail
        retry d    | refused: node 'd' never ran, so it cannot run again
        retry      | reopened(b;d e) +b_1 b_1?1
        b_1=3      | b_1=3 +d d?1
        d=4        | d=4 +e e?1
        e=5        | e=5 success end
        retry      | refused: nothing in the execution failed or was cancelled
",
    );
}

#[test]
fn a_retry_runs_what_was_cancelled() {
    check(
        "a>z b>z",
        json!({ "@": { "exits": { "x": "always" } } }),
        "
        start      | +a a?1 +b b?1
        a=1        | a=1
        cancel     | bx cancelled +x x?1
        x=1        | x=1 end
        retry      | reopened(b;z) +b_1 b_1?1
        b_1=1      | b_1=1 +z z?1
        z=1        | z=1 success +x_1 x_1?1
        x_1=1      | x_1=1 end
",
    );
}

#[test]
fn a_retry_of_some_leaves_the_other_failures() {
    check(
        "a>m b>m a>n b>o",
        json!({ "@": { "failure": "isolate" } }),
        "
        start      | +a a?1 +b b?1
        a!         | a!failure m/ n/
        b!error    | b!error o/ failure!failure end
        retry a    | reopened(a;m n) +a_1 a_1?1
        a_1=1      | a_1=1 m/ +n n?1
        n=1        | n=1 failure!error end
        retry      | reopened(b;m o) +b_1 b_1?1
        b_1=1      | b_1=1 +m m?1 +o o?1
        o=1        | o=1
        m=1        | m=1 success end
",
    );
}

#[test]
fn a_retry_of_only_some_leaves_what_was_cancelled_too() {
    // Dependent nodes are not run, so the end is the same whatever the outcome of the node.
    check(
        "a>m b>m a>n",
        json!({ "@": { "failure": "stop" } }),
        "
        start      | +a a?1 +b b?1
        a!hard     | a!hard bx failure!hard end
        retry only a | reopened(a;m n) +a_1 a_1?1
        a_1=1      | a_1=1 +m m?1 +n n?1
        n=1        | n=1
        m=1        | m=1 failure!SINEW-6005 end
        retry only b | reopened(b;m) +b_1 b_1?1
        b_1=1      | b_1=1 +m_1 m_1?1
        m_1=1      | m_1=1 success end
",
    );
    check(
        "a>m b>n",
        json!({ "@": { "failure": "isolate" } }),
        "
        start      | +a a?1 +b b?1
        a!         | a!failure m/
        b!error    | b!error n/ failure!failure end
        retry only b | reopened(b;n) +b_1 b_1?1
        b_1=1      | b_1=1 +n n?1
        n=1        | n=1 failure!failure end
        retry only a b | refused: node 'b' did not fail
        retry only a | reopened(a;m) +a_1 a_1?1
        a_1!hard   | a_1!hard m/ failure!hard end
",
    );
    // Replies are discarded while a failure drains; a failure that a retry left unchanged drains
    // nothing.
    check(
        "a b",
        json!({ "@": { "failure": "drain" } }),
        "
        start      | +a a?1 +b b?1
        a!hard     | a!hard
        b=1        | bx failure!hard end
        retry only b | reopened(b;) +b_1 b_1?1
        b_1=1      | b_1=1 failure!hard end
",
    );
}

#[test]
fn a_retry_asks_with_another_input() {
    check(
        "a>b b>c",
        json!({ "b": { "retry": { "limit": 1 } }, "a": { "op": "pure" } }),
        "
        start 1    | +a a=1 +b b?1
        b!hard     | b!hard failure!hard end
        retry b < 7 | reopened(b;c) +b_1 b_1?1<7
        b_1!       | b_1?! b_1?2
        b_1!hard   | b_1!hard failure!hard end
        retry      | reopened(b_1;c) +b_2 b_2?1<7
        b_2!hard   | b_2!hard failure!hard end
        retry only b < null | reopened(b_2;c) +b_3 b_3?1<null
        b_3=2      | b_3=2 +c c?1
        c=3        | c=3 success end
        retry b < 1 | refused: nothing in the execution failed or was cancelled
",
    );
    // Only the first work request: the dialect's requests after the reply are its own.
    check(
        "a",
        json!({ "a": { "judge": true } }),
        "
        start      | +a a?1
        a!hard     | a!hard failure!hard end
        retry a < 7 | reopened(a;) +a_1 a_1?1<7
        a_1=5      | a_1?judge:2/1
        a_1=true   | a_1=5 success end
",
    );
}

#[test]
fn an_input_is_refused_where_nothing_takes_it() {
    check(
        "a b w>z h m",
        json!({
            "@": { "failure": "stop", "limits": { "value_bytes": 60 }, "exits": { "x": "always" } },
            "x": { "op": "pure" }, "h": { "op": "human" }, "m": { "op": "map", "body": "c", "items": 1 },
        }),
        "
        start      | +a a?1 +b b?1 +w w?1 +h h waits +m m*1 +c[0] c[0]?1
        a!hard     | a!hard bx wx hx mx c[0]x failure!hard +x x=null end
        retry a b < 1 | refused: an input is for one node or for the whole execution, and 2 nodes are named
        retry h < 1 | refused: node 'h' calls no agent or workflow, so its input cannot be replaced
        retry m < 1 | refused: node 'm' calls no agent or workflow, so its input cannot be replaced
        retry q < 1 | refused: the workflow has no node 'q'
        retry z < 1 | refused: node 'z' never ran, so it cannot run again
        retry c < 1 | refused: node 'c' does not run on its own; name the node that runs it
        retry x < 1 | refused: node 'x' does not run on its own; name the node that runs it
        retry a < \"0123456789012345678901234567890123456789012345678901234567890\" | refused: the input is refused: the input is larger than 60 bytes
        retry < \"0123456789012345678901234567890123456789012345678901234567890\" | refused: the input is refused: the input is larger than 60 bytes
",
    );
    check(
        "a>b? c>b?",
        json!({ "b": { "join": 1 } }),
        "
        start      | +a a?1 +c c?1
        retry < 1  | refused: the execution has not ended, so there is nothing to retry
        c=1        | c=1 +b b?1
        cancel     | ax bx cancelled end
        retry b < 1 | refused: node 'b' depends on other nodes that run again, so its input is theirs; replace the input of a node that runs again alone
        retry only b < 1 | reopened(b;) +b_1 b_1?1<1
",
    );
}

#[test]
fn an_execution_begins_afresh_with_another_input() {
    // Including traversals, budgets of edges and exits.
    check(
        "a>b b>b2#1 b2>b",
        json!({ "a": { "op": "pure" }, "b": { "join": "each" }, "b2": { "join": "once", "op": "pure" },
                "@": { "exits": { "x": "always" } }, "x": { "op": "pure" } }),
        "
        start 1    | +a a=1 +b b?1
        b=2        | b=2 +b2 b2=2 +b_1 b_1?1
        b_1!hard   | b_1!hard failure!hard +x x=null end
        retry < 5  | afresh(5) +a_1 a_1=5 +b_2 b_2?1
        b_2=2      | b_2=2 +b2_1 b2_1=2 +b_3 b_3?1
        b_3=2      | b_3=2 success +x_1 x_1=null end
        retry < 5  | refused: nothing in the execution failed or was cancelled
",
    );
    // Children are not kept, and an execution whose input was rejected starts.
    check(
        "m",
        json!({ "m": { "op": "map", "body": "b" }, "@": { "refuse": 1 } }),
        "
        start 1    | failure!invalid end
        retry < 1  | refused: the input is refused: it is wrong
        retry < [2,3] | afresh([2,3]) +m m*2 +b[0] b[0]?1 +b[1] b[1]?1
        b[0]=1     | b[0]=1
        b[1]!hard  | b[1]!hard m!hard failure!hard end
        retry < [2] | afresh([2]) +m_1 m_1*1 +b[0] b[0]?1
        b[0]=1     | b[0]=1 m_1=[1] success end
",
    );
    check(
        "a",
        json!({}),
        "
        start 1 {\"until\": [\"q\"]} | failure!SINEW-6007 end
        retry < 1  | refused: the input is refused: the workflow has no node 'q'
        retry      | refused: nothing in the execution failed or was cancelled
",
    );
}

#[test]
fn a_retry_keeps_children_that_succeeded() {
    check(
        "m>z",
        json!({ "m": { "op": "map", "body": "b", "items": 3 } }),
        "
        start      | +m m*3 +b[0] b[0]?1 +b[1] b[1]?1 +b[2] b[2]?1
        b[0]=1     | b[0]=1
        b[2]=1     | b[2]=1
        b[1]!      | b[1]!failure m!failure failure!failure end
        retry      | reopened(m;z) +m_1 m_1*3 +b[0] b[0]==1 +b[1] b[1]?1 +b[2] b[2]==1
        b[1]=5     | b[1]=5 m_1=[1,5,1] +z z?1
        z=1        | z=1 success end
",
    );
    check(
        "l",
        json!({ "l": { "op": "loop", "body": "b", "times": 3 } }),
        "
        start      | +l l*1 +b[0] b[0]?1
        b[0]=1     | b[0]=1 l*1 +b[1] b[1]?1
        b[1]=2     | b[1]=2 l*1 +b[2] b[2]?1
        b[2]!      | b[2]!failure l!failure failure!failure end
        retry      | reopened(l;) +l_1 l_1*1 +b[0] b[0]==1 l_1*1 +b[1] b[1]==2 l_1*1 +b[2] b[2]?1
        b[2]=3     | b[2]=3 l_1=[1,2,3] success end
",
    );
}

#[test]
fn a_long_loop_is_retried_without_deep_recursion() {
    let settings = json!({ "@": { "limits": { "iterations": 15000 } }, "l": { "op": "loop", "body": "b", "times": 15000 } });
    let mut world = World::new(graph("l", settings));
    // Checking after each input would take quadratic time here.
    let mut give = |input| world.machine.handle(0, input).unwrap().round.facts;
    give(EngineInput::Start {
        input: json!(1),
        mode: ExecutionMode::default(),
        depth: 0,
        chain: vec![],
        paused: None,
    });
    let done = |act, result| EngineInput::Done { act, attempt: 1, result };
    for act in 1..15000 {
        give(done(act, Ok(TaskReply::new(json!(act)))));
    }
    give(done(15000, Err(super::adapter::fault("hard"))));
    let facts = give(EngineInput::Retry { retry: RetryRequest::default(), reason: "me".into() });
    assert_eq!(
        facts.iter().filter(|fact| matches!(fact, Fact::Completed { reused: true, .. })).count(),
        14999
    );
    assert!(matches!(facts.last(), Some(Fact::Dispatched { .. })));
}

/// `plan_retry` announces exactly the effects of the retry.
#[test]
fn the_plan_of_a_retry_is_what_happens() {
    let settings = json!({
        "@": { "failure": "isolate", "exits": { "x": "always" } },
        "m": { "op": "map", "body": "b", "items": 4 }, "x": { "op": "pure" },
        "s": { "skip": 1 },
    });
    let graph = crate::IndexedPlan::new(plan("a>m m>z c>z c>d s", settings).into()).unwrap();
    let mut world = World::new(graph);
    world
        .input(EngineInput::Start {
            input: json!(1),
            mode: ExecutionMode::default(),
            depth: 0,
            chain: vec![],
            paused: None,
        })
        .unwrap();
    let mut fails = 1;
    while let Some((act, attempt)) = world.tasks.first().copied() {
        let bad = super::script::path(&world, act) == "b[2]" && fails > 0;
        fails -= u32::from(bad);
        let result = if bad { Err(super::adapter::fault("hard")) } else { Ok(TaskReply::new(json!(act))) };
        world.input(EngineInput::Done { act, attempt, result }).unwrap();
    }
    let told = world.machine.plan_retry(&RetryRequest::default()).unwrap();
    assert_eq!(told.keep, ["a", "c", "d", "s"]);
    assert_eq!(told.rerun, BTreeMap::from([("m".to_owned(), 1)]));
    assert_eq!(told.reset, ["z"]);
    let before = world.state().acts.len();
    world.input(EngineInput::Retry { retry: RetryRequest::default(), reason: "me".into() }).unwrap();
    while let Some((act, attempt)) = world.tasks.first().copied() {
        world.input(EngineInput::Done { act, attempt, result: Ok(TaskReply::new(json!(act))) }).unwrap();
    }
    assert!(
        world.state().ended
            && world.state().outcome.as_ref().unwrap().status == crate::TerminalStatus::Success
    );
    let again: Vec<String> = (before..world.state().acts.len())
        .filter(|act| !world.state().acts[*act].reused)
        .map(|act| super::script::path(&world, act as u32))
        .collect();
    assert_eq!(again, ["m_1", "b[2]", "z", "x_1"]);
    world.check_stored();
}
