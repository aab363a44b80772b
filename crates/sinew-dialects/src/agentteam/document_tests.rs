//! Rules of the specification that the cases do not cover: tasks of agents, messages at load, and
//! behaviour of older plans.

use serde_json::{Value, json};
use sinew_engine::TaskReply;
use sinew_source::Severity;

use super::tests::{T, case, graph, run};
use super::{AgentTeam, suggest_conversions};
use crate::Dialect;
use crate::testing::{Bench, Stubbed, document, lower};

fn sub_codes(workflow: &Value) -> Vec<String> {
    let found = match lower(&AgentTeam, workflow) {
        Ok(lowered) => lowered.warnings,
        Err(refused) => refused,
    };
    found.items.iter().filter_map(|item| item.sub_code.clone()).collect()
}

#[test]
fn values_that_break_a_contract_are_told_and_fail_on_request() {
    let check = |checks: Value, status: &str, violations: usize| {
        let mut workflow = graph(&format!("{T} s:EXTERNAL_ACTION.SLACK"), "t>s");
        workflow["metadata"] = json!({ "schema_checks": checks });
        workflow["connections"][0]["conversion_function"] =
            json!("lambda d: {'message': [1], 'blocks': 'x'}");
        let stubs = json!({ "s": { "result": { "success": "yes", "message_ts": "1" } } });
        let (natives, bench) =
            run(&json!({ "workflow": workflow, "specs": {}, "stubs": stubs, "input": {} })).unwrap();
        assert_eq!(natives[0]["status"], status);
        let found = natives[0]["schema_violations"].as_array().unwrap();
        assert_eq!(found.len(), violations, "{found:?}");
        let events = bench.lines().iter().filter(|line| **line == "schema_violation s").count();
        assert_eq!(events, violations);
        natives[0]["error"].clone()
    };
    // The input has two fields of a wrong type, the output one.
    check(Value::Null, "SUCCESS", 3);
    check(json!("off"), "SUCCESS", 0);
    let error = check(json!("fail"), "ERROR", 2);
    assert_eq!(
        error,
        "Node s failed: the input member 'message' must be of the type string, not list; the input member 'blocks' must be \
         of the type array, not str"
    );
}

#[test]
fn conversion_functions_see_the_same_value_in_both_message_formats() {
    let message = |format: &str, answer: &Value| {
        let nodes = format!("{T} ai:AI_AGENT.OPENAI_CHATGPT s:EXTERNAL_ACTION.SLACK");
        let mut workflow = graph(&nodes, "t>ai ai>s");
        workflow["metadata"] = json!({ "message_format": format });
        workflow["connections"][1]["conversion_function"] =
            json!("lambda d: {'message': d.get('content'), 'format': d.get('format_type')}");
        let stubs = json!({ "ai": { "result": answer }, "s": { "result": {} } });
        let (_, bench) =
            run(&json!({ "workflow": workflow, "specs": {}, "stubs": stubs, "input": {} })).unwrap();
        bench.asked.last().unwrap().1.input["result"].clone()
    };
    for answer in [json!("hello"), json!({ "text": "hello" }), json!({ "response": "hello" })] {
        let legacy = message("legacy", &answer);
        assert_eq!(legacy["message"], "hello", "{answer}");
        assert_eq!(message("standard", &answer), legacy, "{answer}");
    }
}

#[test]
fn a_function_that_runs_too_long_keeps_the_original_value() {
    let mut workflow = graph(&format!("{T} s:EXTERNAL_ACTION.SLACK"), "t>s");
    workflow["connections"][0]["conversion_function"] = json!("def f(d):\n    while True:\n        pass\n");
    let stubs = json!({ "s": { "result": {} } });
    let input = json!({ "message": "kept" });
    let (natives, bench) =
        run(&json!({ "workflow": workflow, "specs": {}, "stubs": stubs, "input": input })).unwrap();
    assert_eq!(natives[0]["status"], "SUCCESS", "{}", natives[0]);
    assert!(bench.asked[0].1.input.to_string().contains("kept"), "{}", bench.asked[0].1.input);
}

