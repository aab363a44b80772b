//! Comparison of conditions with the corresponding Python.

use std::borrow::Cow;
use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};
use sinew_script::{Function, Limits, ScriptErrorKind};

use super::super::chance::ChanceSeed;
use super::super::path::{Path, PathValue};
use super::super::probe;
use super::parse::parse;
use super::{Condition, eval};

/// Values of templates, by the number in their name.
fn templates() -> Vec<Value> {
    vec![
        json!(5),
        json!("ok"),
        json!(null),
        json!(true),
        json!(2.5),
        json!([1, "a", null, [2.0]]),
        json!({"a": 1, "b": {"c": [1]}}),
        json!(""),
        json!(-3),
        json!([]),
        json!(9_007_199_254_740_993_i64),
        json!(9_007_199_254_740_992.0),
        json!("größe"),
        json!([1, "a", null, [2]]),
        json!(18_446_744_073_709_551_615_u64),
    ]
}

/// Evaluates the condition in this module: its truth value, or the class of the error.
fn here(source: &str) -> Result<bool, String> {
    let parsed = parse(source).unwrap_or_else(|(error, ..)| panic!("{source}: {error}"));
    eval::holds(&parsed.expr, &bound(&parsed.vars), &ChanceSeed::default)
}

/// Returns values of templates by their paths.
fn bound(paths: &[Path]) -> Vec<PathValue<'static>> {
    let all = templates();
    let value = |path: &Path| all[path.shown.trim_start_matches('n').parse::<usize>().unwrap()].clone();
    paths.iter().map(|path| PathValue::Value(Cow::Owned(value(path)))).collect()
}

/// Evaluates the same in Python, with the templates as names.
#[expect(clippy::disallowed_methods, reason = "Python is what conditions are compared with")]
fn in_python(sources: &[String]) -> Vec<Result<bool, String>> {
    let mut text = String::from("def f(v):\n");
    for at in 0..templates().len() {
        writeln!(text, "    v{at} = v[{at}]").expect("a text takes more");
    }
    text.push_str("    r = []\n");
    for source in sources {
        let source = source.replace("'{{n", "str({{n").replace("}}'", "}})");
        let source = source.replace("{{n", "v").replace("}}", "");
        writeln!(
            text,
            "    try:\n        r.append(bool({source}))\n    except Exception as e:\n        r.append(type(e).__name__ + ': ' + str(e))"
        )
        .expect("a text takes more");
    }
    text.push_str("    return r\n");
    // The interpreter is slow in unoptimized builds.
    let max_duration = std::time::Duration::from_secs(30);
    let limits = Limits { max_source: 1 << 20, max_duration, ..Limits::function() };
    let function = Function::compile_with(&text, limits).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    let results = match function.call(&Value::Array(templates())) {
        Ok(results) => results,
        // A memory error cannot be caught, so it also ends the others.
        Err(error) if sources.len() > 1 && error.kind == ScriptErrorKind::Memory => {
            return sources.iter().flat_map(|source| in_python(std::slice::from_ref(source))).collect();
        }
        Err(error) => return vec![Err(error.message)],
    };
    let results = results.as_array().unwrap().iter();
    results.map(|one| one.as_bool().ok_or_else(|| one.as_str().unwrap().to_owned())).collect()
}

