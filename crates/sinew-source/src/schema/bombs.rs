//! Schemas and values that ask for more than any check may take, and harmless ones that look like them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::*;

fn members(depth: usize, leaf: Value) -> Value {
    (0..depth).fold(leaf, |inner, _| json!({ "a": inner }))
}

fn items(depth: usize, leaf: Value) -> Value {
    (0..depth).fold(leaf, |inner, _| json!([inner]))
}

fn node(body: Value) -> Value {
    json!({"$ref": "#/$defs/n", "$defs": {"n": body}})
}

/// Recursive schemas in which every level is checked at least twice.
fn doubling_schemas() -> Vec<(&'static str, Value)> {
    let next = json!({"$ref": "#/$defs/n"});
    let below = json!({"properties": {"a": next}, "required": ["a"]});
    let dynamic = json!({"properties": {"a": {"$dynamicRef": "#n"}}, "required": ["a"]});
    let recursive = json!({"properties": {"a": {"$recursiveRef": "#"}}, "required": ["a"]});
    let permuted = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
        let branches = |own: &String| -> Vec<Value> {
            names
                .iter()
                .filter(|name| *name != own)
                .map(|name| json!({"$ref": format!("#/$defs/{name}")}))
                .collect()
        };
        let mut defs: Map<String, Value> =
            names.iter().map(|name| (name.clone(), json!({"anyOf": branches(name)}))).collect();
        for (name, def) in &mut defs {
            def["properties"] = json!({"a": {"$ref": format!("#/$defs/{name}")}, "b": false});
            def["type"] = json!(["object", "null"]);
        }
        json!({"$ref": "#/$defs/n0", "$defs": defs})
    };
    vec![
        ("anyOf", node(json!({"anyOf": [below, below]}))),
        ("anyOf of three", node(json!({"anyOf": [below, below, below]}))),
        ("anyOf with a type", node(json!({"type": "object", "anyOf": [below, below]}))),
        ("oneOf", node(json!({"oneOf": [below, below]}))),
        ("oneOf of four", node(json!({"oneOf": [below, below, below, below]}))),
        ("allOf", node(json!({"allOf": [below, below]}))),
        ("not not", node(json!({"not": {"not": {"allOf": [below, below]}}}))),
        ("if then else", node(json!({"if": below, "then": below, "else": below}))),
        ("anyOf in if", node(json!({"if": {"anyOf": [below, below]}, "then": below, "else": below}))),
        ("dependentSchemas", node(json!({"dependentSchemas": {"a": below}, "properties": {"a": next}}))),
        ("two patterns", node(json!({"type": "object", "patternProperties": {"^a": next, "a$": next}}))),
        (
            "property and pattern",
            node(json!({"type": "object", "properties": {"a": next}, "patternProperties": {"a": next}})),
        ),
        ("unevaluatedProperties", node(json!({"anyOf": [below, below], "unevaluatedProperties": next}))),
        (
            "unevaluatedProperties in allOf",
            node(json!({"allOf": [
                {"anyOf": [below, {"properties": {"b": next}}], "unevaluatedProperties": next},
                {"oneOf": [below, {"required": ["c"]}], "unevaluatedProperties": next},
            ]})),
        ),
        (
            "unevaluatedProperties false",
            node(json!({"type": "object", "anyOf": [below, below], "unevaluatedProperties": false})),
        ),
        ("$dynamicRef", json!({"$dynamicAnchor": "n", "anyOf": [dynamic, dynamic]})),
        (
            "$dynamicRef in oneOf",
            json!({"$dynamicAnchor": "n", "oneOf": [dynamic, dynamic], "type": "object"}),
        ),
        ("$dynamicRef in allOf", json!({"$dynamicAnchor": "n", "allOf": [dynamic, dynamic]})),
        (
            "$dynamicRef and unevaluated",
            json!({"$dynamicAnchor": "n", "anyOf": [dynamic, dynamic], "unevaluatedProperties": {"$dynamicRef": "#n"}}),
        ),
        (
            "$recursiveRef",
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "anyOf": [recursive, recursive]}),
        ),
        (
            "$recursiveRef in allOf",
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true, "allOf": [recursive, recursive]}),
        ),
        (
            "draft 7",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "anyOf": [
                {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
                {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
            ]}),
        ),
        (
            "dependencies of draft 4",
            json!({"$schema": "http://json-schema.org/draft-04/schema#",
            "dependencies": {"a": {"properties": {"a": {"$ref": "#"}}}}, "properties": {"a": {"$ref": "#"}}, "not": {"required": ["a"], "properties": {"a": {"$ref": "#"}}}}),
        ),
        ("permutations of 9", permuted(9)),
        ("permutations of 13", permuted(13)),
        (
            "items",
            node(
                json!({"anyOf": [{"type": "array", "items": next, "minItems": 1}, {"type": "array", "items": next, "minItems": 1}]}),
            ),
        ),
        ("items and contains", node(json!({"type": "array", "items": next, "contains": next}))),
        (
            "prefixItems",
            node(
                json!({"oneOf": [{"prefixItems": [next], "type": "array"}, {"prefixItems": [next], "type": "array"}]}),
            ),
        ),
        (
            "unevaluatedItems",
            node(
                json!({"type": "array", "anyOf": [{"contains": next}, {"prefixItems": [next]}], "unevaluatedItems": next}),
            ),
        ),
        (
            "unevaluatedItems in allOf",
            node(
                json!({"type": "array", "allOf": [{"anyOf": [{"contains": next}], "unevaluatedItems": next}, {"unevaluatedItems": next}]}),
            ),
        ),
    ]
}

