//! All cases of the dialect, and rules that the cases do not cover.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use sinew_engine::{EngineInput, ExecutionMode, TaskReply, TaskRequest, TerminalStatus};
use sinew_protocol::{Fault, code};
use sinew_source::Diagnostics;

use super::Sweny;
use crate::pattern::MatchBudget;
use crate::testing::{Bench, Stubbed, Wrong, judge, lower, lower_with, without};
use crate::{Dialect, Lowered};

mod endings;
mod sources;

/// Answers of a case, used in order; the last one repeats.
#[derive(Default)]
struct Turns(BTreeMap<String, usize>);

impl Turns {
    fn next(&mut self, key: String, answers: &Value) -> Option<Value> {
        let answers = answers.as_array().filter(|answers| !answers.is_empty())?;
        let turn = self.0.entry(key).or_default();
        *turn += 1;
        Some(answers[(*turn - 1).min(answers.len() - 1)].clone())
    }
}

/// Performs the tool calls of a stubbed result through the skills of the case.
fn perform(result: &Value, skills: &Value) -> (Value, Vec<Value>) {
    let mut result = json!({ "status": result["status"].as_str().unwrap_or("success"),
        "data": result.get("data").cloned().unwrap_or(json!({})), "toolCalls": result["toolCalls"] });
    let mut events = Vec::new();
    for call in result["toolCalls"].as_array_mut().into_iter().flatten() {
        let all = call.as_object_mut().unwrap();
        if all.shift_remove("external").is_some() {
            continue;
        }
        let (tool, input) = (all["tool"].clone(), all["input"].clone());
        events.push(json!({ "type": "tool:call", "tool": tool, "input": input }));
        let tools = skills.as_object().into_iter().flat_map(|skills| skills.values());
        let mut tools = tools.filter_map(|skill| skill["tools"].as_array()).flatten();
        // A call of an unknown tool returns an error, as a failing tool does.
        let known = tools.find(|known| known["name"] == tool).cloned();
        let known = known.unwrap_or_else(|| json!({ "throw": format!("unknown tool {tool}") }));
        if let Some(error) = known.get("throw") {
            all.insert("output".into(), json!({ "error": error }));
            all.insert("status".into(), json!("error"));
        } else {
            events.push(json!({ "type": "tool:result", "tool": tool, "output": known["output"] }));
            all.insert("output".into(), known["output"].clone());
            all.insert("status".into(), json!("success"));
        }
    }
    if result["toolCalls"].is_null() {
        result.as_object_mut().unwrap().shift_remove("toolCalls");
    }
    (result, events)
}

fn lower_case(case: &Value) -> Result<Lowered, Diagnostics> {
    let (skills, files) = (case["stubs"]["skills"].clone(), case["stubs"]["files"].clone());
    lower_with(&Sweny, &case["workflow"], &|path| {
        match &files[path] {
            Value::String(text) => return Ok(text.clone().into_bytes()),
            Value::Object(refused) => return Err(refused["error"].as_str().unwrap_or_default().to_owned()),
            _ => {}
        }
        let id = path.strip_prefix("caller:skills/").and_then(|path| path.strip_suffix("/skill.json"));
        let skill = id.and_then(|id| skills.get(id)).ok_or("not found")?;
        Ok(skill.to_string().into_bytes())
    })
}

