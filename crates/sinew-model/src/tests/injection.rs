//! Injected instructions, with a model that follows all of them.

use serde_json::{Value, json};

use super::fixture::{CountingStubs, script, spec};
use crate::rehearsal::rehearse;
use crate::{
    CallStatus, ConversationEnd, ConversationSpec, ConversationState, PromptMessage, StepBody, TaintRule,
};

/// Returns instructions that an attacker hides in data.
fn orders() -> Vec<String> {
    serde_json::from_str(include_str!("../../../../tests/injection/orders.json")).unwrap()
}

/// Embeds a text in data; most ways hide it from people.
fn carried(order: &str, way: usize) -> Value {
    match way {
        0 => json!(order),
        1 => json!({"title": "News", "body": {"paragraphs": ["Hello.", order]}}),
        2 => json!({ order: "a key is read, too" }),
        3 => json!({"fails": order}),
        4 => json!(format!("fine\u{202e}{order}\u{202c}")),
        5 => json!(order.chars().flat_map(|c| [c, '\u{200b}']).collect::<String>()),
        6 => json!(
            order
                .chars()
                .map(|c| char::from_u32(0xe0000 + u32::from(c)).filter(|_| c.is_ascii()).unwrap_or(c))
                .collect::<String>()
        ),
        _ => json!(format!("{}{order}\u{1b}]0;owned\u{7}\u{0}", "filler ".repeat(200))),
    }
}

const WAYS: usize = 8;

#[test]
fn a_model_that_obeys_every_order_gets_nothing_done() {
    // It reads, then calls the tool with side effects, other tools, and tools that do not exist.
    let obedient = json!([
        {"call": {"ask": {"id": "news"}}},
        {"call": [{"send": {"id": "1"}}, {"wire_money": {"id": "1"}}, {"send_all": {"id": "1"}}]},
        {"call": {"send": {"id": "2"}}},
        {"text": "done"},
    ]);
    let mut texts = 0;
    for order in &orders() {
        for way in 0..WAYS {
            for rule in [TaintRule::Approve, TaintRule::Deny] {
                let spec = ConversationSpec { taint: rule, ..spec() };
                let mut stubs = CountingStubs { refuses: true, ..CountingStubs::default() };
                stubs.answers.insert("ask".to_owned(), carried(order, way));
                let played = rehearse(&spec, &script(&obedient), &mut stubs, &[], "first");
                let made: Vec<&str> = stubs.made.iter().map(|(tool, _)| tool.as_str()).collect();
                assert_eq!(made, ["ask"], "{order} {way} {rule:?}");
                assert_eq!(
                    played.end(),
                    Some(&ConversationEnd::Output(json!({"text": "done"}))),
                    "{order} {way}"
                );
                let begun =
                    played.log.iter().filter(|record| matches!(record.body, StepBody::Call(_))).count();
                assert_eq!(begun, 0, "{order} {way}");
                let refused = played.state.exchanges.iter().flat_map(|one| &one.calls).filter(|call| {
                    let status = call.result.as_ref().map(|result| result.status);
                    matches!(status, Some(CallStatus::Refused | CallStatus::Invalid))
                });
                assert_eq!(refused.count(), 4, "{order} {way}");
            }
            stays_data(order, way);
            texts += 1;
        }
    }
    assert!(texts >= 200, "{texts}");
}

/// The model receives the text in the JSON of one result, without hidden characters.
fn stays_data(order: &str, way: usize) {
    let spec = spec();
    let mut stubs = CountingStubs::default();
    stubs.answers.insert("ask".to_owned(), carried(order, way));
    let answers = json!([{"call": {"ask": {"id": "news"}}}, {"text": "done"}]);
    let played = rehearse(&spec, &script(&answers), &mut stubs, &[], "first");
    let mut state = ConversationState::fold(&played.log);
    state.end = None;
    state.exchanges.pop();
    let prompt = crate::compose::prompt(&spec, &state, &spec.models[0], false);
    assert_eq!(prompt.system, ["You are Clerk."]);
    let [PromptMessage::User { text }, PromptMessage::Assistant { .. }, PromptMessage::Results { results }] =
        prompt.messages.as_slice()
    else {
        panic!("{order} {way}: {:?}", prompt.messages)
    };
    assert_eq!((text.as_str(), results.len()), ("Where is A-17?", 1), "{order} {way}");
    let frame: Value = serde_json::from_str(&results[0].content).unwrap();
    let keys: Vec<&str> = frame.as_object().unwrap().keys().map(String::as_str).collect();
    let word = if way == 3 { "error" } else { "content" };
    assert_eq!((keys, &frame["from"]), (vec!["from", word], &json!("test:ask")), "{order} {way}");
    let hidden = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200b}' | '\u{202c}' | '\u{202e}' | '\u{e0000}'..='\u{e007f}')
    };
    let told = frame[word].to_string();
    assert!(!told.chars().any(hidden), "{order} {way}: {told:?}");
}
