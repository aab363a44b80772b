//! Maps, loops and forks.

use serde_json::json;

use super::script::check;

#[test]
fn a_map_keeps_the_order_of_its_items() {
    check(
        "m>z",
        json!({ "m": { "op": "map", "body": "b" } }),
        "
        start [7,8,9] | +m m*3 +b[0] b[0]?1 +b[1] b[1]?1 +b[2] b[2]?1
        b[2]=1     | b[2]=1
        b[0]=2     | b[0]=2
        b[1]=3     | b[1]=3 m=[2,3,1] +z z?1
        z=0        | z=0 success end
",
    );
}

#[test]
fn a_map_of_nothing_is_done() {
    check(
        "m>z",
        json!({ "m": { "op": "map", "body": "b" } }),
        "
        start []   | +m m*0 m=[] +z z?1
        z=0        | z=0 success end
",
    );
}

#[test]
fn a_map_runs_no_more_than_its_limit() {
    check(
        "m",
        json!({ "m": { "op": "map", "body": "b", "items": 4, "limit": 2 } }),
        "
        start      | +m m*4 +b[0] b[0]?1 +b[1] b[1]?1
        b[1]=1     | b[1]=1 +b[2] b[2]?1
        b[2]=1     | b[2]=1 +b[3] b[3]?1
        b[0]=1     | b[0]=1
        b[3]=1     | b[3]=1 m=[1,1,1,1] success end
",
    );
}

#[test]
fn a_failed_child_ends_the_others_if_told_so() {
    check(
        "m",
        json!({ "m": { "op": "map", "body": "b", "items": 3, "limit": 2, "fail_fast": true } }),
        "
        start      | +m m*3 +b[0] b[0]?1 +b[1] b[1]?1
        b[1]!      | b[1]!failure b[0]x m!failure failure!failure end
        b[0]=1     | b[0]#1 late
",
    );
    check(
        "m",
        json!({ "m": { "op": "map", "body": "b", "items": 3, "limit": 2 } }),
        "
        start      | +m m*3 +b[0] b[0]?1 +b[1] b[1]?1
        b[1]!      | b[1]!failure +b[2] b[2]?1
        b[0]=1     | b[0]=1
        b[2]=1     | b[2]=1 m!failure failure!failure end
",
    );
}

#[test]
fn children_have_attempts_of_their_own() {
    check(
        "m",
        json!({ "m": { "op": "map", "body": "b", "items": 2 }, "b": { "retry": { "limit": 1 } } }),
        "
        start      | +m m*2 +b[0] b[0]?1 +b[1] b[1]?1
        b[0]!      | b[0]?! b[0]?2
        b[1]=1     | b[1]=1
        b[0]=2     | b[0]=2 m=[2,1] success end
",
    );
}

#[test]
fn a_loop_runs_one_after_another_with_a_pause_between() {
    check(
        "l",
        json!({ "l": { "op": "loop", "body": "b", "times": 3 } }),
        "
        start      | +l l*1 +b[0] b[0]?1
        b[0]=1     | b[0]=1 l*1 +b[1] b[1]?1
        b[1]=2     | b[1]=2 l*1 +b[2] b[2]?1
        b[2]=3     | b[2]=3 l=[1,2,3] success end
",
    );
    check(
        "l",
        json!({ "l": { "op": "loop", "body": "b", "times": 2, "delay": 100 } }),
        "
        start      | +l l*1 b[0] sleeps @100
        @100       | +b[0] b[0]?1
        b[0]=1     | b[0]=1 l*1 b[1] sleeps @200
        @200       | +b[1] b[1]?1
        b[1]=2     | b[1]=2 l=[1,2] success end
",
    );
}

#[test]
fn a_failed_iteration_fails_the_loop() {
    check(
        "l>z",
        json!({ "l": { "op": "loop", "body": "b", "times": 3 } }),
        "
        start      | +l l*1 +b[0] b[0]?1
        b[0]!      | b[0]!failure l!failure failure!failure end
",
    );
}

#[test]
fn a_fork_runs_its_branches_together() {
    check(
        "f>z",
        json!({ "f": { "op": "fork", "bodies": ["b", "c"] } }),
        "
        start      | +f f*2 +b[0] b[0]?1 +c[1] c[1]?1
        c=1        |
        b=1        |
        c[1]=2     | c[1]=2
        b[0]=1     | b[0]=1 f=[1,2] +z z?1
        z=1        | z=1 success end
",
    );
}

#[test]
fn maps_nest() {
    check(
        "m",
        json!({ "m": { "op": "map", "body": "l", "items": 2 }, "l": { "op": "loop", "body": "b", "times": 2 } }),
        "
        start      | +m m*2 +l[0] l[0]*1 +l[1] l[1]*1 +b[0][0] b[0][0]?1 +b[1][0] b[1][0]?1
        b[0][0]=1  | b[0][0]=1 l[0]*1 +b[0][1] b[0][1]?1
        b[1][0]=2  | b[1][0]=2 l[1]*1 +b[1][1] b[1][1]?1
        b[0][1]=3  | b[0][1]=3 l[0]=[1,3]
        b[1][1]=4  | b[1][1]=4 l[1]=[2,4] m=[[1,3],[2,4]] success end
",
    );
    check("m", json!({ "m": { "op": "map", "body": "l", "items": 2, "fail_fast": true }, "l": { "op": "map", "body": "b", "items": 2 } }), "
        start      | +m m*2 +l[0] l[0]*2 +l[1] l[1]*2 +b[0][0] b[0][0]?1 +b[0][1] b[0][1]?1 +b[1][0] b[1][0]?1 +b[1][1] b[1][1]?1
        b[0][1]!   | b[0][1]!failure
        b[0][0]=1  | b[0][0]=1 l[0]!failure b[1][0]x b[1][1]x l[1]x m!failure failure!failure end
");
}

#[test]
fn an_adapter_that_never_ends_is_ended() {
    check(
        "m",
        json!({ "m": { "op": "map", "body": "b", "items": 1, "stuck": true } }),
        "
        start      | +m m*1 +b[0] b[0]?1
        b[0]=1     | b[0]=1 m!SINEW-6004 failure!SINEW-6004 end
",
    );
}

#[test]
fn computed_children_need_no_stack() {
    check(
        "l",
        json!({ "l": { "op": "loop", "body": "b", "times": 2 }, "b": { "op": "pure", "done": 1 } }),
        "
        start      | +l l*1 +b[0] b[0]=1 l*1 +b[1] b[1]=1 l=[1,1] success end
",
    );
}
