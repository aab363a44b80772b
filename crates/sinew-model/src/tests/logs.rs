//! Any log folds, and no fold violates an invariant.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::fixture::{CountingStubs, spec};
use crate::rehearsal::{crash_everywhere, rehearse};
use crate::script::ModelScript;
use crate::{
    CallPosition, CallResult, CallStatus, ConversationSpec, ConversationState, EffectClass, ModelTurn,
    NextStep, PromptMessage, RequestedCall, StartStep, StepBody, StepRecord,
};

/// Checks that the next prompt has one result for each call, in order, directly after the calls.
pub(super) fn check_prompt(spec: &ConversationSpec, log: &[StepRecord]) {
    let state = ConversationState::fold(log);
    let NextStep::AskModel(ask) = spec.next(&state, state.begun_at.unwrap_or(0), &|_, _| false) else {
        return;
    };
    let messages = &ask.prompt.messages;
    for (at, message) in messages.iter().enumerate() {
        match message {
            PromptMessage::Assistant { calls, .. } if !calls.is_empty() => {
                let Some(PromptMessage::Results { results }) = messages.get(at + 1) else {
                    panic!("calls without results: {messages:?}");
                };
                let (asked, answered): (Vec<_>, Vec<_>) = (
                    calls.iter().map(|call| &call.id).collect(),
                    results.iter().map(|result| &result.id).collect(),
                );
                assert_eq!(asked, answered, "{messages:?}");
            }
            PromptMessage::Results { .. } => {
                let before = at.checked_sub(1).map(|at| &messages[at]);
                assert!(matches!(before, Some(PromptMessage::Assistant { .. })), "{messages:?}");
            }
            _ => {}
        }
    }
}

fn turn_strategy() -> impl Strategy<Value = ModelTurn> {
    let call = (0..5_u32, "[a-c]{0,2}").prop_map(|(which, id)| {
        let tool = ["look", "send", "ask", "nope", "answer"][which as usize];
        let arguments = if id == "c" { "{bad".to_owned() } else { json!({"id": id}).to_string() };
        (tool.to_owned(), arguments)
    });
    (proptest::collection::vec(call, 0..4), "[ a-z{}]{0,8}").prop_map(|(calls, text)| ModelTurn {
        calls: calls
            .into_iter()
            .enumerate()
            .map(|(nth, (tool, arguments))| RequestedCall {
                id: format!("call_{nth}"),
                tool,
                arguments,
                through: None,
            })
            .collect(),
        text,
        ..ModelTurn::default()
    })
}

fn body_strategy() -> impl Strategy<Value = StepBody> {
    let position =
        || (0..4_u32, 0..4_u32).prop_map(|(turn, index)| CallPosition { turn, index, key: String::new() });
    let begin = (1..3_u32, prop::bool::weighted(0.2)).prop_map(|(attempt, reset)| {
        let (task, request, agent) = (String::new(), String::new(), String::new());
        StepBody::Begin(StartStep { attempt, task, request, agent, reset, delivery: 0, session: Vec::new() })
    });
    let done = (position(), 0..5_usize, any::<bool>()).prop_map(|(call, status, open)| {
        use CallStatus::{Failed, Invalid, Refused, Succeeded, Unknown};
        let status = [Succeeded, Failed, Invalid, Refused, Unknown][status];
        StepBody::Done { call, result: CallResult { open, ..CallResult::new(status, "x") } }
    });
    prop_oneof![
        2 => begin,
        4 => (0..4_u32, turn_strategy()).prop_map(|(turn, answer)| StepBody::Turn {
            turn, alias: "main".to_owned(), answer: Box::new(answer), cost: None,
        }),
        2 => position().prop_map(StepBody::Call),
        4 => done,
        1 => position().prop_map(StepBody::Question),
        1 => (position(), any::<bool>()).prop_map(|(call, approved)| StepBody::Decision {
            call, approved, by_person: String::new(), comment: None,
        }),
        1 => (0..4_u32).prop_map(|before| StepBody::Compact(crate::CompactStep {
            before, summary: (before == 2).then(|| "s".to_owned()), usage: crate::TokenUsage::default(), cost: None,
            moved: vec![crate::MovedResult { turn: before / 2, index: before % 2, artifact: "r.json:v0".to_owned() }],
        })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_log_folds_and_no_answered_call_is_made(
        bodies in proptest::collection::vec((body_strategy(), "[ab]"), 0..30),
    ) {
        let spec = spec();
        let log: Vec<StepRecord> = bodies
            .into_iter()
            .enumerate()
            .map(|(at, (body, by))| StepRecord { by, at: at as u64, within: None, body })
            .collect();
        for end in 0..=log.len() {
            let state = ConversationState::fold(&log[..end]);
            check_prompt(&spec, &log[..end]);
            let NextStep::RunCalls(calls) = spec.next(&state, end as u64, &|_, _| false) else { continue };
            prop_assert!(!calls.is_empty());
            for call in &calls {
                let exchange = state.exchanges.last().unwrap();
                let known = &exchange.calls[call.position.index as usize];
                prop_assert!(known.result.is_none());
                prop_assert!(spec.tool(&call.tool).is_some() && call.arguments.is_object());
                if call.effect == EffectClass::Once {
                    prop_assert!(known.begun_in.is_none() && calls.len() == 1);
                }
            }
        }
        // Serialisation round-trips.
        let text = serde_json::to_string(&log).unwrap();
        prop_assert_eq!(serde_json::from_str::<Vec<StepRecord>>(&text).unwrap(), log);
    }

    #[test]
    fn conversations_go_on_from_every_prefix_with_the_same_end(
        turns in proptest::collection::vec(turn_strategy(), 0..6),
    ) {
        let mut answers: Vec<serde_json::Value> = turns
            .iter()
            .map(|turn| match turn.calls.as_slice() {
                [] => json!({"text": turn.text}),
                calls => {
                    let calls: Vec<_> = calls.iter().map(|call| json!({&call.tool: &call.arguments})).collect();
                    json!({"call": calls})
                }
            })
            .collect();
        answers.push(json!({"text": "the end"}));
        let spec = ConversationSpec { taint: crate::TaintRule::Allow, ..spec() };
        let script = ModelScript::read(&answers).unwrap();
        let whole = rehearse(&spec, &script, &mut CountingStubs::default(), &[], "first");
        prop_assert!(whole.end().is_some());
        prop_assert_eq!(crash_everywhere(&spec, &script, CountingStubs::default, &whole), None);
        let mut keys: BTreeMap<&str, u32> = BTreeMap::new();
        for record in &whole.log {
            if let StepBody::Done { call, .. } = &record.body {
                *keys.entry(&call.key).or_default() += 1;
            }
        }
        prop_assert!(keys.values().all(|count| *count == 1));
    }
}
