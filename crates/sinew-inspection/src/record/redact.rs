//! A record without user data: facts, times and order are kept, values are removed.

use serde_json::Value;
use sinew_engine::Round;
use sinew_execution::Execution;

use super::Record;

/// Replacement for texts.
const GONE: &str = "[redacted]";

/// Removes all values, questions, comments and messages; keeps names of nodes and agents.
///
/// The plan is kept, because facts are checked against its digest.
pub fn redact(record: &Record) -> Record {
    let rounds: Vec<Round> = record.execution.journal().iter().filter_map(round).collect();
    let (id, program) = (record.execution.id().clone(), record.execution.program().clone());
    let mut commands = record.commands.clone();
    for command in &mut commands {
        if !command.reason.is_empty() {
            GONE.clone_into(&mut command.reason);
        }
    }
    let mut about = record.about.clone();
    about.labels.values_mut().for_each(|value| GONE.clone_into(value));
    let execution = Execution::recover(id, program, &rounds);
    Record { source: record.source.clone(), about, execution, commands, redacted: true }
}

/// Redacts a round. Values keep their shape, so that the round can be decoded.
fn round(round: &Round) -> Option<Round> {
    let facts: Vec<Value> =
        round.facts.iter().map(|fact| serde_json::to_value(fact).unwrap_or_default()).collect();
    let facts = facts.into_iter().map(|mut fact| {
        scrub_fact(&mut fact);
        serde_json::from_value(fact)
    });
    let facts = facts.collect::<Result<Vec<_>, _>>().ok()?;
    Some(Round { at: round.at, facts })
}

/// Members of facts that contain user data.
const VALUES: [&str; 16] = [
    "artifacts",
    "comment",
    "context",
    "data",
    "details",
    "events",
    "given",
    "input",
    "instruction",
    "item",
    "message",
    "note",
    "output",
    "prompt",
    "reason",
    "usage",
];

fn members(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                match key.as_str() {
                    key if VALUES.contains(&key) => scrub(value),
                    // The value of a token is a keyword or `{"given": …}`; anything else is user
                    // data.
                    "value" => match value {
                        Value::Object(token) if token.len() == 1 && token.contains_key("given") => {
                            token.values_mut().for_each(scrub);
                        }
                        Value::String(word) if matches!(word.as_str(), "dead" | "failed" | "port") => {}
                        value => scrub(value),
                    },
                    _ => members(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(members),
        _ => {}
    }
}

/// Outputs of nodes are `{"value": …, "ports": [[name, value], …]}`; names of ports come from the plan.
fn scrub_fact(fact: &mut Value) {
    let ended = matches!(fact["fact"].as_str(), Some("completed" | "skipped" | "failed"));
    let output = fact.get_mut("output").filter(|_| ended).map(Value::take);
    members(fact);
    if let Some(mut output) = output {
        output.get_mut("value").into_iter().for_each(scrub);
        for port in output.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.get_mut(1).into_iter().for_each(scrub);
        }
        fact["output"] = output;
    }
}

/// Replaces texts and numbers; keeps lengths, keys and types.
fn scrub(value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(_) => *value = 0.into(),
        Value::String(text) => GONE.clone_into(text),
        Value::Array(list) => list.iter_mut().for_each(scrub),
        Value::Object(object) => object.values_mut().for_each(scrub),
    }
}
