//! All cases of the dialect, and rules that the cases do not cover.

use serde_json::{Map, Value, json};
use sinew_engine::{EngineInput, ExecutionMode, TaskReply, TaskRequest};
use sinew_protocol::Fault;
use sinew_source::Diagnostics;

use super::adapter::ReportedWork;
use super::convert::{self, ConversionResult};
use super::expr::ExpressionScope;
use super::message::StandardMessage;
use super::{AgentTeam, human, message};
use crate::Dialect;
use crate::testing::{Bench, Stubbed, judge, lower};

/// Node runners of a case; every call is one attempt.
fn stub(stubs: &Value) -> impl FnMut(&str, &TaskRequest) -> Stubbed + '_ {
    let mut tries: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    move |node, ask| {
        let nth = tries.entry(node.to_owned()).or_default();
        let mut stub = stubs[node].clone();
        if let Some(attempts) = stub["attempts"].as_array() {
            stub = attempts[(*nth).min(attempts.len() - 1)].clone();
        }
        *nth += 1;
        let result = if let Some(text) = stub["raise"].as_str() {
            Err(Fault::failure("SINEW-5101", text))
        } else if stub["echo"] == true {
            Ok(TaskReply::new(json!({ "outputs": { "result": { "echo": ask.input["result"] } } })))
        } else if let Some(outputs) = stub.get("outputs") {
            Ok(TaskReply::new(json!({ "outputs": outputs })))
        } else {
            Ok(TaskReply::new(json!({ "outputs": { "result": stub["result"] } })))
        };
        let after = stub["sleep_s"].as_f64().map_or(0, super::flow::milliseconds);
        Stubbed { after, progress: Vec::new(), result }
    }
}

/// Returns the workflow of a case with its specs.
fn workflow(case: &Value) -> Value {
    let mut workflow = case["workflow"].clone();
    let usual = json!({ "TRIGGER.MANUAL": "*", "ACTION.DATA_TRANSFORMATION": "*" });
    workflow["specs"] = if case["specs"].is_null() { usual } else { case["specs"].clone() };
    workflow
}

pub(super) fn run(case: &Value) -> Result<(Vec<Value>, Bench), Diagnostics> {
    let lowered = lower(&AgentTeam, &workflow(case))?;
    let mut bench = Bench::new(lowered.plan, AgentTeam.adapter());
    let mut stub = stub(&case["stubs"]);
    let from = case["input"]["start_from_node"].as_str().map(str::to_owned);
    let mode = ExecutionMode { from: from.into_iter().collect(), ..ExecutionMode::default() };
    let input =
        EngineInput::Start { input: case["input"].clone(), mode, depth: 0, chain: Vec::new(), paused: None };
    bench.input(input, &mut stub).expect("a fresh execution starts");
    bench.go_on(&mut stub);
    let mut natives = vec![bench.native()];
    for resume in case["resume"].as_array().into_iter().flatten() {
        bench.restart();
        if resume.get("timer").is_some() {
            bench.next_timer(&mut stub);
        } else {
            bench.answer(resume["input"].clone(), &mut stub);
        }
        natives.push(bench.native());
    }
    drop(stub);
    Ok((natives, bench))
}

/// Returns the seen fields that are wanted.
fn seen_of(seen: &Value, want: &Value) -> Value {
    match (seen, want) {
        (Value::Object(seen), Value::Object(want)) => {
            let wanted = want.iter().filter(|(key, _)| *key != "note");
            let keep =
                wanted.map(|(key, want)| (key.clone(), seen_of(seen.get(key).unwrap_or(&Value::Null), want)));
            Value::Object(keep.collect())
        }
        _ => seen.clone(),
    }
}

#[test]
fn recorded_runs() {
    judge("agentteam", "run", |case, wrong| {
        let (mut last, lines) = match run(case) {
            Ok((natives, bench)) => {
                let lines: Vec<String> = bench.lines().into_iter().map(str::to_owned).collect();
                (natives.last().unwrap().clone(), lines)
            }
            Err(refused) => {
                let first = &refused.items[0];
                let text = format!("{}: {}", first.sub_code.as_deref().unwrap_or_default(), first.message);
                (json!({ "raised": text }), Vec::new())
            }
        };
        last["events"] = json!(lines);
        for (key, want) in case["expect"].as_object().unwrap().iter().filter(|(key, _)| *key != "note") {
            if key == "events" && case.get("resume").is_some() {
                wrong.leave_out("events after a resume: the source engine emits none");
            } else {
                wrong.check_null(key, &seen_of(&last[key], want), want);
            }
        }
    });
}

