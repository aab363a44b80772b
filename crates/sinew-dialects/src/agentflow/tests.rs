//! Every run case of the dialect, and what the cases do not say.

use serde_json::{Value, json};
use sinew_engine::{Ask, Reply};
use sinew_protocol::Fault;

use super::AgentFlow;
use crate::Dialect;
use crate::testing::{Bench, Stubbed, judge, lower, without};

/// Agents of a case: a text, or `{out | error, delay, events}`; by default they repeat what they are told.
fn stub(stubs: &Value) -> impl FnMut(&str, &Ask) -> Stubbed + '_ {
    move |node, ask| {
        let stub = &stubs[node];
        let echo = || json!(format!("{node}({})", ask.context["userContent"].as_str().unwrap()));
        let result = match stub {
            Value::Null => Ok(Reply::new(echo())),
            Value::Object(stub) => match (stub.get("error"), stub.get("out")) {
                (Some(error), _) => Err(Fault::failure("SINEW-5101", error.as_str().unwrap())),
                (None, out) => Ok(Reply::new(out.cloned().unwrap_or_else(echo))),
            },
            text => Ok(Reply::new(text.clone())),
        };
        let progress = stub["events"].as_array().cloned().unwrap_or_default();
        Stubbed { after: stub["delay"].as_u64().unwrap_or(0), progress, result }
    }
}

fn run(case: &Value) -> (Vec<Value>, Bench) {
    let lowered = lower(&AgentFlow, &case["workflow"]).expect("it lowers");
    let mut bench = Bench::new(lowered.plan, AgentFlow.adapter());
    let mut stub = stub(&case["stubs"]);
    bench.start(case["input"].clone(), &mut stub);
    let mut natives = vec![bench.native()];
    for resume in case["resume"].as_array().into_iter().flatten() {
        bench.restart();
        bench.answer(resume.clone(), &mut stub);
        natives.push(bench.native());
    }
    drop(stub);
    (natives, bench)
}

/// The engine's internals of the original are nobody's business.
fn public(result: &Value) -> Value {
    let mut result = without(result, |key| key == "after");
    result["state"] = without(&result["state"], |key| key.starts_with("__") || key == "pre_approval_output");
    result
}

fn invocation(node: &str, ask: &Ask) -> Value {
    let mut all = json!({ "node": node });
    all.as_object_mut().unwrap().extend(ask.context.as_object().unwrap().clone());
    all
}

#[test]
fn recorded_runs() {
    judge("agentflow", "run", |case, wrong| {
        let (natives, bench) = run(case);
        let expect = &case["expect"];
        let last = natives.last().unwrap();
        if !expect["final"].is_null() {
            wrong.check("final", &public(last), &public(&expect["final"]));
        }
        wrong.check("status", &last["status"], &expect["finalStatus"]);
        wrong.check("logs", &json!(bench.lines()), &expect["logs"]);
        let calls: Vec<&str> = bench.asked.iter().map(|(node, _)| node.as_str()).collect();
        wrong.check("llmCalls", &json!(calls), &expect["llmCalls"]);
        wrong.check("mustRun", &json!(calls), &expect["mustRun"]);
        let asked: Vec<Value> = bench.asked.iter().map(|(node, ask)| invocation(node, ask)).collect();
        wrong.check("invocations", &json!(asked), &expect["invocations"]);
        for (n, paused) in expect["paused"].as_array().into_iter().flatten().enumerate() {
            wrong.check("paused", &public(&natives[n]), &public(paused));
        }
    });
}

/// A graph in short form: nodes `id:type`, connections `a>b` or `a.handle>b`.
fn graph(nodes: &str, connections: &str) -> Value {
    let nodes: Vec<Value> = nodes
        .split_whitespace()
        .map(|node| {
            let (id, kind) = node.split_once(':').unwrap();
            let delegates = kind.ends_with('+');
            let data = if delegates { json!({ "tools": { "subagents": true } }) } else { json!({}) };
            json!({ "id": id, "type": kind.trim_end_matches('+'), "data": data })
        })
        .collect();
    let connections: Vec<Value> = connections
        .split_whitespace()
        .map(|connection| {
            let (from, target) = connection.split_once('>').unwrap();
            let (source, handle) = from.split_once('.').unwrap_or((from, "output"));
            json!({ "source": source, "target": target, "sourceHandle": handle, "targetHandle": "input" })
        })
        .collect();
    json!({ "nodes": nodes, "connections": connections })
}

