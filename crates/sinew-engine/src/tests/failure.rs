//! Effects of a failed activation on the other activations.

use serde_json::json;

use super::script::check;

const GRAPH: &str = "a>b b>z c>z d";

#[test]
fn stop_cancels_the_siblings() {
    check(
        GRAPH,
        json!({}),
        "
        start      | +a a?1 +c c?1 +d d?1
        a!         | a!failure cx dx failure!failure end
        c=1        | c#1 late
",
    );
}

#[test]
fn drain_lets_running_work_end_and_discards_it() {
    check(
        "a>b c d>e w s",
        json!({ "@": { "failure": "drain" }, "w": { "op": "human" }, "s": { "op": "delay" } }),
        "
        start      | +a a?1 +c c?1 +d d?1 +w w waits +s s sleeps @100
        a!         | a!failure wx sx
        c=1        | cx
        d!         | dx failure!failure end
",
    );
}

#[test]
fn drain_ends_maps_whose_children_still_run() {
    check(
        "a m>z",
        json!({ "@": { "failure": "drain" }, "m": { "op": "map", "body": "b", "items": 3, "limit": 2 } }),
        "
        start      | +a a?1 +m m*3 +b[0] b[0]?1 +b[1] b[1]?1
        b[0]=1     | b[0]=1 +b[2] b[2]?1
        a!         | a!failure mx
        b[1]=1     | b[1]x
        b[2]=1     | b[2]x failure!failure end
",
    );
}

#[test]
fn exit_nodes_of_a_drained_execution_are_heard() {
    check(
        "a b",
        json!({ "@": { "failure": "drain", "exits": { "x": "always" } }, "x": { "retry": { "limit": 1 } } }),
        "
        start      | +a a?1 +b b?1
        a!         | a!failure
        b=1        | bx failure!failure +x x?1
        x!         | x?! x?2
        x=1        | x=1 end
",
    );
}

#[test]
pub(super) fn isolate_skips_what_depends_on_the_failure_and_nothing_else() {
    check(
        "a>b b>z c>z c>d",
        json!({ "@": { "failure": "isolate" } }),
        "
        start      | +a a?1 +c c?1
        a!         | a!failure b/ z/
        c=1        | c=1 +d d?1
        d=1        | d=1 failure!failure end
",
    );
}

#[test]
pub(super) fn isolate_leaves_a_quorum_that_can_do_without() {
    check(
        "a>j? b>j? j>k",
        json!({ "@": { "failure": "isolate" }, "j": { "join": 1 } }),
        "
        start      | +a a?1 +b b?1
        a!         | a!failure
        b=1        | b=1 +j j?1
        j=1        | j=1 +k k?1
        k=1        | k=1 failure!failure end
",
    );
}

#[test]
fn the_first_failure_is_the_cause() {
    check(
        "a b",
        json!({ "@": { "failure": "isolate" } }),
        "
        start      | +a a?1 +b b?1
        b!error    | b!error
        a!invalid  | a!invalid failure!error end
",
    );
}

#[test]
fn route_on_goes_on() {
    check(
        "a>b",
        json!({ "@": { "failure": "route" }, "a": { "fail_with": "hard", "op": "pure" } }),
        "
        start      | +a a!hard +b b?1
        b=1        | b=1 success end
",
    );
    check(
        "a>b",
        json!({ "@": { "failure": "route", "fail_result": true } }),
        "
        start      | +a a?1
        a!         | a!failure b/ failure!hard end
",
    );
}

#[test]
fn a_gate_counts_as_done() {
    check(
        "a>b",
        json!({ "a": { "skip": 7 } }),
        "
        start      | +a a- +b b?1
        b=1        | b=1 success end
",
    );
}

#[test]
fn exit_nodes_run_in_order_and_change_nothing() {
    let exits = json!({ "ok": "success", "bad": "failure", "gone": "cancel", "all": "always" });
    check(
        "a",
        json!({ "@": { "exits": exits } }),
        "
        start      | +a a?1
        a=1        | a=1 success +ok ok?1
        ok!        | ok!failure +all all?1
        all=1      | all=1 end
",
    );
    check(
        "a",
        json!({ "@": { "exits": exits } }),
        "
        start      | +a a?1
        a!         | a!failure failure!failure +bad bad?1
        bad=1      | bad=1 +all all?1
        all=1      | all=1 end
",
    );
    check(
        "a",
        json!({ "@": { "exits": exits } }),
        "
        start      | +a a?1
        cancel     | ax cancelled +gone gone?1
        gone=1     | gone=1 +all all?1
        all=1      | all=1 end
",
    );
}

#[test]
fn an_exit_node_may_be_a_map() {
    check(
        "a",
        json!({ "@": { "exits": { "m": "always" } }, "m": { "op": "map", "body": "b", "items": 2 } }),
        "
        start      | +a a?1
        a!         | a!failure failure!failure +m m*2 +b[0] b[0]?1 +b[1] b[1]?1
        b[0]=1     | b[0]=1
        b[1]!      | b[1]!failure m!failure end
",
    );
}

#[test]
fn cancelling_an_exit_node_keeps_the_outcome() {
    check(
        "a",
        json!({ "@": { "exits": { "x": "always", "y": "always" } } }),
        "
        start      | +a a?1
        a=1        | a=1 success +x x?1
        cancel     | xx end
        x=1        | x#1 late
        cancel     | refused: the execution has ended
",
    );
}

#[test]
fn input_that_is_refused_ends_at_once() {
    check(
        "a",
        json!({ "@": { "refuse": true, "exits": { "x": "always" } } }),
        "
        start      | failure!invalid end
        retry      | refused: nothing in the execution failed or was cancelled
",
    );
}
