//! Resuming a long conversation.

use std::time::Instant;

use serde_json::{Value, json};

use super::fixture::{play, spec};
use crate::{ConversationState, NextStep};

/// Turns of the conversation.
const TURNS: u32 = 50;

#[test]
fn fifty_turns_are_taken_up_where_their_log_ends() {
    let mut spec = spec();
    (spec.budget.turns, spec.budget.tool_calls) = (2 * TURNS, 1_000);
    spec.budget.input_tokens = u64::MAX;
    spec.compaction.at = 1.0;
    let mut answers: Vec<Value> = (0..TURNS)
        .map(|turn| json!({"call": {"look": {"id": format!("{turn}{}", "x".repeat(2_000))}}}))
        .collect();
    answers.push(json!({"text": "done"}));
    let mut log = play(&spec, &Value::Array(answers)).log;
    // The process crashes before it requests the last turn.
    let last = log.iter().rposition(|record| matches!(record.body, crate::StepBody::Ask(_))).unwrap();
    log.truncate(last);
    let begun = Instant::now();
    let state = ConversationState::fold(&log);
    let step = spec.next(&state, state.begun_at.unwrap(), &|_, _| false);
    // Reported only, not asserted: other programs may use the processor.
    println!("the fold of {TURNS} turns and the next prompt took {:?}", begun.elapsed());
    assert_eq!(state.totals.turns, TURNS);
    assert!(matches!(step, NextStep::AskModel(_)), "{step:?}");
}
