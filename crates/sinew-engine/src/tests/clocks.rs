//! Timers that stop while an execution waits for a person, and deadlines that move by the duration
//! of the wait.

use serde_json::json;

use super::plan::graph;
use super::script::{check, parse};
use super::world::World;
use crate::{WaitingFor, execution_status, people_waits, waiting};

#[test]
fn a_callee_that_waits_for_a_person_stops_the_clocks_above_it() {
    // The attempt has 100 ms, its activation 250, its map 400, the execution 500. The wait
    // for a person lasts from 60 to 5060.
    let plan = json!({
        "@": { "limits": { "wall_ms": 500 } },
        "m": { "op": "map", "body": "b", "items": 1, "timeout": 400 },
        "b": { "attempt_timeout": 100, "timeout": 250 },
    });
    check(
        "m",
        plan.clone(),
        r"
        start      | +m m*1 +b[0] b[0]?1
        @60        |
        b[0]&x1    | b[0]&x
        @5060      |
        b[0]&x2-   | b[0]&x-
        @5099      |
        @5100      | b[0]!SINEW-6001 m!SINEW-6001 failure!SINEW-6001 end
",
    );
    check(
        "m",
        plan,
        r"
        start      | +m m*1 +b[0] b[0]?1
        @60        |
        b[0]&x1    | b[0]&x
        @5060      |
        b[0]=1     | b[0]=1 m=[1] success end
",
    );
}

#[test]
fn each_clock_moves_by_the_time_of_the_wait() {
    for (settings, due) in [
        (json!({ "b": { "attempt_timeout": 100 } }), "b[0]!SINEW-6001 m!SINEW-6001 failure!SINEW-6001 end"),
        (json!({ "b": { "timeout": 100 } }), "b[0]!SINEW-6002 m!SINEW-6002 failure!SINEW-6002 end"),
        (json!({ "m": { "timeout": 100 } }), "b[0]x m!SINEW-6002 failure!SINEW-6002 end"),
        (json!({ "@": { "limits": { "wall_ms": 100 } } }), "mx b[0]x failure!SINEW-6003 end"),
    ] {
        let mut plan = json!({ "m": { "op": "map", "body": "b", "items": 1 }, "b": {} });
        for (node, own) in settings.as_object().unwrap() {
            for (key, value) in own.as_object().unwrap() {
                plan[node][key] = value.clone();
            }
        }
        check(
            "m",
            plan,
            &format!(
                "
        start      | +m m*1 +b[0] b[0]?1
        @40        |
        b[0]&x1    | b[0]&x
        @7040      |
        b[0]&x2-   | b[0]&x-
        @7050      |
        b[0]&x3    | b[0]&x
        @9050      |
        b[0]&x4-   | b[0]&x-
        @9099      |
        @9100      | {due}
"
            ),
        );
    }
}

#[test]
fn own_questions_stop_the_clocks_above_them_and_not_their_due_time() {
    check(
        "m",
        json!({
            "@": { "limits": { "wall_ms": 100 } },
            "m": { "op": "map", "body": "w", "items": 1, "timeout": 100 },
            "w": { "op": "human", "wait": 7000 },
        }),
        r#"
        start      | +m m*1 +w[0] w[0] waits @7000
        @6999      |
        w[0]:yes   | w[0] answered w[0]="yes" m=["yes"] success end
"#,
    );
    check(
        "w",
        json!({ "@": { "limits": { "wall_ms": 100 } }, "w": { "op": "human", "wait": 7000 } }),
        "
        start      | +w w waits @7000
        @7000      | w expired w!expired failure!expired end
",
    );
}

#[test]
fn work_beside_a_question_keeps_its_clock() {
    check(
        "a b",
        json!({ "@": { "failure": "isolate" }, "a": { "attempt_timeout": 100 }, "b": { "attempt_timeout": 100 } }),
        "
        start      | +a a?1 +b b?1
        a&x1       | a&x
        @100       | b!SINEW-6001
        @9000      |
        a=1        | a=1 failure!SINEW-6001 end
",
    );
}

#[test]
fn reports_count_in_the_order_of_their_numbers() {
    check(
        "a",
        json!({ "a": { "attempt_timeout": 100 } }),
        "
        start      | +a a?1
        a&x2-      | a&x-
        a&x1       |
        a&x3       | a&x
        a&x3       |
        a&y1       | a&y
        a&x4-      | a&x-
        @500       |
        a&y2-      | a&y-
        @599       |
        @600       | a!SINEW-6001 failure!SINEW-6001 end
        a&x9       |
",
    );
}

#[test]
fn a_report_of_an_attempt_that_is_over_means_nothing() {
    check(
        "a",
        json!({ "a": { "attempt_timeout": 100, "retry": { "limit": 1 } } }),
        "
        start      | +a a?1
        a&x1       | a&x
        a!failure  | a?! a?2
        a#1&x2     |
        @100       | a!SINEW-6001 failure!SINEW-6001 end
",
    );
}

#[test]
fn an_execution_waits_if_only_people_are_waited_for() {
    let mut world = World::new(graph("a b", json!({})));
    for (input, status, people) in
        [("start", "running", 0), ("a&x1", "running", 1), ("b&y1", "waiting", 2), ("a&x2-", "running", 1)]
    {
        world.input(parse(&world, input)).unwrap();
        let state = world.state();
        assert_eq!(execution_status(state, &waiting(state)).as_str(), status, "{input}");
        let (waits, is_busy) = people_waits(state);
        assert_eq!((waits.len(), is_busy), (people, status == "running"), "{input}");
        assert!(waits.iter().all(|wait| matches!(wait.what, WaitingFor::CalleePerson { .. })), "{input}");
    }
}

#[test]
fn a_report_that_is_read_late_stops_clocks_from_the_question_on() {
    // Asked at 60, read at 4000, answered at 5060: 40 ms are left. The next question counts from 5060 on, not from 70.
    check(
        "m",
        json!({
            "@": { "limits": { "wall_ms": 500 } },
            "m": { "op": "map", "body": "b", "items": 1, "timeout": 400 },
            "b": { "attempt_timeout": 100, "timeout": 250 },
        }),
        r"
        start               | +m m*1 +b[0] b[0]?1
        b[0]&x1<60 @4000    | b[0]&x
        @5060               |
        b[0]&x2-            | b[0]&x-
        b[0]&x3<70 @5090    | b[0]&x
        @6090               |
        b[0]&x4-            | b[0]&x-
        @6129               |
        @6130               | b[0]!SINEW-6001 m!SINEW-6001 failure!SINEW-6001 end
",
    );
}
