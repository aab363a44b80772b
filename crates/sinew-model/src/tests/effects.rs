//! Calls with side effects: at most once, approvals, taint.

use std::sync::Arc;

use serde_json::json;

use super::fixture::{CountingStubs, play, script, spec, told};
use crate::rehearsal::{Rehearsal, rehearse};
use crate::{
    ApprovalRule, CallResult, CallStatus, ConversationEnd, ConversationSpec, ConversationState, NextStep,
    QuestionReason, StepBody, StepRecord, TaintRule, UnknownRule,
};

fn statuses(played: &Rehearsal) -> Vec<CallStatus> {
    let calls = played.state.exchanges.iter().flat_map(|one| &one.calls);
    calls.filter_map(|call| Some(call.result.as_ref()?.status)).collect()
}

#[test]
fn an_acting_call_is_made_at_most_once_and_its_fate_is_told() {
    let answers = json!([{"call": {"send": {"id": "1"}}}, {"text": "x"}]);
    let whole = play(&spec(), &answers);
    let begun = whole.log.iter().position(|record| matches!(record.body, StepBody::Call(_))).unwrap();
    for (rule, refuses, made, end, status) in [
        (UnknownRule::Tell, false, 0, r#"{"text":"x"}"#, Some(CallStatus::Unknown)),
        (
            UnknownRule::Fail,
            false,
            0,
            "SINEW-5213 a call of send was interrupted, and may have taken effect",
            None,
        ),
        (UnknownRule::Ask, false, 1, r#"{"text":"x"}"#, Some(CallStatus::Succeeded)),
        (UnknownRule::Ask, true, 0, r#"{"text":"x"}"#, Some(CallStatus::Refused)),
    ] {
        let spec = ConversationSpec { on_unknown: rule, ..spec() };
        let mut stubs = CountingStubs { refuses, ..CountingStubs::default() };
        let again = rehearse(&spec, &script(&answers), &mut stubs, &whole.log[..=begun], "second");
        assert_eq!(told(&again), end, "{rule:?}");
        assert_eq!(stubs.made.len(), made, "{rule:?}");
        assert_eq!(statuses(&again).first().copied(), status, "{rule:?}");
    }
}

/// The current process called the tool, and the answer was lost.
#[test]
fn a_call_whose_answer_was_lost_is_not_made_again_unasked() {
    let answers = json!([{"call": {"send": {"id": "1"}}}, {"text": "x"}]);
    let whole = play(&spec(), &answers);
    let begun = whole.log.iter().position(|record| matches!(record.body, StepBody::Call(_))).unwrap();
    let StepBody::Call(position) = whole.log[begun].body.clone() else { unreachable!("it is a call") };
    let lost = CallResult { open: true, ..CallResult::new(CallStatus::Unknown, "no answer within 2 s") };
    let done = StepBody::Done { call: position.clone(), result: lost };
    for (rule, record, end) in [
        (UnknownRule::Tell, done.clone(), "ask"),
        (UnknownRule::Fail, done, "SINEW-5213 a call of send was interrupted, and may have taken effect"),
        (UnknownRule::Ask, StepBody::Question(position), "person"),
    ] {
        let spec = ConversationSpec { on_unknown: rule, ..spec() };
        let mut state = ConversationState::fold(&whole.log[..=begun]);
        assert_eq!(spec.next(&state, 1, &|_, _| false), NextStep::Wait, "{rule:?}: the call is under way");
        state.apply(&StepRecord { body: record, ..whole.log[begun].clone() });
        let next = match spec.next(&state, 1, &|_, _| false) {
            NextStep::AskModel(_) => "ask".to_owned(),
            NextStep::AskPerson(question) => {
                assert_eq!(question.reason, QuestionReason::Unknown);
                "person".to_owned()
            }
            NextStep::Record(StepBody::End(ConversationEnd::Fault(fault))) => {
                format!("{} {}", fault.code, fault.message)
            }
            other => format!("{other:?}"),
        };
        assert_eq!(next, end, "{rule:?}");
        assert_eq!(state.tainted, rule != UnknownRule::Ask, "words about a lost answer may be anybody's");
    }
}

#[test]
fn words_of_others_close_the_gate_before_acting_calls() {
    use CallStatus::{Refused, Succeeded};
    let tainting = json!([{"call": {"ask": {"id": "1"}}}, {"call": {"send": {"id": "2"}}}, {"text": "x"}]);
    let same_turn = json!([{"call": {"ask": {"id": "1"}, "send": {"id": "2"}}}, {"text": "x"}]);
    let before = json!([{"call": {"send": {"id": "2"}, "ask": {"id": "1"}}}, {"text": "x"}]);
    for (name, rule, answers, refuses, asked, expected) in [
        ("approved", TaintRule::Approve, &tainting, false, 1, [Succeeded, Succeeded]),
        ("not approved", TaintRule::Approve, &tainting, true, 1, [Succeeded, Refused]),
        ("in one turn", TaintRule::Approve, &same_turn, true, 1, [Succeeded, Refused]),
        ("before the words", TaintRule::Approve, &before, true, 0, [Succeeded, Succeeded]),
        ("denied", TaintRule::Deny, &tainting, false, 0, [Succeeded, Refused]),
        ("allowed", TaintRule::Allow, &tainting, true, 0, [Succeeded, Succeeded]),
    ] {
        let spec = ConversationSpec { taint: rule, ..spec() };
        let mut stubs = CountingStubs { refuses, ..CountingStubs::default() };
        let played = rehearse(&spec, &script(answers), &mut stubs, &[], "first");
        assert_eq!(statuses(&played), expected, "{name}");
        assert_eq!(stubs.asked, asked, "{name}");
    }
    let spec = ConversationSpec { tainted: true, taint: TaintRule::Deny, ..spec() };
    assert_eq!(statuses(&play(&spec, &json!([{"call": {"send": {"id": "2"}}}, {"text": "x"}]))), [Refused]);
}

#[test]
fn people_are_asked_by_rule_and_before_the_call() {
    for (rule, id, asked) in [
        (ApprovalRule::Never, "big", 0),
        (ApprovalRule::Always, "small", 1),
        (ApprovalRule::When("big".into()), "big", 1),
        (ApprovalRule::When("big".into()), "small", 0),
    ] {
        let mut spec = spec();
        Arc::make_mut(&mut spec.tools)[1].approval = rule.clone();
        let mut stubs = CountingStubs { refuses: true, ..CountingStubs::default() };
        let answers = json!([{"call": {"send": {"id": id}}}, {"text": "x"}]);
        let played = rehearse(&spec, &script(&answers), &mut stubs, &[], "first");
        assert_eq!((stubs.asked, stubs.made.len()), (asked, 1 - asked), "{rule:?} {id}");
        let told = played.state.exchanges[0].calls[0].result.clone().unwrap().content.to_string();
        assert_eq!(told.contains("SINEW-5211"), asked == 1, "{told}");
    }
}

#[test]
fn a_rejection_is_binding_where_the_file_says_so() {
    let answers = json!([{"call": {"send": {"id": "1"}}}, {"text": "done anyway"}]);
    for (fails, refuses, end, made) in [
        (true, true, "SINEW-6303 rehearsal rejected send", 0),
        (true, false, r#"{"text":"done anyway"}"#, 1),
        (false, true, r#"{"text":"done anyway"}"#, 0),
    ] {
        let mut spec = spec();
        let tool = &mut Arc::make_mut(&mut spec.tools)[1];
        (tool.approval, tool.rejection_fails) = (ApprovalRule::Always, fails);
        let mut stubs = CountingStubs { refuses, ..CountingStubs::default() };
        let played = rehearse(&spec, &script(&answers), &mut stubs, &[], "first");
        assert!(told(&played).starts_with(end), "{}", told(&played));
        assert_eq!(stubs.made.len(), made, "{fails} {refuses}");
        // A process that continues after the decision ends in the same way.
        let decided = played.log.iter().position(|record| matches!(record.body, StepBody::Decision { .. }));
        let mut stubs = CountingStubs::default();
        let again =
            rehearse(&spec, &script(&answers), &mut stubs, &played.log[..=decided.unwrap()], "second");
        assert_eq!(told(&again), told(&played));
    }
}

#[test]
fn a_question_of_the_model_returns_the_decision_as_data() {
    let answers = json!([{"call": {"ask": {"id": "1"}}}, {"text": "x"}]);
    let said = |fails: bool, refuses: bool| {
        let mut spec = spec();
        let tool = &mut Arc::make_mut(&mut spec.tools)[2];
        (tool.source, tool.rejection_fails) = (crate::spec::PERSON_SOURCE.to_owned(), fails);
        let mut stubs = CountingStubs::default();
        if refuses {
            stubs.answers.insert("ask".to_owned(), json!({"fails": "too much"}));
        }
        let played = rehearse(&spec, &script(&answers), &mut stubs, &[], "first");
        let result = played.state.exchanges[0].calls[0].result.clone();
        (told(&played), result.map(|result| result.content.to_string()).unwrap_or_default())
    };
    let (end, content) = said(true, false);
    assert!(
        end == r#"{"text":"x"}"# && content.contains("approved") && content.contains("rehearsal"),
        "{content}"
    );
    assert!(said(true, true).0.starts_with("SINEW-6303 rehearsal rejected ask"), "{:?}", said(true, true));
    let (end, content) = said(false, true);
    assert!(end == r#"{"text":"x"}"# && content.contains("rehearsal rejected"), "{content}");
}

#[test]
fn limits_of_tools_hold() {
    let mut spec = spec();
    Arc::make_mut(&mut spec.tools)[0].limit = Some(1);
    let answers = json!([{"call": [{"look": {"id": "1"}}]}, {"call": {"look": {"id": "2"}}}, {"text": "x"}]);
    assert_eq!(statuses(&play(&spec, &answers)), [CallStatus::Succeeded, CallStatus::Refused]);
}
