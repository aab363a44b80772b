//! The order in which ready activations start.

use serde_json::json;

use super::script::check;

const GRAPH: &str = "a>b a>c b>d c>e";

fn all_pure(order: &str) -> serde_json::Value {
    let pure = json!({ "op": "pure" });
    json!({ "@": { "order": order, "parallel": 1 }, "a": pure, "b": { "op": "pure", "rank": 9 }, "c": pure, "d": pure, "e": pure })
}

#[test]
fn as_they_became_ready() {
    check(
        GRAPH,
        all_pure("fifo"),
        "
        start 1    | +a a=1 +b b=1 +c c=1 +d d=1 +e e=1 success end
",
    );
}

#[test]
fn what_one_made_ready_before_its_siblings() {
    check(
        GRAPH,
        all_pure("depth"),
        "
        start 1    | +a a=1 +b b=1 +d d=1 +c c=1 +e e=1 success end
",
    );
}

#[test]
fn by_rank() {
    check(
        GRAPH,
        all_pure("rank"),
        "
        start 1    | +a a=1 +c c=1 +b b=1 +e e=1 +d d=1 success end
",
    );
}

#[test]
fn no_more_at_a_time_than_the_profile_says() {
    check(
        "a b c>d",
        json!({ "@": { "parallel": 2 } }),
        "
        start      | +a a?1 +b b?1
        b=1        | b=1 +c c?1
        a=1        | a=1
        c=1        | c=1 +d d?1
        d=1        | d=1 success end
",
    );
}

#[test]
fn children_of_a_depth_first_plan_start_before_their_owners_siblings() {
    check(
        "m b",
        json!({ "@": { "order": "depth", "parallel": 1 }, "m": { "op": "map", "body": "c", "items": 2 } }),
        "
        start      | +m m*2 +c[0] c[0]?1
        c[0]=1     | c[0]=1 +c[1] c[1]?1
        c[1]=1     | c[1]=1 m=[1,1] +b b?1
        b=1        | b=1 success end
",
    );
}
