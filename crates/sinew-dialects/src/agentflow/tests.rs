//! All cases of the dialect, and rules that the cases do not cover.

use serde_json::{Value, json};
use sinew_engine::{PersonAnswer, TaskReply, TaskRequest};
use sinew_protocol::Fault;

use super::AgentFlow;
use crate::Dialect;
use crate::testing::{Bench, Stubbed, judge, lower, without};

/// Agents of a case: a string, or `{out | error, delay, events}`; by default they repeat their
/// input.
fn stub(stubs: &Value) -> impl FnMut(&str, &TaskRequest) -> Stubbed + '_ {
    move |node, ask| {
        let stub = &stubs[node];
        let echo = || json!(format!("{node}({})", ask.context["userContent"].as_str().unwrap()));
        let result = match stub {
            Value::Null => Ok(TaskReply::new(echo())),
            Value::Object(stub) => match (stub.get("error"), stub.get("out")) {
                (Some(error), _) => Err(Fault::failure("SINEW-5101", error.as_str().unwrap())),
                (None, out) => Ok(TaskReply::new(out.cloned().unwrap_or_else(echo))),
            },
            text => Ok(TaskReply::new(text.clone())),
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

/// Removes the internal data of the original engine.
fn public(result: &Value) -> Value {
    let mut result = without(result, |key| key == "after");
    result["state"] = without(&result["state"], |key| key.starts_with("__") || key == "pre_approval_output");
    result
}

fn invocation(node: &str, ask: &TaskRequest) -> Value {
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

/// Returns a graph in short form: nodes `id:type`, connections `a>b` or `a.handle>b`.
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
        let answered = PersonAnswer { data: answer.clone(), ..PersonAnswer::default() };
        let seen = super::text::ApprovalDecision::of(&answered);
        assert_eq!((seen.word(), seen.note.as_str()), (decision, note), "{answer}");
        let rejected = PersonAnswer { approved: Some(false), ..answered };
        assert_eq!(super::text::ApprovalDecision::of(&rejected).word(), "reject", "{answer}");
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

/// The engine delegates: it calls the sub-agents, and the agent again with their answers, also
/// after a restart.
#[test]
fn agents_below_are_asked_and_their_answers_come_back() {
    let mut file = graph("s:start w:agent+ k:agent+ m:agent", "s>w w.subagent>k k.subagent>m");
    file["nodes"][0]["data"]["initialInput"] = json!("the topic");
    for (ix, name) in [(1, "Writer"), (2, "Fact finder!"), (3, "Librarian")] {
        file["nodes"][ix]["data"]["agentName"] = json!(name);
    }
    let call = |tool: &str, task: &str| json!({ "tool": tool, "task": task });
    let calls = |calls: Vec<Value>| json!({ "subagent_calls": calls });
    let plan = lower(&AgentFlow, &file).unwrap().plan;
    let mut bench = Bench::new(plan, AgentFlow.adapter());
    bench.start(Value::Null, &mut |_, ask| {
        let results = ask.input["subagent_results"].as_array().map_or(0, Vec::len);
        let result = match (ask.target.name(), results) {
            ("Writer", 0) => {
                Ok(calls(vec![call("subagent_fact_finder_k", "find facts"), call("nobody", "x")]))
            }
            ("Writer", 2) => Ok(calls(vec![call("k", "fail")])),
            ("Writer", _) => Ok(json!({ "text": ask.input["subagent_results"].to_string() })),
            ("Fact finder!", 0) if ask.input["text"] == "fail" => {
                Err(Fault::failure("SINEW-5101", "no luck"))
            }
            ("Fact finder!", 0) => Ok(calls(vec![call("subagent_librarian_m", "a book")])),
            (name, _) => Ok(json!({ "text": format!("{name} on {}", ask.input["text"]) })),
        };
        Stubbed { after: 1, progress: Vec::new(), result: result.map(TaskReply::new) }
    });
    let names: Vec<&str> = bench.asked.iter().map(|(_, ask)| ask.target.name()).collect();
    assert_eq!(
        names,
        ["Writer", "Fact finder!", "Librarian", "Fact finder!", "Writer", "Fact finder!", "Writer"]
    );
    let again = &bench.asked[4].1;
    assert_eq!((again.tag.as_str(), &again.input["text"]), ("turn", &json!("the topic")));
    assert_eq!(again.input["subagent_results"][0]["result"], json!("Fact finder! on \"find facts\""));
    assert_eq!(again.input["subagent_results"][1]["error"], "there is no sub-agent 'nobody'");
    let told: Vec<&str> = bench.lines().iter().filter_map(|line| line.split(' ').nth(1)).collect();
    let delegated = ["subagent_call_start:", "subagent_call_end:"];
    let seen: Vec<&str> = told.into_iter().filter(|kind| !kind.starts_with("step_start")).collect();
    assert_eq!(
        seen,
        [
            "start_prompt:",
            delegated[0],
            delegated[0],
            delegated[1],
            delegated[1],
            delegated[0],
            "subagent_call_error:",
            "llm_response:"
        ]
    );
    let inner: Value = {
        let line =
            bench.lines().into_iter().filter(|line| line.contains("subagent_call_start")).nth(1).unwrap();
        serde_json::from_str(line.split_once(": ").unwrap().1).unwrap()
    };
    let want = json!({ "type": "subagent_call_start", "parentNodeId": "w", "subagentNodeId": "m",
        "subagentName": "Librarian", "callId": "call_2", "depth": 2, "parentCallId": "call_1" });
    assert_eq!(inner, want);
    assert_eq!(bench.native()["status"], "completed");
}

#[test]
fn delegation_without_end_fails_and_an_agent_without_others_only_answers() {
    let delegating = |nodes: &str, connections: &str| {
        let mut bench =
            Bench::new(lower(&AgentFlow, &graph(nodes, connections)).unwrap().plan, AgentFlow.adapter());
        bench.start(Value::Null, &mut |_, ask| {
            let answer = match ask.tag.as_str() {
                "subagent" => json!("done"),
                _ => json!({ "subagent_calls": [{ "node": "k", "task": "more" }] }),
            };
            Stubbed { after: 0, progress: Vec::new(), result: Ok(TaskReply::new(answer)) }
        });
        (bench.asked.len(), bench.native())
    };
    let (asked, native) = delegating("s:start w:agent+ k:agent", "s>w w.subagent>k");
    assert_eq!((asked, &native["status"]), (41, &json!("failed")));
    let (asked, native) = delegating("s:start w:agent", "s>w");
    assert_eq!((asked, &native["status"]), (1, &json!("completed")));
}

/// Callers with a single string, such as tools, send `{"text": …}`.
#[test]
fn a_text_is_the_start() {
    for (input, prompt) in [
        (json!({ "text": "hello" }), "hello"),
        (json!({ "initialInput": "hi" }), "hi"),
        (json!({}), ""),
        (json!({ "text": "a", "more": 1 }), "{\"text\":\"a\",\"more\":1}"),
    ] {
        let (_, bench) =
            run(&json!({ "workflow": graph("s:start a:agent", "s>a"), "input": input, "stubs": {} }));
        assert_eq!(bench.asked[0].1.input["text"], prompt, "{input}");
    }
}

/// Text and conditions are both untrusted, and a decision blocks a whole shard.
#[test]
fn conditions_of_one_node_search_a_limited_amount_of_text() {
    let failure = |count: usize, mebibytes: usize| {
        let conditions: Vec<Value> =
            (0..count).map(|n| json!({ "operator": "contains", "value": format!("xY{n}") })).collect();
        let workflow = json!({
            "nodes": [
                { "id": "s", "type": "start", "data": {} },
                { "id": "i", "type": "if", "data": { "conditions": conditions } },
            ],
            "connections": [{ "source": "s", "target": "i", "sourceHandle": "output", "targetHandle": "input" }],
        });
        let plan = lower(&AgentFlow, &workflow).expect("it lowers").plan;
        let mut bench = Bench::new(plan, AgentFlow.adapter());
        bench.start(json!("X".repeat(mebibytes << 20)), &mut stub(&Value::Null));
        let fault = bench.state().acts.iter().find_map(|one| one.fault.clone());
        fault.map(|fault| fault.code.to_string())
    };
    assert_eq!(failure(4, 2), None);
    assert_eq!(failure(5, 2).as_deref(), Some("SINEW-6504"));
}
