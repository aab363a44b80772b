//! Generates bombs from a seed: workflows, cards and answers that try to exhaust time and memory.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

/// Locations of bombs: dialect and part of the file. A workflow calls cards and agents.
pub(crate) const BOMB_PLACES: [&str; 15] = [
    "agentteam/script",
    "covalt/script",
    "sam/condition",
    "agentteam/condition",
    "covalt/expression",
    "sweny/pattern",
    "agentteam/pattern",
    "sam/schema",
    "sam/override",
    "card/schema",
    "sam/template",
    "agentflow/template",
    "agent/script",
    "agent/answer",
    "agentflow/condition",
];

/// A bomb.
#[derive(Clone, Debug)]
pub(crate) struct Bomb {
    pub(crate) place: &'static str,
    pub(crate) workflow: Value,
    pub(crate) input: Value,
    /// Agent for nodes without an agent.
    pub(crate) agent: &'static str,
    /// Schema of the agent `card-N` of a `card/schema` bomb.
    pub(crate) card_schema: Option<Value>,
}

/// Returns the name of the workflow of bomb `nth`.
pub(crate) fn bomb_name(nth: usize) -> String {
    format!("bomb-{nth}")
}

/// Returns bomb `nth`. Locations alternate; the rest is random.
pub(crate) fn bomb(nth: usize, random: &mut StdRng) -> Bomb {
    let (place, name) = (BOMB_PLACES[nth % BOMB_PLACES.len()], bomb_name(nth));
    let mut bomb = Bomb { place, workflow: Value::Null, input: json!({}), agent: "echo", card_schema: None };
    match place {
        "agentteam/script" => bomb.workflow = team_script(&script(random)),
        "covalt/script" => bomb.workflow = graph("code", &json!({ "code": script(random) })),
        "sam/condition" => {
            bomb.workflow = sam_nodes(&json!([
                { "id": "a", "type": "agent", "agent_name": "echo", "input": { "value": 1 } },
                { "id": "b", "type": "agent", "agent_name": "echo", "depends_on": ["a"], "when": condition(random), "input": { "value": 1 } },
            ]));
            let length = random.random_range(50_000..200_000);
            bomb.input = json!({ "text": "x".repeat(length), "list": vec!["xxxxxxxx"; length / 10] });
        }
        "agentteam/condition" => {
            bomb.workflow = team_condition(&team_expression(random));
            bomb.input = json!({ "text": "a".repeat(random.random_range(10_000..200_000)) });
        }
        "covalt/expression" => {
            bomb.workflow = graph("prompt-template", &json!({ "template": expression(random) }));
            bomb.input = json!((0..random.random_range(500..3_000)).collect::<Vec<_>>());
        }
        "sweny/pattern" => {
            bomb.agent = "texts";
            bomb.workflow = sweny_pattern(&name, &pattern(random));
        }
        "agentteam/pattern" => {
            let pattern = pattern(random);
            bomb.workflow = team_condition(&format!("regex($json.text, '{pattern}')"));
            bomb.input = json!({ "text": format!("{}!", "a".repeat(random.random_range(1_000..100_000))) });
        }
        "sam/schema" => {
            bomb.workflow = sam_nodes(&json!([
                { "id": "a", "type": "agent", "agent_name": "echo", "input": { "value": 1 } },
            ]));
            bomb.workflow["workflow"]["input_schema"] = schema(random);
            bomb.input = nested(random.random_range(20..100));
        }
        "sam/override" | "card/schema" => {
            let schema = schema(random);
            let agent = if place == "sam/override" { "echo".to_owned() } else { format!("card-{nth}") };
            let mut node = json!({ "id": "a", "type": "agent", "agent_name": agent, "timeout": "3s", "input": { "a": "{{workflow.input.deep}}" } });
            if place == "sam/override" {
                node["input_schema_override"] = schema;
            } else {
                bomb.card_schema = Some(schema);
            }
            bomb.workflow = sam_nodes(&json!([node]));
            bomb.input = json!({ "deep": nested(random.random_range(20..100)) });
        }
        "sam/template" => {
            let many = "{{workflow.input.text}}".repeat(random.random_range(50..400));
            bomb.workflow = sam_nodes(&json!([
                { "id": "a", "type": "agent", "agent_name": "echo", "input": { "value": many } },
            ]));
            bomb.input = json!({ "text": "x".repeat(random.random_range(100_000..400_000)) });
        }
        "agentflow/template" => {
            bomb.workflow = agentflow_prompt(&"{{PREVIOUS_OUTPUT}}".repeat(random.random_range(50..400)));
            bomb.input = json!("x".repeat(random.random_range(100_000..400_000)));
        }
        "agent/script" => {
            bomb.workflow = sam_nodes(&json!([
                { "id": "a", "type": "agent", "agent_name": "python", "input": { "source": "{{workflow.input.source}}" } },
            ]));
            bomb.input = json!({ "source": script(random) });
        }
        "agent/answer" => {
            bomb.agent = ["texts", "deep", "wide", "huge"].choose(random).unwrap_or(&"deep");
            bomb.workflow = sweny_pattern(&name, &pattern(random));
        }
        _ => {
            bomb.workflow = agentflow_conditions(random.random_range(50..300));
            bomb.input = json!("x".repeat(random.random_range(100_000..400_000)));
        }
    }
    bomb
}