#[test]
fn recorded_conversions() {
    judge("agentteam", "conversion", |case, wrong| {
        let source = case["workflow"]["connection"]["conversion_function"].as_str().unwrap();
        let (failed, value) = match convert::convert(source, &case["input"]["raw_port_value"]) {
            Ok(ConversionResult::Value(value)) => (false, value),
            Ok(ConversionResult::Raised(_)) => (true, case["input"]["shaped_port_value"].clone()),
            Err(error) => panic!("{error}"),
        };
        wrong.check("failed", &json!(failed), &case["expect"]["failed"]);
        wrong.check_null("edge_value", &value, &case["expect"]["edge_value"]);
    });
}

fn scope(input: &Value) -> ExpressionScope {
    let object = |key: &str| input[key].as_object().cloned().unwrap_or_default();
    ExpressionScope {
        input: input["input"].clone(),
        inputs: input["inputs"].clone(),
        config: input["config"].clone(),
        trigger: input["trigger"].clone(),
        nodes_id: object("nodes_id"),
        nodes_name: object("nodes_name"),
        now: 0,
        ..ExpressionScope::default()
    }
}

#[test]
fn templates_of_a_configuration_fill_in_a_limited_number_of_bytes() {
    let large = json!({ "input": { "text": "x".repeat(1 << 20) } });
    let configuration = |times| json!({ "a": "{{$json.text}}".repeat(times), "b": ["{{$json.text}}"] });
    let filled = scope(&large).render_all(&configuration(2)).unwrap();
    assert_eq!(filled["a"].as_str().unwrap().len(), 2 << 20);
    let error = scope(&large).render_all(&configuration(20)).unwrap_err();
    assert_eq!(error.0, crate::fill::FillError.to_string());
}

#[test]
fn recorded_expressions() {
    judge("agentteam", "expr", |case, wrong| {
        let scope = scope(&case["input"]);
        for (text, want) in case["expect"].as_object().unwrap() {
            let seen = match scope.holds(text) {
                Ok(holds) => json!(holds),
                Err(error) => json!(format!("raises {}", error.0.split(':').next().unwrap())),
            };
            wrong.check(text, &seen, want);
        }
    });
}

#[test]
fn recorded_templates() {
    judge("agentteam", "template", |case, wrong| {
        let scope = scope(&case["input"]);
        for (text, want) in case["expect"].as_object().unwrap() {
            wrong.check_null(text, &json!(scope.render(text).unwrap()), want);
        }
    });
}

#[test]
fn recorded_validations() {
    judge("agentteam", "validate", |case, wrong| {
        let refused =
            lower(&AgentTeam, &case["workflow"]).map_or_else(|refused| refused.items, |_| Vec::new());
        let errors = refused.iter().filter(|item| item.severity == sinew_source::Severity::Error);
        let codes: Vec<&str> = errors.filter_map(|item| item.sub_code.as_deref()).collect();
        wrong.check_null("codes", &json!(codes), &case["expect"]["codes"]);
    });
}

#[test]
fn recorded_classifications() {
    judge("agentteam", "classifier", |case, wrong| {
        for (text, want) in case["expect"].as_object().unwrap() {
            wrong.check(text, &json!(human::classify(text).label()), want);
        }
    });
}

/// Returns a workflow in short form: nodes `id:TYPE.SUBTYPE`, connections `a>b` or `a.port>b`.
pub(super) fn graph(nodes: &str, connections: &str) -> Value {
    let nodes = nodes.split_whitespace().map(|node| {
        let (id, kind) = node.split_once(':').unwrap();
        let (kind, subtype) = kind.split_once('.').unwrap();
        json!({ "id": id, "type": kind, "subtype": subtype, "configurations": {} })
    });
    let connections = connections.split_whitespace().map(|connection| {
        let (from, to) = connection.split_once('>').unwrap();
        let (from, port) = from.split_once('.').unwrap_or((from, "result"));
        json!({ "id": connection, "from_node": from, "to_node": to, "output_key": port })
    });
    json!({ "nodes": nodes.collect::<Vec<_>>(), "connections": connections.collect::<Vec<_>>() })
}

pub(super) const T: &str = "t:TRIGGER.MANUAL";
const ALL: &str = "*";

