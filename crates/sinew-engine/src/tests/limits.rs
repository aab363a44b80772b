//! Budgets: loops, retries, maps and nesting are bounded.

use serde_json::json;

use super::script::check;

#[test]
fn activations() {
    check(
        "a>b b>a",
        json!({ "@": { "entry": ["a"], "limits": { "activations": 4 }, "exits": { "x": "always" } }, "a": { "op": "pure", "join": "each" }, "b": { "op": "pure", "join": "each" } }),
        "
        start      | +a a=null +b b=null +a_1 a_1=null +b_1 b_1=null failure!SINEW-6004 +x x?1
        x=1        | x=1 end
        retry      | refused: nothing in the execution failed or was cancelled
",
    );
    check(
        "m",
        json!({ "@": { "limits": { "activations": 2 } }, "m": { "op": "map", "body": "b", "items": 9 } }),
        "
        start      | +m m*9 b[0]x mx failure!SINEW-6004 end
",
    );
}

#[test]
fn children() {
    check(
        "m",
        json!({ "@": { "limits": { "fan_out": 2 } }, "m": { "op": "map", "body": "b", "items": 3 } }),
        "
        start      | +m m!SINEW-6004 failure!SINEW-6004 end
",
    );
    check(
        "l",
        json!({ "@": { "limits": { "iterations": 2 } }, "l": { "op": "loop", "body": "b", "times": 3 }, "b": { "op": "pure" } }),
        "
        start      | +l l*1 +b[0] b[0]=0 l*1 +b[1] b[1]=1 l!SINEW-6004 failure!SINEW-6004 end
",
    );
}

#[test]
fn edges() {
    check(
        "a>b#2 b>a",
        json!({ "@": { "entry": ["a"] }, "a": { "op": "pure", "join": "each" }, "b": { "op": "pure", "join": "each" } }),
        "
        start 1    | +a a=1 +b b=1 +a_1 a_1=1 +b_1 b_1=1 +a_2 a_2=1 success end
",
    );
    check(
        "a>b b>a",
        json!({ "@": { "entry": ["a"], "limits": { "edge": 1 } }, "a": { "op": "pure", "join": "each" }, "b": { "op": "pure", "join": "each" } }),
        "
        start 1    | +a a=1 +b b=1 +a_1 a_1=1 failure!SINEW-6004 end
",
    );
    check(
        "a>b#2",
        json!({ "a": { "op": "pure", "tokens": 5 }, "b": { "join": "each", "op": "pure" } }),
        "
        start      | +a a=null +b[0] b[0]=0 +b[1] b[1]=1 success end
",
    );
    check(
        "a.x>b#1",
        json!({ "b": { "join": "each", "op": "pure" } }),
        "
        start      | +a a?1
        a.x~1      | +b b=1
        a.x~2      |
        a=3        | a=3 success end
",
    );
}

#[test]
fn depth() {
    check(
        "a",
        json!({ "@": { "limits": { "depth": 2 } } }),
        "
        start@ 3   | failure!SINEW-6006 end
",
    );
    check(
        "a",
        json!({ "@": { "limits": { "depth": 2 } } }),
        "
        start@ 2   | +a a?1
",
    );
}

#[test]
fn sizes() {
    check(
        "a",
        json!({ "@": { "limits": { "value_bytes": 20 } } }),
        r#"
        start "12345678901234567890" | failure!SINEW-6008 end
"#,
    );
    check(
        "a",
        json!({ "@": { "limits": { "value_bytes": 20 } }, "a": { "retry": { "limit": 1 } } }),
        r#"
        start      | +a a?1
        a={"a":"12345678901234567890"} | a!SINEW-6008 failure!SINEW-6008 end
"#,
    );
    check(
        "a",
        json!({ "@": { "limits": { "value_bytes": 20 } }, "a": { "op": "pure", "done": "12345678901234567890" } }),
        "
        start      | +a a!SINEW-6008 failure!SINEW-6008 end
",
    );
}

#[test]
fn nesting() {
    let deep = |levels: usize| format!("start {}{}", "[".repeat(levels), "]".repeat(levels));
    check("a", json!({ "a": { "op": "pure", "done": 1 } }), &format!("{} | +a a=1 success end", deep(100)));
    check("a", json!({}), &format!("{} | failure!SINEW-6008 end", deep(101)));
}

#[test]
fn progress() {
    let long = "x".repeat(60_000);
    // One message is too large; all messages together have a limit, and the work continues without
    // them.
    let too_large = "y".repeat(70_000);
    let kept = format!("a%{long} | a says\n").repeat(18);
    let script = format!(
        "start | +a a?1\na%hello | a says\na%{too_large} |\n{kept}a%{long} |\na%short |\na=1 | a=1 success end\n"
    );
    check("a", json!({}), &script);
}

#[test]
fn money() {
    let plan = |limit: f64| json!({ "@": { "limits": { "cost_usd": limit }, "exits": { "x": "always" } }, "a": { "retry": { "limit": 2 } } });
    // Failed attempts count; open activations are cancelled, and exit nodes run.
    check(
        "a b",
        plan(1.0),
        "
        start      | +a a?1 +b b?1
        a! $0.6    | a?! a?2
        a=1 $0.6   | ax bx failure!SINEW-6011 +x x?1
        b=1 $0.6   | b#1 late
        x=1 $9.0   | x=1 end
",
    );
    // The cumulative usage of all attempts replaces the previous one.
    check(
        "a b",
        plan(1.0),
        "
        start      | +a a?1 +b b?1
        a! $+0.6   | a?! a?2
        a=1 $+0.9  | a=1
        b=1 $0.1   | b=1 success +x x?1
        x=1        | x=1 end
",
    );
}

#[test]
fn calls_outside_of_the_patterns_of_a_plan_fail() {
    check(
        "alpha>beta beta>s",
        json!({ "@": { "limits": { "calls": ["al*", "s"] } } }),
        "
        start      | +alpha alpha?1
        alpha=1    | alpha=1 +beta beta!SINEW-6055 failure!SINEW-6055 end
",
    );
}