fn run(case: &Value) -> Bench {
    let mut lowered = lower_case(case).expect("it lowers");
    if let Some(steps) = ["max_steps", "maxSteps"].iter().find_map(|key| case["options"].get(key)) {
        lowered.plan.extra["max_steps"] = steps.clone();
    }
    let mut bench = Bench::new(lowered.plan, Sweny.adapter());
    let turns = RefCell::new(Turns::default());
    let stubs = &case["stubs"];
    let mut stub = |node: &str, ask: &TaskRequest| {
        let mut turns = turns.borrow_mut();
        let reply = match ask.tag.as_str() {
            TaskRequest::WORK => {
                let result = turns.next(node.to_owned(), &stubs["nodes"][node]).unwrap_or(json!({}));
                if let Some(why) = result.get("throw").and_then(Value::as_str) {
                    return Stubbed {
                        after: 1,
                        progress: vec![],
                        result: Err(Fault::failure("SINEW-5101", why)),
                    };
                }
                let (output, events) = perform(&result, &stubs["skills"]);
                Ok(TaskReply { events, ..TaskReply::new(output) })
            }
            TaskRequest::ROUTE => {
                let first = || ask.input["choices"][0]["id"].clone();
                Ok(TaskReply::new(
                    turns.next(format!("route {node}"), &stubs["routes"][node]).unwrap_or_else(first),
                ))
            }
            _ => match turns.next("ask".to_owned(), &stubs["ask"]) {
                Some(Value::Object(_)) | None => Err(Fault::failure("SINEW-5101", "no answer")),
                Some(answer) => Ok(TaskReply::new(answer)),
            },
        };
        Stubbed { after: 1, progress: Vec::new(), result: reply }
    };
    bench.start(case["input"].clone(), &mut stub);
    bench
}

fn asked<'a>(bench: &'a Bench, tag: &'a str) -> impl Iterator<Item = (&'a str, &'a TaskRequest)> {
    bench.asked.iter().filter(move |(_, ask)| ask.tag == tag).map(|(node, ask)| (node.as_str(), &**ask))
}

