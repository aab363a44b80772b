//! Rendered diagnostics for people and machines, to the letter.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use serde_json::{Value, json};
use sinew_source::{
    Diagnostic, Diagnostics, Document, Limits, LoadOptions, Schema, Severity, Span, check_node, did_you_mean,
    load, render_github, render_json, render_sarif, render_text, summary,
};

fn document(name: &str, text: &str) -> Document {
    let options = LoadOptions {
        name,
        variables: sinew_source::Variables::Kept,
        read: &|_| Err("no such file".to_owned()),
        limits: Limits::default(),
    };
    load(text.as_bytes(), &options).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

/// An error and a warning about a small workflow.
fn sample() -> Diagnostics {
    let text = format!("{}edges:\n  - from: fix\n    to: review\n", "# line\n".repeat(29));
    let document = document("flows/audit.yml", &text);
    let edge = document.root.at_pointer("/edges/0").unwrap().span;
    let mut diagnostics = Diagnostics::new(document.sources);
    diagnostics.push(
        Diagnostic::warning("SINEW-2099", "edge has no condition")
            .at(document.root.at_pointer("/edges/0/to").unwrap().span)
            .related(edge, "the edge starts here"),
    );
    diagnostics.push(
        Diagnostic::error("SINEW-2007", "cycle review -> fix -> review has no max_iterations")
            .at(edge)
            .sub_code("UNBOUNDED_CYCLE")
            .hint("add `max_iterations: 3` to one edge of the cycle; see `sinew explain SINEW-2007`"),
    );
    diagnostics.set_dialect("sweny");
    diagnostics.sort();
    diagnostics
}

#[test]
fn text_for_people() {
    let diagnostics = sample();
    insta::assert_snapshot!(render_text(&diagnostics, false), @r"
    flows/audit.yml:31:5: SINEW-2007: cycle review -> fix -> review has no max_iterations (sweny: UNBOUNDED_CYCLE)
       31 |   - from: fix
          |     ^^^^^^^^^
    hint: add `max_iterations: 3` to one edge of the cycle; see `sinew explain SINEW-2007`
    flows/audit.yml:32:9: warning: SINEW-2099: edge has no condition
       32 |     to: review
          |         ^^^^^^
    note: flows/audit.yml:31:5: the edge starts here
    ");
    assert_eq!(summary(diagnostics.errors(), 0, 1), "1 error, 0 warnings in 1 file");
    assert_eq!(summary(0, 1, 2), "0 errors, 1 warning in 2 files");
}

#[test]
fn colour_adds_nothing_but_colour() {
    let coloured = render_text(&sample(), true);
    assert!(coloured.contains("\u{1b}[1;31mSINEW-2007:\u{1b}[0m"));
    let mut plain = String::new();
    let mut parts = coloured.split('\u{1b}');
    plain.push_str(parts.next().unwrap());
    parts.for_each(|part| plain.push_str(part.split_once('m').unwrap().1));
    assert_eq!(plain, render_text(&sample(), false));
}

#[test]
fn github() {
    insta::assert_snapshot!(render_github(&sample()), @r"
    ::error file=flows/audit.yml,line=31,col=5,title=SINEW-2007::cycle review -> fix -> review has no max_iterations (sweny: UNBOUNDED_CYCLE)%0Ahint: add `max_iterations: 3` to one edge of the cycle; see `sinew explain SINEW-2007`
    ::warning file=flows/audit.yml,line=32,col=9,endColumn=15,title=SINEW-2099::edge has no condition
    ");
    let mut odd = Diagnostics::new(document("a,b:c.yml", "x").sources);
    odd.push(Diagnostic::error("SINEW-2000", "100%\nsure"));
    assert_eq!(render_github(&odd), "::error file=a%2Cb%3Ac.yml,title=SINEW-2000::100%25%0Asure\n");
}

#[test]
fn json_and_sarif() {
    let json: Value = serde_json::from_str(&render_json(&sample())).unwrap();
    assert_eq!(json["errors"], 1);
    assert_eq!(
        json["diagnostics"][1],
        json!({
            "severity": "warning", "code": "SINEW-2099", "message": "edge has no condition",
            "file": "flows/audit.yml", "line": 32, "column": 9, "end_line": 32, "end_column": 15,
            "related": [{"file": "flows/audit.yml", "line": 31, "column": 5, "message": "the edge starts here"}],
        })
    );
    assert_eq!(json["diagnostics"][0]["sub_code"], "UNBOUNDED_CYCLE");
    let sarif: Value = serde_json::from_str(&render_sarif(&sample())).unwrap();
    let run = &sarif["runs"][0];
    assert_eq!(run["tool"]["driver"]["rules"], json!([{"id": "SINEW-2007"}, {"id": "SINEW-2099"}]));
    assert_eq!(run["results"][0]["level"], "error");
    assert_eq!(
        run["results"][1]["locations"][0]["physicalLocation"],
        json!({
            "artifactLocation": {"uri": "flows/audit.yml"},
            "region": {"startLine": 32, "startColumn": 9, "endLine": 32, "endColumn": 15},
        })
    );
}

#[test]
fn snippets_of_odd_lines() {
    let long = format!("x: [{}bad, {}]", "filler, ".repeat(40), "filler, ".repeat(40));
    let cases: &[(&str, &str, &str)] = &[
        (
            "x: \"a[31m\u{202e}b\"",
            "    1 | x: \"a[31m\\u202eb\"\n      |    ^^^^^^^^^^^^^^\n",
            "a mark that turns the reading direction",
        ),
        ("x:\t\tb", "    1 | x:  b\n      |     ^\n", "tabs"),
        ("é: é", "    1 | é: é\n      |    ^\n", "letters, not bytes"),
        ("x: |\n  one\n  two\n", "    2 |   one\n      |   ^^^\n", "the first line of several"),
        ("x:", "    1 | x:\n      |  ^\n", "nothing at all"),
    ];
    for (text, expected, name) in cases {
        let document = document("f", text);
        let mut diagnostics = Diagnostics::new(document.sources);
        diagnostics.push(Diagnostic::error("C", "m").at(document.root.as_object().unwrap()[0].value.span));
        let text = render_text(&diagnostics, false);
        assert_eq!(text.split_once("C: m\n").unwrap().1, *expected, "{name}");
    }
    let document = document("f", &long);
    let mut diagnostics = Diagnostics::new(document.sources);
    diagnostics.push(Diagnostic::error("C", "m").at(document.root.at_pointer("/x/40").unwrap().span));
    insta::assert_snapshot!(render_text(&diagnostics, false), @"
    f:1:325: C: m
        1 | …filler, filler, filler, filler, filler, bad, filler, filler, filler, filler, filler, filler, filler, filler, filler, fil…
          |                                          ^^^
    ");
}

#[test]
fn without_a_place_and_too_many() {
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(Diagnostic::error("SINEW-9", "no file"));
    assert_eq!(render_text(&diagnostics, false), "SINEW-9: no file\n");
    let mut diagnostics = Diagnostics::new(document("f", "x").sources);
    diagnostics.push(Diagnostic::error("SINEW-9", "in\u{7}file").at(Span::default()));
    assert_eq!(render_text(&diagnostics, false), "f: SINEW-9: in\\u0007file\n");
    diagnostics.extend((0..60).map(|n| Diagnostic::warning("SINEW-9", format!("{n}"))));
    assert_eq!(render_text(&diagnostics, false).lines().last(), Some("and 11 more"));
    // A span that does not fit the text costs the snippet, nothing else.
    let mut diagnostics = Diagnostics::new(document("f", "é").sources);
    for (file, start, end) in [(0, 1, 1), (0, 90, 100), (7, 0, 1), (0, 0, 90), (0, 2, 0)] {
        diagnostics.push(Diagnostic::error("C", "m").at(Span { file, line: 1, column: 1, start, end }));
    }
    assert_eq!(render_text(&diagnostics, false).matches("C: m").count(), 5);
    assert!(render_json(&diagnostics).contains("\"errors\": 5"));
}

#[test]
fn order_is_by_place() {
    let at = |line, column| Span { file: 0, line, column, start: 0, end: 0 };
    let mut diagnostics = Diagnostics::default();
    diagnostics.extend([
        Diagnostic::warning("C", "d").at(at(2, 1)),
        Diagnostic::error("C", "c").at(at(2, 1)),
        Diagnostic::error("C", "b").at(at(1, 9)),
        Diagnostic::error("C", "b").at(at(1, 9)),
        Diagnostic::error("C", "a"),
    ]);
    diagnostics.sort();
    let order: String = diagnostics.items.iter().map(|item| item.message.as_str()).collect();
    assert_eq!(order, "abcd");
    assert!(diagnostics.has_errors());
    diagnostics.items.retain(|item| item.severity == Severity::Warning);
    assert!(!diagnostics.has_errors());
}

#[test]
fn schema_violations_in_the_file() {
    let node = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"}, "type": {"enum": ["agent", "switch"]}, "depends_on": {"type": "array"},
            "max_items": {"type": "integer"},
        },
        "required": ["id", "agent_name"],
        "additionalProperties": false,
    });
    let schema = Schema::compile(&json!({
        "type": "object",
        "properties": {"nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "$defs": {"node": node},
    }))
    .unwrap();
    let document = document(
        "w.yaml",
        "nodes:\n  - id: a\n    type: agnet\n    dependson: [b]\n    zzzz: 1\n    max_items: secret\n",
    );
    let mut diagnostics = Diagnostics::new(document.sources);
    diagnostics.extend(check_node(&schema, &document.root));
    diagnostics.sort();
    let text = render_text(&diagnostics, false);
    insta::assert_snapshot!(text, @r#"
    w.yaml:2:5: SINEW-4003: 'agent_name' is a required property at /nodes/0
        2 |   - id: a
          |     ^^
    w.yaml:3:11: SINEW-4001: string is not one of "agent" or "switch" at /nodes/0/type
        3 |     type: agnet
          |           ^^^^^
    hint: did you mean 'agent'?
    w.yaml:4:5: SINEW-4002: unknown property 'dependson' at /nodes/0
        4 |     dependson: [b]
          |     ^^^^^^^^^
    hint: did you mean 'depends_on'?
    w.yaml:5:5: SINEW-4002: unknown property 'zzzz' at /nodes/0
        5 |     zzzz: 1
          |     ^^^^
    hint: allowed here: id, type, depends_on, max_items
    w.yaml:6:16: SINEW-4004: string is not of type integer at /nodes/0/max_items
        6 |     max_items: secret
          |                ^^^^^^
    "#);
}

#[test]
fn suggestions() {
    let known = ["depends_on", "type", "id", "agent_name", "input"];
    let cases = [
        ("dependson", Some("depends_on")),
        ("Depends_On", Some("depends_on")),
        ("tpye", Some("type")),
        ("agent", None),
        ("agentname", Some("agent_name")),
        ("ip", Some("id")),
        ("x", None),
        ("", None),
        ("output", None),
        ("zzzz", None),
    ];
    for (word, expected) in cases {
        assert_eq!(did_you_mean(word, known.into_iter()), expected, "{word}");
    }
}

#[test]
fn load_errors_read_well() {
    let options = LoadOptions {
        name: "flows/a.yaml",
        variables: sinew_source::Variables::Replaced(&|_| sinew_source::Variable::Unset),
        read: &|path| match path.to_str() {
            Some("flows/b.yaml") => Ok(b"x: 1\nx: 2\n".to_vec()),
            _ => Err("no such file".to_owned()),
        },
        limits: Limits::default(),
    };
    let text = "broker: !include b.yaml\ninput: {{x}}\nurl: ${URL}\nother: !include c.yaml\nbig: 99999999999999999999\n";
    let diagnostics = load(text.as_bytes(), &options).unwrap_err();
    insta::assert_snapshot!(render_text(&diagnostics, false), @"
    flows/a.yaml:2:9: SINEW-1010: key is not a text
        2 | input: {{x}}
          |         ^^^
    hint: a template such as {{x}} needs quotes around it
    flows/a.yaml:3:6: SINEW-1016: environment variable URL is not set
        3 | url: ${URL}
          |      ^^^^^^
    hint: give a default with ${URL, default}, or write $${URL} to keep the text
    flows/a.yaml:4:17: SINEW-1013: cannot read included file flows/c.yaml: no such file
        4 | other: !include c.yaml
          |                 ^^^^^^
    hint: the path is relative to the file with the include
    flows/a.yaml:5:6: SINEW-1009: whole number does not fit into 64 bits
        5 | big: 99999999999999999999
          |      ^^^^^^^^^^^^^^^^^^^^
    hint: put it into quotes to keep it as text
    flows/b.yaml:2:1: SINEW-1005: key 'x' is duplicated in one object
        2 | x: 2
          | ^
    note: flows/b.yaml:1:1: first here
    note: flows/a.yaml:1:18: included here
    ");
}
