mod bombs;

use serde_json::{Value, json};

use super::*;

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

fn said(schema: &Value, value: &Value) -> Vec<String> {
    let schema = Schema::compile(schema).unwrap_or_else(|error| panic!("{error}"));
    schema.errors(value).into_iter().map(|v| format!("{} {}: {}", v.pointer, v.keyword, v.message)).collect()
}

#[test]
fn violations_by_type_only() {
    let cases: &[(Value, Value, &[&str])] = &[
        (json!({"type": "integer"}), json!("secret"), &[" type: string is not of type integer"]),
        (json!({"type": ["integer", "null"]}), json!(1.5), &[" type: number is not of types null, integer"]),
        (json!({"required": ["a"]}), json!({}), &[" required: 'a' is a required property"]),
        (
            json!({"properties": {"a": {}}, "additionalProperties": false}),
            json!({"a": 1, "b": 2, "c": 3}),
            &[" additionalProperties: unknown property 'b'", " additionalProperties: unknown property 'c'"],
        ),
        (
            json!({"unevaluatedProperties": false}),
            json!({"b": 2}),
            &[" unevaluatedProperties: unknown property 'b'"],
        ),
        (
            json!({"propertyNames": {"maxLength": 2}}),
            json!({"abc": 2}),
            &[" propertyNames: property name 'abc' is not allowed: name is longer than 2 characters"],
        ),
        (json!({"enum": ["a", "b"]}), json!("secret"), &[" enum: string is not one of \"a\" or \"b\""]),
        (json!({"const": "a"}), json!("secret"), &[" const: \"a\" was expected"]),
        (json!({"maxLength": 3}), json!("secret"), &[" maxLength: string is longer than 3 characters"]),
        (json!({"pattern": "^x"}), json!("secret"), &[" pattern: string does not match \"^x\""]),
        (json!({"format": "date-time"}), json!("secret"), &[" format: string is not a \"date-time\""]),
        (json!({"minimum": 5}), json!(3), &[" minimum: integer is less than the minimum of 5"]),
        (json!({"properties": {"a": false}}), json!({"a": 1}), &["/a falseSchema: no value is allowed here"]),
        (json!({"uniqueItems": true}), json!(["s", "s"]), &[" uniqueItems: array has non-unique elements"]),
        (json!({"uniqueItems": true}), json!([1, 1.0]), &[" uniqueItems: array has non-unique elements"]),
        (
            json!({"uniqueItems": true}),
            json!([{"a": 1, "b": [2.0]}, {"b": [2], "a": 1}]),
            &[" uniqueItems: array has non-unique elements"],
        ),
        (
            json!({"uniqueItems": true}),
            json!([
                [1, [2]],
                [[1], 2],
                [1, 2],
                "1",
                1,
                -0.5,
                9_007_199_254_740_993_i64,
                9_007_199_254_740_992.0
            ]),
            &[],
        ),
        (json!({"items": {"enum": [1.0, {"a": [2]}]}}), json!([1, {"a": [2.0]}]), &[]),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [true], "additionalItems": false}),
            json!([1, 2, 3]),
            &[" additionalItems: additional items are not allowed (more than 1)"],
        ),
        (
            json!({"items": {"type": "string"}}),
            json!([1, "x", null]),
            &["/0 type: integer is not of type string", "/2 type: null is not of type string"],
        ),
        (json!(true), nested(100), &[]),
        (json!(true), nested(101), &[" depth: value is nested deeper than 100 levels"]),
    ];
    for (schema, value, expected) in cases {
        assert_eq!(said(schema, value), *expected, "{schema}");
        let compiled = Schema::compile(schema).unwrap();
        assert_eq!(compiled.check(value).is_ok(), expected.is_empty(), "{schema}");
    }
}

