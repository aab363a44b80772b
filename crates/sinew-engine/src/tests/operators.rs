//! Pause, resume, cancel, progress and early values.

use serde_json::json;

use super::script::check;

#[test]
fn pause_starts_nothing_and_loses_nothing() {
    check(
        "a>b",
        json!({}),
        "
        pause      | refused: the execution has not been started
        start      | +a a?1
        start      | refused: the execution was started already
        resume     | refused: the execution is not paused
        pause      | paused
        pause      | refused: the execution is paused already
        a=1        | a=1
        resume     | resumed +b b?1
        b=1        | b=1 success end
        pause      | refused: the execution has ended
",
    );
}

#[test]
fn a_kept_start_starts_nothing_until_the_resume() {
    check(
        "a>b",
        json!({ "@": { "limits": { "wall_ms": 500 } } }),
        "
        keep       | paused
        start      | refused: the execution was started already
        pause      | refused: the execution is paused already
        @5000      |
        resume     | resumed +a a?1
        @5400      |
        a=1        | a=1 +b b?1
        @5500      | bx failure!SINEW-6003 end
",
    );
    check(
        "a",
        json!({}),
        "
        keep       | paused
        cancel     | ax cancelled resumed end
",
    );
}

#[test]
fn what_follows_a_reply_waits_for_the_resume() {
    check(
        "a>b a>c",
        json!({ "a": { "route": true } }),
        r#"
        start      | +a a?1
        pause      | paused
        a=1        | a=1 a holds
        @50        |
        resume     | resumed
        @50        | a?route:2/1
        a="b"      | c/ +b b?1
        b=1        | b=1 success end
"#,
    );
}

#[test]
fn backoff_and_sleep_do_not_end_while_paused() {
    check(
        "a s",
        json!({ "a": { "retry": { "limit": 3, "delay_ms": 100 } }, "s": { "op": "delay", "sleep": 50 } }),
        r#"
        start      | +a a?1 +s s sleeps @50
        a!         | a?! a backs off @100
        pause      | paused
        @200       |
        resume     | resumed
        @200       | s="woke" a?2
        a=1        | a=1 success end
"#,
    );
    check(
        "a",
        json!({ "a": { "retry": { "limit": 3 } } }),
        "
        start      | +a a?1
        pause      | paused
        a!         | a?! a backs off @0
        @500       |
        resume     | resumed
        @500       | a?2
        a=1        | a=1 success end
",
    );
}

#[test]
fn deadlines_go_on_while_paused() {
    check(
        "a",
        json!({ "a": { "attempt_timeout": 100 } }),
        "
        start      | +a a?1
        pause      | paused
        @100       | a!SINEW-6001 failure!SINEW-6001 end
",
    );
}

#[test]
fn cancel_at_every_phase() {
    let plan = json!({
        "@": { "parallel": 6, "failure": "isolate" },
        "w": { "op": "human" }, "s": { "op": "delay" }, "m": { "op": "map", "body": "c", "items": 2, "limit": 1 },
        "r": { "retry": { "limit": 3, "delay_ms": 100 } }, "g": { "route": true },
    });
    check(
        "w s m r a g>h q1 q2 q3",
        plan,
        r#"
        start      | +w w waits +s s sleeps @100 +m m*2 +r r?1 +a a?1 +g g?1 +q1 q1?1 +q2 q2?1
        r!         | r?! r backs off @100
        g=1        | g=1 g?route:2/1
        cancel     | q3x c[0]x wx sx mx rx ax gx q1x q2x cancelled end
        a=1        | a#1 late
        cancel     | refused: the execution has ended
        g="h"      | g#2 late
"#,
    );
    check(
        "a",
        json!({}),
        "
        cancel     | refused: the execution has not been started
        start      | +a a?1
        pause      | paused
        cancel     | ax cancelled resumed end
",
    );
    check(
        "w a>b v",
        json!({ "@": { "pause": "freeze" }, "w": { "op": "human" }, "v": { "op": "human" } }),
        "
        start      | +w w waits a deferred v queues
        a=1        |
        cancel     | wx ax vx cancelled end
",
    );
}

#[test]
fn progress_is_kept_while_it_counts() {
    check(
        "a",
        json!({}),
        "
        start      | +a a?1
        a%half     | a says
        a#7%half   |
        a=1        | a=1 success end
        a%more     |
",
    );
}

#[test]
fn values_before_the_end_make_activations() {
    check(
        "a.x>b a.x>c a.out>d",
        json!({ "b": { "join": "each" }, "a": { "ports": ["out"] } }),
        "
        start      | +a a?1
        a.x~1      | +b b?1
        a.x~2      | +b_1 b_1?1
        a.nowhere~2 |
        b_1=1      | b_1=1
        a=3        | a=3 c/ +d d?1
        a.x~3      |
        b=1        | b=1
        d=1        | d=1 success end
",
    );
}

#[test]
fn notes_come_before_what_follows() {
    check(
        "a",
        json!({ "a": { "note": "hello" } }),
        r#"
        start      | +a note:"hello" a?1
        a=1        | a=1 success end
"#,
    );
}
