//! Budgets, the loop guard, and compaction.

use serde_json::{Value, json};

use super::fixture::{CountingStubs, play, script, spec, told};
use crate::rehearsal::rehearse;
use crate::{BudgetSpec, ConversationState, ModelTurn, PromptMessage, StepBody, TokenPrice, TokenUsage};

/// Answers of a model that keeps calling with new arguments.
fn restless(turns: usize) -> Value {
    (0..turns).map(|nth| json!({"call": {"look": {"id": nth.to_string()}}})).collect()
}

#[test]
fn every_budget_ends_the_conversation() {
    let of = |budget: BudgetSpec| {
        let mut spec = spec();
        spec.models[0].price = Some(TokenPrice { input: 1.0, output: 10.0, cached: None });
        spec.budget = budget;
        spec
    };
    let usual = || BudgetSpec { last_word: false, ..BudgetSpec::default() };
    for (budget, expected) in [
        (BudgetSpec { turns: 3, ..usual() }, "'turns' of the conversation is exhausted: 3 of 3"),
        (BudgetSpec { tool_calls: 2, ..usual() }, "'tool_calls' of the conversation is exhausted: 2 of 2"),
        (BudgetSpec { input_tokens: 300, ..usual() }, "'input_tokens' of the conversation is exhausted: "),
        (BudgetSpec { output_tokens: 20, ..usual() }, "'output_tokens' of the conversation is exhausted: "),
        (BudgetSpec { cost_usd: Some(0.001), ..usual() }, "'cost_usd' of the conversation is exhausted: "),
        (BudgetSpec { wall_ms: 40, ..usual() }, "'wall' of the conversation is exhausted: 0 s of 0 s"),
    ] {
        let played = play(&of(budget), &restless(40));
        let end = told(&played);
        assert!(end.starts_with("SINEW-5208 the budget ") && end.contains(expected), "{expected}: {end}");
    }
}

#[test]
fn tokens_that_no_provider_counted_are_estimated() {
    let words = || ModelTurn { text: "x".repeat(35), ..ModelTurn::default() };
    let verbatim = || ModelTurn { verbatim: json!({"content": "x".repeat(21)}), ..ModelTurn::default() };
    for (answer, told, per_byte, expected) in [
        (words(), (0, 0), None, (200, 10, true)),
        (words(), (7, 0), None, (7, 10, true)),
        (words(), (0, 3), None, (200, 3, true)),
        (words(), (7, 3), None, (7, 3, false)),
        (words(), (0, 0), Some(0.1), (70, 3, true)),
        (verbatim(), (7, 0), None, (7, 10, true)),
        (ModelTurn::default(), (7, 0), None, (7, 1, true)),
    ] {
        let mut state = ConversationState::default();
        state.tokens_per_byte = per_byte;
        let usage = TokenUsage { input: told.0, output: told.1, ..TokenUsage::default() };
        let mut answer = ModelTurn { usage, ..answer };
        state.estimate_usage(700, &mut answer);
        let TokenUsage { input, output, estimated, .. } = answer.usage;
        assert_eq!((input, output, estimated), expected, "{told:?}");
    }
}

