//! Rules of the specification that the cases do not cover: tasks of agents, execution of plugins,
//! messages at load.

use sinew_protocol::code;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use sinew_engine::{EngineInput, ExecutionMode, TaskReply, TerminalStatus};

use super::tests::{double, doubles, graph, ran};
use super::{Covalt, describe_kind, node_kinds};
use crate::Dialect;
use crate::testing::{Bench, Stubbed, document, lower, lower_in};

fn sub_codes(workflow: &Value) -> Vec<String> {
    let found = match lower(&Covalt, workflow) {
        Ok(lowered) => lowered.warnings,
        Err(refused) => refused,
    };
    found.items.iter().filter_map(|item| item.sub_code.clone()).collect()
}

#[test]
fn an_agent_cluster_without_a_flow_gets_what_the_person_said() {
    let data = json!({ "g": { "instructions": "Answer {{ input.message }}" }, "m": { "model": "big" } });
    let nodes = "g:agent s:agent t:toolset m:model-selector";
    let edges = "s.agent~g.tools t.tools~s.tools m.model~g.model";
    for input in [json!({ "message": "hi" }), json!({ "text": "hi" }), json!("hi")] {
        let (native, bench) = ran(nodes, edges, &data, &input);
        assert_eq!(bench.asked.len(), 1, "sub-agents run inside the agent");
        let ask = &bench.asked[0].1;
        assert_eq!(
            (ask.instruction.as_deref(), &ask.input["message"]),
            (Some("Answer hi"), &json!("hi")),
            "{input}"
        );
        assert_eq!(ask.input["params"]["model"], "big");
        assert_eq!(native["text"], "g did it");
    }
}

#[test]
fn wires_come_before_expressions_before_what_is_written() {
    let data = json!({
        "m": { "model": "wired" },
        "g": { "model": "{{ input.message }}", "temperature": 1 },
        "s": { "model": "inline" },
    });
    let nodes = "cs:chat-start m:model-selector g:agent s:agent";
    let model = |edges: &str| {
        let (_, bench) = ran(nodes, edges, &data, &json!({ "message": "expressed" }));
        let ask = &bench.asked[0].1;
        (ask.input["params"]["model"].clone(), ask.context["links"]["tools"][0]["data"]["model"].clone())
    };
    let (expressed, inline, wired) = (json!("expressed"), json!("inline"), json!("wired"));
    assert_eq!(model("cs>g s.agent~g.tools"), (expressed.clone(), inline.clone()));
    for wire in ["m>g.model", "m.model>g.model", "m~g.model", "m.model~g.model"] {
        assert_eq!(model(&format!("cs>g s.agent~g.tools {wire}")), (wired.clone(), inline.clone()), "{wire}");
    }
    // A wire into a sub-agent is applied when the cluster is built.
    for wire in ["m>s.model", "m.model~s.model"] {
        assert_eq!(
            model(&format!("cs>g s.agent~g.tools {wire}")),
            (expressed.clone(), wired.clone()),
            "{wire}"
        );
    }
}

#[test]
fn agents_keep_what_they_report() {
    let check = |reply: TaskReply, want: Value| {
        let mut workflow = graph("cs:chat-start g:agent", "cs>g", &json!({}));
        workflow["plugins"] = doubles();
        let mut bench = Bench::new(lower(&Covalt, &workflow).unwrap().plan, Covalt.adapter());
        bench.start(json!({ "message": "hi" }), &mut |_, _| Stubbed {
            after: 0,
            progress: Vec::new(),
            result: Ok(reply.clone()),
        });
        assert_eq!(bench.native()["outputs"]["g"]["output"], want);
    };
    let used = json!({ "prompt": 42, "completion": 12 });
    let whole = json!({ "response": "sunny", "model": "m", "tokens_used": used });
    check(TaskReply::new(whole.clone()), whole.clone());
    check(TaskReply::new(json!({ "text": "sunny", "model": "m", "usage": used })), whole.clone());
    let beside =
        TaskReply { usage: used.clone(), ..TaskReply::new(json!({ "response": "sunny", "model": "m" })) };
    check(beside, whole);
    check(TaskReply::new(json!("sunny")), json!({ "response": "sunny" }));
}

#[test]
fn a_run_that_would_reach_a_cycle_is_refused() {
    let workflow = graph("a:reroute e:reroute b:reroute d:reroute", "a>e b>d d>b", &json!({}));
    let lowered = lower(&Covalt, &workflow).unwrap();
    assert_eq!(lowered.warnings.items[0].sub_code.as_deref(), Some("FLOW_CYCLE"));
    for (entry, status) in [
        (json!([]), TerminalStatus::Failure),
        (json!(["b"]), TerminalStatus::Failure),
        (json!(["a"]), TerminalStatus::Success),
    ] {
        let mut bench = Bench::new(lowered.plan.clone(), Covalt.adapter());
        let input = json!({ "execution": { "entry_node_ids": entry } });
        let start = EngineInput::Start {
            input,
            mode: ExecutionMode::default(),
            depth: 0,
            chain: Vec::new(),
            paused: None,
        };
        bench.input(start, &mut double).unwrap();
        bench.go_on(&mut double);
        let outcome = bench.state().outcome.as_ref().unwrap();
        assert_eq!(outcome.status, status, "{entry}");
        if let Some(fault) = &outcome.fault {
            assert_eq!(fault.code, code::CYCLE_REACHED.as_str());
        }
    }
}

