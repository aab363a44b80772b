use serde_json::json;
use sinew_runtime::sim::Signal;

use super::*;
use crate::tests::{Said, ran};

const MAPPED: &str = r#"
workflow:
  description: Each item
  input_schema: {type: object}
  nodes:
    - {id: all, type: map, node: each, items: "{{workflow.input.items}}", max_items: 3}
    - {id: each, type: agent, agent_name: one, input: {value: "{{_map_item}}"}}
    - {id: rest, type: agent, agent_name: one, depends_on: [all], input: {value: done}}
  output_mapping: {value: "{{all.output}}"}
"#;

const UNTIL: Time = 3_600_000;

fn described(items: usize, answer: Said, signals: &[(Time, Signal)]) -> ExecutionDescription {
    let input = json!({ "items": (0..items).collect::<Vec<_>>() });
    let record = ran("mapped.yaml", MAPPED, input, &[("one", &[answer])], signals, UNTIL);
    describe(&record, UNTIL, &MeshPresence::default())
}

#[expect(clippy::unnecessary_wraps, reason = "an answer of the table")]
fn done() -> Said {
    Some(Ok(json!({ "value": "done" })))
}

#[test]
fn items_of_maps_are_counted() {
    let counts = |described: &ExecutionDescription| {
        let nodes = described.nodes;
        (nodes.over, nodes.total, nodes.items_over, nodes.items)
    };
    assert_eq!(counts(&described(3, done(), &[])), (2, 2, 3, 3));
    let text = serde_json::to_value(described(0, done(), &[])).unwrap();
    assert_eq!(text["nodes"].get("items"), None, "{text}");
}

#[test]
fn time_in_pause_is_apart() {
    let check = |signals: &[(Time, Signal)], expected: u64| {
        let described = described(2, done(), signals);
        assert_eq!(described.paused_ms, expected, "{signals:?}");
        assert_eq!(described.active_ms() + described.paused_ms, described.duration_ms);
    };
    let pause = |at| (at, Signal::Pause("lunch".into()));
    check(&[], 0);
    check(&[pause(500), (60_500, Signal::Resume)], 60_000);
    check(&[pause(500), (700, Signal::Resume), pause(800), (1_000, Signal::Resume)], 400);
    let paused = described(2, done(), &[pause(500)]);
    assert_eq!(paused.active_ms(), 500);
}

#[test]
fn a_retry_is_recommended_where_it_can_help() {
    let check = |items: usize, answer: Said, expected: &str| {
        let described = described(items, answer, &[]);
        assert_eq!(described.status, ExecutionStatus::Failure);
        assert!(described.next[0].starts_with(expected), "{:?}", described.next);
    };
    check(2, Some(Err("no address")), "sinew execution retry");
    // The input has too many items: a retry with the same input fails again.
    check(4, done(), "sinew execution rerun");
}
