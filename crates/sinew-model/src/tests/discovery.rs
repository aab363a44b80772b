//! Tools that a conversation finds and calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::fixture::{CountingStubs, script, spec, told, tool};
use crate::rehearsal::{Rehearsal, crash_everywhere, rehearse};
use crate::{
    ApprovalRule, CALL_TOOL, CALL_TOOL_SOURCE, CallStatus, ConversationSpec, DiscoveredTool, EffectClass,
    FIND_TOOLS, NextStep, PromptMessage, StepBody, TaintRule, ToolSpec,
};

/// A conversation that can search. Rule 0 admits `refund` with effect `repeat`, rule 1 `pay` with
/// effect `once`.
fn searching() -> ConversationSpec {
    let mut spec = spec();
    let object = json!({"type": "object", "properties": {}});
    let mut find =
        ToolSpec { source: "discover:find".to_owned(), ..tool(FIND_TOOLS, EffectClass::Read, true) };
    find.declaration.parameters = object.clone();
    find.parameters = None;
    let mut call = ToolSpec { parameters: None, ..find.clone() };
    CALL_TOOL.clone_into(&mut call.declaration.name);
    CALL_TOOL_SOURCE.clone_into(&mut call.source);
    Arc::make_mut(&mut spec.tools).extend([find, call]);
    spec.discover_rules =
        Arc::new(vec![tool("", EffectClass::Repeat, true), tool("", EffectClass::Once, true)]);
    spec
}

fn found(name: &str, rule: u32) -> DiscoveredTool {
    DiscoveredTool::new(name, rule, tool(name, EffectClass::Read, true).declaration)
}

fn stubs(refuses: bool) -> CountingStubs {
    let discovered = BTreeMap::from([(FIND_TOOLS.to_owned(), vec![found("refund", 0), found("pay", 1)])]);
    CountingStubs { discovered, refuses, ..CountingStubs::default() }
}

fn find() -> Value {
    json!({"call": {FIND_TOOLS: {"query": "money back"}}})
}

fn call(tool: &str, id: &str) -> Value {
    json!({"call": {CALL_TOOL: {"tool": tool, "arguments": {"id": id}}}})
}

fn play(spec: &ConversationSpec, answers: &Value, stubs: &mut CountingStubs) -> Rehearsal {
    rehearse(spec, &script(answers), stubs, &[], "first")
}

fn made(stubs: &CountingStubs) -> Vec<&str> {
    stubs.made.iter().map(|(tool, _)| tool.as_str()).collect()
}