fn for_each_bomb(mut check: impl FnMut(&str, &Value, &Value)) {
    for (name, schema) in doubling_schemas() {
        for depth in [30, 99] {
            for leaf in [json!(null), json!({"b": 1}), json!([])] {
                let nested = if name.contains("tem") {
                    items(depth, leaf.clone())
                } else {
                    members(depth, leaf.clone())
                };
                check(&format!("{name}, {depth} levels above {leaf}"), &schema, &nested);
            }
        }
    }
    for_each_product_bomb(&mut check);
}

fn numbers(count: usize) -> Value {
    (0..count).collect()
}

fn objects(count: usize, one: &Value) -> Value {
    Value::Array(vec![one.clone(); count])
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

fn object_of(names: &[String], value: &Value) -> Value {
    Value::Object(names.iter().map(|name| (name.clone(), value.clone())).collect())
}

/// All ways to put brackets around a row of numbers: the hash of the validator's own set is the same for all.
fn bracketings(count: usize) -> Vec<Value> {
    fn all(from: usize, to: usize) -> Vec<Value> {
        if to - from == 1 {
            return vec![json!(from)];
        }
        let split = |at: usize| {
            let rights = all(at, to);
            let pair = move |left: Value| {
                rights.clone().into_iter().map(move |right| json!([left, right])).collect::<Vec<_>>()
            };
            all(from, at).into_iter().flat_map(pair).collect::<Vec<_>>()
        };
        (from + 1..to).flat_map(split).collect()
    }
    all(0, count)
}

/// Large schemas against large values.
fn for_each_product_bomb(check: &mut impl FnMut(&str, &Value, &Value)) {
    // Each pair is dropped before the next is made.
    let mut bomb = |name: &str, schema: Value, value: Value| check(name, &schema, &value);
    let many = 4000;
    let names = texts(many);
    let small_names = texts(900);
    let truths = |count: usize| Value::Array(vec![json!(true); count]);
    let lies = |count: usize| Value::Array(vec![json!(false); count]);
    let long_text = "ab".repeat(100_000);
    let wide = object_of(&names, &json!(1));
    let draft7 = "http://json-schema.org/draft-07/schema#";
    let formats = [
        "date-time",
        "email",
        "hostname",
        "uri",
        "uri-template",
        "regex",
        "json-pointer",
        "iri",
        "duration",
        "ipv6",
    ];
    let formats: Vec<Value> = formats.iter().cycle().take(1000).map(|one| json!({"format": one})).collect();
    let deep_key = "k".repeat(100_000);
    let tall = |levels: usize, leaf: Value| (0..levels).fold(leaf, |inner, _| json!({"allOf": [inner]}));
    bomb(
        "allOf × items",
        json!({"items": {"allOf": vec![json!({"type": "integer"}); many]}}),
        numbers(30_000),
    );
    bomb(
        "anyOf × items",
        json!({"items": {"anyOf": vec![json!({"type": "string"}); many]}}),
        numbers(30_000),
    );
    bomb("oneOf × items", json!({"items": {"oneOf": vec![json!({"minimum": 1}); many]}}), numbers(30_000));
    bomb("false × items", json!({"items": {"anyOf": lies(40_000)}}), numbers(100_000));
    bomb("true × items", json!({"items": {"allOf": truths(40_000)}}), numbers(100_000));
    bomb("empty × items", json!({"items": {"allOf": vec![json!({}); 40_000]}}), numbers(100_000));
    bomb("tall × items", json!({"items": {"allOf": vec![tall(40, json!(true)); 300]}}), numbers(100_000));
    bomb(
        "enum × items",
        json!({"items": {"enum": (0..many).map(|n| json!({"a": [n]})).take(900).collect::<Vec<_>>()}}),
        objects(20_000, &json!({"a": [-1]})),
    );
    bomb("enum of texts × items", json!({"items": {"enum": names}}), objects(20_000, &json!("x")));
    bomb("enum of numbers × items", json!({"items": {"enum": numbers(30_000)}}), objects(20_000, &json!(-1)));
    bomb("const × items", json!({"items": {"const": numbers(20_000)}}), objects(50, &numbers(20_000)));
    bomb("const in allOf", json!({"allOf": vec![json!({"const": numbers(100)}); 500]}), numbers(100));
    bomb("required × items", json!({"items": {"required": names}}), objects(5_000, &json!({})));
    bomb(
        "properties × items",
        json!({"items": {"properties": object_of(&names, &json!({"type": "string"}))}}),
        objects(20, &wide),
    );
    bomb(
        "unknown × allOf",
        json!({"allOf": vec![json!({"additionalProperties": false}); 1000]}),
        wide.clone(),
    );
    bomb(
        "unevaluated × allOf",
        json!({"allOf": vec![json!({"unevaluatedProperties": false}); 1000]}),
        wide.clone(),
    );
    bomb(
        "unevaluated over allOf",
        json!({"allOf": vec![json!({"properties": {"x": true}}); 2000], "unevaluatedProperties": false}),
        wide.clone(),
    );
    bomb(
        "unevaluatedItems × allOf",
        json!({"allOf": vec![json!({"unevaluatedItems": false}); 1000]}),
        numbers(10_000),
    );
    bomb(
        "names × allOf",
        json!({"allOf": vec![json!({"propertyNames": {"maxLength": 1}}); 1000]}),
        wide.clone(),
    );
    bomb("names of truths", json!({"propertyNames": {"allOf": truths(40_000)}}), wide.clone());
    bomb("uniqueItems × allOf", json!({"allOf": vec![json!({"uniqueItems": true}); 1000]}), numbers(50_000));
    bomb("uniqueItems of bracketings", json!({"uniqueItems": true}), Value::Array(bracketings(11)));
    bomb("enum of bracketings", json!({"$schema": draft7, "enum": bracketings(9)}), json!(1));
    bomb(
        "uniqueItems of long texts",
        json!({"uniqueItems": true}),
        objects(5, &json!("x".repeat(2_000_000))),
    );
    bomb(
        "contains × contains",
        json!({"contains": {"contains": {"contains": {"const": 1}}}, "minContains": 1_000_000}),
        objects(40, &objects(40, &numbers(40))),
    );
    bomb("pattern of many states", json!({"pattern": "[ab]*a[ab]{300}c"}), json!(long_text));
    bomb(
        "patterns × text",
        json!({"allOf": (0..900).map(|n| json!({"pattern": format!("(a|b|ab)*{n}$")})).collect::<Vec<_>>()}),
        json!(long_text),
    );
    bomb(
        "patterns × names",
        json!({"patternProperties": object_of(&(0..900).map(|n| format!("(k|[0-9])*x{n}")).collect::<Vec<_>>(), &json!(true))}),
        wide.clone(),
    );
    bomb(
        "large patterns",
        json!({"allOf": (0..2000).map(|n| json!({"pattern": format!("(\\w{{1,30}}){{1,{}}}", n % 7 + 20)})).collect::<Vec<_>>()}),
        json!("x"),
    );
    bomb(
        "large patterns, fewer",
        json!({"allOf": (0..900).map(|n| json!({"pattern": format!("^[a-z{n}]{{1,200}}$")})).collect::<Vec<_>>()}),
        json!("x".repeat(100)),
    );
    bomb("formats × text", json!({"allOf": formats}), json!("a@b.".repeat(50_000)));
    bomb(
        "format regex",
        json!({"items": {"format": "regex"}}),
        objects(500, &json!("(\\w{1,1000}){1,1000}".repeat(100))),
    );
    bomb("lengths × text", json!({"allOf": vec![json!({"minLength": 1}); 5000]}), json!(long_text));
    bomb(
        "multipleOf",
        json!({"items": {"allOf": vec![json!({"multipleOf": 1e-300}); 2000]}}),
        objects(10_000, &json!(1e300)),
    );
    bomb(
        "long keys in a schema",
        json!({"properties": {deep_key.clone(): object_of(&texts(3000), &json!({"type": "string"}))}}),
        json!(1),
    );
    bomb(
        "long keys in a schema, properties",
        json!({"properties": {deep_key.clone(): {"properties": object_of(&texts(3000), &json!({"type": "string"}))}}}),
        json!(1),
    );
    bomb(
        "long keys in a value",
        json!({"additionalProperties": {"additionalProperties": {"allOf": lies(20_000)}}}),
        json!({deep_key.clone(): {deep_key.clone(): 1}}),
    );
    bomb(
        "long keys in a recursive value",
        node(
            json!({"anyOf": [{"additionalProperties": {"$ref": "#/$defs/n"}, "type": "object"}, {"additionalProperties": {"$ref": "#/$defs/n"}, "type": "object"}]}),
        ),
        (0..30).fold(json!(1), |inner, _| json!({"k".repeat(20_000): inner})),
    );
    bomb("large not", json!({"items": {"not": {"not": {"enum": [names]}}}}), numbers(20_000));
    bomb(
        "large not in anyOf",
        json!({"items": {"anyOf": [{"not": {"enum": [1, names]}}, false]}}),
        objects(20_000, &json!(1)),
    );
    bomb("large messages", json!({"items": {"enum": [names]}}), objects(20_000, &json!([1])));
    bomb("many unknown", json!({"items": {"additionalProperties": false}}), objects(50, &wide));
    bomb(
        "chains of references",
        {
            let mut defs: Map<String, Value> =
                (0..250).map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}))).collect();
            defs.insert(
                "d250".to_owned(),
                json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "type": "object"}),
            );
            json!({"$ref": "#/$defs/d0", "$defs": defs})
        },
        members(99, json!({})),
    );
    bomb(
        "tall recursion",
        node(tall(40, json!({"properties": {"a": {"$ref": "#/$defs/n"}}, "type": "object"}))),
        members(99, json!(1)),
    );
    bomb(
        "dependentRequired",
        json!({"items": {"dependentRequired": object_of(&small_names, &json!(small_names[..200]))}}),
        objects(20, &object_of(&small_names, &json!(1))),
    );
}

/// The test that measures; it runs in a process of its own, where no other test takes time or memory.
const MEASURE_TEST: &str = "schema::bombs::measure_bombs";
/// The longest that all bombs may take. The validator without a budget does not come back within it.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(120);
/// Processor time of one bomb. Dependencies are not optimised in tests: optimised, a bomb takes a tenth.
const MAX_BOMB_TIME: Duration = Duration::from_millis(2500);
/// Memory of one bomb, beside the value.
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
        let (time, grown) = (processor_time() - time, peak.grown_kib());
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

/// The most memory of this process since a moment.
struct PeakMemory {
    before: u64,
}

impl PeakMemory {
    fn start() -> Self {
        // Resets the peak to what is in use now.
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

/// Trees of conditions as people write them.
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
        // The operator tells the branches apart only after the members below have been looked at.
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
    // 100 levels of values: an object with a list in it is two.
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

/// A condition that is wrong 66 levels down has more reasons than can be listed, and is refused all the same.
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
