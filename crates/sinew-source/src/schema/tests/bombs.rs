//! Schemas and values that exceed the budget of a check, and similar harmless ones.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

mod catalogue;

use catalogue::{for_each_bomb, node, numbers, objects, random_pair};

/// Test that measures; it runs in a separate process, without other tests that use time or memory.
const MEASURE_TEST: &str = "schema::tests::bombs::measure_bombs";
/// Timeout of all bombs together. The validator without a budget exceeds it.
const MEASURE_TIMEOUT: Duration = Duration::from_mins(5);
/// Maximum processor time of one bomb. Dependencies are not optimised in tests; optimised, a bomb
/// takes a tenth.
const MAX_BOMB_TIME: Duration = Duration::from_secs(4);
/// Maximum memory of one bomb, without the value.
const MAX_BOMB_KIB: u64 = 64 << 10;

#[test]
fn bombs_end_in_time_and_memory() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([MEASURE_TEST, "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let (sender, ended) = std::sync::mpsc::channel();
    let id = child.id();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(MEASURE_TIMEOUT).is_err() {
                let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
            }
        });
        let status = child.wait().unwrap();
        sender.send(()).unwrap();
        assert!(status.success(), "{status} after {:?}", began.elapsed());
    });
}

#[test]
#[ignore = "measures this process; `bombs_end_in_time_and_memory` starts it alone"]
fn measure_bombs() {
    let show = std::env::var_os("SHOW_BOMBS").is_some();
    let mut over = Vec::new();
    let mut count = 0;
    for_each_bomb(|name, schema, value| {
        let (peak, time) = (PeakMemory::start(), processor_time());
        let outcome = match Schema::compile(schema) {
            Err(error) => format!("refused {}", error.code()),
            Ok(schema) => match schema.check(value) {
                Ok(()) => "matches".to_owned(),
                Err(violations) => format!("{} violations, {}", violations.len(), violations[0].keyword),
            },
        };
        let (time, grown) = (processor_time().saturating_sub(time), peak.grown_kib());
        let line = format!("{:>5} ms {grown:>7} KiB  {name}: {outcome}", time.as_millis());
        if show {
            eprintln!("{line}");
        }
        count += 1;
        if time > MAX_BOMB_TIME || grown > MAX_BOMB_KIB {
            over.push(line);
        }
    });
    assert!(count >= 150, "{count} bombs");
    assert!(over.is_empty(), "{} of {count} bombs:\n{}", over.len(), over.join("\n"));
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Peak memory of this process since a point in time.
struct PeakMemory {
    before: u64,
}

impl PeakMemory {
    fn start() -> Self {
        // Resets the peak to the current usage.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        Self { before: Self::kib("VmRSS:") }
    }

    fn grown_kib(&self) -> u64 {
        Self::kib("VmHWM:").saturating_sub(self.before)
    }

    fn kib(field: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// Realistic trees of conditions.
fn condition_schemas() -> Vec<Value> {
    let next = json!({"$ref": "#/$defs/n"});
    let list = json!({"type": "array", "items": next});
    let all = json!({"type": "object", "properties": {"all": list}, "required": ["all"], "additionalProperties": false});
    let any = json!({"type": "object", "properties": {"any": list}, "required": ["any"], "additionalProperties": false});
    let not = json!({"type": "object", "properties": {"not": next}, "required": ["not"]});
    let operator = |name: &str| json!({"type": "object", "properties": {"op": {"const": name}, "all": list, "not": next}, "required": ["op"]});
    vec![
        node(json!({"anyOf": [all, any, not, {"type": ["string", "null"]}]})),
        node(json!({"oneOf": [all, any, not, {"type": ["string", "null"]}]})),
        // The operator selects the branch only after the properties below have been checked.
        node(
            json!({"oneOf": [operator("and"), operator("or"), operator("all"), {"type": ["string", "null"]}]}),
        ),
        node(
            json!({"anyOf": [{"type": "object", "properties": {"all": list, "not": next, "op": {"const": "x"}}, "required": ["op"]}, all, not, {"type": "string"}]}),
        ),
        json!({"anyOf": [
            {"type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "#"}}}, "required": ["all"]},
            {"type": "object", "properties": {"not": {"$ref": "#"}}, "required": ["not"]},
            {"type": "string"},
        ]}),
    ]
}

#[test]
fn harmless_recursive_schemas_pass() {
    let chain = |levels: usize| {
        (0..levels).fold(json!("leaf"), |inner, n| match n % 2 {
            0 => json!({"op": "all", "all": [inner]}),
            _ => json!({"op": "all", "not": inner}),
        })
    };
    let plain = |levels: usize| {
        (0..levels).fold(json!("leaf"), |inner, n| {
            if n % 2 == 0 { json!({"all": [inner]}) } else { json!({"not": inner}) }
        })
    };
    let bushy = (0..9).fold(json!("leaf"), |inner, _| json!({"all": [inner, inner]}));
    let tree = json!({"$dynamicAnchor": "n", "type": "object", "properties": {
        "left": {"$dynamicRef": "#n"}, "right": {"$dynamicRef": "#n"}, "value": {"type": "integer"},
    }, "unevaluatedProperties": false});
    let list = node(
        json!({"anyOf": [{"type": "null"}, {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}]}),
    );
    let linked = (0..99).fold(json!(null), |inner, _| json!({ "next": inner }));
    let [first, second, operators, mixed, draft] = &condition_schemas()[..] else { panic!("five schemas") };
    let meta_schemas = [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-04/schema#",
    ];
    // 100 levels of values: an object with a list counts as two.
    let mut cases = vec![
        ("conditions", first.clone(), plain(66)),
        ("conditions, oneOf", second.clone(), plain(66)),
        ("conditions, bushy", second.clone(), bushy),
        ("conditions with operators", operators.clone(), chain(66)),
        ("conditions, mixed", mixed.clone(), plain(66)),
        ("conditions of a root", draft.clone(), plain(66)),
        ("a linked list", list, linked),
        (
            "a tree",
            tree,
            (0..99).fold(json!({"value": 1}), |inner, n| json!({"left": inner, "right": {"value": n}})),
        ),
        (
            "a long list",
            json!({"type": "array", "items": {"type": "integer", "minimum": 0}}),
            numbers(300_000),
        ),
        (
            "a long text",
            json!({"type": "object", "properties": {"id": {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}, "text": {"type": "string", "minLength": 1}}}),
            json!({"id": "7b3e5cf0-33cc-4d5c-8c54-3a1a3e7b5a10", "text": "x".repeat(2_000_000)}),
        ),
        (
            "a wide choice",
            json!({"items": {"oneOf": (0..200).map(|n| json!({"type": "object", "properties": {"kind": {"const": format!("k{n}")}, "n": {"type": "integer"}}, "required": ["kind"]})).collect::<Vec<_>>()}}),
            Value::Array((0..400).map(|n| json!({"kind": format!("k{}", n % 200), "n": n})).collect()),
        ),
        (
            "prices",
            json!({"items": {"type": "number", "minimum": 0, "multipleOf": 0.01}}),
            objects(5_000, &json!(12.5)),
        ),
    ];
    for uri in meta_schemas {
        cases.push((uri, json!({"$schema": uri, "$ref": uri}), condition_schemas()[0].clone()));
    }
    for (name, schema, value) in cases {
        let compiled = Schema::compile(&schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(compiled.check(&value), Ok(()), "{name}");
    }
}

/// The validator returns the same result with and without metering.
#[test]
fn a_budget_changes_no_verdict() {
    let mut verdicts = [0, 0];
    for seed in 0..400 {
        random_pair(seed, 3, 6, |schema, value| {
            let Ok(metered) = Schema::compile(schema) else { return };
            let plain = jsonschema::options().offline().build(schema).unwrap();
            let expected = plain.is_valid(value);
            assert_eq!(metered.check(value).is_ok(), expected, "{schema}\n{value}");
            verdicts[usize::from(expected)] += 1;
        });
    }
    assert!(verdicts.iter().all(|count| *count >= 50), "{verdicts:?}");
}

/// An invalid condition 66 levels deep has more violations than can be listed, and is still
/// rejected.
#[test]
fn wrong_values_are_refused_where_reasons_run_out() {
    let wrong = |levels: usize| (0..levels).fold(json!(7), |inner, _| json!({"op": "all", "all": [inner]}));
    for schema in condition_schemas() {
        let schema = Schema::compile(&schema).unwrap();
        for levels in [0, 1, 3, 49] {
            let violations = schema.check(&wrong(levels)).unwrap_err();
            assert!(!violations.is_empty() && !violations.iter().any(Violation::is_over_budget), "{levels}");
        }
    }
}
