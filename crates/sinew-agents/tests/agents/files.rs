use std::path::PathBuf;

use sinew_agents::{Agent, AgentSet, agent_file_schema};
use sinew_protocol::card::Delivery;
use tempfile::TempDir;

use crate::fixture::environment;

/// The complaints about this text, each as `line:column code message`.
fn complaints(text: &str) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("x.agent.yaml");
    std::fs::write(&path, text).unwrap();
    let found = Agent::load_with(&path, &environment()).expect_err(text);
    found
        .items
        .iter()
        .map(|item| {
            let place = item.span.map_or_else(String::new, |span| format!("{}:{} ", span.line, span.column));
            format!("{place}{} {}", item.code, item.message)
        })
        .collect()
}

#[test]
fn complaints_have_places() {
    let mut wrong = Vec::new();
    for (text, expected) in [
        ("name: x\nrun: {command: {argv: [a]}}\nspeed: 1\n", "3:"),
        ("name: x y\nrun: {command: {argv: [a]}}\n", "1:7 "),
        ("run: {command: {argv: [a]}}\n", "1:1 "),
        ("name: x\n", "1:1 "),
        ("name: x\nrun: {}\n", "2:6 "),
        ("name: x\nrun:\n  command: {argv: [a]}\n  http: {url: 'http://a/'}\n", "3:3 "),
        ("name: x\nrun: {command: {argv: []}}\n", "2:23 "),
        ("name: x\nrun: {command: {argv: [1]}}\n", "2:24 "),
        ("name: x\nconcurrency: 0\nrun: {command: {argv: [a]}}\n", "2:14 "),
        ("name: x\ntimeout: soon\nrun: {command: {argv: [a]}}\n", "2:10 "),
        ("name: x\ndelivery: pigeon\nrun: {command: {argv: [a]}}\n", "2:11 "),
        // Rules that the schema cannot express.
        (
            "name: x\ntimeout: 0s\nrun: {command: {argv: [a]}}\n",
            "1:1 SINEW-5010 expected a duration such as 250ms, 30s",
        ),
        (
            "name: x\nrun: {command: {argv: [sh, '{{ input.a }}']}}\n",
            "2:28 SINEW-5010 argv is taken literally; read the input from stdin or put it into env",
        ),
        ("name: x\nrun: {command: {argv: [sh, '${env:A}']}}\n", "2:28 SINEW-5010 argv is taken literally"),
        ("name: x\nrun: {command: {argv: ['']}}\n", "2:24 SINEW-5010 this is not a valid program name"),
        (
            "name: x\nrun: {command: {argv: [a], env: {A: '{{input.a'}}}\n",
            "2:37 SINEW-5010 '{{' without '}}'",
        ),
        (
            "name: x\nrun: {command: {argv: [a], env: {A=B: c}}}\n",
            "2:39 SINEW-5010 this is not a valid name of a variable",
        ),
        (
            "name: x\nrun: {http: {url: 'ftp://a/'}}\n",
            "2:19 SINEW-5010 it must begin with http:// or https://",
        ),
        (
            "name: x\nrun: {http: {url: 'http://{{input.host}}/'}}\n",
            "2:19 SINEW-5010 scheme, host and port cannot come from data",
        ),
        (
            "name: x\nrun: {http: {url: 'http://a{{input.host}}/'}}\n",
            "2:19 SINEW-5010 scheme, host and port cannot come from data",
        ),
        (
            "name: x\nrun: {http: {url: '{{input.url}}'}}\n",
            "2:19 SINEW-5010 it must begin with http:// or https:// and a host",
        ),
        ("name: x\nrun: {http: {url: 'http://u:p@a/'}}\n", "2:19 SINEW-5010 it must not contain credentials"),
        (
            "name: x\nrun: {http: {url: 'http://a/${env:TOKEN}'}}\n",
            "2:19 SINEW-5010 a secret from the environment may only",
        ),
        (
            "name: x\nrun: {http: {url: 'http://a/', body: {a: ['${env:TOKEN}']}}}\n",
            "2:38 SINEW-5010 a secret from the environment",
        ),
        (
            "name: x\nrun: {http: {url: 'http://a/', method: 'GE T'}}\n",
            "2:40 SINEW-5010 'GE T' is not an HTTP method",
        ),
        (
            "name: x\nrun: {http: {url: 'http://a/', headers: {Host: b}}}\n",
            "2:48 SINEW-5010 header 'host' is set by the client",
        ),
        (
            "name: x\nrun: {http: {url: 'http://a/', headers: {'a b': c}}}\n",
            "2:49 SINEW-5010 'a b' is not a header name",
        ),
        (
            "name: x\nrun: {http: {url: 'http://a/', headers: {A: \"b\\r\\nC: d\"}}}\n",
            "2:45 SINEW-5010 header 'a' contains a control character",
        ),
        ("name: x\nrun: {http: {}}\n", "2:13 SINEW-5010 a request needs a url"),
        (
            "name: x\nrun: {http: {from_input: true, url: 'http://a/'}}\n",
            "2:37 SINEW-5010 with from_input the input contains the url",
        ),
        ("name: x\nrun: {script: {source: 'lambda x: ('}}\n", "2:24 SINEW-3001 the script cannot be used"),
        // A script of several lines has its own places.
        (
            "name: x\nrun:\n  script:\n    source: |\n      def f(x):\n          y = 1\n          return {'a' 1}\n",
            "7:23 SINEW-3001 the script cannot be used",
        ),
        (
            "name: x\nrun: {script: {source: \"def f(x):\\n  return {'a' 1}\\n\"}}\n",
            "2:50 SINEW-3001 the script cannot be used",
        ),
        ("name: x\nrun: {script: {file: none.py}}\n", "2:22 SINEW-5010 cannot read 'none.py'"),
        ("name: x\nrun: {script: {}}\n", "2:15 SINEW-5010 expected either source or file"),
        (
            "name: x\noutput_schema: {type: 5}\nrun: {command: {argv: [a]}}\n",
            "2:23 SINEW-2112 'output_schema' has a type that is integer, not a name",
        ),
        (
            "name: x\nrun: {http: {url: 'http://a/${TOKEN}'}}\n",
            "2:19 SINEW-5010 an environment variable may only be used in a header",
        ),
        (
            "name: x\nrun: {command: {argv: [a], env: {A: '${env:NATS_CREDS}'}}}\n",
            "2:37 SINEW-5010 environment variable NATS_CREDS is reserved",
        ),
        (
            "name: x\nrun: {command: {argv: [a], env: {A: '${SINEW_ARTIFACTS}'}}}\n",
            "2:37 SINEW-5010 environment variable SINEW_ARTIFACTS is reserved",
        ),
        (
            "name: x\nrun: {command: {argv: [a], references: [TOKEN, NATS_CREDS]}}\n",
            "2:48 SINEW-5010 this is not a valid name of a variable",
        ),
        (
            "name: x\nrun: {command: {argv: [a], references: {NATS_CREDS: [local]}}}\n",
            "2:53 SINEW-5010 this is not a valid name of a variable",
        ),
        // No text of a card is replaced: a card is published.
        ("name: ${TOKEN}\nrun: {command: {argv: [a]}}\n", "1:7 SINEW-"),
    ] {
        let found = complaints(text);
        if !found.iter().any(|line| line.starts_with(expected)) {
            wrong.push(format!("{text}expected {expected}\nfound {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_full_file_is_read_and_agrees_with_the_exported_form() {
    let text = "
name: greeter
version: 2.1.0
description: Greets for ${TOKEN}.
skills: [{id: greet, name: Greet, tags: [hello], examples: [hi]}]
input_schema: {type: object}
output_schema: true
concurrency: 3
timeout: 1.5m
delivery: direct
run:
  http:
    url: https://greet.example/v1/{{input.name}}?lang={{input.lang}}
    method: GET
    headers: {Authorization: \"Bearer ${env:TOKEN}\", X-Zone: \"${ZONE, eu}\"}
    timeout: 10
    retry: {limit: 3}
    max_output: 1000
    allow_private: false
";
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("greeter.agent.yaml");
    std::fs::write(&path, text).unwrap();
    let agent = Agent::load(&path).unwrap();
    let card = (agent.name(), agent.version(), agent.description(), agent.concurrency(), agent.delivery());
    assert_eq!(card, ("greeter", "2.1.0", "Greets for ${TOKEN}.", 3, Delivery::Direct));
    assert_eq!((agent.timeout().as_secs(), agent.announcement().skills[0].name.as_str()), (90, "Greet"));
    assert_eq!((agent.input_schema().is_some(), agent.output_schema().is_some()), (true, true));
    assert!(!format!("{agent:?}").contains("Bearer"));
    assert_eq!(agent.announcement().description, "Greets for ${TOKEN}.");
    let form = agent_file_schema();
    assert_eq!(form["required"], serde_json::json!(["name", "run"]));
    assert_eq!(form["additionalProperties"], false);
}

#[test]
fn nearer_folders_take_precedence() {
    let (near, far) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for (folder, about) in [(&near, "near"), (&far, "far")] {
        for name in ["greeter", about] {
            let text = format!("name: {name}\ndescription: {about}\nrun: {{command: {{argv: [cat]}}}}\n");
            std::fs::write(folder.path().join(format!("{name}.agent.yaml")), text).unwrap();
        }
    }
    let folders = [near.path().to_owned(), far.path().to_owned()];
    let set = AgentSet::load_nearest(&folders).unwrap();
    let found: Vec<_> = set.iter().map(|agent| (agent.name(), agent.description())).collect();
    assert_eq!(found, [("far", "far"), ("greeter", "near"), ("near", "near")]);
}

#[test]
fn sets_hold_each_name_once() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("b.agent.yaml", "name: bob\nrun: {command: {argv: [cat]}}\n");
    write("a.agent.json", r#"{"name": "ann", "run": {"command": {"argv": ["cat"]}}}"#);
    write("c.agent.yml", "name: cid\nrun: {command: {argv: [cat]}}\n");
    write("notes.yaml", "not: an agent\n");
    let here = [folder.path().to_owned()];
    let set = AgentSet::load_paths(&here).unwrap();
    assert_eq!(set.names().collect::<Vec<_>>(), ["ann", "bob", "cid"]);
    assert_eq!(
        (set.get("bob").map(|agent| agent.name()), set.get("Bob").is_none(), set.len()),
        (Some("bob"), true, 3)
    );

    write("d.agent.yaml", "# again\nname: bob\nrun: {command: {argv: [cat]}}\n");
    write("e.agent.yaml", "name: eve\nrun: {}\n");
    let found = AgentSet::load_paths(&[here[0].clone(), PathBuf::from("/no/such/place")]).unwrap_err();
    let told: Vec<_> = found
        .items
        .iter()
        .map(|item| {
            let file = |span: &sinew_source::Span| {
                let file = &found.sources.get(span.file).unwrap().name;
                format!("{}:{}", file.rsplit('/').next().unwrap(), span.line)
            };
            let related = item.related.iter().map(|(span, _)| file(span)).collect::<Vec<_>>().join(",");
            format!("{} {} {related}", item.span.as_ref().map_or_else(String::new, file), item.code)
        })
        .collect();
    assert_eq!(told[0], "d.agent.yaml:2 SINEW-5011 b.agent.yaml:1");
    assert!(told[1].starts_with("e.agent.yaml:2 "), "{told:?}");
    assert_eq!(told.last().unwrap(), " SINEW-5010 ");
}
