//! Recorded cases without an execution.

use serde_json::{Value, json};

use super::super::condition::Condition;
use super::super::model::WorkflowDefinition;
use super::super::{duration, parse, probe, violations};
use super::{all_hold, lower, recorded, wanted};

/// Compares a result with `value`, `value_not` or `error_contains`.
fn judge(case: &Value, got: &Result<Value, String>, failures: &mut Vec<String>) {
    let Some(wanted) = wanted(case) else { return };
    let right = match (got, wanted.get("error_contains")) {
        (Err(message), Some(part)) => message.contains(part.as_str().unwrap()),
        (Ok(_), Some(_)) | (Err(_), None) => false,
        (Ok(value), None) => {
            wanted.get("value").is_none_or(|expected| super::equal(expected, value))
                && wanted.get("value_not").is_none_or(|other| other != value)
        }
    };
    if !right {
        failures.push(format!("{}: wanted {wanted}, got {got:?}", case["id"]));
    }
}

#[test]
fn values_are_resolved_as_recorded() {
    let mut failures = Vec::new();
    for case in recorded("resolve_value") {
        judge(&case, &probe::resolve(&case["value"], &case["state"]), &mut failures);
    }
    all_hold(&failures);
}

#[test]
fn conditions_hold_as_recorded() {
    let mut failures = Vec::new();
    for case in recorded("condition") {
        let got = probe::condition(case["condition"].as_str().unwrap(), &case["state"]);
        judge(&case, &got.map(Value::Bool), &mut failures);
    }
    all_hold(&failures);
}

#[test]
fn durations_are_read_as_recorded() {
    let mut failures = Vec::new();
    for case in recorded("duration") {
        let mut case = case;
        if let Some(seconds) = case["expect"].get("seconds").cloned() {
            case["expect"] = json!({ "value": seconds });
        }
        let got = duration::seconds(&case["duration"]).map(Value::from);
        judge(&case, &got, &mut failures);
    }
    all_hold(&failures);
}

#[test]
fn definitions_are_judged_as_recorded() {
    let mut failures = Vec::new();
    for case in recorded("definition") {
        let Some(wanted) = wanted(&case) else { continue };
        let mut say = |what: String| failures.push(format!("{}: wanted {wanted}, {what}", case["id"]));
        match (lower(&json!({ "workflow": case["workflow"] })), wanted.get("error_contains")) {
            (Err(found), Some(part)) => {
                if !found.items.iter().any(|item| item.message.contains(part.as_str().unwrap())) {
                    say(format!("got {found}"));
                }
            }
            (Err(found), None) => say(format!("got {found}")),
            (Ok(_), Some(_)) => say("it was accepted".to_owned()),
            (Ok(lowered), None) => {
                let plan = &lowered[0].plan;
                let definition = read(&case["workflow"]);
                let fits =
                    |key: &str, value: Value| wanted.get(key).is_none_or(|expected| *expected == value);
                if !fits("version", definition.version.clone().into())
                    || !fits("max_call_depth", plan.limits.depth.into())
                {
                    say(format!("got version {:?}, depth {}", plan.version, plan.limits.depth));
                }
                for (id, expected) in wanted["depends_on"].as_object().into_iter().flatten() {
                    let node = definition.nodes.iter().find(|node| node.id == *id).unwrap();
                    if json!(node.depends_on) != *expected {
                        say(format!("'{id}' depends on {:?}", node.depends_on));
                    }
                }
                for (id, fields) in wanted["node_fields"].as_object().into_iter().flatten() {
                    let mut extra = plan.node(plan.find(id).unwrap()).extra.clone();
                    // The plan contains the written value; the case has the effective value.
                    extra["max_items"] = extra.get("max_items").cloned().unwrap_or_else(|| 100.into());
                    for (key, expected) in fields.as_object().unwrap() {
                        if extra.get(key).unwrap_or(&Value::Null) != expected {
                            say(format!("'{id}' has {extra}"));
                        }
                    }
                }
            }
        }
    }
    all_hold(&failures);
}

fn read(workflow: &Value) -> WorkflowDefinition {
    parse::definition(&sinew_source::Node::from_json(workflow), "WF", false, &mut Vec::new()).unwrap()
}

#[test]
fn entry_nodes_are_those_recorded() {
    for case in recorded("initial_nodes") {
        let lowered = lower(&case["workflow"]).unwrap();
        let plan = &lowered[0].plan;
        let entry: Vec<&str> = plan.entry.iter().map(|ix| plan.node(*ix).id.as_str()).collect();
        assert_eq!(json!(entry), wanted(&case).unwrap()["nodes"], "{}", case["id"]);
    }
}

#[test]
fn cycles_are_found_as_recorded() {
    for case in recorded("validate_dag") {
        let found = lower(&case["workflow"]).unwrap_err();
        for part in wanted(&case).unwrap()["errors"].as_array().unwrap() {
            let part = part.as_str().unwrap();
            assert!(found.items.iter().any(|item| item.message.contains(part)), "{}: {found}", case["id"]);
        }
    }
}