#[test]
fn the_last_turn_has_no_tools_and_asks_for_the_answer() {
    for (budget, calls) in [
        (BudgetSpec { turns: 3, ..BudgetSpec::default() }, 2),
        (BudgetSpec { tool_calls: 2, ..BudgetSpec::default() }, 2),
    ] {
        let mut spec = spec();
        spec.budget = budget;
        let mut answers = restless(2).as_array().unwrap().clone();
        answers.push(json!({"text": "as far as I know"}));
        let played = play(&spec, &answers.into());
        assert_eq!(told(&played), r#"{"text":"as far as I know"}"#);
        assert_eq!(played.calls().len(), calls);
    }
}

#[test]
fn lost_model_calls_count_as_turns() {
    let mut spec = spec();
    spec.budget.turns = 4;
    let mut log = Vec::new();
    for nth in 0..5 {
        // Each process crashes after it started a model call.
        let played =
            rehearse(&spec, &script(&json!([{"text": "x"}])), &mut CountingStubs::default(), &log, "p");
        if nth < 4 {
            let ask = played.log.iter().rposition(|record| matches!(record.body, StepBody::Ask(_))).unwrap();
            log = played.log[..=ask].to_vec();
        } else {
            assert_eq!(
                told(&played),
                "SINEW-5208 the budget 'turns' of the conversation is exhausted: 4 of 4"
            );
            assert_eq!((played.state.totals.lost_asks, played.state.idle_begins), (4, 0));
        }
    }
}

#[test]
fn equal_calls_with_equal_results_are_refused_and_then_end_it() {
    let same: Value = (0..20).map(|_| json!({"call": {"look": {"id": "1"}}})).collect();
    let mut stubs = CountingStubs::default();
    stubs.answers.insert("look".to_owned(), json!("moving"));
    let played = rehearse(&spec(), &script(&same), &mut stubs, &[], "first");
    assert_eq!(told(&played), "SINEW-5207 the model called look 6 times with the same arguments");
    assert_eq!(stubs.made.len(), 3);
    // A result that changes is progress.
    let polled = play(&spec(), &same);
    assert_eq!(polled.calls().len(), 19, "{}", told(&polled));
}

#[test]
fn a_long_conversation_loses_results_first_and_then_becomes_a_summary() {
    let mut spec = spec();
    spec.models[0].context = 3_000;
    spec.budget.turns = 40;
    let mut stubs = CountingStubs::default();
    stubs.answers.insert("look".to_owned(), json!("long ".repeat(300)));
    let calls =
        |from: usize, to: usize| (from..to).map(|nth| json!({"call": {"look": {"id": nth.to_string()}}}));
    let answers: Value = calls(0, 9)
        .chain([json!({"text": "SUMMARY ONE", "usage": {"input": 10, "output": 5}})])
        .chain(calls(9, 12))
        .chain((0..10).map(|_| json!({"text": "the end"})))
        .collect();
    let played = rehearse(&spec, &script(&answers), &mut stubs, &[], "first");
    assert!(played.state.results_before > 0, "{}", told(&played));
    assert!(
        played.log.iter().any(|record| matches!(&record.body, StepBody::Compact(c) if c.summary.is_none()))
    );
    assert!(matches!(played.end(), Some(crate::ConversationEnd::Output(_))), "{}", told(&played));
    // Only whole turns: prompts have no result without its call, and no call without its result.
    for at in 1..played.log.len() {
        super::logs::check_prompt(&spec, &played.log[..at]);
    }
}

#[test]
fn a_prompt_that_the_provider_finds_too_long_is_shortened_once() {
    let long = json!({"error": {"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "too long"}}}});
    let mut answers: Vec<Value> = restless(3).as_array().unwrap().clone();
    answers.push(long.clone());
    answers.push(json!({"text": "short"}));
    let mut stubs = CountingStubs::default();
    stubs.answers.insert("look".to_owned(), json!("long ".repeat(60)));
    let played = rehearse(&spec(), &script(&answers.clone().into()), &mut stubs, &[], "first");
    assert_eq!(told(&played), r#"{"text":"short"}"#);
    let prompt = crate::compose::prompt(
        &spec(),
        &crate::ConversationState::fold(&played.log[..played.log.len() - 3]),
        &spec().models[0],
        false,
    );
    let left_out = prompt.messages.iter().filter(|message| match message {
        PromptMessage::Results { results } => {
            results.iter().any(|result| result.content.contains("left out"))
        }
        _ => false,
    });
    assert_eq!(left_out.count(), 2);
    answers.insert(4, long);
    assert_eq!(told(&play(&spec(), &answers.into())), "SINEW-5203 the provider answered 400: too long");
}

/// An answer of a provider that refuses a request.
fn refusing(status: u16, error: &Value) -> Value {
    json!({"error": {"status": status, "body": {"error": error}}})
}

#[test]
fn an_unknown_refusal_of_a_prompt_that_has_grown_leads_to_one_compaction() {
    let mut stubs = CountingStubs::default();
    stubs.answers.insert("look".to_owned(), json!("long ".repeat(60)));
    let unknown = refusing(400, &json!({"message": "das ist zu viel"}));
    let denied = refusing(400, &json!({"message": "no such setting", "code": "unsupported_parameter"}));
    let answer = json!({"text": "short"});
    for (turns, refusals, expected) in [
        (3, vec![&unknown], r#"{"text":"short"}"#),
        (3, vec![&unknown, &unknown], "SINEW-5202 the provider answered 400: das ist zu viel"),
        // The first prompt and one with only one result cannot be shortened.
        (0, vec![&unknown], "SINEW-5202 the provider answered 400: das ist zu viel"),
        (1, vec![&unknown], "SINEW-5202 the provider answered 400: das ist zu viel"),
        (3, vec![&denied], "SINEW-5202 the provider answered 400: no such setting"),
    ] {
        let mut answers: Vec<Value> = restless(turns).as_array().unwrap().clone();
        answers.extend(refusals.iter().map(|refusal| (*refusal).clone()));
        answers.push(answer.clone());
        let played = rehearse(&spec(), &script(&answers.into()), &mut stubs, &[], "first");
        assert_eq!(told(&played), expected, "{turns} {refusals:?}");
        let is_compaction = |body: &StepBody| matches!(body, StepBody::Compact(_));
        let compactions = played.log.iter().filter(|record| is_compaction(&record.body)).count();
        assert_eq!(compactions, usize::from(turns > 1 && refusals[0] == &unknown), "{turns} {refusals:?}");
    }
}

#[test]
fn an_exhausted_quota_leads_to_the_next_model_without_a_retry() {
    let answer = json!({"text": "from the next"});
    for (refusal, code) in [
        (refusing(402, &json!({"message": "no credit"})), "SINEW-5202"),
        (refusing(429, &json!({"message": "x", "code": "insufficient_quota"})), "SINEW-5202"),
        (refusing(400, &json!({"message": "Your credit balance is too low"})), "SINEW-5202"),
    ] {
        let mut both = spec();
        both.models.push(super::fixture::model("next"));
        let played = play(&both, &json!([refusal, answer]));
        assert_eq!(told(&played), r#"{"text":"from the next"}"#);
        assert_eq!((played.state.totals.misses, played.state.exchanges[0].alias.as_str()), (1, "next"));
        let alone = told(&play(&spec(), &json!([refusal, answer])));
        assert!(alone.starts_with(code) && !alone.ends_with("(again)"), "{alone}");
        both.fallback.limited = false;
        assert!(told(&play(&both, &json!([refusal, answer]))).starts_with(code));
    }
}