#[test]
fn every_structural_error_is_reported_and_fails_the_run() {
    let check = |nodes: &str, connections: &str, want: &[&str]| {
        let workflow = graph(nodes, connections);
        let lowered = lower(&AgentFlow, &workflow).expect("a graph that cannot run is still a plan");
        let codes: Vec<&str> =
            lowered.warnings.items.iter().filter_map(|item| item.sub_code.as_deref()).collect();
        assert_eq!(codes, want, "{connections}");
        assert!(lowered.warnings.items.iter().all(|item| item.dialect.as_deref() == Some("agentflow")));
        let (natives, bench) = run(&json!({ "workflow": workflow, "stubs": {} }));
        let failed = lowered.warnings.has_errors();
        assert_eq!(natives[0]["status"], if failed { "failed" } else { "completed" }, "{:?}", bench.lines());
        assert_eq!(bench.lines().iter().any(|line| line.contains(" error: ")), failed);
    };
    check("s:start a:agent+ b:agent", "s>a a.subagent>b", &[]);
    check("s:start a:agent+", "s>a a.subagent>ghost", &["SUBAGENT_TARGET_MISSING"]);
    check(
        "s:start a:agent+",
        "s>a ghost.subagent>a",
        &["SUBAGENT_SOURCE_MISSING", "SUBAGENT_IN_FLOW", "UNKNOWN_SOURCE"],
    );
    check("s:start a:agent+ i:if", "s>a a.subagent>i", &["SUBAGENT_TARGET_TYPE"]);
    check("s:start a:agent i:if b:agent", "s>a i.subagent>b", &["SUBAGENT_SOURCE_TYPE"]);
    check("s:start a:agent b:agent", "s>a a.subagent>b", &["SUBAGENT_TOOL_DISABLED"]);
    check("s:start a:agent+", "s>a a.subagent>a", &["SUBAGENT_SELF"]);
    check("s:start a:agent+ c:agent+ b:agent", "s>a a.subagent>b c.subagent>b", &["SUBAGENT_PARENTS"]);
    check("s:start a:agent+ b:agent", "s>a a.subagent>b a>b", &["SUBAGENT_IN_FLOW"]);
    check("s:start a:agent b:agent+ c:agent+", "s>a b.subagent>c c.subagent>b", &["SUBAGENT_CYCLE"]);
    check("a:agent", "", &["NO_START"]);
    check("s:start t:start a:agent", "s>a t>a", &["MULTIPLE_STARTS"]);
    check("s:start a:agnet", "s>a", &["UNKNOWN_NODE_TYPE"]);
    check("s:start i:if a:agent", "s>i i.maybe>a", &["UNKNOWN_HANDLE"]);
    let deep: Vec<String> = (0..40).map(|n| format!("k{n}:agent+")).collect();
    let links: Vec<String> = (1..40).map(|n| format!("k{}.subagent>k{n}", n - 1)).collect();
    check(&format!("s:start {}", deep.join(" ")), &format!("s>k0 {}", links.join(" ")), &["SUBAGENT_DEPTH"]);
    let deep: Vec<String> = deep.into_iter().rev().collect();
    check(&format!("s:start {}", deep.join(" ")), &format!("s>k0 {}", links.join(" ")), &["SUBAGENT_DEPTH"]);
}

#[test]
fn malformed_files_are_refused_with_all_their_problems() {
    let check = |workflow: Value, want: &[&str]| {
        let seen = lower(&AgentFlow, &workflow).expect_err("it is malformed");
        let seen: Vec<&str> = seen.items.iter().map(|item| item.message.as_str()).collect();
        assert_eq!(seen, want, "{workflow}");
    };
    check(json!({}), &["a graph needs a list of nodes"]);
    check(
        json!({ "nodes": 1, "connections": 2 }),
        &["nodes must be a list, not integer", "connections must be a list, not integer"],
    );
    check(
        json!({ "nodes": [{}, { "id": "a" }, { "id": "b", "type": "if", "data": 3 }], "connections": [{ "source": "a" }] }),
        &[
            "nodes[0] needs an id that is a text",
            "nodes[1] ('a') needs a type that is a text",
            "nodes[2] ('b') has data that is not an object",
            "connections[0] needs a target that is a text",
        ],
    );
    check(graph("a:start a:agent", ""), &["two nodes have the id 'a'"]);
}

