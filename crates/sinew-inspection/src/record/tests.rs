//! Records: written, read back, redacted.

use serde_json::json;
use sinew_engine::TerminalStatus;

use super::*;
use crate::tests::ran;

const GREET: &str = include_str!("../../../sinew/tests/fixtures/run/greet.yaml");

fn greeted() -> Record {
    let agents: &[(&str, &[_])] = &[
        ("Greeter", &[Some(Ok(json!({"greeting": "a secret greeting", "n": 424_242})))]),
        ("Counter", &[Some(Ok(json!({"count": 424_242})))]),
    ];
    let mut record = ran("greet.yaml", GREET, json!({"names": ["secret Ada", "Bo"]}), agents, &[], 3_600_000);
    record.about.caller = "cli".into();
    record.about.labels.insert("team".into(), "secret team".into());
    record
}

#[test]
fn what_is_written_reads_back() {
    let record = greeted();
    let back = parse(record.to_json().to_string().as_bytes()).unwrap();
    assert_eq!(back.to_json(), record.to_json());
    assert_eq!(back.execution.state(), record.execution.state());
}

#[test]
fn errors_name_the_member_and_no_place_within_it() {
    let check = |text: &str, expected: &str| {
        assert_eq!(parse(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
    };
    check(r#"{"plan": {}}"#, "missing field 'format'");
    check(r#"{"format": 7}"#, "unsupported format 7; this version reads 1");
    check(r#"{"format": 1, "plan": {}}"#, "plan: missing field `format`");
}

#[test]
fn nothing_of_a_value_is_left_in_a_redacted_record() {
    let record = redact(&greeted());
    let text = record.to_json().to_string();
    assert!(!text.contains("secret") && !text.contains("424242"), "{text}");
    let back = parse(text.as_bytes()).unwrap();
    assert!(back.redacted);
    let outcome = back.execution.state().outcome.as_ref().unwrap();
    assert_eq!(outcome.status, TerminalStatus::Success);
    assert_eq!(
        outcome.output.as_deref(),
        Some(&json!({"greetings": [
        {"greeting": "[redacted]", "n": 0}, {"greeting": "[redacted]", "n": 0}
    ], "count": 0}))
    );
}