/// Returns a node of a SAM workflow file with these nodes.
fn sam_nodes(nodes: &Value) -> Value {
    json!({ "workflow": { "description": "bomb", "nodes": nodes, "output_mapping": { "value": "{{a.output.value}}" } } })
}

/// Returns a team with one connection that has a conversion function.
pub(crate) fn team_script(function: &str) -> Value {
    json!({
        "triggers": ["start"],
        "nodes": [
            { "id": "start", "name": "start", "type": "TRIGGER", "subtype": "MANUAL" },
            { "id": "merge", "name": "merge", "type": "FLOW", "subtype": "MERGE" },
        ],
        "connections": [
            { "id": "c1", "from_node": "start", "to_node": "merge", "conversion_function": function },
        ],
    })
}

fn team_condition(condition: &str) -> Value {
    json!({
        "triggers": ["start"],
        "nodes": [
            { "id": "start", "name": "start", "type": "TRIGGER", "subtype": "MANUAL" },
            { "id": "if", "name": "if", "type": "FLOW", "subtype": "IF", "configurations": { "condition_expression": condition } },
        ],
        "connections": [{ "id": "c1", "from_node": "start", "to_node": "if", "output_key": "result" }],
    })
}

fn graph(kind: &str, data: &Value) -> Value {
    let node = |id: &str, kind: &str, data: &Value| json!({ "id": id, "type": kind, "position": { "x": 0, "y": 0 }, "data": data });
    json!({
        "nodes": [node("start", "chat-start", &json!({})), node("work", kind, data)],
        "edges": [{ "id": "e1", "source": "start", "sourceHandle": "output", "target": "work", "targetHandle": "input" }],
    })
}

/// Returns a workflow with one node, whose output must match a pattern. Files of this dialect contain
/// their name.
pub(crate) fn sweny_pattern(name: &str, pattern: &str) -> Value {
    let rule = json!({ "output_matches": [{ "path": "text", "matches": pattern }] });
    json!({
        "id": name, "name": name, "description": "", "entry": "a", "edges": [],
        "nodes": { "a": { "name": "a", "instruction": "answer", "skills": [],
            "eval": [{ "name": "shape", "kind": "value", "rule": rule }] } },
    })
}

fn agentflow_prompt(prompt: &str) -> Value {
    json!({
        "nodes": [
            { "id": "s", "type": "start", "x": 0, "y": 0, "data": {} },
            { "id": "a", "type": "agent", "x": 0, "y": 0, "data": { "userPrompt": prompt } },
        ],
        "connections": [{ "source": "s", "target": "a", "sourceHandle": "output", "targetHandle": "input" }],
    })
}

fn agentflow_conditions(count: usize) -> Value {
    let conditions: Vec<Value> = (0..count)
        .map(|n| json!({ "operator": "contains", "value": format!("{}y{n}", "x".repeat(500)) }))
        .collect();
    json!({
        "nodes": [
            { "id": "s", "type": "start", "x": 0, "y": 0, "data": {} },
            { "id": "i", "type": "if", "x": 0, "y": 0, "data": { "conditions": conditions } },
        ],
        "connections": [{ "source": "s", "target": "i", "sourceHandle": "output", "targetHandle": "input" }],
    })
}