#[test]
fn the_branch_that_was_meant() {
    let schema = json!({"oneOf": [
        {"type": "string"},
        {"type": "object", "properties": {"type": {"const": "agent"}, "name": {"type": "string"}}, "required": ["name"]},
        {"type": "object", "properties": {"type": {"const": "loop"}, "max": {"type": "integer"}}, "required": ["max"]},
    ]});
    let cases: &[(Value, &[&str])] = &[
        (json!({"type": "agent"}), &[" required: 'name' is a required property"]),
        (json!({"type": "loop", "max": "x"}), &["/max type: string is not of type integer"]),
        (json!({"type": "agnt"}), &["/type const: string is none of 'agent', 'loop'"]),
        (json!({}), &[" oneOf: object matches none of the allowed forms"]),
        (json!(7), &[" oneOf: integer matches none of the allowed forms"]),
        (json!({"name": "x", "max": 1}), &[" oneOf: object matches more than one of the allowed forms"]),
    ];
    for (value, expected) in cases {
        assert_eq!(said(&schema, value), *expected, "{value}");
    }
}

#[test]
fn schemas_that_are_refused() {
    let large = json!({"enum": ["x".repeat(300_000)]});
    let cases: &[(Value, &str)] = &[
        (json!({"type": "intger"}), "SINEW-4005"),
        (json!(12), "SINEW-4005"),
        (json!({"pattern": "(a)\\1"}), "SINEW-4005"),
        (json!({"pattern": "(\\w{1,500}){1,500}"}), "SINEW-4005"),
        (json!({"pattern": "("}), "SINEW-4005"),
        (large, "SINEW-4006"),
        (nested(101), "SINEW-4006"),
        (json!({"$ref": "https://example.com/schema.json"}), "SINEW-4008"),
        (json!({"$ref": "file:///etc/passwd"}), "SINEW-4008"),
        (json!({"$ref": "#/$defs/nothing"}), "SINEW-4008"),
        (
            json!({"anyOf": (0..1001).map(|n| json!({"pattern": format!("a{n}b")})).collect::<Vec<_>>()}),
            "SINEW-4006",
        ),
        (
            json!({"anyOf": (0..70).map(|n| json!({"$id": format!("d{n}")})).collect::<Vec<_>>()}),
            "SINEW-4006",
        ),
        (json!({"$id": "https://example.com/a", "$defs": {"b": {"$id": "b"}}, "$ref": "./b"}), "SINEW-4008"),
        (json!({"$schema": "https://example.com/my-draft"}), "SINEW-4008"),
    ];
    for (schema, code) in cases {
        match Schema::compile(schema) {
            Err(error) => assert_eq!(error.code(), *code, "{error}"),
            Ok(_) => panic!("accepted: {}", schema.to_string().chars().take(80).collect::<String>()),
        }
    }
}

#[test]
fn drafts_by_their_uri() {
    // `exclusiveMinimum` was a boolean in draft 4 and a number later; `prefixItems` was added in
    // 2020-12.
    let cases = [
        (
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
        ),
        (json!({"$schema": "http://json-schema.org/draft-07/schema#", "exclusiveMinimum": 1}), json!(1)),
        (
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": [{"type": "string"}]}),
            json!([1]),
        ),
        (
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}]}),
            json!([1]),
        ),
        (json!({"prefixItems": [{"type": "string"}]}), json!([1])),
    ];
    for (schema, value) in cases {
        assert_eq!(said(&schema, &value).len(), 1, "{schema}");
    }
}

#[test]
fn a_recursive_schema_checks_recursive_values() {
    let schema =
        json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false});
    assert_eq!(said(&schema, &json!({"next": {"next": {}}})), [""; 0]);
    assert_eq!(
        said(&schema, &json!({"next": {"next": 1}})),
        ["/next/next type: integer is not of type object"]
    );
}

#[test]
fn no_more_violations_than_anyone_reads() {
    let value = Value::Array(vec![json!(1); 5000]);
    assert_eq!(said(&json!({"items": {"type": "string"}}), &value).len(), MOST_VIOLATIONS);
}