#[test]
fn found_tools_are_called_and_survive_a_crash_at_every_record() {
    let spec = searching();
    let by_text = json!({"call": {CALL_TOOL: {"tool": "refund", "arguments": "{\"id\":\"1\"}"}}});
    for (name, second) in [
        ("through call_tool", call("refund", "1")),
        ("by name", json!({"call": {"refund": {"id": "1"}}})),
        ("with arguments as text", by_text),
    ] {
        let answers = json!([find(), second, {"text": "done"}]);
        let mut counted = stubs(false);
        let played = play(&spec, &answers, &mut counted);
        assert_eq!(told(&played), r#"{"text":"done"}"#, "{name}");
        assert_eq!(made(&counted), [FIND_TOOLS, "refund"], "{name}");
        assert_eq!(played.calls(), [FIND_TOOLS, "refund"], "{name}");
        assert_eq!(crash_everywhere(&spec, &script(&answers), || stubs(false), &played), None, "{name}");
    }
}

#[test]
fn only_found_tools_can_be_called() {
    let spec = searching();
    for (name, answers, reason) in [
        ("before the search", json!([call("refund", "1"), {"text": "x"}]), "There is no tool 'refund'"),
        (
            "not found",
            json!([find(), call("delete", "1"), {"text": "x"}]),
            "Search for others with find_tools",
        ),
        ("after the search", json!([find(), call("refund", "1"), {"text": "x"}]), ""),
        (
            "arguments that do not fit",
            json!([find(), {"call": {CALL_TOOL: {"tool": "refund", "arguments": {"order": 1}}}}, {"text": "x"}]),
            "The arguments do not fit",
        ),
    ] {
        let mut counted = stubs(false);
        let played = play(&spec, &answers, &mut counted);
        let results = played.state.exchanges.iter().flat_map(|exchange| &exchange.calls);
        let last = results.filter_map(|call| call.result.as_ref()).next_back().unwrap();
        let expected = if reason.is_empty() { CallStatus::Succeeded } else { CallStatus::Invalid };
        assert_eq!(last.status, expected, "{name}");
        assert!(last.content.to_string().contains(reason), "{name}: {}", last.content);
    }
}

#[test]
fn the_rule_of_a_found_tool_applies_however_it_is_called() {
    for (name, taint, approval, tool, refuses, asked, expected) in [
        ("a search taints", TaintRule::Approve, ApprovalRule::Never, "pay", true, 1, CallStatus::Refused),
        ("denied", TaintRule::Deny, ApprovalRule::Never, "pay", false, 0, CallStatus::Refused),
        ("approved", TaintRule::Approve, ApprovalRule::Never, "pay", false, 1, CallStatus::Succeeded),
        ("by rule", TaintRule::Allow, ApprovalRule::Always, "pay", true, 1, CallStatus::Refused),
        (
            "by condition",
            TaintRule::Allow,
            ApprovalRule::When("1".into()),
            "pay",
            true,
            1,
            CallStatus::Refused,
        ),
        ("other rule", TaintRule::Deny, ApprovalRule::Always, "refund", true, 0, CallStatus::Succeeded),
    ] {
        for direct in [false, true] {
            let mut spec = ConversationSpec { taint, ..searching() };
            Arc::make_mut(&mut spec.discover_rules)[1].approval = approval.clone();
            let second = if direct { json!({"call": {tool: {"id": "1"}}}) } else { call(tool, "1") };
            let mut counted = stubs(refuses);
            let played = play(&spec, &json!([find(), second, {"text": "x"}]), &mut counted);
            let result = played.state.exchanges[1].calls[0].result.clone().unwrap();
            assert_eq!((counted.asked, result.status), (asked, expected), "{name}, direct: {direct}");
        }
    }
}

#[test]
fn limits_count_a_found_tool_by_its_own_name() {
    let mut spec = searching();
    Arc::make_mut(&mut spec.discover_rules)[0].limit = Some(1);
    let answers = json!([
        find(),
        call("refund", "1"),
        {"call": {"refund": {"id": "2"}}},
        {"call": {"look": {"id": "3"}}},
        {"text": "x"},
    ]);
    let mut counted = stubs(false);
    let played = play(&spec, &answers, &mut counted);
    assert_eq!(made(&counted), [FIND_TOOLS, "refund", "look"]);
    let refused = played.state.exchanges[2].calls[0].result.clone().unwrap();
    assert_eq!(refused.status, CallStatus::Refused);
}

#[test]
fn prompts_have_a_constant_list_of_tools_and_show_calls_as_the_model_made_them() {
    let mut spec = searching();
    spec.models.push(super::fixture::model("other"));
    let answers = json!([find(), call("refund", "1"), {"text": "x"}]);
    let mut played = play(&spec, &answers, &mut stubs(false));
    let last = played.log.iter().rposition(|record| matches!(record.body, StepBody::Ask(_))).unwrap();
    played.log.truncate(last);
    let state = crate::ConversationState::fold(&played.log);
    let NextStep::AskModel(ask) = spec.next(&state, played.now, &|_, _| false) else { panic!("no ask") };
    let names: Vec<&str> = ask.prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["look", "send", "ask", FIND_TOOLS, CALL_TOOL]);
    let mut calls = Vec::new();
    for message in &ask.prompt.messages {
        match message {
            PromptMessage::Assistant { calls: made, .. } => {
                calls.extend(made.iter().map(|call| (call.tool.clone(), call.arguments.clone())));
            }
            PromptMessage::Results { results } => {
                calls.extend(results.iter().map(|result| (result.tool.clone(), String::new())));
            }
            PromptMessage::User { .. } => {}
        }
    }
    let wrapped = json!({"tool": "refund", "arguments": {"id": "1"}}).to_string();
    let [_, _, (tool, arguments), (of_result, _)] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((tool.as_str(), arguments), (CALL_TOOL, &wrapped));
    assert_eq!(of_result, CALL_TOOL);
}

#[test]
fn at_most_64_found_tools_stay_callable_and_a_reset_forgets_them() {
    let spec = searching();
    let many: Vec<DiscoveredTool> = (0..70).map(|nth| found(&format!("t{nth}"), 0)).collect();
    let mut counted = stubs(false);
    counted.discovered.insert(FIND_TOOLS.to_owned(), many);
    let played = play(&spec, &json!([find(), {"text": "x"}]), &mut counted);
    let names: Vec<&str> =
        played.state.discovered.iter().map(|tool| tool.declaration.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[63]), (64, "t6", "t69"));
    let mut begin = played.log[0].clone();
    if let StepBody::Begin(start) = &mut begin.body {
        start.reset = true;
    }
    let mut state = played.state;
    state.apply(&begin);
    assert!(state.discovered.is_empty());
}