/// Returns Python code that does not end, or that exhausts memory.
fn script(random: &mut StdRng) -> String {
    let (large, power) = (random.random_range(6..14), random.random_range(40..70));
    let body = match random.random_range(0..18) {
        0 => "while True: pass".to_owned(),
        1 => "try:\n        while True: pass\n    finally:\n        while True: pass".to_owned(),
        2 => format!("return json.dumps([1], indent=10 ** {large})"),
        3 => format!("return json.dumps([[1] * 100] * 100, indent='x' * 10 ** {})", large.min(8)),
        4 => format!("return len(json.dumps([1] * 10 ** 5, separators=('x' * 10 ** {}, ':')))", large.min(6)),
        5 => format!("a, b = [], []\n    for i in range({power}): a, b = [a, a], [b, b]\n    return a == b"),
        6 => format!("a, b = (), ()\n    for i in range({power}): a, b = (a, a), (b, b)\n    return a < b"),
        7 => format!("a = []\n    for i in range({power}): a = [a, a]\n    return repr(a)"),
        8 => "l = []\n    while True: l.append('x' * 1000000)".to_owned(),
        9 => "d, i = {}, 0\n    while True:\n        d[i] = 'x' * 10000\n        i += 1".to_owned(),
        10 => format!("return 'a' * 10 ** {large}"),
        11 => format!("return 10 ** 10 ** {large}"),
        12 => format!("return sum(range(10 ** {large}))"),
        13 => "return f(d)".to_owned(),
        14 => format!("import re\n    return bool(re.match('(a+)+$', 'a' * {power} + 'b'))"),
        15 => format!("x = 3\n    for i in range({power}): x = x * x\n    return 1"),
        16 => format!("return json.loads('[' * 10 ** {})", large.min(6)),
        _ => format!("return [0 for i in range(10 ** {large})]"),
    };
    format!("import json\ndef f(d):\n    {body}\n")
}

/// Returns a condition of SAM that is expensive for an evaluator without limits.
fn condition(random: &mut StdRng) -> String {
    let large = random.random_range(5..13);
    match random.random_range(0..10) {
        0 => format!("'x' * 10 ** {large} == 'y'"),
        1 => format!("[0] * 10 ** {large} == 1"),
        2 => format!("9 ** 9 ** {large} > 1"),
        3 => "{{workflow.input.text}} in {{workflow.input.list}}".to_owned(),
        4 => "'y' + {{workflow.input.text}} in {{workflow.input.text}} * 10".to_owned(),
        5 => vec!["{{workflow.input.list}} == {{workflow.input.list}}"; large * 10].join(" and "),
        6 => format!("[[255 ** 1000] * 1000] * 10 ** {large} == [[255 ** 1000] * 1000] * 1000"),
        7 => format!("{}1{} == 1", "(".repeat(large * 100), ")".repeat(large * 100)),
        8 => vec!["'x' * 4000000 != {{workflow.input.text}}"; large].join(" and "),
        _ => format!("(10 ** {large}00) ** {large}00 > 1"),
    }
}

/// Returns a condition of a team that is expensive or deeply nested.
fn team_expression(random: &mut StdRng) -> String {
    let large = random.random_range(10..60);
    match random.random_range(0..5) {
        0 => vec!["contains($json.text, 'b')"; large * 10].join(" || "),
        1 => format!("{}$json.text{} == 'x'", "lower(".repeat(large), ")".repeat(large)),
        2 => vec!["lower(upper($json.text)) == $json.text"; large * 5].join(" && "),
        3 => format!("{}1{}", "not(".repeat(large * 20), ")".repeat(large * 20)),
        _ => vec!["endswith($json.text, $json.text)"; large * 10].join(" && "),
    }
}

/// Returns an expression of a graph with a result that grows exponentially.
fn expression(random: &mut StdRng) -> String {
    let times = random.random_range(3..12);
    let inner = match random.random_range(0..5) {
        0 => "input.map(x => input.map(y => input))".to_owned(),
        1 => "input.map(x => input.map(y => input.map(z => x + y + z)))".to_owned(),
        2 => format!("'x'{}", ".repeat(1000)".repeat(times)),
        3 => format!("input{}", ".concat(input)".repeat(times * 20)),
        _ => format!("input{}", ".flatMap(x => input)".repeat(times)),
    };
    format!("{{{{ {inner} }}}}")
}

