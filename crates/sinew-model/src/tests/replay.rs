//! The time of taking a long conversation up again.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fixture::{play, spec};
use crate::{ConversationState, NextStep};

/// Turns of the conversation.
const TURNS: u32 = 50;
/// Longest time for the fold of its log and the next prompt.
const MAX_REPLAY: Duration = Duration::from_millis(50);

#[test]
fn fifty_turns_are_taken_up_in_fifty_milliseconds() {
    let mut spec = spec();
    (spec.budget.turns, spec.budget.tool_calls) = (2 * TURNS, 1_000);
    spec.budget.input_tokens = u64::MAX;
    spec.compaction.at = 1.0;
    let mut answers: Vec<Value> = (0..TURNS)
        .map(|turn| json!({"call": {"look": {"id": format!("{turn}{}", "x".repeat(2_000))}}}))
        .collect();
    answers.push(json!({"text": "done"}));
    let mut log = play(&spec, &Value::Array(answers)).log;
    // The process dies before the last turn is asked for.
    let last = log.iter().rposition(|record| matches!(record.body, crate::StepBody::Ask(_))).unwrap();
    log.truncate(last);
    let took = (0..5).map(|_| {
        let begun = Instant::now();
        let state = ConversationState::fold(&log);
        let step = spec.next(&state, state.begun_at.unwrap(), &|_, _| false);
        let took = begun.elapsed();
        assert_eq!(state.totals.turns, TURNS);
        assert!(matches!(step, NextStep::AskModel(_)), "{step:?}");
        took
    });
    // The best of several: other programs may hold the processor.
    let took = took.min().unwrap();
    assert!(took <= MAX_REPLAY, "{took:?}");
}
