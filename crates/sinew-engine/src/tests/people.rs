//! People's nodes: either only the node waits, or the whole execution.

use serde_json::json;

use super::script::check;

#[test]
fn only_the_node_waits() {
    check(
        "a>w w>z b>c",
        json!({ "w": { "op": "human" } }),
        r#"
        start      | +a a?1 +b b?1
        w:yes      | refused: activation 4294967295 does not wait for an answer
        a=1        | a=1 +w w waits
        b=1        | b=1 +c c?1
        w:yes      | w answered w="yes" +z z?1
        w:yes      | refused: activation 2 does not wait for an answer
        z=1        | z=1
        c=1        | c=1 success end
        w:yes      | refused: the execution has ended
"#,
    );
}

#[test]
fn a_person_may_say_no_or_nothing() {
    check(
        "w>z",
        json!({ "w": { "op": "human" } }),
        "
        start      | +w w waits
        w:no       | w answered w!hard failure!hard end
",
    );
    check(
        "w",
        json!({ "w": { "op": "human", "wait": 100, "remind": 60 } }),
        "
        start      | +w w waits @100
        @59        |
        @60        | w reminds
        @99        |
        @100       | w expired w!expired failure!expired end
",
    );
    check(
        "w>z",
        json!({ "w": { "op": "human", "wait": 100 } }),
        "
        start      | +w w waits @100
        @99        |
        @100       | w expired w!expired failure!expired end
        w:yes      | refused: the execution has ended
",
    );
}

#[test]
fn a_person_may_be_asked_again() {
    check(
        "w",
        json!({ "w": { "op": "human" } }),
        r#"
        start      | +w w waits
        w:again    | w answered w waits
        w:yes      | w answered w="yes" success end
"#,
    );
}

#[test]
fn all_freezes_and_goes_on_in_order() {
    let plan = json!({ "@": { "pause": "freeze", "order": "depth" }, "v": { "op": "human" }, "w": { "op": "human" } });
    check(
        "a>b b>c v w d",
        plan,
        r#"
        start      | +a a?1 +v v waits w queues d deferred
        a=1        | a=1 b deferred
        v:yes      | v answered v="yes" d back +d d?1
        d=1        | d=1 b back +b b?1
        b=2        | b=2 +c c?1
        c=3        | c=3 w back +w w waits
        w:yes      | w answered w="yes" success end
"#,
    );
}

#[test]
fn what_running_work_leads_to_comes_after_the_answer() {
    let plan = json!({ "@": { "pause": "freeze" }, "w": { "op": "human" }, "v": { "op": "human" } });
    check(
        "a>b c>v w>z",
        plan,
        r#"
        start      | +a a?1 +c c?1 +w w waits
        a=1        | a=1 b deferred
        c=1        | c=1 v deferred
        w:yes      | w answered w="yes" +z z?1
        z=1        | z=1 b back +b b?1
        b=1        | b=1 v back +v v waits
        v:yes      | v answered v="yes" success end
"#,
    );
}

#[test]
fn a_second_person_does_not_undo_the_first_ones_freeze() {
    let plan = json!({ "@": { "pause": "freeze" }, "w": { "op": "human" }, "a": { "then": "wait" } });
    check(
        "a>b c>d w>x",
        plan.clone(),
        r#"
        start      | +a a?1 +c c?1 +w w waits
        a=1        | a waits
        c=1        | c=1 d deferred
        a:yes      | a answered a="yes" b deferred
        w:yes      | w answered w="yes" +x x?1
        x=1        | x=1 d back +d d?1
        d=1        | d=1 b back +b b?1
        b=1        | b=1 success end
"#,
    );
    check(
        "a>b c>d w>x",
        plan,
        r#"
        start      | +a a?1 +c c?1 +w w waits
        a=1        | a waits
        w:yes      | w answered w="yes" x deferred
        c=1        | c=1 d deferred
        a:yes      | a answered a="yes" +b b?1
        x=1        |
        b=1        | b=1 x back +x x?1
        d=1        |
"#,
    );
}

#[test]
fn a_sleeping_child_does_not_wake_into_the_freeze() {
    let plan = json!({ "@": { "pause": "freeze" }, "w": { "op": "human" }, "m": { "op": "map", "body": "b", "items": 1, "delay": 50 } });
    check(
        "m w2>w",
        plan,
        r#"
        start      | +m m*1 +w2 w2?1 b[0] sleeps @50
        w2=1       | w2=1 +w w waits
        @50        | b[0] deferred
        w:yes      | w answered w="yes" b[0] back +b[0] b[0]?1
        b[0]=1     | b[0]=1 m=[1] success end
"#,
    );
}

#[test]
fn the_end_of_a_wait_unfreezes() {
    let plan =
        json!({ "@": { "pause": "freeze", "failure": "isolate" }, "w": { "op": "human", "wait": 100 } });
    check(
        "a>b w",
        plan,
        "
        start      | +a a?1 +w w waits @100
        a=1        | a=1 b deferred
        @100       | w expired w!expired b back +b b?1
        b=1        | b=1 failure!expired end
",
    );
}
