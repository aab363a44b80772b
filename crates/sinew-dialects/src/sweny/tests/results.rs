//! Results, events and output schemas of runs, and settings that reach agents.

use serde_json::{Value, json};
use sinew_engine::{Ask, Input, Mode, Reply};

use super::super::Sweny;
use super::{asked, codes, run, workflow};
use crate::Dialect;
use crate::testing::{Bench, Stubbed, lower, lower_with};

/// Whatever ends a run: nodes that were entered exit, and the last event is the end of the workflow.
#[test]
fn a_run_that_breaks_off_keeps_its_results_and_its_last_events() {
    let check = |case: &Value, last: &[&str], results: &Value, fault: &str| {
        let bench = run(case);
        let lines = bench.lines();
        assert!(lines.ends_with(last), "{lines:?}");
        let end = &bench.events.last().unwrap().json;
        assert_eq!(&end["results"], results, "{case}");
        let outcome = bench.state().outcome.as_ref().unwrap();
        assert!(outcome.fault.as_ref().unwrap().message.contains(fault), "{outcome:?}");
        let output = Value::clone(outcome.output.as_ref().expect("results survive a failure"));
        assert_eq!(output, bench.native());
        assert_eq!(&output["results"], results);
        output
    };
    let done = json!({ "status": "success", "data": {} });
    let file = workflow(&json!({ "a": {}, "b": {} }), "a>b b>a");
    let case = json!({ "workflow": file, "input": {}, "stubs": {}, "options": { "max_steps": 3 } });
    let output = check(
        &case,
        &["route a>b [only path]", "workflow:end"],
        &json!({ "a": done, "b": done }),
        "step budget exceeded: workflow 'w' ran 3 steps (max_steps: 3)",
    );
    assert_eq!(output["trace"]["steps"].as_array().unwrap().len(), 3);

    let nobody = "Node \"b\" requires skills [nobody] but none of them is available";
    let broken = json!({ "status": "failed", "data": { "error": nobody } });
    let file = workflow(&json!({ "a": {}, "b": { "skills": ["nobody"] } }), "a>b");
    let output = check(
        &json!({ "workflow": file, "input": {}, "stubs": {} }),
        &["node:enter b", "node:exit b failed", "workflow:end"],
        &json!({ "a": done, "b": broken }),
        nobody,
    );
    assert_eq!(output["trace"]["steps"][1], json!({ "node": "b", "status": "failed", "iteration": 1 }));

    let failed = json!({ "status": "failed", "data": { "error": "no luck" } });
    let stubs = json!({ "nodes": { "a": [failed] } });
    check(
        &json!({ "workflow": workflow(&json!({ "a": {}, "b": {} }), "a>b"), "input": {}, "stubs": stubs }),
        &["node:exit b success", "workflow:end"],
        &json!({ "a": failed, "b": done }),
        "nodes ended failed: a",
    );
}

#[test]
fn a_cancelled_run_ends_its_node_and_itself() {
    let mut bench =
        Bench::new(lower(&Sweny, &workflow(&json!({ "a": {} }), "")).unwrap().plan, Sweny.adapter());
    let mut stub =
        |_: &str, _: &Ask| Stubbed { after: 5, progress: vec![], result: Ok(Reply::new(json!({}))) };
    bench
        .input(Input::Start { input: json!({}), mode: Mode::default(), depth: 0, chain: vec![] }, &mut stub)
        .unwrap();
    bench.input(Input::Cancel { reason: "enough".into() }, &mut stub).unwrap();
    assert_eq!(
        bench.lines(),
        ["workflow:start w", "sources:resolved", "node:enter a", "node:exit a failed", "workflow:end"]
    );
    let cancelled = json!({ "status": "failed", "data": { "error": "cancelled" } });
    let output = bench.state().outcome.as_ref().unwrap().output.as_ref().unwrap();
    assert_eq!(output["results"], json!({ "a": cancelled }));
}

/// A journal of a version that noted `node:exit` tells it once.
#[test]
fn a_noted_exit_is_not_told_twice() {
    let bench = run(&json!({ "workflow": workflow(&json!({ "a": {} }), ""), "input": {}, "stubs": {} }));
    let ctx = sinew_engine::Ctx::new(bench.graph(), bench.state(), 0);
    let note = json!({ "event": { "type": "node:exit", "node": "a", "result": {} } });
    let noted = sinew_engine::Fact::Noted { act: Some(0), note };
    assert_eq!(Sweny.adapter().project(&ctx, &noted), []);
}

#[test]
fn outputs_conform_to_their_schema() {
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer", "maximum": 9 }, "tags": { "items": { "type": "string" } } },
        "required": ["n"]
    });
    let said = |answers: Value, retry: bool| {
        let mut node = json!({ "output": schema });
        if retry {
            node["retry"] = json!({ "max": 1 });
        }
        let file = workflow(&json!({ "a": node }), "");
        let bench = run(&json!({ "workflow": file, "input": {}, "stubs": { "nodes": { "a": answers } } }));
        bench.native()["results"]["a"].clone()
    };
    assert_eq!(said(json!([{ "data": { "n": 3 } }]), false)["status"], "success");
    for (data, error) in [
        (json!({ "n": "3" }), "n: string is not of type integer"),
        (json!({ "n": null }), "n: null is not of type integer"),
        (json!({ "n": 10 }), "n: "),
        (json!({ "n": 1, "tags": ["a", 2] }), "tags.1: integer is not of type string"),
        (json!({ "tags": [] }), "required field(s) missing from emitted data: n"),
    ] {
        let result = said(json!([{ "data": data }]), false);
        assert_eq!(result["status"], "failed", "{data}");
        let text = result["data"]["error"].as_str().unwrap();
        assert!(text.starts_with("output schema violation: ") && text.contains(error), "{data}: {text}");
    }
    let mended = said(json!([{ "data": { "n": "3" } }, { "data": { "n": 3 } }]), true);
    assert_eq!(mended["status"], "success");
}

#[test]
fn no_node_hides_the_input_and_output_schemas_are_checked() {
    let found = lower(&Sweny, &workflow(&json!({ "a": {}, "input": {} }), "a>input")).unwrap_err();
    assert_eq!(codes(&found), ["RESERVED_NODE_ID"]);
    let broken = workflow(&json!({ "a": { "output": { "type": "strin" } } }), "");
    let found = lower(&Sweny, &broken).unwrap_err();
    assert!(found.items[0].message.starts_with("nodes.a.output: is not a valid JSON Schema"), "{found}");
}

/// The caller's skill wins over that of the file, and that over one beside the file.
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
    let work = context(Ask::WORK, 0);
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
    assert_eq!(context(Ask::ROUTE, 0)["model"], "large");
    assert_eq!(context(Ask::WORK, 1)["model"], "small");
}