#[test]
fn a_run_is_told_as_a_chat() {
    let data = json!({ "s": { "tokens": ["a", "b"] } });
    let (native, bench) = ran("s:stream n:echo", "s>n", &data, &json!({}));
    let kinds: Vec<&str> = native["chat_events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    let node = ["FlowNodeStarted", "FlowNodeResult", "FlowNodeCompleted"];
    assert_eq!(kinds, [&node[..], &node[..], &["RunCompleted"]].concat());
    assert_eq!((&native["status"], &native["timestamp"]), (&json!("completed"), &json!(0.0)));
    let events: Vec<&Value> = bench.events.iter().map(|event| &event.json).collect();
    assert_eq!(events[1]["chat_event"]["event"], "RunContent");
    assert_eq!(events[1]["chat_event"]["content"], "a");
    for event in &events {
        assert!(event.get("run_id").is_some() && event["timestamp"].is_number(), "{event}");
    }
    let failed = ran("b:boom", "", &json!({ "b": { "msg": "bad" } }), &json!({})).0;
    assert_eq!(failed["chat_events"][1]["event"], "RunError");
    assert_eq!(failed["chat_events"][1]["content"], "bad");
}

#[test]
fn of_several_ends_the_last_text_is_what_a_person_reads() {
    let data = json!({
        "g": { "outputs": { "output": { "value": { "response": "hi" } } } },
        "w": { "ms": 5 },
        "c": { "outputs": { "output": { "value": { "n": 1 } } } },
        "e": { "_label": "E", "text": "late" },
    });
    for (nodes, edges, text) in [
        ("g:const c:const", "", "hi"),
        ("g:const w:slow c:const e:echo", "w>e", "late"),
        ("g:const w:slow c:const", "", "hi"),
        ("g:const w:slow h:webhook-end", "w>h", "hi"),
    ] {
        let native = ran(nodes, edges, &data, &json!({})).0;
        let answered = nodes.contains("webhook-end");
        assert_eq!(native["text"], if answered { Value::Null } else { json!(text) }, "{nodes}: {native}");
        let told = native["chat_events"].as_array().unwrap();
        let said = told.iter().find(|event| event["event"] == "RunContent").map(|event| &event["content"]);
        assert_eq!(said, Some(&json!(text)).filter(|_| !answered), "{nodes}");
    }
}

/// A file system with one plugin.
fn plugged(files: &'static [(&'static str, &'static str)], workflow: &Value) -> Result<Bench, String> {
    let read = |path: &str| {
        let found = files.iter().find(|(name, _)| path == format!("nodes/p/{name}"));
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| format!("{path} is not there"))
    };
    let list = |path: &str| match path {
        "nodes" => Ok(vec!["p/".to_owned()]),
        "nodes/p" => Ok(files.iter().map(|(name, _)| (*name).to_owned()).collect()),
        _ => Err("no such folder".to_owned()),
    };
    let lowered = lower_in(&Covalt, workflow, &read, &list).map_err(|found| {
        found.items.iter().map(|item| item.message.as_str()).collect::<Vec<_>>().join("; ")
    })?;
    let mut bench = Bench::new(lowered.plan, Covalt.adapter());
    bench.start(json!({ "message": "hi" }), &mut double);
    Ok(bench)
}

#[test]
fn plugins_bring_an_executor() {
    let workflow = graph("cs:chat-start s:p e:reroute", "cs>s s>e", &json!({ "s": { "times": 2 } }));
    let outputs = |files: &'static [(&'static str, &'static str)]| {
        plugged(files, &workflow).map(|bench| bench.native()["outputs"]["e"]["output"].clone())
    };
    // As in the specification.
    let document = "from nodes._types import DataValue, ExecutionResult, NodeEvent\n\n\
        class Shout:\n    node_type = 'p'\n\n    async def execute(self, data, inputs, context):\n        \
        text = inputs['input'].value['message'] * data['times']\n        \
        return ExecutionResult(outputs={'output': DataValue('data', {'text': text.upper()})}, \
        events=[NodeEvent(context.node_id, 'p', 'progress', data={'token': 'x'})])\n\n\
        executor = Shout()\n";
    let files: &'static [(&str, &str)] = Box::leak(Box::new([("executor.py", document)]));
    assert_eq!(outputs(files), Ok(json!({ "text": "HIHI" })));
    let lines = plugged(files, &workflow).unwrap();
    assert!(lines.lines().contains(&"s progress {\"token\": \"x\"}"), "{:?}", lines.lines());
    // A single function, with a definition.
    assert_eq!(
        outputs(&[
            ("definition.json", "{\"parameters\": {\"times\": 1}}"),
            ("executor.py", "def execute(data, inputs, context):\n    return {'n': data['times'] + 1}\n"),
        ]),
        Ok(json!({ "n": 3 }))
    );
    for (code, problem) in [
        ("def execute(data, inputs, context):\n    yield 1\n", "executor.py line 2"),
        ("def execute(data:\n", "executor.py"),
        ("x = 1\n", "neither execute() nor build()"),
    ] {
        let files: &'static [(&str, &str)] = Box::leak(Box::new([("executor.py", code)]));
        let told = outputs(files).unwrap_err();
        assert!(told.contains(problem), "{told}");
    }
    let raises: &'static [(&str, &str)] =
        &[("executor.py", "def execute(data, inputs, context):\n    x = 1\n    return data['none']\n")];
    let native = plugged(raises, &workflow).unwrap().native();
    assert_eq!(native["error"], "executor.py line 3: KeyError: none");
}