#[test]
fn a_wrong_choice_in_the_metadata_is_refused() {
    for (key, word) in [("schema_checks", "loud"), ("conversion_argument", "both")] {
        let mut workflow = graph(T, "");
        workflow["metadata"] = json!({ key: word });
        assert_eq!(sub_codes(&workflow), ["WorkflowValidationError"], "{key}");
    }
}

#[test]
fn the_recorded_argument_is_an_option() {
    let check = |metadata: Value, want: Value| {
        let echo = json!({ "a": { "echo": true } });
        let case = case(&format!("{T} a:ACTION.RUN_CODE"), "t>a", &echo, |workflow| {
            workflow["metadata"] = metadata.clone();
            workflow["connections"][0]["conversion_function"] =
                json!("lambda d: {'n': d.get('n'), 'data': d['data']}");
        });
        assert_eq!(run(&case).unwrap().0[0]["nodes"]["a"]["input"]["result"], want);
    };
    check(json!({}), json!({ "n": 5, "data": { "n": 5 } }));
    check(
        json!({ "conversion_argument": "wrapper" }),
        json!({ "n": null, "data": { "result": { "n": 5 } } }),
    );
}

#[test]
fn plans_of_earlier_versions_keep_what_was_recorded() {
    let lowered = lower(&AgentTeam, &{
        let mut workflow = graph("z:ACTION.RUN_CODE a:ACTION.RUN_CODE", "z>a");
        workflow["connections"][0]["conversion_function"] = json!("lambda d: {'d': d['data']}");
        workflow
    })
    .unwrap();
    let mut plan = lowered.plan;
    plan.extra = json!({ "standard": false });
    let mut bench = Bench::new(plan, AgentTeam.adapter());
    bench.start(json!({ "n": 1 }), &mut |_, ask| {
        let echo = json!({ "outputs": { "result": { "data": ask.input["result"] } } });
        Stubbed { after: 0, progress: Vec::new(), result: Ok(TaskReply::new(echo)) }
    });
    let native = bench.native();
    assert_eq!(native["nodes"]["z"]["input"], json!({ "result": { "n": 1 } }));
    assert_eq!(
        native["nodes"]["a"]["input"],
        json!({ "result": { "d": { "result": { "data": { "n": 1 } } } } })
    );
}

#[test]
fn references_templates_and_types_are_checked_at_load() {
    let nodes = format!("{T} ai:AI_AGENT.OPENAI_CHATGPT a:ACTION.HTTP_REQUEST s:EXTERNAL_ACTION.SLACK");
    let check = |connections: &str, change: &dyn Fn(&mut Value), want: &[&str]| {
        let mut workflow = graph(&nodes, connections);
        workflow["metadata"] = json!({ "message_format": "legacy" });
        change(&mut workflow);
        let mut seen = sub_codes(&workflow);
        // Each case connects some of the nodes.
        seen.retain(|code| code != "NOT_CONNECTED");
        assert_eq!(seen, want, "{connections}");
    };
    check("t>ai", &|_| {}, &["LEGACY_EXTRACTION"]);
    check("t>ai", &|workflow| workflow["metadata"]["message_format"] = json!("standard"), &[]);
    let text = |text: &'static str| {
        move |workflow: &mut Value| workflow["nodes"][2]["configurations"] = json!({ "url": text })
    };
    check("a>s", &text("x"), &["CONTRACT_MISSING_FIELD"]);
    check("ai>a", &text("https://x.test/{{ $json.content }}"), &[]);
    check("ai>a", &text("https://x.test/{{ $json.contnt }}"), &["UNKNOWN_REFERENCE"]);
    check("ai>a", &text("https://x.test/{{ $node[\"ai\"].result.content }}"), &[]);
    check("ai>a", &text("https://x.test/{{ $node[\"al\"].result.content }}"), &["UNKNOWN_REFERENCE"]);
    check("ai>a", &text("https://x.test/{{ $json.content"), &["TEMPLATE_OPEN"]);
    let convert = |source: &'static str| {
        move |workflow: &mut Value| workflow["connections"][0]["conversion_function"] = json!(source)
    };
    check("a>s", &convert("lambda d: {'message': d.get('status_code')}"), &["CONTRACT_TYPE"]);
    check(
        "a>s",
        &convert("lambda d: {'message': 'status ' + d['value']['status_code']}"),
        &["CONVERSION_TYPES"],
    );
    check(
        "a>s",
        &convert("lambda d: {'message': str(d['value'].get('status_cod'))}"),
        &["CONVERSION_MEMBER"],
    );
    check("a>s", &convert("lambda d: {'message': str(d['value'].get('anything'))}"), &[]);
}

