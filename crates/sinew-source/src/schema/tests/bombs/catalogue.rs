//! The bombs: recursive schemas that double, large schemas against large values, and random
//! combinations.

use serde_json::{Map, Value, json};

fn members(depth: usize, leaf: Value) -> Value {
    (0..depth).fold(leaf, |inner, _| json!({ "a": inner }))
}

fn items(depth: usize, leaf: Value) -> Value {
    (0..depth).fold(leaf, |inner, _| json!([inner]))
}

#[expect(clippy::needless_pass_by_value, reason = "called with `json!`")]
pub(super) fn node(body: Value) -> Value {
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

/// Number of random schemas and values.
const RANDOM_BOMBS: u64 = 120;

/// Deterministic pseudo-random numbers.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn below(&mut self, count: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % count
    }
}

fn random_schema(dice: &mut SeededNumbers, depth: usize) -> Value {
    const APPLICATORS: [&str; 20] = [
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "items",
        "prefixItems",
        "contains",
        "dependentSchemas",
        "unevaluatedProperties",
        "unevaluatedItems",
        "properties",
        "anyOf",
        "items",
    ];
    const LEAVES: [(&str, &str); 8] = [
        ("type", "object"),
        ("type", "array"),
        ("required", "a"),
        ("required", "b"),
        ("minProperties", "1"),
        ("uniqueItems", "true"),
        ("const", "1"),
        ("maxItems", "1"),
    ];
    if depth == 0 || dice.below(3) == 0 {
        return match dice.below(12) {
            0 => json!(true),
            1 => json!(false),
            2 => json!({}),
            n => json!({"$ref": format!("#/$defs/n{}", n % 3)}),
        };
    }
    let mut schema = Map::new();
    for _ in 0..=dice.below(4) {
        let keyword = APPLICATORS[dice.below(20) as usize];
        let mut next = || random_schema(dice, depth - 1);
        let value = match keyword {
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => json!([next(), next()]),
            "properties" | "dependentSchemas" => json!({"a": next(), "b": next()}),
            "patternProperties" => json!({"a|b": next(), "^a": next()}),
            _ => next(),
        };
        schema.insert(keyword.to_owned(), value);
    }
    if dice.below(3) == 0 {
        let (keyword, value) = LEAVES[dice.below(8) as usize];
        let value = match keyword {
            "required" => json!([value]),
            "type" => json!(value),
            _ => serde_json::from_str(value).unwrap(),
        };
        schema.insert(keyword.to_owned(), value);
    }
    Value::Object(schema)
}

/// Generates a value with one deep path and a few shallow ones.
fn random_value(dice: &mut SeededNumbers, depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| match dice.below(8) {
        0 => json!([inner]),
        1 => json!([1, inner, {}]),
        2 => json!({"a": inner, "b": {"a": []}}),
        3 => json!({"b": inner, "a": 1}),
        4 => json!({"b": inner}),
        _ => json!({"a": inner}),
    })
}

pub(super) fn for_each_bomb(mut check: impl FnMut(&str, &Value, &Value)) {
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
    for seed in 0..RANDOM_BOMBS {
        random_pair(seed, 4, 90, |schema, value| check(&format!("random {seed}: {schema}"), schema, value));
    }
}

/// Calls `check` with a random schema and value of approximately these depths.
pub(super) fn random_pair(
    seed: u64,
    schema_depth: usize,
    value_depth: usize,
    check: impl FnOnce(&Value, &Value),
) {
    let mut dice = SeededNumbers(seed);
    let defs: Map<String, Value> =
        (0..3).map(|n| (format!("n{n}"), random_schema(&mut dice, schema_depth))).collect();
    let schema = json!({"$ref": "#/$defs/n0", "$defs": defs});
    check(&schema, &random_value(&mut dice, value_depth));
}

pub(super) fn numbers(count: usize) -> Value {
    (0..count).collect()
}

pub(super) fn objects(count: usize, one: &Value) -> Value {
    Value::Array(vec![one.clone(); count])
}

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

fn object_of(names: &[String], value: &Value) -> Value {
    Value::Object(names.iter().map(|name| (name.clone(), value.clone())).collect())
}

/// Returns all bracketings of a sequence of numbers: the validator's own set has the same hash for
/// all.
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
    // Each pair is dropped before the next is created.
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
    let unevaluated = |keyword: &str, levels: usize| {
        (0..levels).fold(json!({keyword: false}), |inner, _| json!({"allOf": [inner], keyword: false}))
    };
    bomb("unevaluatedProperties in each other", unevaluated("unevaluatedProperties", 45), json!({"a": 1}));
    bomb("unevaluatedItems in each other", unevaluated("unevaluatedItems", 45), json!([1]));
    bomb("unevaluatedItems in each other, 12", unevaluated("unevaluatedItems", 12), json!([1]));
    let chain = |keyword: &str| {
        let mut defs: Map<String, Value> =
            (0..280).map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}))).collect();
        defs.insert("d280".to_owned(), json!({"properties": {"a": true}}));
        json!({"$ref": "#/$defs/d0", keyword: false, "$defs": defs})
    };
    let to_integer = |count: usize| {
        let defs: Map<String, Value> =
            (0..count).map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}))).collect();
        let mut schema = json!({"items": {"$ref": "#/$defs/d0"}, "$defs": defs});
        schema["$defs"][format!("d{count}")] = json!({"type": "integer"});
        schema
    };
    bomb("a chain × items", to_integer(280), numbers(100_000));
    bomb("unevaluatedProperties over a chain", chain("unevaluatedProperties"), json!({"b": 1}));
    bomb("unevaluatedItems over a chain", chain("unevaluatedItems"), json!([1]));
    // Names that only the validator can resolve: the decoys are not schemas.
    let hidden = |reference: &str| {
        let level = |n: usize| {
            json!({"$id": format!("d{n}"), "$anchor": format!("x{n}"), "unevaluatedProperties": false,
            "allOf": [{"$ref": reference.replace('N', &(n + 1).to_string())}, {"$ref": reference.replace('N', &(n + 1).to_string())}]})
        };
        let mut defs: Map<String, Value> = (0..40).map(|n| (format!("d{n}"), level(n))).collect();
        defs.insert("d40".to_owned(), json!({"$id": "d40", "$anchor": "x40"}));
        let decoys: Vec<Value> =
            (0..20).map(|n| json!({"$id": format!("d{n}"), "$anchor": format!("x{n}")})).collect();
        json!({"$id": "https://example.com/", "$ref": reference.replace('N', "0"), "$defs": defs, "const": decoys})
    };
    for reference in ["dN", "./dN", "https://example.com/dN", "dN#", "dN#xN", "x/../dN"] {
        bomb(&format!("hidden references {reference}"), hidden(reference), json!({"a": 1}));
    }
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