#[test]
fn violations_are_worded_as_recorded() {
    for case in recorded("validate") {
        let schema = sinew_source::Schema::compile(&case["schema"]).unwrap();
        let got = violations(&schema, &case["schema"], &case["data"]);
        assert_eq!(json!(got), wanted(&case).unwrap()["errors"], "{}", case["id"]);
    }
}

#[test]
fn conditions_are_the_part_of_python_they_are_said_to_be() {
    let state = json!({ "a": { "s": "it's", "n": 7, "l": ["x", 2], "o": { "k": null }, "f": 1.5 }, "_map_item": { "p": true } });
    let cases = [
        ("{{a.output.s}} == \"it's\"", Ok(true)),
        ("'<{{a.output.s}}>' == \"<it's>\"", Ok(true)),
        ("'{{a.output.n}}' == '7' and {{a.output.n}} == 7.0", Ok(true)),
        ("'{{a.output.f}}' == '1.5' and '{{a.output.l}}' == \"['x', 2]\"", Ok(true)),
        ("'{{a.output.o}}' == \"{'k': None}\" and {{a.output.o.k}} == null", Ok(true)),
        ("'x' in {{a.output.l}} and 3 not in {{a.output.l}}", Ok(true)),
        ("{{a.output.n}} in [5, 7] and 'b' in ('a', 'b',)", Ok(true)),
        ("{{a.output.l.1}} == 2 and {{item.p}} and {{_map_item.output.p}}", Ok(true)),
        ("7 // 2 == 3 and -7 // 2 == -4 and -7 % 3 == 2 and 2 ** 3 == 8 and 1 / 4 == 0.25", Ok(true)),
        ("true == 1 and not none and 'a' < 'b' and [1, 2] < [1, 3]", Ok(true)),
        ("\"a\\n\" == 'a\n' and 'a' 'b' == 'ab'", Ok(true)),
        ("{{gone.output.x}} is None and {{gone.output.x}} != 1", Ok(true)),
        ("{{_map_item.q}} == null and {{_map_item.q.r}} is None and {{_map_index}} is None", Ok(true)),
        ("{{workflow.error.message}} is None and '{{workflow.status}}' == 'None'", Ok(true)),
        ("'{{workflow.input.mode}}' == 'prod'", Err("Workflow input has not been initialized")),
        ("false and {{a.output.zz}} == 1", Err("Field 'zz' not found in path: a.output.zz")),
        ("1 / 0", Err("division by zero")),
        ("10 ** 100 > 1", Ok(true)),
        ("-'a'", Err("bad operand type for unary -: 'str'")),
        ("1 in 'a'", Err("requires string as left operand, not int")),
        ("", Err("Invalid expression syntax")),
        ("5 >", Err("Invalid expression syntax")),
        ("'unclosed", Err("Invalid expression syntax")),
        ("(5 > 3", Err("Invalid expression syntax")),
        ("{{a.output.n == 1", Err("'{{' is never closed")),
        ("{{a.output.n}} = 7", Err("write '=='")),
        ("true && false", Err("write 'and'")),
        ("x == 5", Err("Unknown identifier: x")),
        ("a.output.n == 7", Err("Unknown identifier: a")),
        ("len('x')", Err("Function 'len' not defined")),
        ("0 <= rand() < 1 and rand() != rand()", Ok(true)),
        ("'x'.upper()", Ok(true)),
        ("''.__class__.__bases__[0]", Err("Unsupported attribute: '__class__'")),
        ("'{}'.format(1)", Err("Unsupported method: 'format'")),
        ("'hello'[0:2] == 'he'", Ok(true)),
        ("[x for x in [1]]", Err("Unsupported expression type: ListComp")),
        ("(x for x in [1])", Err("Unsupported expression type: GeneratorExp")),
        ("[*[1]]", Err("Unsupported expression type: Starred")),
        ("lambda: 1", Err("Unsupported expression type: Lambda")),
        ("{'a': 1}", Err("Unsupported expression type: Dict")),
        ("f'{x}'", Err("Unknown identifier: x")),
        ("f'{ {{a.output.n}}:03d}-{{a.output.n}}' == '007-7'", Ok(true)),
        ("'%s=%05.1f' % ('n', {{a.output.n}}) == 'n=007.0'", Ok(true)),
        ("'%d' % {{a.output.o}}", Err("TypeError: %d format: a real number is required, not dict")),
        ("b'x' == 'x'", Ok(false)),
        (
            "{{a.output.s}}.encode() == b\"it's\" and b'{{a.output.s}}' == b''",
            Err("bytes cannot contain a template"),
        ),
        ("{{a.output.s}}.encode()[:2].decode() == 'it' and len('a')", Err("Function 'len' not defined")),
        ("{{a.output.s}}.encode() == b\"it's\" and 105 in {{a.output.s}}.encode()", Ok(true)),
        ("(-{{a.output.n}}) ** 0.5 != 0 and ({{a.output.n}} + 2j).imag == 2", Ok(true)),
        ("1j < 2j", Err("not supported between instances of 'complex' and 'complex'")),
        ("randint({{a.output.n}}) in [0, 1, 2, 3, 4, 5, 6]", Ok(true)),
        ("randint('a')", Err("TypeError")),
        ("'a b'.split(maxsplit=1, sep=' ')[1] == 'b'", Ok(true)),
        ("'a'.split(nope=1)", Err("unexpected keyword argument 'nope'")),
        ("(x := 1)", Err("Unsupported expression type: NamedExpr")),
        ("5 & 3 == 1 and 5 | 3 == 7 and 5 ^ 3 == 6", Ok(true)),
        ("5 >> 1 == 2 and 1 << 4 == 16 and ~5 == -6", Ok(true)),
        ("5 @ 3", Err("Unsupported expression type: BinOp")),
        ("1 if x else 2", Err("Unsupported expression type: IfExp")),
        ("1 is not None", Err("Unsupported comparison operator: IsNot")),
        ("{{a.output.n}} == 7 if {{a.output.s}} else false", Ok(true)),
        ("'a' if {{a.output.o.k}} is None else ''", Ok(true)),
        ("{{a.output.n}} is not None and {{a.output.n}} is 7 and not {{a.output.n}} is 7.0", Ok(true)),
        ("{{a.output.l}}[0] == 'x' and {{a.output.l}}[-1] == 2 and {{a.output.o}}['k'] is none", Ok(true)),
        ("{{a}}['output']['n'] == 7 and {{a.output}}.n == 7 and {{a.output.o}}.get('z', 3) == 3", Ok(true)),
        ("{{a.output.l}}[5]", Err("IndexError: list index out of range")),
        ("{{a.output.o}}['z']", Err("KeyError: 'z'")),
        ("{{a.output.s}}[::-1] == \"s'ti\" and {{a.output.s}}[1:] == \"t's\"", Ok(true)),
        ("{{a.output.s}}.upper().startswith('IT') and 'x, y'.split(', ')[1] == 'y'", Ok(true)),
        (
            "int('12') + int({{a.output.f}}) == 13 and float('2.5') == 2.5 and str({{a.output.n}}) == '7'",
            Ok(true),
        ),
        (
            "str({{a.output.l}}) == \"['x', 2]\" and str(None) == 'None' and str([1, 'a']) == \"[1, 'a']\"",
            Ok(true),
        ),
        ("int('x')", Err("ValueError: invalid literal for int() with base 10: 'x'")),
        ("int(None)", Err("TypeError: int() argument must be a string or a real number, not 'NoneType'")),
        ("{{a.output.n}}.upper()", Err("AttributeError: 'int' has no method 'upper'")),
    ];
    let mut failures = Vec::new();
    for (source, wanted) in cases {
        let got = probe::condition(source, &state);
        let right = match (&got, wanted) {
            (Ok(got), Ok(wanted)) => *got == wanted,
            (Err(message), Err(part)) => message.contains(part),
            _ => false,
        };
        if !right {
            failures.push(format!("{source}: wanted {wanted:?}, got {got:?}"));
        }
    }
    all_hold(&failures);
}

