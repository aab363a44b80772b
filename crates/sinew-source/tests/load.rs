//! Files in, trees or findings out: one check, many cases.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use sinew_source::{Diagnostics, Document, Limits, LoadOptions, Variable, Variables, load, load_data};

/// Loads `main.yaml` out of these files, with `PORT=8080` and a few other variables set.
fn load_files(files: &[(&str, &[u8])], limits: Limits) -> Result<Document, Diagnostics> {
    let files: BTreeMap<&str, &[u8]> = files.iter().copied().collect();
    let env = |name: &str| match name {
        "PORT" => Some("8080".to_owned()),
        "WORD" => Some("hello".to_owned()),
        "FLAG" => Some("true".to_owned()),
        "TRICK" => Some("x\ninjected: true".to_owned()),
        "HUGE" => Some("1e999".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    let look_up = |name: &str| match name {
        "API_TOKEN" => Variable::Secret,
        "HOME" => Variable::NotAllowed,
        "NATS_URL" => Variable::Reserved,
        name => env(name).map_or(Variable::Unset, Variable::Value),
    };
    let read = |path: &Path| {
        let name = path.to_str().ok_or("odd path")?;
        files.get(name).map(|bytes| bytes.to_vec()).ok_or_else(|| "no such file".to_owned())
    };
    let variables = Variables::Replaced(&look_up);
    load(files["main.yaml"], &LoadOptions { name: "main.yaml", variables, read: &read, limits })
}

/// Loads a file of an author in which no variable is replaced.
fn load_kept(text: &str) -> Result<Document, Diagnostics> {
    let read = |_: &Path| Err("no such file".to_owned());
    let (variables, limits) = (Variables::Kept, Limits::default());
    load(text.as_bytes(), &LoadOptions { name: "main.yaml", variables, read: &read, limits })
}

fn load_text(text: &str) -> Result<Document, Diagnostics> {
    load_files(&[("main.yaml", text.as_bytes())], Limits::default())
}

/// The findings as lines of `file:line:col CODE message`.
fn findings(result: Result<Document, Diagnostics>) -> String {
    match result {
        Ok(document) => document.root.to_json().to_string(),
        Err(diagnostics) => diagnostics.items.iter().fold(String::new(), |mut out, item| {
            let span = item.span.unwrap_or_default();
            let name = &diagnostics.sources.files()[span.file as usize].name;
            writeln!(out, "{name}:{}:{} {} {}", span.line, span.column, item.code, item.message).unwrap();
            out
        }),
    }
}

#[test]
fn values() {
    let cases: &[(&str, Value)] = &[
        ("a: 1\nb: [x, 2.5, ~]\n", json!({"a": 1, "b": ["x", 2.5, null]})),
        (r#"{"a": {"b": [true, null, "\ud83d\ude00\/"]}}"#, json!({"a": {"b": [true, null, "😀/"]}})),
        ("\u{feff}a: 1", json!({"a": 1})),
        ("null", json!(null)),
        ("--- \n'' \n...\n", json!("")),
        (
            "no: no\nyes: yes\non: on\ndate: 2026-01-01\ntime: 12:30",
            json!({"no": "no", "yes": "yes", "on": "on", "date": "2026-01-01", "time": "12:30"}),
        ),
        ("1: one\ntrue: t\nnull: n", json!({"1": "one", "true": "t", "null": "n"})),
        ("a:\nb: ''\nc: \"~\"", json!({"a": null, "b": "", "c": "~"})),
        ("a: |\n  x\n  y\nb: >-\n  p\n  q\n", json!({"a": "x\ny\n", "b": "p q"})),
        ("a: '{{x.output}}'", json!({"a": "{{x.output}}"})),
        // tags
        (
            "a: !!str 1\nb: !!int 2\nc: ! 3\nd: !!float 1\ne: !!map {}\nf: !!str",
            json!({"a": "1", "b": 2, "c": "3", "d": 1, "e": {}, "f": ""}),
        ),
        // anchors and merge keys: own keys win, then earlier merges; order is that of the file
        ("a: &x [1]\nb: *x", json!({"a": [1], "b": [1]})),
        ("&k a: 1\nb: *k", json!({"a": 1, "b": "a"})),
        ("d: &d {p: 1, q: 2}\ne:\n  <<: *d\n  q: 3", json!({"d": {"p": 1, "q": 2}, "e": {"p": 1, "q": 3}})),
        ("e: {x: 0, <<: [{p: 1}, {p: 2, q: 3}], y: 9}", json!({"e": {"x": 0, "p": 1, "q": 3, "y": 9}})),
        ("{\"<<\": 1}", json!({"<<": 1})),
        // environment
        ("a: ${PORT}\nb: '${PORT}'\nc: ${WORD}-${PORT}", json!({"a": 8080, "b": "8080", "c": "hello-8080"})),
        (
            "a: ${FLAG}\nb: ${NO, false}\nc: ${NO, ws://x:1}\nd: ${NO, }",
            json!({"a": true, "b": false, "c": "ws://x:1", "d": null}),
        ),
        ("a: ${EMPTY}\nb: \"${EMPTY}\"\nc: x${EMPTY}", json!({"a": null, "b": "", "c": "x"})),
        ("a: ${TRICK}", json!({"a": "x\ninjected: true"})),
        ("${PORT}: x", json!({"${PORT}": "x"})),
        (
            "a: $${PORT}\nb: ${{ github.ref }}\nc: $PORT",
            json!({"a": "${PORT}", "b": "${{ github.ref }}", "c": "$PORT"}),
        ),
        ("a: !!str ${PORT}", json!({"a": "8080"})),
        // A secret stays a reference, which an agent resolves.
        ("a: Bearer ${API_TOKEN}\nb: ${API_TOKEN}", json!({"a": "Bearer ${API_TOKEN}", "b": "${API_TOKEN}"})),
        ("a: ${HOME, x}\nb: ${NATS_URL, y}", json!({"a": "x", "b": "y"})),
    ];
    for (text, expected) in cases {
        match load_text(text) {
            Ok(document) => {
                assert_eq!(document.root.to_json(), *expected, "{text}");
                // Order of keys is part of the value.
                assert_eq!(document.root.to_json().to_string(), expected.to_string(), "{text}");
            }
            Err(diagnostics) => panic!("{text}\n{diagnostics}"),
        }
    }
}

#[test]
fn errors_with_their_places() {
    let cases: &[(&str, &str)] = &[
        ("", "main.yaml:1:1 SINEW-1003 file is empty\n"),
        ("# only a comment\n", "main.yaml:1:1 SINEW-1003 file contains no value\n"),
        ("---\n", "main.yaml:1:1 SINEW-1003 file contains no value\n"),
        ("a: 1\n---\nb: 2\n", "main.yaml:2:1 SINEW-1004 more than one document in the file\n"),
        ("{}\n{}", "main.yaml:2:1 SINEW-1002 text after the end of the value\n"),
        ("a: 1\n\n\tb: 2", "main.yaml:3:1 SINEW-1002 a tab in the indentation\n"),
        ("a:\n\t- b", "main.yaml:2:1 SINEW-1002 a tab in the indentation\n"),
        (
            "a: b: c",
            "main.yaml:1:5 SINEW-1002 a second ': ' in one line, or a key that is indented wrongly\n",
        ),
        (
            "a:\n  b: 1\n c: 2",
            "main.yaml:3:2 SINEW-1002 the indentation fits no object: expected 'key: value', aligned with the other keys\n",
        ),
        (
            "- a\n- b\nc: 1",
            "main.yaml:3:1 SINEW-1002 the indentation fits no list: expected '- item', aligned with the other items\n",
        ),
        ("a: {b: 1", "main.yaml:1:4 SINEW-1002 unclosed bracket '{'\n"),
        ("a: @x", "main.yaml:1:4 SINEW-1002 unexpected character: `@'\n"),
        ("a: \"x", "main.yaml:1:4 SINEW-1002 unclosed quote\n"),
        ("[1, 2", "main.yaml:1:1 SINEW-1002 unclosed bracket '['\n"),
        (
            r#"["\ud800"]"#,
            "main.yaml:1:2 SINEW-1002 while parsing a quoted scalar, found high surrogate without following low surrogate\n",
        ),
        (
            r#"["\udc00"]"#,
            "main.yaml:1:2 SINEW-1002 while parsing a quoted scalar, found unpaired low surrogate\n",
        ),
        (
            "a: 1\nb:\n  x: 1\n  y: 2\n  x: 3\na: 2",
            "main.yaml:5:3 SINEW-1005 key 'x' is duplicated in one object\nmain.yaml:6:1 SINEW-1005 key 'a' is duplicated in one object\n",
        ),
        (r#"{"é": 1, "\u00e9": 2}"#, "main.yaml:1:10 SINEW-1005 key 'é' is duplicated in one object\n"),
        (
            "a: .inf\nb: .nan\nc: 1e999\nd: 18446744073709551616",
            "main.yaml:1:4 SINEW-1009 number is not finite\nmain.yaml:2:4 SINEW-1009 number is not finite\nmain.yaml:3:4 SINEW-1009 number is not finite\nmain.yaml:4:4 SINEW-1009 whole number does not fit into 64 bits\n",
        ),
        ("a: ${HUGE}", "main.yaml:1:4 SINEW-1009 number is not finite\n"),
        ("? [1]\n: 2", "main.yaml:1:3 SINEW-1010 key is not a text\n"),
        ("a: {{x}}", "main.yaml:1:5 SINEW-1010 key is not a text\n"),
        (": x", "main.yaml:1:1 SINEW-1010 key is missing\n"),
        ("a: *x", "main.yaml:1:4 SINEW-1011 alias without an anchor of that name\n"),
        ("a: &x [*x]", "main.yaml:1:8 SINEW-1011 alias is inside the value that it refers to\n"),
        ("<<: 1", "main.yaml:1:1 SINEW-1011 << takes an object or a list of objects\n"),
        ("<<: {a: 1}\n<<: {b: 1}", "main.yaml:2:1 SINEW-1005 key '<<' is duplicated in one object\n"),
        (
            "a: !!binary eA==\nb: !thing {}\nc: !!int x",
            "main.yaml:1:13 SINEW-1012 tag !!binary is not known here\nmain.yaml:2:11 SINEW-1012 tag !thing is not known here\nmain.yaml:3:10 SINEW-1012 value does not fit its tag !!int\n",
        ),
        (
            "a: ${NO}\nb: x${ALSO_NO}",
            "main.yaml:1:4 SINEW-1016 environment variable NO is not set\nmain.yaml:2:4 SINEW-1016 environment variable ALSO_NO is not set\n",
        ),
        (
            "a: ${HOME}\nb: ${NATS_URL}",
            "main.yaml:1:4 SINEW-1017 environment variable HOME is not allowed here\nmain.yaml:2:4 SINEW-1018 environment variable NATS_URL is reserved: files never read NATS_* and SINEW_*\n",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(findings(load_text(text)), *expected, "{text}");
    }
}

/// Texts that mean something to shells, JavaScript and templates, and so to a loader that replaces variables.
const HOSTILE_TEXTS: &[&str] = &[
    "${PORT}",
    "$${PORT}",
    "${HOME}",
    "${NO, x}",
    "${VAR:-x}",
    "`${x}`",
    "Bearer ${API_TOKEN}",
    "!include x",
];

#[test]
fn data_and_kept_files_arrive_as_written() {
    for text in HOSTILE_TEXTS {
        let value = json!({"a": text, "b": [text], "c": {"d": text}});
        let json = value.to_string();
        assert_eq!(
            load_data(json.as_bytes(), "input.json", Limits::default()).unwrap().root.to_json(),
            value
        );
        assert_eq!(load_kept(&json).unwrap().root.to_json(), value);
    }
    // YAML is data too: block texts, anchors and merge keys work.
    let yaml = "a: ${PORT}\nb: &x {k: '${HOME}'}\nc: *x\nd: {<<: *x, l: 1}\ne: |\n  echo ${VAR:-x}\n";
    let expected = json!({
        "a": "${PORT}", "b": {"k": "${HOME}"}, "c": {"k": "${HOME}"}, "d": {"k": "${HOME}", "l": 1},
        "e": "echo ${VAR:-x}\n",
    });
    assert_eq!(load_data(yaml.as_bytes(), "input.yaml", Limits::default()).unwrap().root.to_json(), expected);
    assert_eq!(load_kept(yaml).unwrap().root.to_json(), expected);
}

#[test]
fn data_takes_no_tags_and_includes_nothing() {
    let cases: &[(&str, &str)] = &[
        ("a: !include x.yaml", "in:1:13 SINEW-1012 tag !include is not allowed in data\n"),
        ("a: !!str 1", "in:1:10 SINEW-1012 tag !!str is not allowed in data\n"),
        ("a: ! 1", "in:1:6 SINEW-1012 tag ! is not allowed in data\n"),
        ("!!str a: 1", "in:1:7 SINEW-1012 tag !!str is not allowed in data\n"),
        (
            "a: !!map {}\nb: !x []",
            "in:1:10 SINEW-1012 tag !!map is not allowed in data\nin:2:7 SINEW-1012 tag !x is not allowed in data\n",
        ),
        ("!include /etc/passwd", "in:1:10 SINEW-1012 tag !include is not allowed in data\n"),
        ("x: 1\nx: 2", "in:2:1 SINEW-1005 key 'x' is duplicated in one object\n"),
        ("", "in:1:1 SINEW-1003 file is empty\n"),
        ("a: [1", "in:1:4 SINEW-1002 unclosed bracket '['\n"),
    ];
    for (text, expected) in cases {
        assert_eq!(findings(load_data(text.as_bytes(), "in", Limits::default())), *expected, "{text}");
    }
    // An include on a line of its own is a slip of YAML in data, not a text operation.
    let found = load_data(b"a: 1\n!include x.yaml\nb: 2\n", "in", Limits::default()).unwrap_err();
    assert_eq!((found.items[0].code, found.items[0].span.unwrap().line), ("SINEW-1002", 2));
    let limits = Limits { max_bytes: 3, ..Limits::default() };
    assert_eq!(load_data(b"[1, 2]", "in", limits).unwrap_err().items[0].code, "SINEW-1006");
}

#[test]
fn bytes_that_are_no_text() {
    let cases: &[(&[u8], &str)] = &[
        (b"a: 1\nb: \"x\xff\"", "main.yaml:2:6 SINEW-1001 text is not valid UTF-8\n"),
        (b"\xef\xbb\xbf\xc3", "main.yaml:1:1 SINEW-1001 text is not valid UTF-8\n"),
        (b"\xff\xfea\0", "main.yaml:1:1 SINEW-1001 text is not valid UTF-8\n"),
        (b"\xc3\xa9: \xc3", "main.yaml:1:4 SINEW-1001 text is not valid UTF-8\n"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(findings(load_files(&[("main.yaml", bytes)], Limits::default())), *expected, "{bytes:?}");
    }
}

/// Things that are small to write and huge to read. A budget stops each before it costs anything.
#[test]
fn bombs() {
    let laughs: String = (1..10).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let before = n - 1;
        let nine = [format!("*a{before}")].repeat_for(9).join(",");
        text + &format!("a{n}: &a{n} [{nine}]\n")
    });
    let merges: String = (1..30).fold("a0: &a0 {k: v}\n".to_owned(), |text, n| {
        let before = n - 1;
        text + &format!("a{n}: &a{n} {{<<: *a{before}, p{n}: *a{before}, q{n}: *a{before}}}\n")
    });
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(100_000), "*a,".repeat(5000));
    let onion = format!("{}1{}", "&a [".repeat(100), "]".repeat(100));
    let cases: &[(&str, String, &str)] = &[
        ("billion laughs", laughs, "SINEW-1007"),
        ("merge keys", merges, "SINEW-1007"),
        ("one long text many times", long, "SINEW-1007"),
        ("brackets", "[".repeat(50_000), "SINEW-1008"),
        ("closed brackets", "[".repeat(50_000) + &"]".repeat(50_000), "SINEW-1008"),
        ("braces", "{a: ".repeat(50_000), "SINEW-1008"),
        ("dashes", "- ".repeat(50_000), "SINEW-1008"),
        ("explicit keys", "? ".repeat(50_000), "SINEW-1008"),
        ("values", format!("[{}]", "1,".repeat(600_000)), "SINEW-1007"),
        ("bytes", "x".repeat((8 << 20) + 1), "SINEW-1006"),
        ("one level too many", "[".repeat(129) + &"]".repeat(129), "SINEW-1008"),
        (
            "alias deeper than allowed",
            format!(
                "a: &a {}{}\nb: {}*a{}",
                "[".repeat(100),
                "]".repeat(100),
                "[".repeat(100),
                "]".repeat(100)
            ),
            "SINEW-1008",
        ),
        ("nested anchors", onion, "fine"),
        ("128 levels", "[".repeat(128) + &"]".repeat(128), "fine"),
    ];
    for (name, text, expected) in cases {
        let got = match load_text(text) {
            Ok(_) => "fine",
            Err(diagnostics) => diagnostics.items[0].code,
        };
        assert_eq!(got, *expected, "{name}");
    }
}

trait RepeatFor {
    fn repeat_for(&self, times: usize) -> Vec<String>;
}

impl RepeatFor for [String; 1] {
    fn repeat_for(&self, times: usize) -> Vec<String> {
        vec![self[0].clone(); times]
    }
}

#[test]
fn variables_count_against_the_limit() {
    let limits = Limits { max_bytes: 60, ..Limits::default() };
    let text = "[${WORD},${WORD},${WORD},${WORD},${WORD}]";
    assert!(load_files(&[("main.yaml", text[..16].replace(",$", "]").as_bytes())], limits).is_err());
    assert_eq!(
        findings(load_files(
            &[("main.yaml", b"- '${WORD}'\n- '${WORD}'\n- '${WORD}'\n- '${WORD}'\n")],
            limits
        )),
        "main.yaml:3:3 SINEW-1006 more than 60 bytes, including included files and variables\n"
    );
}

#[test]
fn includes() {
    type Files = &'static [(&'static str, &'static [u8])];
    let cases: &[(Files, &str)] = &[
        (
            &[
                ("main.yaml", b"a: !include sub/x.yaml"),
                ("sub/x.yaml", b"[1, !include ../y.json]"),
                ("y.json", b"{\"z\": true}"),
            ],
            r#"{"a":[1,{"z":true}]}"#,
        ),
        (&[("main.yaml", b"!include x.yaml"), ("x.yaml", b"- 1")], "[1]"),
        (
            &[("main.yaml", b"a: &x !include x.yaml\nb: *x"), ("x.yaml", b"k: 1")],
            r#"{"a":{"k":1},"b":{"k":1}}"#,
        ),
        (
            &[("main.yaml", b"a:\n  <<: !include x.yaml\n  k: 2"), ("x.yaml", b"{k: 1, l: 1}")],
            r#"{"a":{"l":1,"k":2}}"#,
        ),
        (
            &[("main.yaml", b"a: !include nothing.yaml\nb: !include ./x.yaml"), ("x.yaml", b"a: 1\na: 2")],
            "main.yaml:1:13 SINEW-1013 cannot read included file nothing.yaml: no such file\nx.yaml:2:1 SINEW-1005 key 'a' is duplicated in one object\n",
        ),
        (
            &[("main.yaml", b"a: !include x.yaml"), ("x.yaml", b"b: !include ./sub/../main.yaml")],
            "x.yaml:1:13 SINEW-1014 include cycle: main.yaml -> x.yaml -> main.yaml\n",
        ),
        (&[("main.yaml", b"a: !include x.yaml"), ("x.yaml", b"")], "x.yaml:1:1 SINEW-1003 file is empty\n"),
        (
            &[("main.yaml", b"a: !include x.yaml"), ("x.yaml", b"\xff")],
            "x.yaml:1:1 SINEW-1001 text is not valid UTF-8\n",
        ),
        (&[("main.yaml", b"a: !include ${WORD}.yaml"), ("hello.yaml", b"1")], r#"{"a":1}"#),
        (
            &[("main.yaml", b"a: !include ${API_TOKEN}.yaml")],
            "main.yaml:1:13 SINEW-1013 cannot read included file ${API_TOKEN}.yaml: no such file\n",
        ),
        // As a line: members join the top level, anchors can be used below.
        (
            &[
                ("main.yaml", b"log: 1\n!include sub/shared.yaml\n\napps:\n  - <<: *broker\n    name: x\n"),
                ("sub/shared.yaml", b"shared:\n  - broker: &broker\n      url: ${NO, ws://x:1}\n"),
            ],
            r#"{"shared":[{"broker":{"url":"ws://x:1"}}],"log":1,"apps":[{"url":"ws://x:1","name":"x"}]}"#,
        ),
        (
            &[("main.yaml", b"!include x.yaml # shared\na: 1\n"), ("x.yaml", b"a: 2")],
            "main.yaml:2:1 SINEW-1005 key 'a' is duplicated in one object\n",
        ),
        (
            &[("main.yaml", b"!include x.yaml\na: 1\n"), ("x.yaml", b"[2]")],
            "main.yaml:1:1 SINEW-1011 a file included as a line must contain an object\n",
        ),
        (
            &[("main.yaml", b"a: 1\n!include x.yaml\nb: [\n"), ("x.yaml", b"c: 2")],
            "main.yaml:3:4 SINEW-1002 unclosed bracket '['\n",
        ),
    ];
    for (files, expected) in cases {
        assert_eq!(
            findings(load_files(files, Limits::default())),
            *expected,
            "{}",
            String::from_utf8_lossy(files[0].1)
        );
    }
}

#[test]
fn too_many_includes() {
    // Each file includes the next one twice: 2^20 files if nobody counted.
    let texts: Vec<(String, String)> = (0..20)
        .map(|n| {
            let name = if n == 0 { "main.yaml".to_owned() } else { format!("{n}.yaml") };
            (name, format!("[!include {0}.yaml , !include {0}.yaml ]", n + 1))
        })
        .chain([("20.yaml".to_owned(), "1".to_owned())])
        .collect();
    let files: Vec<(&str, &[u8])> =
        texts.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    let diagnostics = load_files(&files, Limits::default()).unwrap_err();
    assert_eq!(diagnostics.items.len(), 1);
    assert_eq!(diagnostics.items[0].code, "SINEW-1015");
}

#[test]
fn spans_point_at_the_text_they_came_from() {
    let text = "é: ü\nlist:\n  - from: fix\n    to: [1, \"two\"]\nlast: !include x.yaml\n";
    let files: &[(&str, &[u8])] = &[("main.yaml", text.as_bytes()), ("x.yaml", b"# c\n  k: v\n")];
    let document = load_files(files, Limits::default()).unwrap();
    let cases = [
        ("/é", "main.yaml:1:4 ü"),
        ("/list", "main.yaml:3:3 - from: fix\n    to: [1, \"two\"]"),
        ("/list/0", "main.yaml:3:5 from: fix\n    to: [1, \"two\"]"),
        ("/list/0/to", "main.yaml:4:9 [1, \"two\"]"),
        ("/list/0/to/1", "main.yaml:4:13 \"two\""),
        ("/last/k", "x.yaml:2:6 v"),
        ("/last", "x.yaml:2:3 k: v"),
    ];
    for (pointer, expected) in cases {
        let span = document.root.at_pointer(pointer).unwrap_or_else(|| panic!("{pointer}")).span;
        let file = document.sources.get(span.file).unwrap();
        let got = format!("{}:{}:{} {}", file.name, span.line, span.column, &file.text[span.start..span.end]);
        assert_eq!(got, expected, "{pointer}");
    }
    for wrong in ["list", "/list/00", "/list/1", "/list/-1", "/é/x", "/nothing"] {
        assert!(document.root.at_pointer(wrong).is_none(), "{wrong}");
    }
}

/// Any JSON value that the loader accepts: no `${`, keys within what YAML allows for a key on one line.
fn json_value() -> impl Strategy<Value = Value> {
    let text = any::<String>().prop_filter("a substitution", |text| !text.contains("${"));
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Value::from),
        text.clone().prop_map(Value::from),
        "[ -~]{0,12}".prop_filter("a substitution", |text| !text.contains("${")).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((text.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_comes_back_as_it_was(value in json_value()) {
        for text in [value.to_string(), format!("{value:#}")] {
            let document = load_text(&text).map_err(|d| TestCaseError::fail(format!("{text}\n{d}")))?;
            prop_assert_eq!(document.root.to_json().to_string(), value.to_string());
            prop_assert_eq!(sinew_source::Node::from_json(&value).to_json(), value.clone());
            let data = load_data(text.as_bytes(), "in", Limits::default());
            let data = data.map_err(|d| TestCaseError::fail(format!("{text}\n{d}")))?;
            prop_assert_eq!(data.root.to_json().to_string(), value.to_string());
        }
    }

    #[test]
    fn nothing_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), yaml in r#"([-?:,{}&*!|>'"%@`#\[\] \n\t~<$a-c0-9.]|<<: |\$\{A\}|!include x|&a |\*a|!!str |: |- ){0,60}"#) {
        for bytes in [bytes.as_slice(), yaml.as_bytes()] {
            if let Err(diagnostics) = load_data(bytes, "in", Limits::default()) {
                prop_assert!(!sinew_source::render_text(&diagnostics, true).is_empty());
            }
            if let Err(diagnostics) = load_files(&[("main.yaml", bytes), ("x", b"&a {b: 1}")], Limits::default()) {
                prop_assert!(diagnostics.has_errors());
                // Rendering must cope with every span as well.
                prop_assert!(!sinew_source::render_text(&diagnostics, true).is_empty());
                prop_assert!(!sinew_source::render_sarif(&diagnostics).is_empty());
            }
        }
    }
}