#[test]
fn executors_build_the_nodes_of_a_cluster() {
    let workflow = graph(
        "cs:chat-start g:agent s:p",
        "cs>g s.tools~g.tools",
        &json!({ "s": { "k": "{{ input.message }}" } }),
    );
    let files: &'static [(&str, &str)] = &[
        ("definition.json", "{\"outputs\": {\"tools\": \"tools\"}}"),
        (
            "executor.py",
            "def build(data, context):\n    return {'name': data['k'] + '/' + context.node_id}\n",
        ),
    ];
    let bench = plugged(files, &workflow).unwrap();
    assert_eq!(bench.asked[0].1.context["links"]["tools"][0]["built"], json!({ "name": "hi/s" }));
    assert_eq!(bench.native()["text"], "g did it");
    let broken: &'static [(&str, &str)] = &[("executor.py", "def build(data, context):\n    return 1 / 0\n")];
    let native = plugged(broken, &workflow).unwrap().native();
    assert_eq!(
        (&native["status"], &native["error"]),
        (&json!("error"), &json!("executor.py line 2: ZeroDivisionError: division by zero"))
    );
}

#[test]
fn kinds_have_a_look() {
    for name in node_kinds() {
        let kind = describe_kind(&name).unwrap();
        for key in ["category", "icon", "color", "shape", "mode", "description"] {
            assert!(!kind[key].as_str().unwrap().is_empty(), "{name}: {key}");
        }
    }
    let agent = describe_kind("agent").unwrap();
    assert_eq!((&agent["category"], &agent["mode"]), (&json!("core"), &json!("hybrid")));
    let tools = agent["inputs"].as_array().unwrap().iter().find(|socket| socket["name"] == "tools").unwrap();
    assert_eq!(*tools, json!({ "name": "tools", "type": "tools", "color": "#f59e0b", "shape": "square" }));
    let plan = lower(&Covalt, &graph("a:agent", "", &json!({}))).unwrap().plan;
    assert_eq!(plan.nodes[0].extra["look"]["color"], "#7c3aed");
}

#[test]
fn code_references_and_templates_are_checked_at_load() {
    let check = |data: Value, want: &[&str]| {
        let workflow = graph("cs:chat-start g:agent c:code", "cs>g g>c", &data);
        assert_eq!(sub_codes(&workflow), want, "{data}");
    };
    check(json!({ "c": { "code": "def f(d):\n    return ]\n" } }), &["CODE_INVALID"]);
    check(json!({ "c": { "code": "return input.x" } }), &[]);
    check(json!({ "c": { "x": "{{ input.response }} {{ $('cs').item.json.message.length }}" } }), &[]);
    check(json!({ "c": { "x": "{{ input.respons }}" } }), &["UNKNOWN_REFERENCE"]);
    // An agent may return additional outputs.
    check(json!({ "c": { "x": "{{ input.findings }}" } }), &[]);
    check(json!({ "c": { "x": "{{ $('cs').item.json.mesage }}" } }), &["UNKNOWN_REFERENCE"]);
    check(json!({ "g": { "instructions": "Hello {{ input.message" } }), &["TEMPLATE_OPEN"]);
    assert_eq!(sub_codes(&json!({ "nodes": [], "edges": [] })), ["SCHEMA"]);
}

#[test]
fn an_error_in_code_stands_at_its_own_line() {
    let text = "nodes:\n  - id: c\n    type: code\n    data:\n      code: |\n        def f(d):\n            x = 1\n            \
                return ]\nedges: []\n";
    let options = crate::LowerOptions {
        default_name: "w",
        read: &|_| Err(String::new()),
        list: &crate::no_list,
        agents: &BTreeMap::new(),
    };
    let lowered = Covalt.lower(document(text), &options).unwrap();
    assert_eq!(lowered[0].warnings.items[0].span.unwrap().line, 8);
}