/// Compares truth values, or the classes of the errors. The interpreter rejects some arithmetic
/// that Python allows, with booleans and with floats and large integers; results that are too large
/// here are excluded.
fn compare(sources: &[String]) {
    let mut wrong = Vec::new();
    for (source, python) in sources.iter().zip(in_python(sources)) {
        let own = here(source);
        let class = |result: &Result<bool, String>| {
            result.as_ref().map_err(|error| error.split(':').next().unwrap_or_default().to_owned()).cloned()
        };
        let beyond = own
            .as_ref()
            .is_err_and(|error| error.starts_with("OverflowError") || error.starts_with("MemoryError"));
        let refused = python.as_ref().is_err_and(|error| {
            error.contains("'bool'") || (error.contains("'float'") && error.contains("'int'"))
        });
        if !beyond && !refused && class(&own) != class(&python) {
            wrong.push(format!("{source}: {own:?}, in Python {python:?}"));
        }
    }
    wrong.truncate(30);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pairs_of_all_values_under_all_operators() {
    let operators =
        ["==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "-", "*", "/", "//", "%", "and", "or"];
    let mut sources = Vec::new();
    for left in 0..templates().len() {
        for right in 0..templates().len() {
            for operator in operators {
                // `%` of a string formats it, which is not compared here. The interpreter repeats
                // an empty list one by one.
                let large = [10, 14].iter().any(|large| [left, right].contains(large));
                if (operator == "%" && templates()[left].is_string()) || (operator == "*" && large) {
                    continue;
                }
                sources.push(format!("{{{{n{left}}}}} {operator} {{{{n{right}}}}}"));
            }
        }
    }
    for chunk in sources.chunks(400) {
        compare(chunk);
    }
}

#[test]
fn texts_of_errors_are_those_of_python() {
    let sources = [
        "{{n0}} < {{n1}}",
        "{{n2}} >= 1",
        "{{n0}} in {{n0}}",
        "{{n0}} in {{n1}}",
        "{{n5}} in {{n6}}",
        "{{n1}} + 1",
        "1 + {{n1}}",
        "{{n5}} + {{n1}}",
        "{{n1}} * {{n1}}",
        "{{n1}} * 1.5",
        "1 / 0",
        "1 // 0",
        "1 % 0",
        "1.0 % 0",
        "1.5 // 0",
        "-{{n1}}",
        "+{{n5}}",
        "{{n6}} < {{n6}}",
        "{{n2}} ** 2",
        "0 ** -1",
    ];
    let sources: Vec<String> = sources.iter().map(|source| (*source).to_owned()).collect();
    let results: Vec<_> = sources.iter().map(|source| (source, here(source))).collect();
    let python: Vec<_> = sources.iter().zip(in_python(&sources)).collect();
    assert_eq!(results, python);
}

/// Choices, subscripts, slices, methods and functions, with values of every type.
#[test]
fn the_rest_of_the_language_means_what_python_means() {
    let mut sources: Vec<String> = [
        "{{n1}}.upper() == 'OK'",
        "{{n12}}.upper() == 'GRÖSSE'",
        "'a b c'.split() == ['a', 'b', 'c']",
        "'a,b,,c'.split(',') == ['a', 'b', '', 'c']",
        "'a,b,c'.split(',', 1) == ['a', 'b,c']",
        "'a,b,c'.rsplit(',', 1) == ['a,b', 'c']",
        "''.split() == []",
        "''.split(',') == ['']",
        "'a'.split('')",
        "','.join(['a', 'b']) == 'a,b'",
        "','.join([1])",
        "'xxabxx'.strip('x') == 'ab' and ' ab '.lstrip() == 'ab ' and ' ab '.rstrip() == ' ab'",
        "'abab'.replace('a', 'c') == 'cbcb' and 'abab'.replace('a', 'c', 1) == 'cbab'",
        "'abc'.find('c') == 2 and 'abc'.find('x') == -1 and {{n12}}.find('e') == 4",
        "'abc'.index('x')",
        "'aaa'.count('a') == 3 and 'aaa'.count('') == 4 and 'aaa'.count('aa') == 1",
        "'hello world'.title() == 'Hello World' and 'hELLO'.capitalize() == 'Hello'",
        "'aB'.swapcase() == 'Ab' and '12'.isdigit() and not ''.isdigit()",
        "'ab'.isalpha() and not 'a1'.isalpha() and 'a1'.isalnum() and ' '.isspace()",
        "'AB'.isupper() and 'ab'.islower() and not '12'.isupper()",
        "'abc'.startswith('ab') and 'abc'.endswith('bc') and not 'abc'.startswith('b')",
        "'prefix-x'.removeprefix('prefix-') == 'x' and 'x.y'.removesuffix('.y') == 'x'",
        "'42'.zfill(5) == '00042' and '-42'.zfill(5) == '-0042'",
        "'a-b-c'.partition('-')[2] == 'b-c' and 'a-b-c'.rpartition('-')[0] == 'a-b'",
        "'abc'.partition('-')[0] == 'abc' and 'abc'.rpartition('-')[2] == 'abc'",
        "int(' 12 ') == 12 and int('-7') == -7 and int('ff', 16) == 255 and int(2.9) == 2 and int(-2.9) == -2",
        "int('1_000') == 1000 and int(True) == 1",
        "int('')",
        "int('1.5')",
        "int([])",
        "float('1e3') == 1000 and float(2) == 2.0",
        "float('a')",
        "str(1.0) == '1.0' and str(True) == 'True' and str(None) == 'None' and str([1, None]) == '[1, None]'",
        "{{n5}}[0] == 1 and {{n5}}[-1] == [2.0] and {{n6}}['b']['c'][0] == 1",
        "{{n5}}[9]",
        "{{n6}}['z']",
        "{{n0}}[0]",
        "{{n5}}['a']",
        "{{n1}}[0] == 'o' and {{n12}}[3] == 'ß' and {{n1}}[-2] == 'o'",
        "{{n1}}[5]",
        "{{n6}}.get('a') == 1 and {{n6}}.get('z') is {{n2}} and {{n6}}.get('z', 4) == 4",
        "'a' in {{n6}}.keys() and 1 in {{n6}}.values()",
        "{{n5}}.count(1) == 1 and {{n5}}.index('a') == 1",
        "{{n5}}.index('zz')",
        "{{n2}} is None and {{n3}} is True and not {{n1}} is None and {{n1}} is not None",
        "(1 if {{n3}} else 2) == 1 and ('a' if {{n2}} else 'b') == 'b'",
        "1 if {{n2}} else 0 if {{n3}} else 5",
        "{{n3}} & {{n3}} and not {{n3}} ^ {{n3}}",
        "1 | 2 ^ 3 & 4 << 1 >> 1 == 3",
        "1 << -1",
        "2.0 & 1",
        "~{{n0}} == -6",
        "~2.5",
    ]
    .map(str::to_owned)
    .into();
    let bounds = ["", "0", "1", "-1", "3", "-5", "9"];
    for (from, to) in bounds.iter().flat_map(|from| bounds.iter().map(move |to| (from, to))) {
        for step in ["", ":", ":2", ":-1"] {
            sources.push(format!("{{{{n5}}}}[{from}:{to}{step}] == {{{{n13}}}}[{from}:{to}{step}]"));
            sources.push(format!("'größer'[{from}:{to}{step}] == 'größe'[{from}:{to}{step}]"));
        }
    }
    compare(&sources);
}

/// Expressions with the string of their value in `simpleeval` 1.0.8, or the class of its error.
/// Lists in parentheses, which it does not support, are evaluated by CPython.
const RECORDED: [&str; 2] =
    [include_str!("simpleeval.json"), include_str!("simpleeval_bytes_and_numbers.json")];

#[test]
fn values_are_those_that_the_library_makes() {
    let rows = RECORDED.iter().flat_map(|text| {
        serde_json::from_str::<Vec<Vec<Option<String>>>>(text).expect("rows of an expression and its value")
    });
    let recorded: Vec<(String, Option<String>, Option<String>)> = rows
        .map(|row| {
            let mut row = row.into_iter();
            (row.next().flatten().unwrap(), row.next().flatten(), row.next().flatten())
        })
        .collect();
    assert!(recorded.len() > 6_000);
    let mut wrong = Vec::new();
    for (source, wanted, class) in &recorded {
        let shown = parse(source)
            .map_err(|(reason, ..)| reason)
            .and_then(|parsed| eval::shown(&parsed.expr, &bound(&parsed.vars)));
        let right = match (&shown, wanted) {
            (Ok(shown), Some(wanted)) => shown == wanted,
            (Err(_), None) => true,
            _ => false,
        };
        if !right {
            wrong.push(format!("{source}: {shown:?}, recorded {wanted:?} {class:?}"));
        }
    }
    let count = wrong.len();
    wrong.truncate(60);
    assert!(wrong.is_empty(), "{count} of {}\n{}", recorded.len(), wrong.join("\n"));
}

/// A call on long data, or with a long result, ends with an error at a low cost.
#[test]
fn calls_pay_for_their_work() {
    let data = json!({ "text": "x".repeat(1 << 20), "list": vec!["y"; 100_000] });
    let many = |one: &str| vec![one; 60].join(" or ");
    for source in [
        many("{{text.output}}.upper() == 'a'"),
        many("{{text.output}}[::-1] == 'a'"),
        many("str({{list.output}}) == 'a'"),
        "{{text.output}}.replace('x', 'xxxxxxxxxxxxxxxx') == ''".to_owned(),
        "'a'.zfill(10 ** 9) == ''".to_owned(),
        "'x'.join({{list.output}} * 1000) == ''".to_owned(),
        "1 << 10 ** 9".to_owned(),
        "int('9' * 100000)".to_owned(),
        "f'{ 1:999999999}' == ''".to_owned(),
        "f'{ 1.5:.99999999f}' == ''".to_owned(),
        "'%999999999d' % 1 == ''".to_owned(),
        "'%.*f' % (99999999, 1.5) == ''".to_owned(),
        "'%s' % {{text.output}} * 9 == ''".to_owned(),
        "'a'.center(10 ** 9) == ''".to_owned(),
        "('\\t' * 1000).expandtabs(10 ** 9) == ''".to_owned(),
        many("f'{ {{text.output}}!r:>9}' == 'a'"),
    ] {
        let failed = probe::condition(&source, &data).expect_err(&source);
        let words = ["large", "steps", "copies", "invalid literal"];
        assert!(words.iter().any(|word| failed.contains(word)), "{source}: {failed}");
    }
}

/// Bytes, complex numbers, tables and random numbers have the same limits as strings and integers.
#[test]
fn bytes_and_numbers_pay_for_their_work() {
    let data = json!({
        "text": "x".repeat(1 << 20),
        "list": vec!["y"; 100_000],
        "wide": { "x": "z".repeat(1_000) },
    });
    let many = |one: &str| vec![one; 60].join(" or ");
    for source in [
        many("{{text.output}}.encode() == b'a'"),
        many("{{text.output}}.encode().hex() == 'a'"),
        many("{{text.output}}.encode().upper() == b'a'"),
        many("{{text.output}}.encode().decode() == 'a'"),
        many("{{text.output}}.encode()[::-1] == b'a'"),
        many("b'a' in {{text.output}}.encode()"),
        many("{{text.output}}.translate(''.maketrans('x', 'y')) == 'a'"),
        "{{text.output}}.encode('utf-32').decode('utf-16', 'replace') == ''".to_owned(),
        "{{text.output}}.translate(''.maketrans({{wide.output}})) == ''".to_owned(),
        "('\u{2030}' * 1000000).encode('ascii', 'xmlcharrefreplace') == b''".to_owned(),
        "(b'\\xff' * 4000000).decode('utf-8', 'backslashreplace') == ''".to_owned(),
        "b'x' * 10 ** 12 == b''".to_owned(),
        "(b'x' * 4000000) + (b'x' * 4000000) == b''".to_owned(),
        "b'a'.center(10 ** 9) == b''".to_owned(),
        "b'x'.join([b'y' * 100] * 90000) == b''".to_owned(),
        "b'%999999999d' % 1 == b''".to_owned(),
        "str(b'\\xff' * 3000000) == ''".to_owned(),
        "(5).to_bytes(10 ** 9) == b''".to_owned(),
        "(5).from_bytes({{text.output}}.encode()) == 1".to_owned(),
        "(1.0).fromhex('0x' + '1' * 100000 + 'p99999999999') == 1 or 1 << 10 ** 9".to_owned(),
        "((9 + 9j) ** 100) ** 100 == 1".to_owned(),
        "1j ** 10 ** 300 == 1".to_owned(),
        "(10 ** 400) * 1j == 1".to_owned(),
        "randint(10 ** 400) == 1".to_owned(),
        "10 ** 300 * 10 ** 300 * 1.0 ** rand() == 1 or '9' * randint(1) == '' and 9 ** 9 ** 9".to_owned(),
    ] {
        let failed = probe::condition(&source, &data).expect_err(&source);
        let words = ["large", "steps", "copies", "invalid hexadecimal"];
        assert!(words.iter().any(|word| failed.contains(word)), "{source}: {failed}");
    }
}

/// Expressions of the grammar, as strings.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0..15_usize).prop_map(|at| format!("{{{{n{at}}}}}")),
        (0..15_usize).prop_map(|at| format!("'{{{{n{at}}}}}'")),
        prop::sample::select(vec![
            "0", "1", "7", "-2", "0.5", "1e3", "'a'", "'ok'", "''", "True", "False", "None", "[]",
            "[1, 'a']",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let binary = prop::sample::select(vec![
            "==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "-", "/", "//", "and", "or",
        ]);
        prop_oneof![
            (inner.clone(), binary, inner.clone()).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a}) < ({b}) <= ({c})")),
            (inner.clone(), 0..4_u32).prop_map(|(a, n)| format!("({a}) ** {n}")),
            (inner.clone(), -1..4_i32).prop_map(|(a, n)| format!("({a}) * {n}")),
            (inner.clone(), -1..4_i32).prop_map(|(a, n)| format!("{n} * ({a})")),
            inner.clone().prop_map(|a| format!("not ({a})")),
            inner.clone().prop_map(|a| format!("-({a})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("[{a}, {b}]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 15,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn generated_conditions_mean_what_python_means(sources in prop::collection::vec(expressions(), 80)) {
        compare(&sources);
    }
}

#[test]
fn bombs_end_with_an_error_and_cost_little() {
    let nested = format!("{0} == {0}", format!("{}0{}", "[".repeat(40), "]*9".repeat(40)));
    for source in [
        "9 ** 9 ** 9",
        "(10 ** 30) ** 300",
        "2.0 ** 100000",
        "'x' * 10 ** 12",
        "[0] * 10 ** 12",
        "10 ** 4000",
        "(10 ** 2000) * (10 ** 2000)",
        "['x' * 4000000] * 100000 == []",
        "[[[0] * 1000] * 1000] * 100 == [[[0] * 1000] * 1000] * 100",
        "['a' * 100000] * 100000",
        "[255 ** 1000] * 99999",
        "[[255 ** 1000] * 10000, [255 ** 1000] * 10000]",
        "[[255 ** 1000] * 1000] * 1000 == [[255 ** 1000] * 1000] * 1000",
        &nested,
        &format!("{} == 1", vec!["'x' * 4000000"; 90].join(" + ")),
    ] {
        let failed = here(source).expect_err(source);
        assert!(["large", "steps", "copies"].iter().any(|word| failed.contains(word)), "{source}: {failed}");
    }
}

#[test]
fn equal_templates_are_looked_up_once() {
    let source = format!("'{0}' == {{{{a}}}}", "{{a}}{{ a }}".repeat(1_000));
    let condition = Condition::parse(&source).unwrap();
    assert_eq!(condition.paths().len(), 1);
    let failed = probe::condition(&source, &json!({ "a": "x".repeat(1 << 20) })).unwrap_err();
    assert!(failed.contains("MemoryError: the text is larger"), "{failed}");
}

#[test]
fn different_templates_have_a_limit() {
    let source = |count: usize| {
        let pairs = (0..count / 2).map(|at| format!("'{{{{n{at}}}}}' != {{{{m{at}}}}}"));
        pairs.collect::<Vec<_>>().join(" or ")
    };
    assert_eq!(Condition::parse(&source(64)).unwrap().paths().len(), 64);
    let refused = Condition::parse(&source(66)).unwrap_err();
    assert_eq!(refused.reason, "Invalid expression syntax: more than 64 different templates");
}

/// The output of a node is borrowed in `{"output": …}`, so Python's operations on that dict are
/// implemented without it.
#[test]
fn nodes_are_dicts_of_their_output() {
    let data =
        json!({ "a": [1], "b": [1.0], "c": "it's", "d": {"output": [1]}, "e": {"output": [1], "f": 0} });
    for source in [
        "{{a}} == {{b}}",
        "{{a}} == {{d.output}}",
        "{{d.output}} == {{a}}",
        "{{a}} != {{e.output}}",
        "{{a}} != {{c}}",
        "{{a}} != {{a.output}}",
        "'output' in {{a}}",
        "'a' not in {{a}}",
        "1 not in {{a}}",
        "{{b}} in [{{a}}]",
        "{{a}} and not not {{c}}",
        "'<{{a}}>' == '<' + \"{'output': [1]}>\"",
        "'{{c}}' == '{\\'output\\': \"it\\'s\"}'",
    ] {
        assert_eq!(probe::condition(source, &data), Ok(true), "{source}");
    }
    for (source, error) in [
        ("{{a}} < {{b}}", "'<' not supported between instances of 'dict' and 'dict'"),
        ("{{a}} in {{b}}", "cannot use 'dict' as a dict key (unhashable type: 'dict')"),
        ("{{a}} in {{d.output}}", "cannot use 'dict' as a dict key (unhashable type: 'dict')"),
        ("{{a}} + 1 == 1", "unsupported operand type(s) for +: 'dict' and 'int'"),
    ] {
        let failed = probe::condition(source, &data).unwrap_err();
        assert!(failed.contains(error), "{source}: {failed}");
    }
}

/// Each mention of a long string is charged by its length, whatever its use.
#[test]
fn long_texts_of_the_data_cost_fuel() {
    let data = json!({
        "key": "k".repeat(1 << 20),
        "dict": {"a": 1},
        "text": "x".repeat(1 << 20),
        "zeros": vec![0; 1 << 20],
        "escaped": ["\u{1}".repeat((1 << 20) + 1)],
    });
    let many = |one: &str, with: &str| vec![one; 100].join(with);
    for (source, error) in [
        (many("{{key.output}} in {{dict.output}}", " or "), "too many steps"),
        (many("'{{text.output}}' == 'a'", " or "), "copies more than"),
        ("'{{zeros.output}}{{zeros.output}}' == ''".to_owned(), "the text is larger"),
        ("'{{escaped.output}}' == ''".to_owned(), "the text is larger"),
    ] {
        let failed = probe::condition(&source, &data).expect_err(&source);
        assert!(failed.contains(error), "{failed}");
    }
    assert_eq!(
        probe::condition("'{{text.output}}' == 'a' or {{key.output}} in {{dict.output}}", &data),
        Ok(false)
    );
}
