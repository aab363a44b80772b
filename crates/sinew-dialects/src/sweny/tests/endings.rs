//! Ends of a workflow: failures, cancellation, outputs that violate their schema.

use super::*;

/// After any end, entered nodes exit, and the last event is the end of the workflow.
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
    let done = json!({ "status": "success", "data": {}, "toolCalls": [] });
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
    let broken = json!({ "status": "failed", "data": { "error": nobody }, "toolCalls": [] });
    let file = workflow(&json!({ "a": {}, "b": { "skills": ["nobody"] } }), "a>b");
    let output = check(
        &json!({ "workflow": file, "input": {}, "stubs": {} }),
        &["node:enter b", "node:exit b failed", "workflow:end"],
        &json!({ "a": done, "b": broken }),
        nobody,
    );
    assert_eq!(output["trace"]["steps"][1], json!({ "node": "b", "status": "failed", "iteration": 1 }));

    let failed = json!({ "status": "failed", "data": { "error": "no luck" }, "toolCalls": [] });
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
    let mut stub = |_: &str, _: &TaskRequest| Stubbed {
        after: 5,
        progress: vec![],
        result: Ok(TaskReply::new(json!({}))),
    };
    bench
        .input(
            EngineInput::Start {
                input: json!({}),
                mode: ExecutionMode::default(),
                depth: 0,
                chain: vec![],
                paused: None,
            },
            &mut stub,
        )
        .unwrap();
    bench.input(EngineInput::Cancel { reason: "enough".into() }, &mut stub).unwrap();
    assert_eq!(
        bench.lines(),
        ["workflow:start w", "sources:resolved", "node:enter a", "node:exit a failed", "workflow:end"]
    );
    let cancelled = json!({ "status": "failed", "data": { "error": "cancelled" }, "toolCalls": [] });
    let output = bench.state().outcome.as_ref().unwrap().output.as_ref().unwrap();
    assert_eq!(output["results"], json!({ "a": cancelled }));
}

/// A journal of a version that noted `node:exit` reports it only once.
#[test]
fn a_noted_exit_is_not_told_twice() {
    let bench = run(&json!({ "workflow": workflow(&json!({ "a": {} }), ""), "input": {}, "stubs": {} }));
    let ctx = sinew_engine::AdapterContext::new(bench.graph(), bench.state(), 0);
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
