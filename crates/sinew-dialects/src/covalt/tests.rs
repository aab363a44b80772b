//! All cases of the dialect, and rules that the cases do not cover.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sinew_engine::{TaskReply, TaskRequest};
use sinew_protocol::Fault;
use sinew_source::Diagnostics;

use super::script::{self, ScriptScope};
use super::{Covalt, coerce, template};
use crate::Dialect;
use crate::testing::{Bench, Stubbed, judge, lower, lower_in, lower_with};

/// Test doubles, as kinds that a plugin would add.
pub(super) fn doubles() -> Value {
    json!({
        "const": { "outputs_from": "outputs" },
        "echo": {}, "boom": {}, "slow": {}, "empty": {},
        "stream": { "streaming": true },
        "provider": { "mode": "hybrid" },
        "linkagent": { "mode": "hybrid" },
    })
}

/// Returns the replies of the doubles to their data and inputs.
pub(super) fn double(node: &str, ask: &TaskRequest) -> Stubbed {
    let data = &ask.input["data"];
    let out = |ports: Value| Ok(TaskReply::new(json!({ "outputs": ports })));
    let value = |value: Value| json!({ "output": { "value": value } });
    let mut progress = Vec::new();
    let result = match ask.target.name() {
        "const" => out(data["outputs"].clone()),
        "echo" => {
            let mut all = data.as_object().cloned().unwrap_or_default();
            all.retain(|key, _| key != "_label" && key != "on_error");
            all.insert("__in".into(), ask.input["inputs"].clone());
            out(value(Value::Object(all)))
        }
        "boom" => Err(Fault::failure("SINEW-5101", data["msg"].as_str().unwrap())),
        "slow" => out(value(json!({ "id": node }))),
        "stream" => {
            let tokens: Vec<&str> =
                data["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
            progress = tokens.iter().map(|token| json!({ "token": token })).collect();
            let outputs = value(json!({ "text": tokens.concat() }));
            let mut reply = json!({ "outputs": outputs });
            if let Some(error) = data.get("fail") {
                reply["error"] = error.clone();
            }
            Ok(TaskReply::new(reply))
        }
        "empty" => out(json!({})),
        "linkagent" => out(value(ask.context["links"].clone())),
        _ => Ok(TaskReply::new(json!({ "response": format!("{node} did it") }))),
    };
    Stubbed { after: data["ms"].as_u64().unwrap_or(0), progress, result }
}

fn run(case: &Value) -> Result<(Value, Bench), Diagnostics> {
    let mut workflow = case["workflow"].clone();
    workflow["plugins"] = doubles();
    let lowered = lower(&Covalt, &workflow)?;
    let mut bench = Bench::new(lowered.plan, Covalt.adapter());
    bench.start(case["input"].clone(), &mut double);
    Ok((bench.native(), bench))
}

#[test]
fn recorded_runs() {
    judge("covalt", "run", |case, wrong| {
        let seen = match run(case) {
            Ok((native, bench)) => json!({
                "events": bench.lines(), "outputs": native["outputs"], "status": native["status"],
                "text": native["text"],
            }),
            Err(refused) => json!({ "validationError": refused.items[0].message }),
        };
        for (key, want) in case["expect"].as_object().unwrap().iter().filter(|(key, _)| *key != "note") {
            let mut seen = seen[key].clone();
            if let (true, Some(want), Some(own)) = (key == "outputs", want.as_object(), seen.as_object_mut())
            {
                own.retain(|id, _| want.contains_key(id));
            }
            wrong.check_null(key, &seen, want);
        }
    });
}

/// Returns a graph in short form: nodes `id:type`, edges `a>b`, `a.port>b.handle`, links
/// `a.tools~b.tools`.
pub(super) fn graph(nodes: &str, edges: &str, data: &Value) -> Value {
    let nodes = nodes.split_whitespace().map(|node| {
        let (id, kind) = node.split_once(':').unwrap();
        json!({ "id": id, "type": kind, "data": data.get(id).unwrap_or(&json!({})) })
    });
    let edges = edges.split_whitespace().map(|edge| {
        let link = edge.contains('~');
        let (from, to) = edge.split_once(['>', '~']).unwrap();
        let (source, out) = from.split_once('.').unwrap_or((from, "output"));
        let (target, handle) = to.split_once('.').unwrap_or((to, "input"));
        let channel = if link { "link" } else { "flow" };
        json!({
            "source": source, "sourceHandle": out, "target": target, "targetHandle": handle,
            "data": { "channel": channel },
        })
    });
    json!({ "nodes": nodes.collect::<Vec<_>>(), "edges": edges.collect::<Vec<_>>() })
}

pub(super) fn ran(nodes: &str, edges: &str, data: &Value, input: &Value) -> (Value, Bench) {
    run(&json!({ "workflow": graph(nodes, edges, data), "input": input })).unwrap_or_else(|refused| {
        panic!("{:?}", refused.items.iter().map(|item| &item.message).collect::<Vec<_>>())
    })
}

/// Names that expressions of a test may use.
struct TestNames(Map<String, Value>);

impl ScriptScope for TestNames {
    fn name(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned()
    }

    fn node(&self, name: &str) -> Option<Value> {
        self.0.get(name).cloned()
    }
}

fn names() -> TestNames {
    let all = json!({
        "input": { "n": 5, "s": "Héllo", "l": [3, 1, 2], "o": { "k": "v" }, "people": [{ "name": "A", "age": 3 }, { "name": "B", "age": 9 }] },
        "Chat Start": { "message": "hi" },
    });
    TestNames(all.as_object().cloned().unwrap())
}

#[test]
fn the_documented_part_of_javascript() {
    for (text, want) in [
        ("$('Chat Start').item.json.message", json!("hi")),
        ("$(\"nobody\").item.json.message", json!(null)),
        ("input.o.k + '!'", json!("v!")),
        ("input['s'].toUpperCase().slice(0, 3)", json!("HÉL")),
        ("input.l.map(x => x * 2).join('-')", json!("6-2-4")),
        ("input.l.filter((x, i) => i > 0 && x < 2)", json!([1])),
        ("input.l.reduce((sum, x) => sum + x, 0)", json!(6)),
        ("input.l.slice().sort((a, b) => b - a)", json!([3, 2, 1])),
        ("input.people.find(p => p.age > 5)?.name ?? 'nobody'", json!("B")),
        ("input.people.some(p => p.age === 9)", json!(true)),
        ("input.n > 3 ? { big: true, n: input.n } : null", json!({ "big": true, "n": 5 })),
        ("[1, ...'x']", Value::Null),
        ("1 + 2 * 3 - 8 / 4 % 3", json!(5)),
        ("!input.nope && input.n != '6'", json!(true)),
        ("input.n == '5'", json!(true)),
        ("typeof input.s", json!("string")),
        ("JSON.stringify(input.o)", json!("{\"k\":\"v\"}")),
        ("Math.max(1, input.n, 3)", json!(5)),
        ("Object.keys(input.o).length", json!(1)),
        ("'a,b'.split(',').at(-1)", json!("b")),
        ("(2.5).toFixed(2)", json!("2.50")),
        ("'abc'.repeat(1e9)", Value::Null),
        ("input.l.constructor.constructor('return 1')()", Value::Null),
        ("input.l.map(x => input.l.map(y => input.l.map(z => x * y * z)))[1][2][0]", json!(6)),
    ] {
        let seen = script::parse(text).and_then(|expr| script::evaluate(&expr, &names())).unwrap_or_default();
        assert_eq!(seen, want, "{text}");
    }
}

#[test]
fn no_expression_hurts() {
    let nested = format!("{}1{}", "(".repeat(5_000), ")".repeat(5_000));
    let negated = format!("{}1", "!".repeat(5_000));
    let chained = format!("input{}", ".o".repeat(5_000));
    let summed = vec!["1"; 5_000].join("+");
    for text in [
        nested.as_str(),
        &negated,
        &chained,
        &summed,
        "",
        "(",
        "a.",
        "'",
        "{",
        "=> 1",
        "a => ",
        "1 2",
        "${",
        "\\",
    ] {
        assert!(script::parse(text).is_err(), "{text:.40}");
    }
    let many: Vec<u32> = (0..3_000).collect();
    let names = TestNames(Map::from_iter([("input".to_owned(), json!(many))]));
    let bomb = script::parse("input.map(x => input.map(y => input))").unwrap();
    assert!(script::evaluate(&bomb, &names).is_err());
}

#[test]
fn expressions_that_fill_in_too_much_are_empty() {
    let names = TestNames(Map::from_iter([("input".to_owned(), json!({ "t": "x".repeat(1 << 20) }))]));
    let filled = |text: String| {
        let data = Map::from_iter([("x".to_owned(), json!(text)), ("y".to_owned(), json!("{{ input.t }}"))]);
        let all = template::resolve(&data, &[], &names);
        all.values().map(|value| value.as_str().unwrap().len()).sum::<usize>()
    };
    assert_eq!(filled("{{ input.t }}".repeat(2)), 3 << 20);
    assert!((15 << 20..=16 << 20).contains(&filled("{{ input.t }}".repeat(30))));
}

#[test]
fn expressions_are_found_in_texts() {
    let resolve = |text: &str| {
        let data = Map::from_iter([("x".to_owned(), json!(text))]);
        template::resolve(&data, &[], &names())["x"].clone()
    };
    for (text, want) in [
        ("{{ input.l }}", json!([3, 1, 2])),
        ("l={{ input.l }} {{ name }}", json!("l=[3, 1, 2] {{ name }}")),
        ("{{ input.o }}{{ input.n }}", json!("{\"k\": \"v\"}5")),
        ("{{ '}}' + input.n }}", json!("}}5")),
        ("{{ { a: { b: 1 } } }}", json!({ "a": { "b": 1 } })),
        ("it's {{ input.n }} o'clock", json!("it's 5 o'clock")),
        ("{{ true }} {{}} {{ input.nope.deeper }}|", json!("{{ true }} {{}} |")),
        ("{{ open", json!("{{ open")),
        ("{{ name }}", json!("{{ name }}")),
        ("{{ ghost.x }}", json!("")),
    ] {
        assert_eq!(resolve(text), want, "{text}");
    }
}

#[test]
fn the_coercion_table() {
    for (from, to, value, want) in [
        ("int", "float", json!(7), Some(json!(7.0))),
        ("int", "string", json!(7), Some(json!("7"))),
        ("float", "string", json!(2.5), Some(json!("2.5"))),
        ("boolean", "string", json!(false), Some(json!("false"))),
        ("json", "string", json!({ "a": [1] }), Some(json!("{\"a\":[1]}"))),
        ("string", "messages", json!("x"), Some(json!([{ "role": "user", "content": "x" }]))),
        ("messages", "string", json!([]), Some(json!(""))),
        ("agent", "tools", json!({}), Some(json!({}))),
        ("float", "int", json!(1.5), None),
        ("string", "boolean", json!("x"), None),
        ("tools", "agent", json!({}), None),
        ("model", "string", json!("m"), None),
    ] {
        assert_eq!(coerce::coerce(from, to, &value), want, "{from} -> {to}");
    }
}

#[test]
fn an_agent_is_asked_with_its_cluster() {
    let data = json!({
        "cs": { "_label": "Chat Start" },
        "m": { "model": "big" },
        "a": { "instructions": "Answer {{ $('Chat Start').item.json.message }}", "model": "small" },
        "sub": { "_label": "Re Searcher", "instructions": "On {{ input.message }}" },
    });
    let edges = "cs>a m>a.model t.tools~sub.tools sub.agent~a.tools mcp.tools~a.tools";
    let (native, bench) = ran(
        "cs:chat-start m:model-selector a:agent sub:agent t:toolset mcp:mcp-server",
        edges,
        &data,
        &json!({ "message": "hi" }),
    );
    assert_eq!(bench.asked.len(), 1, "sub-agents run inside the agent");
    let ask = &bench.asked[0].1;
    assert_eq!(ask.instruction.as_deref(), Some("Answer hi"));
    assert_eq!((&ask.input["message"], &ask.input["params"]["model"]), (&json!("hi"), &json!("big")));
    let tools = &ask.context["links"]["tools"];
    assert_eq!(tools[0]["tool"]["name"], "delegate_to_re_searcher");
    assert_eq!(
        (&tools[0]["data"]["instructions"], &tools[0]["links"]["tools"][0]["id"]),
        (&json!("On hi"), &json!("t"))
    );
    assert_eq!(tools[1]["type"], "mcp-server");
    assert_eq!(native["outputs"]["a"]["output"], json!({ "response": "a did it" }));
    assert_eq!((&native["text"], &native["status"]), (&json!("a did it"), &json!("completed")));
    assert_eq!(
        bench.lines(),
        ["cs started", "cs completed", "m started", "m completed", "a started", "a completed"]
    );
}

#[test]
fn errors_stop_or_travel_on() {
    let stop =
        ran("b:boom s:slow n:echo", "b>n", &json!({ "b": { "msg": "bad" }, "s": { "ms": 9 } }), &json!({}));
    assert_eq!(stop.1.lines(), ["b started", "b error {\"error\": \"bad\", \"on_error\": \"stop\"}"]);
    assert_eq!((&stop.0["status"], &stop.0["error"]), (&json!("error"), &json!("bad")));
    let data = json!({ "c": { "outputs": { "output": { "value": { "n": "x" } } } }, "i": { "field": "n", "operator": "lessThan", "value": 3, "on_error": "continue" } });
    let (native, bench) = ran("c:const i:conditional n:echo", "c>i i>n", &data, &json!({}));
    assert_eq!(
        native["outputs"]["n"]["output"]["__in"]["input"]["error"],
        "'<' not supported between instances of 'str' and 'int'"
    );
    assert!(bench.lines()[3].starts_with("i error "), "{:?}", bench.lines());
    let data = json!({ "s": { "tokens": ["a"], "fail": "rate limit", "on_error": "continue" } });
    let (native, _) = ran("s:stream n:echo", "s>n", &data, &json!({}));
    assert_eq!(
        native["outputs"],
        json!({
            "s": { "output": { "text": "a" } },
            "n": { "output": { "__in": { "input": { "error": "rate limit" } } } },
        })
    );
}

#[test]
fn planned_nodes() {
    let data = json!({
        "c": { "outputs": { "output": { "value": { "u": { "name": "Ann" }, "l": [1, 2] } } } },
        "p": { "template": "Hi {{u.name}}, {{ l }}{{ no }}" },
        "j": { "mapping": { "first": "{{ input.l[0] }}", "all": ["{{ input.u }}"] } },
        "k": { "code": "def f(d):\n  return {'n': len(d['input']['l'])}" },
        "x": { "code": "def f(d):\n  return d['no']", "on_error": "continue" },
    });
    let nodes = "c:const p:prompt-template j:json-transform k:code x:code w:webhook-end";
    let (native, _) = ran(nodes, "c>p c>j c>k c>x k>w", &data, &json!({}));
    let at = |id: &str| native["outputs"][id]["output"].clone();
    assert_eq!(at("p"), json!({ "text": "Hi Ann, [1, 2]" }));
    assert_eq!(at("j"), json!({ "first": 1, "all": [{ "name": "Ann" }] }));
    assert_eq!(at("k"), json!({ "n": 2 }));
    let response = json!({ "body": { "n": 2 }, "status": 200, "headers": {} });
    assert_eq!(native["outputs"]["w"]["response"], response);
}

#[test]
fn a_classifier_takes_one_branch() {
    let data = json!({ "c": { "categories": ["Sales", { "name": "Support", "description": "help" }] } });
    let workflow = graph("s:chat-start c:classifier a:echo b:echo", "s>c c.Sales>a c.Support>b", &data);
    let check = |choice: Value, want: &[&str]| {
        let mut plugged = workflow.clone();
        plugged["plugins"] = doubles();
        let mut bench = Bench::new(lower(&Covalt, &plugged).unwrap().plan, Covalt.adapter());
        bench.start(json!({ "message": "help me" }), &mut |node, ask| match node {
            "c" => {
                assert_eq!(
                    ask.output_schema.as_ref().unwrap()["properties"]["choice"]["enum"],
                    json!(["Sales", "Support"])
                );
                Stubbed { after: 0, progress: vec![], result: Ok(TaskReply::new(choice.clone())) }
            }
            _ => double(node, ask),
        });
        assert_eq!(&bench.lines()[2..], want);
    };
    check(json!({ "choice": "support" }), &["c started", "c completed", "b started", "b completed"]);
    check(
        json!("else"),
        &["c started", "c error {\"error\": \"'else' is not one of the choices\", \"on_error\": \"stop\"}"],
    );
}

#[test]
fn a_loop_brings_its_own_workflow() {
    let inner = graph(
        "t:webhook-trigger j:json-transform",
        "t>j",
        &json!({ "j": { "mapping": "{{ $trigger.item }}" } }),
    );
    let data = json!({ "l": { "items": "{{ input.list }}", "graph": inner }, "c": { "outputs": { "output": { "value": { "list": [4, 5] } } } } });
    let mut workflow = graph("c:const l:loop e:echo", "c>l l>e", &data);
    workflow["plugins"] = doubles();
    let document = sinew_source::Document {
        root: sinew_source::Node::from_json(&workflow),
        sources: sinew_source::Sources::default(),
    };
    let options = crate::LowerOptions {
        default_name: "test",
        read: &|_| Err(String::new()),
        list: &crate::no_list,
        agents: &BTreeMap::new(),
    };
    let lowered = Covalt.lower(document, &options).unwrap();
    assert_eq!(lowered.iter().map(|one| one.plan.name.as_str()).collect::<Vec<_>>(), ["test", "test.l"]);
    let mut bench = Bench::new(lowered[0].plan.clone(), Covalt.adapter());
    bench.start(json!({}), &mut |node, ask| match ask.target.name() {
        "test.l" => {
            Stubbed { after: 0, progress: vec![], result: Ok(TaskReply::new(ask.input["trigger"].clone())) }
        }
        _ => double(node, ask),
    });
    let all = json!([{ "item": 4, "index": 0 }, { "item": 5, "index": 1 }]);
    assert_eq!(bench.native()["outputs"]["l"]["output"], all);
    assert_eq!(
        bench.lines(),
        ["c started", "c completed", "l started", "l completed", "e started", "e completed"]
    );
}

#[test]
fn partial_runs() {
    let check = |execution: Value, want: &[&str]| {
        let (_, bench) =
            ran("a:slow b:slow c:slow d:slow", "a>b b>c", &json!({}), &json!({ "execution": execution }));
        let ended: Vec<&str> =
            bench.lines().into_iter().filter_map(|line| line.strip_suffix(" completed")).collect();
        assert_eq!(ended, want);
    };
    check(json!({ "scope": { "mode": "execute", "target_node_ids": ["b"] } }), &["a", "b"]);
    let cached = json!({ "scope": { "mode": "runFrom", "target_node_ids": ["b"] }, "cached_outputs": { "a": { "output": 1 } } });
    check(cached, &["b", "c"]);
    check(json!({ "entry_node_ids": ["b"] }), &["a", "b", "c"]);
    check(json!({}), &["a", "d", "b", "c"]);
}

#[test]
fn what_is_wrong_with_a_file_is_said_at_once() {
    let check = |nodes: &str, edges: &str, data: Value, want: &[&str]| {
        let found = match lower(&Covalt, &graph(nodes, edges, &data)) {
            Ok(lowered) => lowered.warnings,
            Err(refused) => refused,
        };
        let seen: Vec<&str> = found.items.iter().filter_map(|item| item.sub_code.as_deref()).collect();
        assert_eq!(seen, want, "{:?}", found.items.iter().map(|item| &item.message).collect::<Vec<_>>());
    };
    check("a:chat-start b:reroute", "a>b", json!({}), &[]);
    check("a:reroute b:reroute", "a>b b>a", json!({}), &["FLOW_CYCLE"]);
    check("a:agnet", "", json!({}), &["UNKNOWN_NODE_TYPE"]);
    check("a:chat-start", "a>ghost", json!({}), &["SCHEMA"]);
    check("m:model-selector a:agent", "m>a.instructions", json!({}), &["NO_COERCION"]);
    check("a:agent t:toolset", "a.agent~t.tools", json!({}), &[]);
    let refers = json!({ "b": { "x": "{{ $('z').item.json.q }} {{ $('a').item.json }} {{ 1 + }}" } });
    check("a:chat-start b:reroute z:reroute", "a>b", refers, &["NOT_UPSTREAM", "EXPRESSION"]);
    check("a:chat-start b:reroute", "a>b", json!({ "b": { "x": "{{ 1 + }}" } }), &["EXPRESSION"]);
    check(
        "a:agent b:agent c:agent",
        "b.agent~a.tools c.agent~b.tools b.agent~c.tools",
        json!({}),
        &["LINK_CYCLE"],
    );
    check("l:loop", "", json!({}), &["SCHEMA"]);
}

#[test]
fn plugins_are_folders() {
    let mut workflow = graph("a:chat-start s:shout", "a>s", &json!({}));
    workflow["plugins"] = json!(["nodes/shout/"]);
    let read = |path: &str| match path {
        "nodes/shout/definition.json" => Ok(br#"{"agent": "loud", "parameters": {"volume": 11}}"#.to_vec()),
        other => Err(format!("{other} is not there")),
    };
    let plan = lower_with(&Covalt, &workflow, &read).unwrap().plan;
    let mut bench = Bench::new(plan, Covalt.adapter());
    bench.start(json!({ "message": "hi" }), &mut double);
    assert_eq!(
        (bench.asked[0].1.target.name(), &bench.asked[0].1.input["data"]["volume"]),
        ("loud", &json!(11))
    );
    workflow["plugins"] = json!(["nodes/quiet"]);
    let refused = lower_with(&Covalt, &workflow, &read).unwrap_err();
    assert!(refused.items.iter().any(|item| item.sub_code.as_deref() == Some("PLUGIN")));
}

#[test]
fn plugins_are_found_where_they_are_dropped() {
    let files = |path: &str| match path {
        "nodes/tools/shout/definition.json" => Ok(br#"{"agent": "loud"}"#.to_vec()),
        "nodes/soft_whisper/definition.json" => Ok(b"{}".to_vec()),
        "twice/a/definition.json" | "twice/b/definition.json" => Ok(br#"{"type": "same"}"#.to_vec()),
        "broken/a/definition.json" => Ok(b"{".to_vec()),
        "typed/executor.py" => Ok(b"def execute(data, inputs, context):\n return 1\n".to_vec()),
        "streams/executor.py" => Ok(b"async def execute(data, inputs, context):\n    yield 1\n".to_vec()),
        other => Err(format!("{other} is not there")),
    };
    let list = |path: &str| {
        let names: &[&str] = match path {
            "nodes" => &["README.md", "_types.py", "tools/", "soft_whisper/", ".git/"],
            "nodes/tools" => &["shout/"],
            "nodes/tools/shout" | "nodes/soft_whisper" | "broken/a" | "twice/a" | "twice/b" => {
                &["definition.json", "shout.agent.yaml", "deeper/"]
            }
            "typed" => &["definition.ts", "executor.py"],
            "streams" => &["executor.py"],
            "twice" => &["b/", "a/"],
            "broken" => &["a/"],
            "empty" => &["README.md"],
            // A folder that contains itself, as links can.
            _ if path.starts_with("endless") => &["endless/"],
            _ => return Err("no such folder".to_owned()),
        };
        Ok(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    };
    let lowered = |plugins: Value, kind: &str| {
        let mut workflow = graph(&format!("a:chat-start s:{kind}"), "a>s", &json!({}));
        workflow["plugins"] = plugins;
        lower_in(&Covalt, &workflow, &files, &list).map_err(|found| found.items[0].message.clone())
    };
    let asked = |plugins: Value, kind: &str| {
        let mut bench = Bench::new(lowered(plugins, kind).unwrap().plan, Covalt.adapter());
        bench.start(json!({ "message": "hi" }), &mut double);
        bench.asked[0].1.target.name().to_owned()
    };
    assert_eq!(asked(Value::Null, "shout"), "loud", "the usual folder needs no list");
    assert_eq!(asked(Value::Null, "soft-whisper"), "soft-whisper");
    assert_eq!(asked(json!(["nodes/tools"]), "shout"), "loud");
    let unlisted = lowered(json!([]), "shout").unwrap().warnings;
    let codes: Vec<_> = unlisted.items.iter().filter_map(|item| item.sub_code.as_deref()).collect();
    assert_eq!(codes, ["UNKNOWN_NODE_TYPE"], "an empty list means none");
    let ignored = lowered(json!(["typed"]), "typed").unwrap().warnings;
    let said: Vec<_> = ignored.items.iter().map(|item| item.message.as_str()).collect();
    assert_eq!(said, ["typed/definition.ts is ignored: its parameters, sockets and look have no effect"]);
    for (plugins, wrong) in [
        ("streams", "executor.py line 2: `yield` is not supported"),
        ("twice", "the plugin twice/b duplicates the kind 'same'"),
        ("broken", "the plugin broken/a cannot be loaded: EOF"),
        ("empty", "the plugin cannot be loaded: no folder below empty has a definition.json"),
        ("endless", "at most 256 folders, 4 levels deep, are searched"),
        ("ghost", "the plugin ghost cannot be loaded: ghost/definition.json is not there"),
    ] {
        let said = lowered(json!([plugins]), "reroute").unwrap_err();
        assert!(said.contains(wrong), "{said}");
    }
}

#[test]
fn only_graphs_of_this_kind_are_recognised() {
    use sinew_source::{Document, Node, Sources};
    let sure = |value: &Value| {
        Covalt.detect(&Document { root: Node::from_json(value), sources: Sources::default() })
    };
    assert!(sure(&graph("a:agent b:merge", "a>b", &json!({}))) > 90);
    assert!(sure(&json!({ "agent": { "graph_data": graph("a:agent", "", &json!({})) } })) >= 60);
    assert_eq!(sure(&json!({ "nodes": [{ "id": "a", "type": "agent" }], "connections": [] })), 0);
    assert_eq!(sure(&json!({ "nodes": {}, "edges": {} })), 0);
}