#[test]
fn conditions_have_limits() {
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    for source in
        [deep, "not ".repeat(5000), "-".repeat(5000), "1+".repeat(5000), "[".repeat(9000), "9".repeat(20_000)]
    {
        assert!(Condition::parse(&source).is_err(), "{}", &source[..9]);
    }
}

/// Any value at any position of a workflow results in findings or a plan, never a panic.
#[test]
fn nothing_in_a_file_makes_lowering_panic() {
    let odd = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("{{"),
        json!("a"),
        json!([]),
        json!([null, {}]),
        json!({"a": {}}),
    ];
    let mut workflows: Vec<Value> =
        recorded("run").into_iter().map(|case| case["workflow"].clone()).collect();
    workflows.sort_by_key(Value::to_string);
    workflows.dedup();
    let mut tried = 0;
    for workflow in workflows.iter().filter(|workflow| workflow.to_string().len() < 900) {
        let mut pointers = Vec::new();
        places(workflow, String::new(), &mut pointers);
        for (n, pointer) in pointers.iter().enumerate() {
            for value in [&odd[n % odd.len()], &odd[(n * 5 + 3) % odd.len()]] {
                let mut broken = json!({ "workflow": workflow });
                *broken["workflow"].pointer_mut(pointer).unwrap() = value.clone();
                if let Ok(lowered) = lower(&broken) {
                    for one in lowered {
                        sinew_plan::check(&one.plan).unwrap();
                    }
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 1000, "{tried}");
}

fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                places(member, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                places(item, format!("{at}/{n}"), found);
            }
        }
        _ => {}
    }
    found.push(at);
}