#[test]
fn an_error_in_a_function_stands_at_its_own_line() {
    let text = "nodes:\n  - {id: t, type: TRIGGER, subtype: MANUAL}\n  - {id: a, type: ACTION, subtype: RUN_CODE}\n\
                connections:\n  - id: c\n    from_node: t\n    to_node: a\n    conversion_function: |\n      \
                def f(d):\n          x = 1\n          return ]\n";
    let options = crate::LowerOptions {
        default_name: "w",
        read: &|_| Err(String::new()),
        list: &crate::no_list,
        agents: &std::collections::BTreeMap::new(),
    };
    let refused = AgentTeam.lower(document(text), &options).unwrap_err();
    let place = refused.items[0].span.unwrap();
    assert_eq!((place.line, refused.items[0].severity), (11, Severity::Error));
}

#[test]
fn a_workflow_without_nodes_is_refused() {
    assert_eq!(sub_codes(&json!({ "nodes": [], "connections": [] })), ["WorkflowValidationError"]);
}

#[test]
fn a_mistyped_member_is_named() {
    let text = json!({ "node": [], "connections": [{ "from_node": "a", "to_node": "b" }] }).to_string();
    assert_eq!(crate::detect(&document(&text)).unwrap().name(), "agentteam");
    let refused = lower(&AgentTeam, &serde_json::from_str(&text).unwrap()).unwrap_err();
    assert!(refused.items[0].hint.as_deref().unwrap().contains("did you mean 'nodes'?"));
}

#[test]
fn functions_are_suggested_for_connections_without_one() {
    let workflow =
        graph("ai:AI_AGENT.OPENAI_CHATGPT s:EXTERNAL_ACTION.SLACK e:EXTERNAL_ACTION.EMAIL", "ai>s s>e");
    let text = serde_json::to_string_pretty(&workflow).unwrap();
    let found = suggest_conversions(&document(&text), None, &|_| Err(String::new()));
    let names: Vec<(&str, usize)> =
        found.iter().map(|one| (one.connection.as_str(), one.open.len())).collect();
    assert_eq!(names, [("ai>s", 0), ("s>e", 1)]);
    let value = super::convert::convert(&found[0].function, &json!({ "content": "hi" })).unwrap();
    let super::convert::ConversionResult::Value(value) = value else { panic!("it converts") };
    assert_eq!(value, json!({ "message": "hi" }));
    // The suggestion makes the contract hold.
    let mut fixed = workflow.clone();
    for (n, one) in found.iter().enumerate() {
        fixed["connections"][n]["conversion_function"] = json!(one.function);
    }
    assert_eq!(sub_codes(&workflow), ["CONTRACT_MISSING_FIELD"; 2]);
    assert_eq!(sub_codes(&fixed), [""; 0]);
}

#[test]
fn a_slack_action_is_told_its_message_and_channel() {
    let mut workflow = graph(&format!("{T} s:EXTERNAL_ACTION.SLACK"), "t>s");
    workflow["nodes"][1]["configurations"] = json!({ "channel": "#configured" });
    let plan = lower(&AgentTeam, &workflow).unwrap().plan;
    let asked = |data: Value| {
        let mut bench = Bench::new(plan.clone(), AgentTeam.adapter());
        bench.start(data, &mut |_, _| Stubbed {
            after: 0,
            progress: Vec::new(),
            result: Ok(TaskReply::new(json!({}))),
        });
        let context = &bench.asked[0].1.context;
        (context["message"].clone(), context["channel"].clone())
    };
    assert_eq!(asked(json!({ "content": "c", "channel": "#own" })), (json!("c"), json!("#own")));
    assert_eq!(asked(json!({ "message": "m", "channel_override": "#x" })), (json!("m"), json!("#x")));
    assert_eq!(asked(json!({ "message": "m" })), (json!("m"), json!("#configured")));
}