#[test]
fn an_endless_cycle_ends_at_its_budget() {
    let workflow = graph("s:start a:agent b:agent", "s>a a>b b>a");
    let stubs = json!({ "a": "x", "b": "y" });
    let (natives, bench) = run(&json!({ "workflow": workflow, "stubs": stubs }));
    assert_eq!(natives[0]["status"], "failed");
    assert_eq!(
        *bench.lines().last().unwrap(),
        "system error: the edge a -> b was taken 1000 times, which is its budget"
    );
}

#[test]
fn answers_are_normalised() {
    for (answer, decision, note) in [
        (json!("please REJECTED now"), "reject", ""),
        (json!("no"), "approve", ""),
        (json!({ "decision": "REJECT", "note": 3 }), "reject", ""),
        (json!({ "decision": "rejected", "note": "n" }), "approve", "n"),
        (json!({}), "approve", ""),
        (json!(null), "approve", ""),
        (json!(["reject"]), "approve", ""),
    ] {
        let seen = super::text::Decision::of(&answer);
        assert_eq!((seen.word(), seen.note.as_str()), (decision, note), "{answer}");
    }
}

#[test]
fn a_reject_loop_runs_the_writer_again() {
    let workflow = graph("s:start w:agent ok:approval e:agent", "s>w w>ok ok.approve>e ok.reject>w");
    let case = json!({ "workflow": workflow, "stubs": { "w": "draft" }, "resume": ["reject", "approve"] });
    let (natives, bench) = run(&case);
    assert_eq!(natives[1]["currentNodeId"], "ok");
    assert_eq!(natives[2]["status"], "completed");
    assert_eq!(natives[2]["state"]["ok_approval"]["decision"], "approve");
    assert_eq!(natives[2]["state"]["previous_output"], "e(draft)");
    assert_eq!(bench.asked.len(), 3);
}

#[test]
fn what_agents_below_say_is_logged_as_json() {
    let event = json!({ "type": "subagent_call_start", "subagentNodeId": "k", "callId": "c1", "depth": 1 });
    let workflow = graph("s:start a:agent+ k:agent", "s>a a.subagent>k");
    let stubs = json!({ "a": { "out": "x", "events": [event, { "type": "noise" }] } });
    let (_, bench) = run(&json!({ "workflow": workflow, "stubs": stubs }));
    let want = r#"a subagent_call_start: {"type":"subagent_call_start","subagentNodeId":"k","callId":"c1","depth":1,"parentNodeId":"a"}"#;
    assert!(bench.lines().contains(&want), "{:?}", bench.lines());
}

#[test]
fn an_execution_input_replaces_what_the_file_starts_with() {
    let workflow = graph("s:start a:agent", "s>a");
    for (input, prompt) in [
        (json!(null), ""),
        (json!({}), ""),
        (json!("hi"), "hi"),
        (json!({ "initialInput": "yo" }), "yo"),
        (json!({ "n": 1.0 }), r#"{"n":1}"#),
    ] {
        let (_, bench) = run(&json!({ "workflow": workflow, "stubs": {}, "input": input }));
        assert_eq!(bench.asked[0].1.context["userContent"], prompt, "{input}");
    }
}

#[test]
fn only_graphs_of_this_kind_are_recognised() {
    use sinew_source::{Document, Node, Sources};
    let sure = |value: Value| {
        let document = Document { root: Node::from_json(&value), sources: Sources::default() };
        AgentFlow.detect(&document)
    };
    assert!(sure(graph("s:start a:agent", "s>a")) > 80);
    assert!(sure(json!({ "graph": graph("s:start", "") })) > 80);
    assert_eq!(sure(json!({ "nodes": [{ "id": "a", "type": "agent" }], "edges": [] })), 0);
    assert_eq!(sure(json!({ "nodes": {}, "connections": [] })), 0);
    assert_eq!(sure(json!([])), 0);
}