/// Returns a pattern that backtracks, or that compiles to a large program.
fn pattern(random: &mut StdRng) -> String {
    let times = random.random_range(10..400);
    match random.random_range(0..9) {
        0 => "^(a+)+$".to_owned(),
        1 => "^(a|aa)+$".to_owned(),
        2 => "^(?=(a+)+$)(a*)*b".to_owned(),
        3 => "^(a*)*\\1$".to_owned(),
        4 => format!("^(a?){{{times}}}a{{{times}}}$"),
        5 => format!("(.*a){{{times}}}"),
        6 => format!("(?<!b)((a{{1,{times}}}){{1,{times}}})c"),
        7 => "((((a*)*)*)*)*b".to_owned(),
        _ => "(?=.*?(a+a+)+b).*".to_owned(),
    }
}

/// Returns a recursive schema that validates each level more than once.
fn schema(random: &mut StdRng) -> Value {
    let next = json!({ "$ref": "#/$defs/n" });
    let below = json!({ "properties": { "a": next }, "required": ["a"] });
    let copies = vec![below.clone(); random.random_range(2..6)];
    let dynamic =
        vec![json!({ "properties": { "a": { "$dynamicRef": "#n" } }, "required": ["a"] }); copies.len()];
    let body = match random.random_range(0..9) {
        0 => json!({ "anyOf": copies }),
        1 => json!({ "oneOf": copies }),
        2 => json!({ "allOf": copies }),
        3 => json!({ "not": { "not": { "allOf": copies } } }),
        4 => json!({ "if": { "anyOf": copies }, "then": below, "else": below }),
        5 => json!({ "patternProperties": { "^a": next, "a$": next, "a": next } }),
        6 => json!({ "anyOf": copies, "unevaluatedProperties": next }),
        7 => return json!({ "type": "object", "$dynamicAnchor": "n", "oneOf": dynamic }),
        _ => permutations(random.random_range(6..14)),
    };
    let mut schema = json!({ "type": "object", "$ref": "#/$defs/n", "$defs": { "n": body } });
    if let Some(defs) = schema["$defs"]["n"].as_object_mut().and_then(|body| body.remove("$defs")) {
        let own = defs.as_object().cloned().unwrap_or_default();
        if let Some(all) = schema["$defs"].as_object_mut() {
            all.extend(own);
        }
    }
    schema
}

/// Returns subschemas that each reference all others.
fn permutations(count: usize) -> Value {
    let other = |own: usize| -> Vec<Value> {
        (0..count).filter(|n| *n != own).map(|n| json!({ "$ref": format!("#/$defs/n{n}") })).collect()
    };
    let defs: Map<String, Value> = (0..count)
        .map(|n| (format!("n{n}"), json!({ "anyOf": other(n), "properties": { "a": { "$ref": format!("#/$defs/n{n}") }, "b": false } })))
        .collect();
    json!({ "anyOf": other(count), "$defs": defs })
}

/// Returns a value with this number of levels.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({ "a": inner }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn every_dialect_has_bombs_and_a_seed_gives_the_same_ones() {
        let all = |seed| {
            let mut random = StdRng::seed_from_u64(seed);
            (0..60).map(|nth| bomb(nth, &mut random)).collect::<Vec<_>>()
        };
        let texts = |seed| all(seed).iter().map(|bomb| format!("{bomb:?}")).collect::<Vec<_>>();
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
        let dialects: BTreeSet<_> = all(1)
            .into_iter()
            .map(|bomb| {
                let text = bomb.workflow.to_string();
                let options = crate::workflows::load_options("bomb.json");
                let document = sinew_source::load(text.as_bytes(), &options).unwrap();
                let dialect = sinew_dialects::detect(&document);
                dialect.unwrap_or_else(|| panic!("{}: no dialect takes {text:.300}", bomb.place)).name()
            })
            .collect();
        assert_eq!(
            dialects.into_iter().collect::<Vec<_>>(),
            ["agentflow", "agentteam", "covalt", "sam", "sweny"]
        );
    }
}
