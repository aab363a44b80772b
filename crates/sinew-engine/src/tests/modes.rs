//! Dry and partial runs.

use serde_json::json;

use super::script::check;

#[test]
fn a_dry_run_asks_nobody() {
    let plan = json!({
        "w": { "op": "human" }, "s": { "op": "delay" }, "m": { "op": "map", "body": "b", "items": 2, "delay": 5 },
        "l": { "op": "loop", "body": "c" },
    });
    check(
        "a>w w>s s>m m>l",
        plan,
        r#"
        start null {"dry_run":true} | +a note:{"engine":"dry_run","would_ask":"a","input":null} a=null +w w=null +s s=null +m m*2 +b[0] note:{"engine":"dry_run","would_ask":"b","input":0} b[0]=null +b[1] note:{"engine":"dry_run","would_ask":"b","input":1} b[1]=null m=[null,null] +l l*1 +c[0] note:{"engine":"dry_run","would_ask":"c","input":0} c[0]=null l*1 +c[1] note:{"engine":"dry_run","would_ask":"c","input":1} c[1]=null l=[null,null] success end
"#,
    );
    check(
        "a>b a>c",
        json!({ "a": { "route": true } }),
        r#"
        start null {"dry_run":true} | +a note:{"engine":"dry_run","would_ask":"a","input":null} a=null note:{"engine":"dry_run","would_ask":"router","input":null} success end
"#,
    );
}

/// A dry run calls no agent, but scripts are part of the workflow.
#[test]
fn a_dry_run_evaluates_scripts() {
    check(
        "a>b a>c",
        json!({ "a": { "evaluate": true } }),
        r#"
        start null {"dry_run":true} | +a note:{"engine":"dry_run","would_ask":"a","input":null} a=null a?evaluation:1
        a="c" | b/ +c note:{"engine":"dry_run","would_ask":"c","input":null} c=null success end
"#,
    );
}

#[test]
fn given_outputs_are_taken() {
    check(
        "a>b b>c",
        json!({}),
        r#"
        start null {"given":{"a":5}} | +a a==5 +b b?1
        b=1        | b=1 +c c?1
        c=1        | c=1 success end
"#,
    );
}

#[test]
fn a_part_runs_from_and_until() {
    check(
        "a>b b>c c>d x>c",
        json!({ "c": { "join": "each" } }),
        r#"
        start 3 {"from":["b"],"until":["c"]} | +b b?1
        b=1        | b=1 +c c?1
        c=2        | c=2 success={"c":2} end
"#,
    );
}

#[test]
fn nodes_that_do_not_exist_are_refused() {
    check(
        "a",
        json!({}),
        r#"
        start null {"from":["b"]} | failure!SINEW-6007 end
"#,
    );
    check(
        "a",
        json!({}),
        r#"
        start null {"until":["b"]} | failure!SINEW-6007 end
"#,
    );
    check(
        "a",
        json!({}),
        r#"
        start null {"given":{"b":1}} | failure!SINEW-6007 end
"#,
    );
}