#[test]
fn the_cache_goes_by_content() {
    let cache = SchemaCache::new(8);
    let first = cache.get(&json!({"type": "string", "maxLength": 2})).unwrap();
    let other_order = cache.get(&json!({"maxLength": 2, "type": "string"})).unwrap();
    let other = cache.get(&json!({"maxLength": 3, "type": "string"})).unwrap();
    assert!(Arc::ptr_eq(&first, &other_order));
    assert!(!Arc::ptr_eq(&first, &other));
    assert_eq!(cache.get(&nested(200)).unwrap_err(), SchemaError::TooDeep);
    assert_eq!(cache.get(&json!({"type": 1})).unwrap_err().code(), "SINEW-4005");
    // Capacity is counted in bytes: 8 schemas of 1,000 subschemas do not fit where 8 typical ones
    // do.
    let large = |n: u64| json!({"items": {"allOf": vec![json!({"minimum": n}); 1000]}});
    let kept: Vec<_> = (0..8).map(|n| cache.get(&large(n)).unwrap()).collect();
    cache.schemas.run_pending_tasks();
    assert!(cache.schemas.weighted_size() <= 8 << 17 && kept.len() == 8);
}

#[test]
fn patterns_weigh_what_they_may_hold() {
    let bytes = |pattern: &str| Schema::compile(&json!({"pattern": pattern})).unwrap().cost.compiled_bytes;
    assert!((2 * USUAL_PATTERN_BYTES..4 * USUAL_PATTERN_BYTES).contains(&bytes("^[a-z]+$")));
    assert!(bytes(r"^\p{L}{20}$") >= 2 * LARGEST_PATTERN, "{}", bytes(r"^\p{L}{20}$"));
    let many: serde_json::Map<_, _> = (0..200).map(|n| (format!("^a{n}"), json!({}))).collect();
    let many = Schema::compile(&json!({"patternProperties": many})).unwrap();
    assert!(many.cost.compiled_bytes >= 200 * 2 * MIN_PATTERN_BYTES);
}

#[test]
fn names_given_too_often_are_refused() {
    let named = |anchors: usize, references: usize| {
        json!({"$defs": {"list": vec![json!({"$anchor": "x"}); anchors]},
               "allOf": vec![json!({"$ref": "#x"}); references]})
    };
    let many = named(8_000, 8_700);
    let references = References::of_schema(&many);
    assert!(references.is_none(), "8,000 subschemas of one name");
    assert_eq!(Schema::compile(&many).unwrap_err().code(), "SINEW-4006");
    let most = named(64, 700);
    assert!(References::of_schema(&most).is_some());
    let schema = named(64, 2_000);
    let references = References::of_schema(&schema).unwrap();
    assert_eq!(expanded_size(&schema, &references), None);
    assert!(References::of_schema(&named(65, 1)).is_none());
}

/// Loops terminate, and small schemas with a huge expansion are rejected.
#[test]
fn references_that_never_end() {
    let defs = |count: usize, body: &dyn Fn(Value) -> Value| -> Value {
        let steps =
            (0..count).map(|n| (format!("d{n}"), body(json!({"$ref": format!("#/$defs/d{}", n + 1)}))));
        let mut defs: serde_json::Map<String, Value> = steps.collect();
        defs.insert(format!("d{count}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let doubling = |next: Value| json!({"allOf": [next, next]});
    let doubling_below = |next: Value| json!({"properties": {"a": next}, "additionalProperties": next});
    let a_loop =
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    let cases = [
        (json!({"$ref": "#"}), true),
        (json!({"allOf": [{"$ref": "#"}]}), true),
        (json!({"not": {"$ref": "#"}}), true),
        (a_loop, true),
        (defs(10, &doubling), true),
        (defs(40, &doubling), false),
        (defs(40, &doubling_below), false),
        (defs(5000, &|next| next), false),
        // Each is reached from its end first, so that no single path is long.
        (
            json!({"items": (0..100).rev().map(|n| json!({"$ref": format!("#/$defs/d{}", n * 10)})).collect::<Vec<_>>(),
                   "$schema": "http://json-schema.org/draft-07/schema#",
                   "$defs": defs(1000, &|next| next)["$defs"]}),
            false,
        ),
        (
            json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"$ref": "#x"}, "c": {"$anchor": "x", "type": "object"}}}),
            true,
        ),
    ];
    for (schema, accepted) in cases {
        let shown: String = schema.to_string().chars().take(80).collect();
        match Schema::compile(&schema) {
            // The check must terminate; either result is valid.
            Ok(schema) => drop((schema.check(&json!({"a": 1})), assert!(accepted, "{shown}"))),
            Err(error) => assert_eq!((error.code(), accepted), ("SINEW-4006", false), "{shown}"),
        }
    }
}
