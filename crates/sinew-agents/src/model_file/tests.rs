use serde_json::json;

use super::*;

#[test]
fn left_out_keys_have_the_values_of_the_manual() {
    let file: ModelFile = serde_json::from_value(json!({"use": ["main"]})).unwrap();
    let BudgetEntry { turns, tool_calls, parallel, input_tokens, output_tokens, .. } = file.budget;
    assert_eq!((turns, tool_calls, parallel), (20, 50, 4));
    assert_eq!((input_tokens, output_tokens, file.budget.cost_usd), (500_000, 50_000, None));
    let BudgetEntry { wall, waiting, repeats, last_word, .. } = file.budget;
    assert_eq!((wall.0, waiting.0), (Duration::from_mins(10), Duration::from_hours(24)));
    assert_eq!((repeats, last_word), (3, true));
    assert_eq!(file.fallback_on, [FallbackClass::Unavailable, FallbackClass::Limited]);
    assert_eq!((file.output.mode, file.output.repairs), (OutputModeName::Auto, 2));
    assert_eq!((file.compact.at, file.compact.keep_turns, file.compact.model), (0.7, 4, None));
    assert_eq!((file.taint, file.on_unknown), (TaintEntry::Approve, UnknownEntry::Tell));
    assert_eq!(file.log.keep.0, Duration::from_hours(7 * 24));
    assert!(file.session.is_none() && file.tools.is_empty() && file.skills.is_empty());
    let session: SessionEntry = serde_json::from_value(json!({})).unwrap();
    assert_eq!((session.keep.0, session.turns), (Duration::from_hours(30 * 24), 20));
    let model: ModelEntry = serde_json::from_value(json!({"provider": "openai"})).unwrap();
    let ModelTimeouts { first, idle, total } = model.timeout;
    assert_eq!([first.0, idle.0, total.0].map(|time| time.as_secs()), [60, 30, 300]);
    assert_eq!((model.retry.limit, model.allow_private), (2, false));
}