/// Returns a request in the form of the cases: node, tools by name, and the forwarded settings.
fn run_call(ask: &TaskRequest) -> Value {
    let mut call = ask.context.clone();
    let names: Vec<Value> =
        call["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    call["tools"] = json!(names);
    for key in ["skills", "outputSchema", "mcp", "toolFilter"] {
        call.as_object_mut().unwrap().shift_remove(key);
    }
    call
}

/// An execution that is cancelled before it starts: the command is rejected, and there are no
/// events.
fn aborted(case: &Value, wrong: &mut Wrong) {
    let mut bench = Bench::new(lower_case(case).expect("it lowers").plan, Sweny.adapter());
    let mut stub = |_: &str, _: &TaskRequest| unreachable!("nobody is asked");
    let refused = bench.input(EngineInput::Cancel { reason: "workflow aborted".into() }, &mut stub);
    wrong.check("refused", &json!(refused.is_err()), &json!(true));
    wrong.check("events", &json!(bench.lines()), &case["expect"]["events"]);
    wrong.check("evaluateCount", &json!(bench.asked.len()), &case["expect"]["evaluateCount"]);
    wrong.leave_out("the text of the error: the command is refused, so no execution carries it");
}

/// Recorded results without calls have no `toolCalls`, because the recorded models returned none; the
/// specification requires the member.
fn with_tool_calls(results: &Value) -> Value {
    let mut results = results.clone();
    for result in results.as_object_mut().into_iter().flat_map(|results| results.values_mut()) {
        let members = result.as_object_mut().unwrap();
        members.entry("toolCalls").or_insert_with(|| json!([]));
    }
    results
}

#[test]
fn recorded_runs() {
    judge("sweny", "run", |case, wrong| {
        if case["options"]["aborted"] == true {
            return aborted(case, wrong);
        }
        let bench = run(case);
        let (expect, native) = (&case["expect"], bench.native());
        wrong.check("results", &native["results"], &with_tool_calls(&expect["results"]));
        for part in ["steps", "edges"] {
            wrong.check(part, &native["trace"][part], &expect["trace"][part]);
        }
        let read = native["trace"]["sources"].as_object().unwrap();
        let read: serde_json::Map<String, Value> =
            read.iter().map(|(place, source)| (place.clone(), source["content"].clone())).collect();
        wrong.check("sources", &Value::Object(read), &expect["sources"]);
        wrong.check("events", &json!(bench.lines()), &expect["events"]);
        wrong.check(
            "evaluateCount",
            &json!(asked(&bench, TaskRequest::ROUTE).count()),
            &expect["evaluateCount"],
        );
        let evaluated: Vec<Value> = asked(&bench, TaskRequest::ROUTE)
            .map(|(node, ask)| json!({ "from": node, "choices": ask.input["choices"], "context": ask.input["context"] }))
            .collect();
        let calls = expect["evaluateCalls"].as_array().into_iter().flatten();
        let calls: Vec<Value> = calls.map(|call| without(call, |key| key == "answer")).collect();
        if !calls.is_empty() {
            wrong.check("evaluateCalls", &json!(evaluated), &json!(calls));
        }
        let contexts: Vec<Value> = asked(&bench, TaskRequest::WORK)
            .map(|(node, ask)| json!({ "node": node, "context": *ask.input }))
            .collect();
        wrong.check("contexts", &json!(contexts), &expect["contexts"]);
        let told: Vec<Value> = asked(&bench, TaskRequest::WORK)
            .map(|(node, ask)| json!({ "node": node, "instruction": ask.instruction }))
            .collect();
        wrong.check("instructions", &json!(told), &expect["instructions"]);
        let calls: Vec<Value> = asked(&bench, TaskRequest::WORK).map(|(_, ask)| run_call(ask)).collect();
        wrong.check("runCalls", &json!(calls), &expect["runCalls"]);
        let models: Vec<Value> =
            asked(&bench, "judge").map(|(_, ask)| ask.context["model"].clone()).collect();
        wrong.check("askModels", &json!(models), &expect["askModels"]);
        let fault =
            bench.state().outcome.as_ref().unwrap().fault.as_ref().map(|fault| fault.message.as_str());
        wrong.check("error", &json!(fault), &expect["error"]);
    });
}

#[test]
fn recorded_checks_of_files() {
    judge("sweny", "validate", |case, wrong| {
        let expect = &case["expect"];
        let lowered = lower_case(case);
        let found = match &lowered {
            Ok(lowered) => &lowered.warnings,
            Err(found) => found,
        };
        let want: Vec<Value> = expect["errors"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|error| without(error, |key| !matches!(key, "code" | "message")))
            .collect();
        // The message of an error that is expected only by its code is not compared.
        let seen = found.items.iter().enumerate().map(|(n, item)| {
            let worded = want.get(n).is_none_or(|want| want.get("message").is_some());
            let all = json!({ "code": item.sub_code, "message": item.message });
            without(&all, |key| key == "message" && !worded)
        });
        wrong.check("errors", &seen.collect(), &json!(want));
        wrong.check("valid", &json!(!found.has_errors()), &expect["valid"]);
        if let (Ok(lowered), Some(normalised)) = (&lowered, expect.get("normalised")) {
            wrong.check("skills", &lowered.plan.nodes[0].extra["skills"], &normalised["skillsOfFirstNode"]);
        }
    });
}

#[test]
fn recorded_inputs() {
    judge("sweny", "inputs", |case, wrong| {
        let inputs = serde_json::from_value(case["workflow"]["inputs"].clone()).unwrap();
        let inputs: Option<indexmap::IndexMap<String, super::model::InputField>> = inputs;
        let seen = super::inputs::check(inputs.as_ref(), &case["input"]);
        let expect = &case["expect"];
        wrong.check("ok", &json!(seen.is_ok()), &expect["ok"]);
        match seen {
            Ok(value) => wrong.check("value", &value, &expect["value"]),
            Err(problems) => {
                let problems: Vec<Value> = problems
                    .iter()
                    .map(|(field, message)| json!({ "field": field, "message": message }))
                    .collect();
                wrong.check("errors", &json!(problems), &expect["errors"]);
            }
        }
    });
}

/// Returns a workflow of nodes with these fields, and edges `a>b`, `a>b?when`, `a>b*times`.
fn workflow(nodes: &Value, edges: &str) -> Value {
    let nodes: serde_json::Map<String, Value> = nodes
        .as_object()
        .unwrap()
        .iter()
        .map(|(id, members)| {
            let mut node = json!({ "name": id, "instruction": format!("do {id}") });
            node.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            (id.clone(), node)
        })
        .collect();
    let edges: Vec<Value> = edges
        .split_whitespace()
        .map(|edge| {
            let (from, rest) = edge.split_once('>').unwrap();
            let (rest, times) =
                rest.split_once('*').map_or((rest, None), |(rest, times)| (rest, Some(times)));
            let (to, when) = rest.split_once('?').map_or((rest, None), |(to, when)| (to, Some(when)));
            let mut edge = json!({ "from": from, "to": to });
            if let Some(when) = when {
                edge["when"] = json!(when);
            }
            if let Some(times) = times {
                edge["max_iterations"] = json!(times.parse::<u32>().unwrap());
            }
            edge
        })
        .collect();
    let entry = nodes.keys().next().cloned();
    json!({ "id": "w", "name": "W", "entry": entry, "nodes": nodes, "edges": edges })
}

fn codes(found: &Diagnostics) -> Vec<&str> {
    found.items.iter().filter_map(|item| item.sub_code.as_deref()).collect()
}

#[test]
fn graphs_are_checked_as_a_whole() {
    let n = json!({});
    let check = |nodes: &Value, edges: &str, want: &[&str]| {
        let lowered = lower(&Sweny, &workflow(nodes, edges));
        let found = match &lowered {
            Ok(lowered) => &lowered.warnings,
            Err(found) => found,
        };
        assert_eq!(codes(found), want, "{edges}");
    };
    check(&json!({ "a": n, "b": n }), "a>b b>a*2", &[]);
    check(&json!({ "a": n, "b": n }), "a>b b>a", &["UNBOUNDED_CYCLE"]);
    check(
        &json!({ "a": n, "b": n, "c": n, "d": n }),
        "a>b b>a?x a>c?y c>d d>c?z",
        &["UNBOUNDED_CYCLE", "UNBOUNDED_CYCLE"],
    );
    check(&json!({ "a": n, "b": n, "c": n }), "a>b", &["UNREACHABLE_NODE"]);
    check(&json!({ "a": n, "b": n, "c": n }), "a>b a>c", &["AMBIGUOUS_EDGES"]);
    check(&json!({ "a": n, "b": n, "c": n }), "a>b*2 a>c", &[]);
    check(&json!({ "a": n }), "a>a a>x y>a", &["SELF_LOOP", "UNKNOWN_EDGE_TARGET", "UNKNOWN_EDGE_SOURCE"]);
    check(&json!({ "a": { "eval_policy": "any_pass" } }), "", &["UNSUPPORTED_EVAL_POLICY"]);
    check(&json!({ "a": { "skills": ["githup"] } }), "", &["UNKNOWN_SKILL"]);
    check(&json!({ "a": { "skills": ["github"] } }), "", &[]);
    check(
        &json!({ "a": { "requires": { "output_required": ["b.x", "input.y", "fix-it.z"] } }, "b": n }),
        "a>b",
        &["UNKNOWN_PATH"],
    );
}

#[test]
fn forms_are_checked_with_all_their_problems() {
    let check = |workflow: Value, want: &[&str]| {
        let found = lower(&Sweny, &workflow).expect_err("its form is wrong");
        let seen: Vec<&str> = found.items.iter().map(|item| item.message.as_str()).collect();
        assert_eq!(seen, want);
    };
    check(
        json!({}),
        &["id: Required", "name: Required", "entry: Required", "nodes: Required", "edges: Required"],
    );
    check(json!([]), &["Expected object, received array"]);
    let mut broken = workflow(
        &json!({ "a": {
        "skils": [], "max_turns": 0, "eval": [
            { "name": "v", "kind": "value", "rubric": "r" },
            { "name": "j", "kind": "judge", "pass_when": "two words" },
            { "name": "f", "kind": "function", "rule": { "output_required": ["x"] } },
            { "name": "m", "kind": "value", "rule": { "output_matches": [{ "path": "p" }, { "path": "q", "matches": "(" }] } }
        ],
        "requires": {}, "tools": {}, "retry": { "max": 1.5, "instruction": { "auto": false } }, "rules": { "only": true }
    } }),
        "",
    );
    broken["workflow_type"] = json!("poem");
    broken["inputs"] = json!({ "f": { "type": "number", "required": true, "default": "x" } });
    let found = lower(&Sweny, &broken).expect_err("its form is wrong");
    let seen: Vec<&str> = found.items.iter().map(|item| item.message.split(" (").next().unwrap()).collect();
    for want in [
        "nodes.a: Unrecognized key",
        "nodes.a.max_turns: Number must be greater than or equal to 1",
        "nodes.a.eval.0: a value evaluator needs a rule",
        "nodes.a.eval.0: a value evaluator has no rubric, pass_when or model",
        "nodes.a.eval.1: a judge evaluator needs a rubric",
        "nodes.a.eval.1: pass_when must be a single word",
        "nodes.a.eval.2: the rule of a function evaluator has members of another kind",
        "nodes.a.eval.3.rule.output_matches.0: exactly one of equals, in, matches must be set",
        "nodes.a.requires: must declare output_required or output_matches",
        "nodes.a.tools: must declare allow or deny",
        "nodes.a.retry.max: Expected integer, received float",
        "nodes.a.retry.instruction: Expected a text, {auto: true} or {reflect: text}",
        "nodes.a.rules.sources: Required",
        "workflow_type: Invalid enum value. Expected 'pr_review' | 'e2e_test' | 'content_generation' | 'monitor' | 'data_sync' | 'generic', received 'poem'",
    ] {
        assert!(seen.iter().any(|seen| seen.starts_with(want)), "{want}\n{seen:#?}");
    }
    check(
        workflow(&json!({ "a": { "skils": [] } }), "a>b"),
        &["nodes.a: Unrecognized key(s) in object: 'skils'", "Edge target \"b\" does not exist"],
    );
    let mut inputs = workflow(&json!({ "a": {} }), "");
    inputs["inputs"] =
        json!({ "f": { "type": "number", "required": true, "default": "x", "enum": [1, "y"] } });
    check(
        inputs,
        &[
            "inputs.f: required: true and a default exclude each other",
            "inputs.f: default must be a finite number (got string)",
            "inputs.f: enum must be a finite number (got string)",
        ],
    );
}

#[test]
fn paths_lead_to_values() {
    use super::path::required;
    let data = json!({ "a": { "b": 1, "n": null }, "f": [{ "s": 1 }, { "s": null }, {}], "e": [], "t": "x" });
    for (path, want) in [
        ("a.b", None),
        ("all:a.b", None),
        ("a.c", Some("'a.c' missing segment 'c'")),
        ("a.n", Some("'a.n' resolved to null")),
        ("a.n.x", Some("'a.n.x' missing segment 'x'")),
        ("t.x", Some("'t.x' missing segment 'x'")),
        ("any:a.c", Some("'any:a.c' missing segment 'c'")),
        ("f[*].s", Some("'f[*].s' missing segment 's'")),
        ("any:f[*].s", None),
        ("any:f[*].z", Some("'any:f[*].z' resolved to null for every element")),
        ("e[*].s", Some("'e[*].s' resolved to no elements (empty wildcard expansion)")),
        ("any:e[*]", Some("'any:e[*]' resolved to no elements (empty wildcard expansion)")),
        ("t[*]", Some("'t[*]' missing segment 't[*]'")),
        ("a-b.c", Some("'a-b.c' is not a valid path")),
        ("", Some("'' is not a valid path")),
    ] {
        assert_eq!(required(path, &data), want.map(|want| format!("output_required: {want}")), "{path}");
    }
}

#[test]
fn values_match_as_the_format_says() {
    use super::model::OutputMatch;
    let data = json!({ "n": 3, "s": "abc", "l": ["a", "b"], "e": [], "o": { "x": [1.0] } });
    for (check, fine) in [
        (json!({ "path": "n", "equals": 3.0 }), true),
        (json!({ "path": "n", "equals": "3" }), false),
        (json!({ "path": "o", "equals": { "x": [1] } }), true),
        (json!({ "path": "n", "matches": "^3$" }), true),
        (json!({ "path": "s", "matches": "b(?=c)" }), true),
        (json!({ "path": "l[*]", "in": ["a", "b"] }), true),
        (json!({ "path": "l[*]", "equals": "a" }), false),
        (json!({ "path": "any:l[*]", "equals": "a" }), true),
        (json!({ "path": "e[*]", "equals": "a" }), true),
        (json!({ "path": "any:e[*]", "equals": "a" }), false),
    ] {
        let parsed: OutputMatch = serde_json::from_value(check.clone()).unwrap();
        let found = super::path::matches(&parsed, &data, &mut MatchBudget::default()).unwrap();
        assert_eq!(found.is_none(), fine, "{check}");
    }
}

/// The caller's skill takes precedence over that of the file, and that over one next to the file.
#[test]
fn skills_of_the_caller_win() {
    let mut file = workflow(&json!({ "a": { "skills": ["s", "t"] } }), "");
    file["skills"] = json!({ "s": { "instruction": "of the file" }, "t": { "instruction": "of the file" } });
    let read = |path: &str| match path {
        "caller:skills/s/skill.json" => Ok(br#"{"instruction": "of the caller"}"#.to_vec()),
        ".sweny/skills/s/skill.json" | ".sweny/skills/t/skill.json" => {
            Ok(br#"{"instruction": "beside the file"}"#.to_vec())
        }
        _ => Err("not found".to_owned()),
    };
    let plan = lower_with(&Sweny, &file, &read).unwrap().plan;
    let of = |id: &str| plan.extra["skills"][id]["instruction"].clone();
    assert_eq!((of("s"), of("t")), (json!("of the caller"), json!("of the file")));
}

#[test]
fn only_final_failures_fail_a_run() {
    let eval = json!([{ "name": "u", "kind": "value", "rule": { "output_required": ["ok"] } }]);
    let file = workflow(&json!({ "a": { "eval": eval }, "b": {} }), "a>b a>a?again*1");
    let case = |answers: Value| {
        json!({ "workflow": file, "input": {}, "stubs": {
        "nodes": { "a": answers }, "routes": { "a": ["a", "b"] } } })
    };
    let mended = run(&case(json!([{ "data": {} }, { "data": { "ok": 1 } }])));
    assert!(mended.state().outcome.as_ref().unwrap().fault.is_none());
    assert_eq!(mended.native()["trace"]["steps"][0]["status"], "failed");
    let broken = run(&case(json!([{ "data": {} }])));
    let fault = broken.state().outcome.as_ref().unwrap().fault.clone().unwrap();
    assert_eq!(fault.message, "nodes ended failed: a");
    assert_eq!(*broken.lines().last().unwrap(), "workflow:end");
}

#[test]
fn retries_reflect_and_fall_back() {
    let eval = json!([{ "name": "u", "kind": "value", "rule": { "output_required": ["ok"] } }]);
    let node = |hint: Value| json!({ "a": { "eval": eval, "retry": { "max": 1, "instruction": hint } } });
    let told = |hint: Value, ask: Value| {
        let bench =
            run(&json!({ "workflow": workflow(&node(hint), ""), "input": {}, "stubs": { "ask": ask } }));
        asked(&bench, TaskRequest::WORK).nth(1).unwrap().1.instruction.clone().unwrap()
    };
    let failed =
        "## Previous attempt failed evaluation\n\n  - u (value): output_required: 'ok' missing segment 'ok'";
    let base = "\n\n---\n\ndo a";
    assert_eq!(
        told(json!({ "auto": true }), json!(["look closer"])),
        format!("## Retry guidance\n\nlook closer\n\n{failed}{base}")
    );
    assert_eq!(
        told(json!({ "reflect": "why?" }), json!([{}])),
        format!("{failed}\n\nFix and try again.{base}")
    );
    assert_eq!(
        told(json!({ "reflect": "why?" }), json!([""])),
        format!("{failed}\n\nFix and try again.{base}")
    );
}

#[test]
fn routes_fall_back_to_the_default_edge_or_the_end() {
    let run_with = |edges: &str| {
        let lowered = lower(&Sweny, &workflow(&json!({ "a": {}, "b": {}, "c": {} }), edges)).unwrap();
        let mut bench = Bench::new(lowered.plan, Sweny.adapter());
        bench.start(json!({}), &mut |_, ask| {
            let down = || Err(Fault::error("SINEW-5101", "model is down"));
            let result = if ask.tag == TaskRequest::ROUTE { down() } else { Ok(TaskReply::new(json!({}))) };
            Stubbed { after: 0, progress: vec![], result }
        });
        bench
            .lines()
            .into_iter()
            .filter(|line| line.starts_with("route"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(run_with("a>b?x a>c"), ["route a>c [None of the above / default path]"]);
    assert_eq!(run_with("a>b?x a>c?y"), ["route a>(end) [route evaluation failed: model is down]"]);
}

#[test]
fn conditions_that_no_agent_judges_are_refused() {
    let lowered = lower(&Sweny, &workflow(&json!({ "a": {}, "b": {}, "c": {} }), "a>b?x a>c")).unwrap();
    let mut bench = Bench::new(lowered.plan, Sweny.adapter());
    bench.start(json!({}), &mut |_, ask| {
        let missing = || Err(Fault::error("SINEW-5091", "Agent 'Router' not found in registry"));
        let result = if ask.tag == TaskRequest::ROUTE { missing() } else { Ok(TaskReply::new(json!({}))) };
        Stubbed { after: 0, progress: vec![], result }
    });
    let fault = bench.state().acts[0].fault.clone().expect("the node failed");
    assert_eq!(fault.code, code::CONDITIONS_WITHOUT_JUDGE.as_str());
    assert!(fault.details[0].contains("--default-agent route=NAME"), "{fault:?}");
    assert_eq!(bench.state().outcome.as_ref().unwrap().status, TerminalStatus::Failure);
    assert_eq!(bench.state().acts.len(), 1, "no default edge is taken unseen");
}

#[test]
fn skills_are_found_beside_the_workflow_and_filtered() {
    let file = workflow(
        &json!({ "a": { "skills": ["std", "gh"], "tools": { "allow": ["r", "w"], "deny": ["w"] } } }),
        "",
    );
    let read = |path: &str| match path {
        ".claude/skills/std/SKILL.md" => {
            Ok(b"---\nname: Standards\nmcp: {command: npx}\n---\n\nUse tabs.\n".to_vec())
        }
        ".sweny/skills/gh/skill.json" => {
            Ok(br#"{"tools":[{"name":"r"},{"name":"w"},{"name":"x"}]}"#.to_vec())
        }
        _ => Err("not found".to_owned()),
    };
    let lowered = lower_with(&Sweny, &file, &read).unwrap();
    assert!(lowered.warnings.is_empty());
    let mut bench = Bench::new(lowered.plan, Sweny.adapter());
    bench.start(json!(null), &mut |_, _| Stubbed {
        after: 0,
        progress: vec![],
        result: Ok(TaskReply::new(json!({}))),
    });
    let ask = &bench.asked[0].1;
    assert_eq!(ask.instruction.as_deref(), Some("## Skill: Standards\n\nUse tabs.\n\n---\n\ndo a"));
    assert_eq!(ask.context["tools"], json!([{ "name": "r" }]));
    assert_eq!(ask.context["mcp"]["std"]["command"], "npx");
}

#[test]
fn inputs_are_admitted_with_defaults_and_all_their_problems() {
    let mut file = workflow(&json!({ "a": {} }), "");
    file["inputs"] =
        json!({ "n": { "type": "number", "default": 3 }, "who": { "type": "string", "required": true } });
    let plan = lower(&Sweny, &file).unwrap().plan;
    let adapter = Sweny.adapter();
    let admitted = adapter.admit(&plan, json!({ "who": "x", "n": null, "more": 1 })).unwrap();
    assert_eq!(admitted, json!({ "who": "x", "n": 3, "more": 1 }));
    let refused = adapter.admit(&plan, json!({ "n": "x" })).unwrap_err();
    assert_eq!(
        refused.details,
        ["n: must be a finite number (got string)", "who: required but not provided"]
    );
    let refused = adapter.admit(&plan, json!({ "who": "x", "rules": ["./file"] })).unwrap_err();
    assert_eq!(
        refused.details,
        [
            "rules.0: must be text: files are read by the caller that starts the execution, not during the execution"
        ]
    );
}

#[test]
fn judges_may_answer_in_many_ways() {
    let judged = |answer: Value| {
        let eval = json!([{ "name": "j", "kind": "judge", "rubric": "good?" }]);
        let file = workflow(&json!({ "a": { "eval": eval } }), "");
        let lowered = lower(&Sweny, &file).unwrap();
        let mut bench = Bench::new(lowered.plan, Sweny.adapter());
        bench.start(json!({}), &mut |_, ask| {
            let output = if ask.tag == "judge" { answer.clone() } else { json!({}) };
            Stubbed { after: 0, progress: vec![], result: Ok(TaskReply::new(output)) }
        });
        let eval = bench.native()["results"]["a"]["evals"][0].clone();
        (eval["pass"].as_bool().unwrap(), eval["reasoning"].as_str().map(str::to_owned))
    };
    let yes = |why: &str| (true, Some(why.to_owned()));
    assert_eq!(judged(json!("VERDICT: yes\nREASONING: fine\nreally")), yes("fine\nreally"));
    assert_eq!(judged(json!("**Verdict:** YES.")), (true, None));
    assert_eq!(judged(json!({ "verdict": "yes", "reasoning": "ok" })), yes("ok"));
    assert_eq!(judged(json!({ "text": "- verdict: yes" })), (true, None));
    assert_eq!(judged(json!("VERDICT: no")), (false, Some("verdict was 'no', expected 'yes'".to_owned())));
    assert!(!judged(json!(42)).0);
    let long = judged(json!(format!("VERDICT: no\nREASONING: {}", "é".repeat(900)))).1.unwrap();
    assert_eq!(long.chars().count(), 500);
}

#[test]
fn only_chains_can_be_said_in_sam() {
    use crate::Portability;
    let said = |nodes: Value, edges: &str| {
        let plan = lower(&Sweny, &workflow(&nodes, edges)).unwrap().plan;
        let mut losses = Vec::new();
        (Sweny.portable(&crate::PlanGraph::new(&plan), 0, &mut losses), losses.len())
    };
    let (kind, losses) = said(json!({ "a": { "model": "m" }, "b": {} }), "a>b");
    assert_eq!(losses, 4);
    assert!(matches!(said(json!({ "a": { "fail_soft": true } }), "").0, Portability::Not(_)));
    assert!(matches!(said(json!({ "a": { "output": { "required": ["x"] } } }), "").0, Portability::Not(_)));
    assert!(matches!(kind, Portability::Agent { instruction: Some(text), .. } if text == "do a"));
    assert!(matches!(said(json!({ "a": {}, "b": {} }), "a>b?x").0, Portability::Not(_)));
    assert!(matches!(said(json!({ "a": {}, "b": {}, "c": {} }), "a>b*1 a>c").0, Portability::Not(_)));
}

/// Settings of a node and of the workflow reach the agents that do the work, choose and judge.
#[test]
fn settings_reach_the_agents() {
    let node = json!({
        "max_turns": 7, "disallowed_tools": ["rm"], "skills": ["s"], "tools": { "allow": ["r"] },
        "output": { "type": "object" },
        "eval": [{ "name": "j", "kind": "judge", "rubric": "good?" }],
    });
    let mut file = workflow(&json!({ "a": node, "b": { "model": "small" } }), "a>b?fine");
    file["model"] = json!("large");
    file["judge_model"] = json!("judge");
    file["skills"] = json!({ "s": { "mcp": { "command": "npx" } } });
    let bench = run(&json!({ "workflow": file, "input": {}, "stubs": { "ask": ["VERDICT: yes"] } }));
    let context = |tag: &str, n: usize| asked(&bench, tag).nth(n).unwrap().1.context.clone();
    let work = context(TaskRequest::WORK, 0);
    assert_eq!((&work["model"], &work["maxTurns"]), (&json!("large"), &json!(7)));
    assert_eq!(
        (&work["disallowedTools"], &work["outputSchema"]),
        (&json!(["rm"]), &json!({ "type": "object" }))
    );
    assert_eq!(
        (&work["toolFilter"], &work["mcp"]["s"]),
        (&json!({ "allow": ["r"] }), &json!({ "command": "npx" }))
    );
    assert_eq!(context("judge", 0)["model"], "judge");
    assert_eq!(context(TaskRequest::ROUTE, 0)["model"], "large");
    assert_eq!(context(TaskRequest::WORK, 1)["model"], "small");
}