/// Returns a case whose specs accept everything.
pub(super) fn case(nodes: &str, connections: &str, stubs: &Value, change: impl Fn(&mut Value)) -> Value {
    let mut workflow = graph(nodes, connections);
    change(&mut workflow);
    let specs: Map<String, Value> = workflow["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["type"] != "FLOW")
        .map(|node| {
            (format!("{}.{}", node["type"].as_str().unwrap(), node["subtype"].as_str().unwrap()), json!(ALL))
        })
        .collect();
    json!({ "workflow": workflow, "specs": specs, "stubs": stubs, "input": { "trigger_data": { "n": 5 } } })
}

#[test]
fn an_if_takes_one_branch_and_conversions_see_its_raw_payload() {
    let nodes = format!("{T} i:FLOW.IF a:ACTION.RUN_CODE b:ACTION.RUN_CODE");
    let run_with = |condition: &str| {
        let case = case(&nodes, "t>i i.true>a i.false>b", &json!({}), |workflow| {
            workflow["nodes"][1]["configurations"] = json!({ "condition_expression": condition });
            workflow["connections"][1]["conversion_function"] =
                json!("lambda d: {'n': d['value']['data']['n']}");
        });
        run(&case).unwrap().0.remove(0)
    };
    let yes = run_with("$json.n > 3");
    assert_eq!(yes["nodes"]["a"]["input"], json!({ "result": { "n": 5 } }));
    assert_eq!(yes["nodes"]["b"]["status"], "pending");
    assert_eq!(
        yes["nodes"]["i"]["output"],
        json!({ "true": { "data": { "n": 5 }, "condition_result": true } })
    );
    let no = run_with("$json.n > 30");
    assert_eq!(
        no["nodes"]["b"]["input"],
        json!({ "result": { "data": { "n": 5 }, "condition_result": false } })
    );
    assert_eq!(no["nodes"]["a"]["status"], "pending");
    let raises = run_with("$json.n > 'x'");
    assert_eq!(raises["nodes"]["i"]["error_code"], "NODE_EXEC_ERROR");
    assert_eq!(raises["error"], "Node i failed: TypeError: '>' not supported between 'int' and 'str'");
}

#[test]
fn a_conversion_that_raises_is_noted_and_counted() {
    let case =
        case(&format!("{T} a:ACTION.RUN_CODE"), "t>a", &json!({ "a": { "echo": true } }), |workflow| {
            workflow["connections"][0]["conversion_function"] = json!("lambda d: d['nope']");
        });
    let (natives, _) = run(&case).unwrap();
    assert_eq!(natives[0]["status"], "SUCCESS");
    assert_eq!(natives[0]["nodes"]["a"]["input"], json!({ "result": { "n": 5 } }));
    assert_eq!(natives[0]["conversion_failures"], 1);
    assert_eq!(natives[0]["failed_conversions"], json!(["t>a"]));
}

#[test]
fn an_absent_result_port_carries_the_whole_map() {
    let stubs = json!({ "a": { "outputs": { "x": 1, "_tokens": { "input": 3, "output": 4 } } }, "b": { "echo": true } });
    let case = case(&format!("{T} a:ACTION.RUN_CODE b:ACTION.RUN_CODE"), "t>a a>b", &stubs, |workflow| {
        workflow["nodes"][1]["configurations"] = json!({ "credit_cost": 2 });
    });
    let (natives, _) = run(&case).unwrap();
    assert_eq!(natives[0]["nodes"]["b"]["input"], json!({ "result": { "x": 1 } }));
    assert_eq!((&natives[0]["tokens_used"], &natives[0]["credits_consumed"]), (&json!(7), &json!(2)));
}

#[test]
fn people_and_timers() {
    let nodes = format!(
        "{T} h:HUMAN_IN_THE_LOOP.MANUAL_REVIEW a:ACTION.RUN_CODE b:ACTION.RUN_CODE c:ACTION.RUN_CODE"
    );
    let echo = json!({ "a": { "echo": true }, "b": { "echo": true }, "c": { "echo": true } });
    let check = |configurations: Value, resume: Value, status: &str, sequence: Value| {
        let mut case = case(&nodes, "t>h h.confirmed>a h.rejected>b h.timeout>c", &echo, |workflow| {
            workflow["nodes"][1]["configurations"] = configurations.clone();
        });
        case["resume"] = json!([resume]);
        let (natives, bench) = run(&case).unwrap();
        assert_eq!(natives[0]["status"], "WAITING_FOR_HUMAN");
        assert_eq!(
            (&natives[1]["status"], &natives[1]["sequence"]),
            (&json!(status), &sequence),
            "{configurations}"
        );
        bench.lines().join(" ")
    };
    let lines = check(json!({}), json!({ "input": "reject it" }), "SUCCESS", json!(["t", "h", "b"]));
    assert!(lines.ends_with("node_completed h execution_resumed node_started b node_output_update b node_completed b execution_completed"));
    check(json!({}), json!({ "input": { "approved": true } }), "SUCCESS", json!(["t", "h", "a"]));
    check(json!({}), json!({ "timer": "h" }), "ERROR", json!(["t"]));
    check(
        json!({ "timeout_action": "continue" }),
        json!({ "timer": "h" }),
        "SUCCESS",
        json!(["t", "h", "c"]),
    );
    let fallback = json!({ "timeout_action": "default_response", "default_response": "yes" });
    check(fallback, json!({ "timer": "h" }), "SUCCESS", json!(["t", "h", "a"]));
}

#[test]
fn waits_and_delays_hold_the_run() {
    for (subtype, configurations, ports) in [
        ("WAIT", json!({ "timeout_seconds": 900 }), json!(["timeout"])),
        ("DELAY", json!({ "duration": 20, "unit": "minutes" }), json!(["result", "main"])),
    ] {
        let nodes = format!("{T} w:FLOW.{subtype} a:ACTION.RUN_CODE b:ACTION.RUN_CODE");
        let echo = json!({ "a": { "echo": true }, "b": { "echo": true } });
        let mut case = case(&nodes, "t>w w>a w.timeout>b", &echo, |workflow| {
            workflow["nodes"][1]["configurations"] = configurations.clone();
        });
        case["resume"] = json!([{ "timer": "w" }]);
        let (natives, _) = run(&case).unwrap();
        assert_eq!((&natives[0]["status"], &natives[0]["current"]), (&json!("WAITING"), &json!("w")));
        let fired: Vec<&String> = natives[1]["nodes"]["w"]["output"].as_object().unwrap().keys().collect();
        assert_eq!(json!(fired), ports);
        assert_eq!(natives[1]["status"], "SUCCESS");
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said_at_once() {
    let check = |workflow: Value, want: &[&str]| {
        let found = match lower(&AgentTeam, &workflow) {
            Ok(lowered) => lowered.warnings,
            Err(refused) => refused,
        };
        let mut seen: Vec<&str> = found.items.iter().filter_map(|item| item.sub_code.as_deref()).collect();
        // Some cases leave out the connections of a node.
        seen.retain(|code| *code != "NOT_CONNECTED");
        seen.sort_unstable();
        assert_eq!(seen, want, "{:?}", found.items.iter().map(|item| &item.message).collect::<Vec<_>>());
    };
    let with = |connections: &str, change: &dyn Fn(&mut Value)| {
        let mut workflow = graph(&format!("{T} i:FLOW.IF s:EXTERNAL_ACTION.SLACK"), connections);
        workflow["nodes"][1]["configurations"] = json!({ "condition_expression": "$json.n > 3" });
        change(&mut workflow);
        workflow
    };
    check(with("t>i", &|_| {}), &[]);
    check(with("t>i i.true>s", &|_| {}), &["CONTRACT_MISSING_FIELD"]);
    check(with("t>i i.yes>t", &|_| {}), &["CONTRACT_PORT", "CycleError"]);
    let convert = |source: &'static str| {
        with("t>s", &move |workflow| workflow["connections"][0]["conversion_function"] = json!(source))
    };
    check(convert("lambda d: {'message': str(d['value'])}"), &[]);
    check(convert("lambda d: {'message': d.get('content')}"), &[]);
    let recorded = with("t>s", &|workflow| {
        workflow["metadata"] = json!({ "conversion_argument": "wrapper" });
        workflow["connections"][0]["conversion_function"] = json!("lambda d: {'message': d.get('content')}");
    });
    check(recorded, &["CONVERSION_WRAPPER"]);
    check(convert("lambda d: {'text': 'x'}"), &["CONTRACT_MISSING_FIELD"]);
    check(convert("def f(d):\n  return {\n"), &["CONVERSION_INVALID"]);
    let quirk = with("t>i", &|workflow| {
        workflow["nodes"][1]["configurations"]["condition_expression"] = json!("!$json.b");
    });
    check(quirk, &["CONDITION_QUIRK"]);
    let two = with("t>ghost", &|workflow| {
        workflow["nodes"][1]["configurations"] = json!({});
        workflow["nodes"][2]["subtype"] = json!("SLAK");
        workflow["nodes"][2]["attached_nodes"] = json!(["t"]);
        workflow["triggers"] = json!(["x"]);
    });
    check(two, &["WorkflowValidationError"; 6]);
}

#[test]
fn a_syntax_error_names_its_line() {
    let mut workflow = graph(&format!("{T} a:ACTION.RUN_CODE"), "t>a");
    workflow["connections"][0]["conversion_function"] = json!("def f(d):\n    x = 1\n    return ]\n");
    let refused = lower(&AgentTeam, &workflow).expect_err("it does not compile");
    assert!(refused.items[0].message.contains("at line 3"), "{}", refused.items[0].message);
}

#[test]
fn every_older_shape_becomes_a_standard_message() {
    for (payload, content, format) in [
        (json!({ "response": "r", "model": "m" }), json!("r"), "text"),
        (json!({ "content": "c", "metadata": { "model": "m" }, "format_type": "json" }), json!("c"), "json"),
        (json!({ "output": { "k": 1 }, "model": "m" }), json!({ "k": 1 }), "json"),
        (
            json!({ "success": true, "response_data": { "ok": true }, "model": "m" }),
            json!({ "ok": true }),
            "json",
        ),
        (json!({ "context": "past", "model": "m" }), json!("past"), "text"),
        (json!({ "functions": ["f"], "model": "m" }), json!(["f"]), "json"),
    ] {
        let seen = StandardMessage::adapt(&payload, Some("a"), None);
        assert_eq!((&seen.content, seen.format_type.as_str()), (&content, format), "{payload}");
        assert_eq!(seen.metadata["model"], "m", "{payload}");
    }
    assert_eq!(StandardMessage::adapt(&json!("hi"), None, None).content, "hi");
    assert_eq!(message::timestamp(1_738_060_200_000), "2025-01-28T10:30:00.000Z");
}

#[test]
fn prompts_are_found_in_older_fields() {
    for (input, want) in [
        (json!("plain"), "plain"),
        (json!({ "text": "t", "message": "m" }), "m"),
        (json!({ "message": "", "query": 7 }), "7"),
        (json!({ "k": true }), "{'k': True}"),
        (json!({}), ""),
    ] {
        assert_eq!(message::prompt_of(&input), want, "{input}");
    }
    assert_eq!(message::trigger_message(&json!({ "event": { "text": " hi " } })), "hi");
}

#[test]
fn an_agent_without_a_known_shape_is_understood() {
    let mut workflow = graph(&format!("{T} ai:AI_AGENT.OPENAI_CHATGPT b:ACTION.RUN_CODE"), "t>ai ai>b");
    workflow["nodes"][1]["configurations"] = json!({ "system_prompt": "You {{ $json.trigger_message }}" });
    let case = json!({
        "workflow": workflow, "specs": {}, "input": { "trigger_message": "go" },
        "stubs": { "ai": { "result": { "response": "done", "token_usage": { "total_tokens": 9 } } } },
    });
    let (natives, bench) = run(&case).unwrap();
    let seen = &natives[0]["nodes"]["ai"]["output"]["result"];
    assert_eq!((&seen["content"], &seen["source_node"]), (&json!("done"), &json!("ai")));
    assert_eq!(natives[0]["tokens_used"], 9);
    assert_eq!(bench.asked[0].1.instruction.as_deref(), Some("You go"));
    assert_eq!(
        bench.asked[0].1.context["message"],
        json!("{'trigger_time': '', 'execution_id': '', 'user_id': '', 'trigger_message': 'go'}")
    );
}

#[test]
fn tokens_that_an_agent_reports_reach_its_output() {
    let used = json!({ "input_tokens": 3, "output_tokens": 4, "turns": 1 });
    for (payload, reported, want) in [
        (json!("done"), Some(&used), used.clone()),
        (json!({ "content": "done" }), Some(&used), used.clone()),
        (json!({ "content": "done", "token_usage": { "total": 9 } }), Some(&used), json!({ "total": 9 })),
        (json!({ "content": "done", "_tokens": { "total": 8 } }), Some(&used), json!({ "total": 8 })),
        (json!("done"), None, Value::Null),
    ] {
        let reported = ReportedWork { usage: reported.cloned(), ..ReportedWork::default() };
        let output = message::agent_output(payload.clone(), &reported, "ai", String::new());
        assert_eq!(output["token_usage"], want, "{payload}");
    }
}

#[test]
fn calls_of_tools_reach_the_output_of_an_agent() {
    let calls = vec![json!({ "name": "look", "arguments": { "id": 1 }, "result": "found" })];
    for (payload, want) in [
        (json!("done"), json!(calls)),
        (json!({ "content": "done" }), json!(calls)),
        (json!({ "content": "done", "function_calls": [] }), json!([])),
    ] {
        let reported = ReportedWork { calls: calls.clone(), ..ReportedWork::default() };
        let output = message::agent_output(payload.clone(), &reported, "ai", String::new());
        assert_eq!(output["function_calls"], want, "{payload}");
    }
    let event = |kind: &str, tool: &str, value: Value| match kind {
        "tool:call" => json!({ "type": kind, "tool": tool, "input": value }),
        _ => json!({ "type": kind, "tool": tool, "output": value }),
    };
    let events = [
        event("tool:call", "look", json!({ "id": 1 })),
        event("tool:call", "look", json!({ "id": 2 })),
        event("tool:result", "look", json!("one")),
        json!({ "type": "person", "approved": true }),
        event("tool:result", "other", json!("stray")),
        event("tool:error", "look", json!("no")),
        event("tool:call", "look", json!({ "id": 3 })),
    ];
    let want = json!([
        { "name": "look", "arguments": { "id": 1 }, "result": "one" },
        { "name": "look", "arguments": { "id": 2 }, "error": "no" },
        { "name": "look", "arguments": { "id": 3 } },
    ]);
    assert_eq!(json!(super::adapter::function_calls(&events)), want);
}

#[test]
fn names_that_are_not_in_scope_stay_unknown() {
    for (source, raised) in [
        ("lambda d: {'x': print}", Some("NameError: name 'print' is not defined")),
        ("lambda d: {'x': '{}'.format(1)}", None),
        ("lambda d: {'x': 'open(1)'}", None),
        ("def f(d):\n  input = d['value']\n  return {'x': input}", None),
        ("def f(d):\n  try:\n    return d['no']\n  except:\n    return {'x': 1}", None),
    ] {
        let seen = match convert::convert(source, &json!(1)).unwrap() {
            ConversionResult::Value(_) => None,
            ConversionResult::Raised(error) => Some(error.message),
        };
        assert_eq!(seen.as_deref(), raised, "{source}");
    }
}

#[test]
fn specs_can_be_looked_at() {
    assert!(super::specs().count() > 50);
    let slack = super::describe("EXTERNAL_ACTION.SLACK").unwrap();
    assert_eq!(slack["input"]["required"], json!(["message"]));
    let types = super::typescript();
    assert!(
        types.contains(
            "export interface ExternalActionSlackInput {\n  message: string;\n  blocks?: unknown[];"
        )
    );
    assert!(types.contains("\"FLOW.IF\": {"));
}

#[test]
fn async_conversion_functions_run_to_their_end() {
    let convert = |source: &str, raw: &Value| match super::convert::convert(source, raw).unwrap() {
        super::convert::ConversionResult::Value(value) => Ok(value),
        super::convert::ConversionResult::Raised(error) => Err(error.to_string()),
    };
    let raw = json!({ "n": 3 });
    let one = "async def convert(d):\n    return {'n': d['value']['n'], 'said': 'await async def'}";
    assert_eq!(convert(one, &raw), Ok(json!({ "n": 3, "said": "await async def" })));
    let two = "async def double(n):\n    return n * 2\n\nasync def convert(d):\n    n = await double(d['value']['n'])\n    \
               return {'n': n + await double(1)}";
    // The first function is the one that is called, as with functions that do not wait.
    assert!(convert(two, &raw).is_err());
    let inner = "async def convert(d):\n    async def double(n):\n        return n * 2\n    \
                 return {'n': await double(d['value']['n']) + await double(1)}";
    assert_eq!(convert(inner, &raw), Ok(json!({ "n": 8 })));
    let waits = "async def convert(d):\n    import asyncio\n    first = asyncio.create_task(double(1))\n    \
                 await asyncio.sleep(60)\n    return {'n': await asyncio.gather(first, double(d['value']['n']))}\n\n\
                 async def double(n):\n    return n * 2\n";
    assert_eq!(convert(waits, &raw), Ok(json!({ "n": [2, 6] })));
    for unknown in [
        "async def convert(d):\n    async with d as x:\n        return x",
        "async def convert(d):\n    return await fetch('https://x.test')",
    ] {
        assert!(convert(unknown, &raw).is_err(), "{unknown}");
    }
}
